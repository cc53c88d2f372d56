//! # What it does
//! The tree of logical files: names, the decision what a put, mkdir, rm, mv, cp, chmod or chown changes, and whether a
//! user may make that change.
//!
//! # Where it sits
//! filestore (commands of users), filecatalog (requests to a server) -> filetree -> metastore (names as rows, in one
//! transaction with the decision).
//!
//! # Invariants
//! The tree has versions: each change makes the next one, and a name belongs to the versions from `since` up to `until`.
//! So one put of a directory is visible at once, and an older version stays readable until its rows are removed. A
//! decision sees the rows of its paths as they are inside the transaction that writes it.
//!
//! # Deliberately absent
//! No I/O, clock or numbers of its own: the caller gives time, version and ids. No bytes of files.
//!
//! # How it is tested
//! Names and ownership beside the code, names by a fuzz target too; decisions by `filestore`, against a map of
//! whole paths as the model.
//!
//! Source: logical files are sets of concrete files (Clustera, section 3.5).

mod change;
mod decide;
mod error;
mod expiry;
mod names;
mod ownership;
mod rights;
mod sight;

pub use change::TreeChange;
pub use decide::{
    FileSize, FoundPath, Making, Parents, Recursion, TreeDecision, copy, expire, make_directory, place,
    remove, rename,
};
pub use error::TreeError;
pub use expiry::{EXPIRE, TTL_MAX, TtlError, ttl_ns};
pub use names::{NAME_BYTES_MAX, NameError, PATH_BYTES_MAX, TreeName, TreePath, check_component};
pub use ownership::{Changer, groups_of, may_change, may_put, may_read, reads};
pub use rights::{GroupSetting, set_groups, set_owner};
pub use sight::{check_seen, check_seen_place, sees};
