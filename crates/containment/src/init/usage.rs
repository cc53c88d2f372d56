//! Measures what the programs of a slot use.

use crate::init::group::Groups;
use crate::init::job_space::OWN;
use crate::message::{UnlinkedFiles, Usage};
use crate::processes::{Descendant, is_zombie, memory_of, ticks_of};
use rustix::fs::FsWord;
use std::collections::BTreeSet;
use std::fs::{metadata, read_dir};
use std::os::unix::fs::MetadataExt;

/// Maximum number of open files that one look counts.
const OPEN_FILES_MAX: usize = 100_000;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// The kernel's number for file systems in memory.
const TMPFS: FsWord = 0x0102_1994;

/// Whether the slot has directories in memory of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnDirectories {
    Present,
    Absent,
}

/// Measures everything; files without a name only on demand.
pub(crate) fn measure(
    groups: &Groups,
    descendants: &[Descendant],
    own: OwnDirectories,
    unlinked: UnlinkedFiles,
) -> Usage {
    let (memory, processes) = (groups.memory(), groups.processes());
    let living = || descendants.iter().filter(|each| !is_zombie(each.pid));
    let in_directories = || if own == OwnDirectories::Present { bytes_in_memory() } else { 0 };
    Usage {
        // A limit that the kernel enforces cannot be passed.
        processes: if processes.is_limited { 0 } else { living().count() as u64 },
        memory_bytes: match memory.is_limited {
            true => 0,
            false => living().filter_map(|each| memory_of(each.pid)).sum::<u64>() + in_directories(),
        },
        unlinked_bytes: match unlinked {
            UnlinkedFiles::Counted => unlinked_bytes(descendants),
            UnlinkedFiles::LeftOut => 0,
        },
        ended_for_memory: memory.count > 0,
        refused_processes: processes.count > 0,
    }
}

/// Returns the processor time, user and system, of all that was reaped below this process, and of a program that lives,
/// in microseconds. A process counts when it was waited for: a parent that ignores the ends of its children hides them.
/// A living program counts in ticks of the clock, and so never more than after its end.
pub(crate) fn processor_us(kept: Option<i32>) -> u64 {
    // SAFETY: the structure has only numbers, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) == 0).then_some(usage)
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    let reaped = usage.map_or(0, |usage| micros(usage.ru_utime) + micros(usage.ru_stime));
    let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let ticks = kept.and_then(ticks_of).unwrap_or(0);
    reaped.saturating_add(ticks.saturating_mul(tick_us))
}

/// Returns the bytes of files in the slot's own directories that are in memory.
fn bytes_in_memory() -> u64 {
    let mut systems = BTreeSet::new();
    let mut bytes = 0_u64;
    for (path, _) in OWN {
        let (Ok(stat), Ok(place)) = (rustix::fs::statfs(path), metadata(path)) else { continue };
        if stat.f_type == TMPFS && systems.insert(place.dev()) {
            bytes += (stat.f_blocks - stat.f_bfree) * stat.f_bsize as u64;
        }
    }
    bytes
}

/// Returns the bytes of open files on disks that have no name any more, each once.
fn unlinked_bytes(descendants: &[Descendant]) -> u64 {
    let mut seen = BTreeSet::new();
    let mut bytes = 0_u64;
    let lists = descendants.iter().filter_map(|each| read_dir(format!("/proc/{}/fd", each.pid)).ok());
    for entry in lists.flatten().flatten().take(OPEN_FILES_MAX) {
        // The entry leads to the open file itself.
        let Ok(file) = metadata(entry.path()) else { continue };
        let is_unlinked = file.is_file() && file.nlink() == 0;
        if is_unlinked && seen.insert((file.dev(), file.ino())) && !is_in_memory(&entry.path()) {
            bytes = bytes.saturating_add(file.blocks() * BLOCK_BYTES);
        }
    }
    bytes
}

fn is_in_memory(path: &std::path::Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == TMPFS)
}
