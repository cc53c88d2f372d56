//! Touches memory before a timed run.
//!
//! On a virtual machine the host may hold no memory behind pages that are free for a while; the first touch then
//! costs up to fifty times as much. Touching as much as the run will use, just before it, takes that out of the figures.

use anyhow::{Context, Result, bail};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maps `bytes` in huge pages, writes one byte in every small page, and gives all of it back.
pub fn touch(bytes: u64) -> Result<()> {
    let size_bytes = usize::try_from(bytes).context("touch more memory than this machine can address")?;
    let size_bytes = size_bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if size_bytes == 0 {
        return Ok(());
    }
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
    // SAFETY: the range is the mapping made above. The advice may be refused; then small pages are touched.
    unsafe { libc::madvise(start, size_bytes, libc::MADV_HUGEPAGE) };
    for offset in (0..size_bytes).step_by(4096) {
        // SAFETY: `offset` lies inside the mapping, which is writable and ours alone; volatile keeps the write.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    // SAFETY: unmaps exactly the mapping made above; no reference into it exists.
    unsafe { libc::munmap(start, size_bytes) };
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_few_pages_are_touched_and_given_back() {
        super::touch(0).unwrap();
        super::touch(5 << 20).unwrap();
    }
}
