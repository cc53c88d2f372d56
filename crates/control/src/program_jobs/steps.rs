//! Jobs with steps: their kind plans the steps, each of which is a job of its own (Clustera, section 3.3).

mod data_places;
mod early_steps;
mod step_flows;
mod step_queue;
mod step_runs;
mod stepped_job;
mod stepped_jobs;
mod writers;

pub(crate) use data_places::NearStep;
pub(crate) use step_runs::StepRecord;
pub(crate) use stepped_job::{AfterStep, BegunStep, SteppedJob, step_failed, step_stopped};
pub use stepped_jobs::NewSteps;
pub(crate) use stepped_jobs::SteppedJobs;

use crate::program_jobs::FileHold;
use crate::users::JobQuota;
use api::history::StepOf;
use api::task::RecordedRun;
use api::{ContentHash, JobSpec, StoredContent};
use ids::{JobId, StepNumber};
use jobkind::StepPlan;
use mapreduce::PartNodes;
use rows::StepRow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A job with steps whose number is assigned.
pub struct NewSteppedJob {
    pub job: JobId,
    pub spec: Arc<JobSpec>,
    /// Its specification, as its kind has read it.
    pub plan: Arc<dyn StepPlan>,
    /// Finished runs of its steps, from the store.
    pub recorded: BTreeMap<StepNumber, Arc<RecordedRun>>,
    pub user: String,
    pub priority: i32,
    /// Quota of the user, which limits the steps that are jobs at one time.
    pub quota: Option<JobQuota>,
    /// Owner in the rows of the jobs.
    pub server: String,
    pub file_hold: Option<FileHold>,
    /// Nodes with its stored inputs now.
    pub part_nodes: Arc<PartNodes>,
}

/// A job with steps from the store, after a restart.
pub struct RecoveredSteps {
    pub job: JobId,
    pub spec: JobSpec,
    /// Its specification, as its kind has read it; an error if this server does not accept it.
    pub plan: Result<Arc<dyn StepPlan>, String>,
    /// Finished runs of its steps, from the store.
    pub recorded: BTreeMap<StepNumber, Arc<RecordedRun>>,
    pub user: String,
    pub priority: i32,
    /// The reason of a requested cancellation.
    pub cancel_asked: Option<String>,
    pub steps: Vec<StepRow>,
    pub file_hold: Option<FileHold>,
}

/// A step that is a MapReduce job: it has a number, and neither row nor directories.
pub struct NewJobStep {
    pub job: JobId,
    pub step_of: StepOf,
    pub spec: Arc<JobSpec>,
    /// Positions of the jobs of its flow that it reads.
    pub reads: Vec<u32>,
    pub user: String,
    pub priority: i32,
    /// The hold of its job on the shipped files of all steps.
    pub file_hold: Option<FileHold>,
}

/// Returns the pinned files of a job, by the identities of their bytes: its steps may read these.
pub(crate) fn pinned_contents(spec: &JobSpec) -> Arc<BTreeMap<ContentHash, StoredContent>> {
    let contents = spec.pinned.iter().flat_map(|file| file.contents());
    Arc::new(contents.map(|content| (content.identity(), content)).collect())
}

/// Returns the contents of the shipped files of a job: its steps may use these.
pub(crate) fn shipped_contents(spec: &JobSpec) -> Arc<BTreeSet<ContentHash>> {
    Arc::new(spec.shipped.iter().map(|file| file.sha256).collect())
}
