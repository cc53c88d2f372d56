//! A copy of a stage file, as it comes from elsewhere.

use crate::error::{StageFileDamage, StageFileError};
use crate::reader::RawFile;
use crate::verifier::RawVerifier;
use crate::{Payload, StageFileSummary};
use diskfile::{SequentialWriter, Syncing, Through};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of each buffer: small, because several copies come at once, and they are read only if the original is lost.
const BUFFER_BYTES: usize = 256 << 10;

/// A copy that is being received, byte for byte the file. Dropped before it is finished, or where that fails, nothing of
/// it is left.
pub struct RawWriter {
    path: PathBuf,
    expected: Payload,
    verifier: RawVerifier,
    /// None once it is finished.
    out: Option<SequentialWriter>,
    is_complete: bool,
}

impl RawWriter {
    /// Creates the file that is to hold `expected`. One of that name that was left there is replaced, without a change
    /// to what readers of it see.
    pub fn create(path: &Path, expected: Payload) -> Result<Self, StageFileError> {
        let io = |source| StageFileError::Io { action: "create", path: path.to_path_buf(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let out = SequentialWriter::create(path, Through::Direct, BUFFER_BYTES).map_err(io)?;
        let verifier = RawVerifier::new(expected);
        Ok(Self { path: path.to_path_buf(), expected, verifier, out: Some(out), is_complete: false })
    }

    /// Takes the next bytes of the file. What is damaged is refused, and then all of it.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), StageFileError> {
        self.verifier.push(piece).map_err(|damage| self.damaged(damage))?;
        let written =
            self.out.as_mut().map_or(Err(std::io::ErrorKind::BrokenPipe.into()), |out| out.write_all(piece));
        written.map_err(|source| self.io("write", source))
    }

    /// Makes sure that all has come and is there; then the copy is as good as the file. It is not synced: where a machine
    /// loses its memory, it loses the job's other data as well.
    pub fn finish(mut self) -> Result<StageFileSummary, StageFileError> {
        let verifier = std::mem::replace(&mut self.verifier, RawVerifier::new(self.expected));
        verifier.finish().map_err(|damage| self.damaged(damage))?;
        let finished = self.out.take().map_or(Ok(0), |out| out.finish(Syncing::NotSynced));
        finished.map_err(|source| self.io("write", source))?;
        RawFile::open(&self.path, self.expected)?;
        self.is_complete = true;
        Ok(self.expected.into())
    }

    fn damaged(&self, source: StageFileDamage) -> StageFileError {
        StageFileError::Damaged { path: self.path.clone(), source }
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> StageFileError {
        StageFileError::Io { action, path: self.path.clone(), source }
    }
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            // Before the next one may come, which would have the same name.
            self.out = None;
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
