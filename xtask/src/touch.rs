//! Preparation of memory before a timed run.
//!
//! On a virtual machine the host may have no memory behind pages that were free for a while; the first touch costs up
//! to fifty times as much. Touching as much as the run will use, just before it, removes this cost from the figures.

use crate::huge_pages::HugePages;
use anyhow::Result;

/// Maps `bytes` in huge pages, writes one byte in every small page, and releases them.
pub fn touch(bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let mut pages = HugePages::map(bytes)?;
    for byte in pages.bytes_mut().iter_mut().step_by(4096) {
        // SAFETY: `byte` is a live exclusive reference; volatile keeps a write that is never read.
        unsafe { std::ptr::write_volatile(byte, 1) };
    }
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
