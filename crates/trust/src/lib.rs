//! # What it does
//! Authentication and authorization: the authority of a cluster and the certificates it signs, the trust of each end of
//! a connection, the tokens by which callers identify themselves, and the signed rights by which they reach data.
//!
//! # Where it sits
//! rustls, rcgen -> trust -> client, dataport, controlport, cli.
//!
//! # Invariants
//! A certificate names one role in the cluster (the server, a node's data port) and never both, so a node cannot pass
//! for the server. A secret is printed only on request for its text; only its hash is stored. Files with secrets are
//! readable by their owner alone and appear whole or not at all.
//!
//! # Deliberately absent
//! No sockets, no requests, no clock, no list of token owners: the store has that. No serde.
//!
//! # How it is tested
//! Handshakes in memory between all kinds of ends, in `tests/`; with real processes in the black-box tests.

mod authority;
mod credentials;
mod error;
mod files;
mod grant;
mod identity;
mod secret;
mod verifier;

pub use authority::Authority;
pub use credentials::{Credentials, read_token_file};
pub use error::TrustError;
pub use files::{private_directory, write_new_private, write_private};
pub use grant::{DataKey, DataRight, DataSigner, FileGrant, FileRight, StoredGrant};
pub use identity::DataIdentity;
pub use secret::{AuthorityHash, Secret, TokenText};
pub use verifier::distrust;

pub use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// Name in the certificate of a control port, besides its hosts. Our own clients check this name, because an address is
/// not always known when the certificate is made.
pub const CONTROL_NAME: &str = "control.sailfish.internal";
/// Name in the certificate of a data port.
pub const DATA_NAME: &str = "data.sailfish.internal";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
