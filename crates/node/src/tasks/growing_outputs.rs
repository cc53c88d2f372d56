//! Standard outputs that programs of this node are writing, for readers on other nodes that need not wait for their end.
//!
//! An output grows in the directory of its program; readers read that file. It is complete when the outputs of its attempt
//! have got their paths and the server knows of it: only then does no other attempt write it again.

use api::ContentHash;
use api::task::FileContent;
use dataport::{GROWING_BYTES_MAX, GrowingOutputService, GrowingPiece, GrowingRead};
use ids::AttemptKey;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of attempts that have ended and whose outputs are read on. Beyond it readers begin again from the files.
const ENDED_MAX: usize = 64;
/// Time without a reader after which the outputs of an attempt that has ended are closed.
const UNREAD_MAX: Duration = Duration::from_secs(600);

/// Reader of an output that an attempt on another node is writing.
pub trait GrowingStream: Send {
    /// Returns the next bytes. Waits for less than a second. An error is a sentence; a later call may succeed.
    fn next(&mut self, request: &GrowingRead) -> Result<GrowingPiece, String>;
}

/// The outputs of all attempts of a node.
#[derive(Default)]
pub struct GrowingOutputs {
    attempts: Mutex<BTreeMap<AttemptKey, OfAttempt>>,
}

struct OfAttempt {
    outputs: Vec<Output>,
    state: State,
    /// Time of the last read; None if nobody has read them.
    read: Option<Instant>,
}

struct Output {
    path: PathBuf,
    file: Arc<File>,
    /// Known when the output has got its path.
    content: Option<(u64, ContentHash)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// The outputs have their paths; the server does not know it yet.
    Published,
    Complete,
    Broken,
}

/// The outputs of one attempt. When it is dropped, the attempt has ended.
pub(super) struct OfferedOutputs {
    all: Arc<GrowingOutputs>,
    attempt: AttemptKey,
}

impl GrowingOutputs {
    fn attempts(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, OfAttempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers the outputs of an attempt, none so far.
    pub(super) fn offer(self: &Arc<Self>, attempt: AttemptKey) -> OfferedOutputs {
        let mut attempts = self.attempts();
        let is_stale = |read: Option<Instant>| read.is_none_or(|read| read.elapsed() >= UNREAD_MAX);
        attempts.retain(|_, other| other.state == State::Runs || !is_stale(other.read));
        attempts.insert(attempt, OfAttempt { outputs: Vec::new(), state: State::Runs, read: None });
        OfferedOutputs { all: Arc::clone(self), attempt }
    }

    /// Records that the server knows the ends of attempts.
    pub(crate) fn confirmed(&self, ends: &[AttemptKey]) {
        let mut attempts = self.attempts();
        for attempt in ends {
            if let Some(ended) = attempts.get_mut(attempt).filter(|ended| ended.state == State::Published) {
                ended.state = State::Complete;
            }
        }
    }
}

impl OfferedOutputs {
    /// Adds an output, which is still empty.
    pub fn add(&self, path: PathBuf, file: File) {
        if let Some(attempt) = self.all.attempts().get_mut(&self.attempt) {
            attempt.outputs.push(Output { path, file: Arc::new(file), content: None });
        }
    }

    /// Returns whether anyone has read them.
    pub fn are_read(&self) -> bool {
        self.all.attempts().get(&self.attempt).is_some_and(|attempt| attempt.read.is_some())
    }

    /// Records that they have got their paths, with these contents.
    pub fn published<'a>(&self, contents: impl Iterator<Item = &'a FileContent>) {
        let mut attempts = self.all.attempts();
        let Some(attempt) = attempts.get_mut(&self.attempt) else { return };
        for content in contents {
            let output = attempt.outputs.iter_mut().find(|output| output.path == content.path);
            if let (Some(output), Some(sha256)) = (output, content.sha256) {
                output.content = Some((content.bytes, sha256));
            }
        }
        attempt.state = State::Published;
    }
}

impl Drop for OfferedOutputs {
    fn drop(&mut self) {
        let mut attempts = self.all.attempts();
        match attempts.get_mut(&self.attempt) {
            Some(attempt) if attempt.read.is_some() => {
                if attempt.state == State::Runs {
                    attempt.state = State::Broken;
                }
            }
            _ => drop(attempts.remove(&self.attempt)),
        }
        while attempts.values().filter(|attempt| attempt.state != State::Runs).count() > ENDED_MAX {
            let ended = attempts.iter().filter(|(_, attempt)| attempt.state != State::Runs);
            let oldest = ended.min_by_key(|(_, attempt)| attempt.read).map(|(attempt, _)| *attempt);
            oldest.into_iter().for_each(|oldest| drop(attempts.remove(&oldest)));
        }
    }
}

impl GrowingOutputService for GrowingOutputs {
    fn read(&self, request: &GrowingRead) -> std::io::Result<GrowingPiece> {
        let mut attempts = self.attempts();
        let Some(attempt) = attempts.get_mut(&request.attempt) else { return Ok(GrowingPiece::Unknown) };
        let output = attempt.outputs.iter().find(|output| output.path == request.path);
        let Some(output) = output else {
            return Ok(if attempt.state == State::Runs {
                GrowingPiece::Unknown
            } else {
                GrowingPiece::Broken
            });
        };
        attempt.read = Some(Instant::now());
        let (state, file, content) = (attempt.state, Arc::clone(&output.file), output.content);
        drop(attempts);
        let bytes = match state {
            State::Broken => return Ok(GrowingPiece::Broken),
            // It was published without a reader.
            State::Published | State::Complete if content.is_none() => return Ok(GrowingPiece::Broken),
            _ => read_at(&file, request.offset)?,
        };
        let end = request.offset.saturating_add(bytes.len() as u64);
        match content.filter(|_| state == State::Complete) {
            Some((total_bytes, sha256)) if end == total_bytes => {
                Ok(GrowingPiece::Complete { bytes, total_bytes, sha256 })
            }
            // The program has written to the file by its name.
            Some((total_bytes, _)) if end > total_bytes || bytes.is_empty() => Ok(GrowingPiece::Broken),
            _ => Ok(GrowingPiece::Grows(bytes)),
        }
    }
}

fn read_at(file: &File, offset: u64) -> std::io::Result<Vec<u8>> {
    let left = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; left.min(GROWING_BYTES_MAX as u64) as usize];
    let mut count = 0;
    while count < bytes.len() {
        match file.read_at(&mut bytes[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{ENDED_MAX, GrowingOutputs};
    use api::task::FileContent;
    use dataport::{GrowingOutputService, GrowingPiece, GrowingRead};
    use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn attempt(job: i64) -> AttemptKey {
        let task = TaskKey { job: JobId(job), stage: StageIndex(0), task: TaskIndex(0) };
        AttemptKey { task, attempt: AttemptNumber(0) }
    }

    fn read(outputs: &GrowingOutputs, job: i64, offset: u64) -> GrowingPiece {
        let read = GrowingRead { attempt: attempt(job), path: PathBuf::from("/w/out"), offset };
        outputs.read(&read).expect("it can be read")
    }

    fn content(bytes: &[u8]) -> FileContent {
        FileContent {
            path: PathBuf::from("/w/out"),
            real_path: None,
            sha256: Some(shipped::hash_of(bytes)),
            bytes: bytes.len() as u64,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        }
    }

    #[test]
    fn output_is_complete_when_the_server_knows() {
        let (outputs, mut file) = (Arc::new(GrowingOutputs::default()), tempfile::tempfile().unwrap());
        assert_eq!(read(&outputs, 1, 0), GrowingPiece::Unknown);
        let offered = outputs.offer(attempt(1));
        assert_eq!(read(&outputs, 1, 0), GrowingPiece::Unknown);
        offered.add(PathBuf::from("/w/out"), file.try_clone().unwrap());
        assert!(!offered.are_read());
        assert_eq!(read(&outputs, 1, 0), GrowingPiece::Grows(Vec::new()));
        file.write_all(b"one").unwrap();
        assert_eq!(read(&outputs, 1, 0), GrowingPiece::Grows(b"one".to_vec()));
        file.write_all(b"two").unwrap();
        assert!(offered.are_read());
        offered.published([content(b"onetwo")].iter());
        drop(offered);
        assert_eq!(read(&outputs, 1, 3), GrowingPiece::Grows(b"two".to_vec()), "the server does not know");
        outputs.confirmed(&[attempt(1)]);
        let sha256 = shipped::hash_of(b"onetwo");
        let complete =
            |bytes: &[u8]| GrowingPiece::Complete { bytes: bytes.to_vec(), total_bytes: 6, sha256 };
        assert_eq!(read(&outputs, 1, 3), complete(b"two"));
        assert_eq!(read(&outputs, 1, 6), complete(b""));
        assert_eq!(read(&outputs, 1, 7), GrowingPiece::Broken);
    }

    #[test]
    fn failed_writer_breaks_its_output() {
        let outputs = Arc::new(GrowingOutputs::default());
        for (is_read, expected) in [(true, GrowingPiece::Broken), (false, GrowingPiece::Unknown)] {
            let offered = outputs.offer(attempt(2));
            offered.add(PathBuf::from("/w/out"), tempfile::tempfile().unwrap());
            if is_read {
                read(&outputs, 2, 0);
            }
            drop(offered);
            outputs.confirmed(&[attempt(2)]);
            assert_eq!(read(&outputs, 2, 0), expected);
        }
    }

    #[test]
    fn ended_outputs_are_bounded() {
        let outputs = Arc::new(GrowingOutputs::default());
        let count = ENDED_MAX as i64 + 5;
        for job in 0..count {
            let offered = outputs.offer(attempt(job));
            offered.add(PathBuf::from("/w/out"), tempfile::tempfile().unwrap());
            read(&outputs, job, 0);
        }
        let known = (0..count).filter(|job| read(&outputs, *job, 0) != GrowingPiece::Unknown).count();
        assert_eq!(known, ENDED_MAX);
    }
}
