//! # What it does
//! The abstract MapReduce job: a specification becomes stages of tasks, their results become the tasks of the next
//! stage, and at the end the proof and the report. For stages of a flow, it decides the consequences for other stages.
//!
//! # Where it sits
//! cli (submit) -> mapreduce -> server (which expands stages with it); workbuilder cuts its key ranges.
//!
//! # Invariants
//! Pure: the same specification and results give the same tasks. No commit task is made unless the proof agrees. Only
//! results of winning attempts count, except for the times in the report.
//!
//! # Deliberately absent
//! No I/O, no clock, no store; no knowledge of running slots or failed attempts.
//!
//! # How it is tested
//! Unit tests with rows of examples beside each step, a property test of the proof in `tests/`.

mod check;
mod elastic;
mod expand;
pub mod flow;
pub mod layout;
mod losses;
mod passes;
mod proof;
mod report;
mod results;
pub mod splits;
mod stage_files;
mod stored_places;
#[cfg(test)]
mod test_job;

pub use check::{SpecError, check};
pub use elastic::{RangeCut, may_split};
pub use expand::{ExpandError, expand, placement, stages};
pub use losses::{CopyAgain, Inventories, Repair, SealState, Verdict};
pub use passes::merge_tasks;
pub use proof::{Finding, IfileProof, Proof, prove};
pub use results::{
    AttemptTime, FallenBack, JobResults, KeptCopies, LostData, PartReplicas, Replica, Replicas,
};
pub use stage_files::with_inputs;
pub use stored_places::{NearSplit, PartNodes, near_splits};
