//! Cold inputs: dropped from the page cache, with a check.

use anyhow::Context;
use api::InputFile;
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;

/// Number of positions in each file at which the cache is checked.
const LOOKS_PER_FILE: u64 = 64;

/// Writes dirty pages, and drops the files from the page cache. Returns true if no page is found there afterwards; a
/// file that somebody has mapped, or that is on a file system in memory, stays.
pub fn evict(inputs: &[InputFile]) -> anyhow::Result<bool> {
    let mut cold = true;
    for input in inputs {
        let shown = input.path.display();
        let file = File::open(&input.path).with_context(|| format!("opening input {shown}"))?;
        file.sync_all().with_context(|| format!("syncing input {shown}"))?;
        let drop_pages = || {
            fadvise(&file, 0, None, Advice::DontNeed)
                .with_context(|| format!("dropping input {shown} from the page cache"))
        };
        drop_pages()?;
        if looks_cached(&file, input.size_bytes) {
            cold = false;
        }
        // The check may have started a read ahead.
        drop_pages()?;
    }
    Ok(cold)
}

/// Returns whether a byte somewhere in the file can be read without waiting for the disk.
fn looks_cached(file: &File, size_bytes: u64) -> bool {
    let step = (size_bytes / LOOKS_PER_FILE).max(1);
    let mut offset = 0;
    while offset < size_bytes {
        let mut byte = [0];
        let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        if matches!(read, Ok(count) if count > 0) {
            return true;
        }
        offset += step;
    }
    false
}
