//! The source table of a run: the amount of each source. Records refer to their row.

use crate::encoding::FieldReader;
use crate::error::FormatError;
use api::DataSum;
use ids::{AttemptNumber, ChunkId, Source, TaskIndex};

/// Encoded size of a row.
pub const SOURCE_ROW_BYTES: usize = 64;

/// One stretch of consecutive frames of one source in one chunk. A source has several rows for a chunk only if some of
/// its frames between went to another chunk (an oversize record has its own chunk), so that rows never interleave and
/// (source, first sequence) puts equal keys in input order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRow {
    pub chunk: ChunkId,
    pub source: Source,
    /// Sequence number of the first frame of the stretch.
    pub first_sequence: u64,
    pub sum: DataSum,
}

impl SourceRow {
    /// Returns the rank of the row, which orders records of equal keys over all runs: input order, attempt, frame
    /// order.
    #[inline]
    pub fn rank(&self) -> (TaskIndex, AttemptNumber, u64) {
        (self.source.map_task, self.source.attempt, self.first_sequence)
    }
}

/// Appends the rows to `out`.
pub fn encode(rows: &[SourceRow], out: &mut Vec<u8>) {
    for row in rows {
        out.extend_from_slice(&row.chunk.0.to_le_bytes());
        out.extend_from_slice(&row.source.map_task.0.to_le_bytes());
        out.extend_from_slice(&row.source.attempt.0.to_le_bytes());
        out.extend_from_slice(&row.first_sequence.to_le_bytes());
        out.extend_from_slice(&row.sum.records.to_le_bytes());
        out.extend_from_slice(&row.sum.bytes.to_le_bytes());
        out.extend_from_slice(&row.sum.hash_sum.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
    }
}

/// Reads `count` rows from all of `bytes` (the caller has checked their checksum).
pub fn decode(bytes: &[u8], count: u64) -> Result<Vec<SourceRow>, FormatError> {
    use crate::error::Problem;
    if bytes.len() as u64 != count.saturating_mul(SOURCE_ROW_BYTES as u64) {
        let problem = Problem::Disagreement {
            what: "size of the source table",
            here: bytes.len() as u64,
            there: count,
        };
        return Err(FormatError::at(0, problem));
    }
    let mut fields = FieldReader::new(bytes);
    let mut rows = Vec::with_capacity(bytes.len() / SOURCE_ROW_BYTES);
    while fields.remaining() > 0 {
        let chunk = ChunkId(fields.u64()?);
        let source = Source { map_task: TaskIndex(fields.u32()?), attempt: AttemptNumber(fields.u32()?) };
        let first_sequence = fields.u64()?;
        let sum = DataSum { records: fields.u64()?, bytes: fields.u64()?, hash_sum: fields.u128()? };
        fields.reserved(8)?;
        rows.push(SourceRow { chunk, source, first_sequence, sum });
    }
    Ok(rows)
}
