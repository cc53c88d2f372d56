//! Tests of lost data and its recomputation.

use super::{attempt, half_run, map_commits, seal, started, submitted, won};
use crate::{CLUSTER_OWNER, Change, Metastore, PartReplicaRow};
use api::task::{MapAgain, MapResult, Part, ReduceResult, ReduceTask};
use api::{DataSum, SourceCommit, Task, TaskResult};
use ids::*;
use rows::TaskState;
use std::collections::BTreeMap;

/// Loses the map of a half-run job, which runs again; its seals, whose rows existed before, follow.
pub(crate) async fn lost_data_is_made_again(store: &Metastore) {
    let job = store.reserve_job_id().await.unwrap();
    store.apply(&half_run(job)).await.unwrap();
    let (stage, tasks) = (StageIndex(0), vec![(TaskIndex(0), super::map_task(None))]);
    let part = Part { name: "part-00000".to_string(), ..Part::default() };
    let of_seal = Change::Part { attempt: attempt(job, 1, 0, 0), part };
    let again = attempt(job, 0, 0, 1);
    let started = Change::AttemptStarted { attempt: again, node: NodeId(1), slot: 0, now_ns: 21 };
    store
        .apply(&[of_seal, Change::StageReopened { job, stage, tasks, retained: None, now_ns: 20 }, started])
        .await
        .unwrap();
    assert!(store.chunks(job).await.unwrap().is_empty() && store.runs(job).await.unwrap().is_empty());
    assert!(store.winning_commits(job).await.unwrap().is_empty());
    assert!(store.parts(job).await.unwrap().is_empty());
    // Replicas are reported once, and may be read again.
    assert_eq!(store.replicas(job).await.unwrap().len(), 1);
    assert!(store.recover().await.unwrap().jobs[&job].results.is_empty());
    let states = async || {
        let tasks = store.tasks(job).await.unwrap();
        tasks.into_iter().map(|row| (row.state, row.winner)).collect::<Vec<_>>()
    };
    let is = |state| (state, None);
    assert_eq!(states().await, [is(TaskState::Running), is(TaskState::Dropped), is(TaskState::Dropped)]);
    let stages = store.stages(job).await.unwrap();
    let seen: Vec<_> = stages.iter().map(|row| (row.state.word(), row.task_count)).collect();
    assert_eq!(seen, [("running", Some(1)), ("waiting", None)]);
    let seals = vec![seal()];
    store
        .apply(&[
            Change::TaskDone { attempt: again, now_ns: 22 },
            Change::Sources { attempt: again, commits: map_commits() },
            Change::StageExpanded { job, stage: StageIndex(1), tasks: seals, now_ns: 22 },
        ])
        .await
        .unwrap();
    let won = (TaskState::Done, Some(AttemptNumber(1)));
    assert_eq!(states().await, [won, is(TaskState::Waiting), is(TaskState::Dropped)]);
    assert_eq!(store.attempts(job).await.unwrap().len(), 4);
}

/// Loses half of the committed data of a map while a reduce task is done.
pub(crate) async fn what_is_done_stands_while_lost_data_is_made_again(store: &Metastore) {
    let job = store.reserve_job_id().await.unwrap();
    let (maps, reduces) = (StageIndex(0), StageIndex(1));
    let of = |ifile, chunk| SourceCommit {
        ifile: IfileIndex(ifile),
        chunk: ChunkId(chunk),
        sum: DataSum { records: 1, bytes: 2, hash_sum: 3 },
    };
    let part = |number: u32| Part { name: format!("part-{number:05}"), ..Part::default() };
    let reduced = |number| TaskResult::Reduce(ReduceResult { part: part(number), ..ReduceResult::default() });
    let planned =
        |version| Task::Reduce(ReduceTask { plan_version: PlanVersion(version), ..super::reduce_task() });
    let mut changes = vec![submitted(job, CLUSTER_OWNER)];
    changes.push(Change::StageExpanded { job, stage: maps, tasks: vec![super::map_task(None)], now_ns: 4 });
    changes.push(started(attempt(job, 0, 0, 0)));
    changes.extend(won(attempt(job, 0, 0, 0), TaskResult::Map(MapResult::default())));
    changes.push(Change::Sources { attempt: attempt(job, 0, 0, 0), commits: vec![of(0, 1), of(1, 2)] });
    changes.push(Change::StageExpanded {
        job,
        stage: reduces,
        tasks: vec![planned(1), planned(1)],
        now_ns: 5,
    });
    changes.push(started(attempt(job, 1, 1, 0)));
    changes.extend(won(attempt(job, 1, 1, 0), reduced(1)));
    changes.push(Change::Part { attempt: attempt(job, 1, 1, 0), part: part(1) });
    store.apply(&changes).await.unwrap();
    let again = MapAgain {
        round: 1,
        ifiles: vec![IfileIndex(1)],
        expected: vec![(IfileIndex(1), of(1, 2).sum)],
        standing: vec![(AttemptNumber(0), of(0, 1))],
        resend: None,
    };
    let tasks = vec![(TaskIndex(0), super::map_task(Some(again.clone())))];
    let reopened = Change::StageReopened { job, stage: maps, tasks, retained: Some(reduces), now_ns: 9 };
    store.apply(&[reopened]).await.unwrap();
    let back = store.recover().await.unwrap().jobs.remove(&job).unwrap();
    assert_eq!(back.tasks[0].payload, super::map_task(Some(again)));
    let winners: Vec<_> = back.tasks.iter().map(|row| (row.state.word(), row.winner)).collect();
    let first = Some(AttemptNumber(0));
    assert_eq!(winners, [("waiting", None), ("waiting", None), ("done", first)]);
    assert_eq!(back.results, [(attempt(job, 1, 1, 0), reduced(1))]);
    assert_eq!(back.stages[1].task_count, None);
    // First only the surviving data of the first attempt, then also the data of the second.
    let earlier = (AttemptNumber(0), of(0, 1));
    assert_eq!(back.commits, BTreeMap::from([(TaskIndex(0), vec![earlier])]));
    let stand_in = attempt(job, 0, 0, 1);
    store
        .apply(&[
            started(stand_in),
            Change::TaskDone { attempt: stand_in, now_ns: 11 },
            Change::Sources { attempt: stand_in, commits: vec![of(1, 7)] },
            Change::StageExpanded { job, stage: reduces, tasks: vec![planned(2), planned(2)], now_ns: 12 },
        ])
        .await
        .unwrap();
    let commits = store.winning_commits(job).await.unwrap();
    assert_eq!(commits[&TaskIndex(0)], [earlier, (AttemptNumber(1), of(1, 7))]);
    let tasks = store.tasks(job).await.unwrap();
    assert!(tasks[1..].iter().all(|row| row.payload == planned(2)));
    assert_eq!((tasks[1].winner, tasks[2].winner), (None, first));
    assert_eq!((tasks[2].state.word(), store.parts(job).await.unwrap().len()), ("done", 1));
}

/// A part that is made again has no replica yet, under whatever number its task has in other stages.
pub(crate) async fn replicas_of_parts_go_with_their_tasks(store: &Metastore) {
    let (maps, reduces) = (StageIndex(0), StageIndex(1));
    let jobs = store.reserve_job_ids(2).await.unwrap();
    let [job, other] = [0, 1].map(|offset| JobId(jobs.start.0 + offset));
    for job in [job, other] {
        let expanded = |stage, tasks| Change::StageExpanded { job, stage, tasks, now_ns: 4 };
        let mut changes = vec![submitted(job, CLUSTER_OWNER), expanded(maps, vec![super::map_task(None); 3])];
        changes.push(expanded(reduces, vec![Task::Reduce(super::reduce_task()); 3]));
        for task in 0..3 {
            let part = Part { name: format!("part-{task:05}"), ..Part::default() };
            let result = TaskResult::Reduce(ReduceResult { part: part.clone(), ..ReduceResult::default() });
            changes.push(started(attempt(job, 1, task, 0)));
            changes.extend(won(attempt(job, 1, task, 0), result));
            changes.push(Change::Part { attempt: attempt(job, 1, task, 0), part });
            let row = PartReplicaRow { task: TaskIndex(task), ..super::part_replica(2) };
            changes.push(Change::PartReplicas { job, replicas: vec![row] });
        }
        store.apply(&changes).await.unwrap();
    }
    let replicated = async |job| {
        let recovered = store.recover().await.unwrap();
        recovered.jobs[&job].part_replicas.iter().map(|row| row.task.0).collect::<Vec<_>>()
    };
    let reopened = async |stage, tasks, retained| {
        let reopened = Change::StageReopened { job, stage, tasks, retained, now_ns: 9 };
        store.apply(&[reopened]).await.unwrap();
    };
    reopened(reduces, vec![(TaskIndex(1), Task::Reduce(super::reduce_task()))], None).await;
    assert_eq!(replicated(job).await, [0, 2]);
    // A map runs again, and the reduce tasks that are done stand.
    reopened(maps, vec![(TaskIndex(2), super::map_task(None))], Some(reduces)).await;
    assert_eq!(replicated(job).await, [0, 2]);
    reopened(maps, vec![(TaskIndex(2), super::map_task(None))], None).await;
    assert_eq!(replicated(job).await, [0; 0]);
    assert_eq!(replicated(other).await, [0, 1, 2]);
}
