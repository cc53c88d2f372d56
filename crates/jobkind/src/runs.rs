//! Finished runs that stand for steps, so that these are skipped.

use api::task::{FinishedRun, RecordedRun, RunLook, RunLooked};
use ids::{JobId, StepNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers from here on belong to steps of the engine, which look at the files of finished runs.
pub const LOOKS_FROM: u32 = 1 << 31;

/// Finished runs of the steps of a job.
#[derive(Clone, Debug, Default)]
pub struct KnownRuns {
    /// Runs of earlier jobs, from the store.
    pub recorded: BTreeMap<StepNumber, Arc<RecordedRun>>,
    /// Present state of the files of some of them.
    pub looked: BTreeMap<StepNumber, RunLooked>,
    /// Runs of this job.
    pub ended: BTreeMap<StepNumber, Arc<RecordedRun>>,
}

/// Facts of earlier jobs that help to divide steps into pipelines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorRuns {
    /// Bytes of all outputs that the last finished run of a step wrote, where they are known.
    pub wrote: BTreeMap<StepNumber, u64>,
    /// Steps for which a finished run may turn out to stand when the steps before them have run.
    pub may_stand: BTreeSet<StepNumber>,
}

/// A step whose runs are remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedStep {
    pub step: StepNumber,
    /// Path under which its run is remembered.
    pub path: PathBuf,
}

/// The steps that need not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub skipped: BTreeSet<StepNumber>,
    /// Steps of the kind itself that have nothing to do.
    pub needless: Vec<StepNumber>,
    /// Reasons for which the others run.
    pub reasons: BTreeMap<StepNumber, String>,
}

/// Memory of a kind: its steps declare all that they read and write, so finished runs stand for them.
///
/// All functions are pure.
pub trait RunMemory {
    /// Returns the steps whose runs are remembered.
    fn remembered(&self) -> Vec<RememberedStep>;

    /// Returns the questions whose answers [`RunMemory::judge`] needs.
    fn looks(&self, known: &KnownRuns) -> Vec<(StepNumber, RunLook)>;

    /// Returns whether the job ends after its judgement, which it notes as a whole.
    fn only_judges(&self) -> bool;

    /// Returns the steps for which finished runs stand. None of them runs later.
    fn judge(&self, known: &KnownRuns) -> Judgement;

    /// Returns whether a finished run stands for a step, now that the steps before it have run.
    fn stands_for(&self, step: StepNumber, known: &KnownRuns) -> bool;

    /// Completes the record of a run of this job. Those of the steps whose outputs it reads must be known; only a MapReduce job
    /// may be recorded before those whose parts it reads, and waits for their records then.
    fn recorded(&self, step: StepNumber, run: FinishedRun, ran: RanIn<'_>) -> Option<RecordedRun>;

    /// Returns the step that writes a file.
    fn writer_of(&self, path: &Path) -> Option<StepNumber>;
}

/// The surroundings of a run.
#[derive(Clone, Copy, Debug)]
pub struct RanIn<'a> {
    pub known: &'a KnownRuns,
    /// Job of the step.
    pub job: JobId,
}

impl KnownRuns {
    /// Returns the newest run of a step.
    pub fn newest(&self, step: StepNumber) -> Option<&Arc<RecordedRun>> {
        self.ended.get(&step).or_else(|| self.recorded.get(&step))
    }
}
