//! Open files and directories outside of users' directories, kept for the programs of the next moments: many short programs
//! of a workflow start with the same rules.

use super::kept_results::KEPT_FOR;
use super::own_directories::{Outside, OwnDirectories};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Age from which on the time of a directory changes with each new entry. Clocks of file systems tick less often.
const TICKED: Duration = Duration::from_millis(100);
/// Maximum number of kept lists, and of places of each: all of them are open.
const KEPT_MAX: usize = 4;
const PLACES_MAX: usize = 256;

/// A file or directory that stays the same if its path is exchanged.
#[derive(Debug)]
pub(super) struct Place {
    pub place: OwnedFd,
    pub is_directory: bool,
}

impl Place {
    /// Opens a path; None if it is missing, or a link where `flags` follow none.
    pub fn open(path: &Path, flags: OFlags) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let place = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place).ok()?.st_mode);
        let is_directory = kind == FileType::Directory;
        (kind != FileType::Symlink).then_some(Self { place, is_directory })
    }
}

/// The state of a directory that each new entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: SystemTime,
}

impl Stamp {
    /// Returns the state of a directory; None if it changed a moment ago, and may change again under the same time.
    fn of(directory: &Path) -> Option<Self> {
        let facts = directory.metadata().ok()?;
        let changed = facts.modified().ok()?;
        let is_certain = changed.elapsed().is_ok_and(|age| age >= TICKED);
        is_certain.then(|| Self { device: facts.dev(), inode: facts.ino(), changed })
    }
}

struct Kept {
    own: OwnDirectories,
    /// The directories that hold the places, and users' directories.
    above: Vec<(PathBuf, Stamp)>,
    places: Arc<Vec<Place>>,
    opened: Instant,
}

impl Kept {
    fn is_valid(&self) -> bool {
        self.opened.elapsed() < KEPT_FOR
            && self.above.iter().all(|(path, stamp)| Stamp::of(path) == Some(*stamp))
    }
}

/// Returns everything outside of users' directories, as few places as possible.
pub(super) fn places_outside(own: &OwnDirectories) -> Arc<Vec<Place>> {
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept().iter().find(|kept| kept.own == *own && kept.is_valid()) {
        return Arc::clone(&found.places);
    }
    let opened = Instant::now();
    let Outside { paths, above } = own.outside(Path::new("/"));
    // A link in the place of one of them leads to a file that has its own rule.
    let places = paths.iter().filter_map(|path| Place::open(path, OFlags::NOFOLLOW));
    let places = Arc::new(places.collect::<Vec<_>>());
    let above: Option<Vec<_>> =
        above.into_iter().map(|path| Some((path.clone(), Stamp::of(&path)?))).collect();
    if let Some(above) = above.filter(|_| places.len() <= PLACES_MAX) {
        let mut all = kept();
        all.retain(|kept| kept.own != *own);
        if all.len() >= KEPT_MAX {
            all.remove(0);
        }
        all.push(Kept { own: own.clone(), above, places: Arc::clone(&places), opened });
    }
    places
}

#[cfg(test)]
mod tests {
    use super::{Place, Stamp};
    use rustix::fs::OFlags;
    use std::fs::FileTimes;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    #[test]
    fn new_entries_change_stamps() {
        let dir = tempfile::tempdir().unwrap();
        // It was made a moment ago.
        assert_eq!(Stamp::of(dir.path()), None);
        let earlier = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(9));
        let settle = || std::fs::File::open(dir.path()).unwrap().set_times(earlier).unwrap();
        settle();
        let before = Stamp::of(dir.path());
        assert!(before.is_some() && before == Stamp::of(dir.path()));
        std::fs::write(dir.path().join("new"), "").unwrap();
        assert_ne!(Stamp::of(dir.path()), before);
    }

    #[test]
    fn links_are_no_places() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("/usr", &link).unwrap();
        assert!(Place::open(&link, OFlags::NOFOLLOW).is_none());
        assert!(Place::open(&link, OFlags::empty()).unwrap().is_directory);
    }
}
