//! Why trust cannot be set up.

use std::path::PathBuf;

/// Answers which file, or whose message, must be changed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("there is no file {path}", path = path.display())]
    Missing { path: PathBuf },
    #[error("cannot write {path}: {source}", path = path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error("there is a file {path} already: give another name, or move it away", path = path.display())]
    Exists { path: PathBuf },
    #[error("{path} is larger than {bytes_max} bytes: it is no file of this kind", path = path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path} holds no token: a token begins with sailfish_", path = path.display())]
    NoToken { path: PathBuf },
    #[error("{path} holds no certificate in PEM", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("the certificate in {path} is not that of the authority which the token names", path = path.display())]
    OtherAuthority { path: PathBuf },
    #[error("{here} is there and {missing} is not: put it back, or move the directory away to begin anew",
        here = here.display(), missing = missing.display())]
    HalfAuthority { here: PathBuf, missing: PathBuf },
    #[error("cannot make or use a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the server sent no certificate that can be read")]
    BadCertificate,
    #[error("cannot make a key to sign with")]
    NoKey,
    #[error("this machine gives no random numbers: {0}")]
    NoRandomness(String),
}
