//! One job as the server knows it: the work of `crates/server/src/{job,repair,recovery}.rs` between scheduler, results and store.
//! That crate stands on databases and threads, so these few steps are written again here; they call the real code.

use super::plan::JobPlan;
use super::rows::JobRows;
use super::world::{Planted, Situation, Sometimes};
use api::{JobSpec, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId, RunId, StageIndex, TaskIndex};
use mapreduce::flow::StageState;
use mapreduce::{ExpandError, Gone, JobResults, Place, Verdict, expand};
use scheduler::{Event, FAILURES_MAX, Placement, RecoveredTask, Slot, Standing};

/// The stages of a job in which it can lose data, by number.
pub(crate) const MAP: StageIndex = StageIndex(0);
pub(crate) const MERGE: StageIndex = StageIndex(2);
pub(crate) const REDUCE: StageIndex = StageIndex(3);
pub(crate) const COMMIT: StageIndex = StageIndex(4);

pub(crate) struct Job {
    pub id: JobId,
    pub plan: JobPlan,
    pub spec: JobSpec,
    pub names: Vec<&'static str>,
    pub tasks: Vec<Vec<Task>>,
    pub results: JobResults,
    /// The reduce tasks as they were, while data that they read is made again.
    pub standing: Option<(StageIndex, Vec<Task>)>,
    /// How far it is as a stage of a flow.
    pub in_flow: StageState,
    pub succeeded: Option<bool>,
    /// Why a stage could not be made, or the last attempt failed.
    pub last_failure: String,
}

/// Consequence of a loss of data.
pub(crate) enum Loss {
    Again(RunAgain),
    FellBack,
}

pub(crate) struct RunAgain {
    pub stage: StageIndex,
    pub tasks: Vec<TaskIndex>,
    pub stands: Option<Standing>,
}

impl RunAgain {
    /// Whether a loss ends this attempt, because it works on data that is gone.
    pub fn ends(&self, attempt: AttemptKey) -> bool {
        let task = attempt.task;
        let runs_on = |stands: &Standing| stands.stage == task.stage && !stands.stops.contains(&task.task);
        task.stage > self.stage && !self.stands.as_ref().is_some_and(runs_on)
    }
}

pub(crate) fn placement(task: &Task) -> Placement {
    match mapreduce::place(task) {
        Place::Anywhere => Placement::Anywhere,
        Place::On(node) => Placement::On(node),
        Place::Near(nodes) => Placement::Near(nodes),
    }
}

impl Job {
    pub fn new(id: JobId, plan: JobPlan) -> Self {
        let spec = plan.spec(id);
        Self {
            id,
            names: mapreduce::stages(&spec),
            results: JobResults::new(id, plan.splits()),
            spec,
            plan,
            tasks: Vec::new(),
            standing: None,
            in_flow: StageState::default(),
            succeeded: None,
            last_failure: String::new(),
        }
    }

    pub fn task(&self, attempt: AttemptKey) -> Option<&Task> {
        self.stage_tasks(attempt.task.stage)?.get(attempt.task.task.0 as usize)
    }

    fn stage_tasks(&self, stage: StageIndex) -> Option<&Vec<Task>> {
        let standing = self.standing.as_ref().filter(|(standing, _)| *standing == stage);
        self.tasks.get(usize::from(stage.0)).or(standing.map(|(_, tasks)| tasks))
    }

    pub fn may_lack_data(&self, attempt: AttemptKey) -> bool {
        self.standing.as_ref().is_some_and(|(stage, _)| *stage == attempt.task.stage)
    }

    pub fn is_reducing(&self) -> bool {
        usize::from(REDUCE.0) + 1 == self.tasks.len()
    }

    pub fn is_sealed(&self) -> bool {
        usize::from(MERGE.0) < self.tasks.len()
    }

    pub fn expand_stage(
        &mut self,
        stage: StageIndex,
        rows: &mut JobRows,
    ) -> Result<Vec<Placement>, ExpandError> {
        let mut tasks = expand(self.names[usize::from(stage.0)], &self.spec, &mut self.results)?;
        if self.plan.feeds && stage == COMMIT {
            // What it puts out has no other name to get.
            tasks.clear();
        }
        rows.plan_version = self.results.plan_version.0;
        rows.stage_expanded(stage, &tasks);
        self.standing.take_if(|(standing, _)| *standing == stage);
        let placements = tasks.iter().map(placement).collect();
        self.tasks.push(tasks);
        Ok(placements)
    }

    /// Records a loss of data. Returns its consequence; None if the job goes on as before.
    pub fn lose(
        &mut self,
        gone: &Gone,
        has_left: impl Fn(NodeId) -> bool,
        rows: &mut JobRows,
        sometimes: &mut Sometimes,
    ) -> Option<Loss> {
        let current = self.tasks.len().checked_sub(1)?;
        if self.succeeded.is_some() || current == usize::from(COMMIT.0) {
            return None;
        }
        let sealed = self.is_sealed();
        let (gone, fallen) = self.results.fall_back(gone, sealed);
        for run in &fallen.standing {
            sometimes.saw(Situation::ReplicaStands);
            self.note_replica(*run, rows);
        }
        for (run, node) in &fallen.dropped {
            rows.replicas.insert((*run, *node), None);
        }
        let is_bound = matches!(self.names[current], "seal" | "merge");
        let seals_again = is_bound && !fallen.standing.is_empty();
        let stops = self.readers_of(&gone);
        let held: Vec<(RunId, NodeId)> = self.results.replicas.held().collect();
        let Some(victims) = self.results.lose(&gone, sealed, has_left, seals_again) else {
            return (!fallen.standing.is_empty()).then_some(Loss::FellBack);
        };
        for (run, node) in held.into_iter().filter(|(run, _)| self.results.replicas.get(*run).is_none()) {
            rows.replicas.insert((run, node), None);
        }
        if !victims.is_empty() {
            sometimes.saw(if sealed { Situation::LostAfterSeal } else { Situation::LostBeforeSeal });
        }
        if !self.results.reduces.is_empty() {
            sometimes.saw(Situation::ReduceStoodThroughLoss);
        }
        let stands = Some(Standing { stage: REDUCE, stops, redo: Vec::new() });
        self.reopen_maps(&victims, stands.as_ref(), rows);
        Some(Loss::Again(RunAgain { stage: MAP, tasks: victims, stands }))
    }

    pub fn note_replica(&self, run: RunId, rows: &mut JobRows) {
        for replica in self.results.replicas.each(run) {
            rows.replicas.insert((run, replica.node), Some(replica));
        }
    }

    fn readers_of(&self, gone: &Gone) -> Vec<TaskIndex> {
        let reads = |task: &Task| match task {
            Task::Reduce(reduce) => reduce.runs.iter().any(|run| gone.takes(*run, &self.results.replicas)),
            _ => false,
        };
        let reduces = self.stage_tasks(REDUCE).into_iter().flatten().enumerate();
        reduces.filter(|(_, task)| reads(task)).map(|(index, _)| TaskIndex(index as u32)).collect()
    }

    fn reopen_maps(&mut self, tasks: &[TaskIndex], stands: Option<&Standing>, rows: &mut JobRows) {
        let stands = stands.map(|standing| standing.stage);
        self.standing = stands.and_then(|stage| match self.tasks.get_mut(usize::from(stage.0)) {
            Some(tasks) => Some((stage, std::mem::take(tasks))),
            None => self.standing.take(),
        });
        self.tasks.truncate(1);
        let mut payloads = Vec::new();
        for index in tasks {
            if let Some(task @ Task::Map(_)) = self.tasks[0].get_mut(index.0 as usize) {
                if let Task::Map(map) = task {
                    map.again = self.results.again.get(index).cloned();
                }
                payloads.push((*index, task.clone()));
            }
        }
        rows.stage_reopened(MAP, &payloads, stands);
    }

    /// Whether a map attempt that succeeded may count, where it ran to replace what was lost.
    pub fn refuse_stand_in(
        &mut self,
        attempt: AttemptKey,
        result: &TaskResult,
        rows: &mut JobRows,
        planted: Option<Planted>,
        sometimes: &mut Sometimes,
    ) -> Option<RunAgain> {
        let (TaskResult::Map(map), task) = (result, attempt.task.task) else { return None };
        // A copy of an attempt that was to stand in, and gave other data: since then nothing stands any more, and this copy left out
        // what stood when it began. The verdict does not say so.
        let stood_in_for = self.results.again.contains_key(&task) || self.results.maps.contains_key(&task);
        let withholds_too_much = !map.withheld.is_empty() && !stood_in_for;
        match self.results.verdict(task, map) {
            _ if withholds_too_much && planted != Some(Planted::PartOfMapCounts) => {
                sometimes.saw(Situation::StandInStale)
            }
            Verdict::Good => {
                if self.results.again.contains_key(&task) && !map.withheld.is_empty() {
                    sometimes.saw(Situation::StoodInForLost);
                }
                return None;
            }
            Verdict::Stale => sometimes.saw(Situation::StandInStale),
            Verdict::Differs => {
                let may_differ = self.plan.gives_other_data || planted.is_some();
                assert!(may_differ, "{attempt} gives the same each time, and is said to differ");
                sometimes.saw(Situation::StandInDiffers);
                self.results.run_in_full(task);
                self.reopen_maps(&[task], None, rows);
            }
        }
        let stands = (!self.results.planned_before.is_empty()).then_some(Standing {
            stage: REDUCE,
            stops: Vec::new(),
            redo: Vec::new(),
        });
        Some(RunAgain { stage: attempt.task.stage, tasks: Vec::new(), stands })
    }

    /// Returns the data that is gone, by the result or the failure of an attempt.
    pub fn evidence(outcome: &Result<TaskResult, TaskFailure>) -> Option<Gone> {
        match outcome {
            Ok(TaskResult::Seal(seal)) if !seal.lost.is_empty() => Some(Gone::chunks(&seal.lost)),
            Err(failure) if !failure.lost_runs.is_empty() => Some(Gone::runs(&failure.lost_runs)),
            _ => None,
        }
    }

    /// The result of a winner.
    pub fn task_done(
        &mut self,
        attempt: AttemptKey,
        result: TaskResult,
        rows: &mut JobRows,
        sometimes: &mut Sometimes,
    ) {
        rows.task_done(attempt, &result);
        if let TaskResult::Merge(merge) = &result {
            sometimes.saw(Situation::RunsMerged);
            for (run, node) in self.results.forget_merged(&merge.replaced) {
                rows.replicas.insert((run, node), None);
            }
        }
        self.results.record(attempt, result);
    }

    /// The job as its rows tell, with the event that tells the scheduler.
    pub fn rebuilt(
        id: JobId,
        rows: &JobRows,
        lives: impl Fn(NodeId) -> bool,
    ) -> (Self, Vec<(AttemptKey, Slot, u64)>, Event) {
        let mut job = Self::new(id, rows.plan.clone());
        if let Some((inputs, splits)) = rows.inputs.clone() {
            job.take_inputs(inputs, splits);
        }
        for stage in 0..rows.expanded {
            let own = rows.live_tasks().filter(|(other, _, _)| usize::from(other.0) == stage);
            job.tasks.push(own.map(|(_, _, row)| (*row.payload).clone()).collect());
            if job.names[stage] == "seal" {
                job.results.seal.get_or_insert_default();
            }
        }
        for (task, again) in rows.maps_again() {
            job.results.again.insert(task, again.clone());
            job.results.regenerations = job.results.regenerations.max(again.round);
        }
        for (attempt, result) in rows.results.values() {
            job.results.record(*attempt, (**result).clone());
        }
        job.results.plan_version.0 = rows.plan_version;
        let planned = rows.live_tasks().filter_map(|(_, _, row)| match &*row.payload {
            Task::Reduce(reduce) => Some(reduce.clone()),
            _ => None,
        });
        let planned = planned.collect();
        match usize::from(REDUCE.0) < job.tasks.len() {
            true => job.results.plan = planned,
            false => job.results.planned_before = planned,
        }
        let there = rows.replicas.iter().filter(|((_, node), _)| lives(*node));
        let there = there.filter_map(|((run, _), replica)| Some((*run, replica.clone()?)));
        job.results.replicas.restore(there.collect());
        let replicas = rows.part_replicas.iter().map(|(task, node)| (*task, *node));
        job.results.restore_parts(replicas, &lives);
        let in_hand = rows.attempts.iter().filter(|(attempt, row)| {
            row.runs && usize::from(attempt.task.stage.0) + 1 == job.tasks.len() && lives(row.slot.node)
        });
        let in_hand: Vec<_> = in_hand.map(|(attempt, row)| (*attempt, row.slot, row.assigned_ns)).collect();
        let event = job.recovered(rows, &in_hand);
        (job, in_hand, event)
    }

    fn recovered(&self, rows: &JobRows, in_hand: &[(AttemptKey, Slot, u64)]) -> Event {
        let recovered =
            |task: &Task| RecoveredTask { placement: placement(task), ..RecoveredTask::default() };
        let mut tasks: Vec<Vec<RecoveredTask>> =
            self.tasks.iter().map(|stage| stage.iter().map(recovered).collect()).collect();
        for (attempt, row) in &rows.attempts {
            let (stage, index) = (usize::from(attempt.task.stage.0), attempt.task.task.0 as usize);
            if let Some(task) = tasks.get_mut(stage).and_then(|stage| stage.get_mut(index)) {
                task.attempts_started = task.attempts_started.max(attempt.attempt.0 + 1);
                task.failures += u32::from(row.failed);
            }
        }
        let mut standing = Vec::new();
        for (stage, index, row) in rows.live_tasks() {
            let known = tasks.get_mut(usize::from(stage.0)).and_then(|stage| stage.get_mut(index.0 as usize));
            match (known, row.winner) {
                (Some(task), winner) => task.winner = winner,
                (None, Some(winner)) => standing.push((stage, index, winner)),
                (None, None) => {}
            }
        }
        let later = (self.tasks.len()..self.names.len()).map(|stage| StageIndex(stage as u16));
        Event::JobRecovered {
            job: self.id,
            claim: scheduler::Claim::default(),
            stages: self.names.clone(),
            failures_max: FAILURES_MAX,
            tasks,
            running: in_hand.iter().map(|(attempt, slot, _)| (*attempt, *slot)).collect(),
            attempts_used: later.map(|stage| (stage, rows.attempts_used(stage))).collect(),
            standing,
        }
    }
}
