//! # What it does
//! Merges sorted runs into one ordered stream of records, drops those of losing attempts, marks the beginnings of
//! groups, and sums its output: the reduce side of the proof.
//!
//! # Where it sits
//! chunkserver (sorted runs) -> imerger -> reducer (groups).
//!
//! # Invariants
//! Records come by key, then by map task, attempt, frame sequence and position: values of a key are in input order for
//! any runs. Each output record is counted in the sum of its I-file, whether it is used or not.
//!
//! # Deliberately absent
//! imerger does not know files, blocks, memory or threads: it pulls records from a [`SortedRun`].
//!
//! # How it is tested
//! Property tests against a ten-line model (concatenate, stable sort, group), secondary sort included.

mod groups;
mod merge;
mod winners;

pub use groups::{Grouped, Groups, GroupsReport};
pub use merge::{Merge, SortedRun};
pub use winners::Winners;
