//! The one anonymous mapping behind an arena, aligned and advised for huge pages.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE_BYTES: usize = 2 << 20;

pub(crate) struct Mapping {
    /// Start of the mapping from mmap; the mapping is freed as a whole.
    base: *mut u8,
    base_bytes: usize,
    /// First huge-page boundary in it.
    aligned: *mut u8,
}

// SAFETY: the mapping is plain memory; SlabWriter controls which thread writes which part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(bytes: usize) -> std::io::Result<Self> {
        let base_bytes = bytes + HUGE_PAGE_BYTES;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                base_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        }
        .cast::<u8>();
        let aligned = base.wrapping_add(base.align_offset(HUGE_PAGE_BYTES));
        // SAFETY: the range lies inside the mapping made above. If the kernel refuses the advice, only speed suffers.
        unsafe {
            let _ = madvise(aligned.cast(), bytes, Advice::LinuxHugepage);
        }
        Ok(Self { base, base_bytes, aligned })
    }

    pub(crate) fn pointer(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.base_bytes);
        self.aligned.wrapping_add(offset)
    }

    /// Returns the pages of a range to the kernel; they read as zeros afterwards.
    pub(crate) fn give_back(&self, offset: usize, bytes: usize) {
        // SAFETY: the caller owns the range (a free slab); nothing points into it.
        unsafe {
            let _ = madvise(self.pointer(offset).cast(), bytes, Advice::LinuxDontNeed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with these bounds, and no slab points into it any more.
        unsafe {
            let _ = munmap(self.base.cast(), self.base_bytes);
        }
    }
}
