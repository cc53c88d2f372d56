//! Streams that a program opens by name: named pipes in its directory. Only a relay has the other end, so a full pipe holds
//! up nobody but the program that writes it.
//!
//! The pipe of a writer is open at our end all the time: the program opens it as often as it likes, and the stream ends with
//! the program. The pipe of a reader gets its other end when the program opens it, and has no name from then on.

use crate::pipeline::relay::Signal;
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, mknodat, openat, renameat_with, statat,
    unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time after the first open for which a second one is looked for that began before the name was gone.
const SECOND_MAX: Duration = Duration::from_secs(1);
/// Rights of the pipe that a program writes: it cannot wait for its own output.
const WRITE_ONLY: Mode = Mode::WUSR;

/// A stream that a program opens by name, until the program has ended.
#[derive(Debug)]
pub struct NamedStream {
    /// Path of the pipe, and the name that the program knows.
    place: PathBuf,
    name: PathBuf,
    /// Given when the program has ended.
    over: Arc<Signal>,
    writes: Option<Written>,
}

/// The end of a stream that its program writes.
#[derive(Debug)]
struct Written {
    /// A copy of the end that the relay reads.
    pipe: OwnedFd,
    was_opened: Arc<AtomicBool>,
}

impl Drop for NamedStream {
    fn drop(&mut self) {
        self.over.give();
    }
}

impl NamedStream {
    /// Returns the pipe if the program writes it.
    pub(super) fn written(&self) -> Option<&OwnedFd> {
        self.writes.as_ref().map(|written| &written.pipe)
    }

    pub(super) fn shown(&self) -> String {
        self.name.display().to_string()
    }

    /// Returns the failure of a program that succeeded without writing the stream.
    pub(super) fn check(&self) -> Result<(), TaskFailure> {
        let Some(written) = &self.writes else { return Ok(()) };
        let name = self.name.display();
        let bad = |what: String| Err(TaskFailure::new(Blame::UserProgram, what));
        let is_same = || {
            let (found, ours) =
                (statat(CWD, &self.place, AtFlags::SYMLINK_NOFOLLOW).ok()?, fstat(&written.pipe).ok()?);
            Some((found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino))
        };
        if is_same() != Some(true) {
            return bad(format!(
                "the program succeeded, but it has removed the stream {name} or put a file in its place: let it open and \
                 write {name}, or leave it out of the streams"
            ));
        }
        // Where no writer was, none has left: the flag is set before the relay becomes one.
        let is_quiet = news(&written.pipe, PollFlags::IN).is_empty();
        match is_quiet && !written.was_opened.load(Ordering::Acquire) {
            true => bad(format!(
                "the program succeeded, but its output {name} is missing: it has not opened this stream"
            )),
            false => Ok(()),
        }
    }
}

/// Returns the news of a descriptor at this moment.
fn news(descriptor: &OwnedFd, wanted: PollFlags) -> PollFlags {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(descriptor, wanted)];
    match poll(&mut watched, Some(&at_once)) {
        Ok(_) => watched[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// The relay's end of a stream that a program writes by name.
#[derive(Debug)]
pub(super) struct NamedInput {
    over: Arc<Signal>,
    was_opened: Arc<AtomicBool>,
    /// A writer of ours, from the first open on: the stream has no end while the program runs.
    keeper: Option<OwnedFd>,
    is_over: bool,
}

/// Makes a named pipe that a program writes. Returns its end, and those of the relay.
pub(super) fn written(place: &Path, name: &Path) -> Result<(NamedStream, OwnedFd, NamedInput), TaskFailure> {
    let made = || {
        make(CWD, place)?;
        // Opened while there is no writer: the kernel tells of the end of one only after its begin.
        let pipe = openat(CWD, place, OFlags::RDONLY | FLAGS, Mode::empty())?;
        fchmod(&pipe, WRITE_ONLY)?;
        let copy = fcntl_dupfd_cloexec(&pipe, 3)?;
        Ok((pipe, copy))
    };
    let (pipe, copy) = made().map_err(|error: Errno| failed(place, error))?;
    let (over, was_opened) = (Arc::new(Signal::new()?), Arc::new(AtomicBool::new(false)));
    let input = NamedInput {
        over: Arc::clone(&over),
        was_opened: Arc::clone(&was_opened),
        keeper: None,
        is_over: false,
    };
    let writes = Some(Written { pipe: copy, was_opened });
    let (place, name) = (place.to_path_buf(), name.to_path_buf());
    Ok((NamedStream { place, name, over, writes }, pipe, input))
}

impl NamedInput {
    /// Returns the signal that its program has ended, until that is known.
    pub fn over(&self) -> Option<&Signal> {
        (!self.is_over).then_some(&*self.over)
    }

    /// Lets the stream end with its last writer.
    pub fn program_is_over(&mut self) {
        (self.is_over, self.keeper) = (true, None);
    }

    /// Returns whether the end of all writers is the end of the stream; until then it stays open.
    pub fn ends(&mut self, pipe: &OwnedFd) -> std::io::Result<bool> {
        if !self.is_over && self.keeper.is_none() {
            self.was_opened.store(true, Ordering::Release);
            self.keeper = Some(opened_again(pipe)?);
        }
        Ok(self.is_over)
    }
}

/// The relay's end of a stream that a program reads by name.
#[derive(Debug)]
pub(super) struct NamedOutput {
    shown: PathBuf,
    dir: OwnedFd,
    /// Two pipes and their names: one is that of the stream, the other is hidden.
    names: [OsString; 2],
    pipes: [OwnedFd; 2],
    /// Position of the pipe that has the name of the stream.
    front: usize,
    over: Arc<Signal>,
    /// Set when the program has opened it: time until which a second open is looked for.
    second_until: Option<Instant>,
}

/// Makes a named pipe that a program reads. Returns its end, and that of the relay.
pub(super) fn read(place: &Path, name: &Path) -> Result<(NamedStream, NamedOutput), TaskFailure> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let hidden = format!(".sailfish-stream-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let names = [place.file_name().unwrap_or_default().to_os_string(), OsString::from(hidden)];
    let made = || {
        let above = place.parent().unwrap_or(Path::new("/"));
        let dir = openat(CWD, above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let pipe = |name: &OsString| {
            make(&dir, name.as_ref())?;
            openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        };
        let pipes = [pipe(&names[0])?, pipe(&names[1])?];
        Ok((dir, pipes))
    };
    let (dir, pipes) = made().map_err(|error: Errno| failed(place, error))?;
    let over = Arc::new(Signal::new()?);
    let stream = NamedStream {
        place: place.to_path_buf(),
        name: name.to_path_buf(),
        over: Arc::clone(&over),
        writes: None,
    };
    let shown = name.to_path_buf();
    Ok((stream, NamedOutput { shown, dir, names, pipes, front: 0, over, second_until: None }))
}

impl NamedOutput {
    /// Returns the signal that its program has ended.
    pub fn over(&self) -> &Signal {
        &self.over
    }

    pub fn is_open(&self) -> bool {
        self.second_until.is_some()
    }

    /// Returns whether there is nothing more to look for.
    pub fn is_settled(&self) -> bool {
        self.second_until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns the end to write once the program has opened the pipe; its name is gone then.
    ///
    /// A second open must not find the same pipe: both would get parts of the stream. So the other pipe gets the name
    /// first. The open that waits for ours returns only afterwards.
    pub fn look(&mut self) -> Result<Option<OwnedFd>, TaskFailure> {
        if self.is_open() {
            return match self.open(self.front) {
                Ok(_) => Err(self.opened_twice()),
                Err(_) => Ok(None),
            };
        }
        let [one, other] = &self.names;
        let exchanged = renameat_with(&self.dir, one, &self.dir, other, RenameFlags::EXCHANGE).is_ok();
        self.front = if exchanged { 1 - self.front } else { self.front };
        // Without an exchange, the file system has none, or the program has removed the name.
        let looked_at = if exchanged { &[1 - self.front][..] } else { &[0, 1] };
        for pipe in looked_at.iter().copied() {
            match self.open(pipe) {
                Ok(output) => {
                    for name in &self.names {
                        // It may be gone, as the directory is the program's own.
                        let _ = unlinkat(&self.dir, name, AtFlags::empty());
                    }
                    (self.front, self.second_until) = (1 - pipe, Some(Instant::now() + SECOND_MAX));
                    return Ok(Some(output));
                }
                Err(Errno::NXIO) => {}
                Err(error) => return Err(failed(&self.shown, error)),
            }
        }
        Ok(None)
    }

    /// Opens a pipe if a program reads it.
    fn open(&self, pipe: usize) -> Result<OwnedFd, Errno> {
        opened_again(&self.pipes[pipe])
    }

    fn opened_twice(&self) -> TaskFailure {
        let name = self.shown.display();
        let message = format!(
            "the program opens the stream {name} twice: a stream can be opened once; leave {name} out of the streams"
        );
        TaskFailure::new(Blame::UserProgram, message)
    }
}

/// Flags of an end that is opened without waiting for the other one.
const FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

fn make(dir: impl AsFd, place: &Path) -> Result<(), Errno> {
    mknodat(dir, place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
}

/// Opens an end to write of a pipe, whatever its name leads to now.
fn opened_again(pipe: &OwnedFd) -> Result<OwnedFd, Errno> {
    let place = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    openat(CWD, place, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn failed(place: &Path, error: Errno) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot make the stream {}: {error}", place.display()))
}
