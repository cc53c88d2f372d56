//! Reasons why trust cannot be set up.

use std::path::PathBuf;

/// Failure of a file or a message; the message says which must change.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the file {path} does not exist", path = path.display())]
    Missing { path: PathBuf },
    #[error("cannot write {path}: {source}", path = path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error("the file {path} exists already: give another name, or move it away", path = path.display())]
    Exists { path: PathBuf },
    #[error("{path} is larger than {bytes_max} bytes: it is not a file of this kind", path = path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path} holds no token: a token begins with sailfish_", path = path.display())]
    NoToken { path: PathBuf },
    #[error("{path} holds no certificate in PEM", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("the certificate in {path} does not belong to the authority that the token names", path = path.display())]
    OtherAuthority { path: PathBuf },
    #[error("{here} exists, but {missing} does not: restore {missing}, or move the directory away to make \
             a new authority",
        here = here.display(), missing = missing.display())]
    HalfAuthority { here: PathBuf, missing: PathBuf },
    #[error("cannot make or use a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the server sent no readable certificate")]
    BadCertificate,
    #[error("cannot make a signing key")]
    NoKey,
    #[error("cannot get random numbers from this machine: {0}")]
    NoRandomness(String),
}
