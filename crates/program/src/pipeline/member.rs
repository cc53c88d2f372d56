//! A running program of a pipeline.

use crate::pipeline::{NamedStream, PipelineProgram, Stdout, Streams};
use crate::process::ending::{Ending, OpenPipes, Outcome, Rest};
use crate::process::limit_watch::LimitWatch;
use crate::process::standard_error::Drain;
use crate::process::{Lives, Process, pipe};
use crate::running::{Exit, judge};
use crate::slots::environment;
use crate::spec::advice;
use api::{Blame, TaskFailure};
use containment::{ContainmentError, HoldersThen};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read from a program at once.
const READ_BYTES: usize = 16 << 10;
/// Time for descendants of an ended program to close the file of its standard output, and between two looks.
const FILE_MAX: Duration = Duration::from_secs(1);
const FILE_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A descriptor of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
    End,
}

/// Use of the engine's copy of the standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// The engine reads it for its caller.
    Shown,
    /// Another program reads it; the engine sees when it is closed.
    Watched,
    /// Its reader has ended: the engine reads the rest, so that the writer ends as with a file.
    Discarded,
}

pub(super) struct Running<'a> {
    program: &'a PipelineProgram,
    process: Process,
    lives: Lives<'a>,
    drain: Drain<'a>,
    limits: LimitWatch,
    taking: Taking,
    is_stdout_open: bool,
    is_stderr_open: bool,
    /// The file of its standard output.
    file: Option<OwnedFd>,
    /// Streams that it opens by name.
    named: Vec<NamedStream>,
    /// Time to look next whether the file, or one of the streams, is still written.
    file_until: Option<Instant>,
    ended: Option<Ended>,
}

/// A program that has ended.
struct Ended {
    status: Result<ExitStatus, ContainmentError>,
    ending: Ending,
    rest: Rest,
    at: Instant,
}

/// The failure of a program.
pub(super) struct Failed {
    pub failure: TaskFailure,
    pub passed_limit: bool,
}

impl<'a> Running<'a> {
    pub fn start(program: &'a PipelineProgram, streams: Streams) -> Result<Self, TaskFailure> {
        let context = &program.context;
        let starting = context.programs.starting()?;
        let stdin = match streams.stdin {
            Some(stdin) => stdin,
            // The other end is closed at once.
            None => pipe()?.0,
        };
        let (its, ours, file, taking) = match streams.stdout {
            Stdout::Shown => {
                let (ours, its) = pipe()?;
                // A program may open and read its own output.
                rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
                (its, Some(ours), None, Taking::Shown)
            }
            Stdout::Pipe { writer, copy, .. } => (writer, Some(copy), None, Taking::Watched),
            Stdout::File(file) => {
                let watched = rustix::io::fcntl_dupfd_cloexec(&file, 3).map_err(failed)?;
                (file, None, Some(watched), Taking::Watched)
            }
        };
        let ours = ours.map(|ours| Arc::new(ours.into()));
        let is_stdout_open = ours.is_some();
        let process = Process::start_with(context, &program.spec, stdin, its, ours)?;
        drop(starting);
        let lives = Lives { programs: &context.programs, number: process.number, ended: false };
        let drain = Drain::new(program.spec.stderr_log.as_deref(), &context.reports);
        let limits = LimitWatch::begin(context).with_file_memory(program.file_memory.as_ref());
        let (is_stderr_open, file_until, ended) = (true, None, None);
        Ok(Self {
            program,
            process,
            lives,
            drain,
            limits,
            taking,
            is_stdout_open,
            is_stderr_open,
            file,
            named: streams.named,
            file_until,
            ended,
        })
    }

    /// Returns whether something is still to come.
    pub fn goes_on(&self) -> bool {
        match self.ended.as_ref().map(|ended| ended.rest) {
            None | Some(Rest::Awaited(_)) => true,
            Some(Rest::Closed) => self.is_stdout_open || self.is_stderr_open || self.file_until.is_some(),
            Some(Rest::GivenUp) => false,
        }
    }

    /// Returns whether it has ended, or has closed its standard output and so may end soon.
    pub fn is_about_to_end(&self) -> bool {
        self.ended.is_some() || !self.is_stdout_open
    }

    /// Returns whether it was ended because the attempt passed one of its limits.
    pub fn has_passed_limit(&self) -> bool {
        self.limits.has_passed()
    }

    /// Reads the rest of its standard output, whose reader has ended.
    pub fn loses_reader(&mut self) {
        if self.taking == Taking::Watched {
            self.taking = Taking::Discarded;
            // What the reader left behind may take the bytes first.
            if let Some(stdout) = self.process.stdout.as_deref() {
                let _ = rustix::io::ioctl_fionbio(stdout, true);
            }
        }
    }

    /// Adds the descriptors to wait for.
    pub fn watch<'b>(
        &'b self,
        position: usize,
        watched: &mut Vec<PollFd<'b>>,
        sources: &mut Vec<(usize, Source)>,
    ) {
        let mut add = |source, descriptor, wanted| {
            sources.push((position, source));
            watched.push(PollFd::from_borrowed_fd(descriptor, wanted));
        };
        if let Some(stdout) = self.process.stdout.as_deref().filter(|_| self.is_stdout_open) {
            let wanted = if self.taking == Taking::Watched { PollFlags::empty() } else { PollFlags::IN };
            add(Source::Stdout, stdout.as_fd(), wanted);
        }
        if self.is_stderr_open {
            add(Source::Stderr, self.process.stderr.as_fd(), PollFlags::IN);
        }
        if self.ended.is_none() {
            add(Source::End, self.process.end.as_fd(), PollFlags::IN);
        }
    }

    /// Returns when to look again, whatever happens.
    pub fn until(&self) -> Option<Instant> {
        let rest = match self.ended.as_ref().map(|ended| ended.rest) {
            Some(Rest::Awaited(until)) => Some(until),
            Some(_) => None,
            None => self.limits.next(),
        };
        rest.into_iter().chain(self.file_until).min()
    }

    /// Takes in the news of a descriptor.
    pub fn take(&mut self, source: Source, mut on_output: impl FnMut(&[u8])) -> Result<(), TaskFailure> {
        match source {
            Source::Stdout if self.taking == Taking::Watched => self.is_stdout_open = false,
            Source::Stdout => {
                let mut buffer = [0; READ_BYTES];
                let Some(stdout) = self.process.stdout.as_deref() else { return Ok(()) };
                match rustix::io::read(stdout, &mut buffer) {
                    Ok(0) => self.is_stdout_open = false,
                    Ok(count) if self.taking == Taking::Shown => on_output(&buffer[..count]),
                    Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Source::Stderr => {
                let mut buffer = [0; READ_BYTES];
                match rustix::io::read(&self.process.stderr, &mut buffer) {
                    Ok(0) => self.is_stderr_open = false,
                    Ok(count) => self.drain.add(&buffer[..count]),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Source::End => self.has_ended(),
        }
        Ok(())
    }

    fn has_ended(&mut self) {
        let status = self.process.end.wait();
        let outcome = match status.as_ref().is_ok_and(ExitStatus::success) {
            true => Outcome::Succeeded,
            false => Outcome::Failed,
        };
        self.limits.look_at_ended(&self.process, outcome);
        let (ending, at) = (Ending::begin(outcome), Instant::now());
        let writes = self.file.is_some() || self.named.iter().any(|stream| stream.written().is_some());
        self.file_until = (writes && outcome == Outcome::Succeeded).then_some(at);
        self.ended = Some(Ended { status, ending, rest: Rest::Awaited(at), at });
    }

    /// Measures what runs, and ends the processes that hold the pipes of the ended program too long.
    pub fn look(&mut self) {
        let Some(ended) = self.ended.as_mut() else {
            self.limits.look(&self.process);
            return;
        };
        if matches!(ended.rest, Rest::Awaited(_)) && self.file_until.is_none() {
            let stdout = self.process.stdout.as_deref().filter(|_| self.is_stdout_open);
            let stderr = Some(&self.process.stderr).filter(|_| self.is_stderr_open);
            let open = OpenPipes { stdin: None, stdout, stderr };
            ended.rest =
                ended.ending.look(&self.program.context.programs, &self.process, open, &mut self.drain);
        }
        self.look_at_file();
    }

    /// Looks whether descendants of the ended program still write to the file of its standard output, or to a stream.
    fn look_at_file(&mut self) {
        let now = Instant::now();
        let (Some(until), Some(ended)) = (self.file_until, &mut self.ended) else { return };
        if now < until {
            return;
        }
        let files = self.file.iter().map(|file| (file, "its standard output".to_string()));
        let init = &self.process.member.init;
        let named = self.named.iter().filter_map(|stream| Some((stream.written()?, stream.shown())));
        let held = files.chain(named).find_map(|(file, name)| {
            let holders = init.holders(file.as_fd(), HoldersThen::Live).unwrap_or_default();
            (!holders.is_empty()).then_some((holders, name))
        });
        let is_last = now.saturating_duration_since(ended.at) >= FILE_MAX;
        self.file_until = (held.is_some() && !is_last).then(|| now + FILE_LOOK_EVERY);
        if let Some((holders, name)) = held.filter(|_| is_last) {
            let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
            ended.ending.held_by(names.join(", "), name);
        }
        if self.file_until.is_none() {
            ended.rest = Rest::Awaited(now);
        }
    }

    /// Returns the outcome of a program of which nothing more comes.
    pub fn finish(mut self) -> Result<(), Box<Failed>> {
        let tail = self.drain.finish();
        let other = |failure| Box::new(Failed { failure, passed_limit: false });
        let context = &self.program.context;
        if self.program.file_memory.as_ref().is_some_and(|memory| memory.is_outgrown()) {
            let message = "the files of the program did not fit in memory";
            let failure = TaskFailure::new(Blame::Environment, message);
            return Err(Box::new(Failed { failure, passed_limit: true }));
        }
        if let Some(passed) = self.limits.passed() {
            let failure = context.limits.failure(&passed, tail);
            return Err(Box::new(Failed { failure, passed_limit: true }));
        }
        self.lives.ended = true;
        let Some(Ended { status, ending, .. }) = self.ended else {
            return Err(other(TaskFailure::new(Blame::Engine, "a program was not waited for")));
        };
        let status = status.map_err(|error| other(environment(&error)))?;
        ending.check(&self.program.spec.words[0]).map_err(other)?;
        let spec = &self.program.spec;
        let note = advice::after_success(spec, &tail).filter(|_| status.success());
        note.iter().for_each(|note| self.drain.note(note));
        judge(context, spec, Exit { status, memory_bytes: 0 }, tail).map_err(other)?;
        self.named.iter().try_for_each(NamedStream::check).map_err(other)
    }
}

fn failed(error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("reading the output of the program: {error}"))
}
