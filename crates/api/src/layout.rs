//! Sizes and counts fixed at submit (design section 3, "How many, how large"), shown in the report.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Derived sizes of a job. Made by `mapreduce::layout`, obeyed by everything that handles its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub ifile_count: u32,
    /// Capacity of a chunk, as record bytes in frames.
    pub chunk_bytes: u64,
    /// Capacity of a frame and of a slab; at most `chunk_bytes` / 256.
    pub frame_bytes: u64,
    /// Uncompressed bytes at which a block of a run is closed.
    pub block_bytes: u64,
    /// Largest record (key plus value) accepted.
    pub record_bytes_max: u64,
    /// Map output bytes after which a combine window is folded; 0 without a combiner.
    pub combine_window_bytes: u64,
    /// Bytes a split aims at.
    pub split_bytes: u64,
    /// Share of memory for open chunks, frames in flight and sorted runs still in memory.
    pub chunk_share_bytes: u64,
    /// Share of memory for sorting and merging.
    pub sort_share_bytes: u64,
    /// Share of memory for read, pipe and output buffers.
    pub io_share_bytes: u64,
}
