//! # What it does
//! The frames that a user's program and the engine exchange in place of lines, as bytes: heads, pairs, groups
//! (`docs/formats/program-frames.md`).
//!
//! # Where it sits
//! Below `mapper` and `reducer`, which feed them to programs and take them from programs.
//!
//! # Invariants
//! What comes from a program may be anything: nothing of it is believed before it was looked at, and no length makes room for more than
//! the caller allows. Pairs have one spelling.
//!
//! # Deliberately absent
//! No programs, no pipes, no meaning of what a frame holds.
//!
//! # How it is tested
//! Unit tests and properties beside each type; the stream that comes from a program is fuzzed.

mod batch;
mod head;
mod pairs;
mod stream;

pub use batch::GroupBatch;
pub use head::{FRAME_HEAD_BYTES, FrameKind, head};
pub use pairs::{Pairs, PairsError, TailedPairs};
pub use stream::{FrameError, FromProgram};
