//! Installations of interpreters: `PREFIX/bin/python` needs `PREFIX/lib`, wherever PREFIX lies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bytes of a script in which its interpreter is named; the kernel reads no more.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// Maximum number of scripts that interpret each other, as in the kernel.
const INTERPRETERS_MAX: usize = 5;
/// Directories of executables in an installation; `shims` are scripts that choose among versions.
const EXECUTABLES: [&str; 2] = ["bin", "shims"];
/// Files that only the prefix of an installation has: of Python, conda, Java, Node, Go, and of choosers of versions.
const MARKS: [&str; 6] =
    ["pyvenv.cfg", "conda-meta", "lib/modules", "lib/node_modules", "pkg/tool", "versions"];
/// Files that show that a directory is somebody's home.
const MARKS_OF_HOME: [&str; 4] = [".ssh", ".bashrc", ".profile", ".gnupg"];
/// Beginning of the directories of settings of Java's runtimes.
const JAVA_SETTINGS: &str = "/etc/java";
/// Executables whose links in a directory of PATH are followed to their installations.
const INTERPRETERS: [&str; 8] = ["python", "python3", "java", "node", "go", "ruby", "perl", "Rscript"];
/// Directory in which users install for themselves: only these parts are an installation, the others their settings and data.
const LOCAL: &str = ".local";
const LOCAL_PARTS: [&str; 2] = ["bin", "lib"];

/// Returns the executables that a program needs: itself, and the interpreter that its first line names.
pub(crate) fn executables_of(executable: &Path) -> Vec<PathBuf> {
    [executable.to_path_buf()].into_iter().chain(interpreter_of(executable)).collect()
}

/// Returns an executable and its interpreters, each interpreting the one before.
pub(crate) fn with_interpreters(executable: &Path) -> Vec<PathBuf> {
    let interpreters = std::iter::successors(Some(executable.to_path_buf()), |file| interpreter_of(file));
    interpreters.take(INTERPRETERS_MAX).collect()
}

/// Returns the prefixes of an executable: its own, and that of the file to which it is a link.
pub(crate) fn prefixes_of(executable: &Path) -> Vec<PathBuf> {
    let prefix = |file: &Path| {
        let directory = file.parent()?;
        let is_of_executables = EXECUTABLES.iter().any(|name| directory.ends_with(name));
        directory.parent().filter(|_| is_of_executables).map(Path::to_path_buf)
    };
    let target = executable.canonicalize().ok();
    [executable].into_iter().chain(target.as_deref()).filter_map(prefix).collect()
}

/// Returns the directories of the installations of an executable. A prefix that does not look like an installation, or
/// that is a home directory, has none.
pub(crate) fn installations_of(executable: &Path) -> Vec<PathBuf> {
    // `/x/../bin/sh` would lead to the root directory by another name.
    let real = prefixes_of(executable).into_iter().filter_map(|prefix| prefix.canonicalize().ok());
    real.filter(|prefix| is_installation(prefix))
        .flat_map(|prefix| match prefix.ends_with(LOCAL) {
            true => LOCAL_PARTS.map(|part| prefix.join(part)).to_vec(),
            false => vec![prefix],
        })
        .collect()
}

/// Returns the directories of the installations in which this process itself looks for programs.
pub(crate) fn installations_in_path() -> &'static [PathBuf] {
    static INSTALLATIONS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    INSTALLATIONS.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let entries = std::env::split_paths(&path).flat_map(|entry| {
            let names = std::fs::read_dir(&entry).into_iter().flatten().flatten();
            // Links lead to installations elsewhere, most often in versions of an interpreter.
            let interpreters = names.map(|name| name.path()).filter(|file| is_interpreter(file));
            interpreters.chain([entry.join("any")]).collect::<Vec<_>>()
        });
        let mut all: BTreeSet<PathBuf> = entries.flat_map(|file| installations_of(&file)).collect();
        // Distributions keep the settings of Java's runtimes apart.
        let settings = std::fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        all.extend(
            settings.filter(|path| path.to_string_lossy().starts_with(JAVA_SETTINGS) && path.is_dir()),
        );
        all.into_iter().filter(|prefix| !prefix.starts_with("/usr")).collect()
    })
}

fn is_interpreter(file: &Path) -> bool {
    INTERPRETERS.iter().any(|name| file.ends_with(name))
}

fn is_installation(prefix: &Path) -> bool {
    let has = |name: &str| prefix.join(name).exists();
    let is_python = |entry: std::fs::DirEntry| entry.file_name().as_bytes().starts_with(b"python3");
    let has_python = || {
        let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
        entries.into_iter().any(is_python)
    };
    let is_above_home = std::env::var_os("HOME").is_some_and(|home| Path::new(&home).starts_with(prefix));
    // The system's `/lib` looks like an installation, but `/` holds everything.
    let is_excluded = prefix == Path::new("/") || is_above_home || MARKS_OF_HOME.iter().any(|name| has(name));
    !is_excluded && (MARKS.iter().any(|name| has(name)) || has_python())
}

/// Returns the interpreter that the first line of a script names.
fn interpreter_of(script: &Path) -> Option<PathBuf> {
    if !script.is_file() {
        return None;
    }
    let mut first = Vec::new();
    File::open(script).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let interpreter = Path::new(words.next()?);
    match interpreter.ends_with("env") {
        true => in_path(words.find(|word| !word.as_bytes().starts_with(b"-"))?),
        false => Some(interpreter.to_path_buf()).filter(|path| path.is_absolute()),
    }
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::{executables_of, installations_of};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn installation_is_no_home_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for each in [
            "conda/bin",
            "conda/conda-meta",
            "conda/lib",
            "venv/bin",
            "home/bin",
            "home/lib/python3.1",
            "none/bin",
        ] {
            std::fs::create_dir_all(path(each)).unwrap();
        }
        std::fs::write(path("conda/bin/python3"), "").unwrap();
        std::fs::write(path("venv/pyvenv.cfg"), "").unwrap();
        std::fs::write(path("home/.bashrc"), "").unwrap();
        symlink(path("conda/bin/python3"), path("venv/bin/python")).unwrap();
        assert_eq!(installations_of(&path("venv/bin/python")), ["venv", "conda"].map(path));
        assert!(installations_of(&path("home/bin/tool")).is_empty());
        assert!(installations_of(&path("none/bin/tool")).is_empty());
        for file in ["/bin/sh", "/usr/../bin/sh", "/etc/../../bin/sh"] {
            assert!(
                !installations_of(Path::new(file)).iter().any(|prefix| prefix == Path::new("/")),
                "{file}"
            );
        }
        std::fs::write(path("script"), format!("#!{} -u\n", path("venv/bin/python").display())).unwrap();
        assert_eq!(executables_of(&path("script"))[1..], [path("venv/bin/python")]);
        std::fs::write(path("by-env"), "#!/usr/bin/env -S sh -e\n").unwrap();
        assert!(executables_of(&path("by-env"))[1].ends_with("sh"));
    }
}
