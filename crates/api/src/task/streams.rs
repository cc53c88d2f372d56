//! Files that a program opens by name as streams: within a pipeline they are named pipes.

use crate::task::{RunTask, TaskFile, TaskFileError};

/// Maximum number of streams that a program opens by name, and of those of all programs of a pipeline: each takes some
/// descriptors of the engine.
pub const TASK_STREAMS_MAX: usize = 64;
pub const PIPELINE_STREAMS_MAX: usize = 256;

impl RunTask {
    /// Returns the files that the program opens by name as streams.
    pub fn named_streams(&self) -> impl Iterator<Item = &TaskFile> {
        self.inputs.iter().chain(&self.outputs).filter(|file| file.stream)
    }

    /// Checks that files declared as streams can be streams.
    pub(super) fn check_streams(&self) -> Result<(), TaskFileError> {
        let count = self.named_streams().count();
        if count > TASK_STREAMS_MAX {
            return Err(TaskFileError::TooManyStreams { count, max: TASK_STREAMS_MAX });
        }
        let Some(first) = self.named_streams().next() else { return Ok(()) };
        let bad = |file: &TaskFile, reason| Err(TaskFileError::BadStream { name: file.name.clone(), reason });
        if self.in_place {
            return bad(first, "its program reads and writes in place, where all files are plain ones");
        }
        if let Some(view) = self.named_streams().find(|file| file.view) {
            return bad(view, "it is a view of a stored file");
        }
        let is_standard = |file: &&TaskFile| {
            [&self.stdin, &self.stdout].into_iter().flatten().any(|name| file.name == *name)
        };
        match self.named_streams().find(is_standard) {
            Some(standard) => bad(standard, "it is the standard input or output, which streams anyway"),
            None => Ok(()),
        }
    }
}
