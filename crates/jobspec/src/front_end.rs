//! The questions of the planner to the front end.

use api::{Formats, InputFile, SeenBy};
use std::any::Any;
use std::path::{Path, PathBuf};

/// A front end: it knows this machine or the server of a cluster, and can warn its user.
pub trait FrontEnd {
    /// Returns memory and slots of a job, given the requested ones. Fails if there is less, or if no cluster answers.
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)>;

    /// Returns an error if an existing output directory holds files that no job wrote.
    fn check_replaced(&self, output: &Path) -> anyhow::Result<()>;

    /// Lists a stored file, or those below a stored directory, by name: `files:NAME` or `files:NAME@VERSION`.
    fn stored_inputs(&self, state_dir: &Path, name: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs>;

    /// Lists the files at an absolute path that only some nodes see, each with the position of its nodes.
    fn seen_inputs(&self, path: &str) -> anyhow::Result<SeenInputs>;

    /// Checks the name of an output that is to be stored. Returns the directory for private outputs, or None if the nodes
    /// of a cluster store it.
    fn stored_output(
        &self,
        state_dir: &Path,
        name: &str,
        shape: StoredShape,
    ) -> anyhow::Result<Option<PathBuf>>;

    /// Warns the user of a likely mistake.
    fn warn(&self, warning: &str);
}

/// The use of stored files that a job names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredUse {
    /// Input: all files that are data.
    Input,
    /// One file, whatever it is: a directory is an error.
    OneFile,
    /// The same with its compression.
    OneInput,
    /// All files, whatever they are; a missing name has none.
    Listed,
}

/// Stored files that a job reads.
#[derive(Debug, Default)]
pub struct StoredInputs {
    pub files: Vec<InputFile>,
    /// Keeps their version while it lives.
    pub pin: Option<StoredPin>,
}

/// Files that only some nodes see.
#[derive(Debug, Default)]
pub struct SeenInputs {
    pub files: Vec<InputFile>,
    pub seen_by: Vec<SeenBy>,
}

/// Something that keeps a version of stored files.
pub type StoredPin = Box<dyn Any + Send + Sync>;

/// The stored form of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredShape {
    /// One file, whose parts are those of the job.
    File,
    /// A directory with a file for each part, because files of this format cannot be joined.
    Directory,
}

impl StoredShape {
    pub fn of(formats: &Formats) -> Self {
        // Parts with an extension of their own, such as `.parquet`, are whole files.
        match formats.part_extension {
            Some(_) => Self::Directory,
            None => Self::File,
        }
    }
}
