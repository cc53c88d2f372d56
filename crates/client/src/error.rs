//! Why a call failed.

use api::control::{ErrorAnswer, ErrorCode};

/// Answers whether asking again may help, and what the server said.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url:?} is no address of a server: give one as in http://127.0.0.1:7070")]
    BadUrl { url: String },
    #[error("cannot reach the server at {url}: {source}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("the server at {url} broke off: {source}")]
    Broken { url: String, source: reqwest::Error },
    #[error("{}", .answer.message)]
    Refused { answer: ErrorAnswer },
    #[error("the server at {url} answered {status} with something that is no message of ours")]
    NotOurs { url: String, status: u16 },
    #[error("the answer of the server at {url} cannot be read: {source}")]
    Unreadable { url: String, source: serde_json::Error },
    #[error("cannot start the threads that speak to the server: {0}")]
    Runtime(std::io::Error),
}

impl ClientError {
    /// The word the server gave, where it answered.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { answer } => Some(answer.code),
            _ => None,
        }
    }

    /// Whether the server may not have seen the request, or its answer was lost.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. })
    }

    /// Whether the request cannot have reached the server.
    pub fn never_arrived(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
