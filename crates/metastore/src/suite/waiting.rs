//! Tests of waiting one-task jobs.

use super::samples::{owner, submitted};
use crate::{CLUSTER_OWNER, Change, JobState, Keep, Metastore, StoreError, WaitingJobRow};
use api::history::StepOf;
use api::task::RunTask;
use api::{JobSpec, JsonText, SteppedKind};
use ids::{JobId, StageIndex, StageKind, StepNumber};
use std::path::PathBuf;
use std::sync::Arc;

fn spec_of(words_bytes: usize) -> JobSpec {
    let words = vec!["true".to_string(), "x".repeat(words_bytes)];
    JobSpec::of_one_task("job".to_string(), RunTask { words, ..RunTask::default() })
}

fn single(job: i64, words_bytes: usize, waits: bool) -> Change {
    Change::JobSubmitted {
        job: JobId(job),
        owner: CLUSTER_OWNER.to_string(),
        spec: Arc::new(spec_of(words_bytes)),
        stages: vec![StageKind::Run],
        staging: PathBuf::new(),
        disk_dirs: Vec::new(),
        user: Some("ann".to_string()),
        priority: -3,
        waits,
        step_of: None,
        now_ns: 2,
    }
}

async fn waiting(store: &Metastore, above: i64, count_max: u32) -> Result<Vec<i64>, StoreError> {
    let rows = store.waiting_jobs(JobId(above), count_max).await?;
    Ok(rows.into_iter().map(|row| row.job.0).collect())
}

async fn recovered(store: &Metastore) -> Result<Vec<i64>, StoreError> {
    Ok(store.recover().await?.jobs.into_keys().map(|job| job.0).collect())
}

pub(crate) async fn jobs_that_wait_are_told_apart(store: &Metastore) {
    let ended = |job: i64| {
        let (job, state) = (JobId(job), JobState::Cancelled);
        [
            Change::JobEnded { job, state, exit_code: Some(130), error: None, now_ns: 5 },
            Change::JobCleaned { job, kept: Keep::Nothing, now_ns: 5 },
        ]
    };
    let expanded = |job: i64| {
        let (job, tasks) = (JobId(job), vec![api::Task::Run(Box::default())]);
        Change::StageExpanded { job, stage: StageIndex(0), tasks, now_ns: 4 }
    };
    let mut changes = vec![owner("me"), submitted(JobId(1), CLUSTER_OWNER), single(2, 5, false)];
    changes.extend([3, 4, 6].map(|job| single(job, 5, true)));
    changes.push(single(5, 100_000, true));
    // This job is submitted and admitted at once.
    changes.extend([single(7, 5, true), expanded(7)]);
    store.apply(&changes).await.unwrap();
    assert_eq!(waiting(store, 0, 9).await.unwrap(), [3, 4, 5, 6]);
    assert_eq!(waiting(store, 3, 2).await.unwrap(), [4, 5]);
    assert_eq!(recovered(store).await.unwrap(), [1, 2, 7]);
    let rows = store.waiting_jobs(JobId(0), 9).await.unwrap();
    let row =
        |job, spec| WaitingJobRow { job: JobId(job), user: Some("ann".to_string()), priority: -3, spec };
    assert_eq!(rows[0], row(3, Some(spec_of(5))));
    assert_eq!(rows[2], row(5, None), "it is long");
    assert_eq!(store.job_spec(JobId(5)).await.unwrap(), Some(spec_of(100_000)));
    // One job begins, another is stopped.
    store.apply(&[&[expanded(3)], &ended(4)[..]].concat()).await.unwrap();
    assert_eq!(waiting(store, 0, 9).await.unwrap(), [5, 6]);
    assert_eq!(recovered(store).await.unwrap(), [1, 2, 3, 7]);
    let row = store.job(JobId(4)).await.unwrap().unwrap();
    assert_eq!(row.state, JobState::Cancelled);
    // A server that restarts learns the steps of unfinished jobs, finished ones too.
    let step = |job: i64, of: i64| {
        let mut step = single(job, 5, true);
        let Change::JobSubmitted { step_of, .. } = &mut step else { unreachable!("a submit") };
        *step_of = Some(StepOf {
            job: JobId(of),
            step: StepNumber(job as u32),
            beside: vec![StepNumber(70), StepNumber(4)],
        });
        step
    };
    let mut of_steps = single(11, 5, false);
    let Change::JobSubmitted { spec, stages, .. } = &mut of_steps else { unreachable!("a submit") };
    let kind = SteppedKind { kind: "some".to_string(), spec: JsonText::hidden() };
    (*spec, *stages) = (Arc::new(JobSpec::of_steps("steps".to_string(), kind)), Vec::new());
    store
        .apply(&[&[of_steps, step(12, 11), step(13, 11), step(14, 2)], &ended(13)[..]].concat())
        .await
        .unwrap();
    let mut steps = store.recover().await.unwrap().steps;
    let of_job = steps.remove(&JobId(11)).unwrap();
    let told = of_job.iter().map(|row| (row.job.0, row.step.0, row.state));
    assert!(told.eq([(12, 12, JobState::Running), (13, 13, JobState::Cancelled)]), "{of_job:?}");
    assert!(steps.is_empty(), "{steps:?}");
}
