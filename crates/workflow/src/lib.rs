//! # What it does
//! The kind of job `workflow`: programs, each of which runs when the ones before it are done.
//!
//! # Where it sits
//! A kind of `jobkind`, listed in `jobkinds`. Front ends make the specification; the server plans the steps.
//!
//! # Invariants
//! The steps have no cycle, and each output has one writer. A step begins after the steps whose outputs it reads. The
//! number of a step is its position in the specification; the numbers after them remove temporary files at the end.
//!
//! # Deliberately absent
//! No bytes: nodes bring inputs, take outputs and hash both. No rows: the store remembers finished runs.
//!
//! # How it is tested
//! Property tests against the laws of kinds: every order of ends runs each step once, after those before it. Ranks against
//! a slow definition.

mod check;
mod early;
mod flows;
mod graph;
mod kind;
mod memory;
mod pipelines;
mod places;
mod preview;
mod ranks;
mod spec;

pub use check::steps_before;
pub use kind::Workflow;
pub use preview::{PlannedPipeline, check, order, preview, removed};
pub use spec::PlannedWorkflow;
