//! # What it does
//! Sorts the frames of stable chunks, and makes the rows of their source table: by key, values of a key in input order.
//!
//! # Where it sits
//! chunkserver (stable chunk) -> chunksorter -> chunkserver (run in memory or on disk).
//!
//! # Invariants
//! Records never move while they are sorted: entries of 16 bytes (12 of key, 4 of position) do. Scratch memory stays
//! within the caller's limit. The order is total: equal keys are ordered by map task, attempt, frame sequence and
//! position, so the result does not depend on how frames arrived.
//!
//! # Deliberately absent
//! No files, no threads, no compression; the chunkserver decides when to sort.
//!
//! # How it is tested
//! Property tests against `sort_by` over decoded records, with tiny scratch so that batches are merged.
//!
//! Source: Sailfish section 5 (sorting decoupled from map tasks); entries after AlphaSort's (key prefix,
//! pointer).

mod order;
mod parted;
mod rows;

pub use order::{BATCH_RECORDS, OrderCursor, Position, SortError, SortedOrder, order_bytes_max, sort_frames};
pub use rows::{FrameView, order_frames, source_rows};
