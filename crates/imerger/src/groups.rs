//! The merged stream for the reducer: winners only, with the beginning of each group marked.

use crate::merge::{Merge, SortedRun};
use api::DataSum;
use ids::IfileIndex;
use ifile::record::{Record, key_prefix};
use ifile::record_hash;
use std::collections::BTreeMap;

/// One record of the grouped stream; the hand-over to the reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The first bytes of `key` that are the partition key.
    pub partition_key_bytes: usize,
    /// True for the first record of its partition key.
    pub starts_group: bool,
    /// True if the record has a separator, although its value is empty ([`ifile::record`]).
    pub is_separated: bool,
}

/// Report of a merge: the sums and groups of its output, and the number of dropped records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsReport {
    /// Per I-file, the sum of the output records.
    pub merged: Vec<(IfileIndex, DataSum)>,
    pub groups: u64,
    /// Number of records of losing attempts, or of void chunks.
    pub dropped_records: u64,
}

/// Groups over merged runs.
pub struct Groups<R: SortedRun> {
    merge: Merge<R>,
    /// Per run, per row of its source table.
    valid: Vec<Vec<bool>>,
    sums: Vec<DataSum>,
    /// Per run, per row of its source table; empty if not requested.
    row_sums: Vec<Vec<DataSum>>,
    group: GroupKey,
    groups: u64,
    dropped_records: u64,
    /// Upper bound: partition keys at or beyond this one are omitted.
    end: Option<Vec<u8>>,
}

/// The partition key of the current group.
#[derive(Default)]
struct GroupKey {
    /// First eight bytes of the key, zero padded; short keys fit whole.
    prefix: u64,
    len: usize,
    /// The whole key, if it is longer.
    long: Vec<u8>,
}

impl GroupKey {
    const SHORT_BYTES_MAX: usize = size_of::<u64>();

    #[inline]
    fn is(&self, key: &[u8], prefix: u64) -> bool {
        self.prefix == prefix
            && self.len == key.len()
            && (key.len() <= Self::SHORT_BYTES_MAX || self.long.as_slice() == key)
    }

    #[inline]
    fn set(&mut self, key: &[u8], prefix: u64) {
        (self.prefix, self.len) = (prefix, key.len());
        if key.len() > Self::SHORT_BYTES_MAX {
            self.long.clear();
            self.long.extend_from_slice(key);
        }
    }
}

impl<R: SortedRun> Groups<R> {
    /// Makes the stream. `valid` has for each run, in order, the rows that count (`Winners::valid_rows`).
    pub fn new(merge: Merge<R>, valid: Vec<Vec<bool>>) -> Self {
        assert_eq!(merge.runs().len(), valid.len(), "one list of rows for each run");
        let sums = vec![DataSum::default(); valid.len()];
        let (row_sums, group) = (Vec::new(), GroupKey::default());
        Self { merge, valid, sums, row_sums, group, groups: 0, dropped_records: 0, end: None }
    }

    /// Also sums the output of each row of the source tables ([`Self::row_sums`]).
    pub fn auditing_sources(mut self) -> Self {
        self.row_sums = self.valid.iter().map(|rows| vec![DataSum::default(); rows.len()]).collect();
        self
    }

    /// Returns the sums of the output records so far, per run and row; empty without [`Self::auditing_sources`].
    pub fn row_sums(&self) -> &[Vec<DataSum>] {
        &self.row_sums
    }

    /// Makes the stream end before the first record whose partition key is `key` or beyond. Returns false, without
    /// effect, if the stream is there already, or at its end.
    pub fn end_before(&mut self, key: &[u8]) -> bool {
        // Before the first record nothing has been output.
        let is_ahead = match self.merge.position() {
            Some(run) => run.record().partition_key() < key,
            None => self.groups == 0 && self.dropped_records == 0,
        };
        let is_less = self.end.as_deref().is_none_or(|end| key < end);
        if is_ahead && is_less {
            self.end = Some(key.to_vec());
        }
        is_ahead && is_less
    }

    #[cold]
    fn is_beyond(&self, index: usize) -> bool {
        let key = self.merge.run(index).record().partition_key();
        self.end.as_deref().is_some_and(|end| key >= end)
    }

    /// Returns the next record that counts, or None at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Grouped<'_>>, R::Error> {
        loop {
            let Some(index) = self.merge.advance()? else {
                return Ok(None);
            };
            if self.end.is_some() && self.is_beyond(index) {
                return Ok(None);
            }
            let row = self.merge.run(index).source_row() as usize;
            if self.valid[index][row] {
                if !self.row_sums.is_empty() {
                    self.count_row(index, row);
                }
                return Ok(Some(self.count(index)));
            }
            self.dropped_records += 1;
        }
    }

    #[cold]
    fn count_row(&mut self, index: usize, row: usize) {
        let encoded = self.merge.run(index).record().encoded;
        self.row_sums[index][row].add_record(encoded.len() as u64, record_hash(encoded));
    }

    #[inline]
    fn count(&mut self, index: usize) -> Grouped<'_> {
        let run = self.merge.run(index);
        let record = run.record();
        self.sums[index].add_record(record.encoded.len() as u64, record_hash(record.encoded));
        let key = record.partition_key();
        // The prefix of the sort key is also that of the partition key, unless the latter is shorter than the prefix.
        let is_whole = key.len() == record.key.len() || key.len() >= GroupKey::SHORT_BYTES_MAX;
        let prefix = if is_whole { run.prefix() } else { key_prefix(key) };
        let starts_group = self.groups == 0 || !self.group.is(key, prefix);
        if starts_group {
            self.groups += 1;
            self.group.set(key, prefix);
        }
        let is_separated = record.is_separated();
        let Record { key, value, partition_key_bytes, .. } = record;
        Grouped { key, value, partition_key_bytes, starts_group, is_separated }
    }

    /// Returns the report of the output records so far.
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

    /// Returns the runs being merged.
    pub fn runs(&self) -> &[R] {
        self.merge.runs()
    }
}
