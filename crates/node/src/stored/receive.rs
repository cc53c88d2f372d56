//! A request that writes concrete files to a disk. Either all of its files are synced, or none of those that it created
//! is left.

use crate::stored::disks::{FileOrigin, PromisedRoom, StoredDisk};
use crate::stored::ending::Ending;
use concretefile::{ConcreteWriter, Content};
use dataport::{PartReceiver, StoredFileError};
use ids::ConcreteId;
use std::sync::Arc;

/// The files of one request.
pub(crate) struct Receiving {
    disk: Arc<StoredDisk>,
    room: PromisedRoom,
    ending: Arc<Ending>,
    open: Option<OpenPart>,
    /// Complete files.
    complete: Vec<(ConcreteId, FileOrigin)>,
}

/// The file that is being received.
struct OpenPart {
    file: ConcreteId,
    /// None if the file was there before: its content is compared at the end.
    writer: Option<ConcreteWriter>,
    /// The bytes that have arrived.
    arrived: Content,
}

impl Receiving {
    /// Begins a request with room for its files.
    pub fn begin(room: PromisedRoom, disk: Arc<StoredDisk>, ending: Arc<Ending>) -> Self {
        Self { disk, room, ending, open: None, complete: Vec::new() }
    }

    /// Adds promised room for further bytes; what was promised before has been written.
    pub fn add_room(&mut self, room: PromisedRoom) {
        self.room = room;
    }

    /// Drops the file that is being received; complete ones stay in the request.
    pub fn drop_open(&mut self) {
        if let Some(OpenPart { file, writer, .. }) = self.open.take() {
            let origin = if writer.is_some() { FileOrigin::New } else { FileOrigin::Present };
            drop(writer);
            self.disk.abandon(file, origin);
        }
    }

    fn check_end(&self) -> Result<(), StoredFileError> {
        if self.ending.has_ended() { Err(StoredFileError::Draining) } else { Ok(()) }
    }

    /// Completes a file; it stays in use in either case.
    fn complete(&self, part: OpenPart, content: Content) -> (FileOrigin, Result<(), StoredFileError>) {
        let OpenPart { file, writer, arrived } = part;
        let wrong = |present| Err(StoredFileError::WrongContent { file, stated: content, present });
        let Some(writer) = writer else {
            let compared = match arrived == content {
                false => wrong(arrived),
                true if self.disk.files.holds(file, content) => Ok(()),
                true => Err(StoredFileError::Exists(file)),
            };
            return (FileOrigin::Present, compared);
        };
        let written = match writer.finish() {
            Ok(present) if present != content => wrong(present),
            finished => finished.map(drop).map_err(StoredFileError::from),
        };
        (FileOrigin::New, written)
    }
}

impl PartReceiver for Receiving {
    fn begin(&mut self, file: ConcreteId) -> Result<(), StoredFileError> {
        self.check_end()?;
        self.drop_open();
        if !self.disk.begin_use(file) {
            return Err(StoredFileError::Exists(file));
        }
        let writer = match self.disk.files.create_new(file) {
            Ok(writer) => Some(writer),
            Err(error) if error.is_existing() => None,
            Err(error) => {
                self.disk.abandon(file, FileOrigin::Present);
                return Err(error.into());
            }
        };
        self.open = Some(OpenPart { file, writer, arrived: Content::default() });
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoredFileError> {
        self.check_end()?;
        let Some(open) = &mut self.open else { return Ok(()) };
        match &mut open.writer {
            Some(writer) => {
                writer.write(bytes)?;
                self.room.spend(bytes.len() as u64);
            }
            None => {
                open.arrived.bytes += bytes.len() as u64;
                open.arrived.crc32c = crc32c::crc32c_append(open.arrived.crc32c, bytes);
            }
        }
        Ok(())
    }

    fn end(&mut self, content: Content) -> Result<(), StoredFileError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let file = open.file;
        let (origin, completed) = self.complete(open, content);
        match completed {
            Ok(()) => self.complete.push((file, origin)),
            Err(_) => self.disk.abandon(file, origin),
        }
        completed
    }

    fn sync(&mut self) -> Result<(), StoredFileError> {
        self.check_end()?;
        self.drop_open();
        let files: Vec<ConcreteId> = self.complete.iter().map(|(file, _)| *file).collect();
        if files.is_empty() {
            return Ok(());
        }
        // A file that was there may not have been synced.
        self.disk.files.sync(&files)?;
        self.disk.end_use(&files).map_err(StoredFileError::Unknown)?;
        self.complete.clear();
        Ok(())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.drop_open();
        for (file, origin) in self.complete.drain(..) {
            self.disk.abandon(file, origin);
        }
    }
}
