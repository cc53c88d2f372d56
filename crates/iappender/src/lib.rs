//! # What it does
//! The map side of I-files: one appender a map attempt. It serializes records into a frame per I-file, stamps
//! each frame, appends it to a chunk, and survives lost answers without losing or doubling a frame. Frames may be on
//! their way while the next ones are filled.
//!
//! # Where it sits
//! mapper (key, value) -> iappender -> chunkserver ([`AppendFrame`]).
//!
//! # Invariants
//! A frame has one sequence number for ever, whatever chunk it ends in. A new chunk is bound only after the old
//! one answered `closed` and said which sequence numbers stand: that is the fence. What [`IAppender::finish`]
//! commits is exactly what was acknowledged, per (I-file, chunk). Hashing and CRC happen when a record is
//! serialized, so that every later change is found.
//!
//! # Deliberately absent
//! No sockets, no threads, no waiting of its own, no limit to the frames on their way: chunks are reached through
//! [`ChunkService`], which has all that. No combining
//! (that happened before), no choice of chunk (the service allocates).
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

/// Times one frame is sent again after a lost answer before the attempt gives up.
pub const APPEND_TRIES_MAX: u32 = 8;
/// Times an appender is sent on to another chunk for one frame before the attempt gives up.
pub const REBINDS_MAX: u32 = 64;
