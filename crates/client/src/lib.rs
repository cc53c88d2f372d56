//! # What it does
//! Speaks to a server over HTTP: typed calls of the control port for front ends and nodes, and the calls with which
//! programs write and read intermediate files.
//!
//! # Where it sits
//! api (messages), dataport (bytes of intermediate files) -> client -> node, cli, programs of users.
//!
//! # Invariants
//! A request that may be repeated is retried while the server is unreachable; any other arrives at most once. If one of
//! several addresses does not respond, the next one is used.
//!
//! # Deliberately absent
//! No record data of jobs, no decision about work, no location of files. No polling: a node has its own link.
//!
//! # How it is tested
//! Against a server's own routes in `controlport`, and by the black-box tests of a cluster in `tests/`.

mod addresses;
mod calls;
mod error;
mod files;
mod groups;
mod intermediate;
mod listening;
mod outages;
mod own_tokens;
mod stored_files;

pub use calls::{Blocking, Client};
pub use error::ClientError;
pub use files::Fetched;
pub use intermediate::{IntermediateError, IntermediateReader, IntermediateWriter, Intermediates};
pub use own_tokens::{own_authority, own_token_path};
