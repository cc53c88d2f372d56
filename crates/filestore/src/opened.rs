//! Open files: one pin, and the open parts, for all reads of a file.

use crate::error::FilesError;
use crate::reading::{ReadPin, check_parts};
use crate::tree::{FileReader, OpenedFile};
use crate::{FileStore, content_of};
use api::stored::MakingJob;
use concretefile::{ConcreteDirectory, ConcreteReader};
use filetransfer::PIECE_BYTES;
use filetree::TreeName;
use rows::{ConcreteRow, FileItem};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Parts that stay open for the next read.
const OPEN_PARTS_MAX: usize = 4;

/// A file that is read, with the pin of its version.
struct PinnedFile {
    _pin: ReadPin,
    disk: ConcreteDirectory,
    parts: Vec<ConcreteRow>,
    /// The job that made it.
    job: Option<MakingJob>,
    /// Open parts that no thread reads, by their positions.
    open: Mutex<Vec<(usize, ConcreteReader)>>,
    /// The part that was opened last, for other threads: the kernel sees one reader, and reads ahead of all of them.
    last: Mutex<Option<(usize, ConcreteReader)>>,
}

impl PinnedFile {
    /// Takes an open part, or opens it.
    fn part(&self, position: usize) -> Result<ConcreteReader, FilesError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.iter().position(|(each, _)| *each == position) {
            return Ok(open.swap_remove(found).1);
        }
        drop(open);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reader)) = last.as_ref().filter(|(each, _)| *each == position) {
            return Ok(reader.another()?);
        }
        let part = &self.parts[position];
        let reader = self.disk.read(part.concrete, content_of(part))?;
        *last = Some((position, reader.another()?));
        Ok(reader)
    }

    fn read_parts(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
        let (mut begin, end) = (0, offset.saturating_add(bytes_max));
        for (position, part) in self.parts.iter().enumerate() {
            let wanted = offset.saturating_sub(begin)..end.saturating_sub(begin).min(part.bytes);
            begin += part.bytes;
            if wanted.is_empty() {
                continue;
            }
            let mut reader = self.part(position)?;
            let mut at = wanted.start;
            while at < wanted.end {
                let piece = reader.read(at, PIECE_BYTES.min((wanted.end - at) as usize))?;
                let path = PathBuf::from("standard output");
                out.write_all(piece).map_err(|source| FilesError::Io { action: "write", path, source })?;
                at += piece.len() as u64;
            }
            self.put_back(position, reader);
        }
        Ok(())
    }

    fn put_back(&self, position: usize, reader: ConcreteReader) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == OPEN_PARTS_MAX {
            open.remove(0);
        }
        open.push((position, reader));
    }
}

impl FileReader for PinnedFile {
    fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
        self.read_parts(offset, bytes_max, out).map_err(|error| error.of_job(self.job.as_ref()))
    }

    fn is_near(&self) -> bool {
        true
    }

    fn backing(&self) -> Option<File> {
        match self.parts.len() {
            1 => self.part(0).ok().map(ConcreteReader::into_file),
            _ => None,
        }
    }
}

impl FileStore {
    /// Opens a file at the version of a name, or at the current one, for reads of its ranges.
    pub fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        let pin = self.pin(name.version)?;
        let row = self.pinned_entry(name, &pin)?.row;
        let Some(row) = row.filter(|row| matches!(row.item, FileItem::File(_))) else {
            return Err(FilesError::IsADirectory(name.clone()));
        };
        let parts = self.parts(&row)?;
        check_parts(&name.path.to_string(), &row, &parts)?;
        let job = self.maker_of(row.item.put())?;
        let (disk, open, last) = (self.disk.clone(), Mutex::default(), Mutex::default());
        let reader = PinnedFile { _pin: pin, disk, parts, job, open, last };
        Ok(OpenedFile { row, reader: Box::new(reader) })
    }
}
