//! Recomputation of lost data: tasks of a finished stage wait again, and later results are deleted.

use crate::convert::json;
use crate::database::Session;
use crate::transaction::ApplyError;
use api::Task;
use ids::{JobId, StageIndex, TaskIndex};

/// Statements that delete the rows of stages after the one that runs again, except stage `$3`. Attempts, plans and
/// events are history and stay.
const STRIKE_LATER: &[&str] = &[
    "UPDATE tasks SET state = 'dropped', winner = NULL WHERE job = $1 AND stage > $2 AND stage <> $3",
    // They know no stage, so that the parts must still be there.
    "DELETE FROM part_replicas WHERE job = $1 AND task IN \
     (SELECT parts.task FROM parts WHERE parts.job = $1 AND parts.stage > $2 AND parts.stage <> $3)",
    "DELETE FROM parts WHERE job = $1 AND stage > $2 AND stage <> $3",
    "DELETE FROM task_results WHERE job = $1 AND stage > $2 AND stage <> $3",
];
const REOPEN: &[&str] = &[
    "UPDATE stages SET state = 'waiting', task_count = NULL, expanded_ns = NULL, ended_ns = NULL \
     WHERE job = $1 AND stage > $2",
    "UPDATE stages SET state = 'running', ended_ns = NULL WHERE job = $1 AND stage = $2",
];
/// Rows of one task: its result, its part, and the replica of its part.
const STRIKE_OUTCOME: &[&str] = &[
    "DELETE FROM task_results WHERE job = $1 AND stage = $2 AND task = $3",
    "DELETE FROM part_replicas WHERE job = $1 AND task = $3 AND EXISTS \
     (SELECT 1 FROM parts WHERE parts.job = $1 AND parts.stage = $2 AND parts.task = $3)",
    "DELETE FROM parts WHERE job = $1 AND stage = $2 AND task = $3",
];
/// The next seal reports all of them again. Replicas of runs are reported once, and stay.
const STRIKE_INVENTORY: &[&str] = &[
    "DELETE FROM run_chunks WHERE job = $1",
    "DELETE FROM runs WHERE job = $1",
    "DELETE FROM chunks WHERE job = $1",
];
/// No stage has this number.
const NO_STAGE: i64 = -1;

pub(crate) async fn stage_reopened(
    db: &mut Session<'_>,
    job: JobId,
    stage: StageIndex,
    tasks: &[(TaskIndex, Task)],
    retained: Option<StageIndex>,
) -> Result<(), ApplyError> {
    let retained = retained.map_or(NO_STAGE, |stage| i64::from(stage.0));
    for statement in STRIKE_LATER {
        db.execute(statement, [job.0.into(), stage.0.into(), retained.into()]).await?;
    }
    for statement in REOPEN {
        db.execute(statement, [job.0.into(), stage.0.into()]).await?;
    }
    // The inputs that reduce tasks read again stay where they are.
    let reads_again = !tasks.is_empty() && tasks.iter().all(|(_, task)| matches!(task, Task::Reduce(_)));
    for statement in STRIKE_INVENTORY.iter().filter(|_| !reads_again) {
        db.execute(statement, [job.0.into()]).await?;
    }
    for (index, task) in tasks {
        let statement = "UPDATE tasks SET state = 'waiting', winner = NULL, payload = $4 \
             WHERE job = $1 AND stage = $2 AND task = $3";
        let key = || [job.0.into(), stage.0.into(), index.0.into()];
        let [job_value, stage_value, index_value] = key();
        db.execute(statement, [job_value, stage_value, index_value, json(task)?.into()]).await?;
        for statement in STRIKE_OUTCOME {
            db.execute(statement, key()).await?;
        }
        if reads_again {
            continue;
        }
        strike_sources(db, job, *index, task).await?;
    }
    Ok(())
}

/// Deletes the commits of a map task: those to the I-files that lost any data, or all.
async fn strike_sources(
    db: &mut Session<'_>,
    job: JobId,
    index: TaskIndex,
    task: &Task,
) -> Result<(), ApplyError> {
    let again = match task {
        Task::Map(map) => map.again.as_ref(),
        _ => None,
    };
    let Some(again) = again else {
        let statement = "DELETE FROM source_sums WHERE job = $1 AND map_task = $2";
        db.execute(statement, [job.0.into(), index.0.into()]).await?;
        return Ok(());
    };
    for ifile in &again.ifiles {
        let statement = "DELETE FROM source_sums WHERE job = $1 AND ifile = $2 AND map_task = $3";
        db.execute(statement, [job.0.into(), ifile.0.into(), index.0.into()]).await?;
    }
    Ok(())
}
