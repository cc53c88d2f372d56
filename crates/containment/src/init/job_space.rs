//! The mount and IPC namespaces of one job on a slot: its own `/tmp`, `/run` and `/dev/shm`, which start empty.
//!
//! Making them costs more than starting a program. A job that leaves nothing in them hands them to the next job of the
//! slot, which cannot tell them from new ones.

use crate::message::{JobFiles, Refusal, Space};
use crate::process::refused;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsmount, fsopen, mount,
    mount_bind, mount_bind_recursive,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::{CStr, OsStr};
use std::fs::{create_dir_all, read_to_string};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directory that the engine may replace by one on a disk.
const TEMPORARY: &str = "/tmp";
/// Directories of which each job has its own, and options of their file systems in memory.
pub(crate) const OWN: [(&str, &CStr); 4] =
    [(TEMPORARY, c"mode=1777"), ("/run", c"mode=755"), ("/var/run", c"mode=755"), ("/dev/shm", c"mode=1777")];
/// Lists of System V objects; each begins with a line of headings.
const IPC_LISTS: [&str; 3] = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"];

/// The namespaces of the jobs of a slot, one after the other.
pub(crate) struct JobSpaces {
    /// The mounts before any job.
    base: OwnedFd,
    current: Option<JobSpace>,
}

/// The namespaces of a job.
struct JobSpace {
    files: JobFiles,
    /// The directories of its own as they were at its start.
    directories: Vec<(PathBuf, State)>,
    /// Signals changes of the mounts.
    mounts: OwnedFd,
    /// POSIX message queues; None: the kernel cannot show them.
    queues: Option<Queues>,
}

/// POSIX message queues of an IPC namespace.
enum Queues {
    Listed(OwnedFd),
    Unsupported,
}

/// State of a directory. Every change of its entries changes it, except within a tick of the clock of its file system.
#[derive(PartialEq, Eq)]
struct State {
    changed: (i64, u64),
    mode: u32,
    owner: (u32, u32),
    /// Free blocks and inodes of its file system, if that is its own.
    free: Option<(u64, u64)>,
}

impl JobSpaces {
    pub fn new() -> Result<Self, Refusal> {
        Ok(Self {
            base: open_for_reading(c"/proc/self/ns/mnt").map_err(refused("open the mounts"))?,
            current: None,
        })
    }

    /// Returns whether files of the machine are visible below a directory.
    pub fn has_visible_below(&self, directory: &[u8]) -> bool {
        let directory = Path::new(OsStr::from_bytes(directory));
        self.current.as_ref().is_none_or(|space| space.has_visible_below(directory))
    }

    /// Gives the next programs the namespaces of a new job. Nothing of the slot may run.
    pub fn begin(&mut self, files: JobFiles) -> Result<Space, Refusal> {
        if self.current.as_ref().is_some_and(|space| space.files == files && space.is_as_new()) {
            return Ok(Space::Unchanged);
        }
        // Without it the old one would be taken for that of the next job after a failure.
        self.current = None;
        move_into_link_name_space(self.base.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(refused("leave the mounts of a job"))?;
        // SAFETY: neither namespace affects memory or descriptors of this process.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWIPC) }
            .map_err(refused("make namespaces for a job"))?;
        self.current = Some(JobSpace::make(files)?);
        Ok(Space::New)
    }
}

impl JobSpace {
    fn make(files: JobFiles) -> Result<Self, Refusal> {
        // Opened before they are hidden. A missing path stays missing.
        let open = |path: &Vec<u8>| Some((PathBuf::from(OsStr::from_bytes(path)), open_path(path).ok()?));
        let visible: Vec<(PathBuf, OwnedFd)> = files.visible.iter().filter_map(open).collect();
        let temporary = files.temporary.as_ref().map(|path| open_path(path));
        let temporary = temporary.transpose().map_err(refused("open the directory for /tmp"))?;
        let mut own = Vec::new();
        for (path, options) in OWN {
            if !is_directory(path) {
                continue;
            }
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let mounted = match &temporary {
                Some(directory) if path == TEMPORARY => mount_bind(link_to(directory), path),
                _ => mount("sailfish", path, "tmpfs", flags, Some(options)),
            };
            mounted.map_err(refused(&format!("mount {path}")))?;
            own.push(path);
        }
        for (path, place) in &visible {
            make_mount_point(path, place)
                .and_then(|()| mount_bind_recursive(link_to(place), path))
                .map_err(refused(&format!("keep {} visible", path.display())))?;
        }
        let mounts = open_for_reading(c"/proc/self/mounts").map_err(refused("open the list of mounts"))?;
        // The first look is about the changes above.
        has_changed(&mounts);
        let is_bound = |path: &str| path == TEMPORARY && temporary.is_some();
        let directories = own
            .into_iter()
            .filter_map(|path| Some((path.into(), State::of(Path::new(path), is_bound(path))?)));
        Ok(Self { directories: directories.collect(), mounts, queues: Queues::open(), files })
    }

    /// Returns whether its job left nothing here.
    fn is_as_new(&self) -> bool {
        let is_same = |(path, state): &(PathBuf, State)| {
            State::of(path, state.free.is_none()).as_ref() == Some(state) && self.is_empty(path)
        };
        let has_no_queue = self.queues.as_ref().is_some_and(Queues::is_empty);
        has_no_queue
            && !has_changed(&self.mounts)
            && IPC_LISTS
                .iter()
                .all(|list| read_to_string(list).map_or(true, |text| text.lines().count() <= 1))
            && self.directories.iter().all(is_same)
    }

    /// Returns whether a directory has no entries, if it had none at the start.
    fn is_empty(&self, path: &Path) -> bool {
        self.has_visible_below(path)
            || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
    }

    fn has_visible_below(&self, path: &Path) -> bool {
        self.files.visible.iter().any(|each| Path::new(OsStr::from_bytes(each)).starts_with(path))
    }
}

impl Queues {
    fn open() -> Option<Self> {
        let mounted = fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        match mounted {
            Ok(mounted) => Some(Self::Listed(mounted)),
            Err(Errno::NODEV) => Some(Self::Unsupported),
            Err(_) => None,
        }
    }

    fn is_empty(&self) -> bool {
        let Self::Listed(mounted) = self else { return true };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(mounted, c".", flags, Mode::empty()).and_then(Dir::new);
        let Ok(mut entries) = listed else { return false };
        entries.all(|entry| entry.is_ok_and(|entry| [c".", c".."].contains(&entry.file_name())))
    }
}

impl State {
    fn of(path: &Path, is_bound: bool) -> Option<Self> {
        let stat: Stat = rustix::fs::lstat(path).ok()?;
        let free = (!is_bound).then(|| rustix::fs::statvfs(path).map(|free| (free.f_bfree, free.f_ffree)));
        let free = free.transpose().ok()?;
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Some(Self { changed, mode: stat.st_mode, owner: (stat.st_uid, stat.st_gid), free })
    }
}

fn open_path(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn open_for_reading(path: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns a path to an opened file, even if something else covers its own path.
fn link_to(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// Returns whether a path is a directory and no link to one.
fn is_directory(path: &str) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn has_changed(mounts: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(mounts, PollFlags::PRI)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)) != Ok(0)
}

/// Makes an empty file or directory of the kind of `place`, with its parents.
fn make_mount_point(path: &Path, place: &OwnedFd) -> rustix::io::Result<()> {
    let made = match FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode) {
        FileType::Directory => create_dir_all(path),
        _ => path
            .parent()
            .map_or(Ok(()), create_dir_all)
            .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(path).map(|_| ())),
    };
    made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
