//! Sizes and counts that are fixed at submit and shown in the report.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Smallest size of the blocks of runs, in bytes.
pub const BLOCK_BYTES_MIN: u64 = 16 << 10;

/// Derived sizes of a job, from `mapreduce::layout`. All code that handles the data of the job obeys them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub ifile_count: u32,
    /// Capacity of a chunk, as record bytes in frames.
    pub chunk_bytes: u64,
    /// Capacity of a frame and of a slab; at most `chunk_bytes` / 256.
    pub frame_bytes: u64,
    /// Uncompressed bytes at which a block of a run is closed; see [`Layout::block_bytes_of`] for runs of less than a
    /// chunk.
    pub block_bytes: u64,
    /// Largest record (key plus value) accepted.
    pub record_bytes_max: u64,
    /// Map output bytes after which a combine window is folded; 0 without a combiner.
    pub combine_window_bytes: u64,
    /// Target size of a split.
    pub split_bytes: u64,
    /// Share of memory for open chunks, frames in flight and sorted runs still in memory.
    pub chunk_share_bytes: u64,
    /// Share of memory for sorting and merging.
    pub sort_share_bytes: u64,
    /// Share of memory for read, pipe and output buffers.
    pub io_share_bytes: u64,
}

impl Layout {
    /// Returns the bytes at which a block of a run with `run_bytes` record bytes is closed. A run of less than half a
    /// chunk gets smaller blocks, so that a merge of many such runs needs about as much memory as one of few full runs.
    pub fn block_bytes_of(&self, run_bytes: u64) -> u64 {
        let of_chunk = self.chunk_bytes / run_bytes.max(1);
        let parts = of_chunk.checked_ilog2().map_or(1, |power| 1 << power);
        (self.block_bytes / parts).max(BLOCK_BYTES_MIN.min(self.block_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn runs_of_half_chunks_have_half_blocks() {
        let layout = Layout { chunk_bytes: 16 << 20, block_bytes: 64 << 10, ..Layout::default() };
        let check = |run_bytes: u64, expected_kib: u64| {
            assert_eq!(layout.block_bytes_of(run_bytes), expected_kib << 10, "{run_bytes} bytes");
        };
        check(1 << 30, 64);
        check(16 << 20, 64);
        check((8 << 20) + 1, 64);
        check(8 << 20, 32);
        check(4 << 20, 16);
        check(1, 16);
        check(0, 16);
        let small = Layout { block_bytes: 4 << 10, ..layout };
        assert_eq!(small.block_bytes_of(1), 4 << 10);
    }
}
