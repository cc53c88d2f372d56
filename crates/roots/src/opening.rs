//! Opening of the paths of jobs: below the roots, if there are any.

use crate::{OutsideRoots, Roots};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum retries if directories are exchanged all the time.
const TRIES_MAX: u32 = 64;
/// Descriptors of this process, by number.
const HELD: &str = "/proc/self/fd";

/// The files and directories that this process may open for a job. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct JobPaths {
    /// Lists of roots: an opened path lies below a root of each list. Empty: anything may be opened.
    roots: Arc<[Roots]>,
    /// Copies that this process made for the job.
    own: Arc<BTreeSet<PathBuf>>,
}

impl JobPaths {
    /// Allows paths below a root of each list.
    pub fn below(roots: Vec<Roots>) -> Self {
        Self { roots: roots.into(), own: Arc::default() }
    }

    /// Also allows these exact paths, which belong to this process.
    pub fn with_own(&self, own: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { roots: Arc::clone(&self.roots), own: Arc::new(own.into_iter().collect()) }
    }

    /// Allows these paths beside those of this process that were allowed before.
    pub fn with_more_own(&self, own: impl IntoIterator<Item = PathBuf>) -> Self {
        self.with_own(self.own.iter().cloned().chain(own))
    }

    /// Restricts the roots to those for jobs of this user.
    pub fn for_user(&self, user: &str) -> Self {
        if !self.are_bounded() {
            return self.clone();
        }
        let roots = self.roots.iter().map(|roots| roots.for_user(user)).collect();
        Self { roots, own: Arc::clone(&self.own) }
    }

    /// Returns whether there are any roots.
    pub fn are_bounded(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Checks each list of roots.
    pub fn check(&self, ask: impl Fn(&Roots) -> Result<(), OutsideRoots>) -> Result<(), OutsideRoots> {
        self.roots.iter().try_for_each(ask)
    }

    /// Opens a file to read it. A named pipe is opened without waiting for its writer.
    ///
    /// Errors: [`ErrorKind::PermissionDenied`] with an [`OutsideRoots`] if it lies outside; otherwise those of the
    /// system.
    pub fn open_file(&self, path: &Path) -> std::io::Result<File> {
        self.open("input", path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    /// Opens a file or directory as a place (`O_PATH`), for a rule of a sandbox.
    pub fn open_place(&self, path: &Path) -> std::io::Result<OwnedFd> {
        self.open("file", path, OFlags::PATH)
    }

    /// Opens a directory, to work in it even if its name changes.
    pub fn open_dir(&self, path: &Path) -> std::io::Result<HeldDir> {
        self.open("output", path, OFlags::PATH | OFlags::DIRECTORY).map(HeldDir)
    }

    /// Opens a directory, and creates it and its parents if they are missing.
    pub fn create_dir_all(&self, path: &Path) -> std::io::Result<HeldDir> {
        if !self.are_bounded() {
            std::fs::create_dir_all(path)?;
            return self.open_dir(path);
        }
        self.until_nothing_moves(path, || {
            let (found, missing) = deepest_existing(path)?;
            let whole = missing.iter().fold(found.clone(), |whole, name| whole.join(name));
            self.judge("output", path, &whole)?;
            let mut dir = self.open_resolved("output", path, &found, OFlags::PATH | OFlags::DIRECTORY)?;
            for name in missing {
                match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                dir = open_beneath(&dir, Path::new(name), OFlags::PATH | OFlags::DIRECTORY)?;
            }
            Ok(HeldDir(dir))
        })
    }

    fn open(&self, what: &'static str, path: &Path, flags: OFlags) -> std::io::Result<OwnedFd> {
        if !self.are_bounded() || self.own.contains(path) {
            return Ok(open(path, flags | OFlags::CLOEXEC, Mode::empty())?);
        }
        // Most paths have no link: they are opened unchanged, with one system call.
        if is_plain(path)
            && let Ok(opened) = self.open_resolved(what, path, path, flags)
        {
            return Ok(opened);
        }
        self.until_nothing_moves(path, || {
            let resolved = path.canonicalize()?;
            self.open_resolved(what, path, &resolved, flags)
        })
    }

    /// Retries if a path has changed since it was checked.
    fn until_nothing_moves<T>(
        &self,
        path: &Path,
        mut act: impl FnMut() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        for _ in 0..TRIES_MAX {
            match act() {
                Err(error) if has_moved(&error) => {}
                // A missing path may only have been moved for a moment.
                Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_ok() => {}
                other => return other,
            }
        }
        let shown = path.display();
        Err(Error::new(ErrorKind::PermissionDenied, format!("{shown} was moved while it was opened")))
    }

    fn judge(&self, what: &'static str, path: &Path, resolved: &Path) -> std::io::Result<()> {
        let judged = self.check(|roots| roots.judge(what, path, resolved));
        judged.map_err(|outside| Error::new(ErrorKind::PermissionDenied, outside))
    }

    /// Opens a path without links; fails if it has one.
    fn open_resolved(
        &self,
        what: &'static str,
        path: &Path,
        resolved: &Path,
        flags: OFlags,
    ) -> std::io::Result<OwnedFd> {
        self.judge(what, path, resolved)?;
        let root = self.roots.first().and_then(|roots| roots.directory_of(resolved));
        let (root, below) = root.ok_or_else(|| Error::from(ErrorKind::PermissionDenied))?;
        open_beneath(&root, below, flags)
    }
}

pub(crate) fn open_beneath(dir: &impl AsFd, below: &Path, flags: OFlags) -> std::io::Result<OwnedFd> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(dir, below, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => Err(Error::new(
            ErrorKind::Unsupported,
            "roots for jobs need a kernel with openat2, Linux 5.6 or later",
        )),
        // The path existed when it was resolved.
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Errno::AGAIN.into()),
        opened => Ok(opened?),
    }
}

/// Returns whether a path is absolute and never leads up, so that its text shows its root.
pub(crate) fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    components.next() == Some(Component::RootDir)
        && components.all(|part| matches!(part, Component::Normal(_)))
}

/// Returns whether a directory was moved, or became a link, between two system calls.
fn has_moved(error: &Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::LOOP | Errno::XDEV))
}

/// Returns the existing part of a path, without links, and the missing names after it.
pub fn deepest_existing(path: &Path) -> std::io::Result<(PathBuf, Vec<&OsStr>)> {
    let (mut missing, mut place) = (Vec::new(), path);
    loop {
        match place.canonicalize() {
            Ok(found) => {
                missing.reverse();
                return Ok((found, missing));
            }
            // A dangling link exists, and may lead somewhere later.
            Err(error) if error.kind() == ErrorKind::NotFound && place.symlink_metadata().is_err() => {
                let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
                    return Err(error);
                };
                missing.push(name);
                place = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A directory handle that stays valid when its name changes.
#[derive(Debug)]
pub struct HeldDir(OwnedFd);

impl HeldDir {
    /// Returns a path of it, valid as long as the value lives and in this process alone.
    pub fn path(&self) -> PathBuf {
        Path::new(HELD).join(self.0.as_raw_fd().to_string())
    }
}

impl AsFd for HeldDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the path for messages: [`HeldDir::path`] is the current name of its directory.
pub fn shown(path: &Path) -> PathBuf {
    let below = path.strip_prefix(HELD).ok().map(Path::components);
    let held = below.and_then(|mut below| {
        let number = below.next()?;
        let dir = std::fs::read_link(Path::new(HELD).join(number)).ok()?;
        Some(dir.join(below.as_path()))
    });
    held.unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::{JobPaths, shown};
    use crate::{OutsideRoots, Roots};
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Place {
            let place = Place(tempfile::tempdir().unwrap());
            for name in ["data/in", "more", "other"] {
                std::fs::create_dir_all(place.path(name)).unwrap();
            }
            for name in ["data/in/text", "more/text", "other/text"] {
                std::fs::write(place.path(name), name).unwrap();
            }
            symlink(place.path("data/in/text"), place.path("data/absolute")).unwrap();
            symlink("../more", place.path("data/to-more")).unwrap();
            symlink(place.path("other"), place.path("data/out")).unwrap();
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn roots(&self, names: &[&str]) -> Roots {
            let texts: Vec<_> = names.iter().map(|name| self.path(name).display().to_string()).collect();
            Roots::of_operator(&texts).unwrap()
        }

        fn paths(&self) -> JobPaths {
            JobPaths::below(vec![self.roots(&["data", "more"])])
        }

        fn read(&self, paths: &JobPaths, name: &str) -> std::io::Result<String> {
            let mut text = String::new();
            paths.open_file(&self.path(name))?.read_to_string(&mut text)?;
            Ok(text)
        }
    }

    #[test]
    fn links_are_followed_only_within_the_root() {
        let place = Place::new();
        let paths = place.paths();
        for (name, text) in [
            ("data/in/text", "data/in/text"),
            ("data/in/../in/text", "data/in/text"),
            ("data/absolute", "data/in/text"),
            ("data/to-more/text", "more/text"),
        ] {
            assert_eq!(place.read(&paths, name).unwrap(), text);
            assert!(paths.open_place(&place.path(name)).is_ok());
        }
        for name in ["data/out/text", "other/text", "data/../other/text"] {
            let error = place.read(&paths, name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
            assert!(error.get_ref().is_some_and(|error| error.is::<OutsideRoots>()), "{name}: {error}");
        }
        assert_eq!(place.read(&paths, "data/none").unwrap_err().kind(), ErrorKind::NotFound);
        // Two lists hold both; what this process made itself is opened as it is; without roots all is.
        let both = JobPaths::below(vec![place.roots(&["data", "more"]), place.roots(&["more"])]);
        assert!(place.read(&both, "more/text").is_ok() && place.read(&both, "data/in/text").is_err());
        let own = both.with_own([place.path("other/text")]);
        assert!(place.read(&own, "other/text").is_ok() && place.read(&own, "other/../other/text").is_err());
        assert!(place.read(&JobPaths::default(), "data/out/text").is_ok());
        let nothing = JobPaths::below(vec![Roots::default()]);
        assert!(place.read(&nothing, "data/in/text").is_err());
    }

    #[test]
    fn directories_below_a_root_are_made_and_kept() {
        let place = Place::new();
        let paths = place.paths();
        for name in ["data/a/b/c", "data/a/b", "data/to-more/x", "data/in"] {
            let dir = paths.create_dir_all(&place.path(name)).unwrap();
            assert!(place.path(name).is_dir());
            std::fs::write(dir.path().join("file"), name).unwrap();
            assert_eq!(
                shown(&dir.path().join("file")),
                place.path(name).canonicalize().unwrap().join("file")
            );
        }
        for name in ["data/out/x/y", "elsewhere/x", "data/a/../../elsewhere"] {
            assert!(paths.create_dir_all(&place.path(name)).is_err(), "{name}");
        }
        assert!(!place.path("other/x").exists() && !place.path("elsewhere").exists());
        let dir = paths.open_dir(&place.path("data/a")).unwrap();
        std::fs::rename(place.path("data/a"), place.path("data/moved")).unwrap();
        symlink(place.path("other"), place.path("data/a")).unwrap();
        std::fs::File::create(dir.path().join("late")).unwrap().write_all(b"x").unwrap();
        assert!(place.path("data/moved/late").exists() && !place.path("other/late").exists());
        assert_eq!(shown(Path::new("/a/b")), Path::new("/a/b"));
    }

    /// A directory below the root is exchanged for a link that leads out, as fast as possible, while other threads open
    /// its files.
    #[test]
    fn exchanging_a_directory_for_link_never_escapes() {
        let place = Place::new();
        let paths = place.paths();
        std::fs::create_dir(place.path("data/moving")).unwrap();
        std::fs::write(place.path("data/moving/text"), "inside").unwrap();
        symlink(place.path("other"), place.path("data/link")).unwrap();
        let done = AtomicBool::new(false);
        let (mut inside, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (moving, link) = (place.path("data/moving"), place.path("data/link"));
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &moving, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let mut tries = 0;
            // Both outcomes are to be seen.
            while tries < 20_000 || (tries < 2_000_000 && (inside == 0 || refused == 0)) {
                tries += 1;
                match place.read(&paths, "data/moving/text") {
                    Ok(text) if text == "inside" => inside += 1,
                    Ok(text) => {
                        done.store(true, Ordering::Relaxed);
                        panic!("read {text:?}");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                        refused += 1;
                    }
                }
                if tries % 16 == 0
                    && let Ok(dir) = paths.create_dir_all(&place.path("data/moving/made"))
                {
                    assert!(!shown(&dir.path()).starts_with(place.path("other")));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(inside > 0 && refused > 0, "{inside} {refused}");
        assert!(!place.path("other/made").exists());
    }
}
