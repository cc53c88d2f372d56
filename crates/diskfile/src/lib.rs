//! # What it does
//! Large files written front to back and read in large windows, past the page cache where the file system can:
//! data that is used once should neither cost the kernel a copy nor push out what others keep there.
//!
//! # Where it sits
//! Below `chunkserver` (runs) and `reducer` (parts of a synced output).
//!
//! # Invariants
//! A writer has at most [`BUFFERS`] buffers, one being filled while the others are written. What a file holds does
//! not depend on whether the page cache was passed by: a file system that refuses is written the ordinary way.
//!
//! # Deliberately absent
//! No formats, no checksums, no choice of disk.
//!
//! # How it is tested
//! Unit and property tests below: any sequence of writes, any window, on file systems with and without O_DIRECT.
//!
//! Why: when 2 GB were sorted with a budget of 256 MiB, passing by the page cache took the kernel's share from 3.3 to
//! 5.4 CPU seconds down to 1.6 (bench/notes/engine.md, "Changes that helped, and others").

mod buffer;
mod reader;
mod writer;

pub use buffer::AlignedBuffer;
pub use reader::{ReadPool, WindowReader, open_direct};
pub use writer::{SequentialWriter, Syncing, Through};

/// Buffers of one writer.
pub const BUFFERS: usize = 3;
/// Alignment in direct I/O of offsets, lengths and addresses: at least the logical block of any disk.
pub const ALIGNMENT_BYTES: usize = 4096;
