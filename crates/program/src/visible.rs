//! Files that a contained program sees although they lie in a directory of which each job has its own, such as `/tmp`.

use api::{Blame, TaskFailure};
use containment::own_directory_above;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File whose target some systems keep below `/run`.
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// Directories of executables and libraries that some systems keep below `/run`.
const SYSTEM: [&str; 2] = ["/run/current-system", "/run/wrappers"];
/// Bytes of a script in which its interpreter is named; the kernel reads no more.
const FIRST_LINE_BYTES_MAX: u64 = 256;

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
    let mut wanted: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    wanted.extend(std::env::current_exe());
    wanted.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    wanted.extend(Path::new(NAME_SERVERS).canonicalize());
    for path in named {
        // A program may be about to make a file that is missing.
        let existing = path.ancestors().find(|path| path.exists());
        wanted.extend(existing.map(Path::to_path_buf));
        wanted.extend(prefixes_of(path));
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

/// Returns the installations to which an executable belongs: its own, that of the file to which it is a link, and that
/// of its interpreter. `PREFIX/bin/python` needs `PREFIX/lib`.
fn prefixes_of(executable: &Path) -> Vec<PathBuf> {
    let interpreter = interpreter_of(executable);
    let mut prefixes = Vec::new();
    for file in interpreter.iter().map(PathBuf::as_path).chain([executable]) {
        let target = file.canonicalize().ok();
        for file in target.iter().map(PathBuf::as_path).chain([file]) {
            let Some(directory) = file.parent().filter(|directory| directory.ends_with("bin")) else {
                continue;
            };
            prefixes.extend(directory.parent().map(Path::to_path_buf));
        }
    }
    prefixes
}

/// Returns the interpreter that the first line of a script names.
fn interpreter_of(script: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    if !script.is_file() {
        return None;
    }
    File::open(script).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let path = line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path))).filter(|path| path.is_absolute())
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
