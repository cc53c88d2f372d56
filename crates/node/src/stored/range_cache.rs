//! Ranges of stored files that this node has read twice from other nodes (`node --cache`). A later read finds them on a
//! disk of this node. Readers are attempts that are tried again, copies of attempts, and other jobs over the same file.
//!
//! ```text
//! part       |-- segment 0 --|-- segment 1 --|-- segment 2 --|- 3 -|
//! a reader           ^ ....................................> ^
//!                    begins here       1 and 2 count as read; of 0 and 3 it read too little
//! ```
//!
//! The first whole read of a segment from elsewhere is noted, the second one keeps its bytes, and later ones find them.
//! The checksums of its blocks are in memory and each read compares them: a range that is damaged or gone is dropped, and
//! read from a replica again. Nothing of it outlasts the process.
//!
//! No right is checked here. The server gave the job to this node with the parts of its inputs, after it had checked that
//! the user may read them, and attempts open no other parts. So a kept range is like a replica on a disk of this node.

mod reader;
mod recent;

#[cfg(test)]
mod tests;

pub(crate) use reader::{CachedPart, RemoteParts};

use crate::stored::local_files::free_bytes;
use api::StoredPart;
use bytes::Bytes;
use concretefile::BLOCK_BYTES;
use faults::{IoCall, io_call};
use ids::ConcreteId;
use recent::Recent;
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of each segment of a part except the last, which has the rest. Short enough that the smallest splits of jobs
/// have whole ones, long enough that a file for each is no burden.
const SEGMENT_BYTES: u64 = 256 << 10;
const _: () = assert!(SEGMENT_BYTES.is_multiple_of(BLOCK_BYTES));
/// Maximum of `--cache`: a kept segment takes about 250 bytes of memory.
pub const RANGE_CACHE_BYTES_MAX: u64 = 256 << 30;
/// Maximum number of segments that are remembered as read once: 16 GiB.
const NOTED_MAX: usize = 1 << 16;
/// Directory within that of the local copies of a disk.
const DIRECTORY: &str = "ranges";

/// A segment of a part. The length and the checksum of the part belong to it: a server that was restored from a backup may
/// give a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SegmentKey {
    concrete: ConcreteId,
    part_bytes: u64,
    crc32c: u32,
    index: u64,
}

impl SegmentKey {
    /// Returns the segment with the byte at this offset.
    fn at(part: StoredPart, offset: u64) -> Self {
        let StoredPart { concrete, bytes, crc32c } = part;
        Self { concrete, part_bytes: bytes, crc32c, index: offset / SEGMENT_BYTES }
    }

    fn start(&self) -> u64 {
        self.index * SEGMENT_BYTES
    }

    fn end(&self) -> u64 {
        self.part_bytes.min(self.start() + SEGMENT_BYTES)
    }
}

/// A segment on a disk.
#[derive(Clone, Debug)]
struct KeptSegment {
    path: PathBuf,
    bytes: u64,
    /// CRC-32C of each block.
    sums: Arc<[u32]>,
}

impl KeptSegment {
    /// Returns the bytes if they are those that were kept.
    fn read(&self) -> std::io::Result<Bytes> {
        // A program may have put anything in its place.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = File::options().read(true).custom_flags(flags).open(&self.path)?;
        let mut bytes = vec![0; self.bytes as usize];
        file.read_exact(&mut bytes)?;
        match sums_of(&bytes) == self.sums {
            true => Ok(bytes.into()),
            false => Err(Error::new(ErrorKind::InvalidData, "it has other bytes than were kept")),
        }
    }

    fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove a kept range of a stored file");
        }
    }
}

fn sums_of(bytes: &[u8]) -> Arc<[u32]> {
    bytes.chunks(BLOCK_BYTES as usize).map(crc32c::crc32c).collect()
}

/// Limits of the kept ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub bytes_max: u64,
    /// Percentage of each disk that stays free.
    pub reserve_percent: u8,
}

#[derive(Default)]
struct Table {
    kept: Recent<KeptSegment>,
    /// Segments that were read once.
    noted: Recent<()>,
    /// Bytes of kept segments, and of those that are being written.
    bytes: u64,
    last_number: u64,
}

/// The ranges that a node keeps.
pub(crate) struct RangeCache {
    /// Directories, one for each disk; the first range creates them.
    dirs: Vec<PathBuf>,
    limits: CacheLimits,
    table: Mutex<Table>,
}

impl RangeCache {
    /// Creates an empty cache in directories that are removed with the process.
    pub fn new(local_dirs: Vec<PathBuf>, limits: CacheLimits) -> Self {
        let dirs = local_dirs.into_iter().map(|dir| dir.join(DIRECTORY)).collect();
        Self { dirs, limits, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the verified bytes of a segment; None if it is not kept, or not intact.
    fn get(&self, key: &SegmentKey) -> Option<Bytes> {
        let kept = self.table().kept.get(key).cloned()?;
        match kept.read() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::debug!(path = %kept.path.display(), %error, "a kept range of a stored file is dropped");
                let mut table = self.table();
                if table.kept.get(key).is_some_and(|now| now.path == kept.path) {
                    table.kept.remove(key);
                    table.bytes -= kept.bytes;
                    // The next read keeps it again.
                    table.note(*key);
                }
                drop(table);
                kept.remove();
                None
            }
        }
    }

    /// Returns whether this segment and those behind it are kept, so many or up to the end of the part.
    fn has_run(&self, key: &SegmentKey, count: u64) -> bool {
        let table = self.table();
        let run = (key.index..key.index + count).map(|index| SegmentKey { index, ..*key });
        run.take_while(|each| each.start() < each.part_bytes).all(|each| table.kept.has(&each))
    }

    /// Returns whether a segment that is about to be read from elsewhere will be kept.
    fn wants(&self, key: &SegmentKey) -> bool {
        let table = self.table();
        table.noted.has(key) && !table.kept.has(key)
    }

    /// Notes that a whole segment was read from elsewhere.
    fn note(&self, key: SegmentKey) {
        let mut table = self.table();
        if !table.kept.has(&key) {
            table.note(key);
        }
    }

    /// Keeps a segment if a disk has room for it; the least recently used ones make room within the limit.
    fn keep(&self, key: SegmentKey, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let Some(dir) = self.roomiest(length) else { return };
        let mut table = self.table();
        if length > self.limits.bytes_max || table.kept.has(&key) {
            return;
        }
        let mut surplus = Vec::new();
        while table.bytes + length > self.limits.bytes_max
            && let Some(oldest) = table.kept.remove_oldest()
        {
            table.bytes -= oldest.bytes;
            surplus.push(oldest);
        }
        // What is being written now may take all of it.
        let has_room = table.bytes + length <= self.limits.bytes_max;
        table.bytes += if has_room { length } else { 0 };
        table.last_number += 1;
        let path = dir.join(table.last_number.to_string());
        drop(table);
        surplus.iter().for_each(KeptSegment::remove);
        if has_room {
            self.write(key, KeptSegment { path, bytes: length, sums: sums_of(bytes) }, bytes);
        }
    }

    fn write(&self, key: SegmentKey, kept: KeptSegment, bytes: &[u8]) {
        let written = write_file(&kept.path, bytes);
        let mut table = self.table();
        let dropped = match written {
            // Another reader may have kept it in the meantime.
            Ok(()) => {
                table.noted.remove(&key);
                table.kept.insert(key, kept)
            }
            Err(error) => {
                tracing::debug!(path = %kept.path.display(), %error, "a range of a stored file is not kept");
                Some(kept)
            }
        };
        table.bytes -= dropped.as_ref().map_or(0, |dropped| dropped.bytes);
        drop(table);
        dropped.iter().for_each(KeptSegment::remove);
    }

    /// Returns the directory with the most room outside the reserve, if that is enough.
    fn roomiest(&self, bytes: u64) -> Option<&Path> {
        let room = |dir: &PathBuf| {
            let home = dir.parent()?;
            let made = std::fs::create_dir_all(home).and_then(|()| {
                io_call(IoCall::Create, dir)?;
                DirBuilder::new().recursive(true).mode(0o700).create(dir)
            });
            made.and_then(|()| free_bytes(dir, self.limits.reserve_percent)).ok()
        };
        let rooms = self.dirs.iter().filter_map(|dir| Some((room(dir)?, dir)));
        rooms.max().filter(|(room, _)| *room >= bytes).map(|(_, dir)| dir.as_path())
    }
}

impl Table {
    fn note(&mut self, key: SegmentKey) {
        self.noted.insert(key, ());
        if self.noted.len() > NOTED_MAX {
            self.noted.remove_oldest();
        }
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    io_call(IoCall::Create, path)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    io_call(IoCall::Write, path)?;
    file.write_all(bytes)
}
