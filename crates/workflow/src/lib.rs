//! # What it does
//! The kind of job `workflow`: programs, each of which runs when the ones before it are done.
//!
//! # Where it sits
//! A kind of `jobkind`, listed in `jobkinds`. Front ends make the specification; the server plans the steps.
//!
//! # Invariants
//! The steps have no cycle, and each output has one writer. A step begins after the steps whose outputs it reads. The
//! number of a step is its position in the specification.
//!
//! # Deliberately absent
//! No caching. No bytes: nodes bring inputs and take outputs.
//!
//! # How it is tested
//! Property tests against the laws of kinds: every order of ends runs each step once, after those before it.

mod check;
mod kind;
mod pipelines;
mod spec;

pub use kind::Workflow;
pub use spec::PlannedWorkflow;
