//! State of the pipes of a program, shared by both sides of a run with the supervising thread.

use api::{Blame, TaskFailure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State of the pipes, shared by their ends and the thread that supervises the program.
#[derive(Debug)]
pub(crate) struct PipeState {
    state: Mutex<State>,
    /// Event descriptor that signals news.
    bell: OwnedFd,
    /// The reader must stop, although a process holds the pipe.
    is_given_up: AtomicBool,
}

/// State of a program's input when its feed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputPipe {
    Open,
    /// The program has closed it.
    Closed,
}

#[derive(Debug, Default)]
struct State {
    /// Kept open for later tasks; None: the end of this task's input is the end of all input.
    stdin: Option<Arc<ChildStdin>>,
    /// Nothing more is fed.
    is_fed: bool,
    /// The program has closed its input.
    is_closed: bool,
    /// Returned by the reader, because the program waits for another task.
    stdout: Option<Arc<ChildStdout>>,
}

impl PipeState {
    /// Makes the state. `stdin`: kept open after the feed.
    pub fn new(stdin: Option<Arc<ChildStdin>>) -> Result<Self, TaskFailure> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
            TaskFailure::new(Blame::Environment, format!("watching a user program: {error}"))
        })?;
        let state = Mutex::new(State { stdin, ..State::default() });
        Ok(Self { state, bell, is_given_up: AtomicBool::new(false) })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Clears the signal.
    pub fn heard(&self) {
        // It may not have been set.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn ring(&self) {
        loop {
            match rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
                Err(Errno::INTR) => {}
                // A full counter is enough: the signal is set.
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Makes the reader stop: the pipe will not end, since a process beyond our reach holds it. The reader may wait in the
    /// kernel, so it gets a byte that it throws away.
    pub fn give_up(&self, stdout: &ChildStdout) {
        self.is_given_up.store(true, Ordering::Relaxed);
        let path = format!("/proc/self/fd/{}", stdout.as_fd().as_raw_fd());
        let written = File::options().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
        // A full pipe wakes the reader as well.
        let _ = written.and_then(|mut pipe| pipe.write(&[0]));
    }

    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Records the end of the feed.
    pub fn end_feed(&self, input: InputPipe) {
        let mut state = self.lock();
        (state.is_fed, state.is_closed) = (true, input == InputPipe::Closed);
        drop(state);
        self.ring();
    }

    /// Makes the program's input end with its feed.
    pub fn let_go(&self) {
        self.lock().stdin = None;
    }

    /// Takes the output of a program that waits for another task; returns it if the program must not stay.
    pub fn hand_back(&self, stdout: Arc<ChildStdout>) -> Option<Arc<ChildStdout>> {
        let mut state = self.lock();
        if state.stdin.is_none() {
            return Some(stdout);
        }
        state.stdout = Some(stdout);
        drop(state);
        self.ring();
        None
    }

    /// Returns whether the program waits for another task.
    pub fn waits(&self) -> bool {
        self.lock().stdout.is_some()
    }

    /// Returns whether everything has been fed.
    pub fn has_fed(&self) -> bool {
        self.lock().is_fed
    }

    /// Returns both pipes of a program that stays; the output alone if its input has been closed.
    pub fn take_pipes(&self) -> (Option<Arc<ChildStdin>>, Option<Arc<ChildStdout>>) {
        let mut state = self.lock();
        let stdin = state.stdin.take();
        (stdin.filter(|_| !state.is_closed), state.stdout.take())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
