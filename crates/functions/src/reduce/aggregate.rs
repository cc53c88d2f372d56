//! `builtin:aggregate` as a reducer.

use crate::aggregate::{Aggregate, AggregateError, Kind, kind_and_name};
use crate::reduce::{GroupedRecords, ReduceCounts, ReduceFunction};
use api::TaskFailure;
use output::PartWriter;

/// Writes a line for each key: the fold of its values that the key names.
pub(crate) struct AggregateReducer;

impl ReduceFunction for AggregateReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let mut groups = 0;
        let mut open: Option<(Kind, Vec<u8>, Aggregate)> = None;
        while let Some(record) = input.next()? {
            let failure = |error: AggregateError| error.failure(record.key, record.value);
            match &mut open {
                Some((kind, _, state)) if !record.starts_group => {
                    kind.add(state, record.value).map_err(failure)?;
                }
                before => {
                    if let Some((_, name, state)) = before.take() {
                        output.write_pair(&name, &state.finish())?;
                    }
                    groups += 1;
                    let (kind, name) = kind_and_name(record.key).map_err(failure)?;
                    let state = kind.start(record.value).map_err(failure)?;
                    open = Some((kind, name.to_vec(), state));
                }
            }
        }
        if let Some((_, name, state)) = open {
            output.write_pair(&name, &state.finish())?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}
