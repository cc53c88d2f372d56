//! # What it does
//! The rows of the sort benchmark: makes them byte for byte as gensort and Hadoop's TeraGen do, and adds up the
//! figures by which valsort judges a sorted file. The byte tables are in `docs/formats/tera-rows.md`.
//!
//! # Where it sits
//! Below the jobs of `sailfish tera`: what wants rows asks a [`RowGenerator`], what has rows feeds a [`Summary`].
//!
//! # Invariants
//! A row is a function of its kind and its number, so that any stretch can be made anywhere. Summaries of
//! consecutive stretches, appended in order, equal the summary of the whole, wherever the cuts are.
//!
//! # Deliberately absent
//! No files, threads, clock or options: callers hand in slices of whole rows. No sorting.
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

/// Bytes of a row in every layout. There is nothing between rows.
pub const ROW_BYTES: usize = 100;
/// Bytes at the front of a row that are its key; their order is unsigned bytewise.
pub const KEY_BYTES: usize = 10;

/// One row.
pub type Row = [u8; ROW_BYTES];
/// The key of a row.
pub type Key = [u8; KEY_BYTES];
