//! Files that a program wrote in its directory beside its declared ones: a misspelt output is seen among them.

use api::task::RunTask;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Maximum number of files that are named.
const SHOWN_MAX: usize = 3;
/// Maximum number of bytes of a name that are shown.
const NAME_BYTES_MAX: usize = 120;
/// Maximum number of entries that are looked at.
const ENTRIES_MAX: usize = 1_000;

/// Returns the end of a sentence about a missing output: the names of other files, in order. Inputs are links, and count
/// as little as directories and declared outputs do.
pub(super) fn wrote_instead(dir: &Path, task: &RunTask) -> String {
    let declared: BTreeSet<&Path> = task.outputs.iter().map(|output| output.name.as_path()).collect();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, dir, flags, Mode::empty()) else { return String::new() };
    let (mut found, mut dirs, mut left) = (BTreeSet::new(), vec![PathBuf::from(".")], ENTRIES_MAX);
    while let Some(below) = dirs.pop().filter(|_| left > 0) {
        for (name, kind) in entries(&top, &below, left) {
            left -= 1;
            let path = below.strip_prefix(".").unwrap_or(&below).join(name);
            match kind {
                FileType::Directory => dirs.push(path),
                FileType::RegularFile if !declared.contains(path.as_path()) => {
                    found.insert(path);
                }
                _ => {}
            }
        }
    }
    sentence(&found)
}

/// Returns entries of a directory. The program may have exchanged it for a link: nothing is followed.
fn entries(top: &OwnedFd, below: &Path, count_max: usize) -> Vec<(OsString, FileType)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = openat2(top, below, flags, Mode::empty(), resolve).and_then(Dir::new);
    let entries = opened.into_iter().flatten().map_while(Result::ok);
    let named =
        entries.map(|entry| (OsString::from_vec(entry.file_name().to_bytes().to_vec()), entry.file_type()));
    named.filter(|(name, _)| name != "." && name != "..").take(count_max).collect()
}

fn sentence(found: &BTreeSet<PathBuf>) -> String {
    let names: Vec<String> = found.iter().take(SHOWN_MAX).map(|name| shown(name)).collect();
    match found.len() {
        0 => String::new(),
        count if count > SHOWN_MAX => format!(": it wrote {} and others", names.join(", ")),
        _ => format!(": it wrote {}", names.join(", ")),
    }
}

/// Returns a name, quoted if it has control characters, and cut if it is long.
fn shown(name: &Path) -> String {
    let name = name.to_string_lossy();
    let kept = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    let cut = if kept.len() < name.len() { "…" } else { "" };
    match kept.chars().any(char::is_control) {
        true => format!("{kept:?}{cut}"),
        false => format!("{kept}{cut}"),
    }
}

#[cfg(test)]
mod tests {
    use super::wrote_instead;
    use api::task::{RunTask, TaskFile};
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn files_that_are_not_declared_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let output = |name: &str| TaskFile { name: name.into(), path: at(name), ..TaskFile::default() };
        let task = RunTask { outputs: vec![output("out"), output("made")], ..RunTask::default() };
        let said = || wrote_instead(dir.path(), &task);
        write(at("made"), "").unwrap();
        symlink("/etc/passwd", at("input")).unwrap();
        create_dir(at("sub")).unwrap();
        assert_eq!(said(), "");
        write(at("sub/out"), "").unwrap();
        write(at("o\nut"), "").unwrap();
        assert_eq!(said(), ": it wrote \"o\\nut\", sub/out");
        write(at(&"x".repeat(200)), "").unwrap();
        write(at("oot"), "").unwrap();
        assert_eq!(said(), ": it wrote \"o\\nut\", oot, sub/out and others");
    }
}
