//! One model of a cluster for questions about data and work: nodes with disks, links and slots, and racks with uplinks.
//! A task is bytes read, work, and bytes written. Where tasks run is decided by the real scheduler and its placement
//! ([`scheduler::place`], [`scheduler::fetch_trees`]), or by the rules of other systems for comparison. The steps of a
//! workflow ([`run_dag`]) come from the real kind `workflow` and run as jobs of the real `control`.
//!
//! Time passes from event to event: a slot asks, a task ends, a block arrives. Between events every transfer has a
//! constant rate; links, disks and uplinks give each connection an even share. The model is not validated by
//! measurements. Its assumptions: a task reads, works and writes at the same time, so the slowest of them sets its
//! pace; a disk reads and writes together at one rate, without seeks; nothing fails.

mod asking;
mod best;
mod dags;
mod heft;
mod machines;
mod maps;
mod spread;

pub use best::most_on_replicas;
pub use dags::{DagStep, DagTimes, DagWorld, InputReading, StepRun, run_dag};
pub use heft::{critical_path_s, heft_s, work_s};
pub use machines::Machines;
pub use maps::{Assigning, MapTimes, MapWorld, TaskLoad, run_maps};
pub use spread::{FirstCopies, SharedInput, Spreading, arrivals, seconds_of_one_copy, spread};
