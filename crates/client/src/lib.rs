//! # What it does
//! Speaks to a server over HTTP: typed calls of the control port for front ends, the calls by which programs write and read
//! intermediate files, and the link of a node, which hands finished work up and takes new work down.
//!
//! # Where it sits
//! api (messages), dataport (bytes of intermediate files) -> client -> node, cli, programs of users.
//!
//! # Invariants
//! A request that may be repeated is repeated while the server cannot be reached; any other arrives once at most. If
//! one of several addresses does not answer, the next one is asked. An order of the server is carried out once,
//! however often it arrives, and the end of an attempt is kept until it is confirmed.
//!
//! # Deliberately absent
//! No record data of jobs, no decision about work, no place for files.
//!
//! # How it is tested
//! Against a server's own routes in `controlport`, and by the black-box tests of a cluster in `tests/`.

mod addresses;
mod ahead;
mod calls;
mod error;
mod files;
mod intermediate;
mod link;
mod listening;
mod own_tokens;
mod pending;
mod poller;
mod told_keys;

pub use calls::{Blocking, Client};
pub use error::ClientError;
pub use files::Fetched;
pub use intermediate::{IntermediateError, IntermediateReader, IntermediateWriter, Intermediates};
pub use link::{NodeLink, Notice, Order};
pub use own_tokens::{own_authority, own_token_path};
