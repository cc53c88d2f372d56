//! Loss of data: jobs read replicas, or tasks run again to recompute it.

use crate::interface::Outbox;
use crate::job::Job;
use api::history::EventKind;
use api::orphaned::OrphanedData;
use api::{Blame, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, IfileIndex, NodeId, RunId, StageIndex, StageKind, TaskIndex, TaskKey};
use mapreduce::{Inventories, LostData, Verdict};
use scheduler::RetainedStage;
use std::collections::BTreeSet;

impl Job {
    /// Handles lost data; `with` names the cause. Returns the consequence if earlier stages must supply the data again;
    /// everything after a stage that runs again is forgotten.
    pub(crate) fn lose(
        &mut self,
        gone: &LostData,
        with: &str,
        has_left: impl Fn(NodeId) -> bool,
        outbox: &mut Outbox,
    ) -> Option<Loss> {
        let current = self.tasks().len().checked_sub(1)?;
        // Parts are in the staging directory, which does not belong to the node.
        if self.outcome().is_some()
            || !self.spec().kind.has_shuffle()
            || *self.stage_kinds().get(current)? == StageKind::Commit
        {
            return None;
        }
        if let Some(source) = self.spec().kind.source() {
            return self.lose_kept(gone, with, source, outbox);
        }
        let seal_state = self.seal_state();
        let (gone, fallen) = self.results_mut().fall_back(gone, seal_state);
        self.losses_mut().fell_back(&fallen.standing, outbox.now_ns());
        self.fallen_back(&fallen, with, outbox);
        // Tasks bound to a lost node, whose runs are read from replicas now, would wait for that node forever.
        let is_bound = matches!(*self.stage_kinds().get(current)?, StageKind::Seal | StageKind::Merge);
        let inventories = match is_bound && !fallen.standing.is_empty() {
            true => Inventories::ReportAgain,
            false => Inventories::Stand,
        };
        let reduces_done = self.results().reduces.len();
        self.losses_mut().lose(&gone.runs);
        let mut stops = self.readers_of(&gone);
        stops.retain(|task| !self.has_read_all(*task, &gone));
        let held: Vec<(RunId, NodeId)> = self.results().replicas.held().collect();
        let Some(victims) = self.results_mut().lose(&gone, seal_state, has_left, inventories) else {
            return (!fallen.standing.is_empty()).then_some(Loss::FellBack);
        };
        let dropped: Vec<_> =
            held.into_iter().filter(|(run, _)| self.results().replicas.get(*run).is_none()).collect();
        self.replicas_dropped(&dropped, outbox);
        let regenerations_max = self.spec().max_regenerations;
        if self.results().regenerations > regenerations_max {
            let message = format!(
                "intermediate data was lost with {with}, and was recomputed {regenerations_max} times before, which is the most that \
                 the job allows (--max-regenerations {regenerations_max})"
            );
            self.fails_of(TaskFailure::new(Blame::Environment, message));
            return Some(Loss::ForGood(StageIndex(current as u16)));
        }
        if !victims.is_empty() {
            let detail = self.told_of(with, &victims, reduces_done);
            outbox.note(self.id(), EventKind::DataLost, detail);
        }
        let stands =
            self.stage_index(StageKind::Reduce).map(|stage| RetainedStage { stage, stops, redo: Vec::new() });
        self.reopen_maps(&victims, stands.as_ref(), outbox);
        Some(Loss::Again(RunAgain { stage: self.stage_index(StageKind::Map)?, tasks: victims, stands }))
    }

    /// Readmits the runs that a new process found on the disks of a node that is about to be abandoned. Returns the
    /// accepted runs.
    pub(crate) fn readmit_runs(&mut self, before: NodeId, node: NodeId, left: &OrphanedData) -> Vec<RunId> {
        let seal_state = self.seal_state();
        let found = left.runs.iter();
        found
            .filter(|run| self.results_mut().readmit_run(before, node, run, seal_state))
            .map(|left| left.run)
            .collect()
    }

    /// Returns the reduce tasks that read lost data.
    pub(crate) fn readers_of(&self, gone: &LostData) -> Vec<TaskIndex> {
        let reads = |task: &Task| match task {
            Task::Reduce(reduce) => reduce.runs.iter().any(|run| gone.takes(*run, &self.results().replicas)),
            _ => false,
        };
        let reduces = self.stage_index(StageKind::Reduce).and_then(|stage| self.stage_tasks(stage));
        let readers = reduces.into_iter().flatten().enumerate().filter(|(_, task)| reads(task));
        readers.map(|(index, _)| TaskIndex(index as u32)).collect()
    }

    pub(crate) fn told_of(&self, with: &str, victims: &[TaskIndex], reduces_done: usize) -> String {
        let agains = || victims.iter().filter_map(|task| self.results().again.get(task));
        let ifiles: BTreeSet<IfileIndex> = agains().flat_map(|again| again.ifiles.iter().copied()).collect();
        let resent = match agains().filter(|again| again.resend.is_some()).count() {
            0 => String::new(),
            some => format!(", {some} of them from their spools, without the user's program"),
        };
        let (maps, of_maps) = (victims.len(), self.results().splits.len());
        let (ifiles, of_ifiles) = (ifiles.len(), self.ifile_count());
        format!(
            "with {with}: {maps} of {of_maps} map tasks run again for their data in {ifiles} of {of_ifiles} \
             I-files{resent}; {reduces_done} finished reduce tasks stay valid"
        )
    }

    /// Returns the chunks that a seal attempt found lost on its node, with the cause.
    pub(crate) fn lost_chunks(&self, result: &TaskResult) -> Option<(LostData, String)> {
        let TaskResult::Seal(seal) = result else { return None };
        // A chunk that is read from another node by now is not lost.
        let is_here = |chunk: &&ChunkId| self.results().replicas.chunk_home(**chunk) == chunk.node();
        let clashing = self.results().in_clashing_runs(seal);
        let lost: Vec<ChunkId> = seal.lost.iter().filter(is_here).chain(&clashing).copied().collect();
        let of_clash = "a merge that did not count had read them";
        let because = seal.lost_because.as_deref().unwrap_or(of_clash);
        let with = format!("{} chunks ({because})", lost.len());
        (!lost.is_empty()).then(|| (LostData::chunks(&lost), with))
    }

    /// Decides whether a successful map attempt counts. An attempt that ran to replace lost data does not count if it
    /// replaced too little, or if it emitted different data. Returns the rerun of its task in that case.
    pub(crate) fn refuse_stand_in(
        &mut self,
        attempt: AttemptKey,
        result: &TaskResult,
        outbox: &mut Outbox,
    ) -> Option<RunAgain> {
        let (TaskResult::Map(map), task) = (result, attempt.task.task) else { return None };
        let detail = match self.results().verdict(task, map) {
            Verdict::Good => return None,
            Verdict::Stale => {
                format!(
                    "{attempt} recomputed the data that was lost before it began; more has been lost since, so it runs again"
                )
            }
            Verdict::Differs => {
                self.results_mut().run_in_full(task);
                self.reopen_maps(&[task], None, outbox);
                format!(
                    "{attempt} emitted other data than the attempt before it: it runs in full, and all reduce tasks run again"
                )
            }
        };
        outbox.note(self.id(), EventKind::StandInRefused, detail);
        Some(RunAgain { stage: attempt.task.stage, tasks: Vec::new(), stands: self.standing_stage() })
    }

    /// Returns the stage whose finished tasks stay valid while earlier data is recomputed.
    pub(crate) fn standing_stage(&self) -> Option<RetainedStage> {
        let stands = !self.results().planned_before.is_empty();
        let stage = stands.then(|| self.stage_index(StageKind::Reduce)).flatten()?;
        Some(RetainedStage { stage, stops: Vec::new(), redo: Vec::new() })
    }
}

/// Consequence of a lost node for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The named tasks of a stage run again.
    Again(RunAgain),
    /// Replicas replace all lost data that the job needs.
    FellBack,
    /// The job cannot go on from this stage; its last failure says why.
    ForGood(StageIndex),
}

/// Tasks of a stage that run again, with all later stages except the tasks that stay valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAgain {
    pub stage: StageIndex,
    pub tasks: Vec<TaskIndex>,
    pub stands: Option<RetainedStage>,
}

impl RunAgain {
    /// Returns whether the attempts of a task of this job work on data that no longer exists.
    pub fn ends(&self, task: TaskKey) -> bool {
        let runs_on =
            |stands: &RetainedStage| stands.stage == task.stage && !stands.stops.contains(&task.task);
        task.stage > self.stage && !self.stands.as_ref().is_some_and(runs_on)
    }
}
