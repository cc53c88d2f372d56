//! Requests about intermediate files of users, to the node where a file is written.

use crate::error::DataError;
use crate::request::client::{DataClient, Limits, Peer, Target};
use crate::wire::data_scope::DataScope;
use bytes::Bytes;
use iappender::APPEND_TRIES_MAX;
use ids::IntermediateId;
use stagefile::Payload;

const ANSWER_BYTES_MAX: usize = 1 << 10;

impl DataClient {
    /// Writes bytes at an offset, at most [`api::intermediate::INTERMEDIATE_PIECE_BYTES_MAX`]. Returns the bytes of the
    /// file afterwards. Retried without an answer: bytes that are written already are acknowledged.
    pub async fn write_user_file(
        &self,
        peer: &Peer,
        file: IntermediateId,
        offset: u64,
        bytes: Bytes,
        silence_seconds: u32,
    ) -> Result<u64, DataError> {
        let what = format!("{file}/write?offset={offset}&silence_seconds={silence_seconds}");
        self.of_user_file(peer, &what, bytes).await
    }

    /// Completes a file with this content, and returns its bytes. When it returns, the server knows.
    pub async fn close_user_file(
        &self,
        peer: &Peer,
        file: IntermediateId,
        payload: Payload,
    ) -> Result<u64, DataError> {
        let what = format!("{file}/close?bytes={}&crc32c={}", payload.bytes, payload.crc32c);
        self.of_user_file(peer, &what, Bytes::new()).await
    }

    /// Abandons a file. Sent once: its node also notices the silence.
    pub async fn abandon_user_file(
        &self,
        peer: &Peer,
        file: IntermediateId,
        reason: &str,
    ) -> Result<(), DataError> {
        let what = format!("{file}/abandon");
        self.post(Target { peer, scope: DataScope::Users, route: &what }, reason.to_string().into())
            .await
            .map(drop)
    }

    async fn of_user_file(&self, peer: &Peer, what: &str, body: Bytes) -> Result<u64, DataError> {
        let limits = Limits { tries_max: APPEND_TRIES_MAX, answer_bytes_max: ANSWER_BYTES_MAX };
        let decode = |answer: Vec<u8>| {
            let number = std::str::from_utf8(&answer).ok().and_then(|text| text.trim().parse().ok());
            let present_bytes = answer.len();
            number.ok_or(DataError::Length { node: peer.node, expected_bytes: 1, present_bytes })
        };
        self.until_answered(
            Target { peer, scope: DataScope::Users, route: what },
            limits,
            || body.clone().into(),
            decode,
        )
        .await
    }
}
