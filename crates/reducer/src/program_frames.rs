//! The reducer that is a user's program and exchanges frames with the engine: a process gets the whole range, and may
//! have had others before.

use api::TaskFailure;
use api::program::ProgramRole;
use functions::{
    GroupedRecords, ReduceCounts, ReduceFunction, feed_groups, take_from_program, write_from_program,
};
use output::PartWriter;
use program::{FunctionContext, ProgramSpec};

/// Reduce function that feeds groups to a program and writes its output pairs or bytes.
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
