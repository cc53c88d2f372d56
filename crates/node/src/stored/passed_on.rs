//! Local copies of parts that other nodes read, also while they are made: a block is passed on when it is here and
//! verified. A copy serves few nodes at once, and a reader waits for the next block, but not for long.

#[cfg(test)]
mod tests;

use api::StoredPart;
use api::stored::cluster::COPY_READERS_MAX;
use concretefile::{BLOCK_BYTES, BlockSums, Content};
use dataport::{PassError, PassedPart};
use ids::ConcreteId;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a reader waits for the next block.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of parts that are passed on. Further copies are made, and not passed on.
const COPIES_MAX: usize = 16_384;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The copies of parts on this node that are passed on.
#[derive(Debug)]
pub(crate) struct PassedCopies {
    copies: Mutex<BTreeMap<ConcreteId, Arc<PassedCopy>>>,
    patience: Duration,
}

impl Default for PassedCopies {
    fn default() -> Self {
        Self { copies: Mutex::default(), patience: PATIENCE }
    }
}

/// A copy of a part, within a file with other parts.
#[derive(Debug)]
pub(crate) struct PassedCopy {
    part: StoredPart,
    path: PathBuf,
    /// Offset of the part in the file.
    begins_at: u64,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The state of a copy.
#[derive(Debug, Default)]
struct Progress {
    sums: Option<Arc<BlockSums>>,
    /// Verified bytes in the file, from the beginning of the part.
    bytes: u64,
    /// True if no more will come, because the making failed.
    is_given_up: bool,
    readers: u32,
}

impl PassedCopy {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// States the checksums of all blocks; they make the checksum of the part.
    pub fn knows_sums(&self, sums: &BlockSums) {
        let mut progress = self.progress();
        if progress.sums.is_none() {
            progress.sums = Some(Arc::new(sums.clone()));
            drop(progress);
            self.changed.notify_all();
        }
    }

    /// States that so many verified bytes more are in the file.
    pub fn has_written(&self, bytes: usize) {
        self.progress().bytes += bytes as u64;
        self.changed.notify_all();
    }

    fn is_complete(&self) -> bool {
        self.progress().bytes == self.part.bytes
    }

    /// Waits until the state gives an answer.
    fn wait_for<T>(
        &self,
        patience: Duration,
        answer: impl Fn(&Progress) -> Option<T>,
    ) -> Result<T, PassError> {
        let file = self.part.concrete;
        let until = Instant::now() + patience;
        let mut progress = self.progress();
        loop {
            if let Some(answer) = answer(&progress) {
                return Ok(answer);
            }
            if progress.is_given_up {
                return Err(PassError::GivenUp(file));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PassError::Stalled { file, seconds: patience.as_secs() });
            }
            let waited = self.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A copy of a part that is passed on as long as this exists.
#[derive(Debug)]
pub(crate) struct Passing {
    copies: Arc<PassedCopies>,
    copy: Arc<PassedCopy>,
}

impl Passing {
    /// Returns the copy, for those who make it.
    pub fn copy(&self) -> &Arc<PassedCopy> {
        &self.copy
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let mut copies = lock(&self.copies.copies);
        let concrete = self.copy.part.concrete;
        if copies.get(&concrete).is_some_and(|copy| Arc::ptr_eq(copy, &self.copy)) {
            copies.remove(&concrete);
        }
        drop(copies);
        if !self.copy.is_complete() {
            self.copy.progress().is_given_up = true;
            self.copy.changed.notify_all();
        }
    }
}

impl PassedCopies {
    /// Returns copies whose readers wait at most this long.
    #[cfg(test)]
    pub fn patient_for(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Begins to pass on a part that is about to be copied to a place in a file. None if there are very many already.
    pub fn begin(self: &Arc<Self>, part: StoredPart, path: &Path, begins_at: u64) -> Option<Passing> {
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        let sums = (part.bytes <= BLOCK_BYTES).then(|| Arc::new(BlockSums::of_block(content)));
        let progress = Mutex::new(Progress { sums, ..Progress::default() });
        let (path, changed) = (path.to_path_buf(), Condvar::new());
        let copy = Arc::new(PassedCopy { part, path, begins_at, progress, changed });
        let mut copies = lock(&self.copies);
        if copies.len() >= COPIES_MAX && !copies.contains_key(&part.concrete) {
            return None;
        }
        // The copy of another user is as good: the latest one stays longest.
        copies.insert(part.concrete, Arc::clone(&copy));
        Some(Passing { copies: Arc::clone(self), copy })
    }

    /// Takes a place among the readers of a copy.
    pub fn open(&self, part: StoredPart) -> Result<CopyReader, PassError> {
        let copy = lock(&self.copies).get(&part.concrete).cloned();
        // The reader may state another content than that of the copy.
        let copy = copy.filter(|copy| copy.part == part).ok_or(PassError::NoCopy(part.concrete))?;
        let mut progress = copy.progress();
        if progress.readers >= COPY_READERS_MAX {
            return Err(PassError::Busy(part.concrete));
        }
        progress.readers += 1;
        drop(progress);
        let (sums, file, held) = (Arc::default(), None, Vec::new());
        Ok(CopyReader { copy, patience: self.patience, sums, file, held })
    }
}

/// A reader of a copy on another node.
#[derive(Debug)]
pub(crate) struct CopyReader {
    copy: Arc<PassedCopy>,
    patience: Duration,
    sums: Arc<BlockSums>,
    file: Option<File>,
    held: Vec<u8>,
}

impl Drop for CopyReader {
    fn drop(&mut self) {
        self.copy.progress().readers -= 1;
    }
}

impl CopyReader {
    fn failed(&self, source: std::io::Error) -> PassError {
        PassError::Io { file: self.copy.part.concrete, source }
    }

    /// Reads bytes of the part from the file, which a program may have changed or replaced.
    fn fill(&mut self, offset: u64, count: usize) -> std::io::Result<()> {
        let mut held = std::mem::take(&mut self.held);
        held.resize(count, 0);
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
                File::options().read(true).custom_flags(flags).open(&self.copy.path)?
            }
        };
        file.read_exact_at(&mut held, self.copy.begins_at + offset)?;
        (self.held, self.file) = (held, Some(file));
        Ok(())
    }
}

impl PassedPart for CopyReader {
    fn sums(&mut self) -> Result<&BlockSums, PassError> {
        self.sums = self.copy.wait_for(self.patience, |progress| progress.sums.clone())?;
        Ok(&self.sums)
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], PassError> {
        let part = self.copy.part;
        let wanted = part.bytes.saturating_sub(offset);
        if wanted == 0 {
            return Ok(&[]);
        }
        let bytes = self.copy.wait_for(self.patience, |progress| {
            (progress.bytes >= offset + wanted.min(BLOCK_BYTES)).then_some(progress.bytes)
        })?;
        let limited = (bytes - offset).min(bytes_max as u64);
        // Only whole blocks can be verified; the last one is shorter.
        let count = if limited == wanted { limited } else { limited - limited % BLOCK_BYTES };
        self.fill(offset, count as usize).map_err(|source| self.failed(source))?;
        for (block, bytes) in (offset / BLOCK_BYTES..).zip(self.held.chunks(BLOCK_BYTES as usize)) {
            if self.sums.blocks().get(block as usize) != Some(&crc32c::crc32c(bytes)) {
                return Err(PassError::Changed { file: part.concrete, block });
            }
        }
        Ok(&self.held)
    }
}
