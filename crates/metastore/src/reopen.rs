//! Data that was lost is made again: tasks of a finished stage wait once more, and what was made after it is struck.

use crate::database::{Rows, Session};
use ids::{JobId, StageIndex, TaskIndex};

/// What belongs to the stages after the one that runs again. Attempts, plans and events are history and stay.
const STRIKE_LATER: &[&str] = &[
    "UPDATE stages SET state = 'waiting', task_count = NULL, expanded_ns = NULL, ended_ns = NULL \
     WHERE job = $1 AND stage > $2",
    "UPDATE tasks SET state = 'dropped', winner = NULL WHERE job = $1 AND stage > $2",
    "DELETE FROM parts WHERE job = $1 AND stage > $2",
    "DELETE FROM results WHERE job = $1 AND stage > $2",
    "UPDATE stages SET state = 'running', ended_ns = NULL WHERE job = $1 AND stage = $2",
];
/// The next seal tells them all.
const STRIKE_INVENTORY: &[&str] = &[
    "DELETE FROM replicas WHERE job = $1",
    "DELETE FROM run_chunks WHERE job = $1",
    "DELETE FROM runs WHERE job = $1",
    "DELETE FROM chunks WHERE job = $1",
];

pub(crate) async fn stage_reopened(
    db: &mut Session<'_>,
    job: JobId,
    stage: StageIndex,
    tasks: &[TaskIndex],
) -> Result<(), sqlx::Error> {
    for statement in STRIKE_LATER {
        db.execute(statement, [job.0.into(), stage.0.into()]).await?;
    }
    for statement in STRIKE_INVENTORY {
        db.execute(statement, [job.0.into()]).await?;
    }
    let keys =
        || -> Rows { tasks.iter().map(|task| [job.0.into(), stage.0.into(), task.0.into()]).collect() };
    let tail = "WHERE tasks.job = v.column1 AND tasks.stage = v.column2 AND tasks.task = v.column3";
    db.update("UPDATE tasks SET state = 'waiting', winner = NULL", tail, keys()).await?;
    for task in tasks {
        let statement = "DELETE FROM results WHERE job = $1 AND stage = $2 AND task = $3";
        db.execute(statement, [job.0.into(), stage.0.into(), task.0.into()]).await?;
        let statement = "DELETE FROM sources WHERE job = $1 AND map_task = $2";
        db.execute(statement, [job.0.into(), task.0.into()]).await?;
    }
    Ok(())
}
