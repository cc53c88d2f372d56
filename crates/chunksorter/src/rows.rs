//! Frames in input order, and their source rows.

use ids::ChunkId;
use ifile::{FrameHeader, SourceRow};

/// A frame of a stable chunk, for the sorter.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    pub chunk: ChunkId,
    pub header: &'a FrameHeader,
    pub payload: &'a [u8],
}

/// Sorts frames into input order: map task, attempt, sequence. After that the position of a record (frame, offset) is
/// its rank among equal keys.
pub fn order_frames<T>(frames: &mut [T], header: impl Fn(&T) -> &FrameHeader) {
    frames.sort_by_key(|frame| (header(frame).source, header(frame).sequence));
}

/// Returns the source rows of frames in input order, and for each frame its row. A row is a stretch of consecutive
/// sequence numbers of one source in one chunk.
pub fn source_rows(frames: &[FrameView<'_>]) -> (Vec<SourceRow>, Vec<u32>) {
    let mut rows: Vec<SourceRow> = Vec::new();
    let mut row_of_frame = Vec::with_capacity(frames.len());
    let mut next_sequence = 0;
    for frame in frames {
        let header = frame.header;
        let continues = rows.last().is_some_and(|row| {
            row.chunk == frame.chunk && row.source == header.source && header.sequence == next_sequence
        });
        if !continues {
            rows.push(SourceRow {
                chunk: frame.chunk,
                source: header.source,
                first_sequence: header.sequence,
                sum: api::DataSum::default(),
            });
        }
        if let Some(row) = rows.last_mut() {
            row.sum.add(&header.sum);
        }
        next_sequence = header.sequence + 1;
        row_of_frame.push(rows.len() as u32 - 1);
    }
    (rows, row_of_frame)
}
