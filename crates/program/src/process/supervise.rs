//! The thread beside a running program: it reads its standard error, measures its memory, and detects its end, or that
//! it waits for another task.

use crate::limits::Passed;
use crate::process::Process;
use crate::process::ending::{Ending, OpenPipes, Outcome, Rest};
use crate::process::limit_watch::LimitWatch;
use crate::process::standard_error::Drain;
use crate::running::Run;
use containment::ContainmentError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two measurements of a program's memory.
const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(500);
/// Time for a program that can serve another task to reach a settled state.
const SETTLING_MAX: Duration = Duration::from_secs(5);
/// Bytes read from standard error at once.
const READ_BYTES: usize = 8 << 10;

/// The end of supervision: the state of the program.
#[derive(Debug)]
pub(crate) enum ProcessEnd {
    /// It has ended, with all its group. Error: its init was killed, so its status is unknown.
    Ended(Result<ExitStatus, ContainmentError>, Ending),
    /// It has finished its work, reported everything about it, and waits for another task.
    Waiting,
}

struct Supervisor<'a> {
    run: &'a Run<'a>,
    process: &'a Process,
    drain: Drain<'a>,
    stderr_is_open: bool,
    ended: Option<Ended>,
    /// Time of the next memory measurement.
    look: Instant,
    /// Time limit for settling; None: it has not announced that it stays.
    settles_until: Option<Instant>,
    /// It did not settle.
    given_up: bool,
    limits: LimitWatch,
}

/// A program that has ended.
struct Ended {
    status: Result<ExitStatus, ContainmentError>,
    ending: Ending,
    rest: Rest,
}

/// Sources that have news: standard error, the end of the program, or the signal of the pipes.
#[derive(Clone, Copy, Default)]
struct News {
    stderr: bool,
    end: bool,
    bell: bool,
}

/// The result of supervision.
pub(crate) struct Supervised {
    pub end: ProcessEnd,
    /// The last lines of standard error.
    pub tail: Vec<String>,
    /// The limit that its attempt passed.
    pub passed: Option<Passed>,
}

/// Supervises a program until it has ended or waits for another task.
pub(crate) fn supervise(
    run: &Run<'_>,
    process: &Process,
    drain: Drain<'_>,
    limits: LimitWatch,
) -> Supervised {
    let mut supervisor = Supervisor {
        run,
        process,
        drain,
        stderr_is_open: true,
        ended: None,
        look: Instant::now() + LOOK_AT_MEMORY_EVERY,
        settles_until: None,
        given_up: false,
        limits,
    };
    while supervisor.goes_on() {
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
        supervisor.look_at_pipes();
        supervisor.look_at_memory();
        supervisor.look_at_limits();
        if supervisor.has_settled() {
            break;
        }
    }
    let Supervisor { ended, mut drain, limits, .. } = supervisor;
    let end = match ended {
        Some(Ended { status, ending, .. }) => ProcessEnd::Ended(status, ending),
        None => ProcessEnd::Waiting,
    };
    Supervised { end, tail: drain.finish(), passed: limits.passed() }
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
        let (stdin, stdout) = self.run.open_pipes();
        let looks = [Some(self.look), self.settles_until, self.limits.next()];
        let mut until = looks.into_iter().flatten().min().unwrap_or(self.look);
        match &self.ended {
            None => {
                watched.push(PollFd::from_borrowed_fd(self.process.end.as_fd(), PollFlags::IN));
                asked.push(&mut news.end);
            }
            Some(ended) => {
                if let Rest::Awaited(rest_until) = ended.rest {
                    until = rest_until;
                }
                OpenPipes { stdin: stdin.as_deref(), stdout: stdout.as_deref(), stderr: None }
                    .watch(&mut watched);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let patience = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // Without a holder the rest of its standard error arrives without a deadline.
        let is_closed = self.ended.as_ref().is_some_and(|ended| ended.rest == Rest::Closed);
        let patience = (!is_closed).then_some(&patience);
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

    /// Checks how the program ended.
    fn see_end(&mut self) {
        let status = self.process.end.wait();
        let has_failed =
            |status: &ExitStatus| status.code().is_none_or(|code| code != 0 && !self.run.any_exit_code);
        let has_failed = status.as_ref().map_or(true, has_failed);
        if has_failed {
            self.run.abandoned.store(true, Ordering::Relaxed);
        }
        let outcome = match self.run.abandoned.load(Ordering::Relaxed) {
            true => Outcome::Failed,
            false => Outcome::Succeeded,
        };
        self.limits.look_at_ended(self.process, outcome);
        let (ending, rest) = (Ending::begin(outcome), Rest::Awaited(Instant::now()));
        self.ended = Some(Ended { status, ending, rest });
    }

    /// Returns whether something is still to come.
    fn goes_on(&self) -> bool {
        match self.ended.as_ref().map(|ended| ended.rest) {
            None | Some(Rest::Awaited(_)) => true,
            Some(Rest::Closed) => self.stderr_is_open,
            Some(Rest::GivenUp) => false,
        }
    }

    /// Ends the processes that hold the pipes of the ended program too long.
    fn look_at_pipes(&mut self) {
        let Some(ended) = self.ended.as_mut().filter(|ended| matches!(ended.rest, Rest::Awaited(_))) else {
            return;
        };
        let (stdin, stdout) = self.run.open_pipes();
        let stderr = Some(&self.process.stderr).filter(|_| self.stderr_is_open);
        let open = OpenPipes { stdin: stdin.as_deref(), stdout: stdout.as_deref(), stderr };
        ended.rest = ended.ending.look(self.run.programs, self.process, open, &mut self.drain);
        if let (Rest::GivenUp, Some(stdout)) = (ended.rest, &stdout) {
            self.run.pipes.give_up(stdout);
        }
    }

    fn look_at_limits(&mut self) {
        if self.ended.is_none() && self.limits.look(self.process) {
            self.run.abandoned.store(true, Ordering::Relaxed);
        }
    }

    fn look_at_memory(&mut self) {
        let now = Instant::now();
        if self.ended.is_some() || now < self.look {
            return;
        }
        self.look = now + LOOK_AT_MEMORY_EVERY;
        if let Some(bytes) = self.process.memory_bytes() {
            self.run.memory_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether it waits for another task, and all its input and output has arrived.
    fn has_settled(&mut self) -> bool {
        let pipes = &self.run.pipes;
        if self.ended.is_some() || self.given_up || !pipes.waits() {
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
