//! Processes as the kernel lists them: the descendants of this one, and the pipes they hold.

use crate::message::{HeldFile, Holder};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process and the parent with which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Descendant {
    pub pid: i32,
    pub parent: i32,
}

impl Descendant {
    /// Kills it if it is still a child of its parent, or an orphan by now: its number may belong to another process.
    pub fn kill(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let parent = parent_of(self.pid);
        let here = rustix::process::getpid().as_raw_pid();
        if parent == Some(self.parent) || parent == Some(here) {
            // The only possible error is that it has ended, which is the goal.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

/// Returns all descendants of a process, zombies too. Those that appear meanwhile may be missing.
pub(crate) fn descendants_of(ancestor: i32) -> Vec<Descendant> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([ancestor]);
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        for pid in children_of(parent) {
            if seen.insert(pid) {
                found.push(Descendant { pid, parent });
                next.push(pid);
            }
        }
    }
    found
}

/// Returns the children of all threads of a process.
fn children_of(parent: i32) -> Vec<i32> {
    let Ok(threads) = read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| read_to_string(thread.path().join("children")));
    let mut children = Vec::new();
    for list in lists {
        match list {
            Ok(list) => {
                children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()))
            }
            // A kernel without these lists, or a thread that has ended.
            Err(_) => return children_among_all(parent),
        }
    }
    children
}

fn children_among_all(parent: i32) -> Vec<i32> {
    all().into_iter().filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Returns all processes that are visible here.
fn all() -> Vec<i32> {
    let entries = read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the fields of a process's `stat` after its name, which may contain anything.
fn stat_of(pid: i32) -> Option<String> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_string())
}

fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.split(' ').nth(1)?.parse().ok()
}

/// Returns the processor time of a process and of its children that it has waited for, in ticks of the clock.
pub(crate) fn ticks_of(pid: i32) -> Option<u64> {
    // `utime`, `stime`, `cutime` and `cstime`: fields 14 to 17, of which two precede this text.
    let stat = stat_of(pid)?;
    stat.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Returns whether a process has ended, and its parent has not reaped it.
pub(crate) fn is_zombie(pid: i32) -> bool {
    stat_of(pid).is_none_or(|stat| stat.starts_with(['Z', 'X']))
}

/// Returns the process group of a process; 0 for one outside this namespace.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    // `rustix::process::getpgid` treats the 0 as an error.
    // SAFETY: takes a number and returns one.
    let group = unsafe { libc::getpgid(pid) };
    (group >= 0).then_some(group)
}

/// Returns the memory of a process in bytes; None if it has ended.
pub(crate) fn memory_of(pid: i32) -> Option<u64> {
    let sizes = read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    // An ended process has no memory, which is not the question.
    (pages > 0).then(|| pages * rustix::param::page_size() as u64)
}

/// Returns this process, if it has a pipe or a file open with this access.
pub(crate) fn holder(pid: i32, file: HeldFile) -> Option<Holder> {
    const READ: u32 = 0o400;
    const WRITE: u32 = 0o200;
    let is_it = |path: &Path| {
        // A file system that hangs must not hang the init.
        let opened = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
        let device = makedev(opened.stx_dev_major, opened.stx_dev_minor);
        // The rights of the link are those of the descriptor.
        let rights = symlink_metadata(path)?.mode();
        let has_access = rights & if file.by_writers { WRITE } else { READ } != 0;
        std::io::Result::Ok(has_access && (device, opened.stx_ino) == (file.device, file.inode))
    };
    let descriptors = read_dir(format!("/proc/{pid}/fd")).ok()?;
    let holds = descriptors.flatten().any(|entry| is_it(&entry.path()).unwrap_or(false));
    holds.then(|| {
        let name = read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Holder { pid, name: name.trim_end().to_string() }
    })
}
