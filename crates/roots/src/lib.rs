//! # What it does
//! The roots below which jobs may name paths and objects: checks whether a job respects them, and opens its paths so
//! that no race leads out of them.
//!
//! # Where it sits
//! api, objects (URLs) -> roots -> mapper (inputs), server (staging directories), node (all other paths of a job), cli.
//!
//! # Invariants
//! A path is resolved first, so that links between roots and absolute links inside of one work. The opened path is
//! exactly the checked one: `openat2` goes there from a descriptor of the root that was held open all the time, below
//! it (`RESOLVE_BENEATH`) and through no link (`RESOLVE_NO_SYMLINKS`). If something was moved in between, that fails,
//! and the path is resolved and checked again, a bounded number of times.
//!
//! # Deliberately absent
//! File access of a running program: the sandbox of `program` bounds that. Mounts are the operator's, and are followed.
//!
//! # How it is tested
//! Links of all kinds beside a table, and a directory that is exchanged for a link in a loop while it is opened
//! (`opening.rs`); with real jobs in `tests/tests/cluster/roots.rs`.

mod allowed;
mod opening;

pub use allowed::{BadRoot, OutsideRoots, Roots, is_below_system};
pub use opening::{HeldDir, JobPaths, deepest_existing, shown};
