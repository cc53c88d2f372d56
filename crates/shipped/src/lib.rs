//! # What it does
//! Files shipped by the hash of their content: hashes them, makes message bodies of them, and stores them in a
//! directory, which is the depot of a server or the cache of a node.
//!
//! # Where it sits
//! api (hashes) -> shipped -> server and controlport (depot), node (cache), cli (sender).
//!
//! # Invariants
//! A file is stored under its hash only once it is complete, has that hash and is on disk. Every read hashes the file
//! again; a changed file is removed and counts as missing. The space is bounded, for each owner and for all; files that
//! a job holds stay, and so do recently arrived or used ones.
//!
//! # Deliberately absent
//! No HTTP, no jobs, no decision about who may have what: an owner is a text.
//!
//! # How it is tested
//! `depot/tests.rs` fills, breaks and overfills a depot; the way of a file through a cluster by black-box tests.

mod body;
mod depot;
mod error;
mod hashing;

pub use body::FileBody;
pub use depot::{CopyMode, Depot, Figures, Hold, Incoming, Limits};
pub use error::ShippedError;
pub use hashing::{Hasher, hash_file, hash_of};
