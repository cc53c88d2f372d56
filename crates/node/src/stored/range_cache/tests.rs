use super::{CacheLimits, CachedPart, RangeCache, RemoteParts, SEGMENT_BYTES};
use crate::tasks::map::stored_input::StoredReads;
use api::StoredPart;
use ids::ConcreteId;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const PART_BYTES: u64 = 2 * SEGMENT_BYTES + 1000;

/// Other nodes that count what is read from them.
#[derive(Clone, Default)]
struct Elsewhere {
    bytes: Arc<Vec<u8>>,
    read: Arc<AtomicU64>,
    opened: Arc<AtomicU64>,
}

impl RemoteParts for Elsewhere {
    fn open_elsewhere(&self, _part: StoredPart, range: Range<u64>) -> Box<dyn Read + Send> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Cursor::new(self.bytes[..range.end as usize].to_vec());
        bytes.set_position(range.start);
        Box::new(Counted { bytes, read: Arc::clone(&self.read) })
    }
}

struct Counted {
    bytes: Cursor<Vec<u8>>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // Pieces of a stream have any length.
        let wanted = buffer.len().min(50_000);
        let count = self.bytes.read(&mut buffer[..wanted])?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A node with a cache, and parts of one length on other nodes.
struct Place {
    dir: TempDir,
    cache: Arc<RangeCache>,
    elsewhere: Elsewhere,
    reads: Arc<StoredReads>,
}

impl Place {
    fn with(bytes_max: u64, reserve_percent: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let limits = CacheLimits { bytes_max, reserve_percent };
        let cache = Arc::new(RangeCache::new(vec![dir.path().join("local")], limits));
        let bytes = (0..PART_BYTES).map(|at| (at * 31 / 7) as u8).collect();
        let elsewhere = Elsewhere { bytes: Arc::new(bytes), ..Elsewhere::default() };
        Self { dir, cache, elsewhere, reads: Arc::default() }
    }

    /// Reads a range of a part, checks its bytes, and returns the number of bytes that came from other nodes.
    fn read(&self, part: i64, from: u64, to: u64) -> u64 {
        let part = StoredPart { concrete: ConcreteId(part), bytes: PART_BYTES, crc32c: 7 };
        let before = self.elsewhere.read.load(Ordering::Relaxed);
        let remote = Box::new(self.elsewhere.clone());
        let reader = CachedPart::new(&self.cache, remote, &self.reads, part, from..PART_BYTES);
        let mut bytes = Vec::new();
        reader.take(to - from).read_to_end(&mut bytes).unwrap();
        assert!(bytes == self.elsewhere.bytes[from as usize..to as usize], "other bytes were read");
        self.elsewhere.read.load(Ordering::Relaxed) - before
    }

    fn read_all(&self, part: i64) -> u64 {
        self.read(part, 0, PART_BYTES)
    }

    /// Returns the files of the cache, the oldest first.
    fn kept(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path().join("local/ranges"));
        let mut paths: Vec<PathBuf> =
            entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        paths.sort_by_key(|path| number(path).expect("files of the cache are numbered"));
        paths
    }
}

#[test]
fn ranges_are_kept_when_read_twice() {
    let place = Place::with(1 << 30, 0);
    assert_eq!((place.read_all(1), place.kept().len()), (PART_BYTES, 0));
    assert_eq!((place.read_all(1), place.kept().len()), (PART_BYTES, 3));
    assert_eq!(place.reads.bytes(), (0, 0), "the reader from elsewhere counts its own bytes");
    let opened = place.elsewhere.opened.load(Ordering::Relaxed);
    assert_eq!(place.read_all(1), 0);
    assert_eq!(place.reads.bytes(), (PART_BYTES, 0));
    // From the middle as well.
    assert_eq!(place.read(1, SEGMENT_BYTES + 5, PART_BYTES - 5), 0);
    assert_eq!(place.elsewhere.opened.load(Ordering::Relaxed), opened);
    // Another part has other ranges, also under the same number.
    assert_eq!(place.read_all(2), PART_BYTES);
    let other = StoredPart { concrete: ConcreteId(1), bytes: PART_BYTES, crc32c: 8 };
    let remote = Box::new(place.elsewhere.clone());
    let mut bytes = Vec::new();
    CachedPart::new(&place.cache, remote, &place.reads, other, 0..PART_BYTES)
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(place.elsewhere.read.load(Ordering::Relaxed), 4 * PART_BYTES);
}

#[test]
fn bounded_reads_bring_nothing_behind() {
    let place = Place::with(1 << 30, 0);
    let part = StoredPart { concrete: ConcreteId(1), bytes: PART_BYTES, crc32c: 7 };
    let read = |range: Range<u64>| {
        let before = place.elsewhere.read.load(Ordering::Relaxed);
        let remote = Box::new(place.elsewhere.clone());
        let mut bytes = Vec::new();
        let mut reader = CachedPart::new(&place.cache, remote, &place.reads, part, range.clone());
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == place.elsewhere.bytes[range.start as usize..range.end as usize], "{range:?}");
        place.elsewhere.read.load(Ordering::Relaxed) - before
    };
    assert_eq!(read(5..1005), 1000);
    assert_eq!(read(SEGMENT_BYTES - 10..SEGMENT_BYTES + 10), 20);
    (0..2).for_each(|_| _ = place.read_all(1));
    // From kept segments.
    assert_eq!(read(SEGMENT_BYTES - 10..SEGMENT_BYTES + 10), 0);
}

#[test]
fn only_whole_segments_are_kept() {
    let place = Place::with(1 << 30, 0);
    let (from, to) = (10, 2 * SEGMENT_BYTES + 10);
    for _ in 0..2 {
        assert_eq!(place.read(1, from, to), to - from);
    }
    assert_eq!(place.kept().len(), 1);
    // The stream that is open goes on: the rest would need another one.
    assert_eq!(place.read_all(1), PART_BYTES);
    assert_eq!(place.read(1, SEGMENT_BYTES, 2 * SEGMENT_BYTES), 0);
}

#[test]
fn least_used_ranges_make_room() {
    let place = Place::with(2 * SEGMENT_BYTES, 0);
    let first = |part| place.read(part, 0, SEGMENT_BYTES);
    for part in [1, 1, 2, 2] {
        assert_eq!(first(part), SEGMENT_BYTES);
    }
    assert_eq!((first(1), place.kept().len()), (0, 2));
    for part in [3, 3] {
        assert_eq!(first(part), SEGMENT_BYTES);
    }
    assert_eq!(place.kept().len(), 2);
    assert_eq!([first(1), first(3), first(2)], [0, 0, SEGMENT_BYTES]);
    // A limit below one segment keeps nothing.
    let small = Place::with(SEGMENT_BYTES - 1, 0);
    (0..3).for_each(|_| assert_eq!(small.read(1, 0, SEGMENT_BYTES), SEGMENT_BYTES));
    assert_eq!(small.kept().len(), 0);
}

#[test]
fn reserve_stays_free_of_ranges() {
    let place = Place::with(1 << 30, 100);
    (0..3).for_each(|_| assert_eq!(place.read_all(1), PART_BYTES));
    assert_eq!(place.kept().len(), 0);
}

#[test]
fn damaged_ranges_are_read_from_elsewhere() {
    let place = Place::with(1 << 30, 0);
    (0..2).for_each(|_| assert_eq!(place.read_all(1), PART_BYTES));
    let [flipped, cut, gone] = place.kept().try_into().unwrap();
    let mut bytes = std::fs::read(&flipped).unwrap();
    bytes[70_000] ^= 1;
    std::fs::write(&flipped, bytes).unwrap();
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(10).unwrap();
    std::fs::remove_file(&gone).unwrap();
    let segment = |index| place.read(1, index * SEGMENT_BYTES, PART_BYTES.min((index + 1) * SEGMENT_BYTES));
    for index in 0..3 {
        assert!(segment(index) > 0, "segment {index} is damaged");
        assert_eq!(segment(index), 0, "segment {index} is kept again");
    }
    assert_eq!(place.kept().len(), 3);
}
