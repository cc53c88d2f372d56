//! Files of this machine of which every byte was verified here: the kernel reads them by itself (FUSE passthrough) when
//! they are opened again. It has pages of many sizes for files of a disk, and only small ones for files of FUSE.

use filestore::FileReader;
use fuser::BackingId;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A smaller file gains nothing.
const BYTES_MIN: u64 = 1 << 20;
/// How long the bytes of a disk count as verified: the default of `--verify-after`, the rule for files of programs.
const VERIFIED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Contents that are known, and verified ranges of each.
const CONTENTS_MAX: usize = 8192;
const RANGES_MAX: usize = 256;

/// Registers a file with the kernel.
pub(crate) type OpenBacking<'a> = &'a dyn Fn(&File) -> std::io::Result<BackingId>;

/// The contents that were verified, and the files that the kernel reads.
#[derive(Debug, Default)]
pub(crate) struct WholeFiles {
    is_enabled: AtomicBool,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    contents: HashMap<i64, Verified>,
    /// Files that are open under numbers which the kernel reads.
    kernel: HashMap<u64, KernelFile>,
}

#[derive(Debug)]
struct KernelFile {
    handles: u64,
    /// None if the kernel asks for the bytes all the same.
    backing: Option<Arc<BackingId>>,
}

#[derive(Debug)]
struct Verified {
    bytes: u64,
    /// The file before its first byte was verified.
    state: FileState,
    began: Instant,
    /// The verified ranges, from begin to end. No two of them touch.
    ranges: BTreeMap<u64, u64>,
}

/// Differs if anybody has written to a file, or put another one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: [i64; 2],
    changed: [i64; 2],
}

impl FileState {
    fn of(file: &File) -> Option<Self> {
        let data = file.metadata().ok()?;
        Some(Self {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            modified: [data.mtime(), data.mtime_nsec()],
            changed: [data.ctime(), data.ctime_nsec()],
        })
    }
}

impl Verified {
    fn new(bytes: u64, state: FileState) -> Self {
        Self { bytes, state, began: Instant::now(), ranges: BTreeMap::new() }
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < VERIFIED_FOR
    }

    fn is_whole(&self, now: Instant) -> bool {
        self.is_recent(now) && self.ranges.get(&0).is_some_and(|end| *end >= self.bytes)
    }

    fn add(&mut self, begin: u64, end: u64) {
        let (mut begin, mut end) = (begin, end);
        if let Some((before, until)) = self.ranges.range(..=begin).next_back().map(|(at, end)| (*at, *end))
            && until >= begin
        {
            (begin, end) = (before, end.max(until));
        }
        while let Some((next, until)) = self.ranges.range(begin..=end).next().map(|(at, end)| (*at, *end)) {
            self.ranges.remove(&next);
            end = end.max(until);
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(begin, end);
        }
    }
}

impl WholeFiles {
    /// Lets the kernel read.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all bytes of a content were verified.
    pub fn is_whole(&self, content: i64) -> bool {
        self.is_enabled()
            && self.lock().contents.get(&content).is_some_and(|file| file.is_whole(Instant::now()))
    }

    /// Records that reads of a content begin. Returns the state of its file, if the kernel could read that by itself.
    pub fn begun(&self, content: i64, bytes: u64, reader: &dyn FileReader) -> Option<FileState> {
        if bytes < BYTES_MIN || !self.is_enabled() {
            return None;
        }
        let state = reader.backing().as_ref().and_then(FileState::of)?;
        let (now, mut tables) = (Instant::now(), self.lock());
        if tables.contents.len() >= CONTENTS_MAX {
            tables.contents.retain(|_, file| file.is_whole(now));
        }
        if tables.contents.len() >= CONTENTS_MAX {
            return None;
        }
        let file = tables.contents.entry(content).or_insert_with(|| Verified::new(bytes, state));
        if file.state != state || !file.is_recent(now) {
            *file = Verified::new(bytes, state);
        }
        Some(state)
    }

    /// Records that bytes of a content were verified, in a file of this state.
    pub fn verified(&self, content: i64, state: &FileState, offset: u64, bytes: u64) {
        if let Some(file) = self.lock().contents.get_mut(&content).filter(|file| file.state == *state) {
            file.add(offset, offset + bytes);
        }
    }

    /// Opens a file under a number that the kernel reads. Returns how it does so; None if it asks for the bytes all the
    /// same, because the file has changed or lies where it may not.
    pub fn opened(
        &self,
        inode: u64,
        content: i64,
        disk_file: Option<File>,
        open: OpenBacking<'_>,
    ) -> Option<Arc<BackingId>> {
        let state = disk_file.as_ref().and_then(FileState::of);
        let mut tables = self.lock();
        if let Some(opened) = tables.kernel.get_mut(&inode) {
            opened.handles += 1;
            return opened.backing.clone();
        }
        let verified = tables.contents.get(&content).filter(|file| file.is_whole(Instant::now()));
        let is_unchanged = verified.is_some_and(|file| Some(file.state) == state);
        let backing = match disk_file.filter(|_| is_unchanged).map(|file| open(&file)) {
            Some(Ok(backing)) => Some(Arc::new(backing)),
            Some(Err(_)) => {
                // The next files would have no more luck.
                self.is_enabled.store(false, Ordering::Relaxed);
                None
            }
            None => None,
        };
        tables.kernel.insert(inode, KernelFile { handles: 1, backing: backing.clone() });
        backing
    }

    /// Records that a file under a number that the kernel reads was closed once.
    pub fn closed(&self, inode: u64) {
        let mut tables = self.lock();
        if let Some(opened) = tables.kernel.get_mut(&inode) {
            opened.handles -= 1;
            if opened.handles == 0 {
                tables.kernel.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FileState, Verified, WholeFiles};
    use filestore::{FileReader, FilesError};
    use std::cell::Cell;
    use std::fs::File;
    use std::io::{ErrorKind, Write};
    use std::time::{Duration, Instant};

    struct OnDisk(Option<File>);

    impl FileReader for OnDisk {
        fn read(&self, _offset: u64, _bytes_max: u64, _out: &mut dyn Write) -> Result<(), FilesError> {
            Ok(())
        }

        fn is_near(&self) -> bool {
            true
        }

        fn backing(&self) -> Option<File> {
            self.0.as_ref().map(|file| file.try_clone().unwrap())
        }
    }

    #[test]
    fn ranges_make_a_whole() {
        let state = FileState { device: 0, inode: 0, bytes: 100, modified: [0; 2], changed: [0; 2] };
        let now = Instant::now();
        let whole = |ranges: &[(u64, u64)]| {
            let mut file = Verified::new(100, state);
            ranges.iter().for_each(|(begin, end)| file.add(*begin, *end));
            (file.is_whole(now), file.ranges.len())
        };
        assert_eq!(whole(&[(0, 100)]), (true, 1));
        assert_eq!(whole(&[(50, 100), (0, 50)]), (true, 1));
        assert_eq!(whole(&[(0, 20), (40, 60), (80, 100), (10, 90)]), (true, 1));
        assert_eq!(whole(&[(0, 20), (40, 60), (80, 100), (20, 40)]), (false, 2));
        assert_eq!(whole(&[(0, 99)]), (false, 1));
        assert_eq!(whole(&[(1, 100)]), (false, 1));
        let mut file = Verified::new(100, state);
        file.add(0, 100);
        assert!(!file.is_whole(now + Duration::from_secs(25 * 3600)));
    }

    #[test]
    fn kernel_reads_only_unchanged_verified_files() {
        let bytes = 2 << 20;
        let mut on_disk = tempfile::tempfile().unwrap();
        on_disk.write_all(&vec![1; bytes as usize]).unwrap();
        let (whole, asked) = (WholeFiles::default(), Cell::new(0));
        let reader = OnDisk(Some(on_disk.try_clone().unwrap()));
        // The kernel is not there: each try to register a file is counted, and fails.
        let refuse = |_: &File| {
            asked.set(asked.get() + 1);
            Err(ErrorKind::PermissionDenied.into())
        };
        let opens = |reader: &OnDisk| {
            assert!(whole.opened(9, 7, reader.backing(), &refuse).is_none());
            whole.closed(9);
            asked.get()
        };
        assert!(whole.begun(7, bytes, &reader).is_none(), "it is not enabled");
        whole.enable();
        assert!(whole.begun(7, bytes, &OnDisk(None)).is_none());
        assert!(whole.begun(7, 10, &reader).is_none());
        let state = whole.begun(7, bytes, &reader).unwrap();
        whole.verified(7, &state, 0, bytes - 1);
        assert!(!whole.is_whole(7));
        assert_eq!(opens(&reader), 0);
        whole.verified(7, &state, bytes - 1, 1);
        assert!(whole.is_whole(7));
        assert_eq!(opens(&OnDisk(None)), 0);
        (&on_disk).write_all(&[2]).unwrap();
        assert_eq!(opens(&reader), 0, "it is longer by a byte");
        let changed = whole.begun(7, bytes, &reader).unwrap();
        whole.verified(7, &state, 0, bytes);
        assert!(!whole.is_whole(7), "bytes of another file");
        whole.verified(7, &changed, 0, bytes);
        assert_eq!(opens(&reader), 1);
        // It was refused: nothing is tried again.
        assert!(!whole.is_whole(7));
    }
}
