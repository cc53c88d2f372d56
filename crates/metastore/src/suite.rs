//! The one suite of the store, for every back-end: each function takes an open, empty store. SQLite runs it
//! below; another back-end runs the same functions.

use crate::{AttemptState, Change, JobState, Keep, KeptFiles, Metastore, ProofRow};
use api::task::{ChunkSummary, KeyWeight, MapTask, Part, ReduceTask, RunSummary, SealTask};
use api::{
    Blame, Boundaries, Codec, DataSum, JobSpec, KeyBytes, Layout, Partitioning, SourceCommit, Split, Task,
    TaskFailure,
};
use ids::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

fn spec() -> JobSpec {
    JobSpec {
        name: "a job".to_string(),
        inputs: Vec::new(),
        mapper: None,
        combiner: None,
        reducer: None,
        map_only: false,
        output: PathBuf::from("/out"),
        overwrite: false,
        partitioning: Partitioning::Hash,
        codec: Codec::Lz4,
        memory_bytes: 1 << 30,
        slots: 2,
        disks: vec![PathBuf::from("/disk")],
        files: Vec::new(),
        env: Vec::new(),
        keep_ifiles: false,
        formats: Default::default(),
        keys: Default::default(),
        generate: None,
        streaming: None,
        reduce_again: None,
        keep_seconds: None,
        sync: true,
        layout: Layout {
            ifile_count: 4,
            chunk_bytes: 1 << 27,
            frame_bytes: 1 << 18,
            block_bytes: 1 << 16,
            record_bytes_max: 1 << 28,
            combine_window_bytes: 0,
            split_bytes: 1 << 20,
            chunk_share_bytes: 1 << 29,
            sort_share_bytes: 1 << 28,
            io_share_bytes: 1 << 27,
        },
    }
}

fn owner(uuid: &str) -> Change {
    Change::OwnerStarted { uuid: uuid.to_string(), pid: 7, now_ns: 1 }
}

fn submitted(job: JobId, uuid: &str) -> Change {
    Change::JobSubmitted {
        job,
        owner: uuid.to_string(),
        spec: Arc::new(spec()),
        stages: vec!["map", "seal"],
        staging: PathBuf::from("/.out"),
        disk_dirs: vec![PathBuf::from("/disk/job")],
        now_ns: 2,
    }
}

fn attempt(job: JobId, stage: u16, task: u32, number: u32) -> AttemptKey {
    let task = TaskKey { job, stage: StageIndex(stage), task: TaskIndex(task) };
    AttemptKey { task, attempt: AttemptNumber(number) }
}

async fn new_job(store: &Metastore) -> JobId {
    let job = store.reserve_job_id().await.unwrap();
    store.apply(&[owner("me"), submitted(job, "me")]).await.unwrap();
    job
}

pub(crate) async fn a_job_is_remembered(store: &Metastore) {
    let job = new_job(store).await;
    let row = store.job(job).await.unwrap().unwrap();
    assert_eq!((row.state, row.name.as_str(), row.cleaned_ns), (JobState::Running, "a job", None));
    assert_eq!((row.staging, row.disk_dirs), (PathBuf::from("/.out"), vec![PathBuf::from("/disk/job")]));
    assert_eq!(store.job_spec(job).await.unwrap(), Some(spec()));
    assert_eq!(store.job_report(job).await.unwrap(), None);
    assert_eq!(store.job(JobId(99)).await.unwrap(), None);
    let ended = Change::JobEnded {
        job,
        state: JobState::Failed,
        exit_code: Some(3),
        error: Some("no".to_string()),
        now_ns: 9,
    };
    store.apply(&[ended, Change::JobCleaned { job, kept: Keep::Nothing, now_ns: 10 }]).await.unwrap();
    let row = store.jobs(10).await.unwrap().remove(0);
    assert_eq!((row.state, row.exit_code, row.error.as_deref()), (JobState::Failed, Some(3), Some("no")));
    assert_eq!((row.ended_ns, row.cleaned_ns), (Some(9), Some(10)));
    let kinds: Vec<String> =
        store.events(job, 10).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["job submitted", "job failed", "job cleaned"]);
}

pub(crate) async fn numbers_of_jobs_are_never_given_twice(store: &Metastore) {
    let first = store.reserve_job_id().await.unwrap();
    let second = store.reserve_job_id().await.unwrap();
    assert_eq!((first, second), (JobId(1), JobId(2)));
}

pub(crate) async fn all_changes_or_none(store: &Metastore) {
    let job = new_job(store).await;
    let note = Change::Note { job: Some(job), kind: "note", detail: "x".to_string(), now_ns: 3 };
    // The second one breaks a primary key.
    assert!(store.apply(&[note, submitted(job, "me")]).await.is_err());
    assert_eq!(store.events(job, 10).await.unwrap().len(), 1);
    // A job of an owner that does not exist breaks a foreign key.
    assert!(store.apply(&[submitted(JobId(77), "nobody")]).await.is_err());
    assert_eq!(store.job(JobId(77)).await.unwrap(), None);
}

pub(crate) async fn attempts_have_a_history(store: &Metastore) {
    let job = new_job(store).await;
    let map = Task::Map(MapTask { split: Split { segments: Vec::new() }, part_index: None });
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
            Change::StageExpanded {
                job,
                stage: StageIndex(1),
                tasks: vec![Task::Seal(SealTask {})],
                now_ns: 9,
            },
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
    assert_eq!((tasks[0].state.as_str(), tasks[0].winner), ("done", Some(AttemptNumber(1))));
    assert_eq!(tasks[0].payload, map);
    assert_eq!((tasks[1].state.as_str(), tasks[1].winner), ("waiting", None));
    let stages = store.stages(job).await.unwrap();
    assert_eq!((stages[0].state.as_str(), stages[0].tasks_done), ("done", 1));
    assert_eq!((stages[1].state.as_str(), stages[1].tasks_done), ("running", 0));
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
    assert_eq!(commits, BTreeMap::from([(TaskIndex(0), (AttemptNumber(0), vec![expected]))]));
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
        lower_key: None,
        upper_key: Some(KeyBytes(b"m".to_vec())),
        valid_attempts: vec![(TaskIndex(0), AttemptNumber(0))],
        expected_bytes: 30,
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
    Arc::make_mut(again).reduce_again = Some(source);
    store.apply(&[read]).await.unwrap();
    assert_eq!(store.job(reader).await.unwrap().unwrap().reduce_again, Some(source));
    assert_eq!(store.reader_of(source).await.unwrap(), Some(reader));
    assert!(!store.begin_to_remove_kept_files(source).await.unwrap(), "somebody reads them");
    store.apply(&[ended(reader, JobState::Failed)]).await.unwrap();
    assert_eq!(store.reader_of(source).await.unwrap(), None);
    // Twice, as after a crash in between.
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
    assert_eq!((events[0].kind.as_str(), events[0].detail.as_deref()), ("I-files removed", Some("7 bytes")));
}

mod sqlite {
    use crate::Metastore;

    async fn open() -> (tempfile::TempDir, Metastore) {
        let dir = tempfile::tempdir().unwrap();
        let store = Metastore::open(dir.path()).await.unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn a_job_is_remembered() {
        super::a_job_is_remembered(&open().await.1).await;
    }

    #[tokio::test]
    async fn numbers_of_jobs_are_never_given_twice() {
        super::numbers_of_jobs_are_never_given_twice(&open().await.1).await;
    }

    #[tokio::test]
    async fn all_changes_or_none() {
        super::all_changes_or_none(&open().await.1).await;
    }

    #[tokio::test]
    async fn attempts_have_a_history() {
        super::attempts_have_a_history(&open().await.1).await;
    }

    #[tokio::test]
    async fn data_between_the_stages_is_remembered() {
        super::data_between_the_stages_is_remembered(&open().await.1).await;
    }

    #[tokio::test]
    async fn kept_files_go_once_nobody_reads_them() {
        super::kept_files_go_once_nobody_reads_them(&open().await.1).await;
    }

    #[tokio::test]
    async fn jobs_of_others_are_found_for_cleaning() {
        super::jobs_of_others_are_found_for_cleaning(&open().await.1).await;
    }
}
