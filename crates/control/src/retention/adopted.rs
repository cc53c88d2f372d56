//! Jobs that reduce the kept I-files of another job again.

use crate::interface::Outbox;
use crate::job::{Job, without_weights};
use crate::loss::Loss;
use api::history::EventKind;
use api::task::{AdoptResult, RunSummary};
use api::{Blame, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, RunId, StageIndex, StageKind, TaskIndex, TaskKey};
use mapreduce::{LostData, SealState};
use rows::{Change, ReplicaRow, ReplicaState};
use std::collections::BTreeSet;

impl Job {
    /// Records that a node has opened the kept I-files that this job reduces.
    pub(crate) fn adopted(&mut self, attempt: AttemptKey, adopt: AdoptResult, outbox: &mut Outbox) {
        let job = self.id();
        // The maps ran in another job; this job must prove their commits. All are written with the first task.
        let maps = self.results().maps.iter().filter(|_| attempt.task.task == TaskIndex(0));
        for (map_task, (number, map)) in maps {
            let task = TaskKey { task: *map_task, ..attempt.task };
            for commit in &map.commits {
                let number = self.results().attempt_in(*map_task, *number, commit.ifile);
                let attempt = AttemptKey { task, attempt: number };
                outbox.write(Change::Sources { attempt, commits: vec![*commit] });
            }
        }
        if let Some(why) = &adopt.missing_because {
            let count = adopt.missing.len();
            let detail = format!("{count} kept runs cannot be read ({why}): their replicas are read");
            outbox.note(job, EventKind::ReplicasStandIn, detail);
        }
        let before: BTreeSet<RunId> = self.sealed_runs().map(|run| run.run).collect();
        outbox.write(Change::Chunks { job, chunks: adopt.chunks.clone() });
        self.results_mut().record(attempt, TaskResult::Adopt(adopt));
        let runs: Vec<RunSummary> =
            self.sealed_runs().filter(|run| !before.contains(&run.run)).map(without_weights).collect();
        let standing = runs.iter().filter_map(|run| {
            let replica = self.results().replicas.get(run.run).filter(|replica| replica.stands)?;
            let (state, chunks) = (ReplicaState::Standing, replica.chunks.clone());
            let (node, bytes) = (replica.node, run.stored_bytes);
            Some(ReplicaRow { run: run.run, node, state, chunks, bytes, single_ns: 0, sending_ns: 0 })
        });
        let replicas: Vec<ReplicaRow> = standing.collect();
        outbox.write(Change::Runs { job, runs, replaced: Vec::new() });
        if !replicas.is_empty() {
            outbox.write(Change::Replicas { job, replicas });
        }
    }

    pub(crate) fn sealed_runs(&self) -> impl Iterator<Item = &RunSummary> {
        self.results().seal.iter().flat_map(|seal| &seal.runs)
    }

    /// Handles the loss of kept data that this job reduces again; `with` names the cause. No maps can recompute it:
    /// replicas are read, or the job fails.
    pub(crate) fn lose_kept(
        &mut self,
        gone: &LostData,
        with: &str,
        source: JobId,
        outbox: &mut Outbox,
    ) -> Option<Loss> {
        let stage = self.tasks().len().checked_sub(1)?;
        // Merges are bound to their nodes, and would wait for a lost one forever.
        let is_bound = gone.node.is_some() && self.stage_kinds()[stage] == StageKind::Merge;
        let (mut gone, mut fell_back) = (gone.clone(), false);
        if self.is_sealed() && !is_bound {
            let (rest, fallen) = self.results_mut().fall_back(&gone, SealState::Sealed);
            self.losses_mut().fell_back(&fallen.standing, outbox.now_ns());
            self.fallen_back(&fallen, with, outbox);
            (gone, fell_back) = (rest, !fallen.standing.is_empty());
        }
        let is_needed = match self.is_sealed() {
            true => self.results().needs_any(&gone, SealState::Sealed),
            false => self.results().adopt.iter().flatten().any(|adopt| Some(adopt.node) == gone.node),
        };
        if !is_needed {
            return fell_back.then_some(Loss::FellBack);
        }
        let message = match gone.node {
            Some(_) => format!(
                "{with}, which has kept I-files of job {source}, is gone: start it again on its disks, then reduce job \
                 {source} again"
            ),
            None => format!("kept I-files of job {source} are lost with {with}: run that job again"),
        };
        self.fails_of(TaskFailure::new(Blame::Environment, message));
        Some(Loss::ForGood(StageIndex(stage as u16)))
    }
}
