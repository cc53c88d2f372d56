//! Why a call failed.

use api::control::{ErrorAnswer, ErrorCode};

/// Answers whether asking again may help, and what the server said.
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
        "a token is shown to a server elsewhere, or through a proxy, over TLS only: give an https:// address in place of {url}"
    )]
    TokenInClear { url: String },
    #[error("the token is for a server with TLS: give an https:// address in place of {url}")]
    TokenForTls { url: String },
    #[error(
        "nothing says whom to believe at {url}: give --ca FILE, or by --token-file a token that names the authority"
    )]
    NobodyBelieved { url: String },
    #[error("the server at {url} is not to be trusted: {why}")]
    Untrusted { url: String, why: String },
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
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
    #[error("cannot read {path}: {source}", path = path.display())]
    File { path: std::path::PathBuf, source: std::io::Error },
    #[error("cannot start the threads that speak to the server: {0}")]
    Runtime(std::io::Error),
}

impl ClientError {
    /// Makes an error of a request that brought no answer.
    pub(crate) fn of_request(url: &str, source: reqwest::Error) -> Self {
        let url = url.to_string();
        match trust::distrust(&source) {
            Some(why) => Self::Untrusted { url, why },
            None if source.is_connect() => Self::Unreachable { url, source },
            None => Self::Broken { url, source },
        }
    }

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

    /// Whether the same question may be answered a moment later.
    pub fn may_pass(&self) -> bool {
        self.is_silence() || self.code() == Some(ErrorCode::TooMany)
    }

    /// Whether the request cannot have reached the server.
    pub fn never_arrived(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
