//! How many jobs of one task each the store takes in, from submit to cleaned, with full history: `bench/store.sh` runs it.
//!
//! A transaction holds what a server under load has at hand: some jobs that come, as many that start and as many that
//! end. Nothing but the store is measured: no HTTP, no scheduler.

use api::task::SealTask;
use api::{Codec, JobSpec, Layout, MapReduce, Task};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, TaskIndex, TaskKey};
use metastore::{AttemptState, CLUSTER_OWNER, Change, JobState, Keep, Metastore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Jobs of each of the three steps in a transaction where history is made: nobody waits for those.
const HISTORY_BATCH: i64 = 2000;

struct Options {
    place: String,
    jobs: i64,
    batch: i64,
    /// Jobs that are over before the measurement begins.
    history: i64,
    /// Jobs that are left waiting, to be read again by a server that starts.
    waiting: i64,
}

fn options() -> Options {
    let mut options = Options { place: String::new(), jobs: 20_000, batch: 64, history: 0, waiting: 0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|value| value.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--jobs" => options.jobs = number(),
            "--batch" => options.batch = number(),
            "--history" => options.history = number(),
            "--waiting" => options.waiting = number(),
            _ => options.place = argument,
        }
    }
    assert!(!options.place.is_empty(), "name a directory for SQLite, or postgres://...");
    options
}

fn spec() -> Arc<JobSpec> {
    Arc::new(JobSpec {
        kind: MapReduce::MapOnly { generate: None }.into(),
        output: PathBuf::from("/out"),
        codec: Codec::Lz4,
        memory_bytes: 1 << 30,
        slots: 2,
        disks: vec![PathBuf::from("/disk")],
        sync: true,
        layout: Layout {
            ifile_count: 1,
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
        ..JobSpec::named("true")
    })
}

fn submit(job: i64, spec: &Arc<JobSpec>) -> [Change; 2] {
    let submitted = Change::JobSubmitted {
        job: JobId(job),
        owner: CLUSTER_OWNER.to_string(),
        spec: Arc::clone(spec),
        stages: vec![StageKind::Run],
        staging: PathBuf::from("/out/.staging"),
        disk_dirs: Vec::new(),
        user: Some("ann".to_string()),
        priority: 0,
        waits: false,
        step_of: None,
        now_ns: 1,
    };
    let tasks = vec![Task::Seal(SealTask::default())];
    [submitted, Change::StageExpanded { job: JobId(job), stage: StageIndex(0), tasks, now_ns: 2 }]
}

fn key(job: i64) -> AttemptKey {
    let task = TaskKey { job: JobId(job), stage: StageIndex(0), task: TaskIndex(0) };
    AttemptKey { task, attempt: AttemptNumber(0) }
}

fn start(job: i64) -> Change {
    Change::AttemptStarted { attempt: key(job), node: NodeId(1 + (job % 8) as u32), slot: 0, now_ns: 3 }
}

fn end(job: i64) -> [Change; 5] {
    let (attempt, job) = (key(job), JobId(job));
    [
        Change::AttemptEnded {
            attempt,
            state: AttemptState::Succeeded,
            started_ns: 4,
            opened_ns: None,
            ended_ns: 5,
            failure: None,
        },
        Change::TaskDone { attempt, now_ns: 5 },
        Change::StageEnded { job, stage: StageIndex(0), now_ns: 5 },
        Change::JobEnded { job, state: JobState::Succeeded, exit_code: Some(0), error: None, now_ns: 5 },
        Change::JobCleaned { job, kept: Keep::Nothing, now_ns: 5 },
    ]
}

/// Takes `count` jobs from submit to cleaned; the answer is the time that took.
async fn run(store: &Metastore, count: i64, batch: i64, spec: &Arc<JobSpec>) -> Duration {
    let first = store.reserve_job_ids(count as u32).await.expect("numbers are free").start.0;
    let began = Instant::now();
    let steps = (count + batch - 1) / batch;
    for step in 0..steps + 2 {
        // The jobs that come now, those that came one step before, and those that came two before.
        let of = |age: i64| {
            let from = (step - age).clamp(0, steps) * batch;
            let to = (step - age + 1).clamp(0, steps) * batch;
            (first + from.min(count))..(first + to.min(count))
        };
        let mut changes: Vec<Change> = of(0).flat_map(|job| submit(job, spec)).collect();
        changes.extend(of(1).map(start));
        changes.extend(of(2).flat_map(end));
        store.apply(&changes).await.expect("the store takes what is new");
    }
    began.elapsed()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let options = options();
    let store = match options.place.contains("://") {
        true => Metastore::connect(&options.place).await,
        false => Metastore::open(Path::new(&options.place)).await,
    };
    let store = store.expect("the store opens");
    assert!(store.try_lead("bench").await.expect("the store can be asked"), "another server leads");
    let spec = spec();
    if options.history > 0 {
        let took = run(&store, options.history, HISTORY_BATCH, &spec).await;
        println!("history: {} jobs in {:.1} s", options.history, took.as_secs_f64());
    }
    let took = run(&store, options.jobs, options.batch, &spec).await.as_secs_f64();
    let (rate, microseconds) = (options.jobs as f64 / took, took * 1e6 / options.jobs as f64);
    let (jobs, batch) = (options.jobs, options.batch);
    println!(
        "{jobs} jobs, {batch} of each step in a transaction: {rate:.0} jobs/s, {microseconds:.0} us a job"
    );
    if options.waiting > 0 {
        let first = store.reserve_job_ids(options.waiting as u32).await.expect("numbers are free").start.0;
        for from in (0..options.waiting).step_by(1000) {
            let range = from..(from + 1000).min(options.waiting);
            let changes: Vec<Change> = range.flat_map(|offset| submit(first + offset, &spec)).collect();
            store.apply(&changes).await.expect("the store takes what is new");
        }
        let began = Instant::now();
        let recovered = store.recover().await.expect("the store is whole");
        println!("recovered {} jobs in {:.2} s", recovered.jobs.len(), began.elapsed().as_secs_f64());
    }
    store.close().await.expect("the store closes");
}
