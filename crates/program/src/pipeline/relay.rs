//! A stream between programs that no plain pipe can carry: it has several readers, one that starts later, a file that stays,
//! or an end that a program opens by name. The bytes that a reader does not take yet wait in a buffer of ours, so the writer never waits for a reader.

use crate::pipeline::named::{self, NamedInput, NamedOutput, NamedStream};
use crate::pipeline::spool::{CHUNK_BYTES, Keeping, OpenFile, Spool, WINDOW_BYTES};
use crate::process::pipe;
use api::{Blame, TaskFailure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest and longest time between two looks at a pipe that a program opens.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(1);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(32);

/// A relay of one stream, before its writer starts.
#[derive(Debug)]
pub struct Relay {
    input: Input,
    readers: Vec<Reader>,
    file: RelayFile,
}

/// The end of the writer.
#[derive(Debug)]
struct Input {
    pipe: OwnedFd,
    /// Set if the writer opens it by name.
    named: Option<NamedInput>,
}

/// The end of a reader. It is over when it has no parts any more.
#[derive(Debug)]
struct Reader {
    /// None: not open yet, or closed.
    output: Option<OwnedFd>,
    /// Set if the reader opens it by name, as long as that must be looked at.
    named: Option<NamedOutput>,
    position: u64,
}

/// The file of a relay.
#[derive(Debug)]
pub enum RelayFile {
    /// Bytes that fit in memory no more are kept in this file, which is made when it is needed, in a directory that no
    /// program sees.
    Spill(PathBuf),
    /// This file gets all bytes.
    Output(File, PathBuf),
}

/// A descriptor that becomes readable once, for all that wait for it.
#[derive(Debug)]
pub(super) struct Signal(OwnedFd);

impl Signal {
    pub fn new() -> Result<Self, TaskFailure> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self).map_err(failed)
    }

    pub fn give(&self) {
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub fn watched(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}

/// Makes a relay whose writer has a standard output: this one. The second descriptor is a copy of the end that the relay
/// reads, to see whether the writer is done.
pub(super) fn relay_of_stdout(file: RelayFile) -> Result<(OwnedFd, OwnedFd, Relay), TaskFailure> {
    let (pipe, writer) = pipe()?;
    let copy = fcntl_dupfd_cloexec(&pipe, 3).map_err(failed)?;
    rustix::io::ioctl_fionbio(&pipe, true).map_err(failed)?;
    Ok((writer, copy, Relay { input: Input { pipe, named: None }, readers: Vec::new(), file }))
}

/// Makes a relay whose writer opens this place under this name.
pub(super) fn relay_of_named(
    place: &Path,
    name: &Path,
    file: RelayFile,
) -> Result<(NamedStream, Relay), TaskFailure> {
    let (stream, pipe, named) = named::written(place, name)?;
    Ok((stream, Relay { input: Input { pipe, named: Some(named) }, readers: Vec::new(), file }))
}

impl Relay {
    /// Adds a reader, and returns its standard input.
    pub fn add_reader(&mut self) -> Result<OwnedFd, TaskFailure> {
        let (reader, output) = pipe()?;
        rustix::io::ioctl_fionbio(&output, true).map_err(failed)?;
        self.readers.push(Reader { output: Some(output), named: None, position: 0 });
        Ok(reader)
    }

    /// Adds a reader that opens this place, once, under this name.
    pub fn add_named_reader(&mut self, place: &Path, name: &Path) -> Result<NamedStream, TaskFailure> {
        let (stream, named) = named::read(place, name)?;
        self.readers.push(Reader { output: None, named: Some(named), position: 0 });
        Ok(stream)
    }

    /// Carries the stream to its end, or until `stop` is given. Readers that close their end early get no more of it.
    ///
    /// Errors: a file of the relay, with its path; a program that opens its end twice. `broken` is given then: nobody takes
    /// the output of the writer.
    pub(super) fn run(self, stop: &Signal, broken: &Signal) -> Result<(), TaskFailure> {
        self.carry(stop).inspect_err(|_| broken.give())
    }

    fn carry(self, stop: &Signal) -> Result<(), TaskFailure> {
        let Self { input, mut readers, file } = self;
        let (keeping, path, open) = file.opener();
        let spool_failed = |error: std::io::Error| {
            let message = format!("cannot keep a stream between programs in {}: {error}", path.display());
            // The program has cut the file that its standard output goes to.
            let is_cut = keeping == Keeping::All && error.kind() == std::io::ErrorKind::UnexpectedEof;
            TaskFailure::new(if is_cut { Blame::UserProgram } else { Blame::Environment }, message)
        };
        let mut spool = Spool::new(WINDOW_BYTES, CHUNK_BYTES, keeping, open);
        let (mut input, mut looks) = (Some(input), Looks::begin());
        while input.is_some() || !readers.is_empty() {
            let until = readers.iter().any(|reader| reader.named.is_some()).then_some(looks.next);
            let Some(news) = wait(stop, input.as_ref(), &readers, spool.end(), until)? else { return Ok(()) };
            if news.contains(&Source::Input) || news.contains(&Source::WriterOver) {
                if let Some(named) = input.as_mut().and_then(|input| input.named.as_mut())
                    && news.contains(&Source::WriterOver)
                {
                    named.program_is_over();
                }
                read_more(&mut input, &mut spool, &readers).map_err(spool_failed)?;
            }
            slowest(&readers).into_iter().for_each(|slowest| spool.forget_before(slowest));
            let looks_now = until.is_some() && looks.are_due();
            for (place, reader) in readers.iter_mut().enumerate() {
                if news.contains(&Source::ReaderOver(place)) {
                    reader.named = None;
                }
                if looks_now {
                    reader.look()?;
                }
                if news.contains(&Source::Reader(place)) {
                    reader.write(&mut spool).map_err(spool_failed)?;
                }
                reader.close_at(input.is_none().then_some(spool.end()));
            }
            readers.retain(|reader| reader.output.is_some() || reader.named.is_some());
        }
        spool.finish().map_err(spool_failed)
    }
}

/// Times at which pipes are looked at that a program opens: the kernel does not tell of that.
struct Looks {
    next: Instant,
    pause: Duration,
}

impl Looks {
    fn begin() -> Self {
        Self { next: Instant::now(), pause: LOOK_PAUSE_MIN }
    }

    /// Returns whether it is time. The next time is later then.
    fn are_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        (self.next, self.pause) = (now + self.pause, (self.pause * 2).min(LOOK_PAUSE_MAX));
        true
    }
}

impl RelayFile {
    fn opener(self) -> (Keeping, PathBuf, OpenFile) {
        match self {
            RelayFile::Spill(path) => {
                let place = path.clone();
                let open = move || File::options().read(true).write(true).create_new(true).open(&place);
                (Keeping::Unread, path, Box::new(open))
            }
            RelayFile::Output(file, path) => (Keeping::All, path, Box::new(move || file.try_clone())),
        }
    }
}

/// A descriptor of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Input,
    /// The program that writes by name has ended.
    WriterOver,
    /// A reader, by its place, takes bytes or has closed its end.
    Reader(usize),
    /// The program that reads by name has ended.
    ReaderOver(usize),
}

/// Waits for news, at most until a time; None: the relays were stopped.
fn wait(
    stop: &Signal,
    input: Option<&Input>,
    readers: &[Reader],
    end: u64,
    until: Option<Instant>,
) -> Result<Option<BTreeSet<Source>>, TaskFailure> {
    let (mut watched, mut sources) = (vec![stop.watched()], Vec::new());
    let mut add = |source, descriptor| {
        sources.push(source);
        watched.push(descriptor);
    };
    for (place, reader) in readers.iter().enumerate() {
        if let Some(output) = &reader.output {
            let wanted = if reader.position < end { PollFlags::OUT } else { PollFlags::empty() };
            add(Source::Reader(place), PollFd::new(output, wanted));
        }
        if let Some(named) = &reader.named {
            add(Source::ReaderOver(place), named.over().watched());
        }
    }
    if let Some(input) = input {
        add(Source::Input, PollFd::new(&input.pipe, PollFlags::IN));
        let over = input.named.as_ref().and_then(NamedInput::over);
        over.into_iter().for_each(|over| add(Source::WriterOver, over.watched()));
    }
    let patience = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
    });
    match poll(&mut watched, patience.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut has_news = watched.into_iter().map(|watched| !watched.revents().is_empty());
    if has_news.next() == Some(true) {
        return Ok(None);
    }
    let news = sources.into_iter().zip(has_news).filter(|(_, has_news)| *has_news);
    Ok(Some(news.map(|(source, _)| source).collect()))
}

fn read_more(input: &mut Option<Input>, spool: &mut Spool, readers: &[Reader]) -> std::io::Result<()> {
    let Some(open) = input else { return Ok(()) };
    let is_over = open.named.as_mut().map_or(Ok(true), |named| named.ends(&open.pipe))?;
    let mut buffer = [0; CHUNK_BYTES];
    match rustix::io::read(&open.pipe, &mut buffer) {
        Ok(0) if is_over => *input = None,
        Ok(0) => {}
        Ok(bytes) => {
            spool.push(&buffer[..bytes], slowest(readers).unwrap_or(u64::MAX))?;
        }
        Err(Errno::INTR | Errno::AGAIN) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Returns the least position of the readers that want more.
fn slowest(readers: &[Reader]) -> Option<u64> {
    let is_awaited = |reader: &Reader| reader.named.as_ref().is_some_and(|named| !named.is_open());
    let wanting = readers.iter().filter(|reader| reader.output.is_some() || is_awaited(reader));
    wanting.map(|reader| reader.position).min()
}

impl Reader {
    /// Looks whether the program has opened its end, and whether it opens it twice.
    fn look(&mut self) -> Result<(), TaskFailure> {
        let Some(named) = &mut self.named else { return Ok(()) };
        if let Some(output) = named.look()? {
            self.output = Some(output);
        }
        self.named = self.named.take().filter(|named| !named.is_settled());
        Ok(())
    }

    /// Writes as much as the pipe takes. Closes it if its other end is closed.
    fn write(&mut self, spool: &mut Spool) -> std::io::Result<()> {
        while let Some(output) = &self.output {
            let bytes = spool.read(self.position)?;
            if bytes.is_empty() {
                self.output = self.output.take().filter(|output| !is_closed(output));
                return Ok(());
            }
            match rustix::io::write(output, &bytes) {
                Ok(written) => self.position += written as u64,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE) => self.output = None,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Closes an open end that has got all bytes up to the end of the stream.
    fn close_at(&mut self, end: Option<u64>) {
        if end.is_some_and(|end| self.position >= end) {
            self.output = None;
        }
    }
}

fn is_closed(output: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(output, PollFlags::empty())], Some(&at_once)) != Ok(0)
}

fn failed(error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("carrying a stream between programs: {error}"))
}
