//! Open files: one lease, and the places of the parts, for all reads of a file.

use crate::ClusterFiles;
use crate::connection::of_transfer;
use crate::places::{Places, ReadFile};
use crate::read_parts::{NO_REPLICA_MAX, PartReads};
use crate::reading::{Leased, PlacedEntry, check_parts, entries_of, row_of};
use api::StoredPart;
use filestore::{FileReader, FilesError, OpenedFile};
use filetree::TreeName;
use rows::FileItem;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is read, with the lease of its version.
struct LeasedFile {
    reads: PartReads,
    parts: Vec<StoredPart>,
}

impl FileReader for LeasedFile {
    /// Blocks beside the range are not read.
    fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
        let (mut begin, end) = (0, offset.saturating_add(bytes_max));
        for part in &self.parts {
            let range = offset.saturating_sub(begin)..end.saturating_sub(begin).min(part.bytes);
            begin += part.bytes;
            if range.is_empty() {
                continue;
            }
            let mut reading = self.reads.range(*part, range.start, range.end);
            while let Some(piece) = reading.next_piece().map_err(of_transfer)? {
                let path = PathBuf::from("standard output");
                out.write_all(&piece).map_err(|source| FilesError::Io { action: "write", path, source })?;
            }
        }
        Ok(())
    }

    fn is_near(&self) -> bool {
        false
    }

    fn backing(&self) -> Option<File> {
        None
    }
}

impl ClusterFiles {
    /// Opens a file under a lease of its version.
    pub(crate) fn opened(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        let Leased { found, lease } = self.leased(name)?;
        let row = found.entry.map(row_of).filter(|row| matches!(row.item, FileItem::File(_)));
        let row = row.ok_or_else(|| FilesError::IsADirectory(name.clone()))?;
        let mut page = self.placed_entry(&row, Some(lease.version), lease.number)?;
        let mut places = Places::default();
        places.add_page(&mut page);
        let mut parts = Vec::new();
        for entry in entries_of(page) {
            let PlacedEntry::File(file) = entry else { continue };
            check_parts(&name.path.to_string(), &file)?;
            places.files.push(ReadFile { directory: row.directory, name: name.path.to_string() });
            file.parts.iter().for_each(|placed| places.add_part(0, placed));
            parts.extend(file.parts.iter().map(|placed| placed.file));
        }
        let patience = self.connection.answer_max.map_or(NO_REPLICA_MAX, |limit| limit.min(NO_REPLICA_MAX));
        let reads = PartReads::new(Arc::clone(&self.connection), lease, places, [], patience);
        Ok(OpenedFile { row, reader: Box::new(LeasedFile { reads, parts }) })
    }

    /// Writes the bytes of a file from `offset` on, at most `bytes_max`.
    pub(crate) fn cat_range(
        &self,
        name: &TreeName,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError> {
        self.opened(name)?.read(&name.to_string(), offset, bytes_max, out)
    }
}
