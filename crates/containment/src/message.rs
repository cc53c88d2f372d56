//! Messages between the engine, the spawner and the inits. All three are one build, so there are no versions.

use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// The separation of programs from the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Containment {
    /// Programs see the machine as the engine does. Orphans become children of their slot's init, which ends them.
    Subreaper,
    /// Each slot has a PID namespace, and each job of a slot a mount and an IPC namespace.
    Namespaces,
}

/// Question of the engine to the spawner. It comes with the init's end of a socket.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewInit {
    pub containment: Containment,
}

/// Answer of the spawner, and of an init that has begun: the step that failed, with the system's error number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub step: String,
    pub errno: i32,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, std::io::Error::from_raw_os_error(self.errno))
    }
}

/// A program to start, as the system call takes it: no string contains a zero byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub executable: Vec<u8>,
    /// The first is the name of the program.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    pub work_dir: Vec<u8>,
    /// None: it may do whatever the engine may.
    pub restrictions: Option<Restrictions>,
    pub limits: ProcessLimits,
}

/// Limits of a program; None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files of each of its processes.
    pub open_files: Option<u64>,
    /// Bytes of each file that they write.
    pub file_bytes: Option<u64>,
    /// Processes of the slot, where the kernel can limit them.
    pub processes: Option<u64>,
    /// Memory of the slot's processes, where the kernel can limit it.
    pub memory_bytes: Option<u64>,
}

/// Limits that a program applies to itself before it starts. Landlock's rules come with the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restrictions {
    /// Maximum memory that it may map.
    pub memory_bytes: Option<u64>,
    pub open_files_max: Option<u64>,
    /// Maximum size of a core file.
    pub core_bytes_max: Option<u64>,
    pub capabilities: Capabilities,
    /// Programs of the kernel's filter for system calls, applied in this order; an instruction has 8 bytes.
    pub syscall_filters: Vec<Vec<u8>>,
    /// Additions to Landlock's rules: paths as the program sees them, where it has namespaces of its own.
    pub own_paths: Vec<OwnPath>,
}

/// Rights of root over the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capabilities {
    Kept,
    Dropped,
}

/// Access to a path, as Landlock numbers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnPath {
    pub path: Vec<u8>,
    pub access: u64,
    pub visible: VisibleBelow,
}

/// Effect of a rule for a directory on files of the machine that are visible below it ([`JobFiles`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VisibleBelow {
    /// The rule may give access to them.
    Covered,
    /// The rule is left out if there are any.
    Protected,
}

/// Files that the next job of a slot sees, where each of its namespaces has its own: below /tmp, /run and /dev/shm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobFiles {
    /// Directory that becomes the job's /tmp; None: memory.
    pub temporary: Option<Vec<u8>>,
    /// Files and directories of the machine that stay visible; parents before children.
    pub visible: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// With the program's standard input, output and error, a pipe for [`Report`], and rules if it is restricted.
    Start(Box<Launch>),
    /// Kills the process group of a program, or the rest of it. No answer.
    Kill { pid: i32 },
    /// Kills everything. No answer.
    KillAll,
    /// Kills everything but one program, and waits until it is gone.
    EndOthers { kept: Option<i32> },
    /// Ends everything, and gives the next programs new namespaces.
    NewJob(JobFiles),
    /// Finds the processes that have a pipe or a file open, and ends them if that is asked.
    Holders { file: HeldFile, then: HoldersThen },
    /// Asks whether a program is the only process of its group.
    IsAlone { pid: i32 },
    /// Asks for the memory of a program.
    Memory { pid: i32 },
    /// Asks for the usage of everything in the slot.
    Usage { unlinked: UnlinkedFiles },
}

/// A pipe or a file, and the access of those that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldFile {
    pub device: u64,
    pub inode: u64,
    /// True for those that can write to it; false: for those that can read from it.
    pub by_writers: bool,
}

/// Fate of the processes that hold a pipe or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldersThen {
    Live,
    End,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// An init is ready.
    Ready,
    Refused(Refusal),
    Ended {
        /// Everything asked for has ended; false: processes remain that cannot be killed now.
        all: bool,
        /// Processor time of all programs so far, in microseconds.
        cpu_us: u64,
    },
    Space(Space),
    Holders(Vec<Holder>),
    IsAlone(bool),
    Memory(Option<u64>),
    Usage(Usage),
}

/// Namespaces of a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Space {
    New,
    /// Those of the job before, which left nothing in them.
    Unchanged,
}

/// Open files on disks that have no name any more: finding them takes a look at every open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnlinkedFiles {
    Counted,
    LeftOut,
}

/// Usage of the programs of a slot, as far as the kernel does not limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub processes: u64,
    /// Resident memory, and files in the slot's own directories that are in memory.
    pub memory_bytes: u64,
    /// Bytes of open files on disks that have no name any more.
    pub unlinked_bytes: u64,
    /// The kernel has ended a process at the limit on memory.
    pub ended_for_memory: bool,
    /// The kernel has refused a process at the limit on processes.
    pub refused_processes: bool,
}

/// A process that holds a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number, as it sees itself.
    pub pid: i32,
    pub name: String,
}

impl Display for Holder {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// Bytes of a [`Report`].
pub(crate) const REPORT_BYTES: usize = 8;

/// News about one program, on a pipe of its own: first its start, then its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Started {
        pid: i32,
    },
    NotStarted {
        errno: i32,
    },
    /// With its status as `waitpid` gives it.
    Ended {
        status: i32,
    },
}

impl Report {
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (kind, value) = match self {
            Self::Started { pid } => (1_i32, pid),
            Self::NotStarted { errno } => (2, errno),
            Self::Ended { status } => (3, status),
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    /// Returns None for bytes that no init writes.
    pub fn from_bytes(bytes: [u8; REPORT_BYTES]) -> Option<Self> {
        let [k0, k1, k2, k3, v0, v1, v2, v3] = bytes;
        let value = i32::from_ne_bytes([v0, v1, v2, v3]);
        match i32::from_ne_bytes([k0, k1, k2, k3]) {
            1 => Some(Self::Started { pid: value }),
            2 => Some(Self::NotStarted { errno: value }),
            3 => Some(Self::Ended { status: value }),
            _ => None,
        }
    }
}
