//! # What it does
//! The interface of kinds of jobs. A job of a kind has steps, each a job of its own: the kind plans the first ones, and
//! at each end of a step those that come next (Clustera, section 3.3: an abstract job is expanded into concrete jobs).
//!
//! # Where it sits
//! A kind is a crate above this one with a type that implements [`StepPlanner`]. `jobkinds` lists all kinds, `server` reads
//! specifications with that list, and `control` begins and ends the steps.
//!
//! # Invariants
//! A kind is pure: its steps follow from its specification and the finished steps, so a restarted server plans the same
//! steps. [`laws::check`] checks this for any specification.
//!
//! # Deliberately absent
//! No nodes, no slots, no rows: a step is scheduled, retried, stored and logged as any other job.
//!
//! # How it is tested
//! `laws` by kinds that break each law; every kind by `laws` on random specifications.

mod job_step;
mod kinds;
pub mod laws;
mod runs;
mod site;
mod step;

pub use job_step::{JobStepError, check_flow_step, check_job_step};
pub use kinds::{KindError, Kinds, StepPlan};
pub use runs::{Judgement, KnownRuns, LOOKS_FROM, PriorRuns, RanIn, RememberedStep, RunMemory};
pub use site::{InputPlace, InputPlaces, NodeSize, PipelineNeeds, WorkingNodes};
pub use step::{EarlyStep, FinishedSteps, FlowStep, Step, StepWork};

use api::JsonText;
use ids::StepNumber;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// Maximum number of steps of a job.
pub const STEPS_MAX: usize = 1_000_000;

/// A kind of job.
///
/// All its functions are pure. A step keeps its number for ever: a number begins once, even if it is returned again.
/// Steps may be returned as one pipeline, as large as the largest node allows.
pub trait StepPlanner: 'static {
    /// Specification of a job, as its user wrote it.
    type Spec: DeserializeOwned + Send + Sync + 'static;

    /// Name by which users ask for the kind. The store keeps it, so it never changes.
    const NAME: &'static str;

    /// Reads a specification. One with very many steps may keep the text in place of their values.
    fn read(spec: &JsonText) -> Result<Self::Spec, serde_json::Error> {
        spec.read()
    }

    /// Returns a sentence for a specification that cannot be run.
    fn check(spec: &Self::Spec) -> Result<(), String>;

    /// Returns the steps that need no other step. The job is over when all its steps are.
    fn plan(spec: &Self::Spec, size: NodeSize) -> Vec<Step>;

    /// Returns the steps that may begin because of `finished.last`. If that is empty, after a restart, returns each step
    /// that has not begun and needs finished steps only. Those of [`StepPlanner::plan`] may be left out by a kind without
    /// pipelines.
    fn next(spec: &Self::Spec, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step>;

    /// Returns the steps that may begin while these run, because they read their standard output and need nothing else
    /// that is not finished. The engine need not begin them before the others are finished.
    fn early(_: &Self::Spec, _running: &[StepNumber], _: &FinishedSteps<'_>, _: NodeSize) -> Vec<EarlyStep> {
        Vec::new()
    }

    /// Returns the memory of finished runs, for a kind that has one.
    fn memory(_: &Self::Spec) -> Option<&dyn RunMemory> {
        None
    }

    /// Returns the files that the steps write. While a job writes one of them, no other job of its user that does is
    /// accepted.
    fn writes(_: &Self::Spec) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the rank of each step, by its number: of the steps that may begin, the one with the highest rank goes first.
    /// Further steps have rank 0.
    fn ranks(_: &Self::Spec, _: &KnownRuns) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the specification with facts of earlier jobs, for a kind whose pipelines depend on them. The steps stay the
    /// same.
    fn with_prior(_: &Self::Spec, _: &PriorRuns) -> Option<Self::Spec> {
        None
    }
}
