//! A standard input that an attempt on another node is still writing.

use crate::attempt::Assignment;
use crate::shared::Shared;
use crate::tasks::growing_outputs::{GrowingStream, OfferedOutputs};
use api::task::RunTask;
use api::{Blame, ContentHash, TaskFailure};
use dataport::{GrowingPiece, GrowingRead};
use program::{FeedOutput, StreamFed, StreamFeed, streams_from_feed};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time without an answer of the writer's node after which the stream counts as broken. The server stops the attempt earlier
/// if it knows that the writer has ended.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// Content of a stream that was read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadStream {
    pub bytes: u64,
    pub sha256: ContentHash,
    /// Time for which its reader waited for bytes.
    pub waited: Duration,
}

/// The streams of an attempt from and to other nodes.
#[derive(Default)]
pub(super) struct NodeStreams {
    /// Standard input of the first program, and its feed.
    stdin: Option<(OwnedFd, StreamFeed)>,
    /// Set when the standard input has come to its end.
    read: Arc<OnceLock<ReadStream>>,
    /// Outputs that readers on other nodes may read as they grow.
    pub offered: Option<OfferedOutputs>,
}

impl NodeStreams {
    /// Opens the streams of an attempt. On one machine there are none.
    pub fn open(shared: &Shared, assignment: &Assignment, task: &RunTask) -> Result<Self, TaskFailure> {
        let Some(data) = shared.record_data.get() else { return Ok(Self::default()) };
        let offers = task.programs().any(|program| program.stdout.is_some());
        let outputs = data.growing_outputs().filter(|_| offers);
        let offered = outputs.map(|outputs| outputs.offer(assignment.attempt));
        let read: Arc<OnceLock<ReadStream>> = Arc::default();
        let path = task.stdin_file().map(|(_, input)| input.path.clone());
        let stdin = match task.growing.zip(path) {
            None => None,
            Some((input, path)) => {
                let stream = data.growing_stream(input).ok_or_else(|| broke("this node cannot read it"))?;
                let request = GrowingRead { attempt: input.attempt, path, offset: 0 };
                let (cancelled, read) = (Arc::clone(&assignment.cancelled), Arc::clone(&read));
                Some(streams_from_feed(move |output| {
                    let carried = carry(stream, request, &cancelled, output)?;
                    carried.into_iter().for_each(|carried| {
                        read.get_or_init(|| carried);
                    });
                    Ok(())
                })?)
            }
        };
        Ok(Self { stdin, read, offered })
    }

    /// Takes the standard input of the first program, with its feed.
    pub fn take_stdin(&mut self) -> Option<(OwnedFd, StreamFeed)> {
        self.stdin.take()
    }

    /// Returns the content of the standard input that was read from another node.
    pub fn read(&self) -> Option<&ReadStream> {
        self.read.get()
    }
}

/// Carries a stream to its end. Returns its content; None if its programs have failed.
fn carry(
    mut stream: Box<dyn GrowingStream>,
    mut request: GrowingRead,
    cancelled: &AtomicBool,
    output: &mut FeedOutput<'_>,
) -> Result<Option<ReadStream>, TaskFailure> {
    let (mut hasher, mut waited, mut heard) = (shipped::Hasher::default(), Duration::ZERO, Instant::now());
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Err(TaskFailure::new(Blame::Cancelled, "the attempt was told to stop"));
        }
        let asked = Instant::now();
        let piece = stream.next(&request);
        waited += asked.elapsed();
        let (bytes, end) = match piece {
            Ok(GrowingPiece::Grows(bytes)) => {
                heard = Instant::now();
                (bytes, None)
            }
            Ok(GrowingPiece::Complete { bytes, total_bytes, sha256 }) => (bytes, Some((total_bytes, sha256))),
            Ok(GrowingPiece::Broken) => return Err(broke("the attempt that wrote it has ended")),
            Ok(GrowingPiece::Unknown) | Err(_) if heard.elapsed() < PATIENCE => {
                waited += PAUSE;
                std::thread::sleep(PAUSE);
                (Vec::new(), None)
            }
            Ok(GrowingPiece::Unknown) => return Err(broke("its node does not know it")),
            Err(reason) => return Err(broke(&reason)),
        };
        hasher.add(&bytes);
        request.offset += bytes.len() as u64;
        if output.write(&bytes)? == StreamFed::Stopped {
            return Ok(None);
        }
        if let Some(stated) = end {
            let read = (request.offset, hasher.hash());
            return match read == stated {
                true => Ok(Some(ReadStream { bytes: read.0, sha256: read.1, waited })),
                false => Err(broke("its file has other bytes")),
            };
        }
    }
}

fn broke(reason: &str) -> TaskFailure {
    let message = format!("the standard input, which another step was writing, came to no end: {reason}");
    TaskFailure { stream_broke: true, ..TaskFailure::new(Blame::Environment, message) }
}
