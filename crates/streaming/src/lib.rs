//! # What it does
//! The front door for Hadoop Streaming: reads a command line as `hadoop jar hadoop-streaming.jar` takes it and
//! makes a job of ours out of it.
//!
//! # Where it sits
//! command line -> **streaming** -> cli, which plans and runs the job as any other.
//!
//! # Invariants
//! No option, class or property that changes results is passed over: what we cannot do is refused by name, with
//! what can be done in its place. Old property names mean what their new ones mean.
//!
//! # Deliberately absent
//! No I/O: paths are text here, and whether a file exists is the planner's to say. No Java.
//!
//! # How it is tested
//! Rows of words and what comes of them, beside each file; whole command lines, with the outputs of Hadoop itself,
//! by the black-box tests in `tests/tests/streaming.rs`.

mod classes;
mod command;
mod error;
mod help;
mod job;
mod names;
mod options;
mod order;
mod paths;
mod properties;

pub use error::StreamingError;
pub use help::HELP;
pub use job::{InputFormatClass, OwnOptions, PartitionChoice, Request, StreamingJob, parse};
