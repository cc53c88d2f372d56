//! A finished run of a program: the contents that it read and wrote, by which a later run is skipped.

use crate::{Compression, ContentHash, StoredContent};
use ids::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Version of the rules by which a finished run stands for another one.
pub const CACHING_RULES: u32 = 1;

/// Facts of a file that each write to it changes. A content hash is remembered by them where they are certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileStamp {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// Times of the last change of the content and of the inode, in nanoseconds since 1970.
    pub modified_ns: i64,
    pub changed_ns: i64,
}

/// A file with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileContent {
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Path of the file without symbolic links, if a read file has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub real_path: Option<PathBuf>,
    /// None for bytes that were never a file: they streamed from one program of a pipeline to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<ContentHash>,
    pub bytes: u64,
    /// None if the file may have changed since without a trace in its stamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<FileStamp>,
    /// For an input that another step wrote: the identity of the run that wrote it. Equal runs have equal identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<ContentHash>,
    /// For an output that became a version of a stored file: its bytes in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredContent>,
    /// Compression of that output, found from its first bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

impl FileContent {
    /// Returns a file of which nothing but the path is known, as one whose bytes only went from one program to another.
    pub fn without_content(path: PathBuf) -> Self {
        Self {
            path,
            real_path: None,
            sha256: None,
            bytes: 0,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        }
    }
}

/// A finished run of a program with declared files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishedRun {
    /// The program and, for a script, its interpreters.
    pub executables: Vec<FileContent>,
    /// For a MapReduce job: the numbers of these that belong to each of its programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executable_counts: Vec<u32>,
    /// Files of [`super::StepCaching::environment`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<FileContent>,
    /// In the order of the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileContent>,
    /// In the order of the task.
    pub outputs: Vec<FileContent>,
    /// Time from the start of all programs of its attempt to their end.
    #[serde(default)]
    pub ran_ms: u64,
}

/// A finished run as the store remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRun {
    pub rules: u32,
    /// Name of the step.
    pub step: String,
    /// Hash of the words after the program, and of the names of all files.
    pub words: ContentHash,
    /// Hash of the declared environment.
    pub env: ContentHash,
    /// Identity: runs of the same program on the same contents have the same one.
    pub identity: ContentHash,
    /// Job of the run, while the runs of the jobs whose parts it read are not recorded: until then it stands for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<JobId>,
    pub run: FinishedRun,
}

/// The facts that determine the executable of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlace {
    pub word: String,
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Directories in which it is searched, as PATH has them; None for those of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_path: Option<String>,
    /// The input that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub input: Option<PathBuf>,
    /// True for a file that travels with the job: its bytes are compared elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shipped: bool,
}

/// A question to a node: are all files still as a finished run left them?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunLook {
    pub program: ProgramPlace,
    /// For a MapReduce job: its programs, in place of the one above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_job: Option<Vec<ProgramPlace>>,
    /// Positions of inputs whose contents are compared elsewhere: other steps write them, or they are stored files. In
    /// order.
    #[serde(default, alias = "made_inputs", skip_serializing_if = "Vec::is_empty")]
    pub known_inputs: Vec<u32>,
    pub run: FinishedRun,
}

/// The answer to a [`RunLook`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunLooked {
    /// Differences from the finished run, which is invalid if there is any besides a missing output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<RunDifference>,
    /// The finished run with more certain stamps, if that saves reading files at the next question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<Box<FinishedRun>>,
}

/// A difference between a finished run and a program as it would run now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunDifference {
    /// Another version of the engine recorded it.
    Rules,
    /// The command, its arguments, or the names of its files.
    Words,
    Env,
    /// The executable, its interpreter, or their places.
    Executable {
        #[schema(value_type = String)]
        path: PathBuf,
    },
    /// An input or a file of the environment has another content, or is gone.
    Read {
        #[schema(value_type = String)]
        path: PathBuf,
    },
    /// An output of the task, by position, has another content.
    Written {
        output: u32,
    },
    /// An output of the task, by position, is gone.
    Gone {
        output: u32,
    },
}

impl FileStamp {
    /// Returns the stamp in the metadata of a file.
    pub fn of(facts: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            bytes: facts.len(),
            modified_ns: ns(facts.mtime(), facts.mtime_nsec()),
            changed_ns: ns(facts.ctime(), facts.ctime_nsec()),
        }
    }
}

impl FinishedRun {
    /// Returns the executables of each program of a MapReduce job; None if the numbers of the record do not fit.
    pub fn executables_of_job(&self) -> Option<Vec<&[FileContent]>> {
        let (mut rest, mut of_job) = (self.executables.as_slice(), Vec::new());
        for count in &self.executable_counts {
            let (program, others) = rest.split_at_checked(*count as usize)?;
            of_job.push(program);
            rest = others;
        }
        rest.is_empty().then_some(of_job)
    }

    /// Returns the path under which the run is remembered: that of its first output.
    pub fn key_path(&self) -> Option<&Path> {
        self.outputs.first().map(|output| output.path.as_path())
    }

    /// Returns the paths of all its files that a job names.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = self.environment.iter().chain(&self.inputs).chain(&self.outputs);
        files.map(|file| file.path.as_path())
    }
}

impl RunDifference {
    /// Returns whether a run has the output that it names, if it names one.
    pub fn is_about(&self, run: &FinishedRun) -> bool {
        match self {
            Self::Written { output } | Self::Gone { output } => (*output as usize) < run.outputs.len(),
            _ => true,
        }
    }
}

impl fmt::Display for RunDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules => f.write_str("another version of sailfish ran it"),
            Self::Words => f.write_str("its command or the names of its files changed"),
            Self::Env => f.write_str("its environment variables changed"),
            Self::Executable { path } => write!(f, "its program {} changed", path.display()),
            Self::Read { path } => write!(f, "{} changed", path.display()),
            Self::Written { output } => write!(f, "its output {output} was changed"),
            Self::Gone { output } => write!(f, "its output {output} is missing"),
        }
    }
}
