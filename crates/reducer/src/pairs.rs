//! The reducer that writes the sorted pairs.

use api::TaskFailure;
use functions::{GroupedRecords, ReduceCounts, ReduceFunction};
use output::PartWriter;

/// Reduce function that writes every pair unchanged.
pub(crate) struct PairWriter;

impl ReduceFunction for PairWriter {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let groups = input.write_pairs(output)?;
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}
