//! # What it does
//! Runs tasks: slot threads pull attempts from the server, run mapper, seal, merge, reducer or commit, and report the
//! result with their next pull. Hosts the chunkserver of each job.
//!
//! # Where it sits
//! client (calls of the server) -> node -> mapper, iappender, chunkserver, imerger, reducer. A server in the same
//! process passes its assignments through the trait [`Control`], for which the embedded engine of `cli` has an adapter.
//!
//! `slots` pulls attempts and `tasks` runs them; `shuffle` has the data between attempts, on this and other nodes;
//! `disks` the data on the disks of this node; `link` polls the server and executes its orders; `intermediate` has
//! intermediate files of users, `stored` the replicas of stored files.
//!
//! # Invariants
//! A slot runs one attempt at a time. On one machine further attempts may wait for their turn, so that the end of one and
//! the program of the next overlap; no more run programs at once than there are slots. The remains of a failed attempt (a
//! part file, half a frame, a work directory) are removed before its failure is reported. Only the commit task publishes
//! anything of a job, by one rename; for objects, by the protocol of `objects`. An order of the server is executed once,
//! however often it arrives, and the end of an attempt is kept until it is confirmed.
//!
//! # Deliberately absent
//! No decision about the time and node of attempts, about winners or proofs: the server decides.
//!
//! # How it is tested
//! By the black-box tests in `tests/`, which run the real binary; commit steps in unit tests.

mod attempt;
mod clock;
mod contents;
mod control;
mod disks;
mod failure;
mod intermediate;
mod job_data;
mod link;
mod node;
mod shared;
mod shuffle;
mod slots;
mod stored;
mod tasks;

pub use attempt::{Assignment, Finished, JobRun};
pub use control::{Control, RunsOnDisk, boundaries_failure};
pub use disks::Disks;
pub use disks::left_behind::{DyingProcess, LeftOnDisks};
pub use intermediate::intermediate_files::IntermediateFiles;
pub use link::data_access::DataAccess;
pub use link::drill::Drill;
pub use link::node_link::{NodeLink, data_incarnation};
pub use link::remote::Remote;
pub use node::{Node, NodeError};
pub use shared::NodeOptions;
pub use shuffle::remote::{OtherNodes, RecordData};
pub use shuffle::stage_files::{StageFileAt, StageFiles, StageRead};
pub use slots::progress::NodeProgress;
pub use stored::files::StoredSettings;
pub use stored::range_cache::RANGE_CACHE_BYTES_MAX;
pub use stored::step_files::{NewVersion, StepFiles, StoringJob};
pub use stored::views::{FileViews, ShownView, ViewedFile};
