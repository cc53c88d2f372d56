//! The mapper that is a user's program and exchanges frames with the engine: a process has a split after the other.

use api::program::ProgramRole;
use api::{Blame, TaskFailure};
use functions::{
    Emitter, MapCounts, MapFunction, PutOut, RecordInput, Taken, job_frame, take_from_program, write_end,
    write_job, write_records,
};
use output::PartWriter;
use program::{Feed, FunctionContext, ProgramOutput, ProgramSpec};

/// Feeds the records of a split to a program and emits the pairs it puts out.
pub(crate) struct FramesMapper {
    spec: ProgramSpec,
    context: FunctionContext,
}

impl FramesMapper {
    pub(crate) fn new(words: &[String], context: &FunctionContext) -> Self {
        Self { spec: ProgramSpec::new(words, context), context: context.clone() }
    }

    /// Runs the program over the input. `take` gets what it puts out.
    pub(crate) fn run_over(
        &self,
        input: &mut dyn RecordInput,
        take: impl FnMut(PutOut<'_>) -> Result<(), TaskFailure>,
    ) -> Result<MapCounts, TaskFailure> {
        let context = &self.context;
        let (unread_bytes, taken): (u64, Taken) = program::run_task(context, &self.spec, |feed, stdout| {
            let take = move |stdout: ProgramOutput| take_from_program(stdout, context, take);
            (move || feed_records(input, feed, context), move || take(stdout))
        })?;
        let taken = taken.complete()?;
        Ok(MapCounts { unread_bytes, output_records: taken.records, output_bytes: taken.bytes })
    }
}

impl MapFunction for FramesMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        self.run_over(input, |each| emit(output, each))
    }
}

/// Hands on a pair that a program put out; between stages there is nothing else.
pub(crate) fn emit(output: &mut dyn Emitter, each: PutOut<'_>) -> Result<(), TaskFailure> {
    match each {
        PutOut::Pair { key, value } => output.emit(key, value),
        PutOut::TailedPair { key, value, partition_key_bytes } => {
            output.emit_with_tail(key, value, partition_key_bytes)
        }
        PutOut::Output { .. } => {
            let message = "the program wrote bytes of an output part, but reducers read only pairs";
            Err(TaskFailure::new(Blame::UserProgram, message))
        }
    }
}

/// A mapper in a map-only job: what it puts out goes into the part.
pub(crate) fn copy_through(
    words: &[String],
    context: &FunctionContext,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    FramesMapper::new(words, context).run_over(input, |each| functions::write_from_program(output, each))
}

/// Returns the bytes that the program did not take.
fn feed_records(
    input: &mut dyn RecordInput,
    mut feed: Feed,
    context: &FunctionContext,
) -> Result<u64, TaskFailure> {
    write_job(&mut feed, &job_frame(ProgramRole::Map, Some(input.format()), context))?;
    let mut records = Vec::new();
    while let Some(block) = input.next_block()? {
        // Copied, because the input is asked next where it lies.
        records.clear();
        records.shrink_to(context.buffer_bytes.saturating_mul(2));
        records.extend_from_slice(block);
        write_records(&mut feed, input.place(), &input.source_name(), &records)?;
        if feed.abandoned() {
            break;
        }
    }
    write_end(&mut feed)?;
    Ok(feed.unread_bytes())
}
