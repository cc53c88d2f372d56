//! # What it does
//! The front end for Hadoop Streaming: parses a command line of `hadoop jar hadoop-streaming.jar` and makes a Sailfish
//! job from it.
//!
//! # Where it sits
//! command line -> **streaming** -> cli, which plans and runs the job like any other.
//!
//! # Invariants
//! No option, class or property that changes results is ignored: an unsupported one is refused by name, with an
//! alternative. Old property names mean the same as their new ones.
//!
//! # Deliberately absent
//! No I/O: paths are text here, and the planner checks whether a file exists. No Java.
//!
//! # How it is tested
//! Rows of words and their results, beside each file; whole command lines, with the outputs of Hadoop itself, by the
//! black-box tests in `tests/tests/streaming.rs`.

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
