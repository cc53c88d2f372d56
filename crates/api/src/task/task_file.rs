//! Files that a task of one program declares.

use crate::stored::STORED_PREFIX;
use crate::{Compression, ContentHash};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use utoipa::ToSchema;

/// Maximum number of programs of a pipeline.
pub const PIPELINE_PROGRAMS_MAX: usize = 256;

/// Maximum number of declared inputs and outputs of a program.
pub const TASK_FILES_MAX: usize = 10_000;

/// A file that a program reads or writes under a name in its own directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// Path within the directory of the program, relative.
    #[schema(value_type = String)]
    pub name: PathBuf,
    /// Absolute path of the file on the machine, or on all nodes; or the name of a stored file: `files:NAME`, for an input
    /// also `files:NAME@VERSION`.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Set for an output that only programs of its job read: it need not exist when these are done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// Identity of the bytes of a stored file, by which it is found among those that the job has pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentHash>,
    /// For a stored input of a MapReduce job, which cuts plain files alone: found from its first bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// True for an input of the stored files that the program reads through the node's mount, without a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub view: bool,
    /// True for a file that the program opens by its name, once, and reads or writes from its begin to its end. Where it
    /// streams to another program of a pipeline, it is a named pipe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

impl TaskFile {
    /// Returns whether the file is an input of the user's stored files.
    pub fn is_stored(&self) -> bool {
        is_stored_path(&self.path)
    }

    /// Returns whether the name stays in the directory, and the path is absolute and names a file.
    pub fn is_valid(&self) -> bool {
        self.has_valid_name() && is_file_path(&self.path) && self.content.is_none() && !self.view
    }

    /// Returns whether an input is valid: as another file, or a stored one.
    pub fn is_valid_input(&self) -> bool {
        self.is_valid() || self.has_valid_name() && self.is_stored()
    }

    /// Returns whether an output is valid: as another file, or one that becomes a version of a stored file.
    pub fn is_valid_output(&self) -> bool {
        let is_bare = self.content.is_none() && !self.view;
        self.is_valid() || self.has_valid_name() && is_bare && is_stored_name(&self.path)
    }

    fn has_valid_name(&self) -> bool {
        let is_name = !self.name.as_os_str().is_empty() && self.name.components().all(is_normal);
        is_name && is_clean(&self.name)
    }
}

/// Returns whether the path of a declared file names a stored one.
pub fn is_stored_path(path: &Path) -> bool {
    path.to_str().and_then(|text| text.strip_prefix(STORED_PREFIX)).is_some_and(|name| !name.is_empty())
}

/// Returns whether a path names a stored file in one spelling and without a version, so that it can be written.
pub fn is_stored_name(path: &Path) -> bool {
    let is_version = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let has_version = |part: &str| part.rsplit_once('@').is_some_and(|(_, digits)| is_version(digits));
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..") && !has_version(part) && !part.starts_with(STORED_PREFIX)
    };
    path.to_str()
        .and_then(|text| text.strip_prefix(STORED_PREFIX))
        .is_some_and(|name| name.split('/').all(is_part))
}

fn is_normal(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(_))
}

/// Returns whether a path is absolute and names a file, in one spelling.
pub(super) fn is_file_path(path: &Path) -> bool {
    let mut parts = path.components();
    let is_path = parts.next() == Some(Component::RootDir) && parts.all(is_normal);
    is_path && path.file_name().is_some() && is_clean(path)
}

/// Returns whether a path names a file that a job may remove: a plain one, or a stored one.
pub(super) fn is_removable(path: &Path) -> bool {
    is_file_path(path) || is_stored_name(path)
}

/// Returns whether a path has one spelling: no `.`, no doubled or trailing slash.
fn is_clean(path: &Path) -> bool {
    path.components().collect::<PathBuf>().as_os_str() == path.as_os_str()
}

/// The reason why declared files are refused. Always the fault of the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskFileError {
    #[error(
        "the file {name:?} at {path:?} cannot be declared: give a name within the directory of the program, and an \
         absolute path without `.` and `..`"
    )]
    Bad { name: PathBuf, path: PathBuf },
    #[error(
        "the name {name:?} is declared twice, or lies within another one: give each file a name of its own"
    )]
    NameTaken { name: PathBuf },
    #[error("two outputs have the path {path:?}: give each a path of its own")]
    PathTaken { path: PathBuf },
    #[error("{count} files are declared: give at most {TASK_FILES_MAX}")]
    TooMany { count: usize },
    #[error("a task without a program declares files: give it a program")]
    NoProgram,
    #[error(
        "a task removes files and runs a program, or removes more than {TASK_FILES_MAX} files: give two tasks"
    )]
    RemovesAndRuns,
    #[error("a task looks at finished runs of programs and does something else: give two tasks")]
    LooksAndRuns,
    #[error("the file {path:?} cannot be removed: give an absolute path without `.` and `..`")]
    BadRemoval { path: PathBuf },
    #[error(
        "the standard input {name:?} is no declared input of the program: declare it, or name another one"
    )]
    NoSuchInput { name: PathBuf },
    #[error(
        "the standard output {name:?} is no declared output of the program: declare it, or name another one"
    )]
    NoSuchOutput { name: PathBuf },
    #[error("the file {name:?} cannot be a stream: {reason}; leave it out of the streams")]
    BadStream { name: PathBuf, reason: &'static str },
    #[error("{count} files are streams: give at most {max}")]
    TooManyStreams { count: usize, max: usize },
    #[error("a pipeline has {count} programs: give at most {PIPELINE_PROGRAMS_MAX}")]
    TooManyPrograms { count: usize },
    #[error(
        "the program {program:?} of a pipeline has {field}, which only its first program may have: give it to that one"
    )]
    OfPipeline { program: String, field: &'static str },
    #[error("the first program of a pipeline has no words: give it some")]
    FirstOfPipeline,
    #[error(
        "the programs of a pipeline wait for each other, as {path:?} shows: an input must be written before it"
    )]
    Circle { path: PathBuf },
    #[error("a program that is no pipeline has a phase, or memory for its files: leave both out")]
    PhaseOfOne,
    #[error("the phases of a pipeline do not count from 0 along its programs: give them in that order")]
    PhaseOrder,
    #[error(
        "the files of a pipeline may take {needs_bytes} bytes of memory, and its claim is {claim_bytes}: claim more"
    )]
    FileMemory { needs_bytes: u64, claim_bytes: u64 },
}

#[cfg(test)]
mod tests {
    use super::TaskFile;

    #[test]
    fn names_and_paths_have_one_spelling() {
        let is_valid = |name: &str, path: &str| {
            TaskFile { name: name.into(), path: path.into(), ..TaskFile::default() }.is_valid()
        };
        assert!(is_valid("a", "/a") && is_valid("a/b c\n", "/x/.y"));
        for name in ["", "..", "a/../b", "/a", "a/", "./a", "a//b", "."] {
            assert!(!is_valid(name, "/a"), "{name:?}");
        }
        for path in ["", "a", "/", "/a/..", "/a/../b", "/a/", "/a//b", "/./a"] {
            assert!(!is_valid("a", path), "{path:?}");
        }
        // Only inputs have versions.
        let stored = |path: &str| TaskFile { name: "a".into(), path: path.into(), ..TaskFile::default() };
        assert!(stored("files:a/b@3").is_valid_input() && !stored("files:a/b@3").is_valid());
        assert!(!stored("files:").is_valid_input() && stored("/a").is_valid_input());
        let view = |path: &str| TaskFile { view: true, ..stored(path) };
        assert!(view("files:a@3").is_valid_input() && !view("/a").is_valid_input());
        assert!(!view("files:a").is_valid_output());
        assert!(stored("files:a/b c@x").is_valid_output() && stored("/a").is_valid_output());
        for name in
            ["files:", "files:/a", "files:a/", "files:a//b", "files:a/../b", "files:a@3", "files:files:a"]
        {
            assert!(!stored(name).is_valid_output(), "{name:?}");
        }
    }
}
