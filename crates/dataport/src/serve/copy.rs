//! Copies of other nodes' runs, and of their stage files.

pub(crate) mod file;

use crate::serve::body_reader::BodyReader;
use crate::serve::copy::file::{FileTarget, permit, receive};
use crate::serve::port::{Port, Refusal};
use crate::serve::receiving::Turn;
use crate::serve::services::StageFileService;
use crate::wire::data_scope::DataScope;
use crate::wire::messages::{COPY_HEAD_BYTES, CopyHead};
use crate::wire::stage::{STAGE_COPY_HEAD_BYTES, StageCopyHead, StageFileRef};
use crate::wire::stage_name::StageFileName;
use chunkserver::{ChunkServer, CopyWriter};
use stagefile::{BlockLayout, RawFile, RawVerifier, RawWriter, StageFileError};
use std::path::PathBuf;
use std::sync::Arc;

impl FileTarget for CopyWriter {
    fn write(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        Self::write(self, piece).map_err(Refusal::Copy)
    }

    fn finish(self) -> Result<(), Refusal> {
        Self::finish(self).map_err(Refusal::Copy)
    }
}

/// Receives the copy of a run. When it returns, the copy is complete here, or nothing of it is left.
pub(crate) async fn copy(
    port: &Port,
    server: Arc<ChunkServer>,
    body: &mut BodyReader,
) -> Result<(), Refusal> {
    let permit = permit(port)?;
    let mut head = [0; COPY_HEAD_BYTES];
    body.fill(&mut head).await?;
    let head = CopyHead::decode(&head)?;
    let begin = move || server.receive_copy(head.run, head.bytes).map_err(Refusal::Copy);
    receive(body, head.bytes, permit, begin).await
}

/// The copy of a stage file that is being received.
struct StageTarget {
    target: Target,
    file: StageFileRef,
    files: Arc<dyn StageFileService>,
    /// Released when the file is known, or removed.
    _turn: Turn,
}

enum Target {
    New {
        writer: RawWriter,
        path: PathBuf,
    },
    /// The copy exists; its sender had no answer. The received bytes must be the same.
    Present(RawVerifier),
}

/// Receives the copy of a stage file with a permitted name. When it returns, the copy is complete here, or nothing of
/// it is left.
pub(crate) async fn stage_copy(
    port: &Port,
    of: DataScope,
    files: Arc<dyn StageFileService>,
    body: &mut BodyReader,
    may_come: impl FnOnce(&StageFileName) -> bool,
) -> Result<(), Refusal> {
    let permit = permit(port)?;
    let mut head = [0; STAGE_COPY_HEAD_BYTES];
    body.fill(&mut head).await?;
    let StageCopyHead { file } = StageCopyHead::decode(&head)?;
    if !may_come(&file.name) {
        return Err(Refusal::WrongToken);
    }
    let bytes = BlockLayout::of(file.payload.bytes).stored_bytes();
    let receiving = Arc::clone(&port.receiving);
    let begin = move || {
        let turn = receiving.turn(of, &file.name).ok_or(Refusal::Busy)?;
        let target = stage_target(&*files, &file)?;
        Ok(StageTarget { target, file, files, _turn: turn })
    };
    receive(body, bytes, permit, begin).await
}

fn stage_target(files: &dyn StageFileService, file: &StageFileRef) -> Result<Target, Refusal> {
    if let Some(present) = files.find(&file.name) {
        // The node that made the file needs no copy, and a file never changes.
        if present.is_own || present.payload != file.payload {
            return Err(Refusal::OtherStageFile(file.name.clone()));
        }
        if RawFile::open(&present.path, file.payload).is_ok() {
            return Ok(Target::Present(RawVerifier::new(file.payload)));
        }
        // The copy has vanished, and is made anew.
    }
    let mut first_error = None;
    for path in files.places(&file.name) {
        match RawWriter::create(&path, file.payload) {
            Ok(writer) => return Ok(Target::New { writer, path }),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.map_or(Refusal::Draining, Refusal::StageCopy))
}

impl FileTarget for StageTarget {
    fn write(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        match &mut self.target {
            Target::New { writer, .. } => writer.write(piece).map_err(Refusal::StageCopy),
            Target::Present(verifier) => verifier.push(piece).map_err(|source| {
                let path = self.file.name.as_str().into();
                Refusal::StageCopy(StageFileError::Damaged { path, source })
            }),
        }
    }

    fn finish(self) -> Result<(), Refusal> {
        match self.target {
            Target::New { writer, path } => {
                let summary = writer.finish().map_err(Refusal::StageCopy)?;
                self.files.received(self.file.name, path, summary);
                Ok(())
            }
            Target::Present(verifier) => verifier.finish().map_err(|source| {
                let path = self.file.name.as_str().into();
                Refusal::StageCopy(StageFileError::Damaged { path, source })
            }),
        }
    }
}
