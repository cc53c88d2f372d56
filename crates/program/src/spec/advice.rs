//! The end of the message of a program that may read only declared files, as far as its standard error shows that a read
//! is the reason.

use crate::spec::ProgramSpec;
use std::path::{Path, PathBuf};

/// Parts of lines that say that the kernel refused something; a link of an unreadable file is one across devices.
const DENIED: [&str; 4] = ["ermission denied", "EACCES", "PermissionError", "cross-device link"];
/// Parts of lines that say that a file has no places.
const NO_SEEK: [&str; 4] = ["llegal seek", "ESPIPE", "not seekable", "cannot seek"];
/// Parts of lines that say that there is no such file.
const NO_FILE: [&str; 3] = ["o such file", "ENOENT", "FileNotFoundError"];
/// Maximum number of words of a line that are looked up.
const WORDS_MAX: usize = 64;

/// Advice in the failure of a program that was refused a read.
pub(crate) const UNDECLARED: &str =
    " (it may read only the files that it declares: add others to `reads`, or set `cache = false`)";

/// Returns a line for the log of a program that succeeded with these last lines, if it may have been refused a read: a
/// shell sees only the end of the last program of a pipe.
pub(crate) fn after_success(spec: &ProgramSpec, tail: &[String]) -> Option<String> {
    spec.declared_reads.as_ref()?;
    let line = tail.iter().find(|line| DENIED.iter().any(|part| line.contains(part)))?;
    Some(format!("sailfish: the step succeeded, although it said {line:?}{UNDECLARED}\n"))
}

/// Returns the end of the message of a program that failed with these last lines.
pub(crate) fn after_failure(spec: &ProgramSpec, tail: &[String]) -> String {
    if let Some(advice) = after_stream(spec, tail) {
        return advice;
    }
    if spec.declared_reads.is_none() {
        return String::new();
    }
    let says = |parts: &[&str]| tail.iter().any(|line| parts.iter().any(|part| line.contains(part)));
    if says(&DENIED) {
        return UNDECLARED.to_string();
    }
    let lines = tail.iter().filter(|line| NO_FILE.iter().any(|part| line.contains(part)));
    let absent = lines.rev().find_map(|line| name_beside(line, &spec.start_dir, &spec.work_dir));
    absent.map_or(String::new(), |name| {
        format!(" (it runs in a directory of its own, and {name} stands there only if `inputs` names it)")
    })
}

/// Returns the advice for a program that has used a stream as a file.
fn after_stream(spec: &ProgramSpec, tail: &[String]) -> Option<String> {
    let first = spec.streams.first()?;
    let says = |line: &String, parts: &[&str]| parts.iter().any(|part| line.contains(part));
    // The name is gone from the first open on.
    let is_named = |name: &&PathBuf| {
        let shown = name.to_string_lossy();
        let mut lines = tail.iter().filter(|line| says(line, &NO_FILE));
        lines.any(|line| words_of(line).any(|word| word == shown)) && !spec.work_dir.join(name).exists()
    };
    if let Some(name) = spec.streams.iter().find(is_named) {
        let name = name.display();
        return Some(format!(
            " (a stream can be opened once: leave {name} out of the streams if it is read twice)"
        ));
    }
    let is_denied = |name: &&PathBuf| {
        let mut lines = tail.iter().filter(|line| says(line, &DENIED));
        lines.any(|line| words_of(line).any(|word| word == name.to_string_lossy()))
    };
    if let Some(name) = spec.streams.iter().find(is_denied) {
        let name = name.display();
        return Some(format!(" (the stream {name} has one direction: leave it out of the streams)"));
    }
    let seeks = tail.iter().any(|line| says(line, &NO_SEEK));
    seeks.then(|| {
        format!(" (a stream is read from its begin to its end: leave {} out of the streams)", first.display())
    })
}

/// Returns the words of a line, which are as names of files.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    let is_between = |each: char| each.is_whitespace() || "'\"`:,()‘’".contains(each);
    line.split(is_between).filter(|word| !word.is_empty()).take(WORDS_MAX)
}

/// Returns the relative name in a line of a file that is in the directory of the user, and not in that of the program.
fn name_beside<'a>(line: &'a str, start_dir: &Path, work_dir: &Path) -> Option<&'a str> {
    words_of(line).find(|word| {
        let is_relative = !word.starts_with('/') && word.chars().any(char::is_alphanumeric);
        is_relative && start_dir.join(word).is_file() && !work_dir.join(word).exists()
    })
}

#[cfg(test)]
mod tests {
    use super::name_beside;

    #[test]
    fn only_files_of_the_user_are_named() {
        let (user, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(user.path().join("data")).unwrap();
        for path in [user.path().join("stop-words"), user.path().join("data/x"), user.path().join("given")] {
            std::fs::write(path, "").unwrap();
        }
        std::fs::write(own.path().join("given"), "").unwrap();
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(name_beside(line, user.path(), own.path()), expected, "{line}");
        };
        check("cat: stop-words: No such file or directory", Some("stop-words"));
        check("cat: 'data/x': No such file or directory", Some("data/x"));
        check("FileNotFoundError: [Errno 2] No such file or directory: 'stop-words'", Some("stop-words"));
        check("cat: other: No such file or directory", None);
        check("cat: given: No such file or directory", None);
        check("cat: data: No such file or directory", None);
        check("cat: /etc/passwd/x: No such file or directory", None);
    }
}
