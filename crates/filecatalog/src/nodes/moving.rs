//! Waves of moves: files go from full disks to emptier ones when a node has joined or a disk has filled, while nothing is
//! to be repaired.

use crate::{Catalog, CatalogError, State};
use ids::{ConcreteId, DiskId};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Files that are looked at together, and pages of them for one wave.
const FILES_AT_ONCE: u32 = 500;
const PAGES_MAX: usize = 20;

impl Catalog {
    /// Goes on with the moves of a wave, or begins a wave.
    pub(crate) async fn move_files(&self) -> Result<(), CatalogError> {
        self.go_on_with_moves().await?;
        let mut levels = {
            let State { disks, moves, .. } = &*self.state();
            // The room that disks report follows their files after about a second.
            let found = moves.levels(disks, self.pace.heard_within / 2, Instant::now());
            match found.filter(|_| !self.wanted.load(Ordering::Acquire)) {
                Some(levels) => levels,
                None => return Ok(()),
            }
        };
        let mut pages = 0;
        let givers = self.state().moves.givers(&levels);
        for from in givers {
            let mut is_from_start = self.state().moves.looked_at(from) == ConcreteId(-1);
            while pages < PAGES_MAX {
                pages += 1;
                let numbers = self.next_files(from).await?;
                let files = self.store.replicated_files_of(&numbers).await?;
                let State { disks, moves, .. } = &mut *self.state();
                if !moves.begin(disks, &mut levels, from, &files, Instant::now()) {
                    break;
                }
                if numbers.len() < FILES_AT_ONCE as usize {
                    moves.look_from_start(from);
                    if std::mem::replace(&mut is_from_start, true) {
                        break;
                    }
                }
            }
        }
        let moves = &mut self.state().moves;
        if !moves.any() {
            moves.rest();
        }
        Ok(())
    }

    /// Returns the next files of a disk that may move.
    async fn next_files(&self, disk: DiskId) -> Result<Vec<ConcreteId>, CatalogError> {
        let after = self.state().moves.looked_at(disk);
        let rows = self.store.replicated_files_on(disk, after, FILES_AT_ONCE).await?;
        Ok(rows.iter().map(|row| row.concrete).collect())
    }

    async fn go_on_with_moves(&self) -> Result<(), CatalogError> {
        let files = self.state().moves.files();
        if files.is_empty() {
            return Ok(());
        }
        let rows = self.store.replicated_files_of(&files).await?;
        let scans_again = {
            let State { disks, moves, .. } = &mut *self.state();
            moves.go_on(disks, &rows, Instant::now())
        };
        if scans_again {
            self.wake_repair();
        }
        Ok(())
    }
}
