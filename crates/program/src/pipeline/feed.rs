//! A standard input that the caller writes while the programs run: a stream from another node.

use crate::pipeline::relay::Signal;
use crate::process::pipe;
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;

/// Writes a stream to its end. An error ends the programs; the end of the standard input is seen only after `Ok`.
type FeedWork = Box<dyn FnOnce(&mut FeedOutput<'_>) -> Result<(), TaskFailure> + Send>;

/// A standard input that a thread of its own writes.
pub struct StreamFeed {
    output: OwnedFd,
    work: FeedWork,
}

impl fmt::Debug for StreamFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamFeed").field("output", &self.output).finish_non_exhaustive()
    }
}

/// The writing end of a standard input.
pub struct FeedOutput<'a> {
    output: &'a OwnedFd,
    stop: &'a Signal,
    is_open: bool,
}

/// The state of the programs after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFed {
    /// They go on, or have succeeded. Bytes that no program takes any more are dropped.
    GoesOn,
    /// They have failed: nothing more is needed.
    Stopped,
}

pub(super) fn feed(work: FeedWork) -> Result<(OwnedFd, StreamFeed), TaskFailure> {
    let (stdin, output) = pipe()?;
    rustix::io::ioctl_fionbio(&output, true).map_err(failed)?;
    Ok((stdin, StreamFeed { output, work }))
}

/// The failure of a feed, with the pipe: it must stay open until the programs have been ended, or they would take the end of
/// their input for its end.
pub(super) struct FeedFailure {
    pub failure: Box<TaskFailure>,
    pub _pipe: OwnedFd,
}

impl StreamFeed {
    /// Does the work. `broken` is given if it fails.
    pub(super) fn run(self, stop: &Signal, broken: &Signal) -> Result<(), FeedFailure> {
        let Self { output, work } = self;
        let worked = work(&mut FeedOutput { output: &output, stop, is_open: true });
        worked.map_err(|failure| {
            broken.give();
            FeedFailure { failure: Box::new(failure), _pipe: output }
        })
    }
}

impl FeedOutput<'_> {
    /// Writes bytes as the program takes them, however long that lasts.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<StreamFed, TaskFailure> {
        loop {
            let writes = self.is_open && !bytes.is_empty();
            if self.waits(if writes { PollFlags::OUT } else { PollFlags::empty() })? == StreamFed::Stopped {
                return Ok(StreamFed::Stopped);
            }
            if !writes {
                return Ok(StreamFed::GoesOn);
            }
            match rustix::io::write(self.output, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::PIPE) => self.is_open = false,
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Waits until the pipe takes bytes, if these are wanted, or until the programs have failed.
    fn waits(&self, wanted: PollFlags) -> Result<StreamFed, TaskFailure> {
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = wanted.is_empty().then_some(&at_once);
        let mut watched = [self.stop.watched(), PollFd::new(self.output, wanted)];
        match poll(&mut watched, patience) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(if watched[0].revents().is_empty() { StreamFed::GoesOn } else { StreamFed::Stopped })
    }
}

fn failed(error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("writing the standard input of a program: {error}"))
}
