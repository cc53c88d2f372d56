//! The merged stream as the reducer sees it: winners only, with the beginning of each group marked.

use crate::merge::{Merge, SortedRun};
use api::DataSum;
use ids::IfileIndex;
use ifile::record_hash;
use std::collections::BTreeMap;

/// One record of the grouped stream; the hand-over to the reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The first record of its partition key.
    pub starts_group: bool,
}

/// What a merge put out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsReport {
    /// Per I-file, the sum of the records put out.
    pub merged: Vec<(IfileIndex, DataSum)>,
    pub groups: u64,
    /// Records of attempts that lost, or of void chunks.
    pub dropped_records: u64,
}

/// Groups over merged runs.
pub struct Groups<R: SortedRun> {
    merge: Merge<R>,
    /// Per run, per row of its source table.
    valid: Vec<Vec<bool>>,
    sums: Vec<DataSum>,
    group_key: Vec<u8>,
    groups: u64,
    dropped_records: u64,
}

/// Equality that mostly ends at the first eight bytes: neighbours of a sorted stream with few values a key differ.
#[inline]
fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    match (left.first_chunk::<8>(), right.first_chunk::<8>()) {
        (Some(a), Some(b)) if a != b => false,
        _ => left == right,
    }
}

impl<R: SortedRun> Groups<R> {
    /// `valid` has for each run, in order, the rows that count (`Winners::valid_rows`).
    pub fn new(merge: Merge<R>, valid: Vec<Vec<bool>>) -> Self {
        assert_eq!(merge.runs().len(), valid.len(), "one list of rows for each run");
        let sums = vec![DataSum::default(); valid.len()];
        Self { merge, valid, sums, group_key: Vec::new(), groups: 0, dropped_records: 0 }
    }

    /// The next record that counts, or None at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Grouped<'_>>, R::Error> {
        loop {
            let Some(index) = self.merge.advance()? else {
                return Ok(None);
            };
            let row = self.merge.run(index).source_row() as usize;
            if self.valid[index][row] {
                return Ok(Some(self.count(index)));
            }
            self.dropped_records += 1;
        }
    }

    #[inline]
    fn count(&mut self, index: usize) -> Grouped<'_> {
        let record = self.merge.run(index).record();
        self.sums[index].add_record(record.encoded.len() as u64, record_hash(record.encoded));
        let group = record.partition_key();
        let starts_group = self.groups == 0 || !same_bytes(&self.group_key, group);
        if starts_group {
            self.groups += 1;
            self.group_key.clear();
            self.group_key.extend_from_slice(group);
        }
        Grouped { key: record.key, value: record.value, starts_group }
    }

    /// What was put out so far.
    pub fn report(&self) -> GroupsReport {
        let mut merged: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
        for (run, sum) in self.merge.runs().iter().zip(&self.sums) {
            merged.entry(run.ifile()).or_default().add(sum);
        }
        GroupsReport {
            merged: merged.into_iter().collect(),
            groups: self.groups,
            dropped_records: self.dropped_records,
        }
    }

    /// The runs being merged.
    pub fn runs(&self) -> &[R] {
        self.merge.runs()
    }
}
