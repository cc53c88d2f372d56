//! A run of this node on its way to another one.

use crate::error::CopyError;
use crate::request::client::{DataClient, Peer, Target};
use crate::request::copy::{FilePieces, Pace};
use crate::wire::messages::CopyHead;
use chunkserver::{ChunkServer, CopySource};
use ids::{ChunkId, IfileIndex, JobId, RunId};
use std::sync::Arc;

/// A run with a new replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRun {
    pub ifile: IfileIndex,
    /// The chunks that were sorted into it.
    pub chunks: Vec<ChunkId>,
    /// Bytes of its file.
    pub bytes: u64,
}

impl FilePieces for CopySource {
    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, CopyError> {
        Ok(Self::next_piece(self)?)
    }
}

impl DataClient {
    /// Copies a run of `server` to another node, once, and waits until it is there. The caller decides about retries.
    /// `pace` is called before each piece with its bytes, and with 0 while the other node is awaited; it waits until
    /// they may be sent, and returns false to cancel the copy.
    pub fn copy_run(
        &self,
        peer: &Peer,
        job: JobId,
        server: &Arc<ChunkServer>,
        run: RunId,
        pace: Pace<'_>,
    ) -> Result<CopiedRun, CopyError> {
        let source = server.copy_source(run)?;
        let copied = CopiedRun { ifile: source.ifile(), chunks: source.chunks(), bytes: source.bytes() };
        let head = CopyHead { run, bytes: source.bytes() }.encode();
        self.send_file(Target { peer, scope: job.into(), route: "copies" }, head, source, pace)
            .map(|()| copied)
    }
}
