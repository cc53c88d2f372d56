//! An output that an attempt on another node is writing, read through the data port of that node.

use crate::link::node_link::NodeLink;
use crate::stored::server::StoredServer;
use crate::tasks::growing_outputs::GrowingStream;
use api::task::GrowingInput;
use dataport::{DataClient, GrowingPiece, GrowingRead, Token, with_causes};
use std::sync::Arc;

/// The stream of one attempt.
pub(crate) struct StreamOfNode {
    pub link: Arc<NodeLink>,
    pub data: DataClient,
    pub input: GrowingInput,
    /// Right to the outputs of the job that writes, as long as it is accepted.
    pub token: Option<Token>,
}

impl StreamOfNode {
    /// Returns the right to the outputs of the job that writes. The server gives it to nodes of its readers.
    fn token(&mut self) -> Result<Token, String> {
        if let Some(token) = &self.token {
            return Ok(token.clone());
        }
        let job = self.input.attempt.task.job;
        let brief = self.link.brief(job, None).map_err(|error| with_causes(&error))?;
        let token = Token::new(brief.token.0).ok_or("the server gives no right to it")?;
        self.token = Some(token.clone());
        Ok(token)
    }
}

impl GrowingStream for StreamOfNode {
    fn next(&mut self, request: &GrowingRead) -> Result<GrowingPiece, String> {
        let node = self.input.node;
        let peer = self.link.peer(node).ok_or_else(|| format!("the address of {node} is unknown"))?;
        let token = self.token()?;
        let data = self.data.with_token(Some(token));
        data.read_growing(&peer, request).map_err(|error| {
            if error.is_wrong_token() {
                self.token = None;
            }
            with_causes(&error)
        })
    }
}
