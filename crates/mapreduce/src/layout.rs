//! Sizes from memory, slots and input (design section 3, "How many, how large" and "Memory").

use api::Layout;

/// What the sizes of a job follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRequest {
    /// Budget of the engine's own buffers.
    pub memory_bytes: u64,
    pub slots: u32,
    /// Bytes of all inputs as stored.
    pub input_bytes: u64,
    /// Whether map output is combined: a combiner, or a reducer that combines by itself.
    pub combines: bool,
}

/// Why no layout exists. The user's to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("--memory {memory_bytes} bytes is below the minimum of 64M (67108864 bytes)")]
    MemoryBelowMinimum { memory_bytes: u64 },
    #[error("--slots must be at least 1")]
    NoSlots,
}

/// Derives the sizes of a job.
pub fn derive(request: &LayoutRequest) -> Result<Layout, LayoutError> {
    Err(LayoutError::MemoryBelowMinimum { memory_bytes: request.memory_bytes })
}
