//! # What it does
//! Runs the programs users write: finds them, starts them in a clean environment and their own process
//! group, pipes bytes through them, takes what they report on standard error, keeps its last lines, and ends
//! them for sure.
//!
//! # Where it sits
//! Below `mapper` and `reducer`, which feed a program and read what it prints.
//!
//! # Invariants
//! A program and whatever it started is gone when its run returns, unless the program said that it waits for another task: then it
//! stays, alone, for the thread that started it, and nothing of one task is taken for the next one's. Feeding and reading happen at the same
//! time, so that no full pipe can stop both sides. What is kept of a program's standard error is bounded.
//! A program in a sandbox reads what its job reads and the folders of the system, and writes in its work directory; the
//! kernel sees to that. A process id is signalled only while its process has not been reaped.
//!
//! # Deliberately absent
//! No shell, no records, keys or lines of data: only bytes in and bytes out. No time limits: a program that
//! hangs is ended by [`Programs::kill_all`].
//!
//! # How it is tested
//! With real processes in `tests/`: exit codes, signals, early close, large output, hangs, grandchildren, one task after the other.

mod context;
mod env_file;
mod find;
mod idle;
mod intake;
mod killed;
mod launch;
mod pipe_state;
mod process;
mod reports;
mod running;
mod sandbox;
mod standard_error;
mod supervise;
mod without_input;

pub use context::{FunctionContext, Programs};
pub use env_file::{EnvFileError, read_env_file};
pub use find::{ProgramError, check_program};
pub use reports::Reports;
pub use running::{AfterTask, Feed, ProgramOutput, ProgramSpec, run, run_task};
pub use sandbox::{Named, NoSandbox, OpenNamed, Sandbox};
pub use without_input::run_without_input;
