//! A chunk service behind a bad line: answers get lost before or after the call took effect, frames arrive twice,
//! and old ones arrive again late.

use arena::{Charge, SlabWriter};
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{ChunkId, IfileIndex, Source};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Late copies that are on their way at most.
const LATE_MAX: usize = 8;

pub struct FaultyService<'a> {
    inner: &'a dyn ChunkService,
    lost_per_mille: u64,
    seed: u64,
    draws: AtomicU64,
    pub answers_lost: AtomicU64,
    /// Frames that were delivered and wait to be delivered again.
    late: Mutex<Vec<(ChunkId, AppendFrame)>>,
}

#[derive(PartialEq, Eq)]
enum Loss {
    None,
    /// The request never arrives.
    Before,
    /// It takes effect and the answer never arrives.
    After,
}

impl<'a> FaultyService<'a> {
    pub fn new(inner: &'a dyn ChunkService, lost_per_mille: u64, seed: u64) -> Self {
        let (draws, answers_lost) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inner, lost_per_mille, seed, draws, answers_lost, late: Mutex::new(Vec::new()) }
    }

    /// A number below 1000: splitmix64 over a counter, so that a schedule in lockstep loses the same answers again.
    fn draw(&self) -> u64 {
        let count = self.draws.fetch_add(1, Ordering::Relaxed) + 1;
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1000
    }

    fn loss(&self) -> Loss {
        let drawn = self.draw();
        if drawn >= self.lost_per_mille {
            return Loss::None;
        }
        self.answers_lost.fetch_add(1, Ordering::Relaxed);
        if drawn.is_multiple_of(2) { Loss::Before } else { Loss::After }
    }

    fn call<T>(&self, request: impl FnOnce() -> Result<T, AppendError>) -> Result<T, AppendError> {
        match self.loss() {
            Loss::None => request(),
            Loss::Before => Err(AppendError::AnswerLost),
            Loss::After => {
                // An error would come back with the next try.
                request()?;
                Err(AppendError::AnswerLost)
            }
        }
    }

    /// Delivers an old frame again and keeps the new one for later. Whatever is answered to an old frame, nobody
    /// hears it, and it must change nothing.
    fn repeat_late(&self, chunk: ChunkId, frame: &AppendFrame) {
        if self.draw() >= self.lost_per_mille {
            return;
        }
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.len() == LATE_MAX {
            let (old_chunk, old_frame) = late.remove(0);
            let _ = self.inner.append(old_chunk, old_frame);
        }
        late.push((chunk, frame.clone()));
    }
}

impl ChunkService for FaultyService<'_> {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        // Frames kept here hold memory that an appender may wait for.
        self.late
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(_, frame)| frame.payload.len() < 4096);
        self.inner.slab()
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.inner.oversize(bytes)
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        self.call(|| self.inner.bind(ifile, source, frame_bytes))
    }

    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        self.inner.answers(wait)
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        let copy = frame.clone();
        let reply = self.call(|| {
            let reply = self.inner.append(chunk, frame)?;
            if reply == AppendReply::Acked {
                self.repeat_late(chunk, &copy);
            }
            Ok(reply)
        });
        if reply.is_ok() && self.draw() < self.lost_per_mille {
            // The same frame at once again: the answer to the repetition counts.
            return self.inner.append(chunk, copy);
        }
        reply
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        self.inner.release(chunk, source);
    }
}
