//! A stream between programs that no plain pipe can carry: it has several readers, one that starts later, or a file that
//! stays. The bytes that a reader does not take yet wait in a buffer of ours, so the writer never waits for a reader.

use crate::pipeline::spool::{CHUNK_BYTES, Keeping, OpenFile, Spool, WINDOW_BYTES};
use crate::process::pipe;
use api::{Blame, TaskFailure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// A relay of one stream, before its writer starts.
#[derive(Debug)]
pub struct Relay {
    input: OwnedFd,
    outputs: Vec<OwnedFd>,
    file: RelayFile,
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

/// The output of a writer into a relay, and the inputs of its readers.
pub(super) struct RelayEnds {
    pub relay: Relay,
    pub writer: OwnedFd,
    /// A copy of the end that the relay reads, to see whether the writer is done.
    pub copy: OwnedFd,
    pub readers: Vec<OwnedFd>,
}

pub(super) fn relay(readers: usize, file: RelayFile) -> Result<RelayEnds, TaskFailure> {
    let (input, writer) = pipe()?;
    let copy = fcntl_dupfd_cloexec(&input, 3).map_err(failed)?;
    let mut ends =
        RelayEnds { relay: Relay { input, outputs: Vec::new(), file }, writer, copy, readers: Vec::new() };
    for _ in 0..readers {
        let (reader, output) = pipe()?;
        rustix::io::ioctl_fionbio(&output, true).map_err(failed)?;
        ends.relay.outputs.push(output);
        ends.readers.push(reader);
    }
    Ok(ends)
}

/// A reader of a relay.
struct Reader {
    output: OwnedFd,
    position: u64,
}

impl Relay {
    /// Carries the stream to its end, or until `stop` is given. Readers that close their end early get no more of it.
    ///
    /// Errors: a file of the relay, with its path. `broken` is given then: nobody takes the output of the writer.
    pub(super) fn run(self, stop: &Signal, broken: &Signal) -> Result<(), TaskFailure> {
        self.carry(stop).inspect_err(|_| broken.give())
    }

    fn carry(self, stop: &Signal) -> Result<(), TaskFailure> {
        let Self { input, outputs, file } = self;
        rustix::io::ioctl_fionbio(&input, true).map_err(failed)?;
        let (keeping, path, open) = file.opener();
        let spool_failed = |error: std::io::Error| {
            let message = format!("cannot keep a stream between programs in {}: {error}", path.display());
            // The program has cut the file that its standard output goes to.
            let is_cut = keeping == Keeping::All && error.kind() == std::io::ErrorKind::UnexpectedEof;
            TaskFailure::new(if is_cut { Blame::UserProgram } else { Blame::Environment }, message)
        };
        let mut spool = Spool::new(WINDOW_BYTES, CHUNK_BYTES, keeping, open);
        let mut readers: Vec<Reader> =
            outputs.into_iter().map(|output| Reader { output, position: 0 }).collect();
        let mut input = Some(input);
        while input.is_some() || !readers.is_empty() {
            let Some(news) = wait(stop, input.as_ref(), &readers, spool.end())? else { return Ok(()) };
            if news.has_input {
                read_more(&mut input, &mut spool, &readers).map_err(spool_failed)?;
            }
            let slowest = readers.iter().map(|reader| reader.position).min();
            slowest.into_iter().for_each(|slowest| spool.forget_before(slowest));
            let mut open = Vec::with_capacity(readers.len());
            for (mut reader, is_ready) in readers.into_iter().zip(news.ready) {
                let goes_on = !is_ready || reader.write(&mut spool).map_err(spool_failed)?;
                if goes_on && (input.is_some() || reader.position < spool.end()) {
                    open.push(reader);
                }
            }
            readers = open;
        }
        spool.finish().map_err(spool_failed)
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

/// Descriptors of a relay that have news.
struct News {
    has_input: bool,
    /// For each reader: it takes bytes, or has closed its end.
    ready: Vec<bool>,
}

/// Waits for news; None: the relays were stopped.
fn wait(
    stop: &Signal,
    input: Option<&OwnedFd>,
    readers: &[Reader],
    end: u64,
) -> Result<Option<News>, TaskFailure> {
    let mut watched = vec![stop.watched()];
    watched.extend(readers.iter().map(|reader| {
        let wanted = if reader.position < end { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&reader.output, wanted)
    }));
    watched.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
    match poll(&mut watched, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut has_news = watched.into_iter().map(|watched| !watched.revents().is_empty());
    if has_news.next() == Some(true) {
        return Ok(None);
    }
    let ready = has_news.by_ref().take(readers.len()).collect();
    Ok(Some(News { has_input: has_news.next() == Some(true), ready }))
}

fn read_more(input: &mut Option<OwnedFd>, spool: &mut Spool, readers: &[Reader]) -> std::io::Result<()> {
    let Some(open) = input.as_ref().map(AsFd::as_fd) else { return Ok(()) };
    let mut buffer = [0; CHUNK_BYTES];
    match rustix::io::read(open, &mut buffer) {
        Ok(0) => *input = None,
        Ok(bytes) => {
            let slowest = readers.iter().map(|reader| reader.position).min();
            spool.push(&buffer[..bytes], slowest.unwrap_or(u64::MAX))?;
        }
        Err(Errno::INTR | Errno::AGAIN) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

impl Reader {
    /// Writes as much as the pipe takes. Returns false if its other end is closed.
    fn write(&mut self, spool: &mut Spool) -> std::io::Result<bool> {
        loop {
            let bytes = spool.read(self.position)?;
            if bytes.is_empty() {
                return Ok(!self.is_closed());
            }
            match rustix::io::write(&self.output, &bytes) {
                Ok(written) => self.position += written as u64,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::PIPE) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_closed(&self) -> bool {
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.output, PollFlags::empty())], Some(&at_once)) != Ok(0)
    }
}

fn failed(error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("carrying a stream between programs: {error}"))
}
