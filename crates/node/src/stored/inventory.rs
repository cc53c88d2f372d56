//! The inventory of a disk: all of its concrete files, in pages in the order of their numbers. The pages of one
//! inventory touch and cover every number.

use crate::stored::disks::StoredDisk;
use api::stored::cluster::{STORED_LISTED_MAX, StoredListing};
use concretefile::ConcreteError;
use ids::{ConcreteId, PutId};
use std::collections::VecDeque;
use std::io::ErrorKind;

/// An inventory that is being listed.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// Puts that are not listed yet, in their order.
    puts: VecDeque<PutId>,
    /// Files of the current put that are not listed yet, in their order.
    files: VecDeque<ConcreteId>,
    /// First number of the next page; None after the last page.
    next: Option<ConcreteId>,
    page_max: usize,
}

impl Inventory {
    /// Begins an inventory.
    pub fn begin(disk: &StoredDisk) -> Result<Self, ConcreteError> {
        Self::in_pages_of(disk, STORED_LISTED_MAX)
    }

    pub(super) fn in_pages_of(disk: &StoredDisk, page_max: usize) -> Result<Self, ConcreteError> {
        let mut puts = disk.files.puts()?;
        puts.sort_unstable();
        Ok(Self { puts: puts.into(), files: VecDeque::new(), next: Some(ConcreteId(0)), page_max })
    }

    /// Returns the next page; None after the last one. A file that a request is still writing is left out: it has no
    /// row yet.
    pub fn next_page(&mut self, disk: &StoredDisk) -> Result<Option<StoredListing>, ConcreteError> {
        let Some(first) = self.next else { return Ok(None) };
        let mut page = Vec::new();
        let mut last = None;
        while page.len() < self.page_max {
            let Some(file) = self.next_file(disk)? else { break };
            last = Some(file);
            if !disk.is_in_use(file)
                && let Some(bytes) = length(disk, file)?
            {
                page.push((file, bytes));
            }
        }
        let is_last = self.files.is_empty() && self.puts.is_empty();
        let last = last.filter(|_| !is_last).unwrap_or(ConcreteId(i64::MAX));
        self.next = (!is_last).then(|| ConcreteId(last.0.saturating_add(1)));
        Ok(Some(StoredListing { uuid: disk.uuid().to_string(), first, last, files: page, is_last }))
    }

    fn next_file(&mut self, disk: &StoredDisk) -> Result<Option<ConcreteId>, ConcreteError> {
        while self.files.is_empty() {
            let Some(put) = self.puts.pop_front() else { return Ok(None) };
            let mut files = disk.files.files(put)?;
            files.sort_unstable();
            self.files = files.into();
        }
        Ok(self.files.pop_front())
    }
}

/// Returns the length of a file; None if it was removed meanwhile.
fn length(disk: &StoredDisk, file: ConcreteId) -> Result<Option<u64>, ConcreteError> {
    let path = disk.files.path(file);
    match std::fs::metadata(&path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConcreteError::Io { action: "look at", path, source }),
    }
}
