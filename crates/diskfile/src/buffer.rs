//! Memory that direct I/O accepts.

use crate::ALIGNMENT_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// A block of bytes aligned for direct I/O, with a length that is a multiple of [`ALIGNMENT_BYTES`].
pub struct AlignedBuffer {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the buffer owns its memory, as a Vec does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access is read-only.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Makes a buffer of at least `bytes_min` zero bytes.
    pub fn new(bytes_min: usize) -> Self {
        let bytes = bytes_min.max(1).next_multiple_of(ALIGNMENT_BYTES);
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size above 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGNMENT_BYTES)
            .expect("a buffer is far smaller than the address space")
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours, initialised, and `bytes` long.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed once.
        unsafe { dealloc(self.start, Self::layout(self.bytes)) }
    }
}
