//! A reduce attempt: cursors -> merge -> groups -> user reduce -> part.

mod key_tails;
mod read_run;

use crate::clock::now_ns;
use crate::job_data::{AttemptData, JobData};
use crate::shared::Shared;
use crate::shuffle::local::{merge_need_bytes, read_ahead_bytes, with_lost_beside};
use crate::shuffle::remote::{OtherNodes, RunFailure};
use crate::slots::meters::Meter;
use crate::tasks::reduce::key_tails::KeyTails;
use crate::tasks::reduce::read_run::ReadRun;
use crate::tasks::streaming_env::TaskPlace;
use crate::tasks::work_dir::{WorkDir, function_context};
use api::task::{AttemptUsage, Part, ReduceResult, ReduceTask, SourceAudit};
use api::{Blame, DataSum, Function, JobSpec, KeyBytes, TaskFailure};
use chunkserver::{ChunkServer, ChunkServerError, Run, RunCursor};
use faults::{PlantedFault, planted};
use functions::{GroupedRecord, GroupedRecords, ReduceCounts, ReducedValues};
use ids::{AttemptKey, ChunkId, IfileIndex, NodeId, RunId, Source};
use ifile::KeyShape;
use imerger::{Groups, Merge, SortedRun, Winners};
use keys::KeyDecoder;
use output::PartWriter;
use program::FunctionContext;
use reducer::reduce_function;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of records between two checks of the stop flag and two updates of the progress.
const RECORDS_PER_LOOK: u32 = 512;
/// Bytes of a record in a run besides its key and value, in most cases.
const LENGTHS_BYTES: u64 = 2;

pub(crate) fn run(
    shared: &Shared,
    job: &AttemptData,
    task: &ReduceTask,
) -> Result<ReduceResult, TaskFailure> {
    let metering = shared.meters.begin(job.attempt, task.expected_bytes);
    let meter = &*metering.meter;
    let chunkserver = job.chunkserver()?;
    let others = shared.other_nodes(job.job);
    let is_away = |run: &RunId| others.as_ref().is_some_and(|others| others.is_away(*run, &task.places));
    let mut runs: Vec<Arc<Run>> = Vec::with_capacity(task.runs.len());
    for id in task.runs.iter().filter(|run| !is_away(run)) {
        let run = chunkserver.run(*id);
        runs.push(run.ok_or_else(|| ChunkServerError::UnknownRun(*id).to_failure())?);
    }
    let away_count = task.runs.len() - runs.len();
    let blocks_here_bytes: u64 = runs.iter().map(|run| run.block_bytes_max()).sum();
    let away_bytes = match away_count {
        0 => 0,
        _ => OtherNodes::need_bytes(task.largest_blocks_bytes.saturating_sub(blocks_here_bytes)),
    };
    let pass = job.gate.enter(merge_need_bytes(job, &runs, away_bytes), &job.cancelled)?;
    let here_bytes = pass.bytes().saturating_sub(away_bytes);
    let read_ahead = read_ahead_bytes(job, &runs, here_bytes);
    let reducing = Reducing { shared, job, chunkserver: &chunkserver, meter, task };
    let reduced = match others {
        Some(others) if away_count > 0 => reducing.reduce(others.open(job, task, &runs, read_ahead)),
        _ => reducing.reduce(open(task, &runs, read_ahead)),
    };
    reduced.map_err(|failure| with_lost_beside(failure, &chunkserver))
}

/// A reduce attempt with its data.
struct Reducing<'a> {
    shared: &'a Shared,
    job: &'a AttemptData,
    chunkserver: &'a ChunkServer,
    meter: &'a Meter,
    task: &'a ReduceTask,
}

impl Reducing<'_> {
    /// Runs the reducer over the merge of some runs.
    fn reduce<R: ReadRun>(&self, cursors: Result<Vec<R>, R::Error>) -> Result<ReduceResult, TaskFailure> {
        let Self { shared, job, chunkserver, meter, task } = *self;
        let spec = &job.run.spec;
        let groups = cursors.and_then(|cursors| groups(task, cursors));
        let groups = groups.map_err(|error| error.to_task_failure())?;
        let attempt = job.attempt;
        let marks = groups.runs().iter().filter_map(ReadRun::read_mark).collect();
        let _reading = chunkserver.begin_reading(attempt, marks);
        let mut input = GroupsInput {
            groups,
            shared,
            attempt,
            meter,
            upper_key: task.upper_key.clone(),
            done_bytes: 0,
            cancelled: &job.cancelled,
            until_look: RECORDS_PER_LOOK,
            bytes: 0,
            tails: spec.keys.tails.then(KeyTails::default),
        };
        let work_dir = WorkDir::create(shared, job, attempt, &[spec.reducer.as_ref()])?;
        let context = function_context(shared, job, attempt, TaskPlace::Reduce(task.part_index), &work_dir)?;
        if matches!(spec.reducer, Some(Function::Command { .. })) {
            meter.is_done_by(&context.reports);
        }
        let opened_ns = Some(now_ns());
        let made = run_function(job, task, &context, &mut input).map_err(|failure| work_dir.excuse(failure));
        let (counts, part) = made?;
        input.count_rest();
        let report = input.groups.report();
        let reads = input.groups.runs().iter().map(ReadRun::report);
        let (retrievals, retrieved_bytes) = reads
            .fold((0, 0), |(count, bytes), read| (count + read.retrievals, bytes + read.retrieved_bytes));
        let away = input.groups.runs().iter().filter(|run| run.waited().is_some());
        let moved_bytes = away.map(|run| run.report().retrieved_bytes).sum();
        shared.meters.add_used(attempt, AttemptUsage { moved_bytes, ..AttemptUsage::default() });
        let resumed = input.groups.runs().iter().filter(|run| run.resumed()).count();
        if resumed > 0 {
            tracing::info!(job = %job.job, %attempt, runs = resumed, "after a failure, runs were read at their replicas");
        }
        Ok(ReduceResult {
            part,
            merged: report.merged,
            groups: report.groups,
            unread_bytes: counts.unread_bytes,
            dropped_records: report.dropped_records,
            retrievals,
            retrieved_bytes,
            fan_in: task.runs.len() as u32,
            counters: context.reports.counters(),
            status: context.reports.status(),
            said: context.reports.said(),
            opened_ns,
            source_audits: books(&input.groups),
            upper_key: input.upper_key,
        })
    }
}

/// Runs the reducer over all groups, into a part.
fn run_function<R: ReadRun>(
    job: &AttemptData,
    task: &ReduceTask,
    context: &FunctionContext,
    input: &mut GroupsInput<'_, R>,
) -> Result<(ReduceCounts, Part), TaskFailure> {
    let spec = &job.run.spec;
    let place = || job.part_place(task.part_index, job.attempt.attempt);
    let mut part = PartWriter::create(place(), &spec.formats)?;
    let mut function = reduce_function(spec.reducer.as_ref(), reduced_values(spec), context, &spec.formats)?;
    let decoder = KeyDecoder::new(&spec.keys);
    let counts = if decoder.is_plain() {
        function.run(input, &mut part)?
    } else {
        function.run(&mut DecodedInput::new(job, decoder, input), &mut part)?
    };
    if counts.groups == 0 && spec.streaming.is_some() {
        // Hadoop drops the output of a reducer without input.
        drop(part);
        part = PartWriter::create(place(), &spec.formats)?;
    }
    Ok((counts, job.register_part(part.finish()?)))
}

/// Returns the kind of values that a built-in reducer reads: partial results if it is the combiner as well.
fn reduced_values(spec: &JobSpec) -> ReducedValues {
    match &spec.reducer {
        Some(Function::Builtin { .. }) if spec.combiner == spec.reducer => ReducedValues::Partial,
        _ => ReducedValues::Emitted,
    }
}

fn open<'a>(
    task: &ReduceTask,
    runs: &'a [Arc<Run>],
    read_ahead_bytes: usize,
) -> Result<Vec<RunCursor<'a>>, ChunkServerError> {
    let lower = task.lower_key.as_ref().map(|key| key.0.as_slice());
    let upper = task.upper_key.as_ref().map(|key| key.0.as_slice());
    runs.iter().map(|run| RunCursor::open(run, lower, upper, read_ahead_bytes)).collect()
}

fn groups<R: SortedRun>(task: &ReduceTask, cursors: Vec<R>) -> Result<Groups<R>, R::Error> {
    let winners =
        Winners::new(task.valid_attempts.iter().copied(), []).with_older(task.older_attempts.iter().copied());
    let mixed = planted(PlantedFault::AttemptMixed);
    let mut valid = Vec::with_capacity(cursors.len());
    for run in &cursors {
        let mut rows = winners.valid_rows(run.ifile(), run.sources());
        if mixed {
            rows.fill(true);
        }
        valid.push(rows);
    }
    let groups = Groups::new(Merge::new(cursors)?, valid);
    Ok(if task.audits_sources { groups.auditing_sources() } else { groups })
}

/// Returns the sums of the records read by source and chunk, if the task must report them.
fn books<R: SortedRun>(groups: &Groups<R>) -> Vec<SourceAudit> {
    let mut sums: BTreeMap<(IfileIndex, ChunkId, Source), DataSum> = BTreeMap::new();
    for (run, rows) in groups.runs().iter().zip(groups.row_sums()) {
        for (row, sum) in run.sources().iter().zip(rows).filter(|(_, sum)| sum.records > 0) {
            sums.entry((run.ifile(), row.chunk, row.source)).or_default().add(sum);
        }
    }
    let entry = |((ifile, chunk, source), sum)| SourceAudit { ifile, chunk, source, sum };
    sums.into_iter().map(entry).collect()
}

/// The merge as the input of a reduce function, observed.
struct GroupsInput<'a, R: ReadRun> {
    groups: Groups<R>,
    shared: &'a Shared,
    attempt: AttemptKey,
    meter: &'a Meter,
    /// Upper bound of its range.
    upper_key: Option<KeyBytes>,
    /// Approximate bytes of its records in runs.
    done_bytes: u64,
    cancelled: &'a AtomicBool,
    until_look: u32,
    bytes: u64,
    /// Set if keys have tails.
    tails: Option<KeyTails>,
}

impl<R: ReadRun> GroupsInput<'_, R> {
    #[cold]
    fn look(&mut self) -> Result<(), TaskFailure> {
        self.until_look = RECORDS_PER_LOOK;
        self.count_rest();
        self.count_waits();
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
        }
        Ok(())
    }

    /// Gives up the end of its range, if that is requested and the merge has not reached it
    /// (`docs/internals/elastic.md`).
    #[cold]
    fn end_earlier(&mut self) {
        let keys = self.meter.take_end_keys();
        let taken = keys.into_iter().find(|key| self.groups.end_before(&key.0));
        if let Some(key) = taken {
            self.upper_key = Some(key.clone());
            self.shared.control.shortened(self.attempt, key);
        }
    }

    fn count_waits(&self) {
        let mut by_node: BTreeMap<NodeId, Duration> = BTreeMap::new();
        for (node, waited) in self.groups.runs().iter().filter_map(ReadRun::waited) {
            *by_node.entry(node).or_default() += waited;
        }
        let longest = by_node.iter().max_by_key(|(_, waited)| **waited).map(|(node, _)| *node);
        self.meter.has_waited_to_read(by_node.values().sum(), longest);
    }

    fn count_rest(&mut self) {
        self.shared.counters.reduced_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl<R: ReadRun> GroupedRecords for GroupsInput<'_, R> {
    #[inline]
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
        self.until_look -= 1;
        if self.until_look == 0 {
            self.look()?;
        }
        if self.meter.is_to_end() {
            self.end_earlier();
        }
        let Some(record) = self.groups.advance().map_err(|error| error.to_task_failure())? else {
            return Ok(None);
        };
        let bytes = (record.key.len() + record.value.len()) as u64;
        self.bytes += bytes;
        self.done_bytes += bytes + LENGTHS_BYTES;
        self.meter.has_done(self.done_bytes);
        let starts_group = match &mut self.tails {
            Some(tails) => tails.starts_group(&record)?,
            None => record.starts_group,
        };
        let is_separated = record.is_separated;
        Ok(Some(GroupedRecord { key: record.key, value: record.value, starts_group, is_separated }))
    }
}

/// Decodes stored keys to the user's keys.
struct DecodedInput<'a, G> {
    decoder: KeyDecoder,
    /// The stored key of the last record, if the partition key is only its prefix: a group consists of records that are
    /// equal in the whole order, whatever keeps records in one part.
    last_key: Option<Vec<u8>>,
    inner: &'a mut G,
}

impl<'a, G: GroupedRecords> DecodedInput<'a, G> {
    fn new(job: &JobData, decoder: KeyDecoder, inner: &'a mut G) -> Self {
        let last_key = (job.key_shape == KeyShape::Prefix).then(Vec::new);
        Self { decoder, last_key, inner }
    }
}

impl<G: GroupedRecords> GroupedRecords for DecodedInput<'_, G> {
    #[inline]
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
        let Some(mut record) = self.inner.next()? else { return Ok(None) };
        if let Some(last_key) = &mut self.last_key {
            record.starts_group |= last_key.as_slice() != record.key;
            if record.starts_group {
                last_key.clear();
                last_key.extend_from_slice(record.key);
            }
        }
        match self.decoder.decode(record.key, record.value) {
            Some((key, value)) => Ok(Some(GroupedRecord { key, value, ..record })),
            None => Err(TaskFailure::new(Blame::Engine, "a stored key is not encoded as the job says")),
        }
    }
}
