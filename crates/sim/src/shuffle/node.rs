//! A process that runs attempts: the work of `crates/node` on a task, in steps, so that anything may happen in between.

use super::data_plane::{Between, DataPlane, ReadError};
use super::lane::SenderId;
use super::parts::{FetchWork, fetch, part_of};
use super::plan::{COMMIT, JobPlan, PlannedRecord, RecordName};
use super::run::{Cursor, ShuffleRun};
use super::world::{Planted, Situation};
use api::task::{
    ChunkSummary, CommitTask, MapResult, MergeResult, MergeTask, Part, ReduceResult, ReduceTask, RunPlace,
    SealResult, SealTask, SourceBooks,
};
use api::{Blame, DataSum, TaskFailure, TaskResult};
use iappender::{AppendError, IAppender};
use ids::{AttemptKey, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, RunId, Source};
use imerger::{Groups, Merge, SortedRun, Winners};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of tries for a run on unreachable nodes before the attempt fails.
pub(crate) const READ_TRIES_MAX: u32 = 40;
const RECORDS_PER_STEP_MAX: usize = 4;

/// A task in progress.
pub(crate) enum Work<'a> {
    Map(Box<MapWork<'a>>),
    /// A map attempt that reads parts of an earlier stage.
    Fetch(Box<FetchWork>),
    Seal(SealTask),
    Merge(MergeTask, Reading),
    Reduce(Box<ReduceTask>, Reading),
    /// The part is written and must be synced.
    Sync(Box<ReduceResult>),
    Commit(Box<CommitTask>),
    /// The output has its final name and must be synced.
    SyncOutput,
}

pub(crate) struct MapWork<'a> {
    pub appender: IAppender<'a>,
    pub records: Vec<PlannedRecord>,
    pub next: usize,
}

/// The runs read so far, in the order of the task.
#[derive(Default)]
pub(crate) struct Reading {
    pub runs: Vec<Arc<ShuffleRun>>,
    tries: u32,
}

pub(crate) struct Running<'a> {
    pub slot: u32,
    pub started_ns: u64,
    /// None during a step.
    pub work: Option<Work<'a>>,
    /// Appender of a map attempt; None for other tasks.
    pub sender: Option<SenderId>,
    /// Factor by which each step is slower than normal.
    pub slower: u64,
    pub is_told_to_stop: bool,
}

/// Result of a step.
pub(crate) enum Step<'a> {
    GoesOn(Work<'a>),
    /// A map attempt has read its input.
    Maps(Box<FetchWork>),
    /// A reduce task has its records and must write them as a part.
    WritesPart(Box<ReduceResult>, Vec<RecordName>),
    Publishes(Box<CommitTask>),
    SyncsPart(Box<ReduceResult>),
    SyncsOutput,
    Ends(Box<Result<TaskResult, TaskFailure>>),
}

impl Step<'_> {
    pub fn ends(outcome: Result<TaskResult, TaskFailure>) -> Self {
        Self::Ends(Box::new(outcome))
    }
}

/// Context of a step: node, job and attempt.
pub(crate) struct Here<'w> {
    pub node: NodeId,
    pub job: JobId,
    pub attempt: AttemptKey,
    pub plan: &'w JobPlan,
}

pub(crate) fn environment(message: &str) -> TaskFailure {
    TaskFailure::new(Blame::Environment, message)
}

/// Returns the failure of an attempt that needs an unreachable node.
pub(crate) fn unreachable(message: &str, node: NodeId) -> TaskFailure {
    TaskFailure { unreachable: Some(node), ..environment(message) }
}

fn lost(message: &str, runs: Vec<RunId>) -> TaskFailure {
    TaskFailure { lost_runs: runs, ..environment(message) }
}

impl<'a> MapWork<'a> {
    /// Appends a few records, or sends the rest. Must not hold the lock of the data plane.
    pub fn step(mut self: Box<Self>, count: usize) -> Step<'a> {
        let end = (self.next + count.min(RECORDS_PER_STEP_MAX)).min(self.records.len());
        for record in &self.records[self.next..end] {
            let key_bytes = record.key.len();
            if let Err(error) = self.appender.append(record.ifile, &record.key, &record.value, key_bytes) {
                return Step::ends(Err(append_failure(&error)));
            }
        }
        self.next = end;
        if end < self.records.len() {
            return Step::GoesOn(Work::Map(self));
        }
        match self.appender.finish() {
            Ok(appended) => {
                let (commits, withheld) = (appended.commits, appended.withheld);
                Step::ends(Ok(TaskResult::Map(MapResult { commits, withheld, ..MapResult::default() })))
            }
            Err(error) => Step::ends(Err(append_failure(&error))),
        }
    }
}

fn append_failure(error: &AppendError) -> TaskFailure {
    let blame = match error {
        AppendError::Refused { .. } | AppendError::TooLarge { .. } => Blame::Engine,
        _ => Blame::Environment,
    };
    let unreachable = match error {
        AppendError::Gone(chunk) => Some(chunk.node()),
        _ => None,
    };
    TaskFailure { unreachable, ..TaskFailure::new(blame, error.to_string()) }
}

/// Returns the node to read a run from, and the other node that has it, if any.
fn homes(here: NodeId, run: RunId, places: &[RunPlace]) -> (NodeId, Option<NodeId>) {
    match RunPlace::of(run, places) {
        None => (run.node(), None),
        Some(place) if place.replica == Some(here) => (here, Some(place.node)),
        Some(place) => (place.node, place.replica),
    }
}

impl Reading {
    /// Reads the next run. None if the caller must try again.
    fn read_next(
        &mut self,
        plane: &mut DataPlane,
        here: &Here<'_>,
        run: RunId,
        places: &[RunPlace],
    ) -> Result<Option<()>, TaskFailure> {
        let (home, second) = homes(here.node, run, places);
        let mut read = plane.read(Between { here: here.node, there: home }, here.job, run);
        if let (Err(_), Some(second)) = (&read, second) {
            let other = plane.read(Between { here: here.node, there: second }, here.job, run);
            if other.is_ok() {
                plane.sometimes.saw(Situation::ReplicaReadInstead);
                read = other;
            }
        }
        match read {
            Ok(found) => self.runs.push(found),
            Err(ReadError::Stale) if plane.planted == Some(Planted::StaleChunkReadAsEmpty) => {
                self.runs.push(Arc::new(ShuffleRun::empty(run)));
            }
            Err(ReadError::Unreachable | ReadError::Stale) => {
                self.tries += 1;
                plane.unreached.insert((here.node, home));
                if self.tries < READ_TRIES_MAX {
                    return Ok(None);
                }
                return Err(unreachable("a node with a run cannot be reached", home));
            }
            Err(ReadError::Unknown) => return Err(lost("a run is not known where it lies", vec![run])),
            Err(ReadError::Damaged) => {
                let data = plane.job_data(home, here.job).filter(|_| home == here.node);
                let mut runs: BTreeSet<RunId> =
                    data.into_iter().flat_map(|data| data.damaged.clone()).collect();
                runs.insert(run);
                return Err(lost("a run is damaged", runs.into_iter().collect()));
            }
        }
        self.tries = 0;
        Ok(Some(()))
    }
}

/// Performs a step of a task that is no map. The caller holds the lock of the data plane.
pub(crate) fn step<'a>(plane: &mut DataPlane, here: &Here<'_>, work: Work<'a>) -> Step<'a> {
    match work {
        Work::Map(_) => unreachable!("map attempts make their own steps"),
        Work::Fetch(work) => fetch(plane, here, work),
        Work::Seal(task) => Step::ends(seal(plane, here, &task).map(TaskResult::Seal)),
        Work::Merge(task, mut reading) => match task.runs.get(reading.runs.len()) {
            Some(run) => match reading.read_next(plane, here, *run, &task.places) {
                Ok(_) => Step::GoesOn(Work::Merge(task, reading)),
                Err(failure) => Step::ends(Err(failure)),
            },
            None => Step::ends(merge(plane, here, &task, &reading.runs).map(TaskResult::Merge)),
        },
        Work::Reduce(task, mut reading) => match task.runs.get(reading.runs.len()) {
            Some(run) => match reading.read_next(plane, here, *run, &task.places) {
                Ok(_) => Step::GoesOn(Work::Reduce(task, reading)),
                Err(failure) => Step::ends(Err(failure)),
            },
            None => {
                if task.lower_key.is_some() {
                    plane.sometimes.saw(Situation::IfileCutInRanges);
                }
                let (result, output) = reduce(here, &task, &reading.runs, plane.planted);
                Step::WritesPart(Box::new(result), output)
            }
        },
        Work::Sync(result) => Step::SyncsPart(result),
        Work::Commit(task) => {
            debug_assert_eq!(here.attempt.task.stage, COMMIT);
            Step::Publishes(task)
        }
        Work::SyncOutput => Step::SyncsOutput,
    }
}

/// Closes and sorts the rest of a job's chunks, and lists all of them with the promoted replicas.
fn seal(plane: &mut DataPlane, here: &Here<'_>, task: &SealTask) -> Result<SealResult, TaskFailure> {
    let gone = || environment("the job is over");
    plane.job_data(here.node, here.job).ok_or_else(gone)?.books.begin_seal();
    while plane.sort_some(here.node, here.job) {}
    let data = plane.job_data(here.node, here.job).ok_or_else(gone)?;
    let mut chunks = data.books.chunk_summaries();
    let is_own = |run: &&Arc<ShuffleRun>| run.chunks().iter().any(|chunk| chunk.node() == here.node);
    let mut runs: Vec<_> = data.runs.values().filter(is_own).map(|run| run.summary()).collect();
    for id in &task.standing {
        let run = data.copies.get(id).ok_or_else(|| lost("a replica is not here", vec![*id]))?;
        chunks.extend(chunks_of(run, here.plan));
        runs.push(run.summary());
    }
    data.standing.extend(&task.standing);
    let lost = data.books.lost();
    Ok(SealResult { chunks, runs, lost, ..SealResult::default() })
}

/// Returns the accounts of the chunks of a replica, from its source table.
fn chunks_of(run: &ShuffleRun, plan: &JobPlan) -> Vec<ChunkSummary> {
    let mut sums: BTreeMap<ChunkId, BTreeMap<Source, DataSum>> = BTreeMap::new();
    for row in &run.sources {
        sums.entry(row.chunk).or_default().entry(row.source).or_default().add(&row.sum);
    }
    let capacity_bytes = plan.layout().chunk_bytes;
    let summary = |(chunk, sources): (ChunkId, BTreeMap<Source, DataSum>)| ChunkSummary {
        chunk,
        ifile: run.ifile,
        generation: 0,
        disk: DiskIndex(0),
        capacity_bytes,
        appended_bytes: sources.values().map(|sum| sum.bytes).sum(),
        oversize: false,
        sources: sources.into_iter().collect(),
    };
    sums.into_iter().map(summary).collect()
}

fn merge(
    plane: &mut DataPlane,
    here: &Here<'_>,
    task: &MergeTask,
    runs: &[Arc<ShuffleRun>],
) -> Result<MergeResult, TaskFailure> {
    let data = plane.job_data(here.node, here.job).ok_or_else(|| environment("the job is over"))?;
    let run = Arc::new(ShuffleRun::merge(data.books.take_run_id(), runs));
    for old in &task.runs {
        data.runs.remove(old);
        if data.standing.remove(old) {
            data.copies.remove(old);
        }
    }
    data.runs.insert(run.id, Arc::clone(&run));
    let replaced = task.runs.clone();
    Ok(MergeResult { replaced, run: run.summary(), retrievals: 0, retrieved_bytes: 0 })
}

/// Merges, drops records of losers, and returns the records in order.
fn reduce(
    here: &Here<'_>,
    task: &ReduceTask,
    runs: &[Arc<ShuffleRun>],
    planted: Option<Planted>,
) -> (ReduceResult, Vec<RecordName>) {
    let bound = |key: &Option<api::KeyBytes>| key.as_ref().map(|key| key.0.clone());
    let (lower, upper) = (bound(&task.lower_key), bound(&task.upper_key));
    let cursors: Vec<Cursor> =
        runs.iter().map(|run| Cursor::open(run, lower.as_deref(), upper.as_deref())).collect();
    let winners =
        Winners::new(task.valid_attempts.iter().copied(), []).with_older(task.older_attempts.iter().copied());
    let valid = runs.iter().map(|run| match planted {
        Some(Planted::AttemptMixUp) => vec![true; run.sources.len()],
        _ => winners.valid_rows(run.ifile, &run.sources),
    });
    let valid: Vec<Vec<bool>> = valid.collect();
    let Ok(merge) = Merge::new(cursors);
    let mut groups = Groups::new(merge, valid);
    if task.keeps_books {
        groups = groups.keeping_books();
    }
    let mut output = Vec::new();
    while let Ok(Some(record)) = groups.advance() {
        output.push(JobPlan::name_of(record.value));
    }
    let part = match here.plan.feeds {
        true => part_of(here, task.part_index, &output),
        false => Part {
            name: format!("part-{:05}", task.part_index),
            attempt_name: format!(
                "job-{}-part-{:05}-attempt-{}",
                here.job, task.part_index, here.attempt.attempt.0
            ),
            records: output.len() as u64,
            ..Part::default()
        },
    };
    let report = groups.report();
    let result = ReduceResult {
        part,
        merged: report.merged,
        groups: report.groups,
        dropped_records: report.dropped_records,
        books: books(&groups),
        upper_key: task.upper_key.clone(),
        ..ReduceResult::default()
    };
    (result, output)
}

fn books(groups: &Groups<Cursor>) -> Vec<SourceBooks> {
    let mut sums: BTreeMap<(IfileIndex, ChunkId, Source), DataSum> = BTreeMap::new();
    for (run, rows) in groups.runs().iter().zip(groups.row_sums()) {
        for (row, sum) in run.sources().iter().zip(rows).filter(|(_, sum)| sum.records > 0) {
            sums.entry((run.ifile(), row.chunk, row.source)).or_default().add(sum);
        }
    }
    let entry = |((ifile, chunk, source), sum)| SourceBooks { ifile, chunk, source, sum };
    sums.into_iter().map(entry).collect()
}
