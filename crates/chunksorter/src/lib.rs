//! # What it does
//! Turns the frames of stable chunks into sorted order with the rows of its source table: by key, values of a
//! key in input order.
//!
//! # Where it sits
//! chunkserver (stable chunk) -> chunksorter -> chunkserver (run in memory or on disk).
//!
//! # Invariants
//! Records never move while they are sorted: entries of 16 bytes (12 of key, 4 of position) do. Scratch memory
//! stays within what the caller gives. The order is total: equal keys stand by map task, attempt, frame
//! sequence and position, so the result does not depend on how frames arrived.
//!
//! # Deliberately absent
//! No files, no threads, no compression; when to sort is the chunkserver's business.
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
