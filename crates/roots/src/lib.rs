//! # What it does
//! The roots below which jobs may name paths and objects: says whether a job keeps to them, and opens what it names so that no
//! race leads out of them.
//!
//! # Where it sits
//! api, objects (URLs) -> roots -> mapper (inputs), server (staging directories), node (all else that a job names), cli.
//!
//! # Invariants
//! A path is resolved first, so that links from one root to another and absolute links inside of one lead where they say. What
//! is then opened is exactly the path that was judged: `openat2` goes there from a descriptor of the root that was held all the
//! time, below it (`RESOLVE_BENEATH`) and through no link (`RESOLVE_NO_SYMLINKS`). Where something was moved in between, that
//! fails, and the path is resolved and judged anew, a bounded number of times.
//!
//! # Deliberately absent
//! What a program opens when it runs: the sandbox of `program` bounds that. Mounts are the operator's, and are gone through.
//!
//! # How it is tested
//! Links of all kinds beside a table, and a directory that is exchanged for a link in a loop while it is opened (`opening.rs`); with
//! real jobs in `tests/tests/cluster/roots.rs`.

mod allowed;
mod opening;

pub use allowed::{BadRoot, OutsideRoots, Roots};
pub use opening::{HeldDir, JobPaths, deepest_existing, shown};
