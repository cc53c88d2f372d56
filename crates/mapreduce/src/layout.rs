//! The sizes of a job, derived from memory, slots and input.

use api::Layout;
use api::layout::BLOCK_BYTES_MIN;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Least memory of a job, in bytes.
pub const MEMORY_BYTES_MIN: u64 = 64 * MIB;
/// Maximum number of I-files of a job, over all nodes.
pub const IFILES_MAX: u64 = 512;
/// Bytes of input per I-file. More I-files are useless: a reduce task reads at least one, and the number of tasks
/// should follow the data. If the mapper emits much more, key ranges provide the parallelism.
const INPUT_BYTES_PER_IFILE: u64 = 32 * MIB;
/// Maximum number of I-files by the memory of one node.
const IFILES_PER_NODE_MAX: u64 = 16;
pub(crate) const CHUNK_BYTES: u64 = 128 * MIB;
pub(crate) const CHUNK_BYTES_MIN: u64 = 4 * MIB;
/// A chunk holds at least this many frames, so that the rest of a full chunk is under 1 %.
const FRAMES_PER_CHUNK_MIN: u64 = 256;
pub(crate) const FRAME_BYTES_MAX: u64 = 256 * KIB;
pub(crate) const FRAME_BYTES_MIN: u64 = 4 * KIB;
pub(crate) const BLOCK_BYTES: u64 = 64 * KIB;
pub(crate) const RECORD_BYTES_MAX: u64 = GIB;
const COMBINE_WINDOW_BYTES_MIN: u64 = MIB;
pub(crate) const COMBINE_WINDOW_BYTES_MAX: u64 = 16 * MIB;
const SPLIT_BYTES_MIN: u64 = MIB;
const SPLIT_BYTES_MAX: u64 = 64 * MIB;
/// Splits per slot, so that the last tasks wait little for each other.
const SPLITS_PER_SLOT: u64 = 16;

const _: () = assert!(IFILES_PER_NODE_MAX <= IFILES_MAX);
const _: () = assert!(CHUNK_BYTES_MIN <= MEMORY_BYTES_MIN / 4);
const _: () = assert!(BLOCK_BYTES_MIN <= CHUNK_BYTES_MIN / FRAMES_PER_CHUNK_MIN);

/// The quantities that determine the sizes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRequest {
    /// Memory budget of the engine's own buffers.
    pub memory_bytes: u64,
    pub slots: u32,
    /// Stored bytes of all inputs.
    pub input_bytes: u64,
    /// True if map output is combined: by a combiner, or by a reducer that is its own combiner.
    pub combines: bool,
}

/// The reason why no layout exists. The user must change the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("--memory of {memory_bytes} bytes is below the minimum of 64M (67108864 bytes)")]
    MemoryBelowMinimum { memory_bytes: u64 },
    #[error("--slots must be at least 1")]
    NoSlots,
}

/// Derives the sizes of a job. The same request gives the same sizes.
pub fn derive(request: &LayoutRequest) -> Result<Layout, LayoutError> {
    let memory = request.memory_bytes;
    if memory < MEMORY_BYTES_MIN {
        return Err(LayoutError::MemoryBelowMinimum { memory_bytes: memory });
    }
    if request.slots == 0 {
        return Err(LayoutError::NoSlots);
    }
    let slots = u64::from(request.slots);
    let by_input = request.input_bytes.div_ceil(INPUT_BYTES_PER_IFILE).max(1);
    let ifile_count = (memory / 2 / CHUNK_BYTES).clamp(1, IFILES_PER_NODE_MAX).min(by_input);
    let chunk_bytes = match ifile_count {
        1 => power_of_two_at_most(memory / 4).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES),
        _ => CHUNK_BYTES,
    };
    let sort_share_bytes = memory / 4;
    let combine_window_bytes = match request.combines {
        true => (memory / 8 / slots / 2).clamp(COMBINE_WINDOW_BYTES_MIN, COMBINE_WINDOW_BYTES_MAX),
        false => 0,
    };
    Ok(Layout {
        ifile_count: ifile_count as u32,
        chunk_bytes,
        frame_bytes: frame_bytes(memory / 8, slots, ifile_count, chunk_bytes),
        block_bytes: block_bytes(request, ifile_count, chunk_bytes, sort_share_bytes),
        record_bytes_max: (memory / 4).min(RECORD_BYTES_MAX),
        combine_window_bytes,
        split_bytes: (request.input_bytes / (slots * SPLITS_PER_SLOT))
            .clamp(SPLIT_BYTES_MIN, SPLIT_BYTES_MAX),
        // Half for open chunks, an eighth for the frames in flight to them.
        chunk_share_bytes: memory / 2 + memory / 8,
        sort_share_bytes,
        io_share_bytes: memory / 8,
    })
}

/// Returns the size of a frame. A slot fills one frame for each I-file: with many slots frames shrink, so that those in
/// flight stay within their share.
fn frame_bytes(share_bytes: u64, slots: u64, ifile_count: u64, chunk_bytes: u64) -> u64 {
    let by_chunk = power_of_two_at_most(chunk_bytes / FRAMES_PER_CHUNK_MIN).min(FRAME_BYTES_MAX);
    let by_share = power_of_two_at_most((share_bytes / (slots * ifile_count)).max(FRAME_BYTES_MIN));
    by_chunk.min(by_share)
}

/// Returns the size of a block. Blocks shrink until every slot can merge at once: a merge holds two blocks of each run
/// it reads. The fan-in is estimated from the input, as if the mapper emitted its input.
fn block_bytes(request: &LayoutRequest, ifile_count: u64, chunk_bytes: u64, sort_share_bytes: u64) -> u64 {
    let fan_in = request.input_bytes.div_ceil(ifile_count).div_ceil(chunk_bytes).max(1);
    let mut block = BLOCK_BYTES;
    while block > BLOCK_BYTES_MIN && sort_share_bytes / (fan_in * 2 * block) < u64::from(request.slots) {
        block /= 2;
    }
    block
}

fn power_of_two_at_most(value: u64) -> u64 {
    assert!(value > 0, "the minimum of memory keeps every size above 0");
    1 << value.ilog2()
}

#[cfg(test)]
mod tests {
    use super::{GIB, KIB, LayoutError, LayoutRequest, MIB, derive};

    /// (memory, slots, input) -> (I-files, chunk, frame, block, split)
    fn check(given: (u64, u32, u64), expected: (u32, u64, u64, u64, u64)) {
        let (memory_bytes, slots, input_bytes) = given;
        let request = LayoutRequest { memory_bytes, slots, input_bytes, combines: true };
        let layout = derive(&request).unwrap();
        let got = (
            layout.ifile_count,
            layout.chunk_bytes,
            layout.frame_bytes,
            layout.block_bytes,
            layout.split_bytes,
        );
        assert_eq!(got, expected, "{request:?}");
        let shares = layout.chunk_share_bytes + layout.sort_share_bytes + layout.io_share_bytes;
        assert!(shares <= memory_bytes, "the shares exceed the memory: {layout:?}");
        assert!(layout.frame_bytes * 256 <= layout.chunk_bytes);
        assert!(u64::from(layout.ifile_count) * layout.chunk_bytes <= memory_bytes / 2);
    }

    #[test]
    fn sizes_follow_memory_slots_and_input() {
        check((64 * MIB, 2, 10 * MIB), (1, 16 * MIB, 64 * KIB, 64 * KIB, MIB));
        check((64 * MIB, 8, GIB), (1, 16 * MIB, 64 * KIB, 16 * KIB, 8 * MIB));
        check((64 * MIB, 1, 0), (1, 16 * MIB, 64 * KIB, 64 * KIB, MIB));
        check((12 * GIB, 2, 10 * MIB), (1, 128 * MIB, 256 * KIB, 64 * KIB, MIB));
        check((12 * GIB, 2, 100 * MIB), (4, 128 * MIB, 256 * KIB, 64 * KIB, 100 * MIB / 32));
        check((100 * MIB, 2, GIB), (1, 16 * MIB, 64 * KIB, 64 * KIB, 32 * MIB));
        check((256 * MIB, 2, 2 * GIB), (1, 64 * MIB, 256 * KIB, 64 * KIB, 64 * MIB));
        check((GIB, 4, 5 * GIB), (4, 128 * MIB, 256 * KIB, 64 * KIB, 64 * MIB));
        check((4 * GIB, 8, 5 * GIB), (16, 128 * MIB, 256 * KIB, 64 * KIB, 40 * MIB));
        check((12 * GIB, 16, 1000 * GIB), (16, 128 * MIB, 256 * KIB, 64 * KIB, 64 * MIB));
        check((12 * GIB, 64, 10_000 * GIB), (16, 128 * MIB, 256 * KIB, 16 * KIB, 64 * MIB));
    }

    #[test]
    fn windows_and_records_have_limits() {
        let layout = |memory_bytes, combines| {
            derive(&LayoutRequest { memory_bytes, slots: 4, input_bytes: GIB, combines }).unwrap()
        };
        assert_eq!(layout(GIB, false).combine_window_bytes, 0);
        assert_eq!(layout(64 * MIB, true).combine_window_bytes, MIB);
        assert_eq!(layout(GIB, true).combine_window_bytes, 16 * MIB);
        assert_eq!(layout(64 * MIB, true).record_bytes_max, 16 * MIB);
        assert_eq!(layout(12 * GIB, true).record_bytes_max, GIB);
    }

    #[test]
    fn too_little_is_refused() {
        let request = |memory_bytes, slots| {
            derive(&LayoutRequest { memory_bytes, slots, input_bytes: 0, combines: false })
        };
        let memory_bytes = 64 * MIB - 1;
        assert_eq!(request(memory_bytes, 1), Err(LayoutError::MemoryBelowMinimum { memory_bytes }));
        assert_eq!(request(GIB, 0), Err(LayoutError::NoSlots));
        assert!(request(64 * MIB, 1).is_ok());
    }
}
