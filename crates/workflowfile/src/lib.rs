//! # What it does
//! Reads workflow files (TOML): to the specification of a job of the kind `workflow`, to a table of its steps, to a
//! drawing, and to a shell script that does the same without the engine.
//!
//! # Where it sits
//! Front ends read files with it. The specification goes to a server, which reads and checks it again.
//!
//! # Invariants
//! A file that it accepts makes a workflow that the kind accepts. Relative paths start at the directory of the file, and
//! stay below it.
//!
//! # Deliberately absent
//! No running, no servers, no terminals.
//!
//! # How it is tested
//! Files with each mistake and their sentences; scripts are run in a shell and compared with the engine (black box).

mod error;
mod expand;
mod jobs;
mod machines;
mod plot;
mod read;
mod script;
mod table;

pub use error::WorkflowFileError;
pub use expand::ExpansionError;
pub use machines::{JobMachines, Sources};
pub use plot::plot;
pub use read::{NamedWorkflow, check_step, read, read_for};
pub use script::script;
pub use table::{StepLine, lines};
