//! Requests for outputs that programs of other nodes are writing.

use crate::error::DataError;
use crate::request::client::{DataClient, Limits, Peer, Target};
use crate::wire::growing::{GROWING_BYTES_MAX, GrowingPiece, GrowingRead};

/// Bytes of an answer around those of the output, and one more, which reveals an answer that is too long.
const AROUND_BYTES_MAX: usize = 128;

impl DataClient {
    /// Returns the next bytes of an output that an attempt is writing there. It waits for less than a second and tries
    /// once, so that the caller may look whether it must stop.
    pub fn read_growing(&self, peer: &Peer, request: &GrowingRead) -> Result<GrowingPiece, DataError> {
        let limits = Limits { tries_max: 1, answer_bytes_max: GROWING_BYTES_MAX + AROUND_BYTES_MAX };
        let decode = |bytes: Vec<u8>| {
            GrowingPiece::decode(&bytes).map_err(|source| DataError::Damaged { node: peer.node, source })
        };
        let scope = request.attempt.task.job.into();
        let target = Target { peer, scope, route: "outputs" };
        self.runtime().block_on(self.until_answered(target, limits, || request.encode().into(), decode))
    }
}
