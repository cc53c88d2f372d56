//! Frames from a program.

use api::program::ProgramFailure;
use api::{Blame, TaskFailure};
use program::{AfterTask, FunctionContext, ProgramOutput};
use program_protocol::{FrameError, FrameKind, Pairs, TailedPairs};
use std::io::Read;

/// Bytes of a frame beyond a single record: the lengths of a batch, or the text of a failure.
const BESIDE_RECORD_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of traceback lines of a failure that are kept: the last ones.
const TRACEBACK_LINES_MAX: usize = 100;

/// An item in the output of a program.
#[derive(Debug)]
pub enum PutOut<'a> {
    Pair {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// A pair whose reducer depends only on the first bytes of the key.
    TailedPair {
        key: &'a [u8],
        value: &'a [u8],
        partition_key_bytes: usize,
    },
    /// Bytes of the part, in which this many records end.
    Output {
        records: u64,
        bytes: &'a [u8],
    },
}

/// Totals of the output of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Action that the program announced in its end frame. None if it ended without one; its exit status explains why.
    end: Option<AfterTask>,
    /// Number of pairs, and of records in the output.
    pub records: u64,
    /// Key and value bytes, and bytes of the output.
    pub bytes: u64,
}

impl Taken {
    /// Returns an error if the program ended too early without reporting a failure.
    pub fn complete(self) -> Result<Self, TaskFailure> {
        match self.end {
            Some(_) => Ok(self),
            None => Err(of_program(
                "the program ended without the frame E, which says that a task is done".to_string(),
            )),
        }
    }
}

/// Reads the output of a program until its end frame, or its end. Fails with the errors of `take`, with a failure that
/// the program reports, and with [`Blame::UserProgram`] for bytes that are no frame.
fn take_frames(
    source: impl Read,
    context: &FunctionContext,
    mut take: impl FnMut(PutOut<'_>) -> Result<(), TaskFailure>,
) -> Result<Taken, TaskFailure> {
    let payload_bytes_max = context.record_bytes_max.saturating_add(BESIDE_RECORD_BYTES_MAX);
    let mut frames =
        program_protocol::FromProgram::new(source, payload_bytes_max, context.buffer_bytes.saturating_mul(2));
    let mut taken = Taken::default();
    let mut number = 0_u64;
    loop {
        number += 1;
        let of_frame = |reason: String| of_program(format!("frame {number} of the program: {reason}"));
        let frame = frames.next_frame().map_err(|error| match error {
            FrameError::Io(error) => cannot_read(&error),
            error => of_frame(error.to_string()),
        })?;
        match frame {
            None => return Ok(taken),
            Some((FrameKind::Pairs, payload)) => {
                let pairs = Pairs::parse(payload).map_err(|error| of_frame(error.to_string()))?;
                taken.records += pairs.len() as u64;
                for (key, value) in pairs.iter() {
                    taken.bytes += (key.len() + value.len()) as u64;
                    take(PutOut::Pair { key, value })?;
                }
            }
            Some((FrameKind::TailedPairs, payload)) => {
                let tailed = TailedPairs::parse(payload).map_err(|error| of_frame(error.to_string()))?;
                taken.records += tailed.pairs().len() as u64;
                for (key, value, partition_key_bytes) in tailed.iter() {
                    taken.bytes += (key.len() + value.len()) as u64;
                    take(PutOut::TailedPair { key, value, partition_key_bytes })?;
                }
            }
            Some((FrameKind::Output, payload)) => {
                let Some((records, bytes)) = payload.split_first_chunk::<8>() else {
                    return Err(of_frame("it has no number of records".to_string()));
                };
                let records = u64::from_le_bytes(*records);
                taken.records = taken.records.saturating_add(records);
                taken.bytes += bytes.len() as u64;
                take(PutOut::Output { records, bytes })?;
            }
            Some((FrameKind::Failure, payload)) => return Err(failure(payload)),
            Some((_, [])) => return Ok(Taken { end: Some(AfterTask::Exits), ..taken }),
            Some((_, [1])) => return Ok(Taken { end: Some(AfterTask::Waits), ..taken }),
            Some(_) => {
                return Err(of_frame("an end frame that says neither exit nor wait".to_string()));
            }
        }
    }
}

/// Does the same for a running program, and handles its action after the end. It is also an error if the program writes
/// more.
pub fn take_from_program(
    mut output: ProgramOutput,
    context: &FunctionContext,
    take: impl FnMut(PutOut<'_>) -> Result<(), TaskFailure>,
) -> Result<Taken, TaskFailure> {
    let taken = take_frames(&mut output, context, take)?;
    if let Some(end) = taken.end {
        output.end(end)?;
    }
    Ok(taken)
}

fn cannot_read(error: &std::io::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot read from the user program: {error}"))
}

fn of_program(message: String) -> TaskFailure {
    TaskFailure::new(Blame::UserProgram, message)
}

fn failure(payload: &[u8]) -> TaskFailure {
    match serde_json::from_slice::<ProgramFailure>(payload) {
        Err(error) => of_program(format!("the program failed, and its reason is unreadable: {error}")),
        Ok(mut reason) => {
            let blame = if reason.is_of_data { Blame::UserData } else { Blame::UserProgram };
            let cut = reason.traceback.len().saturating_sub(TRACEBACK_LINES_MAX);
            reason.traceback.drain(..cut);
            TaskFailure { stderr_tail: reason.traceback, ..TaskFailure::new(blame, reason.message) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PutOut, take_frames};
    use api::{Blame, TaskFailure};
    use program::{FunctionContext, Programs};
    use std::sync::Arc;

    fn context() -> FunctionContext {
        FunctionContext {
            programs: Arc::new(Programs::new()),
            work_dir: "/".into(),
            start_dir: "/".into(),
            env: Vec::new(),
            record_bytes_max: 100,
            buffer_bytes: 64,
            cancelled: Arc::default(),
            stderr_log: None,
            limits: Default::default(),
            disk_dirs: Vec::new(),
            reports: Default::default(),
            declared_reads: None,
            any_exit_code: false,
            task_env: Vec::new(),
            kept_for: None,
            sandbox: None,
            named: Vec::new(),
        }
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&(payload.len() as u32).to_le_bytes()[..], &[kind, 0, 0, 0], payload].concat()
    }

    fn taken(bytes: &[u8]) -> Result<(Vec<String>, u64), TaskFailure> {
        let context = context();
        let mut all = Vec::new();
        let taken = take_frames(bytes, &context, |each| {
            all.push(match each {
                PutOut::Pair { key, value } => {
                    format!("{}={}", key.escape_ascii(), value.escape_ascii())
                }
                PutOut::TailedPair { key, value, partition_key_bytes } => {
                    let (partition_key, tail) = key.split_at(partition_key_bytes);
                    let words = [partition_key, tail, value].map(|bytes| bytes.escape_ascii().to_string());
                    format!("{}+{}={}", words[0], words[1], words[2])
                }
                PutOut::Output { records, bytes } => format!("{records}: {}", bytes.escape_ascii()),
            });
            Ok(())
        })?;
        taken.complete().map(|taken| (all, taken.records))
    }

    fn one_pair() -> Vec<u8> {
        frame(b'P', b"\x01\0\0\0\x01\0\0\0\x02\0\0\0kvw")
    }

    #[test]
    fn pairs_and_output_are_taken() {
        let output = frame(b'O', b"\x02\0\0\0\0\0\0\0a\nb\n");
        let (all, records) = taken(&[one_pair(), output, frame(b'E', b"")].concat()).unwrap();
        assert_eq!((all, records), (vec!["k=vw".to_string(), "2: a\\nb\\n".to_string()], 3));
        let tailed = frame(b'T', b"\x01\0\0\0\x03\0\0\0\x01\0\0\0\x02\0\0\0abcv");
        let (all, records) = taken(&[tailed, frame(b'E', b"")].concat()).unwrap();
        assert_eq!((all, records), (vec!["ab+c=v".to_string()], 1));
        assert_eq!(taken(&frame(b'E', b"\x01")).unwrap(), (Vec::new(), 0));
    }

    #[test]
    fn wrong_frames_are_refused() {
        let check = |bytes: &[u8], expected: &str| {
            let failure = taken(bytes).unwrap_err();
            assert_eq!(failure.blame, Blame::UserProgram);
            assert!(failure.message.contains(expected), "{failure:?}");
        };
        check(b"hello, world\n", "frame 1 of the program: it begins with \"hello, w\"");
        check(&[one_pair(), frame(b'J', b"")].concat(), "frame 2 of the program: it begins with");
        check(&frame(b'P', b""), "too few for the lengths");
        let too_long = frame(b'T', b"\x01\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0a");
        check(
            &too_long,
            "frame 1 of the program: the partition key of its pair 0 has 2 bytes, but the key has 1",
        );
        check(&frame(b'O', b"1234"), "no number of records");
        check(&[0, 0, 0, 0x7f, b'P', 0, 0, 0], "more than the limit of 1048676");
        check(b"", "ended without the frame E");
        check(&one_pair()[..12], "ended without the frame E");
        check(&frame(b'E', b"\x02"), "an end frame that says neither");
        check(&frame(b'X', b"no JSON"), "its reason is unreadable");
    }

    #[test]
    fn a_program_says_why_it_failed() {
        let reason = br#"{"message":"ZeroDivisionError","is_of_data":true,"traceback":["line 1","line 2"]}"#;
        let failure = taken(&frame(b'X', reason)).unwrap_err();
        assert_eq!((failure.blame, failure.message.as_str()), (Blame::UserData, "ZeroDivisionError"));
        assert_eq!(failure.stderr_tail, ["line 1", "line 2"]);
    }
}
