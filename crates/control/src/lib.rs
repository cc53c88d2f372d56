//! # What it does
//! Makes every decision of a server between a message and its consequences: jobs and their attempts, nodes, lost data,
//! replicas, flows, kept data, intermediate files, quotas. [`Control`] has one entry for each kind of event.
//!
//! # Where it sits
//! Messages and the time, from `server` -> control -> an [`Outbox`] of changes, answers and orders, which `server`
//! writes and sends. Control feeds `scheduler`, and asks `mapreduce` about stages.
//!
//! # Invariants
//! Pure: no clock, no I/O, no randomness. Each part owns its state in private fields, and only it writes them. The time
//! comes in with the outbox, names and keys come in with the event. A decision that needs the store is two events: the
//! first returns a typed question, and the second repeats the checks whose answer may have changed.
//!
//! # Deliberately absent
//! `server` has the event loop, the transaction, the store, directories and signatures. `scheduler` decides which
//! attempt runs on which node.
//!
//! # How it is tested
//! Each part by itself, the backlog by a property test against its promises. `sim` drives all of it through random
//! worlds; black-box tests of `server` run it over real stores.

mod control;
mod drills;
pub mod flows;
mod interface;
mod intermediate_files;
mod job;
mod loss;
pub mod membership;
pub mod program_jobs;
mod recovery;
mod replication;
pub mod retention;
mod scheduling;
pub mod users;
mod work;

pub use control::{Control, NewBatch, Recovering};
pub use drills::NewStrike;
pub use interface::{
    Asker, ControlError, DiskDirs, Finished, JobDirs, JobStart, LogLine, Moment, NewJob, Now, Outbox,
    PullRequest, Reply, RoomWanted, RunningJob, Service, SlotOrder,
};
pub use intermediate_files::{FileRequest, NamedFile, NewFile, NewsAnswer};
pub use job::{keep_from, spec_bytes, task_bytes};
pub use program_jobs::steps::{NewJobStep, NewSteppedJob, NewSteps, RecoveredSteps};
pub use recovery::{Leftover, RecoveredWork, node_info};
pub use scheduling::EarlyWriter;
pub use scheduling::seen_listings::SeenRequest;
