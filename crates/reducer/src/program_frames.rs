//! The reducer that is a user's program and exchanges frames with the engine: a process has the whole range, and may have had others before.

use crate::fed_frames::{job_frame, write_end, write_groups, write_job};
use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use crate::taken_frames::{PutOut, take_from_program};
use api::program::ProgramRole;
use api::{Blame, TaskFailure};
use frames::GroupBatch;
use program::{Feed, FunctionContext, ProgramSpec};

/// Feeds groups to a program and writes the pairs, or the bytes, that it puts out.
pub(crate) struct FramesReducer {
    spec: ProgramSpec,
    context: FunctionContext,
}

impl FramesReducer {
    pub(crate) fn new(words: &[String], context: &FunctionContext) -> Self {
        Self { spec: ProgramSpec::new(words, context), context: context.clone() }
    }
}

impl ReduceFunction for FramesReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let context = &self.context;
        let (taken, counts) = program::run_task(context, &self.spec, |feed, stdout| {
            (
                move || take_from_program(stdout, context, |each| write_from_program(output, each)),
                move || feed_groups(input, feed, ProgramRole::Reduce, context),
            )
        })?;
        taken.complete()?;
        Ok(counts)
    }
}

/// Puts what came from a program into a part.
pub fn write_from_program(output: &mut PartWriter, each: PutOut<'_>) -> Result<(), TaskFailure> {
    match each {
        PutOut::Pair { key, value } => output.write_pair(key, value),
        PutOut::TailedPair { .. } => {
            let message =
                "the program put out pairs of keys with tails, which only go from mappers to reducers";
            Err(TaskFailure::new(Blame::UserData, message))
        }
        PutOut::Output { records, bytes } if output.takes_records() => output.write_records(bytes, records),
        PutOut::Output { .. } => {
            let message = "the program put out bytes of its part, but the output format is lines: give --output-format raw";
            Err(TaskFailure::new(Blame::UserData, message))
        }
    }
}

/// Feeds sorted records to a program in frames, and ends its input.
pub fn feed_groups(
    input: &mut (impl GroupedRecords + ?Sized),
    mut feed: Feed,
    role: ProgramRole,
    context: &FunctionContext,
) -> Result<ReduceCounts, TaskFailure> {
    write_job(&mut feed, &job_frame(role, None, context))?;
    let mut counts = ReduceCounts::default();
    let mut batch = GroupBatch::default();
    while let Some(record) = input.next()? {
        counts.groups += u64::from(record.starts_group);
        batch.push(record.key, record.value, record.starts_group);
        if batch.bytes() >= context.buffer_bytes {
            write_groups(&mut feed, &mut batch, context)?;
            if feed.abandoned() {
                return Ok(counts);
            }
        }
    }
    write_groups(&mut feed, &mut batch, context)?;
    write_end(&mut feed)?;
    counts.unread_bytes = feed.unread_bytes();
    Ok(counts)
}
