//! # What it does
//! Makes the specification of a job from what its user wrote: the options of a command line over those of a job file, or a command
//! line of Hadoop Streaming. Everything that can be checked before a job is submitted is checked here, and the error names the option.
//!
//! # Where it sits
//! `cli` (options of the command line, and job files, which Python writes) -> **jobspec** -> `api::JobSpec` and its splits.
//!
//! # Invariants
//! The same options give the same job, from whichever front end they come. The command line wins over the job file.
//!
//! # Deliberately absent
//! No parsing of command lines, no terminal, no server: a [`FrontEnd`] knows these. It submits nothing.
//!
//! # How it is tested
//! Unit tests beside each step; whole plans in `plan/tests.rs`.

pub mod duration;
mod front_end;
pub mod job_file;
pub mod key_options;
pub mod memory_size;
mod options;
pub mod paths;
mod plan;
pub mod record_formats;
pub mod rerun;
pub mod standard_input;
pub mod standard_output;
pub mod state_dir;
pub mod streaming;

pub use front_end::FrontEnd;
pub use options::{FunctionText, JobOptions, StagePlace, add_variables, replication_mode};
pub use plan::{Plan, absolute_program, check_environment, function, plan, resources};
