//! The thread of a disk: removes files, looks at them, verifies them and lists them by order of the server, and
//! measures the disk each second. A disk that hangs does not block the others.

use crate::stored::disks::StoredDisk;
use crate::stored::files::StoredFiles;
use crate::stored::inventory::Inventory;
use api::StoredPart;
use api::stored::cluster::StoredOutcome;
use concretefile::{ConcreteError, Content};
use dataport::with_causes;
use ids::ConcreteId;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// Work on a disk.
#[derive(Debug)]
pub(crate) enum DiskOrder {
    Remove(Vec<ConcreteId>),
    /// The files should be there with these lengths.
    Look(Vec<StoredPart>),
    /// A reader met damage: every byte is verified against the content that the server has.
    Verify(StoredPart),
    /// Lists all files, from the beginning.
    List,
    /// The server has the last page.
    NextPage,
}

/// Executes orders until the end.
pub(crate) fn follow_orders(files: &StoredFiles, disk: &Arc<StoredDisk>, inbox: &Receiver<DiskOrder>) {
    let mut worker = DiskWorker { files, disk, inventory: None, measured: Instant::now() };
    while !files.ending.has_ended() {
        match inbox.recv_timeout(MEASURE_EVERY) {
            Ok(order) => worker.obey(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        worker.make_page();
        worker.measure();
    }
}

struct DiskWorker<'a> {
    files: &'a StoredFiles,
    disk: &'a Arc<StoredDisk>,
    inventory: Option<Inventory>,
    measured: Instant,
}

impl DiskWorker<'_> {
    fn obey(&mut self, order: DiskOrder) {
        match order {
            DiskOrder::Remove(files) => self.remove(&files),
            DiskOrder::Look(parts) => {
                for part in parts {
                    if self.files.ending.has_ended() {
                        return;
                    }
                    self.look(part);
                    self.measure();
                }
            }
            DiskOrder::Verify(part) => {
                let loss = self.disk.verify(part.concrete, content_of(part));
                loss.into_iter().for_each(|reason| self.files.lose(self.disk, part.concrete, reason));
            }
            DiskOrder::List => {
                self.files.reports.drop_page(self.disk.uuid());
                self.inventory = self.listed(Inventory::begin(self.disk));
            }
            DiskOrder::NextPage => {}
        }
    }

    fn remove(&mut self, files: &[ConcreteId]) {
        for file in files {
            if self.files.ending.has_ended() {
                return;
            }
            match self.disk.remove(*file) {
                Ok(()) => self.files.reports.add(self.disk.uuid(), *file, StoredOutcome::Removed),
                // The server finds it in the next inventory.
                Err(error) => {
                    tracing::debug!(error = with_causes(&error), "cannot remove a stored file");
                }
            }
            self.measure();
        }
        if let Err(error) = self.disk.remove_empty(files) {
            tracing::debug!(error = with_causes(&error), "cannot remove empty directories of stored files");
        }
    }

    /// Looks whether a file is there, with its length and the checksums of its blocks.
    fn look(&self, part: StoredPart) {
        let Err(error) = self.disk.files.read(part.concrete, content_of(part)) else { return };
        if self.disk.is_in_use(part.concrete) {
            return;
        }
        match self.disk.loss(&error) {
            Some(reason) => self.files.lose(self.disk, part.concrete, reason),
            None => tracing::debug!(error = with_causes(&error), "cannot look at a stored file now"),
        }
    }

    /// Makes the next page of the inventory if the server has the last one.
    fn make_page(&mut self) {
        let Some(inventory) = &mut self.inventory else { return };
        if self.files.reports.has_page(self.disk.uuid()) {
            return;
        }
        let page = inventory.next_page(self.disk);
        match self.listed(page).flatten() {
            Some(page) => self.files.reports.add_page(page),
            None => self.inventory = None,
        }
    }

    fn listed<T>(&self, outcome: Result<T, ConcreteError>) -> Option<T> {
        let warn = |error: &ConcreteError| {
            let disk = self.disk.home().display();
            tracing::warn!(%disk, error = with_causes(error), "cannot list the stored files of a disk");
        };
        outcome.inspect_err(warn).ok()
    }

    fn measure(&mut self) {
        if self.measured.elapsed() >= MEASURE_EVERY {
            self.measured = Instant::now();
            if let Err(error) = self.disk.measure() {
                tracing::debug!(error = with_causes(&error), "cannot measure a disk");
            }
        }
    }
}

pub(super) fn content_of(part: StoredPart) -> Content {
    Content { bytes: part.bytes, crc32c: part.crc32c }
}
