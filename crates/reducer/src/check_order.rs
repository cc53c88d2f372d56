//! `builtin:check-order`: what the reduce tasks of the paper's Benchmark do (Sailfish, section 6.2.1).

use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use api::{Blame, TaskFailure};

/// Checks that no key is below the one before it, and passes the pairs on, to be counted.
#[derive(Default)]
pub(crate) struct CheckOrderReducer;

impl ReduceFunction for CheckOrderReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let mut groups = 0;
        let mut previous: Vec<u8> = Vec::new();
        let mut records: u64 = 0;
        while let Some(record) = input.next()? {
            let key = record.key;
            let in_order = match record.starts_group {
                true => records == 0 || previous.as_slice() < key,
                false => previous == key,
            };
            if !in_order {
                let message = format!(
                    "record {records} of this reduce task is out of order: key {} after {}",
                    key.escape_ascii(),
                    previous.escape_ascii()
                );
                return Err(TaskFailure::new(Blame::Engine, message));
            }
            if record.starts_group {
                groups += 1;
                previous.clear();
                previous.extend_from_slice(key);
            }
            records += 1;
            output.write_pair(key, record.value)?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}
