//! The control groups of a slot, in which the kernel limits memory and processes of all programs of an attempt
//! together. Where this process may not make groups there are none, and the engine measures instead.

use crate::message::ProcessLimits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{read_dir, read_to_string};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Beginning of the names of our groups.
const NAME: &str = "sailfish-";

/// The groups of a slot, of which there are none before the first limit.
#[derive(Default)]
pub(crate) struct Groups {
    memory: Place,
    processes: Place,
}

/// Actions of the kernel at a limit since the attempt began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Enforced {
    /// Whether the kernel limits it.
    pub is_limited: bool,
    /// Processes that it ended, or refused to make.
    pub count: u64,
}

/// Place of a group of one kind.
#[derive(Default)]
enum Place {
    #[default]
    Unknown,
    Nowhere,
    At(Group),
}

/// Files of a group: their names differ between versions of control groups.
struct Group {
    dir: PathBuf,
    files: &'static Files,
    /// The count when the attempt began.
    count_before: u64,
    is_limited: bool,
}

struct Files {
    controller: &'static str,
    /// True for version 2, which has one tree for all controllers.
    is_unified: bool,
    limit: &'static str,
    /// Further files that get the same value, where they exist.
    also: &'static [&'static str],
    /// File with a line of a word and a count.
    events: &'static str,
    event: &'static str,
}

/// In the order in which they are tried.
const MEMORY: [Files; 2] = [
    Files {
        controller: "memory",
        is_unified: true,
        limit: "memory.max",
        also: &[],
        events: "memory.events",
        event: "oom_kill",
    },
    Files {
        controller: "memory",
        is_unified: false,
        limit: "memory.limit_in_bytes",
        also: &["memory.memsw.limit_in_bytes"],
        events: "memory.oom_control",
        event: "oom_kill",
    },
];
const PROCESSES: [Files; 2] = [
    Files {
        controller: "pids",
        is_unified: true,
        limit: "pids.max",
        also: &[],
        events: "pids.events",
        event: "max",
    },
    Files {
        controller: "pids",
        is_unified: false,
        limit: "pids.max",
        also: &[],
        events: "pids.events",
        event: "max",
    },
];

impl Groups {
    /// Prepares the groups for a program with these limits; returns the files by which it enters them.
    pub fn prepare(&mut self, limits: &ProcessLimits) -> Vec<OwnedFd> {
        let memory = self.memory.enter(&MEMORY, limits.memory_bytes);
        let processes = self.processes.enter(&PROCESSES, limits.processes);
        memory.into_iter().chain(processes).collect()
    }

    /// Returns the processes that were ended for lack of memory.
    pub fn memory(&self) -> Enforced {
        self.memory.enforced()
    }

    /// Returns the processes that were refused.
    pub fn processes(&self) -> Enforced {
        self.processes.enforced()
    }
}

impl Place {
    /// Returns the file by which a program enters the group with this limit; None without a limit, or without a group.
    fn enter(&mut self, kinds: &'static [Files], limit: Option<u64>) -> Option<OwnedFd> {
        let Some(limit) = limit else {
            if let Self::At(group) = self {
                group.is_limited = false;
            }
            return None;
        };
        if matches!(self, Self::Unknown) {
            *self = kinds.iter().find_map(Group::make).map_or(Self::Nowhere, Self::At);
        }
        let Self::At(group) = self else { return None };
        let entrance = group.open(limit);
        if entrance.is_none() {
            // Another process may have removed it while it was empty. It is dropped first, which removes its directory.
            *self = Self::Nowhere;
            *self = kinds.iter().find_map(Group::make).map_or(Self::Nowhere, Self::At);
            let Self::At(group) = self else { return None };
            return group.open(limit);
        }
        entrance
    }

    fn enforced(&self) -> Enforced {
        match self {
            Self::At(group) if group.is_limited => Enforced {
                is_limited: true,
                count: group.count().unwrap_or(0).saturating_sub(group.count_before),
            },
            _ => Enforced::default(),
        }
    }
}

impl Group {
    /// Makes the group of this init below the group in which it runs itself, or beside it.
    fn make(files: &'static Files) -> Option<Self> {
        let own = own_group(files)?;
        // A group of version 2 that has processes can have no limited groups below it.
        let parents = [Some(own.path.as_path()), own.path.parent().filter(|_| own.path != own.mount)];
        parents.into_iter().flatten().find_map(|parent| Self::make_below(parent, files))
    }

    fn make_below(parent: &Path, files: &'static Files) -> Option<Self> {
        remove_empty(parent);
        let dir = parent.join(own_name()?);
        match std::fs::create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        let group = Self { dir, files, count_before: 0, is_limited: false };
        if !group.file(files.limit).exists() && files.is_unified {
            // Refused where the group has processes of its own; then the next parent is tried.
            let _ = set(&parent.join("cgroup.subtree_control"), &format!("+{}", files.controller));
        }
        // Without the file the drop removes the group.
        group.file(files.limit).exists().then_some(group)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Sets the limit, if no program of the attempt runs yet, and opens the entrance.
    fn open(&mut self, limit: u64) -> Option<OwnedFd> {
        let members = read_to_string(self.file("cgroup.procs")).ok()?;
        if members.is_empty() || !self.is_limited {
            // The limit of memory with swap may never be below that of memory. It is missing where the kernel does not
            // count swap.
            let also =
                |value: &str| self.files.also.iter().for_each(|file| drop(set(&self.file(file), value)));
            also("-1");
            set(&self.file(self.files.limit), &limit.to_string()).ok()?;
            also(&limit.to_string());
            // The limit holds for memory and swap together.
            let _ = set(&self.file("memory.swap.max"), "0");
            self.count_before = self.count()?;
            self.is_limited = true;
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(self.file("cgroup.procs"), flags, Mode::empty()).ok()
    }

    fn count(&self) -> Option<u64> {
        let events = read_to_string(self.file(self.files.events)).ok()?;
        let count = events.lines().find_map(|line| line.strip_prefix(self.files.event)?.strip_prefix(' '))?;
        count.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with processes stays, and is removed by a later init.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Writes to a file of the kernel. A missing one stays missing: a directory that is no group gets no files.
fn set(file: &Path, value: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(file)?;
    file.write_all(value.as_bytes())
}

/// Removes groups whose inits were killed. A group that is in use cannot be removed.
fn remove_empty(parent: &Path) {
    for entry in read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            let _ = rustix::fs::rmdir(entry.path()) as Result<(), Errno>;
        }
    }
}

/// Returns a name that no other living init has.
fn own_name() -> Option<String> {
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    Some(format!("{NAME}{namespace}-{}", rustix::process::getpid().as_raw_pid()))
}

/// The group in which this process runs.
#[derive(Debug, PartialEq, Eq)]
struct OwnGroup {
    path: PathBuf,
    /// Directory of its tree, above which there are no groups.
    mount: PathBuf,
}

/// Returns the group in which this process runs.
fn own_group(files: &Files) -> Option<OwnGroup> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    find_group(&groups, &mounts, files)
}

/// Finds a group in the kernel's lists of groups and mounts.
fn find_group(groups: &str, mounts: &str, files: &Files) -> Option<OwnGroup> {
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match files.is_unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|each| each == files.controller),
        };
        is_it.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (system, options) = (kind.next()?, kind.nth(1)?);
        let is_it = match files.is_unified {
            true => system == "cgroup2",
            false => system == "cgroup" && options.split(',').any(|each| each == files.controller),
        };
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        is_it.then(|| OwnGroup { path: Path::new(at).join(below), mount: at.into() })
    })
}

#[cfg(test)]
mod tests {
    use super::{MEMORY, PROCESSES, find_group};
    use std::path::PathBuf;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 23 0:27 /docker/a /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";

    #[test]
    fn groups_are_found_below_their_mounts() {
        let groups = "8:pids:/x\n4:memory:/docker/a/b\n0::/user.slice/y";
        let found = |files| find_group(groups, MOUNTS, files).map(|own| own.path);
        assert_eq!(found(&MEMORY[0]), Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice/y")));
        assert_eq!(found(&MEMORY[1]), Some(PathBuf::from("/sys/fs/cgroup/memory/b")));
        assert_eq!(found(&PROCESSES[1]), Some(PathBuf::from("/sys/fs/cgroup/pids/x")));
        assert_eq!(find_group("4:memory:/elsewhere", MOUNTS, &MEMORY[1]), None);
        assert_eq!(find_group("", "", &MEMORY[1]), None);
    }
}
