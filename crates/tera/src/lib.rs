//! # What it does
//! The rows of the sort benchmark: generates them byte for byte like gensort and Hadoop's TeraGen, and sums the figures
//! by which valsort judges a sorted file. The byte tables are in `docs/formats/tera-rows.md`.
//!
//! # Where it sits
//! Below the jobs of `sailfish tera`: generators use a [`RowGenerator`], judges feed a [`Summary`].
//!
//! # Invariants
//! A row is a function of its kind and its number, so that any stretch can be generated anywhere. Summaries of
//! consecutive stretches, appended in order, equal the summary of the whole, wherever the cuts are.
//!
//! # Deliberately absent
//! No files, threads, clock or options: callers pass slices of whole rows. No sorting.
//!
//! # How it is tested
//! Golden checksums, hashes and rows of gensort 1.5 in `tests/golden.rs`; skip-ahead, and appended summaries
//! against a model of ten lines, as properties in `tests/properties.rs`.

mod digits;
mod generate;
mod layout;
mod numbers;
mod random;
mod summary;

pub use generate::RowGenerator;
pub use layout::{NoSkewedLegacy, RowKind, RowLayout, UnknownLayout};
pub use numbers::{NumberError, Rows, StartRow};
pub use summary::{Checksum, PartialRow, SUMMARY_BYTES, Summary, SummaryError};

/// Bytes of a row in every layout. Rows are adjacent.
pub const ROW_BYTES: usize = 100;
/// Bytes of the key at the front of a row; keys are ordered bytewise, unsigned.
pub const KEY_BYTES: usize = 10;

/// One row.
pub type Row = [u8; ROW_BYTES];
/// The key of a row.
pub type Key = [u8; KEY_BYTES];
