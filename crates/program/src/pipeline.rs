//! The programs of a pipeline, which run below one init and are watched by one thread: the one that starts them.
//!
//! Streams between them are plain pipes where one program reads and both run together, else relays with a buffer. A
//! writer whose reader has ended goes on as if it wrote a file: the engine reads the rest. Streams that programs open by
//! name are named pipes in their directories, and always go through relays.

mod feed;
mod member;
mod named;
mod relay;
mod spool;

pub use feed::{FeedOutput, StreamFed, StreamFeed};
pub use named::NamedStream;
pub use relay::{Relay, RelayFile};

use crate::context::FunctionContext;
use crate::pipeline::feed::FeedFailure;
use crate::pipeline::member::{Failed, Running, Source};
use crate::pipeline::relay::{Signal, relay_of_named, relay_of_stdout};
use crate::process::file_memory::FileMemory;
use crate::process::pipe;
use crate::running::as_cancelled;
use crate::spec::ProgramSpec;
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which the writers of a failed program may end with their own failure, which is the cause then.
const CAUSE_MAX: Duration = Duration::from_millis(500);

/// A program of a pipeline.
#[derive(Debug)]
pub struct PipelineProgram {
    pub context: FunctionContext,
    pub spec: ProgramSpec,
    /// Positions of the programs whose files or streams it reads.
    pub reads: BTreeSet<usize>,
    /// Those of them that must have succeeded before it starts.
    pub after: BTreeSet<usize>,
    /// Memory for its files, if its directory lies there.
    pub file_memory: Option<Arc<FileMemory>>,
}

impl PipelineProgram {
    /// Makes a program that reads nothing of others.
    pub fn alone(context: FunctionContext, spec: ProgramSpec) -> Self {
        Self { context, spec, reads: BTreeSet::new(), after: BTreeSet::new(), file_memory: None }
    }
}

impl Streams {
    /// Returns standard streams alone.
    pub fn standard(stdin: Option<OwnedFd>, stdout: Stdout) -> Self {
        Self { stdin, stdout, named: Vec::new() }
    }

    /// Returns an empty standard input and a standard output that is shown.
    pub fn shown() -> Self {
        Self::standard(None, Stdout::Shown)
    }
}

/// The streams of a program.
#[derive(Debug)]
pub struct Streams {
    /// None: empty.
    pub stdin: Option<OwnedFd>,
    pub stdout: Stdout,
    /// Streams that it opens by name.
    pub named: Vec<NamedStream>,
}

/// The place of a program's standard output.
#[derive(Debug)]
pub enum Stdout {
    /// The caller of [`run_pipeline`] gets it.
    Shown,
    File(OwnedFd),
    /// A pipe to another program, or to a relay.
    Pipe {
        writer: OwnedFd,
        /// A copy of the end that is read.
        copy: OwnedFd,
        /// Position of the program that reads it; None for a relay.
        reader: Option<usize>,
    },
}

/// Returns a standard output to a file.
pub fn streams_to_file(file: File) -> Stdout {
    Stdout::File(file.into())
}

/// Returns a plain pipe to the program at a position, and the end for its standard input.
pub fn streams_to_program(reader: usize) -> Result<(Stdout, OwnedFd), TaskFailure> {
    let (stdin, writer) = pipe()?;
    let copy = fcntl_dupfd_cloexec(&stdin, 3).map_err(watching)?;
    Ok((Stdout::Pipe { writer, copy, reader: Some(reader) }, stdin))
}

/// Returns a standard output, and the relay to run, which gets its readers first.
pub fn streams_to_relay(file: RelayFile) -> Result<(Stdout, Relay), TaskFailure> {
    let (writer, copy, relay) = relay_of_stdout(file)?;
    Ok((Stdout::Pipe { writer, copy, reader: None }, relay))
}

/// Returns an output that a program writes by opening this place under this name, and its relay. No file must be there.
pub fn named_to_relay(
    place: &Path,
    name: &Path,
    file: RelayFile,
) -> Result<(NamedStream, Relay), TaskFailure> {
    relay_of_named(place, name, file)
}

/// Returns a standard input that `work` writes on a thread of its own, and the feed to run. The work must end soon after a
/// write has returned [`StreamFed::Stopped`].
pub fn streams_from_feed(
    work: impl FnOnce(&mut FeedOutput<'_>) -> Result<(), TaskFailure> + Send + 'static,
) -> Result<(OwnedFd, StreamFeed), TaskFailure> {
    feed::feed(Box::new(work))
}

/// The streams of a pipeline that threads of the engine carry.
#[derive(Debug, Default)]
pub struct CarriedStreams {
    pub relays: Vec<Relay>,
    pub feeds: Vec<StreamFeed>,
}

impl From<Vec<Relay>> for CarriedStreams {
    fn from(relays: Vec<Relay>) -> Self {
        Self { relays, feeds: Vec::new() }
    }
}

/// Runs programs with their streams, each when those before it have succeeded. `before_start` prepares the program at a
/// position, and returns its standard input if that is known only now; `on_output` gets the standard output that is
/// shown, piece by piece.
///
/// Errors: those of [`crate::run`], for the program whose failure caused the others; those of the closures and feeds; a
/// relay's disk.
pub fn run_pipeline(
    programs: Vec<PipelineProgram>,
    streams: Vec<Streams>,
    carried: impl Into<CarriedStreams>,
    before_start: impl FnMut(usize) -> Result<Option<OwnedFd>, TaskFailure>,
    on_output: impl FnMut(&[u8]),
) -> Result<(), TaskFailure> {
    let (programs, carried) = (see_all(programs), carried.into());
    let Some(first) = programs.first() else { return Ok(()) };
    let outcome = match carried.relays.is_empty() && carried.feeds.is_empty() {
        true => Pipeline::new(&programs, streams, before_start, on_output).run(None),
        false => while_carried(carried, |broken| {
            let outcome = Pipeline::new(&programs, streams, before_start, on_output).run(Some(broken));
            // What the programs left behind could hold the streams.
            first.context.programs.end_attempt();
            outcome
        }),
    };
    as_cancelled(&first.context, outcome)
}

/// Lets each program see the paths of all: the init has one space for an attempt, which the program that starts first
/// prepares.
fn see_all(mut programs: Vec<PipelineProgram>) -> Vec<PipelineProgram> {
    if programs.len() > 1
        && let Some(first) = programs.iter().position(|program| program.after.is_empty())
    {
        let named =
            |program: &PipelineProgram| [&program.context.named[..], &program.spec.named_paths()].concat();
        let all: BTreeSet<PathBuf> = programs.iter().flat_map(named).collect();
        programs[first].context.named = all.into_iter().collect();
    }
    programs
}

fn while_carried(
    carried: CarriedStreams,
    run: impl FnOnce(&Signal) -> Result<(), TaskFailure>,
) -> Result<(), TaskFailure> {
    let (stop, broken) = (Signal::new()?, Signal::new()?);
    std::thread::scope(|scope| {
        let (stop, broken) = (&stop, &broken);
        let CarriedStreams { relays, feeds } = carried;
        let relays: Vec<_> =
            relays.into_iter().map(|relay| scope.spawn(move || relay.run(stop, broken))).collect();
        let feeds: Vec<_> =
            feeds.into_iter().map(|feed| scope.spawn(move || feed.run(stop, broken))).collect();
        let outcome = run(broken);
        if outcome.is_err() {
            stop.give();
        }
        // Their failure breaks the pipes of the programs, so it is the cause.
        // All of them are waited for.
        let relayed: Vec<Result<(), TaskFailure>> = relays
            .into_iter()
            .map(|relay| relay.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let fed: Vec<Result<(), FeedFailure>> = feeds
            .into_iter()
            .map(|feed| feed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        fed.into_iter().collect::<Result<(), _>>().map_err(|failed| *failed.failure)?;
        relayed.into_iter().collect::<Result<(), TaskFailure>>().and(outcome)
    })
}

enum State<'a> {
    Waits(Streams),
    Runs(Box<Running<'a>>),
    Over,
}

struct Pipeline<'a, BeforeStart, OnOutput> {
    programs: &'a [PipelineProgram],
    states: Vec<State<'a>>,
    /// Position of the program that reads the plain pipe of each.
    readers: Vec<Option<usize>>,
    succeeded: BTreeSet<usize>,
    failures: BTreeMap<usize, Box<Failed>>,
    /// Set with the first failure.
    until: Option<Instant>,
    before_start: BeforeStart,
    on_output: OnOutput,
}

impl<'a, BeforeStart, OnOutput> Pipeline<'a, BeforeStart, OnOutput>
where
    BeforeStart: FnMut(usize) -> Result<Option<OwnedFd>, TaskFailure>,
    OnOutput: FnMut(&[u8]),
{
    fn new(
        programs: &'a [PipelineProgram],
        streams: Vec<Streams>,
        before_start: BeforeStart,
        on_output: OnOutput,
    ) -> Self {
        let reader = |streams: &Streams| match streams.stdout {
            Stdout::Pipe { reader, .. } => reader,
            Stdout::Shown | Stdout::File(_) => None,
        };
        Self {
            programs,
            readers: streams.iter().map(reader).collect(),
            states: streams.into_iter().map(State::Waits).collect(),
            succeeded: BTreeSet::new(),
            failures: BTreeMap::new(),
            until: None,
            before_start,
            on_output,
        }
    }

    /// `broken` is given if a relay fails, whose failure is the cause then.
    fn run(mut self, broken: Option<&Signal>) -> Result<(), TaskFailure> {
        loop {
            self.start_ready()?;
            if !self.goes_on() {
                break;
            }
            self.step(broken)?;
            self.take_ended();
        }
        match self.cause() {
            None => Ok(()),
            // The others are killed as they are dropped.
            Some(failure) => Err(failure),
        }
    }

    /// Starts the programs whose predecessors have succeeded.
    fn start_ready(&mut self) -> Result<(), TaskFailure> {
        if !self.failures.is_empty() {
            return Ok(());
        }
        for position in 0..self.states.len() {
            let program = &self.programs[position];
            if !matches!(self.states[position], State::Waits(_)) || !program.after.is_subset(&self.succeeded)
            {
                continue;
            }
            let late = (self.before_start)(position)?;
            if let State::Waits(streams) = std::mem::replace(&mut self.states[position], State::Over) {
                let streams = Streams { stdin: late.or(streams.stdin), ..streams };
                let mut running = Running::start(program, streams)?;
                let reader = self.readers[position].filter(|reader| *reader != position);
                if reader.is_some_and(|reader| matches!(self.states[reader], State::Over)) {
                    running.loses_reader();
                }
                self.states[position] = State::Runs(Box::new(running));
            }
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Running<'a>)> {
        self.states.iter().enumerate().filter_map(|(position, state)| match state {
            State::Runs(running) => Some((position, &**running)),
            State::Waits(_) | State::Over => None,
        })
    }

    /// Returns whether something is still to come, after a failure only a cause of it.
    fn goes_on(&self) -> bool {
        match self.until {
            None => self.running().next().is_some(),
            Some(until) => {
                let may_be_cause = |(position, running): (usize, &Running<'a>)| {
                    let caused = |failed: &usize| self.stands_before(position, *failed);
                    running.has_passed_limit()
                        || running.is_about_to_end() && self.failures.keys().any(caused)
                };
                Instant::now() < until && self.running().any(may_be_cause)
            }
        }
    }

    /// Returns whether a program reads, directly or not, what another writes.
    fn stands_before(&self, writer: usize, reader: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut left = vec![reader];
        while let Some(program) = left.pop() {
            if program == writer {
                return true;
            }
            left.extend(self.programs[program].reads.iter().copied().filter(|reads| seen.insert(*reads)));
        }
        false
    }

    /// Waits for news and takes it in.
    fn step(&mut self, broken: Option<&Signal>) -> Result<(), TaskFailure> {
        let (mut watched, mut sources) = (Vec::new(), Vec::new());
        self.running().for_each(|(position, running)| running.watch(position, &mut watched, &mut sources));
        let until = self.running().filter_map(|(_, running)| running.until()).chain(self.until).min();
        let patience = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        watched.extend(broken.map(Signal::watched));
        match poll(&mut watched, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(watching(error)),
        }
        if broken.is_some() && watched.last().is_some_and(|watched| !watched.revents().is_empty()) {
            return Err(TaskFailure::new(Blame::Environment, "a stream between programs broke"));
        }
        let has_news = |(watched, source): (&PollFd<'_>, (usize, Source))| {
            (!watched.revents().is_empty()).then_some(source)
        };
        let news: Vec<(usize, Source)> = watched.iter().zip(sources).filter_map(has_news).collect();
        for (position, source) in news {
            if let State::Runs(running) = &mut self.states[position] {
                running.take(source, &mut self.on_output)?;
            }
        }
        for state in &mut self.states {
            if let State::Runs(running) = state {
                running.look();
            }
        }
        Ok(())
    }

    /// Takes the programs off that are over.
    fn take_ended(&mut self) {
        for position in 0..self.states.len() {
            if !matches!(&self.states[position], State::Runs(running) if !running.goes_on()) {
                continue;
            }
            let State::Runs(running) = std::mem::replace(&mut self.states[position], State::Over) else {
                continue;
            };
            match running.finish() {
                Ok(()) => drop(self.succeeded.insert(position)),
                Err(failed) => {
                    self.failures.insert(position, failed);
                    self.until.get_or_insert_with(|| Instant::now() + CAUSE_MAX);
                }
            }
        }
        for (position, reader) in self.readers.iter().enumerate() {
            let is_over = reader.is_some_and(|reader| matches!(self.states[reader], State::Over));
            if let State::Runs(running) = &mut self.states[position]
                && is_over
            {
                running.loses_reader();
            }
        }
    }

    /// Returns the failure that caused the others: a passed limit, which ends all, else one with no failed writer.
    fn cause(mut self) -> Option<TaskFailure> {
        let by_limit = self.failures.iter().find(|(_, failed)| failed.passed_limit);
        let mut cause = *by_limit.or_else(|| self.failures.iter().next())?.0;
        if by_limit.is_none() {
            while let Some(writer) =
                self.programs[cause].reads.iter().find(|reads| self.failures.contains_key(reads))
            {
                cause = *writer;
            }
        }
        self.failures.remove(&cause).map(|failed| failed.failure)
    }
}

fn watching(error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("watching a program: {error}"))
}
