//! Files that a program wrote in its directory beside its declared ones: a misspelt output is seen among them.

use api::task::RunTask;
use std::collections::BTreeSet;
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
    let (mut found, mut dirs, mut entries) = (BTreeSet::new(), vec![PathBuf::new()], 0);
    while let Some(below) = dirs.pop() {
        for entry in std::fs::read_dir(dir.join(&below)).into_iter().flatten().flatten() {
            entries += 1;
            let name = below.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(name),
                Ok(kind) if kind.is_file() && !declared.contains(name.as_path()) => {
                    found.insert(name);
                }
                _ => {}
            }
            if entries == ENTRIES_MAX {
                return sentence(&found);
            }
        }
    }
    sentence(&found)
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
        let output = |name: &str| TaskFile { name: name.into(), path: at(name), temporary: false };
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
