//! Slabs for frames from the network: filled by one connection after another, so that the short frames at the ends of
//! map tasks share a slab.

use crate::ChunkServer;
use arena::SlabWriter;
use iappender::AppendError;
use ids::IfileIndex;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of half-filled slabs of an I-file: two connections at once are usual, more are rare.
const PARKED_PER_IFILE_MAX: usize = 2;

/// Slabs with room that no connection is filling.
#[derive(Default)]
pub(crate) struct ParkedSlabs {
    slabs: Mutex<BTreeMap<IfileIndex, Vec<SlabWriter>>>,
}

impl ParkedSlabs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IfileIndex, Vec<SlabWriter>>> {
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Takes the fullest slab with room for `bytes`.
    fn take(&self, ifile: IfileIndex, bytes: usize) -> Option<SlabWriter> {
        let mut slabs = self.lock();
        let parked = slabs.get_mut(&ifile)?;
        let fitting = parked.iter().enumerate().filter(|(_, slab)| slab.room_bytes() >= bytes);
        let (best, _) = fitting.min_by_key(|(_, slab)| slab.room_bytes())?;
        Some(parked.swap_remove(best))
    }

    fn park(&self, ifile: IfileIndex, slab: SlabWriter) {
        let mut slabs = self.lock();
        let parked = slabs.entry(ifile).or_default();
        parked.push(slab);
        if parked.len() > PARKED_PER_IFILE_MAX {
            let fullest = parked.iter().enumerate().min_by_key(|(_, slab)| slab.room_bytes());
            if let Some((fullest, _)) = fullest {
                parked.swap_remove(fullest);
            }
        }
    }
}

impl ChunkServer {
    /// Returns a slab with room for a frame of `bytes` (at most a slab), or None if there is no memory at the moment.
    pub fn try_receiving_slab(&self, ifile: IfileIndex, bytes: usize) -> Option<SlabWriter> {
        self.shared.parked.take(ifile, bytes).or_else(|| self.shared.arena.try_slab())
    }

    /// Waits for a slab to receive a frame in.
    pub fn receiving_slab(&self) -> Result<SlabWriter, AppendError> {
        self.shared.wait_for_memory(|| self.shared.arena.try_slab())
    }

    /// Keeps the rest of a slab for the next frame of the I-file. An unsealed frame is discarded.
    pub fn park_slab(&self, ifile: IfileIndex, mut slab: SlabWriter) {
        slab.discard();
        self.shared.parked.park(ifile, slab);
    }
}
