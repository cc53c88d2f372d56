//! Errors of requests between nodes.

use api::{Blame, TaskFailure};
use chunkserver::ChunkServerError;
use iappender::AppendError;
use ids::{ChunkId, ConcreteId, IfileIndex, NodeId, RunId, Source};
use ifile::FormatError;
use stagefile::StageFileError;

/// The reason why a request to another node failed.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("cannot set up the certificates that data ports trust")]
    Trust(#[source] trust::TrustError),
    /// Retries have failed too.
    #[error("cannot reach {node} at {url}")]
    Unreachable { node: NodeId, url: String, source: reqwest::Error },
    #[error("{node} refused the request with status {status}: {reason}")]
    Refused { node: NodeId, status: u16, reason: String },
    #[error("the answer of {node} is damaged")]
    Damaged { node: NodeId, source: FormatError },
    #[error("{node} answered {answers} of {frames} frames")]
    Incomplete { node: NodeId, frames: usize, answers: usize },
    #[error("{node} answered with {present_bytes} bytes in place of {expected_bytes}")]
    Length { node: NodeId, expected_bytes: usize, present_bytes: usize },
    #[error("the attempt was told to stop")]
    Cancelled,
    #[error("{node} at {url} accepted or sent no bytes for too long")]
    Silent { node: NodeId, url: String },
    /// The node does not have an intact copy of a concrete file, or what it sent does not verify.
    #[error("{node} has no intact copy of {file}: {reason}")]
    StoredDamaged { node: NodeId, file: ConcreteId, reason: String },
    /// The runtime for requests has ended, so the process is about to end.
    #[error("the carrier of requests has stopped")]
    Stopped,
}

impl DataError {
    /// Returns whether a retry may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Damaged { .. }
            | Self::Incomplete { .. }
            | Self::Length { .. }
            | Self::Silent { .. } => true,
            // Damaged on the way, too busy, or broken off.
            Self::Refused { status, .. } => matches!(status, 400 | 408 | 429 | 500 | 502 | 503 | 504),
            Self::Client(_)
            | Self::Trust(_)
            | Self::Cancelled
            | Self::Stopped
            | Self::StoredDamaged { .. } => false,
        }
    }

    /// Returns whether the node or the way to it is the cause, so that another node should be tried. False if the
    /// request itself is refused, as by every node, or this process is about to end.
    pub fn is_of_the_node(&self) -> bool {
        self.is_about_there() && !self.is_wrong_token() && !matches!(self, Self::Refused { status: 413, .. })
    }

    /// Returns whether the other node did not accept the token of the request. It may not know a new key of the server yet.
    pub fn is_wrong_token(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }

    /// Returns whether the other node is the cause, and not this one.
    pub(crate) fn is_about_there(&self) -> bool {
        !matches!(self, Self::Client(_) | Self::Trust(_) | Self::Cancelled | Self::Stopped)
    }

    /// Converts the failure to an error for the appender.
    pub(crate) fn to_append_error(&self, chunk: ChunkId, source: Source, ifile: IfileIndex) -> AppendError {
        match self {
            Self::Cancelled | Self::Stopped => AppendError::Cancelled,
            Self::Refused { status: 409, .. } => AppendError::Cancelled,
            Self::Refused { status: 507, .. } => AppendError::Spill {
                path: std::path::PathBuf::new(),
                source: std::io::Error::other(self.to_string()),
            },
            Self::Refused { status: 400 | 422, .. } => {
                AppendError::Refused { from: source, ifile, why: "another node rejected it as wrong" }
            }
            _ => AppendError::Gone(chunk),
        }
    }
}

/// The reason why a scan broke off.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error(transparent)]
    Here(#[from] ChunkServerError),
    #[error(transparent)]
    There(#[from] DataError),
    #[error("the address of {node}, which has data of the job, is unknown")]
    UnknownNode { node: NodeId },
    #[error("{node} broke off a scan: {reason}")]
    Failed { node: NodeId, reason: String },
    #[error("{node} cannot read its data: {reason}")]
    Lost { node: NodeId, runs: Vec<RunId>, reason: String },
    #[error("the connection to {node} was cut in the middle of a scan")]
    CutOff { node: NodeId, source: Option<reqwest::Error> },
    #[error("a scan of {node} brought damaged data")]
    Damaged { node: NodeId, source: FormatError },
    #[error("a scan of {node} brought damaged data of {run}")]
    DamagedRun { node: NodeId, run: RunId, source: FormatError },
    #[error("a scan of {node} does not match the request: {what}")]
    Unexpected { node: NodeId, what: &'static str },
}

impl ScanError {
    /// Converts the error to a failure of the attempt.
    pub fn to_failure(&self) -> TaskFailure {
        let blame = match self {
            Self::Here(error) => return error.to_failure(),
            Self::There(DataError::Cancelled) => Blame::Cancelled,
            Self::Unexpected { .. } => Blame::Engine,
            // A network or another machine: a retry may help.
            _ => Blame::Environment,
        };
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        let (lost_runs, unreachable) = (self.lost_runs(), self.unreachable());
        TaskFailure { lost_runs, unreachable, ..TaskFailure::new(blame, message) }
    }

    /// Returns the node that did not respond.
    fn unreachable(&self) -> Option<NodeId> {
        match self {
            Self::There(DataError::Unreachable { node, .. } | DataError::Silent { node, .. })
            | Self::UnknownNode { node }
            | Self::CutOff { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Returns whether another node may have the same data.
    pub(crate) fn is_about_there(&self) -> bool {
        match self {
            Self::There(error) => error.is_about_there(),
            Self::Here(_) | Self::UnknownNode { .. } => false,
            _ => true,
        }
    }

    /// Returns the runs that are lost or damaged according to this error.
    fn lost_runs(&self) -> Vec<RunId> {
        match self {
            Self::Lost { runs, .. } => runs.clone(),
            // TCP has its own checksums, so the file is the likely cause, which is sent unchanged.
            Self::DamagedRun { run, .. } => vec![*run],
            Self::Here(error) => error.lost_run().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// The reason why a run or a stage file was not copied to another node.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The run cannot be read here; if [`ChunkServerError::lost_run`] says so, it is lost.
    #[error(transparent)]
    Source(ChunkServerError),
    /// The stage file cannot be read here; if [`StageFileError::damage`] says so, it is lost.
    #[error(transparent)]
    StageFile(StageFileError),
    /// The other node is unreachable, or does not accept the copy.
    #[error(transparent)]
    Peer(DataError),
    #[error("the copy was cancelled")]
    Cancelled,
}

impl CopyError {
    /// Returns whether another node may accept the copy.
    pub fn is_about_peer(&self) -> bool {
        matches!(self, Self::Peer(error) if error.is_about_there())
    }
}

impl From<ChunkServerError> for CopyError {
    fn from(error: ChunkServerError) -> Self {
        match error {
            ChunkServerError::Cancelled => Self::Cancelled,
            error => Self::Source(error),
        }
    }
}

/// Returns an error with its causes, as one sentence.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{DataError, ScanError};
    use ids::{NodeId, RunId};

    #[test]
    fn unreachable_node_is_named() {
        let (node, url) = (NodeId(3), "http://there".to_string());
        let check = |error: ScanError, expected| {
            assert_eq!(error.to_failure().unreachable, expected, "{error}");
        };
        check(ScanError::There(DataError::Silent { node, url }), Some(node));
        check(ScanError::UnknownNode { node }, Some(node));
        check(ScanError::CutOff { node, source: None }, Some(node));
        let (runs, reason) = (vec![RunId(1)], "gone".to_string());
        check(ScanError::Lost { node, runs, reason }, None);
        check(ScanError::There(DataError::Cancelled), None);
    }
}
