//! The rows of the data between the stages: sources, chunks, runs, plans, proofs, parts.

use crate::apply::{ApplyError, Happening, event};
use crate::change::{Change, ProofRow};
use crate::convert::{hash_sum_bytes, json, stored};
use api::task::{ChunkSummary, Part, ReduceTask, RunSummary};
use api::{Boundaries, SourceCommit};
use ids::{AttemptKey, JobId, PlanVersion, RunId};
use sqlx::sqlite::SqliteConnection;
use std::collections::BTreeMap;

pub(crate) async fn apply_one(db: &mut SqliteConnection, change: &Change) -> Result<(), ApplyError> {
    match change {
        Change::Sources { attempt, commits } => sources(db, *attempt, commits).await,
        Change::Chunks { job, chunks: rows } => chunks(db, *job, rows).await,
        Change::Runs { job, runs: rows, replaced } => runs(db, *job, rows, replaced).await,
        Change::Boundaries { job, boundaries: row, now_ns } => boundaries(db, *job, row, *now_ns).await,
        Change::Plan { job, version, target_bytes, tasks, now_ns } => {
            plan(db, *job, *version, *target_bytes, tasks, *now_ns).await
        }
        Change::Proofs { job, rows } => proofs(db, *job, rows).await,
        Change::Part { attempt, part: row } => part(db, *attempt, row).await,
        Change::Counters { job, counters: values } => counters(db, *job, values).await,
        other => unreachable!("{other:?} is a change of jobs, not of data"),
    }
}

async fn sources(
    db: &mut SqliteConnection,
    attempt: AttemptKey,
    commits: &[SourceCommit],
) -> Result<(), ApplyError> {
    for commit in commits {
        sqlx::query(
            "INSERT INTO sources (job, ifile, chunk, map_task, attempt, records, bytes, hash_sum) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(attempt.task.job.0)
        .bind(i64::from(commit.ifile.0))
        .bind(stored(commit.chunk.0))
        .bind(i64::from(attempt.task.task.0))
        .bind(i64::from(attempt.attempt.0))
        .bind(stored(commit.sum.records))
        .bind(stored(commit.sum.bytes))
        .bind(hash_sum_bytes(commit.sum.hash_sum))
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

async fn chunks(db: &mut SqliteConnection, job: JobId, rows: &[ChunkSummary]) -> Result<(), ApplyError> {
    for chunk in rows {
        sqlx::query(
            "INSERT INTO chunks (job, chunk, generation, disk, ifile, capacity_bytes, appended_bytes, oversize) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(job.0)
        .bind(stored(chunk.chunk.0))
        .bind(i64::from(chunk.generation))
        .bind(i64::from(chunk.disk.0))
        .bind(i64::from(chunk.ifile.0))
        .bind(stored(chunk.capacity_bytes))
        .bind(stored(chunk.appended_bytes))
        .bind(i64::from(chunk.oversize))
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

async fn runs(
    db: &mut SqliteConnection,
    job: JobId,
    rows: &[RunSummary],
    replaced: &[RunId],
) -> Result<(), ApplyError> {
    for run in rows {
        sqlx::query(
            "INSERT INTO runs (job, run, ifile, disk, records, record_bytes, stored_bytes, in_memory, \
             block_bytes_max) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(job.0)
        .bind(stored(run.run.0))
        .bind(i64::from(run.ifile.0))
        .bind(i64::from(run.disk.0))
        .bind(stored(run.records))
        .bind(stored(run.record_bytes))
        .bind(stored(run.stored_bytes))
        .bind(i64::from(run.in_memory))
        .bind(stored(run.block_bytes_max))
        .execute(&mut *db)
        .await?;
        for chunk in &run.chunks {
            sqlx::query("INSERT INTO run_chunks (job, run, chunk) VALUES ($1, $2, $3)")
                .bind(job.0)
                .bind(stored(run.run.0))
                .bind(stored(chunk.0))
                .execute(&mut *db)
                .await?;
        }
    }
    let Some(successor) = rows.first() else { return Ok(()) };
    for run in replaced {
        sqlx::query("UPDATE runs SET replaced_by = $3 WHERE job = $1 AND run = $2")
            .bind(job.0)
            .bind(stored(run.0))
            .bind(stored(successor.run.0))
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

async fn boundaries(
    db: &mut SqliteConnection,
    job: JobId,
    row: &Boundaries,
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query("INSERT INTO boundaries (job, version, keys, created_ns) VALUES ($1, $2, $3, $4)")
        .bind(job.0)
        .bind(i64::from(row.version.0))
        .bind(json(&row.keys)?)
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    let detail = format!("version {}, {} keys", row.version.0, row.keys.len());
    event(db, &Happening::of_job(job, "boundaries fixed", now), Some(&detail)).await
}

async fn plan(
    db: &mut SqliteConnection,
    job: JobId,
    version: PlanVersion,
    target_bytes: u64,
    tasks: &[ReduceTask],
    now: u64,
) -> Result<(), ApplyError> {
    // Every task of a plan names the same attempts; an empty plan has none to name.
    let valid_attempts = tasks.first().map(|task| task.valid_attempts.as_slice()).unwrap_or_default();
    sqlx::query(
        "INSERT INTO plans (job, version, target_bytes, valid_attempts, created_ns) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(job.0)
    .bind(i64::from(version.0))
    .bind(stored(target_bytes))
    .bind(json(valid_attempts)?)
    .bind(stored(now))
    .execute(&mut *db)
    .await?;
    for task in tasks {
        sqlx::query(
            "INSERT INTO plan_tasks (job, version, part, ifiles, runs, lower_key, upper_key, expected_bytes) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(job.0)
        .bind(i64::from(version.0))
        .bind(i64::from(task.part_index))
        .bind(json(&task.ifiles)?)
        .bind(json(&task.runs)?)
        .bind(task.lower_key.as_ref().map(|key| key.0.as_slice()))
        .bind(task.upper_key.as_ref().map(|key| key.0.as_slice()))
        .bind(stored(task.expected_bytes))
        .execute(&mut *db)
        .await?;
    }
    let detail = format!("version {}, {} reduce tasks", version.0, tasks.len());
    event(db, &Happening::of_job(job, "plan fixed", now), Some(&detail)).await
}

async fn proofs(db: &mut SqliteConnection, job: JobId, rows: &[ProofRow]) -> Result<(), ApplyError> {
    for row in rows {
        sqlx::query(
            "INSERT INTO proofs (job, ifile, committed_records, committed_bytes, committed_hash_sum, \
             merged_records, merged_bytes, merged_hash_sum, agrees) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(job.0)
        .bind(i64::from(row.ifile.0))
        .bind(stored(row.committed.records))
        .bind(stored(row.committed.bytes))
        .bind(hash_sum_bytes(row.committed.hash_sum))
        .bind(stored(row.merged.records))
        .bind(stored(row.merged.bytes))
        .bind(hash_sum_bytes(row.merged.hash_sum))
        .bind(i64::from(row.committed == row.merged))
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

async fn part(db: &mut SqliteConnection, attempt: AttemptKey, row: &Part) -> Result<(), ApplyError> {
    sqlx::query(
        "INSERT INTO parts (job, stage, task, attempt, name, bytes, records, crc32c) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(attempt.task.job.0)
    .bind(i64::from(attempt.task.stage.0))
    .bind(i64::from(attempt.task.task.0))
    .bind(i64::from(attempt.attempt.0))
    .bind(&row.name)
    .bind(stored(row.bytes))
    .bind(stored(row.records))
    .bind(i64::from(row.crc32c))
    .execute(db)
    .await?;
    Ok(())
}

async fn counters(
    db: &mut SqliteConnection,
    job: JobId,
    values: &BTreeMap<String, i64>,
) -> Result<(), ApplyError> {
    for (name, value) in values {
        sqlx::query(
            "INSERT INTO counters (job, name, value) VALUES ($1, $2, $3) \
             ON CONFLICT (job, name) DO UPDATE SET value = counters.value + excluded.value",
        )
        .bind(job.0)
        .bind(name)
        .bind(*value)
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}
