//! # What it does
//! Makes the specification of a job from the user's input: the options of a command line and a job file, or a command
//! line of Hadoop Streaming. It performs every check that is possible before submit, and each error names the option.
//!
//! # Where it sits
//! `cli` (options of the command line, and job files, which Python writes) -> **jobspec** -> `api::JobSpec` and its
//! splits.
//!
//! # Invariants
//! The same options give the same job from every front end. The command line overrides the job file.
//!
//! # Deliberately absent
//! No parsing of command lines, no terminal, no server: the [`FrontEnd`] has these. It submits nothing.
//!
//! # How it is tested
//! Unit tests beside each step; whole plans in `plan/tests.rs`.

pub mod duration;
mod front_end;
pub mod job_file;
pub mod key_options;
pub mod limits;
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

pub use front_end::{FrontEnd, SeenInputs, StoredInputs, StoredPin, StoredShape, StoredUse};
pub use options::{FunctionText, JobOptions, StagePlace, add_variables, replication_mode};
pub use plan::job_step::{JobStepPlace, plan_job_step};
pub use plan::pinning::{Pinned, Pinning};
pub use plan::stepped::pin_inputs_of_steps;
pub use plan::{Held, Plan, absolute_program, check_environment, function, plan, resources};
