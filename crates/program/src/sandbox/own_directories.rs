//! The directories that belong to users: homes, and the directory of a workflow.

use crate::installation::installations_of;
use std::ffi::OsStr;
use std::fs::FileType;
use std::path::{Path, PathBuf};

/// The directory of homes, and the home of root.
const HOMES: [&str; 2] = ["/home", "/root"];
/// Folders of the system. No directory at any depth in them counts as a user's.
const SYSTEM: [&str; 9] = ["/proc", "/sys", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// Folders of the system that may hold directories of users, except as direct children.
const SHARED: [&str; 3] = ["/usr", "/run", "/dev"];
/// Folders that hold directories of the system and of users side by side: any directory in them may be a user's.
const MIXED: [&str; 2] = ["/var", "/opt"];
/// Directories of executables, beside the other folders of an installation.
const EXECUTABLES: [&str; 3] = ["bin", "sbin", "shims"];
/// Parts of an environment that a user made in the directory of a workflow itself.
const PARTS: [&str; 6] = ["bin", "lib", "lib64", "share", "etc", "pyvenv.cfg"];
/// Settings of a Python environment, which name the installation on which it is based.
const PYTHON_SETTINGS: &str = "pyvenv.cfg";
/// Maximum number of entries of a directory above a user's. In a larger one nothing counts as outside.
const ENTRIES_MAX: usize = 4096;

/// Everything outside of users' directories.
#[derive(Debug)]
pub(super) struct Outside {
    /// Files and directories, as few as possible.
    pub paths: Vec<PathBuf>,
    /// The directories that hold both them and users' directories.
    pub above: Vec<PathBuf>,
}

/// Directories of users. All paths are real ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnDirectories {
    /// None lies below another.
    all: Vec<PathBuf>,
    /// The homes and the directory of the workflow, one below another as well.
    named: Vec<PathBuf>,
    /// The directory whose children are homes.
    above_homes: Option<PathBuf>,
}

impl OwnDirectories {
    /// Returns the homes of this machine, and the directory of a workflow.
    pub fn with(directory: &Path) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self::of(&HOMES.map(PathBuf::from), home.into_iter().chain([directory.to_path_buf()]))
    }

    /// Returns the homes, of which the first is the directory of homes, and other directories unless they are the
    /// system's.
    fn of(homes: &[PathBuf], others: impl Iterator<Item = PathBuf>) -> Self {
        let real = |path: &PathBuf| path.canonicalize().ok().filter(|real| real != Path::new("/"));
        // Homes may be links to a system folder, such as `/var/home` and `/var/roothome`.
        let mut named: Vec<PathBuf> = homes.iter().filter_map(real).collect();
        named.extend(others.filter_map(|path| real(&path)).filter(|path| !is_of_system(path)));
        // A parent sorts before its children.
        named.sort();
        let mut all = named.clone();
        all.dedup_by(|path, before| path.starts_with(before));
        Self { all, named, above_homes: homes.first().and_then(real) }
    }

    /// Returns whether a path or a part of it belongs to a user.
    pub fn touch(&self, path: &Path) -> bool {
        self.hold(path) || self.are_below(path)
    }

    fn hold(&self, path: &Path) -> bool {
        self.all.iter().any(|own| path.starts_with(own))
    }

    fn are_below(&self, path: &Path) -> bool {
        self.all.iter().any(|own| own.starts_with(path))
    }

    /// Returns the files and directories below `root` that no user's directory holds. Symbolic links are left out: their
    /// targets count.
    pub fn outside(&self, root: &Path) -> Outside {
        let (mut outside, mut next, mut above) = (Vec::new(), vec![root.to_path_buf()], Vec::new());
        while let Some(directory) = next.pop() {
            for (path, kind) in entries(&directory) {
                if kind.is_symlink() || self.hold(&path) {
                    continue;
                }
                match self.are_below(&path) {
                    true => next.push(path),
                    false => outside.push(path),
                }
            }
            above.push(directory);
        }
        Outside { paths: outside, above }
    }

    /// Returns the installations to which folders of a search path belong, as far as users' directories hold them.
    pub fn installations_in(&self, search_path: &OsStr) -> Vec<PathBuf> {
        let folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
        let real = folders.filter_map(|folder| folder.canonicalize().ok());
        real.filter(|folder| self.touch(folder)).filter_map(|folder| self.installation_in(folder)).collect()
    }

    /// Returns the prefix of a folder of executables, or the folder alone if its prefix is or holds a user's directory.
    fn installation_in(&self, folder: PathBuf) -> Option<PathBuf> {
        let is_of_executables = EXECUTABLES.iter().any(|name| folder.ends_with(name));
        let prefix = folder.parent().filter(|_| is_of_executables).filter(|prefix| !self.is_home(prefix));
        prefix.map(Path::to_path_buf).or_else(|| Some(folder).filter(|folder| !self.is_home(folder)))
    }

    /// Returns whether a directory is or holds a home or the directory of the workflow.
    fn is_home(&self, directory: &Path) -> bool {
        let is_home = self.above_homes.is_some() && directory.parent() == self.above_homes.as_deref();
        is_home || self.named.iter().any(|named| named.starts_with(directory))
    }

    /// Returns an active environment of Python or conda, with the installation on which it is based.
    pub fn environment_at(&self, prefix: &Path) -> Vec<PathBuf> {
        let Ok(prefix) = prefix.canonicalize() else { return Vec::new() };
        let parts = match self.is_home(&prefix) {
            true => PARTS.map(|part| prefix.join(part)).to_vec(),
            false => vec![prefix.clone()],
        };
        let base = base_of(&prefix).and_then(|folder| self.installation_in(folder));
        parts.into_iter().chain(base).filter(|path| self.touch(path)).collect()
    }

    /// Returns an executable that a user's directory holds, and its installation.
    pub fn executable(&self, file: &Path) -> Vec<PathBuf> {
        let Ok(real) = file.canonicalize() else { return Vec::new() };
        if !self.touch(file) && !self.touch(&real) {
            return Vec::new();
        }
        let installations = installations_of(file).into_iter().filter(|prefix| !self.is_home(prefix));
        installations.chain([real]).collect()
    }
}

/// Returns whether a directory is a folder of the system.
fn is_of_system(directory: &Path) -> bool {
    let is_shared = |path: &Path| SHARED.iter().any(|shared| path == Path::new(shared));
    SYSTEM.iter().any(|system| directory.starts_with(system))
        || directory == Path::new("/")
        || MIXED.iter().any(|mixed| directory == Path::new(mixed))
        || is_shared(directory)
        || directory.parent().is_some_and(is_shared)
}

/// Returns the folder of executables on which an environment of Python is based.
fn base_of(prefix: &Path) -> Option<PathBuf> {
    let settings = std::fs::read_to_string(prefix.join(PYTHON_SETTINGS)).ok()?;
    let value = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    };
    settings.lines().find_map(value)?.canonicalize().ok()
}

/// Returns the entries of a directory; none if they are too many, or it cannot be read.
fn entries(directory: &Path) -> Vec<(PathBuf, FileType)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| Some((entry.path(), entry.file_type().ok()?)));
    let all: Vec<(PathBuf, FileType)> = named.take(ENTRIES_MAX + 1).collect();
    if all.len() > ENTRIES_MAX { Vec::new() } else { all }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_MAX, OwnDirectories, is_of_system};
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// A tree with these directories.
    fn tree(directories: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        directories.iter().for_each(|each| std::fs::create_dir_all(root.join(each)).unwrap());
        (dir, root)
    }

    fn own(root: &Path, names: &[&str]) -> OwnDirectories {
        OwnDirectories::of(&[], names.iter().map(|name| root.join(name)))
    }

    fn names(root: &Path, paths: Vec<PathBuf>) -> Vec<String> {
        let name = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
        let mut names: Vec<String> = paths.into_iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn everything_outside_of_own_directories_is_covered() {
        let (_dir, root) = tree(&["usr/lib", "home/u/wf", "srv/a/wf", "srv/a/other", "srv/b", "tmp"]);
        std::fs::write(root.join("srv/a/file"), "").unwrap();
        symlink("home/u", root.join("link")).unwrap();
        let check = |names_of_own: &[&str], expected: &[&str]| {
            assert_eq!(
                names(&root, own(&root, names_of_own).outside(&root).paths),
                expected,
                "{names_of_own:?}"
            );
        };
        check(&["home"], &["srv", "tmp", "usr"]);
        check(&["home", "home/u/wf", "missing"], &["srv", "tmp", "usr"]);
        check(&["home", "srv/a/wf"], &["srv/a/file", "srv/a/other", "srv/b", "tmp", "usr"]);
        check(&["home", "srv/a"], &["srv/b", "tmp", "usr"]);
        // The real path of a home counts.
        check(&["link", "tmp"], &["srv", "usr"]);
        for number in 0..ENTRIES_MAX {
            std::fs::write(root.join(format!("srv/many-{number}")), "").unwrap();
        }
        check(&["home", "srv/a"], &["tmp", "usr"]);
    }

    #[test]
    fn system_folders_belong_to_no_user() {
        let all = ["/", "/usr", "/usr/bin", "/etc", "/var", "/proc/self", "/dev"];
        assert!(OwnDirectories::of(&[], all.iter().map(PathBuf::from)).all.is_empty());
        for (path, expected) in [
            ("/", true),
            ("/usr", true),
            ("/usr/src", true),
            ("/usr/src/app", false),
            ("/var", true),
            ("/var/user", false),
            ("/opt", true),
            ("/opt/wf", false),
            ("/opt/user/wf", false),
            ("/run/user/1000", false),
            ("/etc/user/wf/deep", true),
            ("/dev/shm", true),
            ("/dev/shm/wf", false),
            ("/lib64/user/wf", true),
            ("/library", false),
            ("/srv", false),
        ] {
            assert_eq!(is_of_system(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn linked_homes_stay_closed() {
        let (_dir, root) =
            tree(&["var/home/u/bin", "var/home/u/wf/bin", "var/home/v/bin", "var/home/u/t/bin"]);
        symlink("var/home", root.join("home")).unwrap();
        let others = ["home/u", "home/u/wf"].map(|name| root.join(name));
        let own = OwnDirectories::of(&[root.join("home"), root.join("root")], others.into_iter());
        assert_eq!(own.all, [root.join("var/home")]);
        let folders = ["home/u/bin", "home/u/wf/bin", "home/v/bin", "home/u/t/bin", "home/u", "home/v"];
        let path = std::env::join_paths(folders.map(|folder| root.join(folder))).unwrap();
        let found = names(&root, own.installations_in(&path));
        assert_eq!(found, ["var/home/u/bin", "var/home/u/t", "var/home/u/wf/bin", "var/home/v/bin"]);
        for (prefix, count) in [("home/u", 6), ("home/v", 6), ("home/u/wf", 6), ("home/u/t", 1), ("home", 6)]
        {
            assert_eq!(own.environment_at(&root.join(prefix)).len(), count, "{prefix}");
        }
    }

    #[test]
    fn search_path_opens_installations_and_no_home() {
        let (_dir, root) =
            tree(&["home/bin", "home/.local/bin", "home/conda/bin", "home/x", "wf/bin", "opt/bin"]);
        let own = own(&root, &["home", "wf"]);
        let folders = [
            "home/bin",
            "home/.local/bin",
            "home/conda/bin",
            "home/x",
            "wf/bin",
            "opt/bin",
            "home",
            "missing",
        ];
        let path = std::env::join_paths(folders.map(|folder| root.join(folder))).unwrap();
        let found = names(&root, own.installations_in(&path));
        assert_eq!(found, ["home/.local", "home/bin", "home/conda", "home/x", "wf/bin"]);
        assert!(own.installations_in(OsStr::new("bin:.:")).is_empty());
    }

    #[test]
    fn environment_opens_its_base() {
        let (_dir, root) = tree(&["home/wf/.venv/bin", "home/python/bin", "other"]);
        let settings = |at: &str, base: &str| {
            let text = format!("version = 3\nhome = {}\n", root.join(base).display());
            std::fs::write(root.join(at).join("pyvenv.cfg"), text).unwrap();
        };
        let own = own(&root, &["home/wf", "home/python"]);
        settings("home/wf/.venv", "home/python/bin");
        let opened = |at: &str| names(&root, own.environment_at(&root.join(at)));
        // The installation is a user's directory itself here.
        assert_eq!(opened("home/wf/.venv"), ["home/python/bin", "home/wf/.venv"]);
        settings("home/wf", "other");
        let parts =
            ["bin", "etc", "lib", "lib64", "pyvenv.cfg", "share"].map(|part| format!("home/wf/{part}"));
        assert_eq!(opened("home/wf"), parts);
        assert!(opened("other").is_empty() && opened("missing").is_empty());
    }
}
