//! Creation of the tasks of a stage from the results of earlier stages.

use crate::interface::Outbox;
use crate::job::Job;
use api::{Blame, Task, TaskFailure};
use ids::{Placement, StageIndex, StageKind, TaskIndex};
use mapreduce::{ExpandError, Proof, SealState, expand, placement, prove};
use rows::{Change, ProofRow};
use scheduler::RetainedStage;
use std::sync::Arc;

impl Job {
    /// Creates the tasks of a stage. Returns the placement of each. On an error the job must fail.
    pub(crate) fn expand_stage(
        &mut self,
        stage: StageIndex,
        outbox: &mut Outbox,
    ) -> Result<Vec<Placement>, ExpandError> {
        let job = self.id;
        if let Some(before) = stage.0.checked_sub(1) {
            outbox.write(Change::StageEnded { job, stage: StageIndex(before), now_ns: outbox.now_ns() });
        }
        let kind = self.stage_kinds[usize::from(stage.0)];
        let spec = Arc::clone(&self.spec);
        let tasks = expand(kind, &spec, &mut self.results)?;
        if kind == StageKind::Commit {
            outbox.write(self.proofs(&prove(&self.results, self.ifile_count())));
        }
        if kind == StageKind::Reduce {
            outbox.write(Change::Plan {
                job,
                version: self.results.plan_version,
                target_bytes: self.results.target_bytes,
                tasks: self.results.plan.clone(),
                now_ns: outbox.now_ns(),
            });
        }
        if let [Task::Commit(commit)] = &tasks[..] {
            self.report = Some(commit.report.clone());
            outbox.write_all(self.renamed_parts(&commit.parts));
            self.summarize_replication(outbox);
            let (report, counters) = (commit.report.clone(), self.results.counters());
            outbox.write(Change::Counters { job, counters });
            outbox.write(Change::JobCommitting { job, report, now_ns: outbox.now_ns() });
        }
        // The parts of a stage that feeds others get no final name: its commit only records the run, if that is asked for.
        let has_tasks = kind != StageKind::Commit || !spec.feeds() || spec.recording.is_some();
        let tasks = if has_tasks { tasks } else { Vec::new() };
        outbox.write(Change::StageExpanded { job, stage, tasks: tasks.clone(), now_ns: outbox.now_ns() });
        let placements = tasks.iter().map(placement).collect();
        self.standing.take_if(|(standing, _)| *standing == stage);
        self.tasks.push(tasks);
        Ok(placements)
    }

    /// Reopens reduce tasks as they are planned now.
    pub(crate) fn reopen_reduces(&mut self, tasks: &[TaskIndex], outbox: &mut Outbox) -> Option<StageIndex> {
        let stage = self.stage_index(StageKind::Reduce)?;
        let planned = self.tasks.get_mut(usize::from(stage.0))?;
        let mut payloads = Vec::with_capacity(tasks.len());
        for index in tasks {
            let again = self.results.plan.get(index.0 as usize).cloned().map(Task::Reduce);
            if let Some((place, again)) = planned.get_mut(index.0 as usize).zip(again) {
                *place = again;
                payloads.push((*index, place.clone()));
            }
        }
        let job = self.id;
        outbox.write(Change::StageReopened {
            job,
            stage,
            tasks: payloads,
            retained: None,
            now_ns: outbox.now_ns(),
        });
        Some(stage)
    }

    /// Reopens map tasks, each for the I-files that `results` names. The later stages are created anew.
    pub(crate) fn reopen_maps(
        &mut self,
        tasks: &[TaskIndex],
        retained: Option<&RetainedStage>,
        outbox: &mut Outbox,
    ) {
        let Some(stage) = self.stage_index(StageKind::Map) else { return };
        let maps = usize::from(stage.0);
        let retained = retained.map(|standing| standing.stage);
        self.standing = retained.and_then(|stage| match self.tasks.get_mut(usize::from(stage.0)) {
            Some(tasks) => Some((stage, std::mem::take(tasks))),
            None => self.standing.take(),
        });
        self.tasks.truncate(maps + 1);
        let mut payloads = Vec::new();
        for index in tasks {
            if let Some(task @ Task::Map(_)) = self.tasks[maps].get_mut(index.0 as usize) {
                if let Task::Map(map) = task {
                    map.again = self.results.again.get(index).cloned();
                }
                payloads.push((*index, task.clone()));
            }
        }
        let job = self.id;
        outbox.write(Change::StageReopened {
            job,
            stage,
            tasks: payloads,
            retained,
            now_ns: outbox.now_ns(),
        });
    }

    pub(crate) fn seal_state(&self) -> SealState {
        match self.stage_index(StageKind::Merge) {
            Some(merge) if usize::from(merge.0) < self.tasks.len() => SealState::Sealed,
            _ => SealState::Open,
        }
    }

    /// Returns whether all chunks of the maps are sealed as runs.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal_state() == SealState::Sealed
    }

    /// Records that a stage could not be created: the job fails.
    pub(crate) fn stage_failed(&mut self, error: &ExpandError, outbox: &mut Outbox) {
        if let ExpandError::Proof(proof) = error {
            outbox.write(self.proofs(proof));
        }
        let blame = match error {
            ExpandError::KeptRunMissing(_) => Blame::Environment,
            _ => Blame::Engine,
        };
        self.last_failure = Some(TaskFailure::new(blame, error.to_string()));
    }

    pub(crate) fn ifile_count(&self) -> u32 {
        if self.spec.kind.has_shuffle() { self.spec.layout.ifile_count } else { 0 }
    }

    pub(crate) fn proofs(&self, proof: &Proof) -> Change {
        let row = |row: &mapreduce::IfileProof| ProofRow {
            ifile: row.ifile,
            committed: row.committed,
            merged: row.merged,
        };
        Change::Proofs { job: self.id, rows: proof.ifiles.iter().map(row).collect() }
    }
}
