//! The thread beside a running program: it reads its standard error, measures its memory, and detects its end, or that
//! it waits for another task.

use crate::killed::memory_bytes;
use crate::process::Process;
use crate::running::Run;
use crate::standard_error::Drain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two measurements of a program's memory.
const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(500);
/// Time for a program that can serve another task to reach a settled state.
const SETTLING_MAX: Duration = Duration::from_secs(5);
/// Bytes read from standard error at once.
const READ_BYTES: usize = 8 << 10;

/// The end of supervision: the state of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It has ended, with all its group; it is not reaped.
    Ended,
    /// It has finished its work, reported everything about it, and waits for another task.
    Waiting,
}

struct Supervisor<'a> {
    run: &'a Run<'a>,
    process: &'a Process,
    drain: Drain<'a>,
    stderr_is_open: bool,
    has_ended: bool,
    /// Time of the next memory measurement.
    look: Instant,
    /// Time limit for settling; None: it has not announced that it stays.
    settles_until: Option<Instant>,
    /// It did not settle.
    given_up: bool,
}

/// Sources that have news: standard error, the end of the program, or the signal of the pipes.
#[derive(Clone, Copy, Default)]
struct News {
    stderr: bool,
    end: bool,
    bell: bool,
}

/// Supervises a program until it has ended or waits for another task. Also returns the last lines of its standard
/// error.
pub(crate) fn supervise(run: &Run<'_>, process: &Process, drain: Drain<'_>) -> (ProcessEnd, Vec<String>) {
    let mut supervisor = Supervisor {
        run,
        process,
        drain,
        stderr_is_open: true,
        has_ended: false,
        look: Instant::now() + LOOK_AT_MEMORY_EVERY,
        settles_until: None,
        given_up: false,
    };
    while supervisor.stderr_is_open || !supervisor.has_ended {
        let news = supervisor.wait();
        if news.bell {
            run.pipes.heard();
        }
        if news.stderr {
            supervisor.read();
        }
        if news.end {
            supervisor.see_end();
        }
        supervisor.look_at_memory();
        if supervisor.has_settled() {
            return (ProcessEnd::Waiting, supervisor.drain.finish());
        }
    }
    (ProcessEnd::Ended, supervisor.drain.finish())
}

impl Supervisor<'_> {
    fn wait(&self) -> News {
        let mut news = News::default();
        let mut watched = Vec::with_capacity(3);
        let mut asked = Vec::with_capacity(3);
        watched.push(PollFd::from_borrowed_fd(self.run.pipes.bell(), PollFlags::IN));
        asked.push(&mut news.bell);
        if self.stderr_is_open {
            watched.push(PollFd::from_borrowed_fd(self.process.stderr.as_fd(), PollFlags::IN));
            asked.push(&mut news.stderr);
        }
        if !self.has_ended {
            watched.push(PollFd::from_borrowed_fd(self.process.end.as_fd(), PollFlags::IN));
            asked.push(&mut news.end);
        }
        let until = self.settles_until.map_or(self.look, |settles| settles.min(self.look));
        let left = until.saturating_duration_since(Instant::now());
        let patience = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // After its end there are no measurements: the rest of its standard error arrives without a deadline.
        let patience = (!self.has_ended).then_some(&patience);
        if poll(&mut watched, patience).is_ok_and(|count| count > 0) {
            for (watched, news) in watched.iter().zip(asked) {
                *news = !watched.revents().is_empty();
            }
        }
        news
    }

    fn read(&mut self) {
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(&self.process.stderr, &mut buffer) {
            Ok(0) => self.stderr_is_open = false,
            Ok(count) => self.drain.add(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(_) => self.stderr_is_open = false,
        }
    }

    /// Checks how the leader ended without reaping it, then ends its remaining processes: a grandchild that holds the
    /// pipes would keep the reader waiting.
    fn see_end(&mut self) {
        self.has_ended = true;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = loop {
            match rustix::process::waitid(WaitId::Pid(self.process.pid), options) {
                Err(Errno::INTR) => continue,
                other => break other.ok().flatten(),
            }
        };
        let failed = |code: Option<i32>| code.is_none_or(|code| code != 0 && !self.run.any_exit_code);
        if status.is_some_and(|status| failed(status.exit_status())) {
            self.run.abandoned.store(true, Ordering::Relaxed);
        }
        self.run.programs.kill_and_forget(self.process.group());
    }

    fn look_at_memory(&mut self) {
        let now = Instant::now();
        if self.has_ended || now < self.look {
            return;
        }
        self.look = now + LOOK_AT_MEMORY_EVERY;
        if let Some(bytes) = memory_bytes(self.process.pid) {
            self.run.memory_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether it waits for another task, and all its input and output has arrived.
    fn has_settled(&mut self) -> bool {
        let pipes = &self.run.pipes;
        if self.has_ended || self.given_up || !pipes.waits() {
            return false;
        }
        if pipes.has_fed() && self.drain.has_ended() {
            return true;
        }
        let now = Instant::now();
        if now >= *self.settles_until.get_or_insert(now + SETTLING_MAX) {
            (self.given_up, self.settles_until) = (true, None);
            match pipes.has_fed() {
                // It ends with its input, like a program that serves a single task.
                true => pipes.let_go(),
                false => self.run.refuse_to_wait(),
            }
        }
        false
    }
}
