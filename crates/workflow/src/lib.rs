//! # What it does
//! The kind of job `workflow`: programs, each of which runs when the ones before it are done.
//!
//! # Where it sits
//! A kind of `jobkind`, listed in `jobkinds`. Front ends make the specification; the server plans the steps.
//!
//! # Invariants
//! The steps have no cycle. The number of a step is its position in the specification.
//!
//! # Deliberately absent
//! No files and no caching yet: a step is its program, and edges are named.
//!
//! # How it is tested
//! Property tests against the laws of kinds: every order of ends runs each step once, after those before it.

mod check;
mod kind;
mod spec;

pub use kind::Workflow;
pub use spec::{StepSpec, WorkflowSpec};
