//! Memory on huge pages, as fast programs get it.

use anyhow::{Context, Result, bail};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An anonymous mapping, zeroed, on huge pages if the kernel grants them.
pub struct HugePages {
    start: *mut libc::c_void,
    size_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, as a `Box<[u8]>` would.
unsafe impl Send for HugePages {}

impl HugePages {
    /// Maps at least `bytes` of memory, rounded up to whole huge pages.
    pub fn map(bytes: u64) -> Result<Self> {
        let size_bytes = usize::try_from(bytes).context("map more memory than this machine can address")?;
        let size_bytes = size_bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            bail!("map {size_bytes} bytes: {}", std::io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping made above. The advice may be refused; then the pages are small.
        unsafe { libc::madvise(start, size_bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { start, size_bytes })
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable, zeroed and borrowed through `self` only.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>(), self.size_bytes) }
    }

    /// Returns the same memory as numbers of 16 bytes.
    pub fn numbers_mut(&mut self) -> &mut [u128] {
        let count = self.size_bytes / size_of::<u128>();
        // SAFETY: as above; a mapping starts on a page, which is aligned for any number, and all bits are valid.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u128>(), count) }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly the mapping made by `map`; slices of it borrowed `self` and no longer exist.
        unsafe { libc::munmap(self.start, self.size_bytes) };
    }
}
