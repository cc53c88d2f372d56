//! A job with steps.

use crate::program_jobs::FileHold;
use crate::program_jobs::steps::NearStep;
use crate::program_jobs::steps::data_places::DataPlaces;
use crate::program_jobs::steps::early_steps::EarlySteps;
use crate::program_jobs::steps::step_flows::{FlowOver, StepFlows};
use crate::program_jobs::steps::step_queue::StepQueue;
use crate::program_jobs::steps::step_runs::{StepRecord, StepRuns};
use crate::scheduling::EarlyWriter;
use crate::users::{JobOwner, JobQuota};
use api::control::{JobOutcome, JobProgress, StageProgress};
use api::history::EventKind;
use api::task::{RecordedRun, RunResult, RunTask};
use api::{Blame, ContentHash, StoredContent, TaskFailure};
use ids::{JobId, NodeId, StageKind, StepNumber};
use jobkind::{FinishedSteps, LOOKS_FROM, NodeSize, PipelineNeeds, Step, StepPlan, StepWork, WorkingNodes};
use mapreduce::PartNodes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of steps of a job that have begun and are not over. The others cost no row and little memory.
const OPEN_MAX: usize = 10_000;

/// A job with steps that is not over.
pub(crate) struct SteppedJob {
    pub owner: JobOwner,
    pub priority: i32,
    /// Quota of the user; None after a restart, and without one.
    pub quota: Option<JobQuota>,
    /// A hold on the shipped files of all its steps.
    pub file_hold: Option<FileHold>,
    /// Contents of these files.
    pub shipped: Arc<BTreeSet<ContentHash>>,
    /// Stored files that its steps may read, by the identities of their bytes.
    pub pinned: Arc<BTreeMap<ContentHash, StoredContent>>,
    pub plan: Option<Arc<dyn StepPlan>>,
    /// All steps planned so far, with those that run beside another one.
    planned: BTreeSet<StepNumber>,
    /// Planned steps that have not begun.
    queued: StepQueue,
    /// Ranks of the steps, by number.
    ranks: Vec<u64>,
    /// Steps that the server checks.
    in_check: usize,
    /// Steps that have begun, by the first of each pipeline; those of a flow each on its own.
    open: BTreeMap<StepNumber, OpenPipeline>,
    flows: StepFlows,
    finished: BTreeSet<StepNumber>,
    /// The open steps that have a running attempt, or had one.
    running: BTreeSet<StepNumber>,
    early: EarlySteps,
    runs: StepRuns,
    places: DataPlaces,
    /// The outcome, once it is certain that the job does not succeed. It ends when no step is open.
    outcome: Option<JobOutcome>,
}

/// Steps that run as one pipeline, mostly a single one.
struct OpenPipeline {
    job: JobId,
    beside: Vec<StepNumber>,
    /// The node of its last attempt.
    node: Option<NodeId>,
}

/// State of a step that had begun when the server was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BegunStep {
    Open,
    Finished,
}

/// The consequence of an event for a job with steps.
#[derive(Debug, PartialEq)]
pub(crate) enum AfterStep {
    GoesOn,
    /// The jobs of its open steps must be stopped.
    Stop(Vec<JobId>),
    Over(JobOutcome),
}

/// Returns the reason of the end of a job after a failure of its step.
pub(crate) fn step_failed(name: &str, step: JobId) -> String {
    format!("the step {name:?} failed: `sailfish show {step}`")
}

/// Returns the same after a cancellation.
pub(crate) fn step_stopped(name: &str, step: JobId) -> String {
    format!("stopped with its step {name:?} (job {step})")
}

/// Returns the outcome of a job after a failure of its step. The message of a program may be secret; the job of the step has
/// it.
fn failed_with(name: &str, step: JobId, failure: &TaskFailure, exit_code: i32) -> JobOutcome {
    let message = step_failed(name, step);
    let failure = TaskFailure { exit_code: failure.exit_code, ..TaskFailure::new(failure.blame, message) };
    JobOutcome::Failed { failure, attempt: None, exit_code }
}

impl SteppedJob {
    /// Creates a job without any step; without a plan it cannot go on.
    pub fn new(owner: JobOwner, priority: i32, plan: Option<Arc<dyn StepPlan>>) -> Self {
        Self {
            owner,
            priority,
            quota: None,
            file_hold: None,
            shipped: Arc::default(),
            pinned: Arc::default(),
            plan,
            planned: BTreeSet::new(),
            queued: StepQueue::default(),
            ranks: Vec::new(),
            in_check: 0,
            open: BTreeMap::new(),
            flows: StepFlows::default(),
            finished: BTreeSet::new(),
            running: BTreeSet::new(),
            early: EarlySteps::default(),
            runs: StepRuns::default(),
            places: DataPlaces::default(),
            outcome: None,
        }
    }

    /// Sets the finished runs of its steps in earlier jobs, and ranks the steps. Must come before anything is planned or
    /// restored.
    pub fn remembers(&mut self, recorded: BTreeMap<StepNumber, Arc<RecordedRun>>) {
        self.runs = StepRuns::new(recorded);
        self.ranks = self.plan.as_deref().map(|plan| self.runs.ranks(plan)).unwrap_or_default();
    }

    /// Returns the rank of steps that run as one pipeline: the highest of theirs.
    pub fn rank(&self, steps: impl Iterator<Item = StepNumber>) -> u64 {
        let rank = |step: StepNumber| self.ranks.get(step.0 as usize).copied();
        steps.filter_map(rank).max().unwrap_or(0)
    }

    /// Takes the nodes with replicas of its stored inputs.
    pub fn learn_places(&mut self, parts: &PartNodes) {
        self.places.learn(&self.pinned, parts);
    }

    /// Returns the size of the nodes with the places of its stored inputs.
    fn placed<'a>(&'a self, size: NodeSize<'a>) -> NodeSize<'a> {
        NodeSize { places: Some(self.places.inputs()), ..size }
    }

    /// Returns the nodes near the inputs of a step, if they matter.
    pub fn near(&self, task: &RunTask) -> Option<NearStep> {
        self.places.near(task)
    }

    fn push(&mut self, step: Step) {
        self.runs.begin(step.numbers());
        self.queued.push(self.rank(step.numbers()), step);
    }

    /// Restores a step that had begun and has this job, with those beside it.
    pub fn restore(&mut self, step: StepNumber, beside: &[StepNumber], job: JobId, state: BegunStep) {
        let all = || std::iter::once(step).chain(beside.iter().copied());
        self.planned.extend(all());
        match state {
            BegunStep::Open => {
                // One whose output was lost runs again.
                all().for_each(|step| {
                    self.finished.remove(&step);
                });
                self.runs.begin(all());
                self.open.insert(step, OpenPipeline { job, beside: beside.to_vec(), node: None });
            }
            BegunStep::Finished => {
                self.finished.extend(all());
                self.runs.waits_again(step, job);
            }
        }
    }

    /// Forgets an open step and those beside it, so that they are planned again.
    pub fn not_begun(&mut self, step: StepNumber) {
        let open = self.open.remove(&step);
        self.planned.remove(&step);
        let beside = open.iter().flat_map(|open| &open.beside);
        beside.for_each(|beside| {
            self.planned.remove(beside);
        });
    }

    /// Plans the first steps, and after a restart those that may begin now. If finished runs of steps are known, their
    /// files are compared first.
    pub fn plan(&mut self, size: NodeSize<'_>) -> AfterStep {
        let plan = self.plan.clone();
        let looks = plan.as_ref().and_then(|plan| Some(self.runs.look_steps(plan.memory()?)));
        match looks.unwrap_or_default() {
            looks if looks.is_empty() => self.go_on(size),
            looks => looks.into_iter().for_each(|look| self.push(look)),
        }
        self.after()
    }

    /// Skips the steps for which finished runs stand, and plans others that may begin now.
    fn go_on(&mut self, size: NodeSize<'_>) {
        let Some(mut plan) = self.plan.clone() else { return };
        if let Some(judgement) = plan.memory().and_then(|memory| self.runs.judge(memory)) {
            let skipped: Vec<StepNumber> = judgement.skipped.difference(&self.planned).copied().collect();
            self.runs.count_skipped(skipped.len());
            // After a restart, a step that runs may write temporary files again.
            let needless = Some(judgement.needless).filter(|_| self.planned.is_empty());
            for done in [skipped, needless.unwrap_or_default()] {
                self.planned.extend(&done);
                self.finished.extend(&done);
            }
            if let Some(with_prior) = plan.with_prior(&self.runs.prior()) {
                plan = Arc::clone(self.plan.insert(with_prior));
            }
        }
        self.queue(plan.first(self.placed(size)), size);
        let finished = FinishedSteps { all: &self.finished, last: &[], begun: &self.planned };
        self.queue(plan.next(&finished, self.placed(size)), size);
    }

    /// Queues steps that may begin. Those for which a finished run stands are finished at once, and others follow.
    fn queue(&mut self, mut steps: Vec<Step>, size: NodeSize<'_>) {
        let Some(plan) = self.plan.clone().filter(|_| self.outcome.is_none()) else { return };
        while !steps.is_empty() {
            let mut last = Vec::new();
            for step in steps {
                // A kind returns some steps again, after a restart perhaps in another pipeline; those that it would lose
                // so come from the second question.
                if step.numbers().any(|number| self.planned.contains(&number)) {
                    continue;
                }
                self.planned.extend(step.numbers());
                let stands = |memory| self.runs.stands_for(memory, step.number);
                match step.beside.is_empty() && plan.memory().is_some_and(stands) {
                    true => last.push(step.number),
                    false => self.push(step),
                }
            }
            if last.is_empty() {
                return;
            }
            self.finished.extend(&last);
            self.runs.count_skipped(last.len());
            let finished = FinishedSteps { all: &self.finished, last: &last, begun: &self.planned };
            steps = plan.next(&finished, self.placed(size));
        }
    }

    /// Plans again the waiting pipelines that fit on no node any more, because the largest one is smaller now.
    pub fn fit(&mut self, size: NodeSize<'_>) {
        let is_too_large = |step: &Step| {
            let has = |task: &RunTask, nodes: &dyn WorkingNodes| {
                let (slots, resources) = (task.slots(), task.resources_of_all());
                let needs = PipelineNeeds { slots, resources, ..PipelineNeeds::default() };
                needs.resources.is_none() || nodes.could_run(&needs, None)
            };
            let exceeds = |task: &RunTask| {
                task.slots() > size.slots
                    || task.memory_bytes > size.memory_bytes
                    || size.nodes.is_some_and(|nodes| !has(task, nodes))
            };
            !step.beside.is_empty() && step.work.program().is_some_and(|task| exceeds(task))
        };
        let Some(plan) = self.plan.clone() else { return };
        let large = self.queued.take_if(is_too_large);
        if large.is_empty() {
            return;
        }
        large.iter().flat_map(Step::numbers).for_each(|number| {
            self.planned.remove(&number);
        });
        let finished = FinishedSteps { all: &self.finished, last: &[], begun: &self.planned };
        self.queue(plan.next(&finished, self.placed(size)), size);
    }

    /// Takes steps that may begin, at most `count_max`, but one at least if none is open. They must be begun or refused.
    /// None are taken while others are checked.
    pub fn take_steps(&mut self, count_max: usize) -> Vec<Step> {
        if self.in_check > 0 {
            return Vec::new();
        }
        let least = usize::from(self.open.is_empty());
        let room = OPEN_MAX.saturating_sub(self.open.len()).min(count_max).max(least);
        let mut steps = self.queued.take(room);
        self.in_check = steps.len();
        let made: Vec<StoredContent> = steps.iter_mut().flat_map(|step| self.runs.bring_made(step)).collect();
        if !made.is_empty() {
            // Those of earlier steps too: a file that is read often is brought once.
            Arc::make_mut(&mut self.pinned).extend(made.into_iter().map(|made| (made.identity(), made)));
        }
        steps
    }

    /// Takes a step that may begin while the one that writes for it runs; None if there is none, or if others may begin. It
    /// must be begun, refused or dropped. `writes` tells whether a job has a running attempt.
    pub fn take_early(
        &mut self,
        size: NodeSize,
        writes: impl Fn(JobId) -> bool,
    ) -> Option<(Step, EarlyWriter)> {
        let is_busy = self.in_check > 0 || !self.queued.is_empty() || self.runs.are_asked();
        if self.outcome.is_some() || is_busy || !self.early.has_room() || self.open.len() >= OPEN_MAX {
            return None;
        }
        let found = self.early_candidates(size, &self.planned);
        let may_be_skipped = |step: &Step| step.beside.is_empty() && self.runs.may_stand_for(step.number);
        let mut found =
            found.into_iter().filter(|(step, writer)| writes(writer.job) && !may_be_skipped(step));
        let (step, writer) = found.next()?;
        drop(found);
        self.planned.extend(step.numbers());
        self.runs.begin(step.numbers());
        self.early.began(step.number, writer.step);
        self.in_check = 1;
        Some((step, writer))
    }

    /// Returns the steps outside of `begun` that may begin while those that write for them run.
    fn early_candidates(&self, size: NodeSize, begun: &BTreeSet<StepNumber>) -> Vec<(Step, EarlyWriter)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        // Each step that runs, with the first one of its pipeline.
        let mut writers: BTreeMap<StepNumber, EarlyWriter> = BTreeMap::new();
        for step in &self.running {
            let Some(open) = self.open.get(step) else { continue };
            let writer = EarlyWriter { step: *step, job: open.job };
            writers.extend(std::iter::once(step).chain(&open.beside).map(|member| (*member, writer)));
        }
        let running: Vec<StepNumber> = writers.keys().copied().collect();
        let finished = FinishedSteps { all: &self.finished, last: &[], begun };
        let early = plan.early(&running, &finished, size).into_iter();
        early.filter_map(|early| Some((early.step, *writers.get(&early.writer)?))).collect()
    }

    /// Forgets a step that was taken to begin early: it begins with the others.
    pub fn drop_early(&mut self, steps: &[Step]) {
        self.in_check = 0;
        for step in steps {
            self.early.ended(step.number);
            step.numbers().for_each(|number| {
                self.planned.remove(&number);
            });
        }
    }

    /// Returns whether a step has succeeded.
    pub fn has_finished(&self, step: StepNumber) -> bool {
        self.finished.contains(&step)
    }

    /// Finds the open steps that began early, after a restart. Returns their jobs, with the steps that write for them.
    pub fn restore_early(&mut self, size: NodeSize) -> Vec<(JobId, EarlyWriter)> {
        // A step that waits for its first attempt may write too.
        let runs = std::mem::take(&mut self.running);
        self.running = self.open.keys().copied().collect();
        let candidates = self.early_candidates(size, &self.finished);
        self.running = runs;
        let mut restored = Vec::new();
        for (step, writer) in candidates {
            if let Some(open) = self.open.get(&step.number) {
                self.early.began(step.number, writer.step);
                restored.push((open.job, writer));
            }
        }
        restored
    }

    /// Records that the steps that were taken have these jobs, a flow those from its job on. Returns whether they may begin:
    /// the job may have been stopped meanwhile.
    pub fn begun(&mut self, jobs: &[(&Step, JobId)]) -> bool {
        self.in_check = 0;
        if self.outcome.is_some() {
            return false;
        }
        for (step, job) in jobs {
            let open = |job, beside| OpenPipeline { job, beside, node: None };
            match &step.work {
                StepWork::Flow(flow) => {
                    self.flows.begin(flow);
                    let jobs = flow.iter().zip(job.0..);
                    self.open.extend(jobs.map(|(step, job)| (step.number, open(JobId(job), Vec::new()))));
                }
                StepWork::Program(_) | StepWork::MapReduce(_) => {
                    self.open.insert(step.number, open(*job, step.beside.clone()));
                }
            }
        }
        true
    }

    /// Records that a step has a running attempt of a previous server.
    pub fn step_goes_on(&mut self, step: StepNumber) {
        self.running.insert(step);
    }

    /// Records an attempt of a step.
    pub fn step_runs(&mut self, step: StepNumber, task: Option<&RunTask>, node: NodeId) {
        self.running.insert(step);
        task.into_iter().for_each(|task| self.places.begins(task, node));
        // The tasks of a MapReduce job run on many nodes.
        if let Some(open) = self.open.get_mut(&step).filter(|_| task.is_some()) {
            open.node = Some(node);
        }
    }

    /// Records the end of an open step, and of those beside it.
    pub fn step_over(
        &mut self,
        step: StepNumber,
        name: &str,
        outcome: &JobOutcome,
        size: NodeSize<'_>,
    ) -> AfterStep {
        let Some(OpenPipeline { job, mut beside, .. }) = self.open.remove(&step) else {
            return AfterStep::GoesOn;
        };
        self.running.remove(&step);
        let writer = self.early.ended(step).filter(|writer| self.open.contains_key(writer));
        if self.flows.has(step) {
            return self.flow_step_over(step, name, job, outcome, size);
        }
        match outcome {
            JobOutcome::Succeeded(_) | JobOutcome::Done => {
                beside.push(step);
                self.succeeded(&beside, size);
                match self.early.failure_after(step) {
                    Some(failure) => self.stop(failure),
                    None => self.after(),
                }
            }
            JobOutcome::Failed { failure, .. } if self.makes_again(step, &beside, name, failure, size) => {
                self.after()
            }
            JobOutcome::Failed { failure, exit_code, .. } => {
                let outcome = failed_with(name, job, failure, *exit_code);
                // The writer goes on, as if its reader began after it.
                match writer {
                    Some(writer) => self.early.failed(writer, outcome),
                    None => return self.stop(outcome),
                }
                self.after()
            }
            JobOutcome::Cancelled { .. } => {
                self.stop(JobOutcome::Cancelled { reason: step_stopped(name, job) })
            }
        }
    }

    /// Records the end of a step of a flow: all its steps succeed together, or none.
    fn flow_step_over(
        &mut self,
        step: StepNumber,
        name: &str,
        job: JobId,
        outcome: &JobOutcome,
        size: NodeSize<'_>,
    ) -> AfterStep {
        let ends = match outcome {
            JobOutcome::Succeeded(_) | JobOutcome::Done => None,
            JobOutcome::Failed { failure, exit_code, .. } => {
                Some(failed_with(name, job, failure, *exit_code))
            }
            JobOutcome::Cancelled { .. } => Some(JobOutcome::Cancelled { reason: step_stopped(name, job) }),
        };
        match self.flows.over(step, ends) {
            FlowOver::NotYet => {}
            FlowOver::Succeeded(steps) => self.succeeded(&steps, size),
            FlowOver::Ends(outcome) => return self.stop(outcome),
        }
        self.after()
    }

    /// Returns whether a stored file is an output of a finished step.
    pub fn has_made(&self, path: &Path) -> bool {
        self.runs.has_made(path)
    }

    /// Plans again the step that wrote a stored file of which a failed step could read no replica, and the failed step
    /// after it. Returns false for any other failure.
    fn makes_again(
        &mut self,
        step: StepNumber,
        beside: &[StepNumber],
        name: &str,
        failure: &TaskFailure,
        size: NodeSize,
    ) -> bool {
        let plan = self.plan.clone().filter(|_| self.outcome.is_none());
        let Some((plan, path)) = plan.zip(failure.lost_stored()) else { return false };
        let Some(writer) = plan.memory().and_then(|memory| memory.writer_of(path)) else { return false };
        // It runs again already if another reader has found the loss.
        if self.finished.contains(&writer) && !self.runs.forget_lost(writer, name, path) {
            return false;
        }
        self.finished.remove(&writer);
        for number in [step].iter().chain(beside) {
            self.planned.remove(number);
        }
        if self.open.values().all(|open| !open.beside.contains(&writer)) && !self.open.contains_key(&writer) {
            self.planned.remove(&writer);
        }
        let finished = FinishedSteps { all: &self.finished, last: &[], begun: &self.planned };
        self.queue(plan.next(&finished, size), size);
        true
    }

    /// Plans the steps that follow on those that have succeeded together.
    fn succeeded(&mut self, last: &[StepNumber], size: NodeSize<'_>) {
        if last.iter().any(|step| step.0 >= LOOKS_FROM) {
            if last.iter().all(|step| self.runs.look_over(*step)) {
                self.go_on(size);
            }
            return;
        }
        self.finished.extend(last);
        if self.runs.are_asked() {
            // All that may begin is planned when the answers are there.
            return;
        }
        let Some(plan) = self.plan.clone() else { return };
        let finished = FinishedSteps { all: &self.finished, last, begun: &self.planned };
        self.queue(plan.next(&finished, self.placed(size)), size);
    }

    /// Takes the results of an open step, which has this job. Returns the runs to be remembered.
    pub fn ran(&mut self, step: StepNumber, job: JobId, result: RunResult) -> Vec<StepRecord> {
        let RunResult { runs, looked, .. } = result;
        if step.0 >= LOOKS_FROM {
            let refreshed = self.runs.looked(step, looked);
            return refreshed.into_iter().map(|run| StepRecord { job, run }).collect();
        }
        let Some(open) = self.open.get(&step) else { return Vec::new() };
        let numbers: Vec<StepNumber> = std::iter::once(step).chain(open.beside.iter().copied()).collect();
        if let Some(node) = open.node {
            runs.iter().flatten().for_each(|run| self.places.wrote(run, node));
        }
        let plan = self.plan.clone();
        let memory = plan.as_ref().and_then(|plan| plan.memory());
        memory.map_or(Vec::new(), |memory| self.runs.ended(memory, job, numbers.into_iter().zip(runs)))
    }

    /// Takes the notes for the history of the job; the last ones when it is over.
    pub fn take_notes(&mut self) -> Vec<(EventKind, String)> {
        if matches!(self.after(), AfterStep::Over(_)) {
            self.runs.note_skipped();
        }
        self.runs.take_notes()
    }

    /// Ends the job early: no further step begins. The first reason counts.
    pub fn stop(&mut self, outcome: JobOutcome) -> AfterStep {
        let is_first = self.outcome.is_none();
        self.outcome.get_or_insert(outcome);
        self.queued.clear();
        match is_first && !self.open.is_empty() {
            true => AfterStep::Stop(self.open_steps().collect()),
            false => self.after(),
        }
    }

    /// Ends the job because of steps that cannot begin.
    pub fn refuse(&mut self, reason: String) -> AfterStep {
        self.in_check = 0;
        let failure = TaskFailure::new(Blame::UserData, reason);
        let exit_code = crate::job::exit_code(&failure);
        self.stop(JobOutcome::Failed { failure, attempt: None, exit_code })
    }

    /// Returns the consequence of its state: it is over if nothing is left to do.
    pub fn after(&self) -> AfterStep {
        let is_busy = !self.open.is_empty() || !self.queued.is_empty();
        match (&self.outcome, is_busy || self.in_check > 0) {
            (_, true) => AfterStep::GoesOn,
            (Some(outcome), false) => AfterStep::Over(outcome.clone()),
            (None, false) => AfterStep::Over(JobOutcome::Done),
        }
    }

    /// Returns whether it does not succeed, whatever its open steps do.
    pub fn is_stopping(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns whether steps wait that may begin now.
    pub fn has_ready(&self) -> bool {
        self.in_check == 0 && !self.queued.is_empty() && self.open.len() < OPEN_MAX
    }

    /// Returns the jobs of the open steps.
    pub fn open_steps(&self) -> impl Iterator<Item = JobId> {
        self.open.values().map(|open| open.job)
    }

    /// Returns the progress: one stage, whose tasks are the steps planned so far.
    pub fn progress(&self) -> JobProgress {
        let beside = |step: &StepNumber| self.open.get(step).map_or(0, |open| open.beside.len());
        let stage = StageProgress {
            kind: StageKind::Run,
            expanded: true,
            tasks: self.planned.len() as u32,
            done: self.finished.len() as u32,
            running: self.running.iter().map(|step| 1 + beside(step) as u32).sum(),
            skipped: self.runs.skipped(),
        };
        JobProgress { stages: vec![stage], over: false, parts_ready: false }
    }
}
