//! The payload of a frame: read-only bytes, in a slab or (oversize frames, frames read back) on the heap.

use crate::{Charge, Slab};
use std::ops::Deref;
use std::sync::Arc;

enum Place {
    Slab(Arc<Slab>),
    Heap { bytes: Box<[u8]>, _charge: Option<Charge> },
}

/// Read-only bytes, cheap to clone: clones share the memory.
#[derive(Clone)]
pub struct FrameBytes {
    place: Arc<Place>,
    start: usize,
    len: usize,
}

impl FrameBytes {
    pub(crate) fn in_slab(slab: Arc<Slab>, start: usize, len: usize) -> Self {
        Self { place: Arc::new(Place::Slab(slab)), start, len }
    }

    /// Puts bytes on the heap, with a budget charge if they are large.
    pub fn on_heap(bytes: Vec<u8>, charge: Option<Charge>) -> Self {
        let len = bytes.len();
        Self {
            place: Arc::new(Place::Heap { bytes: bytes.into_boxed_slice(), _charge: charge }),
            start: 0,
            len,
        }
    }

    /// Returns a part of these bytes that shares their memory. Panics if the range is out of bounds.
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len);
        Self { place: Arc::clone(&self.place), start: self.start + start, len }
    }
}

impl Deref for FrameBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &*self.place {
            // SAFETY: [start, start + len) was sealed by the slab's writer, which never writes it again; the
            // slab is mapped and not reused while this Arc lives.
            Place::Slab(slab) => unsafe {
                std::slice::from_raw_parts(slab.pointer().add(self.start), self.len)
            },
            Place::Heap { bytes, .. } => &bytes[self.start..self.start + self.len],
        }
    }
}

impl std::fmt::Debug for FrameBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameBytes({} bytes)", self.len)
    }
}
