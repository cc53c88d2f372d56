//! Parts that arrive from another node. No byte is returned before its block is verified.

use crate::error::DataError;
use crate::request::client::{DataClient, Peer};
use crate::wire::stored::PartRange;
use crate::wire::stored::answer::{AnswerDecoder, AnswerProblem, Answered};
use bytes::Bytes;
use concretefile::BlockSums;
use ifile::{FormatError, Problem};
use std::time::Duration;

/// Verified bytes, range after range.
pub struct PartStream {
    client: DataClient,
    peer: Peer,
    answer: reqwest::Response,
    decoder: AnswerDecoder,
    /// True after an error behind which nothing can be read.
    is_broken: bool,
    /// Timeout of a piece, if it is shorter than that of the connection.
    patience: Option<Duration>,
}

impl PartStream {
    pub(crate) fn new(
        client: DataClient,
        peer: Peer,
        answer: reqwest::Response,
        ranges: Vec<PartRange>,
    ) -> Self {
        let decoder = AnswerDecoder::new(ranges);
        Self { client, peer, answer, decoder, is_broken: false, patience: None }
    }

    /// Returns the same stream, which fails when nothing arrives for so long.
    pub(crate) fn within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Returns the checksums of all blocks of the part of which bytes were returned last. They make the checksum of the
    /// part.
    pub fn sums(&self) -> &BlockSums {
        self.decoder.sums()
    }

    /// Returns the next verified bytes of the current range; None at its end (then the next call is about the next
    /// range), and behind the last one.
    ///
    /// After [`DataError::StoredDamaged`] the next call is about the next range if [`Self::goes_on`] says so. After any
    /// other error nothing follows.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, DataError> {
        if self.is_broken {
            return Err(self.damaged(Problem::NoEndMark));
        }
        let next = self.next();
        self.is_broken = next.is_err() && !self.decoder.goes_on();
        next
    }

    /// Returns whether the ranges after an error follow.
    pub fn goes_on(&self) -> bool {
        !self.is_broken
    }

    fn next(&mut self) -> Result<Option<Bytes>, DataError> {
        loop {
            match self.decoder.next_answer() {
                Ok(Some(Answered::Bytes(bytes))) => return Ok(Some(bytes)),
                Ok(Some(Answered::RangeEnd)) if self.decoder.is_over() => return self.finish(),
                Ok(Some(Answered::RangeEnd | Answered::StreamEnd)) => return Ok(None),
                Ok(None) => {}
                Err(AnswerProblem::Stream(source)) => {
                    return Err(DataError::Damaged { node: self.peer.node, source });
                }
                Err(AnswerProblem::Part { file, reason }) => {
                    return Err(DataError::StoredDamaged { node: self.peer.node, file, reason });
                }
            }
            match self.receive()? {
                Some(piece) => self.decoder.push(piece),
                None => return Err(self.damaged(Problem::NoEndMark)),
            }
        }
    }

    fn receive(&mut self) -> Result<Option<Bytes>, DataError> {
        let (client, node) = (&self.client, self.peer.node);
        let received = client.runtime().block_on(async {
            match self.patience {
                // A node that waits for its own source is alive: nobody is told of its silence.
                Some(patience) => tokio::time::timeout(patience, self.answer.chunk()).await,
                None => Ok(client.heard(node, self.answer.chunk()).await),
            }
        });
        let silent = |_| DataError::Silent { node, url: self.peer.url.clone() };
        received.map_err(silent)?.map_err(|source| DataError::Unreachable {
            node,
            url: self.peer.url.clone(),
            source: source.without_url(),
        })
    }

    /// Reads the end of the answer, so that its connection can be used again.
    fn finish(&mut self) -> Result<Option<Bytes>, DataError> {
        match self.receive()? {
            None => Ok(None),
            Some(piece) => {
                let value = piece.len() as u64;
                self.is_broken = true;
                Err(self.damaged(Problem::Field { what: "bytes after the end mark", value }))
            }
        }
    }

    fn damaged(&self, problem: Problem) -> DataError {
        DataError::Damaged { node: self.peer.node, source: FormatError::at(0, problem) }
    }
}
