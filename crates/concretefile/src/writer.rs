//! Writer of a concrete file.

use crate::Content;
use crate::directory::sums_path;
use crate::error::ConcreteError;
use crate::sums::{BLOCK_BYTES, Summing};
use faults::{IoCall, io_call};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A concrete file that is being written, front to back. If it is dropped before it is finished, or finishing fails,
/// the file is removed.
pub struct ConcreteWriter {
    path: PathBuf,
    file: File,
    sums: Summing,
    is_finished: bool,
}

impl ConcreteWriter {
    /// Creates the file; its directory must exist.
    pub(crate) fn create(path: PathBuf) -> std::io::Result<Self> {
        io_call(IoCall::Create, &path)?;
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file, sums: Summing::default(), is_finished: false })
    }

    /// Writes the next bytes. After an error the writer must be dropped.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ConcreteError> {
        let written = io_call(IoCall::Write, &self.path).and_then(|()| self.file.write_all(bytes));
        written.map_err(ConcreteError::io("write", &self.path))?;
        self.sums.add(bytes);
        Ok(())
    }

    /// Completes the file, which never changes any more. It is not synced: its directory is synced with all its files.
    pub fn finish(mut self) -> Result<Content, ConcreteError> {
        let (content, blocks) = std::mem::take(&mut self.sums).finish();
        if content.bytes > BLOCK_BYTES {
            let beside = sums_path(&self.path);
            // Checksums beside a file that was created here can only be left over from a removed one.
            let _ = std::fs::remove_file(&beside);
            write_beside(&beside, &blocks.encode(content))?;
        }
        self.is_finished = true;
        Ok(content)
    }
}

pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> Result<(), ConcreteError> {
    let write = || {
        io_call(IoCall::Create, path)?;
        let mut file = File::options().write(true).create_new(true).open(path)?;
        io_call(IoCall::Write, path)?;
        file.write_all(bytes)
    };
    write().map_err(ConcreteError::io("write", path))
}

impl Drop for ConcreteWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // What remains has no row, and goes with its put.
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_file(sums_path(&self.path));
        }
    }
}
