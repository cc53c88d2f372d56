//! The chunkserver for appenders in the same process. Frames are handed over, not copied.

use crate::Shared;
use crate::chunk_table::{ChunkState, ChunkTable};
use arena::{Charge, SlabWriter};
use faults::{CrashPoint, crash_point};
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{ChunkId, IfileIndex, Source};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Memory is also freed by threads that do not signal (a worker dropping a slab), so waiters poll.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Shared {
    /// Waits until `take` gets memory. Sorters see the waiter, and free memory.
    pub(crate) fn wait_for_memory<T>(&self, take: impl Fn() -> Option<T>) -> Result<T, AppendError> {
        if let Some(memory) = take() {
            return Ok(memory);
        }
        let mut table = self.lock();
        table.memory_waiters += 1;
        self.work.notify_all();
        let result = loop {
            if let Some(memory) = take() {
                break Ok(memory);
            }
            if let Some(failure) = &table.failure {
                break Err(failure.to_append_error());
            }
            if self.is_cancelled() || table.stopping {
                break Err(AppendError::Cancelled);
            }
            let waited = self.changed.wait_timeout(table, LOOK_AGAIN);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        table.memory_waiters -= 1;
        result
    }

    fn checked(&self) -> Result<std::sync::MutexGuard<'_, ChunkTable>, AppendError> {
        let table = self.lock();
        match &table.failure {
            Some(failure) => Err(failure.to_append_error()),
            None => Ok(table),
        }
    }

    /// Wakes sorters if the call closed the chunk.
    fn wake_if_stable(&self, table: &ChunkTable, chunk: ChunkId) -> bool {
        let stable = table.chunks.get(&chunk).is_some_and(|chunk| chunk.state == ChunkState::Stable);
        if stable {
            self.work.notify_one();
        }
        stable
    }
}

impl ChunkService for Shared {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        self.wait_for_memory(|| self.arena.try_slab())
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        if bytes > self.arena.budget_bytes() {
            return Err(AppendError::TooLarge {
                record_bytes: bytes,
                needed_bytes: bytes,
                budget_bytes: self.arena.budget_bytes(),
            });
        }
        self.wait_for_memory(|| self.arena.try_charge(bytes))
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        Ok(self.checked()?.bind(ifile, source, frame_bytes))
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        let bytes = frame.header.sum.bytes;
        let mut table = self.checked()?;
        let reply = table.append(chunk, frame)?;
        let closed = self.wake_if_stable(&table, chunk);
        drop(table);
        if reply == AppendReply::Acked {
            self.progress.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if closed {
            crash_point(CrashPoint::ChunkClosed);
        }
        Ok(reply)
    }

    fn answers(&self, _wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        // Every frame is answered when it is appended.
        Ok(Vec::new())
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        self.lock().release(chunk, source);
    }
}
