//! The reasons why a call failed.

use api::control::{ErrorAnswer, ErrorCode};

/// An error that says whether a retry may help, and what the server answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "{url:?} is no address of a server: give one as in http://127.0.0.1:7070, or several with commas between"
    )]
    BadUrl { url: String },
    #[error("{url:?} is no address of a proxy: give one as in http://127.0.0.1:3128")]
    BadProxy { url: String },
    #[error("{count} addresses of a server are given: at most {max}")]
    TooManyAddresses { count: usize, max: usize },
    #[error(
        "a token is sent to another machine, or through a proxy, over TLS only: give an https:// address instead of {url}"
    )]
    TokenInClear { url: String },
    #[error("the token is for a server with TLS: give an https:// address instead of {url}")]
    TokenForTls { url: String },
    #[error(
        "no authority is known for {url}: give --ca FILE, or --token-file with a token that names the authority"
    )]
    NobodyBelieved { url: String },
    #[error("the server at {url} is not trusted: {why}")]
    Untrusted { url: String, why: String },
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
    #[error("cannot reach the server at {url}: {source}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("the server at {url} broke off: {source}")]
    Broken { url: String, source: reqwest::Error },
    #[error("{}", .answer.message)]
    Refused { answer: ErrorAnswer },
    #[error("the server at {url} answered {status} without a message of Sailfish")]
    NotOurs { url: String, status: u16 },
    #[error("the answer of the server at {url} cannot be read: {source}")]
    Unreadable { url: String, source: serde_json::Error },
    #[error("cannot read {path}: {source}", path = path.display())]
    File { path: std::path::PathBuf, source: std::io::Error },
    #[error("cannot start the threads of the client: {0}")]
    Runtime(std::io::Error),
}

impl ClientError {
    /// Makes an error from a request without an answer.
    pub(crate) fn of_request(url: &str, source: reqwest::Error) -> Self {
        let url = url.to_string();
        match trust::distrust(&source) {
            Some(why) => Self::Untrusted { url, why },
            None if source.is_connect() => Self::Unreachable { url, source },
            None => Self::Broken { url, source },
        }
    }

    /// Returns the server's error code, if it answered.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { answer } => Some(answer.code),
            _ => None,
        }
    }

    /// Returns whether the server may not have received the request, or its answer was lost.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. })
    }

    /// Returns whether a retry may succeed a moment later.
    pub fn may_pass(&self) -> bool {
        self.is_silence() || self.code() == Some(ErrorCode::TooMany)
    }

    /// Returns whether the request cannot have reached the server.
    pub fn never_arrived(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
