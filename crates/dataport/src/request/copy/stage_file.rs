//! A stage file of this node on its way to another one.

use crate::error::CopyError;
use crate::request::client::{DataClient, Peer, Target};
use crate::request::copy::{FilePieces, Pace};
use crate::wire::data_scope::DataScope;
use crate::wire::stage::{StageCopyHead, StageFileRef};
use stagefile::RawPieces;
use std::path::Path;

impl FilePieces for RawPieces {
    fn bytes(&self) -> u64 {
        self.stored_bytes()
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, CopyError> {
        Self::next_piece(self).map_err(CopyError::StageFile)
    }
}

impl DataClient {
    /// Copies a complete stage file at `path` to another node, once, and waits until it is there under the same name.
    /// Returns the bytes of the file. The caller decides about retries. `pace` is called as by
    /// [`DataClient::copy_run`].
    pub fn copy_stage_file(
        &self,
        peer: &Peer,
        of: impl Into<DataScope>,
        file: &StageFileRef,
        path: &Path,
        pace: Pace<'_>,
    ) -> Result<u64, CopyError> {
        let source = RawPieces::open(path, file.payload).map_err(CopyError::StageFile)?;
        let bytes = source.stored_bytes();
        let head = StageCopyHead { file: file.clone() }.encode();
        self.send_file(Target { peer, scope: of.into(), route: "stage-copies" }, head, source, pace)
            .map(|()| bytes)
    }
}
