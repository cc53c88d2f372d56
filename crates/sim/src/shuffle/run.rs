//! Sorted runs without files. The order of frames, the source table and the merge are the real ones.

use api::KeyBytes;
use api::task::{KeyWeight, RunSummary};
use chunksorter::{FrameView, order_frames, source_rows};
use iappender::AppendFrame;
use ids::{ChunkId, DiskIndex, IfileIndex, RunId};
use ifile::{KeyShape, Record, SourceRow, record};
use imerger::{Merge, SortedRun};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

/// Factor of a record's bytes in the reduce plan, so that small jobs get several key ranges for an I-file.
const PLANNED_BYTES_PER_BYTE: u64 = 600;
/// Memory that a merge counts for each run.
const BLOCK_BYTES: u64 = 1 << 10;

/// A run as it would be on a disk.
#[derive(Clone, Debug)]
pub(crate) struct ShuffleRun {
    pub id: RunId,
    pub ifile: IfileIndex,
    pub sources: Vec<SourceRow>,
    /// Encoded records in order, each with its row in the source table.
    records: Vec<(Arc<[u8]>, u32)>,
}

impl ShuffleRun {
    /// Sorts the content of some chunks of an I-file.
    pub fn sort(id: RunId, ifile: IfileIndex, mut frames: Vec<(ChunkId, AppendFrame)>) -> Self {
        order_frames(&mut frames, |(_, frame)| &frame.header);
        let view = |(chunk, frame): &(ChunkId, AppendFrame)| (*chunk, frame.clone());
        let owned: Vec<(ChunkId, AppendFrame)> = frames.iter().map(view).collect();
        let views: Vec<FrameView<'_>> = owned
            .iter()
            .map(|(chunk, frame)| FrameView { chunk: *chunk, header: &frame.header, payload: &frame.payload })
            .collect();
        let (sources, row_of_frame) = source_rows(&views);
        let mut records: Vec<(Arc<[u8]>, u32)> = Vec::new();
        for (view, row) in views.iter().zip(row_of_frame) {
            let mut offset = 0;
            while offset < view.payload.len() {
                let record = decoded(&view.payload[offset..]);
                offset += record.encoded.len();
                records.push((record.encoded.into(), row));
            }
        }
        // Stable, so that equal keys stay in input order.
        records.sort_by(|left, right| decoded(&left.0).key.cmp(decoded(&right.0).key));
        Self { id, ifile, sources, records }
    }

    /// Merges several runs of an I-file; the rows of each follow those of earlier runs.
    pub fn merge(id: RunId, runs: &[Arc<ShuffleRun>]) -> Self {
        let ifile = runs.first().map_or(IfileIndex(0), |run| run.ifile);
        let (mut sources, mut first_row) = (Vec::new(), Vec::new());
        for run in runs {
            first_row.push(sources.len() as u32);
            sources.extend(run.sources.iter().copied());
        }
        let cursors = runs.iter().map(|run| Cursor::open(run, None, None)).collect();
        let Ok(mut merge) = Merge::new(cursors);
        let mut records = Vec::new();
        while let Ok(Some(index)) = merge.advance() {
            let cursor = merge.run(index);
            records.push((cursor.record().encoded.into(), first_row[index] + cursor.source_row()));
        }
        Self { id, ifile, sources, records }
    }

    pub fn chunks(&self) -> Vec<ChunkId> {
        let chunks: BTreeSet<ChunkId> = self.sources.iter().map(|row| row.chunk).collect();
        chunks.into_iter().collect()
    }

    pub fn summary(&self) -> RunSummary {
        let weights = self.records.iter().map(|(encoded, _)| KeyWeight {
            first_key: KeyBytes(decoded(encoded).key.to_vec()),
            bytes: encoded.len() as u64 * PLANNED_BYTES_PER_BYTE,
            records: 1,
        });
        let weights: Vec<KeyWeight> = weights.collect();
        RunSummary {
            run: self.id,
            ifile: self.ifile,
            chunks: self.chunks(),
            records: self.records.len() as u64,
            record_bytes: weights.iter().map(|weight| weight.bytes).sum(),
            stored_bytes: 0,
            in_memory: true,
            disk: DiskIndex(0),
            block_bytes_max: BLOCK_BYTES,
            weights,
        }
    }

    /// Makes an empty run: the wrong answer of a process that does not have the run.
    pub fn empty(id: RunId) -> Self {
        Self { id, ifile: IfileIndex(0), sources: Vec::new(), records: Vec::new() }
    }
}

fn decoded(bytes: &[u8]) -> Record<'_> {
    record::decode(KeyShape::Whole, bytes).expect("frames of appenders hold records")
}

/// A key range of a run.
pub(crate) struct Cursor {
    run: Arc<ShuffleRun>,
    /// Position after the current record of the cursor.
    next: usize,
    end: usize,
}

impl Cursor {
    pub fn open(run: &Arc<ShuffleRun>, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        let below = |bound: &[u8]| run.records.partition_point(|(encoded, _)| decoded(encoded).key < bound);
        let next = lower.map_or(0, below);
        let end = upper.map_or(run.records.len(), below);
        Self { run: Arc::clone(run), next, end }
    }
}

impl SortedRun for Cursor {
    type Error = Infallible;

    fn advance(&mut self) -> Result<bool, Infallible> {
        let goes_on = self.next < self.end;
        self.next += usize::from(goes_on);
        Ok(goes_on)
    }

    fn record(&self) -> Record<'_> {
        decoded(&self.run.records[self.next - 1].0)
    }

    fn source_row(&self) -> u32 {
        self.run.records[self.next - 1].1
    }

    fn sources(&self) -> &[SourceRow] {
        &self.run.sources
    }

    fn ifile(&self) -> IfileIndex {
        self.run.ifile
    }
}
