//! # What it does
//! The frames that a user's program and the engine exchange in place of lines, as bytes: heads, pairs, groups
//! (`docs/formats/program-frames.md`).
//!
//! # Where it sits
//! Below `mapper` and `reducer`, which send frames to programs and receive frames from them.
//!
//! # Invariants
//! Bytes from a program may be anything: they are checked before use, and no length allocates more than the caller
//! allows. Pairs have one spelling.
//!
//! # Deliberately absent
//! No programs, no pipes, no meaning of the content of a frame.
//!
//! # How it is tested
//! Unit tests and properties beside each type; the stream from a program is fuzzed.

mod batch;
mod head;
mod pairs;
mod stream;

pub use batch::GroupBatch;
pub use head::{FRAME_HEAD_BYTES, FrameKind, head};
pub use pairs::{Pairs, PairsError, TailedPairs};
pub use stream::{FrameError, FromProgram};
