//! Output of the programs of one-task jobs, while they run and afterwards: the end of it, as text.

use api::machine::{OutputChunk, ProgramSaid};
use api::task::{RUN_OUTPUT_BYTES_MAX, RunResult};
use ids::AttemptKey;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read from a program at once.
const READ_BYTES: usize = 16 << 10;

/// The end of the text of one output.
#[derive(Debug, Default)]
struct Tail {
    text: String,
    /// Bytes of the text before `text`.
    dropped_bytes: u64,
    /// The beginning of an incomplete character.
    begun: Vec<u8>,
    /// Position up to which the text was reported.
    told_bytes: u64,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.begun.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.begun);
        let mut rest = &bytes[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text.push_str(text);
                    break;
                }
                Err(error) => {
                    let (valid, others) = rest.split_at(error.valid_up_to());
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.begun = others.to_vec();
                        break;
                    };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = &others[wrong..];
                }
            }
        }
        // Done from time to time, so that the kept text is not moved for every piece.
        if self.text.len() > 2 * RUN_OUTPUT_BYTES_MAX {
            self.keep_last();
        }
    }

    fn keep_last(&mut self) {
        let cut = self.text.ceil_char_boundary(self.text.len().saturating_sub(RUN_OUTPUT_BYTES_MAX));
        self.text.drain(..cut);
        self.dropped_bytes += cut as u64;
    }

    fn end_bytes(&self) -> u64 {
        self.dropped_bytes + self.text.len() as u64
    }

    /// Returns the text that was not reported before; it is reported once.
    fn news(&mut self) -> OutputChunk {
        self.keep_last();
        let from = self.told_bytes.saturating_sub(self.dropped_bytes) as usize;
        self.told_bytes = self.end_bytes();
        OutputChunk { text: self.text[from..].to_string(), end_bytes: self.told_bytes }
    }

    /// Returns the kept text, and the bytes of the whole text if that is longer, otherwise 0.
    fn finish(&mut self) -> (String, u64) {
        if !self.begun.is_empty() {
            self.begun.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.keep_last();
        let all = if self.dropped_bytes > 0 { self.end_bytes() } else { 0 };
        (std::mem::take(&mut self.text), all)
    }
}

/// Output of a program. Its standard error goes to a file, which is removed with this value.
#[derive(Debug)]
pub(crate) struct OutputTails {
    inner: Mutex<Inner>,
    error_path: PathBuf,
}

#[derive(Debug, Default)]
struct Inner {
    output: Tail,
    error: Tail,
    /// Bytes of the file that were read.
    error_read: u64,
}

impl OutputTails {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the file for standard error.
    pub fn error_path(&self) -> &Path {
        &self.error_path
    }

    /// Adds a piece of standard output.
    pub fn add_output(&self, bytes: &[u8]) {
        self.inner().output.add(bytes);
    }

    /// Returns the output that was not reported before; None if there is none.
    fn news(&self, attempt: AttemptKey) -> Option<ProgramSaid> {
        let mut inner = self.inner();
        inner.read_error(&self.error_path);
        let (output, error) = (inner.output.news(), inner.error.news());
        let any = !output.text.is_empty() || !error.text.is_empty();
        any.then_some(ProgramSaid { attempt, standard_output: output, standard_error: error })
    }

    /// Returns the output of a program that has ended.
    pub fn finish(&self) -> RunResult {
        let mut inner = self.inner();
        inner.read_error(&self.error_path);
        let (standard_output, standard_output_bytes) = inner.output.finish();
        let (standard_error, standard_error_bytes) = inner.error.finish();
        RunResult {
            standard_output,
            standard_error,
            standard_output_bytes,
            standard_error_bytes,
            ..RunResult::default()
        }
    }
}

impl Inner {
    /// Reads new content of the file. A read error must not fail the program.
    fn read_error(&mut self, path: &Path) {
        let Ok(mut file) = File::open(path) else { return };
        if file.seek(SeekFrom::Start(self.error_read)).is_err() {
            return;
        }
        let mut buffer = [0; READ_BYTES];
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            self.error_read += count as u64;
            self.error.add(&buffer[..count]);
        }
    }
}

impl Drop for OutputTails {
    fn drop(&mut self) {
        // A program that wrote nothing may have left no file.
        let _ = std::fs::remove_file(&self.error_path);
    }
}

/// The running programs of one-task jobs.
#[derive(Debug, Default)]
pub(crate) struct RunningOutputs {
    running: Mutex<BTreeMap<AttemptKey, Arc<OutputTails>>>,
}

/// Removes the program from the list when dropped.
pub(crate) struct Listed<'a> {
    outputs: &'a RunningOutputs,
    attempt: AttemptKey,
    pub output: Arc<OutputTails>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.outputs.running().remove(&self.attempt);
    }
}

impl RunningOutputs {
    fn running(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Arc<OutputTails>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a program to the list, until the returned value is dropped.
    pub fn begin(&self, attempt: AttemptKey) -> Listed<'_> {
        let name =
            format!("sailfish-{}-job{}-{}.err", std::process::id(), attempt.task.job, attempt.attempt.0);
        let output = OutputTails { inner: Mutex::default(), error_path: std::env::temp_dir().join(name) };
        let output = Arc::new(output);
        self.running().insert(attempt, Arc::clone(&output));
        Listed { outputs: self, attempt, output }
    }

    /// Returns the output that running programs wrote since the last call.
    pub fn news(&self) -> Vec<ProgramSaid> {
        let running: Vec<(AttemptKey, Arc<OutputTails>)> =
            self.running().iter().map(|(attempt, output)| (*attempt, Arc::clone(output))).collect();
        running.into_iter().filter_map(|(attempt, output)| output.news(attempt)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{RUN_OUTPUT_BYTES_MAX, RunningOutputs, Tail};
    use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};

    #[test]
    fn the_last_of_a_long_output_is_kept() {
        let mut tail = Tail::default();
        for _ in 0..5 {
            tail.add(&vec![b'a'; RUN_OUTPUT_BYTES_MAX]);
        }
        tail.add(b"end\xff");
        let (text, all) = tail.finish();
        assert!(text.ends_with("end\u{fffd}") && text.starts_with('a'));
        assert_eq!((text.len(), all), (RUN_OUTPUT_BYTES_MAX, 5 * RUN_OUTPUT_BYTES_MAX as u64 + 6));
        assert_eq!(Tail::default().finish(), (String::new(), 0));
    }

    #[test]
    fn characters_are_told_whole_and_once() {
        let mut tail = Tail::default();
        let mut told = String::new();
        for byte in "größe €\n".bytes() {
            tail.add(&[byte]);
            let news = tail.news();
            told.push_str(&news.text);
            assert_eq!(news.end_bytes, told.len() as u64);
        }
        assert_eq!(told, "größe €\n");
        tail.add(b"\xe2\x82");
        assert_eq!(tail.news().text, "");
        assert_eq!(tail.finish(), ("größe €\n\u{fffd}".to_string(), 0));
    }

    #[test]
    fn program_output_is_reported_until_its_end() {
        let outputs = RunningOutputs::default();
        let task = TaskKey { job: JobId(i64::MAX - 7), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(2) };
        let listed = outputs.begin(attempt);
        assert_eq!(outputs.news(), []);
        listed.output.add_output(b"out");
        std::fs::write(listed.output.error_path(), "oh").unwrap();
        let news = outputs.news();
        assert_eq!((news.len(), news[0].attempt), (1, attempt));
        assert_eq!((&*news[0].standard_output.text, &*news[0].standard_error.text), ("out", "oh"));
        assert_eq!(outputs.news(), []);
        std::fs::write(listed.output.error_path(), "oh no").unwrap();
        assert_eq!(outputs.news()[0].standard_error.text, " no");
        let result = listed.output.finish();
        assert_eq!((&*result.standard_output, &*result.standard_error), ("out", "oh no"));
        let path = listed.output.error_path().to_path_buf();
        drop(listed);
        assert!(!path.exists() && outputs.news().is_empty());
    }
}
