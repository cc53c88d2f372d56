//! Requests about stored files: parts to the disks of other nodes and from them. All calls block.

pub(crate) mod parts_stream;
pub(crate) mod upload;

use crate::error::DataError;
use crate::request::client::{DataClient, Peer, SILENCE_MAX, Target};
use crate::request::stored::parts_stream::PartStream;
use crate::request::stored::upload::PartsUpload;
use crate::wire::data_scope::DataScope;
use crate::wire::stored::{PartRange, StoredFetchRequest, StoredReadRequest};
use api::StoredPart;
use ids::{DiskId, NodeId};
use std::time::Duration;

/// Bytes that a node must fetch, or put on disk, in a second on average; a slower one counts as silent.
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;

/// Time after which a peer that passes a local copy on counts as silent. It breaks off by itself before.
const COPY_SILENCE_MAX: Duration = Duration::from_secs(20);

/// Returns the time after which a node that works on so many bytes counts as silent.
fn patience(bytes: u64) -> Duration {
    SILENCE_MAX + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}

impl DataClient {
    /// Begins an upload of parts to a disk of a peer. `bytes` is the sum of all parts, or more: the node looks whether
    /// it has room for them, and refuses further ones. Errors are those of the first calls of the upload.
    pub fn upload_parts(&self, peer: &Peer, disk: DiskId, bytes: u64) -> PartsUpload {
        PartsUpload::start(self, peer, disk, bytes)
    }

    /// Fetches these parts (whole or ranges) from a peer, in this order, at most
    /// [`crate::PARTS_PER_REQUEST_MAX`]. A range ends with its part at the latest. The node ends a stream that is not read for two minutes.
    pub fn read_parts(&self, peer: &Peer, ranges: Vec<PartRange>) -> Result<PartStream, DataError> {
        let ranges = ranges.into_iter().map(PartRange::within_part).collect();
        let request = StoredReadRequest { ranges };
        let target = Target { peer, scope: DataScope::Stored, route: "read" };
        let answer = self.runtime().block_on(self.post(target, request.encode().into()))?;
        Ok(PartStream::new(self.clone(), peer.clone(), answer, request.ranges))
    }

    /// Fetches a range from a local copy of a peer, which may still be making it. The peer answers at once, and breaks off
    /// if it gets no more of the part itself; a peer that is silent for longer counts as gone.
    pub fn read_copy(&self, peer: &Peer, range: PartRange) -> Result<PartStream, DataError> {
        let request = StoredReadRequest { ranges: vec![range.within_part()] };
        let target = Target { peer, scope: DataScope::Stored, route: "read-copy" };
        let asked = self.post_patiently(target, request.encode().into(), COPY_SILENCE_MAX);
        let answer = self.runtime().block_on(asked)?;
        Ok(PartStream::new(self.clone(), peer.clone(), answer, request.ranges).within(COPY_SILENCE_MAX))
    }

    /// Asks a peer to fetch parts from another node onto its disk, with the token of this client. Returns when they are
    /// synced.
    pub fn ask_to_fetch(
        &self,
        peer: &Peer,
        disk: DiskId,
        from: NodeId,
        parts: &[StoredPart],
    ) -> Result<(), DataError> {
        let Some(token) = self.showing(DataScope::Stored).token().cloned() else {
            let reason = "there is no token to show".to_string();
            return Err(DataError::Refused { node: peer.node, status: 401, reason });
        };
        let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
        let request = StoredFetchRequest { from, token, parts: parts.to_vec() };
        let route = format!("{}/fetch", disk.0);
        let target = Target { peer, scope: DataScope::Stored, route: &route };
        let asked = self.post_patiently(target, request.encode().into(), patience(bytes));
        self.runtime().block_on(asked).map(drop)
    }
}
