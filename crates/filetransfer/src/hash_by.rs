//! The records of a file, their partitions and their order-free sum.

use api::stored::HashedFile;
use api::task::DataSum;
use api::{FieldSplit, KeyRules, PartitionRule, RecordFormat};
use functions::FieldSplitter;
use ifile::record::encode;
use ifile::{KeyShape, record_hash};
use keys::{KeyEncoder, KeyRulesError};
use memchr::memchr;

/// The distribution of the records of a file by the hash of their keys, as `run` does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashBy {
    /// Lines, or records of one length.
    pub records: RecordFormat,
    /// The key of a line; its separator also divides the key into fields.
    pub keys: FieldSplit,
    pub partitions: PartitionRule,
}

impl HashBy {
    /// Returns the facts about a file that was distributed by this. `empty`: the partitions without records.
    pub(crate) fn hashed(&self, empty: Vec<u32>, sum: DataSum) -> HashedFile {
        let Self { records, keys, partitions } = self.clone();
        HashedFile { records, keys, partitions, empty, sum }
    }
}

/// The choice of a partition for each record.
pub(crate) struct Partitioner {
    records: RecordFormat,
    splitter: FieldSplitter,
    encoder: KeyEncoder,
}

impl Partitioner {
    pub fn new(by: &HashBy) -> Result<Self, KeyRulesError> {
        let rules = KeyRules {
            separator: by.keys.separator.clone(),
            partitions: Some(by.partitions.clone()),
            ..KeyRules::default()
        };
        let encoder = KeyEncoder::new(&rules)?;
        Ok(Self { records: by.records, splitter: FieldSplitter::new(&by.keys), encoder })
    }

    /// Returns the partition of a record, which is without its line end.
    pub fn partition(&mut self, record: &[u8]) -> u32 {
        let key = match self.records {
            RecordFormat::Fixed { key_bytes, .. } => &record[..record.len().min(key_bytes as usize)],
            _ => self.splitter.split(record).0,
        };
        // Without an order there is no key that cannot be encoded.
        self.encoder.encode(key, b"").ok().and_then(|stored| stored.partition).unwrap_or(0)
    }
}

/// The division of bytes that come in pieces into records.
pub(crate) struct Records {
    format: RecordFormat,
    /// The beginning of a record whose end has not come yet.
    held: Vec<u8>,
}

impl Records {
    pub fn new(format: RecordFormat) -> Self {
        Self { format, held: Vec::new() }
    }

    /// Returns the bytes of the record whose end has not come yet.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Gives the records that end within the next bytes to `take`, without their line ends.
    pub fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some([end, next]) = self.end_within(bytes) {
            match self.held.is_empty() {
                true => take(&bytes[..end])?,
                false => {
                    self.held.extend_from_slice(&bytes[..end]);
                    take(&self.held)?;
                    self.held.clear();
                }
            }
            bytes = &bytes[next..];
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the end of the current record within these bytes, and the beginning of the next one.
    fn end_within(&self, bytes: &[u8]) -> Option<[usize; 2]> {
        match self.format {
            RecordFormat::Fixed { record_bytes, .. } => {
                let end = (record_bytes.max(1) as usize).saturating_sub(self.held.len());
                (bytes.len() >= end).then_some([end, end])
            }
            _ => memchr(b'\n', bytes).map(|end| [end, end + 1]),
        }
    }
}

/// The order-free sum of the records of a file: the sum of the shuffle over records as keys without values.
pub struct RecordSum {
    records: Records,
    encoded: Vec<u8>,
    sum: DataSum,
}

impl RecordSum {
    /// Begins the sum of a file, or of a part of it.
    pub fn new(hashed: &HashedFile) -> Self {
        Self::of(hashed.records)
    }

    pub(crate) fn of(format: RecordFormat) -> Self {
        Self { records: Records::new(format), encoded: Vec::new(), sum: DataSum::default() }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let Self { records, encoded, sum } = self;
        let added = records.feed(bytes, |record| {
            add_record(sum, encoded, record);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = added;
        if self.records.held.len() > RECORD_BYTES_MAX {
            self.end_record();
        }
    }

    /// Adds one record, without its line end.
    pub(crate) fn add_record(&mut self, record: &[u8]) {
        add_record(&mut self.sum, &mut self.encoded, record);
    }

    /// Returns the sum. Bytes without the end of a record count as a record.
    pub fn finish(mut self) -> DataSum {
        if !self.records.held.is_empty() {
            self.end_record();
        }
        self.sum
    }

    fn end_record(&mut self) {
        let record = std::mem::take(&mut self.records.held);
        self.add_record(&record);
    }
}

fn add_record(sum: &mut DataSum, encoded: &mut Vec<u8>, record: &[u8]) {
    encoded.clear();
    encode(KeyShape::Whole, record, b"", record.len(), encoded);
    sum.add_record(encoded.len() as u64, record_hash(encoded));
}

/// Maximum bytes of a record that is distributed by its key.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
