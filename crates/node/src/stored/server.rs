//! The server, as the threads for stored files see it.

use api::stored::cluster::{ListedParts, PartsOfJob, StoredNews, StoredOrders, StoredPage};
use client::ClientError;
use dataport::Peer;
use ids::{ConcreteId, JobId, NodeId};
use std::time::Duration;

/// Calls of the server about stored files.
pub(crate) trait StoredServer: Send + Sync + 'static {
    /// Reports the disks; adds the incarnation and the data port of this node. Waits at most this long.
    fn tell(&self, news: StoredNews, patience: Duration) -> Result<StoredOrders, TellError>;

    /// Returns concrete files that a disk should have, after this one.
    fn parts_on(&self, uuid: &str, after: Option<ConcreteId>) -> Result<ListedParts, TellError>;

    /// Returns the nodes that have parts which a job reads, and from which to copy them.
    fn parts_of(&self, job: JobId, question: &PartsOfJob) -> Result<StoredPage, ClientError>;

    /// Returns the data port of a node; None if it is unknown.
    fn peer(&self, node: NodeId) -> Option<Peer>;
}

/// Reason why the server did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TellError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the server did not answer for {seconds} s")]
    Silent { seconds: u64 },
}

impl TellError {
    /// Returns whether the same message may be answered later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Client(error) => error.may_pass(),
            Self::Silent { .. } => true,
        }
    }
}
