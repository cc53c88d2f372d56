//! # What it does
//! Files that travel by the hash of their content: hashes them, makes message bodies of them, and keeps them in a
//! directory, which is the depot of a server or the cache of a node.
//!
//! # Where it sits
//! api (hashes) -> shipped -> server and controlport (depot), node (cache), cli (what is sent).
//!
//! # Invariants
//! A file stands under its hash only once it is whole, has that hash and is on the disk. What is taken out is hashed
//! once more on its way; what has changed is removed and was never there. The room is bounded, for each owner and for
//! all; what a job holds stays, and so does what came or was used a moment ago.
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
pub use hashing::{hash_file, hash_of};
