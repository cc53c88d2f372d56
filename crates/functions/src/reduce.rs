//! Reduce functions and the types between them and their surroundings: grouped records in, a part out.

pub(crate) mod aggregate;
pub(crate) mod check_order;
pub(crate) mod folds;
pub(crate) mod tera_join;

use api::TaskFailure;
use output::PartWriter;

/// A record of a sorted, grouped stream.
#[derive(Clone, Copy, Debug)]
pub struct GroupedRecord<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Set on the first record of each key.
    pub starts_group: bool,
    /// True if its line had a separator although the value is empty.
    pub is_separated: bool,
}

/// A stream of records in key order, values of a key in input order; the merge implements it.
pub trait GroupedRecords {
    /// Returns the next record, or None at the end. An error is final.
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure>;

    /// Writes all remaining pairs. Returns the number of groups. Because the type of the stream is known here, a record
    /// costs no dynamic call.
    fn write_pairs(&mut self, output: &mut PartWriter) -> Result<u64, TaskFailure> {
        let mut groups = 0;
        while let Some(record) = self.next()? {
            groups += u64::from(record.starts_group);
            match record.is_separated {
                false => output.write_pair(record.key, record.value)?,
                true => output.write_separated(record.key, record.value)?,
            }
        }
        Ok(groups)
    }
}

/// Counts of a run of a reduce function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReduceCounts {
    /// Number of distinct keys.
    pub groups: u64,
    /// Bytes of lines that the user's program did not read.
    pub unread_bytes: u64,
}

/// A reduce function: built-in functions and user programs implement it.
pub trait ReduceFunction: Send {
    /// Reads the input to its end, always, and writes the result.
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure>;
}
