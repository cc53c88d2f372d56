//! A map attempt: split reader -> user map -> combine windows -> appender (or, in a map-only job, a part).

pub(crate) mod emit;
mod resend;
mod stage_input;
pub(crate) mod stored_input;
mod streaming_input;

use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::replicate::waiting::wait_for_replicas;
use crate::shuffle::spool::SpooledChunks;
use crate::slots::meters::{Meter, MeteredChunks, Meters};
use crate::slots::progress::Counters;
use crate::slots::state::SlotState;
use crate::tasks::map::emit::{AppendEmitter, EncodingEmitter};
use crate::tasks::map::resend::{Resending, Resent};
use crate::tasks::map::stage_input::StageInput;
use crate::tasks::map::stored_input::{PartsHere, StoredInput, StoredReads};
use crate::tasks::map::streaming_input::{PresentedInput, shape_for};
use crate::tasks::streaming_env::TaskPlace;
use crate::tasks::work_dir::{WorkDir, function_context};
use api::task::{AttemptUsage, MapResult, MapTask, Spool};
use api::{Blame, Function, JobSpec, Notice, RecordFormat, Replication, Segment, Split, TaskFailure};
use functions::{BlockPlace, Emitter, MapCounts, RecordInput};
use iappender::{Appended, ChunkService, IAppender};
use ids::{AttemptKey, JobId, Source};
use keys::KeyEncoder;
use mapper::{CombineEmitter, Openers, ReaderLimits, StoredFileSource, TaskInput, map_function};
use output::PartWriter;
use program::FunctionContext;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn run(
    shared: &Arc<Shared>,
    state: &mut SlotState,
    job: &AttemptData,
    task: &MapTask,
) -> Result<MapResult, TaskFailure> {
    let attempt = job.attempt;
    let mut not_resent = None;
    if let Some((again, resend)) = task.again.as_ref().and_then(|again| Some((again, again.resend.as_ref()?)))
    {
        match resend::run(&Resending { shared, job, attempt, again, resend }, state)? {
            Resent::Done(result) => return Ok(*result),
            Resent::NotReadable(why) => not_resent = Some(why),
        }
    }
    let spec = &job.run.spec;
    let work_dir = WorkDir::create(shared, job, attempt, &[spec.mapper.as_ref(), spec.combiner.as_ref()])?;
    let ran = run_in(shared, state, job, task, &work_dir);
    let result = ran.map_err(|failure| work_dir.excuse(failure))?;
    Ok(MapResult { not_resent, ..result })
}

fn run_in(
    shared: &Arc<Shared>,
    state: &mut SlotState,
    job: &AttemptData,
    task: &MapTask,
    work_dir: &WorkDir,
) -> Result<MapResult, TaskFailure> {
    let (spec, attempt) = (&job.run.spec, job.attempt);
    let context = function_context(shared, job, attempt, TaskPlace::Map(&task.split), work_dir)?;
    let limits = ReaderLimits {
        buffer_bytes: job.buffer_bytes(),
        record_bytes_max: spec.layout.record_bytes_max,
        object_buffer_bytes: job.object_buffer_bytes(),
    };
    let openers = openers(shared, job, task);
    let metering = shared.meters.begin(attempt, plain_bytes(spec, &task.split));
    // A program that has taken stretches has not read them yet.
    let of_stretches = spec.formats.input == RecordFormat::Stretches;
    if matches!(spec.mapper, Some(Function::Command { .. })) && !of_stretches {
        metering.meter.is_done_by(&context.reports);
    }
    let mut input = CountedInput {
        reader: TaskInput::open(spec, &task.split, limits, openers)?,
        counters: &shared.counters,
        meters: &shared.meters,
        attempt,
        meter: &metering.meter,
        waited: Duration::ZERO,
        cancelled: &job.cancelled,
        of_stretches,
    };
    let mut presented;
    let records: &mut dyn RecordInput = match shape_for(spec) {
        Some(shape) => {
            presented = PresentedInput::new(&mut input, shape);
            &mut presented
        }
        None => &mut input,
    };
    let mut result = MapResult::default();
    let counts = match task.part_index {
        Some(part_index) => {
            let (formats, place) = (&spec.formats, job.part_place(part_index, attempt.attempt));
            let mut part = PartWriter::create(place, formats)?;
            let counts = mapper::run_map_only(spec.mapper.as_ref(), &context, formats, records, &mut part)?;
            result.part = Some(job.register_part(part.finish()?));
            counts
        }
        None => {
            let place = Place { shared, job, attempt, meter: &metering.meter };
            let mapped = map_to_ifiles(&place, state, task, &context, records)?;
            (result.commits, result.withheld) = (mapped.appended.commits, mapped.appended.withheld);
            result.spool = mapped.spool;
            mapped.counts
        }
    };
    check_unread(spec, counts.unread_bytes)?;
    input.has_ended();
    result.input_bytes = input.reader.bytes();
    result.input_records = input.reader.records();
    result.output_records = counts.output_records;
    result.output_bytes = counts.output_bytes;
    result.unread_bytes = counts.unread_bytes;
    job.files.reads().put_into(&mut result);
    result.warnings = input.reader.warnings();
    result.counters = context.reports.counters();
    result.status = context.reports.status();
    result.said = context.reports.said();
    Ok(result)
}

/// Returns an error for a mapper that ended before its input, if the job requires it.
fn check_unread(spec: &JobSpec, unread_bytes: u64) -> Result<(), TaskFailure> {
    if spec.unread == Notice::Tell || unread_bytes == 0 {
        return Ok(());
    }
    let message = format!("the mapper ended before its input did, and left {unread_bytes} bytes unread");
    Err(TaskFailure::new(Blame::UserData, message))
}

/// A map attempt on its node, with the data of its job.
struct Place<'a> {
    shared: &'a Shared,
    job: &'a AttemptData,
    attempt: AttemptKey,
    meter: &'a Meter,
}

/// Returns the openers of the inputs of a task.
fn openers(shared: &Arc<Shared>, job: &AttemptData, task: &MapTask) -> Openers {
    let stage_files = StageInput::of(shared, job, job.attempt, task);
    let stored_files = stored_files(shared, job.job, &job.files.reads());
    Openers {
        paths: job.run.paths.clone(),
        seen: shared.options.seen.clone(),
        stage_files,
        stored_files,
        copies: job.files.inputs(),
    }
}

/// Returns the opener of stored files: of this machine, or of the cluster. The latter counts the bytes.
fn stored_files(shared: &Shared, job: JobId, reads: &Arc<StoredReads>) -> Option<Arc<dyn StoredFileSource>> {
    match shared.options.stored_files.clone() {
        Some(dir) => Some(StoredInput::source(PartsHere { dir })),
        None => shared.record_data.get().and_then(|data| data.stored_input(job, reads)),
    }
}

/// Returns the uncompressed bytes of a split; 0 if they are unknown before the end, because the input is compressed.
/// Stretches count in stored bytes.
fn plain_bytes(spec: &JobSpec, split: &Split) -> u64 {
    let file = |segment: &Segment| spec.inputs.get(segment.file_index as usize);
    let of_stretches = spec.formats.input == RecordFormat::Stretches;
    let is_plain = |segment: &Segment| file(segment).is_none_or(|file| file.compression.is_none());
    match of_stretches || split.segments.iter().all(is_plain) {
        true => split.segments.iter().map(|segment| segment.length_bytes).sum(),
        false => 0,
    }
}

/// Result of an appending attempt.
struct Mapped {
    counts: MapCounts,
    appended: Appended,
    spool: Option<Spool>,
}

fn map_to_ifiles(
    place: &Place<'_>,
    state: &mut SlotState,
    task: &MapTask,
    context: &FunctionContext,
    input: &mut dyn RecordInput,
) -> Result<Mapped, TaskFailure> {
    let Place { shared, job, attempt, meter } = *place;
    let spec = &job.run.spec;
    let chunkserver = job.chunkserver()?;
    let source = Source { map_task: attempt.task.task, attempt: attempt.attempt };
    let spread;
    let here = shared.control.node();
    let mut spools = spec.replication == Replication::Selective;
    let service = match shared.other_nodes(job.job) {
        Some(others) => {
            let (others, avoided) = match spools {
                true => (others.away_from(here), Some(here)),
                false => (others, None),
            };
            spools &= others.has_host_beside(here);
            spread = others.chunks(job, source, Arc::clone(&chunkserver), avoided);
            &spread as &dyn ChunkService
        }
        None => {
            spools = false;
            chunkserver.service()
        }
    };
    let metered = MeteredChunks::new(service, meter, here);
    // The spool would lack the valid data of earlier attempts.
    spools &= task.again.as_ref().is_none_or(|again| again.standing.is_empty());
    let spooled = spools.then(|| SpooledChunks::create(&metered, job, source, here)).flatten();
    let service = spooled.as_ref().map_or(&metered as &dyn ChunkService, |spooled| spooled);
    let mut appender =
        IAppender::new(service, &mut state.slabs, source, job.key_shape, spec.layout.ifile_count);
    if let Some(again) = &task.again {
        appender = appender.only_to(again.ifiles.iter().copied());
    }
    let mut output = AppendEmitter::new(shared, job, appender);
    let encoder = KeyEncoder::new(&spec.keys)
        .map_err(|error| TaskFailure::new(Blame::UserData, format!("the order of keys: {error}")))?;
    let counts = if encoder.is_plain() {
        map_and_combine(spec, context, input, &mut output)?
    } else {
        let mut encoded = EncodingEmitter::new(encoder, &mut output, &task.split);
        map_and_combine(spec, context, input, &mut encoded)?
    };
    let appended = output.finish()?;
    if spec.replication == Replication::Sync {
        wait_for_replicas(shared, job, Duration::MAX)?;
    }
    let spool = spooled.and_then(SpooledChunks::finish).filter(|_| appended.withheld.is_empty());
    Ok(Mapped { counts, appended, spool })
}

/// Combining needs the user's keys, so it precedes their encoding.
fn map_and_combine(
    spec: &JobSpec,
    context: &FunctionContext,
    input: &mut dyn RecordInput,
    output: &mut dyn Emitter,
) -> Result<MapCounts, TaskFailure> {
    let mut function = map_function(spec.mapper.as_ref(), context, &spec.formats)?;
    let Some(combiner) = &spec.combiner else {
        return function.run(input, output);
    };
    let window_bytes = spec.layout.combine_window_bytes;
    let mut combined = CombineEmitter::new(combiner, window_bytes, context, &spec.formats, output)?;
    if !spec.keys.order.is_empty() {
        combined = combined.in_order_of_keys();
    }
    let counts = function.run(input, &mut combined)?;
    combined.finish()?;
    Ok(counts)
}

/// The input of the task, observed: progress is counted, and a cancelled job stops here.
struct CountedInput<'a> {
    reader: TaskInput,
    counters: &'a Counters,
    meters: &'a Meters,
    attempt: AttemptKey,
    meter: &'a Meter,
    /// Time spent waiting for the reader.
    waited: Duration,
    cancelled: &'a AtomicBool,
    /// A program may have read nothing of the announced stretches: none counts before the end of the task.
    of_stretches: bool,
}

impl CountedInput<'_> {
    fn has_ended(&self) {
        if self.of_stretches {
            self.counters.input_bytes_read.fetch_add(self.reader.bytes(), Ordering::Relaxed);
        }
    }
}

impl Drop for CountedInput<'_> {
    /// Accounts for the input also if the attempt fails.
    fn drop(&mut self) {
        let read_bytes = self.reader.bytes();
        self.meters.add_used(self.attempt, AttemptUsage { read_bytes, ..AttemptUsage::default() });
    }
}

impl RecordInput for CountedInput<'_> {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
        }
        // The previous block is finished.
        if !self.of_stretches {
            self.meter.has_done(self.reader.bytes());
        }
        let began = Instant::now();
        self.meter.waits_to_read();
        let block = self.reader.next_block()?;
        self.waited += began.elapsed();
        self.meter.has_waited_to_read(self.waited, None);
        if let Some(block) = block.filter(|_| !self.of_stretches) {
            self.counters.input_bytes_read.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
        Ok(block)
    }

    fn format(&self) -> RecordFormat {
        self.reader.format()
    }

    fn place(&self) -> BlockPlace {
        self.reader.place()
    }

    fn source_name(&self) -> String {
        self.reader.source_name()
    }

    fn position(&self, offset_in_block: usize) -> String {
        self.reader.position(offset_in_block)
    }
}
