//! # What it does
//! The memory of frames: one mapping on huge pages, cut into slabs of equal size, under one budget that also covers
//! other allocations on the same account (sort orders, oversize frames).
//!
//! # Where it sits
//! Below `iappender` (writes frames into slabs) and `chunkserver` (keeps them).
//!
//! # Invariants
//! Slabs in use plus charged bytes never exceed the budget. Bytes sealed into a [`FrameBytes`] are never written again;
//! a slab returns to the free list when its last frame is dropped. Several frames, also of several map tasks, share a
//! slab, so that the slabs of a chunk are nearly full.
//!
//! # Deliberately absent
//! No waiting and no policy: the chunkserver decides how to free memory. No per-record allocation.
//!
//! # How it is tested
//! Unit tests below: reuse, budget, sharing of a slab by frames that outlive its writer.
//!
//! Why huge pages: 4 KiB pages cost the road about half a second per 2 GB (docs/why-ifiles.md).

mod frame_bytes;
mod mapping;
mod pieces;
mod scratch;

pub use frame_bytes::FrameBytes;
pub use pieces::append_piece;
pub use scratch::Scratch;

use mapping::Mapping;
use std::sync::{Arc, Mutex, MutexGuard};

/// The mapping failed, because of the machine.
#[derive(Debug)]
pub struct ArenaError {
    pub budget_bytes: u64,
    pub source: std::io::Error,
}

impl std::fmt::Display for ArenaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot map {} bytes of memory for frames", self.budget_bytes)
    }
}

impl std::error::Error for ArenaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

struct Books {
    /// Free slabs that were used before; their pages may be resident.
    free_touched: Vec<u32>,
    /// Free slabs whose pages were returned to the system.
    free_untouched: Vec<u32>,
    /// Slabs from this index on were never used.
    slabs_ever_used: u32,
    slabs_in_use: u32,
    charged_bytes: u64,
    peak_bytes: u64,
}

struct Inner {
    mapping: Mapping,
    slab_bytes: usize,
    slab_count: u32,
    budget_bytes: u64,
    books: Mutex<Books>,
}

/// A pool of slabs under a budget. Cheap to clone.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

impl Arena {
    /// Makes an arena of `budget_bytes`, cut into slabs of `slab_bytes` (a power of two, at least 4 KiB). Pages are
    /// backed on the first write.
    pub fn new(budget_bytes: u64, slab_bytes: u64) -> Result<Self, ArenaError> {
        assert!(slab_bytes.is_power_of_two() && slab_bytes >= 4096, "slab size {slab_bytes}");
        let slab_count = u32::try_from(budget_bytes / slab_bytes).unwrap_or(u32::MAX);
        let mapping = Mapping::new(slab_count as usize * slab_bytes as usize)
            .map_err(|source| ArenaError { budget_bytes, source })?;
        Ok(Self {
            inner: Arc::new(Inner {
                mapping,
                slab_bytes: slab_bytes as usize,
                slab_count,
                budget_bytes,
                books: Mutex::new(Books {
                    free_touched: Vec::new(),
                    free_untouched: Vec::new(),
                    slabs_ever_used: 0,
                    slabs_in_use: 0,
                    charged_bytes: 0,
                    peak_bytes: 0,
                }),
            }),
        })
    }

    /// Returns the bytes of a slab.
    pub fn slab_bytes(&self) -> u64 {
        self.inner.slab_bytes as u64
    }

    /// Returns the budget in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.inner.budget_bytes
    }

    /// Returns the bytes in use: slabs by capacity, plus charges.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used(&self.inner.lock())
    }

    /// Returns the maximum of bytes in use so far.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.lock().peak_bytes
    }

    /// Returns a slab to write into; None if the budget is used up.
    pub fn try_slab(&self) -> Option<SlabWriter> {
        let mut books = self.inner.lock();
        if self.inner.used(&books) + self.slab_bytes() > self.inner.budget_bytes {
            return None;
        }
        let index = match books.free_touched.pop().or_else(|| books.free_untouched.pop()) {
            Some(index) => index,
            None if books.slabs_ever_used < self.inner.slab_count => {
                books.slabs_ever_used += 1;
                books.slabs_ever_used - 1
            }
            None => return None,
        };
        books.slabs_in_use += 1;
        books.peak_bytes = books.peak_bytes.max(self.inner.used(&books));
        Some(SlabWriter { slab: Arc::new(Slab { index, arena: self.clone() }), start: 0, end: 0 })
    }

    /// Returns the pages of all free slabs to the system.
    pub fn give_back_idle(&self) {
        let mut books = self.inner.lock();
        while let Some(index) = books.free_touched.pop() {
            self.inner.mapping.give_back(index as usize * self.inner.slab_bytes, self.inner.slab_bytes);
            books.free_untouched.push(index);
        }
    }

    /// Charges `bytes` to the budget for memory allocated outside the arena; None if the budget does not have them.
    /// Pages of free slabs are returned first, so that resident memory also stays within the budget.
    pub fn try_charge(&self, bytes: u64) -> Option<Charge> {
        let mut books = self.inner.lock();
        if self.inner.used(&books) + bytes > self.inner.budget_bytes {
            return None;
        }
        books.charged_bytes += bytes;
        books.peak_bytes = books.peak_bytes.max(self.inner.used(&books));
        let slab_bytes = self.slab_bytes();
        while !books.free_touched.is_empty() {
            let touched = u64::from(books.slabs_in_use) + books.free_touched.len() as u64;
            if touched * slab_bytes + books.charged_bytes <= self.inner.budget_bytes {
                break;
            }
            if let Some(index) = books.free_touched.pop() {
                self.inner.mapping.give_back(index as usize * self.inner.slab_bytes, self.inner.slab_bytes);
                books.free_untouched.push(index);
            }
        }
        Some(Charge { arena: self.clone(), bytes })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Books> {
        // The counters change completely or not at all: they stay consistent if a thread panics.
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn used(&self, books: &Books) -> u64 {
        u64::from(books.slabs_in_use) * self.slab_bytes as u64 + books.charged_bytes
    }
}

/// Bytes charged to the budget until this is dropped.
pub struct Charge {
    arena: Arena,
    bytes: u64,
}

impl Charge {
    /// Returns the charged bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.arena.inner.lock().charged_bytes -= self.bytes;
    }
}

/// A slab, shared by its frames and its writer.
struct Slab {
    index: u32,
    arena: Arena,
}

impl Slab {
    fn pointer(&self) -> *mut u8 {
        let inner = &self.arena.inner;
        inner.mapping.pointer(self.index as usize * inner.slab_bytes)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let mut books = self.arena.inner.lock();
        books.slabs_in_use -= 1;
        books.free_touched.push(self.index);
    }
}

/// The only writer of a slab. It fills frames one after another; sealed bytes are never written again.
pub struct SlabWriter {
    slab: Arc<Slab>,
    /// Start in the slab of the frame being filled.
    start: usize,
    /// End in the slab of the bytes written.
    end: usize,
}

impl SlabWriter {
    /// Returns the number of bytes that still fit.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.slab.arena.inner.slab_bytes - self.end
    }

    /// Returns the size of the frame being filled.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Appends to the frame being filled. Panics if `bytes` do not fit: check [`Self::room_bytes`] first.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room_bytes());
        // SAFETY: the slab is mapped for as long as `self.slab` lives; [end, end + len) lies inside it by the
        // assertion, is beyond every sealed frame, and this writer is the only one (it is not Clone).
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.slab.pointer().add(self.end), bytes.len());
        }
        self.end += bytes.len();
    }

    /// Appends a record: the first `header_len` bytes of its header, key, value. Panics if they do not fit.
    #[inline]
    pub fn write_record<const N: usize>(
        &mut self,
        header: [u8; N],
        header_len: usize,
        key: &[u8],
        value: &[u8],
    ) {
        let bytes = header_len + key.len() + value.len();
        let room = self.room_bytes();
        assert!(header_len <= N && bytes <= room);
        // SAFETY: as in `write`, for the three pieces together. If the whole header is written, key and value overwrite
        // its unused end, or the next record does.
        unsafe {
            let start = self.slab.pointer().add(self.end);
            if N <= room {
                *start.cast::<[u8; N]>() = header;
            } else {
                std::ptr::copy_nonoverlapping(header.as_ptr(), start, header_len);
            }
            pieces::copy(key, start.add(header_len));
            pieces::copy(value, start.add(header_len + key.len()));
        }
        self.end += bytes;
    }

    /// Returns the bytes of the frame being filled.
    pub fn pending(&self) -> &[u8] {
        // SAFETY: [start, end) was written by this writer and nobody else writes it.
        unsafe { std::slice::from_raw_parts(self.slab.pointer().add(self.start), self.end - self.start) }
    }

    /// Discards the frame being filled (its attempt failed); its room is reused.
    pub fn discard(&mut self) {
        self.end = self.start;
    }

    /// Seals and returns the frame being filled; the next one begins after it in the same slab.
    pub fn seal(&mut self) -> FrameBytes {
        let sealed = FrameBytes::in_slab(Arc::clone(&self.slab), self.start, self.end - self.start);
        self.start = self.end;
        sealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_stay_readable_and_slabs_are_used_again() {
        let arena = Arena::new(8192, 4096).unwrap();
        let mut writer = arena.try_slab().unwrap();
        writer.write(b"first");
        let first = writer.seal();
        writer.write(b"second");
        let second = writer.seal();
        drop(writer);
        assert_eq!(arena.used_bytes(), 4096);
        assert_eq!((&first[..], &second[..]), (&b"first"[..], &b"second"[..]));
        drop(first);
        assert_eq!(&second[..], b"second");
        drop(second);
        assert_eq!(arena.used_bytes(), 0);
        assert!(arena.try_slab().is_some());
    }

    #[test]
    fn the_budget_covers_slabs_and_charges() {
        let arena = Arena::new(3 * 4096, 4096).unwrap();
        let first = arena.try_slab().unwrap();
        let charge = arena.try_charge(4097).unwrap();
        assert!(arena.try_slab().is_none());
        assert!(arena.try_charge(4096).is_none());
        drop(charge);
        let second = arena.try_slab().unwrap();
        let third = arena.try_slab().unwrap();
        assert!(arena.try_slab().is_none());
        drop((first, second, third));
        let whole = arena.try_charge(3 * 4096).unwrap();
        assert!(arena.try_slab().is_none());
        drop(whole);
        // A slab whose pages were returned reads as new and is writable.
        let mut writer = arena.try_slab().unwrap();
        writer.write(&[7; 4096]);
        assert_eq!(writer.room_bytes(), 0);
        assert_eq!(arena.peak_bytes(), 3 * 4096);
    }
}
