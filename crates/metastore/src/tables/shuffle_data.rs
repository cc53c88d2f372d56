//! The rows of the data between stages: sources, chunks, runs, replicas, plans, proofs, parts, and the part of them
//! that a restarted server needs.

use crate::StoreError;
use crate::convert::{hash_sum_bytes, json};
use crate::database::{Rows, Session};
use api::SourceCommit;
use api::task::{ChunkSummary, ReduceTask, RunSummary};
use ids::{AttemptKey, JobId, NodeId, PlanVersion, RunId, StageIndex, TaskIndex, TaskKey};
use rows::{Change, PartReplicaRow, ProofRow, ReplicaRow};
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Data {
    sources: Rows,
    chunks: Rows,
    runs: Rows,
    run_chunks: Rows,
    runs_replaced: Rows,
    /// Rows of replicas, with the text of their chunks.
    replicas: BTreeMap<(JobId, RunId, NodeId), (ReplicaRow, String)>,
    part_replicas: BTreeMap<(JobId, TaskIndex), PartReplicaRow>,
    boundaries: Rows,
    plans: Rows,
    plan_tasks: Rows,
    proofs: Rows,
    parts: Rows,
    counters: BTreeMap<(JobId, String), i64>,
    results: BTreeMap<TaskKey, (AttemptKey, String)>,
    placements: Rows,
}

impl Data {
    pub fn take(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Sources { attempt, commits } => self.sources(*attempt, commits),
            Change::Chunks { job, chunks } => self.chunks(*job, chunks),
            Change::Runs { job, runs, replaced } => self.runs(*job, runs, replaced),
            Change::Replicas { job, replicas } => {
                for row in replicas {
                    let chunks = json(&row.chunks)?;
                    let known = self.replicas.entry((*job, row.run, row.node));
                    known
                        .and_modify(|(known, _)| known.state = row.state)
                        .or_insert_with(|| (row.clone(), chunks));
                }
            }
            Change::PartReplicas { job, replicas } => {
                self.part_replicas.extend(replicas.iter().map(|row| ((*job, row.task), *row)));
            }
            Change::Boundaries { job, boundaries, now_ns } => self.boundaries.push([
                job.0.into(),
                boundaries.version.0.into(),
                json(&boundaries.keys)?.into(),
                (*now_ns).into(),
            ]),
            Change::Plan { job, version, target_bytes, tasks, now_ns }
            | Change::PlanCut { job, version, target_bytes, tasks, now_ns } => {
                self.plan(*job, *version, *target_bytes, tasks, *now_ns)?;
            }
            Change::Proofs { job, rows } => self.proofs(*job, rows),
            Change::Part { attempt, part } => self.parts.push([
                attempt.task.job.0.into(),
                attempt.task.stage.0.into(),
                attempt.task.task.0.into(),
                attempt.attempt.0.into(),
                part.name.as_str().into(),
                part.bytes.into(),
                part.records.into(),
                part.crc32c.into(),
            ]),
            Change::Counters { job, counters } => {
                for (name, value) in counters {
                    *self.counters.entry((*job, name.clone())).or_default() += value;
                }
            }
            Change::Result { attempt, result } => {
                self.results.insert(attempt.task, (*attempt, json(result.as_ref())?));
            }
            Change::Placed { attempt, reason } => self.placements.push([
                attempt.task.job.0.into(),
                attempt.task.stage.0.into(),
                attempt.task.task.0.into(),
                attempt.attempt.0.into(),
                reason.as_str().into(),
            ]),
            other => unreachable!("{other:?} is no change of data"),
        }
        Ok(())
    }

    fn sources(&mut self, attempt: AttemptKey, commits: &[SourceCommit]) {
        for commit in commits {
            self.sources.push([
                attempt.task.job.0.into(),
                commit.ifile.0.into(),
                commit.chunk.0.into(),
                attempt.task.task.0.into(),
                attempt.attempt.0.into(),
                commit.sum.records.into(),
                commit.sum.bytes.into(),
                hash_sum_bytes(commit.sum.hash_sum).into(),
            ]);
        }
    }

    fn chunks(&mut self, job: JobId, chunks: &[ChunkSummary]) {
        for chunk in chunks {
            self.chunks.push([
                job.0.into(),
                chunk.chunk.0.into(),
                chunk.generation.into(),
                chunk.disk.0.into(),
                chunk.ifile.0.into(),
                chunk.capacity_bytes.into(),
                chunk.appended_bytes.into(),
                chunk.oversize.into(),
            ]);
        }
    }

    fn proofs(&mut self, job: JobId, rows: &[ProofRow]) {
        for row in rows {
            self.proofs.push([
                job.0.into(),
                row.ifile.0.into(),
                row.committed.records.into(),
                row.committed.bytes.into(),
                hash_sum_bytes(row.committed.hash_sum).into(),
                row.merged.records.into(),
                row.merged.bytes.into(),
                hash_sum_bytes(row.merged.hash_sum).into(),
                (row.committed == row.merged).into(),
            ]);
        }
    }

    fn runs(&mut self, job: JobId, runs: &[RunSummary], replaced: &[RunId]) {
        for run in runs {
            self.runs.push([
                job.0.into(),
                run.run.0.into(),
                run.ifile.0.into(),
                run.disk.0.into(),
                run.records.into(),
                run.record_bytes.into(),
                run.stored_bytes.into(),
                run.in_memory.into(),
                run.block_bytes_max.into(),
            ]);
            for chunk in &run.chunks {
                self.run_chunks.push([job.0.into(), run.run.0.into(), chunk.0.into()]);
            }
        }
        let Some(successor) = runs.first() else { return };
        for run in replaced {
            self.runs_replaced.push([job.0.into(), run.0.into(), successor.run.0.into()]);
        }
    }

    fn plan(
        &mut self,
        job: JobId,
        version: PlanVersion,
        target_bytes: u64,
        tasks: &[ReduceTask],
        now_ns: u64,
    ) -> Result<(), StoreError> {
        // Every task of a plan names the same attempts; an empty plan names none. An attempt that counts in one I-file
        // only has the number of that I-file as its third entry.
        let valid = tasks.iter().take(1).flat_map(|task| &task.valid_attempts);
        let older = tasks.iter().take(1).flat_map(|task| &task.older_attempts);
        let valid = valid.map(|(task, attempt)| vec![task.0, attempt.0]);
        let older = older.map(|(ifile, task, attempt)| vec![task.0, attempt.0, ifile.0]);
        let valid_attempts: Vec<Vec<u32>> = valid.chain(older).collect();
        self.plans.push([
            job.0.into(),
            version.0.into(),
            target_bytes.into(),
            json(&valid_attempts)?.into(),
            now_ns.into(),
        ]);
        for task in tasks {
            self.plan_tasks.push([
                job.0.into(),
                version.0.into(),
                task.part_index.into(),
                json(&task.ifiles)?.into(),
                json(&task.runs)?.into(),
                task.lower_key.as_ref().map(|key| key.0.as_slice()).into(),
                task.upper_key.as_ref().map(|key| key.0.as_slice()).into(),
                task.expected_bytes.into(),
            ]);
        }
        Ok(())
    }

    pub async fn write(&mut self, db: &mut Session<'_>) -> Result<(), sqlx::Error> {
        let of = std::mem::take(self);
        let columns = "job, ifile, chunk, map_task, attempt, records, bytes, hash_sum";
        db.insert("source_sums", columns, "", of.sources).await?;
        let columns = "job, chunk, generation, disk, ifile, capacity_bytes, appended_bytes, oversize";
        db.insert("chunks", columns, "", of.chunks).await?;
        let columns =
            "job, run, ifile, disk, records, record_bytes, stored_bytes, in_memory, block_bytes_max";
        db.insert("runs", columns, "", of.runs).await?;
        db.insert("run_chunks", "job, run, chunk", "", of.run_chunks).await?;
        let tail = "WHERE runs.job = v.column1 AND runs.run = v.column2";
        db.update("UPDATE runs SET replaced_by = v.column3", tail, of.runs_replaced).await?;
        db.insert("boundaries", "job, version, keys, created_ns", "", of.boundaries).await?;
        let columns = "job, version, target_bytes, valid_attempts, created_ns";
        db.insert("plans", columns, "", of.plans).await?;
        let columns = "job, version, part, ifiles, runs, lower_key, upper_key, expected_bytes";
        db.insert("plan_tasks", columns, "", of.plan_tasks).await?;
        let columns = "job, ifile, committed_records, committed_bytes, committed_hash_sum, merged_records, \
                       merged_bytes, merged_hash_sum, agrees";
        db.insert("proofs", columns, "", of.proofs).await?;
        db.insert("parts", "job, stage, task, attempt, name, bytes, records, crc32c", "", of.parts).await?;
        let counters = of.counters.into_iter();
        let rows = counters.map(|((job, name), value)| [job.0.into(), name.into(), value.into()]).collect();
        let after = "ON CONFLICT (job, name) DO UPDATE SET value = counters.value + excluded.value";
        db.insert("counters", "job, name, value", after, rows).await?;
        let results = of.results.into_values().map(|(key, result)| {
            let task = key.task;
            [task.job.0.into(), task.stage.0.into(), task.task.0.into(), key.attempt.0.into(), result.into()]
        });
        let after = "ON CONFLICT (job, stage, task) DO UPDATE SET attempt = excluded.attempt, result = excluded.result";
        db.insert("task_results", "job, stage, task, attempt, result", after, results.collect()).await?;
        db.insert("placements", "job, stage, task, attempt, reason", "", of.placements).await?;
        let replicas = of.replicas.into_iter().map(|((job, run, node), (row, chunks))| {
            let (job, run, node) = (job.0.into(), run.0.into(), node.0.into());
            let (bytes, single_ns, sending_ns) =
                (row.bytes.into(), row.single_ns.into(), row.sending_ns.into());
            [job, run, node, row.state.word().into(), chunks.into(), bytes, single_ns, sending_ns]
        });
        let columns = "job, run, node, state, chunks, bytes, single_ns, sending_ns";
        // A conflict changes only the state; the rest never changes.
        let after = "ON CONFLICT (job, run, node) DO UPDATE SET state = excluded.state";
        db.insert("run_replicas", columns, after, replicas.collect()).await?;
        let parts = of.part_replicas.into_iter().map(|((job, task), row)| {
            let times = [row.bytes.into(), row.single_ns.into(), row.sending_ns.into()];
            let [bytes, single_ns, sending_ns] = times;
            [job.0.into(), task.0.into(), row.node.0.into(), bytes, single_ns, sending_ns]
        });
        let columns = "job, task, node, bytes, single_ns, sending_ns";
        let after = "ON CONFLICT (job, task) DO UPDATE SET node = excluded.node, bytes = excluded.bytes, \
                     single_ns = excluded.single_ns, sending_ns = excluded.sending_ns";
        db.insert("part_replicas", columns, after, parts.collect()).await
    }
}

/// Renames parts. A new name may still belong to another part, so all parts get unique temporary names first.
pub(crate) async fn rename_parts(
    db: &mut Session<'_>,
    job: JobId,
    stage: StageIndex,
    names: &[(TaskIndex, String)],
) -> Result<(), sqlx::Error> {
    let rows = || {
        let row = |(task, name): &(TaskIndex, String)| {
            [job.0.into(), stage.0.into(), task.0.into(), name.as_str().into()]
        };
        names.iter().map(row).collect::<Rows>()
    };
    let tail = "WHERE parts.job = v.column1 AND parts.stage = v.column2 AND parts.task = v.column3";
    db.update("UPDATE parts SET name = '~' || v.column4", tail, rows()).await?;
    db.update("UPDATE parts SET name = v.column4", tail, rows()).await
}
