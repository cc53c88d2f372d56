//! State of a job.

use crate::interface::{JobDirs, Outbox};
use crate::job::log_room::LogRoom;
use crate::job::{Keeping, Replicating};
use crate::loss::LossRecord;
use crate::program_jobs::steps::NearStep;
use crate::program_jobs::{FileHold, Seat};
use crate::users::JobOwner;
use api::control::JobOutcome;
use api::{Boundaries, JobSpec, Split, Task, TaskFailure};
use ids::{AttemptKey, JobId, StageIndex, StageKind, TaskIndex};
use mapreduce::flow::FlowState;
use mapreduce::{JobResults, PartNodes};
use scheduler::FAILURES_MAX;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A job of this process.
pub(crate) struct Job {
    pub(super) id: JobId,
    pub(super) spec: Arc<JobSpec>,
    pub(super) dirs: JobDirs,
    pub(super) stage_kinds: Vec<StageKind>,
    /// The tasks of each expanded stage.
    pub(super) tasks: Vec<Vec<Task>>,
    pub(super) results: JobResults,
    /// The reduce tasks as they were before data that they read was lost. Some of their attempts keep running during
    /// the recomputation.
    pub(super) standing: Option<(StageIndex, Vec<Task>)>,
    pub(super) boundaries: Option<Boundaries>,
    pub(super) cancel_reason: Option<String>,
    /// True if its running attempts have been told to stop.
    pub(super) is_told_to_stop: bool,
    /// The last failure of an attempt, or of creating a stage.
    pub(super) last_failure: Option<TaskFailure>,
    pub(super) outcome: Option<JobOutcome>,
    pub(super) report: Option<Box<api::JobReport>>,
    /// A hold on the shipped files, so that nodes can fetch them.
    pub(super) file_hold: Option<FileHold>,
    pub(super) owner: JobOwner,
    /// Room in the history for standard error of its programs, if it has many tasks.
    pub(super) log_room: LogRoom,
    /// Seat in the scheduler of an admitted job of one task; given back at its end.
    pub(super) seat: Option<Seat>,
    /// Set while nodes keep its intermediate data, and after they have confirmed.
    pub(super) keeping: Option<Keeping>,
    pub(super) replicating: Replicating,
    /// Progress as a stage of a flow.
    pub(super) in_flow: FlowState,
    /// Attempts that became useless when another attempt of their task gave up the end of the range. They are told to
    /// stop.
    pub(super) outrun: BTreeSet<AttemptKey>,
    pub(super) losses: LossRecord,
    /// Nodes with its stored inputs, as far as known.
    pub(super) part_nodes: Arc<PartNodes>,
    /// Nodes near the inputs of its only program; None if any node will do.
    pub(super) near: Option<Box<NearStep>>,
}

impl Job {
    pub(crate) fn new(id: JobId, spec: Arc<JobSpec>, dirs: JobDirs, mut results: JobResults) -> Self {
        results.keeps_runs = spec.keep_ifiles;
        Self {
            id,
            stage_kinds: mapreduce::stages(&spec),
            spec,
            dirs,
            tasks: Vec::new(),
            results,
            standing: None,
            boundaries: None,
            cancel_reason: None,
            is_told_to_stop: false,
            last_failure: None,
            outcome: None,
            report: None,
            file_hold: None,
            owner: JobOwner::default(),
            log_room: LogRoom::default(),
            seat: None,
            keeping: None,
            replicating: Replicating::default(),
            in_flow: FlowState::default(),
            outrun: BTreeSet::new(),
            losses: LossRecord::default(),
            part_nodes: Arc::default(),
            near: None,
        }
    }

    pub(crate) fn id(&self) -> JobId {
        self.id
    }

    pub(crate) fn spec(&self) -> &Arc<JobSpec> {
        &self.spec
    }

    pub(crate) fn dirs(&self) -> &JobDirs {
        &self.dirs
    }

    pub(crate) fn stage_kinds(&self) -> &[StageKind] {
        &self.stage_kinds
    }

    /// Returns the tasks of each expanded stage.
    pub(crate) fn tasks(&self) -> &[Vec<Task>] {
        &self.tasks
    }

    pub(crate) fn results(&self) -> &JobResults {
        &self.results
    }

    pub(crate) fn results_mut(&mut self) -> &mut JobResults {
        &mut self.results
    }

    pub(crate) fn part_nodes(&self) -> &PartNodes {
        &self.part_nodes
    }

    /// Sets the nodes near the inputs of its only program.
    pub(crate) fn comes_near(&mut self, near: Option<NearStep>) {
        self.near = near.map(Box::new);
    }

    pub(crate) fn near(&self) -> Option<&NearStep> {
        self.near.as_deref()
    }

    pub(crate) fn learn_places(&mut self, places: Arc<PartNodes>) {
        self.part_nodes = places;
    }

    pub(crate) fn outcome(&self) -> Option<&JobOutcome> {
        self.outcome.as_ref()
    }

    pub(crate) fn owner(&self) -> &JobOwner {
        &self.owner
    }

    pub(crate) fn keeping(&self) -> Option<&Keeping> {
        self.keeping.as_ref()
    }

    pub(crate) fn keeping_mut(&mut self) -> Option<&mut Keeping> {
        self.keeping.as_mut()
    }

    pub(crate) fn replicating(&self) -> &Replicating {
        &self.replicating
    }

    /// Sets the decision about replication at its begin.
    pub(crate) fn begin_replicating(&mut self, replicating: Replicating) {
        self.replicating = replicating;
    }

    pub(crate) fn replicating_mut(&mut self) -> &mut Replicating {
        &mut self.replicating
    }

    /// Returns its progress as a stage of a flow.
    pub(crate) fn in_flow(&self) -> &FlowState {
        &self.in_flow
    }

    pub(crate) fn in_flow_mut(&mut self) -> &mut FlowState {
        &mut self.in_flow
    }

    pub(crate) fn losses(&self) -> &LossRecord {
        &self.losses
    }

    pub(crate) fn losses_mut(&mut self) -> &mut LossRecord {
        &mut self.losses
    }

    /// Returns its seat in the scheduler, if it is an admitted job of one task.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Sets the owner, and the hold on the shipped files.
    pub(crate) fn belongs_to(&mut self, owner: JobOwner, file_hold: Option<FileHold>) {
        (self.owner, self.file_hold) = (owner, file_hold);
    }

    /// Gives it a seat in the scheduler.
    pub(crate) fn take_seat(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    /// Sets the outcome of a job that ended before this server started.
    pub(crate) fn has_ended(&mut self, outcome: JobOutcome) {
        self.outcome = Some(outcome);
    }

    /// Restores the boundaries and the report of a job that an earlier server began.
    pub(crate) fn restore(&mut self, boundaries: Option<Boundaries>, report: Option<Box<api::JobReport>>) {
        (self.boundaries, self.report) = (boundaries, report);
    }

    /// Restores an expanded stage: the one behind those that it has.
    pub(crate) fn restore_stage(&mut self, tasks: Vec<Task>) {
        self.tasks.push(tasks);
    }

    /// Replaces the specification by the one with its inputs, and sets their splits.
    pub(crate) fn has_inputs(&mut self, spec: Arc<JobSpec>, splits: Vec<Split>) {
        (self.spec, self.results.splits, self.in_flow.has_inputs) = (spec, splits, true);
    }

    /// Sets the reason of its end, unless it has one.
    pub(crate) fn ends_because(&mut self, reason: String) {
        self.cancel_reason.get_or_insert(reason);
    }

    /// Begins to keep its intermediate data.
    pub(crate) fn begin_keeping(&mut self, keeping: Keeping) {
        self.keeping = Some(keeping);
    }

    /// Records the failure that the job reports if it fails next.
    pub(crate) fn fails_of(&mut self, failure: TaskFailure) {
        self.last_failure = Some(failure);
    }

    /// Returns whether all its attempts have been told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.outcome.is_some() || self.is_told_to_stop
    }

    /// Tells running attempts to stop.
    pub(crate) fn stop_attempts(&mut self, outbox: &mut Outbox) {
        self.is_told_to_stop = true;
        outbox.stop_attempts(self.id);
    }

    /// Returns whether it is a single task and no MapReduce job: it has no directories, and nodes remember nothing of
    /// it.
    pub(crate) fn is_single(&self) -> bool {
        self.spec.kind.program().is_some()
    }

    /// Returns the number of failures of one task that make the job fail. A user's program outside the engine may have
    /// done half of its work permanently: it runs once unless its user allows retries.
    pub(crate) fn failures_max(&self) -> u32 {
        match self.spec.kind.program() {
            Some(task) => task.retries.saturating_add(1),
            None => FAILURES_MAX,
        }
    }

    pub(crate) fn task(&self, attempt: AttemptKey) -> Option<&Task> {
        self.stage_tasks(attempt.task.stage)?.get(attempt.task.task.0 as usize)
    }

    pub(crate) fn stage_tasks(&self, stage: StageIndex) -> Option<&Vec<Task>> {
        let standing = self.standing.as_ref().filter(|(standing, _)| *standing == stage);
        self.tasks.get(usize::from(stage.0)).or(standing.map(|(_, tasks)| tasks))
    }

    /// Returns whether an attempt may have failed because its input is being recomputed.
    pub(crate) fn may_lack_data(&self, attempt: AttemptKey) -> bool {
        self.standing.as_ref().is_some_and(|(stage, _)| *stage == attempt.task.stage)
    }

    pub(crate) fn stage_index(&self, kind: StageKind) -> Option<StageIndex> {
        self.stage_kinds.iter().position(|each| *each == kind).map(|index| StageIndex(index as u16))
    }

    /// Returns whether the job has this task, so that nothing is stored about an unknown one.
    pub(crate) fn knows(&self, stage: StageIndex, task: TaskIndex) -> bool {
        self.stage_tasks(stage).is_some_and(|tasks| (task.0 as usize) < tasks.len())
    }
}
