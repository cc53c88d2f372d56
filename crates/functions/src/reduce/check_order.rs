//! `builtin:check-order`: the work of the reduce tasks in the paper's benchmark (Sailfish, section 6.2.1).

use crate::reduce::{GroupedRecords, ReduceCounts, ReduceFunction};
use api::{Blame, TaskFailure};
use output::PartWriter;

/// Checks that no key is below the previous one, and passes the pairs on for counting.
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

#[cfg(test)]
mod tests {
    use super::CheckOrderReducer;
    use crate::reduce::{GroupedRecord, GroupedRecords, ReduceFunction};
    use api::{Blame, Formats, OutputFormat, TaskFailure};
    use ids::AttemptNumber;
    use output::{PartPlace, PartWriter};

    /// Keys, each with whether it begins a group.
    struct Keys(Vec<(&'static [u8], bool)>);

    impl GroupedRecords for Keys {
        fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
            if self.0.is_empty() {
                return Ok(None);
            }
            let (key, starts_group) = self.0.remove(0);
            Ok(Some(GroupedRecord { key, value: b"v", starts_group, is_separated: false }))
        }
    }

    /// Checks the groups and records of keys in order; None expects an error.
    fn check(keys: &[(&'static [u8], bool)], expected: Option<(u64, u64)>) {
        let staging = tempfile::tempdir().unwrap();
        let place = PartPlace {
            staging: staging.path(),
            part_index: 0,
            attempt: AttemptNumber(0),
            buffer_bytes: 100,
            object_buffer_bytes: 0,
            sync: false,
            is_stage_file: false,
            is_hashed: false,
            stored: None,
        };
        let formats = Formats { output: OutputFormat::Discard, ..Formats::default() };
        let mut part = PartWriter::create(place, &formats).unwrap();
        let outcome = CheckOrderReducer.run(&mut Keys(keys.to_vec()), &mut part);
        match outcome {
            Ok(counts) => assert_eq!(Some((counts.groups, part.finish().unwrap().records)), expected),
            Err(failure) => {
                assert_eq!((failure.blame, expected), (Blame::Engine, None), "{}", failure.message);
            }
        }
    }

    #[test]
    fn order_and_groups_are_checked() {
        check(&[], Some((0, 0)));
        check(&[(b"", true), (b"a", true), (b"a", false), (b"b", true)], Some((3, 4)));
        check(&[(b"b", true), (b"a", true)], None);
        check(&[(b"a", true), (b"a", true)], None);
        check(&[(b"a", true), (b"b", false)], None);
    }
}
