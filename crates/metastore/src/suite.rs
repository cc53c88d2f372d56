//! The one suite of the store, for every back-end: each function takes an open, empty store. Both back-ends run the
//! same list of them, at the end.

use crate::{
    AttemptState, CLUSTER_OWNER, Change, DiskRow, DiskState, JobState, Keep, KeptFiles, Metastore, NodeRow,
    NodeState, PartReplicaRow, ProofRow, ReplicaRow, ReplicaState, SampleRow,
};
use api::history::EventKind;
use api::kept::{KeptDir, KeptPlace};
use api::task::{
    ChunkSummary, KeyWeight, MapAgain, MapResult, MapTask, Part, ReduceTask, RunSummary, SealResult,
};
use api::{
    Blame, Boundaries, DataSum, FlowStage, JobSpec, KeyBytes, MapReduce, SourceCommit, Split, Task,
    TaskFailure, TaskResult,
};
use ids::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

mod cluster_files;
mod files;
mod finished_runs;
mod intermediate_files;
mod listing;
mod lost_data;
mod samples;
mod secrets;
mod table_names;
mod usage;
mod waiting;

use cluster_files::{
    committed_puts_are_remembered_until_forgotten, disks_with_files_keep_their_numbers,
    given_up_puts_go_in_steps, groups_have_members_and_names_keep_them, later_sessions_end_earlier_ones,
    numbers_of_puts_are_reserved, recorded_files_are_replaced_and_forgotten,
    replicas_are_found_by_their_files, trees_are_retired_apart,
};
use files::{
    files_have_names_and_versions, old_versions_go_unless_they_are_read, puts_are_remembered_until_they_end,
};
use finished_runs::last_run_of_each_path_is_found;
use intermediate_files::intermediate_files_are_remembered;
use listing::{
    dead_nodes_are_listed_for_a_while, jobs_are_listed_by_state_user_and_name, logs_of_tasks_are_no_events,
};
use lost_data::{
    lost_data_is_made_again, replicas_of_parts_go_with_their_tasks,
    what_is_done_stands_while_lost_data_is_made_again,
};
pub(crate) use samples::spec;
use samples::{attempt, new_job, owner, seal, submitted};
use secrets::{
    answers_end_where_they_are_large, keys_of_data_ports_are_remembered, nodes_are_known_by_their_secrets,
    people_come_by_their_tokens, programs_are_hidden_from_questions,
};
use table_names::questions_find_tables_by_both_names;
use usage::{
    accounts_add_up_by_day_user_job, accounts_stay_for_days_and_within_bounds, steps_count_for_their_jobs,
};
use waiting::jobs_that_wait_are_told_apart;

pub(crate) async fn a_job_is_remembered(store: &Metastore) {
    let job = new_job(store).await;
    let row = store.job(job).await.unwrap().unwrap();
    assert_eq!((row.state, row.name.as_str(), row.cleaned_ns), (JobState::Running, "a job", None));
    assert_eq!((row.user.as_deref(), row.priority), (Some("ann"), -3));
    assert_eq!((row.staging, row.disk_dirs), (PathBuf::from("/.out"), vec![PathBuf::from("/disk/job")]));
    assert_eq!(store.job_spec(job).await.unwrap(), Some(spec()));
    assert_eq!(store.job_report(job).await.unwrap(), None);
    assert_eq!(store.job(JobId(99)).await.unwrap(), None);
    let (state, exit_code, error) = (JobState::Failed, Some(3), Some("no".to_string()));
    let ended = Change::JobEnded { job, state, exit_code, error, now_ns: 9 };
    store.apply(&[ended, Change::JobCleaned { job, kept: Keep::Nothing, now_ns: 10 }]).await.unwrap();
    let row = store.jobs(10).await.unwrap().remove(0);
    assert_eq!((row.state, row.exit_code, row.error.as_deref()), (JobState::Failed, Some(3), Some("no")));
    assert_eq!((row.ended_ns, row.cleaned_ns), (Some(9), Some(10)));
    let kinds: Vec<&str> =
        store.events(job, 10).await.unwrap().into_iter().map(|event| event.kind.word()).collect();
    assert_eq!(kinds, ["job submitted", "job failed"]);
}

pub(crate) async fn numbers_of_jobs_are_never_given_twice(store: &Metastore) {
    let first = store.reserve_job_id().await.unwrap();
    let second = store.reserve_job_id().await.unwrap();
    assert_eq!((first, second), (JobId(1), JobId(2)));
    assert_eq!(store.reserve_job_ids(5).await.unwrap(), JobId(3)..JobId(8));
    assert_eq!(store.reserve_job_id().await.unwrap(), JobId(8));
    assert_eq!(store.reserve_node_id().await.unwrap(), NodeId(1));
}

pub(crate) async fn all_changes_or_none(store: &Metastore) {
    let job = new_job(store).await;
    let note = Change::Note { job: Some(job), kind: EventKind::Status, detail: "x".to_string(), now_ns: 3 };
    // The second change violates a primary key.
    assert!(store.apply(&[note, submitted(job, "me")]).await.is_err());
    assert_eq!(store.events(job, 10).await.unwrap().len(), 1);
    // A job of an unknown owner violates a foreign key.
    assert!(store.apply(&[submitted(JobId(77), "nobody")]).await.is_err());
    assert_eq!(store.job(JobId(77)).await.unwrap(), None);
}

pub(crate) async fn attempts_have_a_history(store: &Metastore) {
    let job = new_job(store).await;
    let map = map_task(None);
    let failure = TaskFailure::new(Blame::UserProgram, "it died");
    let (first, second) = (attempt(job, 0, 0, 0), attempt(job, 0, 0, 1));
    let start = |attempt| Change::AttemptStarted { attempt, node: NodeId(0), slot: 1, now_ns: 5 };
    let end = |attempt, state, failure| Change::AttemptEnded {
        attempt,
        state,
        started_ns: 6,
        opened_ns: Some(7),
        ended_ns: 8,
        failure,
    };
    store
        .apply(&[
            Change::StageExpanded { job, stage: StageIndex(0), tasks: vec![map.clone()], now_ns: 4 },
            start(first),
            end(first, AttemptState::Failed, Some(failure.clone())),
            Change::TaskRetried { task: first.task, now_ns: 8 },
            start(second),
            end(second, AttemptState::Succeeded, None),
            Change::TaskDone { attempt: second, now_ns: 8 },
            Change::StageEnded { job, stage: StageIndex(0), now_ns: 8 },
            Change::StageExpanded { job, stage: StageIndex(1), tasks: vec![seal()], now_ns: 9 },
            start(attempt(job, 1, 0, 0)),
            Change::JobEnded { job, state: JobState::Interrupted, exit_code: None, error: None, now_ns: 11 },
        ])
        .await
        .unwrap();
    let attempts = store.attempts(job).await.unwrap();
    let states: Vec<AttemptState> = attempts.iter().map(|row| row.state).collect();
    assert_eq!(states, [AttemptState::Failed, AttemptState::Succeeded, AttemptState::Interrupted]);
    assert_eq!(attempts[0].failure, Some(failure));
    assert_eq!((attempts[1].started_ns, attempts[1].ended_ns, attempts[1].slot), (Some(6), Some(8), 1));
    assert_eq!(attempts[1].opened_ns, Some(7));
    let tasks = store.tasks(job).await.unwrap();
    assert_eq!((tasks[0].state.word(), tasks[0].winner), ("done", Some(AttemptNumber(1))));
    assert_eq!(tasks[0].payload, map);
    assert_eq!((tasks[1].state.word(), tasks[1].winner), ("waiting", None));
    let stages = store.stages(job).await.unwrap();
    assert_eq!((stages[0].state.word(), stages[0].tasks_done), ("done", 1));
    assert_eq!((stages[1].state.word(), stages[1].tasks_done), ("running", 0));
}

pub(crate) async fn data_between_the_stages_is_remembered(store: &Metastore) {
    let job = new_job(store).await;
    let sum = DataSum { records: 3, bytes: 30, hash_sum: u128::MAX - 5 };
    let boundaries = Boundaries { version: BoundariesVersion(1), keys: vec![KeyBytes(vec![0, 255])] };
    let proof = ProofRow { ifile: IfileIndex(1), committed: sum, merged: DataSum::default() };
    let part = Part {
        name: "part-00000".to_string(),
        attempt_name: ".part-00000.attempt-0".to_string(),
        bytes: 12,
        records: 2,
        crc32c: u32::MAX,
        ..Part::default()
    };
    let counters = BTreeMap::from([("lines".to_string(), 4)]);
    store
        .apply(&[
            Change::Sources {
                attempt: attempt(job, 0, 0, 0),
                commits: vec![SourceCommit { ifile: IfileIndex(1), chunk: ChunkId(2), sum }],
            },
            Change::Chunks { job, chunks: vec![chunk()] },
            Change::Runs { job, runs: vec![run(5)], replaced: Vec::new() },
            Change::Runs { job, runs: vec![run(6)], replaced: vec![RunId(5)] },
            Change::Boundaries { job, boundaries: boundaries.clone(), now_ns: 3 },
            Change::Plan {
                job,
                version: PlanVersion(1),
                target_bytes: 100,
                tasks: vec![reduce_task()],
                now_ns: 4,
            },
            Change::Proofs { job, rows: vec![proof] },
            Change::Part { attempt: attempt(job, 3, 0, 0), part },
            Change::Counters { job, counters: counters.clone() },
            Change::Counters { job, counters },
        ])
        .await
        .unwrap();
    assert_eq!(store.chunks(job).await.unwrap()[0].appended_bytes, 30);
    let commits = store.winning_commits(job).await.unwrap();
    let expected = SourceCommit { ifile: IfileIndex(1), chunk: ChunkId(2), sum };
    assert_eq!(commits, BTreeMap::from([(TaskIndex(0), vec![(AttemptNumber(0), expected)])]));
    let runs = store.runs(job).await.unwrap();
    assert_eq!((runs[0].replaced_by, runs[1].replaced_by), (Some(RunId(6)), None));
    assert_eq!(store.boundaries(job).await.unwrap(), Some(boundaries));
    let plan = store.plan_tasks(job).await.unwrap().remove(0);
    assert_eq!((plan.lower_key, plan.upper_key), (None, Some(KeyBytes(b"m".to_vec()))));
    assert_eq!((plan.runs, plan.ifiles), (vec![RunId(6)], vec![IfileIndex(1)]));
    assert_eq!(store.proofs(job).await.unwrap(), [proof]);
    assert_eq!(store.parts(job).await.unwrap()[0].crc32c, u32::MAX);
    assert_eq!(store.counters(job).await.unwrap(), [("lines".to_string(), 8)]);
}

fn chunk() -> ChunkSummary {
    ChunkSummary {
        chunk: ChunkId(2),
        ifile: IfileIndex(1),
        generation: 0,
        disk: DiskIndex(0),
        capacity_bytes: 100,
        appended_bytes: 30,
        oversize: false,
        sources: Vec::new(),
    }
}

fn run(id: u64) -> RunSummary {
    RunSummary {
        run: RunId(id),
        ifile: IfileIndex(1),
        chunks: vec![ChunkId(2)],
        records: 3,
        record_bytes: 30,
        stored_bytes: 0,
        in_memory: true,
        disk: DiskIndex(0),
        block_bytes_max: 30,
        weights: vec![KeyWeight { first_key: KeyBytes(b"a".to_vec()), bytes: 30, records: 3 }],
    }
}

fn reduce_task() -> ReduceTask {
    ReduceTask {
        plan_version: PlanVersion(1),
        part_index: 0,
        ifiles: vec![IfileIndex(1)],
        runs: vec![RunId(6)],
        places: Vec::new(),
        lower_key: None,
        upper_key: Some(KeyBytes(b"m".to_vec())),
        valid_attempts: vec![(TaskIndex(0), AttemptNumber(0))],
        older_attempts: vec![(IfileIndex(1), TaskIndex(0), AttemptNumber(0))],
        expected_bytes: 30,
        largest_blocks_bytes: 30,
        audits_sources: false,
    }
}

pub(crate) async fn jobs_of_others_are_found_for_cleaning(store: &Metastore) {
    let mine = new_job(store).await;
    let theirs = store.reserve_job_id().await.unwrap();
    let clean = store.reserve_job_id().await.unwrap();
    store
        .apply(&[
            owner("other"),
            submitted(theirs, "other"),
            submitted(clean, "other"),
            Change::JobCleaned { job: clean, kept: Keep::Nothing, now_ns: 5 },
            Change::OwnerEnded { uuid: "other".to_string(), now_ns: 6 },
        ])
        .await
        .unwrap();
    let found: Vec<JobId> = store.jobs_to_clean("me").await.unwrap().into_iter().map(|row| row.job).collect();
    assert_eq!(found, [theirs]);
    assert_ne!(mine, theirs);
}

pub(crate) async fn what_nodes_keep_is_found_again(store: &Metastore) {
    let (job, other) = (new_job(store).await, store.reserve_job_id().await.unwrap());
    store.apply(&[submitted(other, "me")]).await.unwrap();
    let place = |job, node: u32, name: &str, bytes| KeptPlace {
        made_by: NodeId(1),
        node: NodeId(node),
        node_name: name.to_string(),
        dir: KeptDir { job, incarnation: "x".into(), disk: DiskIndex(2), path: "/d".into(), bytes },
    };
    let bytes = async || store.job(job).await.unwrap().unwrap().kept_bytes;
    assert_eq!((bytes().await, store.kept_places(job).await.unwrap()), (None, Vec::new()));
    for kept in [place(job, 1, "a", 5), place(job, 7, "b", 6)] {
        let second = Change::KeptDirs { job: other, places: vec![place(other, 3, "c", 1)] };
        store.apply(&[Change::KeptDirs { job, places: vec![kept.clone()] }, second]).await.unwrap();
        assert_eq!(
            (store.kept_places(job).await.unwrap(), bytes().await),
            (vec![kept.clone()], Some(kept.dir.bytes))
        );
    }
    assert_eq!(store.job_details(job, 0).await.unwrap().unwrap().kept, [place(job, 7, "b", 6)]);
    store.apply(&[Change::KeptFilesRemoved { job, bytes: 6, now_ns: 9 }]).await.unwrap();
    assert!(store.kept_places(job).await.unwrap().is_empty());
    assert_eq!(store.kept_places(other).await.unwrap().len(), 1);
    store.apply(&[Change::KeptDirs { job, places: Vec::new() }]).await.unwrap();
    assert_eq!(bytes().await, Some(0));
    assert_eq!(store.node_of_incarnation("nobody").await.unwrap(), None);
}

pub(crate) async fn kept_files_go_once_nobody_reads_them(store: &Metastore) {
    let source = new_job(store).await;
    let states = async || {
        let row = store.job(source).await.unwrap().unwrap();
        (row.kept_files, row.keep_until_ns)
    };
    assert_eq!(states().await, (None, None));
    assert!(!store.begin_to_remove_kept_files(source).await.unwrap(), "nothing is kept yet");
    let ended = |job, state| Change::JobEnded { job, state, exit_code: Some(0), error: None, now_ns: 3 };
    let cleaned = Change::JobCleaned { job: source, kept: Keep::Until(50), now_ns: 4 };
    store.apply(&[ended(source, JobState::Succeeded), cleaned]).await.unwrap();
    assert_eq!(states().await, (Some(KeptFiles::Kept), Some(50)));
    let reader = store.reserve_job_id().await.unwrap();
    let mut read = submitted(reader, "me");
    let Change::JobSubmitted { spec: again, .. } = &mut read else { panic!("not a submit") };
    Arc::make_mut(again).kind = MapReduce::ReduceAgain { source }.into();
    store.apply(&[read]).await.unwrap();
    assert_eq!(store.job(reader).await.unwrap().unwrap().reduce_again, Some(source));
    assert_eq!(store.reader_of(source).await.unwrap(), Some(reader));
    assert!(!store.begin_to_remove_kept_files(source).await.unwrap(), "somebody reads them");
    store.apply(&[ended(reader, JobState::Failed)]).await.unwrap();
    assert_eq!(store.reader_of(source).await.unwrap(), None);
    // The loop runs twice, as after a crash in between.
    for _ in 0..2 {
        assert!(store.begin_to_remove_kept_files(source).await.unwrap());
        assert_eq!(store.jobs_with_kept_files().await.unwrap().len(), 1);
    }
    assert_eq!(states().await, (Some(KeptFiles::Removing), Some(50)));
    store.apply(&[Change::KeptFilesRemoved { job: source, bytes: 7, now_ns: 9 }]).await.unwrap();
    assert_eq!(states().await, (Some(KeptFiles::Removed), Some(50)));
    assert!(store.jobs_with_kept_files().await.unwrap().is_empty());
    assert!(!store.begin_to_remove_kept_files(source).await.unwrap());
    let events = store.events(source, 1).await.unwrap();
    assert_eq!((events[0].kind.word(), events[0].detail.as_deref()), ("I-files removed", Some("7 bytes")));
}

/// Writes more rows of every kind than one statement takes, and checks one job in the middle.
pub(crate) async fn many_jobs_go_in_one_transaction(store: &Metastore) {
    const COUNT: i64 = 333;
    let jobs = store.reserve_job_ids(COUNT as u32).await.unwrap();
    let jobs: Vec<JobId> = (jobs.start.0..jobs.end.0).map(JobId).collect();
    let key = |job| attempt(job, 0, 0, 0);
    let expanded = |job: &JobId| Change::StageExpanded {
        job: *job,
        stage: StageIndex(0),
        tasks: vec![seal()],
        now_ns: 3,
    };
    let start =
        |job: &JobId| Change::AttemptStarted { attempt: key(*job), node: NodeId(1), slot: 0, now_ns: 4 };
    let end = |job: &JobId| {
        [
            Change::AttemptEnded {
                attempt: key(*job),
                state: AttemptState::Succeeded,
                started_ns: 5,
                opened_ns: None,
                ended_ns: 6,
                failure: None,
            },
            Change::TaskDone { attempt: key(*job), now_ns: 6 },
            Change::StageEnded { job: *job, stage: StageIndex(0), now_ns: 6 },
            Change::JobEnded {
                job: *job,
                state: JobState::Succeeded,
                exit_code: Some(0),
                error: None,
                now_ns: 7,
            },
            Change::JobCleaned { job: *job, kept: Keep::Nothing, now_ns: 8 },
        ]
    };
    let mut submit = vec![owner("me")];
    submit.extend(jobs.iter().flat_map(|job| [submitted(*job, "me"), expanded(job)]));
    store.apply(&submit).await.unwrap();
    store.apply(&jobs.iter().map(start).collect::<Vec<_>>()).await.unwrap();
    store.apply(&jobs.iter().flat_map(end).collect::<Vec<_>>()).await.unwrap();
    let job = jobs[200];
    let row = store.job(job).await.unwrap().unwrap();
    assert_eq!((row.state, row.exit_code), (JobState::Succeeded, Some(0)));
    assert_eq!((row.started_ns, row.ended_ns, row.cleaned_ns), (Some(4), Some(7), Some(8)));
    let tasks = store.tasks(job).await.unwrap();
    assert_eq!((tasks[0].state.word(), tasks[0].winner), ("done", Some(AttemptNumber(0))));
    let attempts = store.attempts(job).await.unwrap();
    assert_eq!((attempts[0].node, attempts[0].ended_ns), (NodeId(1), Some(6)));
    let kinds: Vec<&str> =
        store.events(job, 99).await.unwrap().into_iter().map(|event| event.kind.word()).collect();
    // These events record the other changes of the same transaction.
    let expected = ["job submitted", "attempt started", "attempt succeeded", "job succeeded"];
    assert_eq!(kinds, expected);
    assert_eq!(store.jobs(1000).await.unwrap().len(), COUNT as usize);
}

pub(crate) async fn what_begins_and_ends_in_one_transaction_is_whole(store: &Metastore) {
    let job = store.reserve_job_id().await.unwrap();
    let (first, second) = (attempt(job, 0, 0, 0), attempt(job, 0, 0, 1));
    let start = |attempt| Change::AttemptStarted { attempt, node: NodeId(0), slot: 1, now_ns: 5 };
    let end = |attempt, state| Change::AttemptEnded {
        attempt,
        state,
        started_ns: 6,
        opened_ns: None,
        ended_ns: 8,
        failure: None,
    };
    store
        .apply(&[
            owner("me"),
            submitted(job, "me"),
            Change::StageExpanded { job, stage: StageIndex(0), tasks: vec![seal()], now_ns: 4 },
            start(first),
            end(first, AttemptState::Failed),
            Change::TaskRetried { task: first.task, now_ns: 8 },
            start(second),
        ])
        .await
        .unwrap();
    let tasks = store.tasks(job).await.unwrap();
    assert_eq!((tasks[0].state.word(), tasks[0].winner), ("running", None));
    let states: Vec<AttemptState> = store.attempts(job).await.unwrap().iter().map(|row| row.state).collect();
    assert_eq!(states, [AttemptState::Failed, AttemptState::Running]);
    let stages = store.stages(job).await.unwrap();
    assert_eq!((stages[0].state.word(), stages[0].task_count), ("running", Some(1)));
    assert_eq!(store.job(job).await.unwrap().unwrap().started_ns, Some(5));
    // Every odd character survives, except NUL, which PostgreSQL cannot hold.
    let detail = "a\u{1}b\u{e9}'\"\\\n".to_string();
    let note = |detail| Change::Note { job: Some(job), kind: EventKind::Status, detail, now_ns: 9 };
    store.apply(&[note(detail.clone()), note("a\0b".to_string())]).await.unwrap();
    let events = store.events(job, 2).await.unwrap();
    assert_eq!(events[0].detail, Some(detail));
    assert!(events[1].detail.as_ref().is_some_and(|detail| detail.starts_with('a') && detail.ends_with('b')));
}

fn node(number: u32, name: &str) -> NodeRow {
    NodeRow {
        node: NodeId(number),
        name: name.to_string(),
        url: format!("http://{name}:7001"),
        rack: "r1".to_string(),
        slots: 4,
        memory_bytes: 1 << 33,
        cpu_count: 2,
        arch: "x86_64".to_string(),
        resources: [("gpu".to_string(), 2)].into(),
        version: "0.1.0".to_string(),
        state: NodeState::Up,
        generation: 1,
        incarnation: "first".to_string(),
        secret_hash: None,
        join_token: None,
        sees: Vec::new(),
        registered_ns: 10,
        last_seen_ns: 10,
    }
}

pub(crate) async fn machines_are_remembered(store: &Metastore) {
    let disk = |free_bytes, state| DiskRow {
        disk: DiskIndex(0),
        path: PathBuf::from("/disk"),
        total_bytes: 100,
        free_bytes,
        state,
    };
    let registered = |node, disks| Change::NodeRegistered { node, disks };
    let first = node(1, "one");
    store.apply(&[registered(first.clone(), vec![disk(90, DiskState::Usable)])]).await.unwrap();
    assert_eq!(store.nodes().await.unwrap(), std::slice::from_ref(&first));
    let again = NodeRow { generation: 2, incarnation: "second".to_string(), rack: "r2".to_string(), ..first };
    let sample = |time_ns| SampleRow { node: NodeId(1), time_ns, cpu_permille: 7, ..SampleRow::default() };
    store
        .apply(&[
            registered(again, Vec::new()),
            registered(node(2, "two"), Vec::new()),
            Change::NodesSeen { nodes: vec![(NodeId(1), 20), (NodeId(2), 21)] },
            Change::NodeStateChanged { node: NodeId(2), state: NodeState::Draining, now_ns: 22 },
            Change::Disks { node: NodeId(1), disks: vec![disk(1, DiskState::Full)] },
            Change::Samples { rows: vec![sample(30), sample(31), sample(32), sample(32)] },
            Change::SamplesForgotten { before_ns: 31 },
        ])
        .await
        .unwrap();
    let nodes = store.nodes().await.unwrap();
    assert_eq!((nodes[0].generation, nodes[0].last_seen_ns, nodes[0].rack.as_str()), (2, 20, "r2"));
    assert_eq!((nodes[1].state, nodes[1].last_seen_ns), (NodeState::Draining, 21));
    assert_eq!(store.node_named("two").await.unwrap().unwrap(), nodes[1]);
    assert_eq!(store.racks().await.unwrap(), ["r1", "r2"]);
    assert_eq!(store.disks().await.unwrap(), [(NodeId(1), disk(1, DiskState::Full))]);
    let times: Vec<u64> = store.samples(NodeId(1), 9).await.unwrap().iter().map(|row| row.time_ns).collect();
    assert_eq!(times, [31, 32]);
    // A name belongs to the process that registered it last; the earlier node keeps its row under another name.
    store.apply(&[registered(node(3, "two"), Vec::new())]).await.unwrap();
    assert_eq!(store.node_named("two").await.unwrap().unwrap().node, NodeId(3));
    let older = store.node_named("two (node-2)").await.unwrap().unwrap();
    assert_eq!((older.node, older.state), (NodeId(2), NodeState::Dead));
}

fn part_replica(node: u32) -> PartReplicaRow {
    let (task, node) = (TaskIndex(7), NodeId(node));
    PartReplicaRow { task, node, bytes: 80, single_ns: 6, sending_ns: 5 }
}

fn replica(state: ReplicaState) -> ReplicaRow {
    let chunks = vec![ChunkId(2), ChunkId(3)];
    ReplicaRow { run: RunId(5), node: NodeId(2), state, chunks, bytes: 77, single_ns: 9, sending_ns: 4 }
}

fn map_commits() -> Vec<SourceCommit> {
    let sum = DataSum { records: 3, bytes: 30, hash_sum: 5 };
    vec![SourceCommit { ifile: IfileIndex(1), chunk: ChunkId(2), sum }]
}

fn map_task(again: Option<MapAgain>) -> Task {
    Task::Map(MapTask { split: Split { segments: Vec::new() }, part_index: None, again, places: Vec::new() })
}

fn own_commits() -> Vec<(AttemptNumber, SourceCommit)> {
    map_commits().into_iter().map(|commit| (AttemptNumber(0), commit)).collect()
}

fn map_result() -> TaskResult {
    TaskResult::Map(MapResult { commits: map_commits(), input_records: 9, ..MapResult::default() })
}

fn seal_result() -> TaskResult {
    TaskResult::Seal(SealResult { runs: vec![run(5)], ..SealResult::default() })
}

fn first_boundaries() -> Boundaries {
    Boundaries { version: BoundariesVersion(1), keys: vec![KeyBytes(vec![1])] }
}

fn started(attempt: AttemptKey) -> Change {
    Change::AttemptStarted { attempt, node: NodeId(1), slot: 1, now_ns: 5 }
}

fn won(attempt: AttemptKey, result: TaskResult) -> [Change; 3] {
    let (state, opened_ns, failure) = (AttemptState::Succeeded, None, None);
    [
        Change::AttemptEnded { attempt, state, started_ns: 6, opened_ns, ended_ns: 8, failure },
        Change::TaskDone { attempt, now_ns: 8 },
        Change::Result { attempt, result: Arc::new(result) },
    ]
}

/// Returns the changes of a job with its map done and one of two seals, as the server of a cluster writes them.
fn half_run(job: JobId) -> Vec<Change> {
    let expanded = |stage, tasks| Change::StageExpanded { job, stage: StageIndex(stage), tasks, now_ns: 4 };
    let map = attempt(job, 0, 0, 0);
    let mut changes = vec![
        submitted(job, CLUSTER_OWNER),
        expanded(0, vec![map_task(None)]),
        Change::Placed { attempt: map, reason: "{\"rack\":\"r1\"}".to_string() },
        started(map),
    ];
    changes.extend(won(map, map_result()));
    changes.extend([
        Change::Sources { attempt: map, commits: map_commits() },
        Change::Boundaries { job, boundaries: first_boundaries(), now_ns: 8 },
        Change::StageEnded { job, stage: StageIndex(0), now_ns: 8 },
        expanded(1, vec![seal(), seal()]),
        started(attempt(job, 1, 0, 0)),
        started(attempt(job, 1, 1, 0)),
        Change::Chunks { job, chunks: vec![chunk()] },
        Change::Runs { job, runs: vec![run(5)], replaced: Vec::new() },
        Change::Plan { job, version: PlanVersion(3), target_bytes: 0, tasks: Vec::new(), now_ns: 8 },
        Change::PartReplicas { job, replicas: vec![part_replica(1), part_replica(4)] },
        Change::Replicas { job, replicas: vec![replica(ReplicaState::Complete)] },
        Change::Replicas { job, replicas: vec![replica(ReplicaState::Promoted)] },
    ]);
    changes.extend(won(attempt(job, 1, 0, 0), seal_result()));
    changes
}

/// Recovers from a running job, an ended job, a cleaned job and a job of another process.
pub(crate) async fn what_is_not_done_with_is_recovered(store: &Metastore) {
    let jobs = store.reserve_job_ids(4).await.unwrap();
    let [job, over, cleaned, theirs] = [0, 1, 2, 3].map(|offset| JobId(jobs.start.0 + offset));
    let mut changes = vec![owner("other"), submitted(theirs, "other")];
    changes.push(Change::NodeRegistered { node: node(1, "one"), disks: Vec::new() });
    changes.extend([job, over, cleaned].into_iter().flat_map(half_run));
    store.apply(&changes).await.unwrap();
    let ended =
        |job| Change::JobEnded { job, state: JobState::Failed, exit_code: Some(1), error: None, now_ns: 9 };
    let gone = |job| Change::JobCleaned { job, kept: Keep::Nothing, now_ns: 10 };
    let cancel = |job, reason: &str| Change::Note {
        job: Some(job),
        kind: EventKind::JobCancelAsked,
        detail: reason.to_string(),
        now_ns: 9,
    };
    let cancels = [cancel(job, "first"), cancel(job, "second"), cancel(cleaned, "third")];
    store.apply(&[&cancels[..], &[ended(over), ended(cleaned), gone(cleaned)]].concat()).await.unwrap();
    let recovered = store.recover().await.unwrap();
    assert_eq!(recovered.jobs.keys().copied().collect::<Vec<_>>(), [job, over]);
    assert_eq!(recovered.nodes.len(), 1);
    let asked = |job| recovered.jobs[&job].cancel_asked.as_deref();
    assert_eq!((asked(job), asked(over)), (Some("first"), None));
    // This job has ended, but is not cleaned: its directories may exist. Its results are dropped.
    assert!(!recovered.jobs[&over].goes_on() && recovered.jobs[&over].results.is_empty());
    assert!(recovered.jobs[&job].goes_on() && recovered.jobs[&job].results.len() == 2);
    // Nobody sweeps a job of the cluster.
    let swept: Vec<JobId> = store.jobs_to_clean("me").await.unwrap().iter().map(|row| row.job).collect();
    assert_eq!(swept, [theirs]);
}

pub(crate) async fn a_half_run_job_comes_back(store: &Metastore) {
    let job = store.reserve_job_id().await.unwrap();
    store.apply(&half_run(job)).await.unwrap();
    let recovered = store.recover().await.unwrap();
    let back = &recovered.jobs[&job];
    assert!(back.report.is_none() && back.plan.is_empty());
    assert_eq!((&back.spec, back.row.user.as_deref()), (&spec(), Some("ann")));
    let stages: Vec<_> = back.stages.iter().map(|row| (row.state.word(), row.tasks_done)).collect();
    assert_eq!(stages, [("done", 1), ("running", 1)]);
    let tasks: Vec<_> = back.tasks.iter().map(|row| (row.state.word(), row.winner.is_some())).collect();
    assert_eq!(tasks, [("done", true), ("done", true), ("running", false)]);
    assert_eq!((&back.tasks[2].payload, back.attempts.len()), (&seal(), 3));
    let expected = [(attempt(job, 0, 0, 0), map_result()), (attempt(job, 1, 0, 0), seal_result())];
    assert_eq!(back.results, expected);
    assert_eq!(back.boundaries, Some(first_boundaries()));
    assert_eq!(back.commits, BTreeMap::from([(TaskIndex(0), own_commits())]));
    assert_eq!((back.chunks.len(), back.runs.len()), (1, 1));
    let standing = replica(ReplicaState::Promoted);
    assert_eq!(
        (&back.run_chunks[..], &back.replicas[..]),
        (&[(RunId(5), ChunkId(2))][..], &[standing.clone()][..])
    );
    assert_eq!(store.replicas(job).await.unwrap(), [standing]);
    // A plan without tasks has a number too; only the last replica of a part is known.
    assert_eq!(
        (&back.plan_versions[..], &back.part_replicas[..]),
        (&[PlanVersion(3)][..], &[part_replica(4)][..])
    );
    let placed = store.placements(job).await.unwrap();
    assert_eq!(placed, [(attempt(job, 0, 0, 0), "{\"rack\":\"r1\"}".to_string())]);
}

pub(crate) async fn a_stage_gets_its_inputs_when_those_before_it_are_done(store: &Metastore) {
    let (before, job) = (store.reserve_job_id().await.unwrap(), store.reserve_job_id().await.unwrap());
    let stage =
        FlowStage { flow: before, name: "second".into(), reads: vec![before], ..FlowStage::default() };
    let as_handed_in = JobSpec { stage: Some(stage), ..spec() };
    let mut change = submitted(job, "me");
    if let Change::JobSubmitted { spec, .. } = &mut change {
        *spec = Arc::new(as_handed_in.clone());
    }
    store.apply(&[owner("me"), change]).await.unwrap();
    let ifiles = async || {
        let rows = store.rows("SELECT ifile FROM ifiles WHERE job = $1", [job.0.into()]).await;
        rows.unwrap().len()
    };
    assert_eq!(ifiles().await, 0);
    let mut whole = as_handed_in;
    whole.layout.ifile_count = 3;
    store.apply(&[Change::JobInputs { job, spec: Arc::new(whole.clone()) }]).await.unwrap();
    assert_eq!(store.job_spec(job).await.unwrap(), Some(whole));
    assert_eq!(ifiles().await, 3);
}

/// Recovers jobs with ids so far apart that each is looked up alone.
pub(crate) async fn half_run_jobs_far_apart_come_back(store: &Metastore) {
    let (jobs, apart) = (70, 10);
    let first = store.reserve_job_ids(jobs * apart).await.unwrap().start.0;
    let numbers: Vec<JobId> =
        (0..i64::from(jobs)).map(|place| JobId(first + place * i64::from(apart))).collect();
    store.apply(&numbers.iter().copied().flat_map(half_run).collect::<Vec<_>>()).await.unwrap();
    let recovered = store.recover().await.unwrap();
    assert_eq!(recovered.jobs.keys().copied().collect::<Vec<_>>(), numbers);
    for back in recovered.jobs.values() {
        let rows = (back.stages.len(), back.tasks.len(), back.attempts.len(), back.results.len());
        assert_eq!(rows, (2, 3, 3, 2));
        let data = (back.commits.len(), back.chunks.len(), back.runs.len(), back.run_chunks.len());
        assert_eq!((data, back.replicas.len(), back.boundaries.is_some()), ((1, 1, 1, 1), 1, true));
    }
}

/// Makes a test of each function for both back-ends.
macro_rules! on_every_back_end {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            use crate::Metastore;

            $(
                #[tokio::test]
                async fn $name() {
                    let dir = tempfile::tempdir().unwrap();
                    super::$name(&Metastore::open(dir.path()).await.unwrap()).await;
                }
            )*
        }

        mod postgres {
            use crate::Metastore;
            use private_postgres::PrivatePostgres;

            /// Starts one PostgreSQL for all functions, because a start takes seconds; each has its own database.
            #[tokio::test]
            async fn the_whole_suite() {
                let what = "the suite of the store on PostgreSQL";
                let Some(postgres) = PrivatePostgres::start_or_say(what, &["fsync = off"]) else { return };
                $(
                    println!("{}", stringify!($name));
                    let store = Metastore::connect(&postgres.create_database(stringify!($name))).await.unwrap();
                    super::$name(&store).await;
                )*
            }
        }
    };
}

on_every_back_end!(
    a_job_is_remembered,
    jobs_are_listed_by_state_user_and_name,
    logs_of_tasks_are_no_events,
    dead_nodes_are_listed_for_a_while,
    numbers_of_jobs_are_never_given_twice,
    all_changes_or_none,
    attempts_have_a_history,
    data_between_the_stages_is_remembered,
    kept_files_go_once_nobody_reads_them,
    what_nodes_keep_is_found_again,
    jobs_of_others_are_found_for_cleaning,
    many_jobs_go_in_one_transaction,
    what_begins_and_ends_in_one_transaction_is_whole,
    machines_are_remembered,
    people_come_by_their_tokens,
    nodes_are_known_by_their_secrets,
    keys_of_data_ports_are_remembered,
    programs_are_hidden_from_questions,
    answers_end_where_they_are_large,
    questions_find_tables_by_both_names,
    last_run_of_each_path_is_found,
    accounts_add_up_by_day_user_job,
    steps_count_for_their_jobs,
    accounts_stay_for_days_and_within_bounds,
    intermediate_files_are_remembered,
    files_have_names_and_versions,
    old_versions_go_unless_they_are_read,
    puts_are_remembered_until_they_end,
    later_sessions_end_earlier_ones,
    numbers_of_puts_are_reserved,
    recorded_files_are_replaced_and_forgotten,
    committed_puts_are_remembered_until_forgotten,
    given_up_puts_go_in_steps,
    trees_are_retired_apart,
    replicas_are_found_by_their_files,
    disks_with_files_keep_their_numbers,
    groups_have_members_and_names_keep_them,
    jobs_that_wait_are_told_apart,
    a_half_run_job_comes_back,
    a_stage_gets_its_inputs_when_those_before_it_are_done,
    what_is_not_done_with_is_recovered,
    half_run_jobs_far_apart_come_back,
    lost_data_is_made_again,
    replicas_of_parts_go_with_their_tasks,
    what_is_done_stands_while_lost_data_is_made_again,
);
