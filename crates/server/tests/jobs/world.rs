//! A made-up node: threads that pull and answer. Every map task appends one record to each I-file.

use api::task::{
    AttemptUsage, ChunkSummary, CommitResult, CommitTask, KeyWeight, MapResult, Part, ReduceResult,
    ReduceTask, RunSummary, SealResult,
};
use api::{Blame, Codec, DataSum, JobSpec, KeyBytes, SourceCommit, Split, Task, TaskFailure, TaskResult};
use ids::*;
use mapreduce::layout::{LayoutRequest, derive};
use server::{Finished, LocalAssignment, PullReply, PullRequest, Server, ServerOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

pub const IFILES: u32 = 4;

/// A directory with everything a job needs, removed with it.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn open(&self) -> Arc<Server> {
        open(self.dir.path())
    }

    pub fn spec(&self) -> JobSpec {
        spec(self.dir.path(), "out")
    }

    /// Names of everything but the state that is left in the directory.
    pub fn left(&self) -> Vec<String> {
        let mut names = Vec::new();
        for dir in [self.path(""), self.path("disk")] {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                names.push(entry.unwrap().file_name().into_string().unwrap());
            }
        }
        names.retain(|name| name != "state" && name != "disk");
        names.sort();
        names
    }
}

pub fn open(dir: &Path) -> Arc<Server> {
    Arc::new(Server::open(ServerOptions::embedded(dir.join("state"), 2)).unwrap())
}

pub fn spec(dir: &Path, output: &str) -> JobSpec {
    let request = LayoutRequest { memory_bytes: 1 << 30, slots: 2, input_bytes: 0, combines: false };
    JobSpec {
        output: dir.join(output),
        codec: Codec::Lz4,
        memory_bytes: 1 << 30,
        slots: 2,
        disks: vec![dir.join("disk")],
        layout: api::Layout { ifile_count: IFILES, ..derive(&request).unwrap() },
        ..JobSpec::named("made up")
    }
}

pub fn splits(count: usize) -> Vec<Split> {
    vec![Split { segments: Vec::new() }; count]
}

pub type Answer = Result<TaskResult, TaskFailure>;
/// The answer of a test for an attempt; None leaves it to the honest node.
pub type Behaviour = dyn Fn(&LocalAssignment) -> Option<Answer> + Send + Sync;

/// Commits of the honest node, which it needs to seal and reduce.
#[derive(Default)]
pub struct Books {
    commits: Mutex<BTreeMap<Source, Vec<SourceCommit>>>,
    clock: AtomicU64,
}

/// Starts slots that run until the server sends them home.
pub fn node(server: &Arc<Server>, slots: u32, behaviour: Arc<Behaviour>) -> Vec<JoinHandle<()>> {
    let books = Arc::new(Books::default());
    let start = |slot| {
        let (server, books, behaviour) = (Arc::clone(server), Arc::clone(&books), Arc::clone(&behaviour));
        spawn(move || run_slot(&server, slot, &books, behaviour.as_ref()))
    };
    (0..slots).map(start).collect()
}

pub fn honest() -> Arc<Behaviour> {
    Arc::new(|_| None)
}

pub fn join(node: Vec<JoinHandle<()>>) {
    node.into_iter().for_each(|slot| slot.join().unwrap());
}

fn run_slot(server: &Server, slot: u32, books: &Books, behaviour: &Behaviour) {
    let mut finished = None;
    loop {
        let request = PullRequest { node: NodeId(0), slot, is_place: false, finished: finished.take() };
        let Ok(PullReply::Run(assignment)) = server.pull(request) else { return };
        let started_ns = books.clock.fetch_add(1_000_000_000, Ordering::Relaxed) + 1;
        let outcome = behaviour(&assignment).unwrap_or_else(|| Ok(answer(&assignment, books)));
        let ended_ns = books.clock.fetch_add(1_000_000_000, Ordering::Relaxed) + 1;
        finished = Some(Finished {
            attempt: assignment.attempt,
            outcome,
            started_ns,
            ended_ns,
            usage: AttemptUsage { cpu_us: 1_000, ..AttemptUsage::default() },
        });
    }
}

fn answer(assignment: &LocalAssignment, books: &Books) -> TaskResult {
    let attempt = assignment.attempt;
    match &assignment.task {
        Task::Map(task) => {
            let part = task.part_index.map(|index| part(index, attempt.attempt));
            let commits = if part.is_some() { Vec::new() } else { commits(attempt.task.task) };
            let source = Source { map_task: attempt.task.task, attempt: attempt.attempt };
            books.commits.lock().unwrap().insert(source, commits.clone());
            let counters = BTreeMap::from([("maps".to_string(), 1)]);
            TaskResult::Map(MapResult { commits, part, input_records: 1, counters, ..MapResult::default() })
        }
        Task::Seal(_) => TaskResult::Seal(seal(books)),
        Task::Adopt(_) => unreachable!("no job here reduces another one's I-files"),
        Task::Merge(_) => unreachable!("so few runs need no merge"),
        Task::Reduce(task) => TaskResult::Reduce(reduce(task, attempt.attempt, books)),
        Task::Run(_) => TaskResult::Run(Default::default()),
        Task::Commit(task) => TaskResult::Commit(publish(assignment, task)),
    }
}

fn commits(task: TaskIndex) -> Vec<SourceCommit> {
    let sum = DataSum { records: 1, bytes: 10, hash_sum: u128::MAX / 3 + u128::from(task.0) };
    let commit = |ifile| SourceCommit { ifile: IfileIndex(ifile), chunk: ChunkId(u64::from(ifile)), sum };
    (0..IFILES).map(commit).collect()
}

fn seal(books: &Books) -> SealResult {
    let mut result = SealResult::default();
    for index in 0..IFILES {
        let (chunk, ifile) = (ChunkId(u64::from(index)), IfileIndex(index));
        let mut sources = Vec::new();
        for (source, commits) in books.commits.lock().unwrap().iter() {
            let here = commits.iter().filter(|commit| commit.chunk == chunk);
            sources.extend(here.map(|commit| (*source, commit.sum)));
        }
        let bytes: u64 = sources.iter().map(|(_, sum)| sum.bytes).sum();
        let records = sources.len() as u64;
        result.runs.push(RunSummary {
            run: RunId(u64::from(index)),
            ifile,
            chunks: vec![chunk],
            records,
            record_bytes: bytes,
            stored_bytes: 0,
            in_memory: true,
            disk: DiskIndex(0),
            block_bytes_max: 100,
            weights: vec![KeyWeight { first_key: KeyBytes(b"k".to_vec()), bytes, records }],
        });
        result.chunks.push(ChunkSummary {
            chunk,
            ifile,
            generation: 0,
            disk: DiskIndex(0),
            capacity_bytes: 1 << 27,
            appended_bytes: bytes,
            oversize: false,
            sources,
        });
    }
    result
}

pub fn reduce_honestly(task: &ReduceTask, number: AttemptNumber) -> ReduceResult {
    let books = Books::default();
    for (map_task, attempt) in &task.valid_attempts {
        let source = Source { map_task: *map_task, attempt: *attempt };
        books.commits.lock().unwrap().insert(source, commits(*map_task));
    }
    reduce(task, number, &books)
}

fn reduce(task: &ReduceTask, number: AttemptNumber, books: &Books) -> ReduceResult {
    let mut merged: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
    for (map_task, attempt) in &task.valid_attempts {
        let source = Source { map_task: *map_task, attempt: *attempt };
        let commits = books.commits.lock().unwrap()[&source].clone();
        for commit in commits.iter().filter(|commit| task.ifiles.contains(&commit.ifile)) {
            merged.entry(commit.ifile).or_default().add(&commit.sum);
        }
    }
    let part = part(task.part_index, number);
    let (merged, upper_key) = (merged.into_iter().collect(), task.upper_key.clone());
    ReduceResult { part, merged, upper_key, ..ReduceResult::default() }
}

fn part(index: u32, number: AttemptNumber) -> Part {
    let name = format!("part-{index:05}");
    Part { attempt_name: format!(".{name}.attempt-{}", number.0), name, ..Part::default() }
}

/// Publishes as a node would: report into staging, staging to the output.
pub fn publish(assignment: &LocalAssignment, task: &CommitTask) -> CommitResult {
    let staging = &assignment.job.staging;
    std::fs::write(staging.join("_report.json"), serde_json::to_vec(&task.report).unwrap()).unwrap();
    std::fs::rename(staging, &assignment.job.spec.output).unwrap();
    CommitResult::default()
}

pub fn failure(blame: Blame) -> TaskFailure {
    TaskFailure::new(blame, "made to fail")
}

/// Waits as an attempt does that looks at its flag.
pub fn until_cancelled(assignment: &LocalAssignment) -> Answer {
    while !assignment.job.cancelled.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    Err(failure(Blame::Cancelled))
}
