//! # What it does
//! The map side of I-files: one appender per map attempt. It serializes records into a frame per I-file, stamps each
//! frame, appends it to a chunk, and survives lost answers without losing or doubling a frame. Frames may be in transit
//! while the next ones are filled.
//!
//! # Where it sits
//! mapper (key, value) -> iappender -> chunkserver ([`AppendFrame`]).
//!
//! # Invariants
//! A frame keeps one sequence number, whatever chunk it ends in. A new chunk is bound only after the old one answered
//! `closed` and reported which sequence numbers stand: that is the fence. [`IAppender::finish`] commits exactly the
//! acknowledged frames, per (I-file, chunk). Hashing and CRC happen when a record is serialized, so that every later
//! change is found.
//!
//! # Deliberately absent
//! No sockets, no threads, no own waiting, no limit of frames in transit: all that is in the [`ChunkService`] by which
//! chunks are reached. No combining (that happened before), no choice of chunk (the service allocates).
//!
//! # How it is tested
//! Property tests in `crates/chunkserver/tests` with a service that loses answers, repeats frames and
//! delivers late; partitioners and boundaries in unit tests.
//!
//! Source: Sailfish sections 4 and 5 (record append, binding to a chunk, 128 appenders a chunk).

mod append;
mod partition;
mod service;

pub use append::{Appended, IAppender, WorkerSlabs};
pub use partition::{Partitioner, choose_boundaries};
pub use service::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};

/// Maximum retries of one frame after lost answers before the attempt fails.
pub const APPEND_TRIES_MAX: u32 = 8;
/// Maximum number of chunks that may refuse one frame before the attempt fails.
pub const REBINDS_MAX: u32 = 64;
