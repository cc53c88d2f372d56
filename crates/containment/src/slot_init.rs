//! The engine's side of an init: starts, kills and questions.

use crate::channel::{Channel, is_ready_within};
use crate::error::ContainmentError;
use crate::message::{
    Answer, HeldFile, Holder, HoldersThen, JobFiles, Launch, REPORT_BYTES, Report, Request, Space,
    UnlinkedFiles, Usage,
};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time for an answer: longer than an init waits for processes that it has killed.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The init of a slot. Dropping it ends it, and everything that it started.
#[derive(Debug)]
pub struct SlotInit {
    channel: Channel,
    /// Held from a question to its answer. Orders without an answer do not wait for it.
    asking: Mutex<()>,
    /// Processor time of its programs as of the last [`Self::end_others`], in microseconds.
    cpu_us: AtomicU64,
}

/// The descriptors of a new program: its standard input, output and error, and its Landlock rules.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnds<'a> {
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
    pub rules: Option<BorrowedFd<'a>>,
}

/// Reason why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system's error of any step in the program's own process.
    #[error("{0}")]
    Program(std::io::Error),
    #[error(transparent)]
    Containment(#[from] ContainmentError),
}

/// A started program.
#[derive(Debug)]
pub struct Started {
    /// Its number in the namespace of its slot.
    pub pid: i32,
    pub end: ProgramEnd,
}

/// The end of a program. Its status can be had once.
#[derive(Debug)]
pub struct ProgramEnd(OwnedFd);

impl AsFd for ProgramEnd {
    /// Readable once the program has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ProgramEnd {
    /// Returns whether the program ends within this time.
    pub fn has_ended(&self, patience: Duration) -> bool {
        is_ready_within(self.0.as_fd(), patience).unwrap_or(true)
    }

    /// Waits for the end. Error: the init was killed, so the status is unknown.
    pub fn wait(&self) -> Result<ExitStatus, ContainmentError> {
        match read_report(&self.0) {
            Some(Report::Ended { status }) => Ok(ExitStatus::from_raw(status)),
            _ => Err(ContainmentError::InitEnded),
        }
    }
}

impl SlotInit {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, asking: Mutex::new(()), cpu_us: AtomicU64::new(0) }
    }

    /// Starts a program in its own process group.
    pub fn start(&self, launch: &Launch, ends: ProgramEnds<'_>) -> Result<Started, StartError> {
        let io = |error: std::io::Error| ContainmentError::Io { step: "start a program", error };
        let (ours, its) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| io(error.into()))?;
        let ProgramEnds { stdin, stdout, stderr, rules } = ends;
        let descriptors: Vec<BorrowedFd<'_>> =
            [stdin, stdout, stderr, its.as_fd()].into_iter().chain(rules).collect();
        self.send(&Request::Start(Box::new(launch.clone())), &descriptors)?;
        drop(its);
        match read_report(&ours) {
            Some(Report::Started { pid }) => Ok(Started { pid, end: ProgramEnd(ours) }),
            Some(Report::NotStarted { errno }) => {
                Err(StartError::Program(std::io::Error::from_raw_os_error(errno)))
            }
            _ => Err(ContainmentError::InitEnded.into()),
        }
    }

    /// Kills the process group of a program, or the rest of the group if the program has ended.
    pub fn kill(&self, pid: i32) {
        self.order(&Request::Kill { pid });
    }

    /// Kills everything of the slot.
    pub fn kill_all(&self) {
        self.order(&Request::KillAll);
    }

    /// Ends everything of the slot except one program, and waits for that; returns whether nothing else is left.
    pub fn end_others(&self, kept: Option<i32>) -> Result<bool, ContainmentError> {
        match self.ask(&Request::EndOthers { kept })? {
            Answer::Ended { all, cpu_us } => {
                self.cpu_us.store(cpu_us, Ordering::Relaxed);
                Ok(all)
            }
            _ => Err(ContainmentError::InitEnded),
        }
    }

    /// Returns the processor time, user and system, of everything that the slot has run, as of the last
    /// [`Self::end_others`], in microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.cpu_us.load(Ordering::Relaxed)
    }

    /// Ends everything of the slot, and gives the next programs new namespaces, if the slot has its own.
    pub fn new_job(&self, files: JobFiles) -> Result<Space, ContainmentError> {
        match self.ask(&Request::NewJob(files))? {
            Answer::Space(space) => Ok(space),
            Answer::Ended { all: true, .. } => Ok(Space::Unchanged),
            Answer::Ended { all: false, .. } => Err(ContainmentError::Refused(
                "processes of the slot's last job cannot be killed".to_string(),
            )),
            Answer::Refused(refusal) => Err(ContainmentError::Refused(refusal.to_string())),
            _ => Err(ContainmentError::InitEnded),
        }
    }

    /// Returns the processes of the slot that have the other end of a pipe open, or can write to a file, and ends them
    /// if asked. Processes of other users are not found.
    pub fn holders(&self, file: BorrowedFd<'_>, then: HoldersThen) -> Result<Vec<Holder>, ContainmentError> {
        let looked = |error: rustix::io::Errno| ContainmentError::Io {
            step: "look at a descriptor",
            error: error.into(),
        };
        let stat = rustix::fs::fstat(file).map_err(looked)?;
        let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        let is_written_here = rustix::fs::fcntl_getfl(file).map_err(looked)?.contains(OFlags::WRONLY);
        let by_writers = !(is_pipe && is_written_here);
        let file = HeldFile { device: stat.st_dev, inode: stat.st_ino, by_writers };
        match self.ask(&Request::Holders { file, then })? {
            Answer::Holders(holders) => Ok(holders),
            _ => Err(ContainmentError::InitEnded),
        }
    }

    /// Returns whether a program has no children, and is alone in its group.
    pub fn is_alone(&self, pid: i32) -> bool {
        matches!(self.ask(&Request::IsAlone { pid }), Ok(Answer::IsAlone(true)))
    }

    /// Returns the memory of a program in bytes; None if it has ended.
    pub fn memory_of(&self, pid: i32) -> Option<u64> {
        match self.ask(&Request::Memory { pid }) {
            Ok(Answer::Memory(bytes)) => bytes,
            _ => None,
        }
    }

    /// Measures the usage of everything in the slot.
    pub fn usage(&self, unlinked: UnlinkedFiles) -> Result<Usage, ContainmentError> {
        match self.ask(&Request::Usage { unlinked })? {
            Answer::Usage(usage) => Ok(usage),
            _ => Err(ContainmentError::InitEnded),
        }
    }

    /// Sends an order that has no answer. If the init has ended, so has everything it could kill.
    fn order(&self, request: &Request) {
        let _ = self.send(request, &[]);
    }

    fn ask(&self, request: &Request) -> Result<Answer, ContainmentError> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(request, &[])?;
        match self.channel.receive_within(ANSWER_MAX) {
            Ok(Some(received)) => Ok(received.message),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(ContainmentError::Silent),
            Ok(None) | Err(_) => Err(ContainmentError::InitEnded),
        }
    }

    fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), ContainmentError> {
        self.channel.send(message, descriptors).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PIPE | Errno::CONNRESET) => ContainmentError::InitEnded,
            _ => ContainmentError::Io { step: "talk to the init of a slot", error },
        })
    }
}

/// Reads the next report; None if the init has ended.
fn read_report(pipe: &OwnedFd) -> Option<Report> {
    let mut bytes = [0; REPORT_BYTES];
    loop {
        match rustix::io::read(pipe, &mut bytes) {
            Ok(REPORT_BYTES) => return Report::from_bytes(bytes),
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}
