//! Files that a contained program sees although they lie in a directory of which each job has its own, such as `/tmp`.

use crate::installation::{executables_of, prefixes_of};
use api::{Blame, TaskFailure};
use containment::own_directory_above;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// File whose target some systems keep below `/run`.
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// Folders of the system, where nothing leads to such a directory.
const ELSEWHERE: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"];
/// Directories of executables and libraries that some systems keep below `/run`.
const SYSTEM: [&str; 2] = ["/run/current-system", "/run/wrappers"];

/// Fails if programs would work in a directory whose content they do not see: their files there would be lost.
pub(crate) fn check_work_dir(work_dir: &Path) -> Result<(), TaskFailure> {
    match own_directory_above(work_dir) {
        Some(own) if own == work_dir => {
            let message = format!(
                "a contained program cannot work in {}: each job has its own, which is removed with it; use another \
                 directory, or a node with --no-contain",
                own.display()
            );
            Err(TaskFailure::new(Blame::UserData, message))
        }
        _ => Ok(()),
    }
}

/// Returns those of these paths, and of the paths that programs at them need, that lie in a directory of which each job
/// has its own: parents first, and no path below another.
pub(crate) fn under_own_directories<'a>(named: impl Iterator<Item = &'a Path>) -> Vec<Vec<u8>> {
    let mut wanted: BTreeSet<PathBuf> = of_this_process().iter().cloned().collect();
    for path in named.filter(|path| !ELSEWHERE.iter().any(|system| path.starts_with(system))) {
        // A program may be about to make a file that is missing.
        let existing = path.ancestors().find(|path| path.exists());
        wanted.extend(existing.map(Path::to_path_buf));
        wanted.extend(executables_of(path).iter().flat_map(|executable| prefixes_of(executable)));
    }
    let is_below_own = |path: &PathBuf| own_directory_above(path).is_some_and(|own| own != path);
    let mut visible: Vec<PathBuf> = Vec::new();
    // A parent sorts before its children.
    for path in wanted.into_iter().filter(is_below_own) {
        if !visible.iter().any(|parent| path.starts_with(parent)) {
            visible.push(path);
        }
    }
    visible.into_iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
}

/// Returns the paths that the system and this process keep in such directories for every program.
fn of_this_process() -> &'static [PathBuf] {
    static PATHS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let system = SYSTEM.iter().map(PathBuf::from).chain(std::env::current_exe());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = system.chain(std::env::split_paths(&path)).chain(Path::new(NAME_SERVERS).canonicalize());
        named.filter(|path| own_directory_above(path).is_some()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{check_work_dir, under_own_directories};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn visible(paths: &[&Path]) -> Vec<String> {
        let all = under_own_directories(paths.iter().copied());
        all.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn installations_below_own_directories_stay_visible() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        for each in ["env/bin", "real/bin", "job"] {
            std::fs::create_dir_all(dir.path().join(each)).unwrap();
        }
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("real/bin/python3"), "").unwrap();
        symlink(path("real/bin/python3"), path("env/bin/python")).unwrap();
        std::fs::write(path("job/map.py"), format!("#!{} -u\n", path("env/bin/python").display())).unwrap();
        let all = visible(&[&path("job/map.py"), Path::new("/tmp"), Path::new("/usr/local/x"), &path("job")]);
        let missing = path("new/out");
        std::fs::create_dir(path("new")).unwrap();
        assert!(visible(&[&missing]).contains(&path("new").display().to_string()));
        for expected in ["env", "real", "job"] {
            assert!(all.contains(&path(expected).display().to_string()), "{expected} in {all:?}");
        }
        assert!(!all.iter().any(|each| each == "/tmp" || each.ends_with("map.py")), "{all:?}");
        assert!(check_work_dir(Path::new("/tmp")).is_err() && check_work_dir(&path("job")).is_ok());
    }
}
