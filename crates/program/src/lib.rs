//! # What it does
//! Runs user programs: finds them, starts them in a clean environment below the init of their slot, pipes bytes through
//! them, collects their reports from standard error, keeps its last lines, and always ends them.
//!
//! # Where it sits
//! Below `mapper` and `reducer`, which feed a program and read its output.
//!
//! # Invariants
//! A program and its process group have ended when its run returns, and everything else that it started when its attempt
//! does. A program that said that it waits for another task stays, alone, for the thread that started it, and no bytes
//! of one task are taken for the next one's. Feeding and reading happen at the same time, so that no full pipe can block
//! both sides. The kept part of a program's standard error is bounded. A program in a sandbox reads the paths of its job
//! and the system folders, and writes in its work directory; the kernel enforces that. A program with [`DeclaredReads`]
//! reads no other files in the user's directories.
//!
//! # Deliberately absent
//! No shell, no records, keys or lines of data: only bytes in and bytes out. No time limit of its own: a program that
//! hangs is ended by its job's [`ProgramLimits`], or by [`Programs::kill_all`].
//!
//! # How it is tested
//! With real processes in `tests/`: exit codes, signals, early close, large output, hangs, grandchildren, one task
//! after the other.

mod context;
mod env_file;
mod find;
mod installation;
mod limits;
mod pipeline;
mod process;
mod programs;
mod reports;
mod running;
mod sandbox;
mod slots;
mod spec;
mod start;
mod visible;

pub use containment::{Containment, ContainmentError};
pub use context::FunctionContext;
pub use env_file::{EnvFileError, read_env_file};
pub use find::{ProgramError, check_program, find_executable};
pub use limits::ProgramLimits;
pub use pipeline::{
    CarriedStreams, FeedOutput, NamedStream, PipelineProgram, Relay, RelayFile, Stdout, StreamFed,
    StreamFeed, Streams, named_to_relay, run_pipeline, streams_from_feed, streams_to_file,
    streams_to_program, streams_to_relay,
};
pub use process::file_memory::FileMemory;
pub use programs::Programs;
pub use reports::Reports;
pub use running::{AfterTask, Feed, ProgramOutput, run, run_task};
pub use sandbox::{DeclaredReads, Named, Network, NoSandbox, OpenNamed, Sandbox};
pub use slots::TemporaryDir;
pub use spec::ProgramSpec;
