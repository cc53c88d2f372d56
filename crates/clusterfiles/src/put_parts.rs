//! The parts of a put on their way to nodes. Small ones are gathered in batches; large ones travel while they are read.

use crate::batch::{Batch, BatchedPart, OpenBatches};
use crate::connection::{Connection, peer_of};
use crate::numbers::{Numbered, Numbers};
use crate::read_ahead::SMALL_BYTES_MAX;
use crate::writing::{Writing, failed_at};
use api::StoredPart;
use api::stored::HashedFile;
use api::stored::cluster::{
    RecordStored, RecordedFile, RecordedPart, STORED_PAGE_MAX, StoredNode, StoredPut, StoredRange,
};
use concretefile::Content;
use dataport::{DataClient, PartsUpload};
use filestore::{FilesError, RemoteFault};
use filetransfer::{DonePart, FileToPut, PART_BYTES, PartSink, PartSource, PartStore, TransferError};
use ids::{ConcreteId, ContentId, DiskId};
use rows::ConcreteRow;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tries to write a batch.
const BATCH_TRIES_MAX: u32 = 8;
/// Parts of the files of one report to the server.
const RECORDED_PARTS_MAX: usize = 20_000;

/// A part that is on disks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    part: StoredPart,
    disks: Vec<DiskId>,
}

#[derive(Default)]
struct State {
    batches: OpenBatches,
    /// Parts that are on disks and not recorded, by their numbers in the plan.
    placed: HashMap<u32, Placed>,
    /// Disks that may have a half of a part that is written again.
    tried: HashMap<u32, Vec<DiskId>>,
    is_broken: bool,
    /// The first error of the server or of this process.
    failure: Option<FilesError>,
}

/// The parts of a put in a cluster.
pub(crate) struct PutParts<'a> {
    writing: Writing<'a>,
    of: StoredPut,
    numbers: Numbers,
    state: Mutex<State>,
    changed: Condvar,
}

impl<'a> PutParts<'a> {
    pub fn new(connection: &'a Connection, of: StoredPut, replicas: u32, numbers: Numbers) -> Self {
        let writing = Writing::new(connection, of, replicas);
        Self { writing, of, numbers, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an error that says more than the transfer can, and ends the put.
    fn fail(&self, error: FilesError) -> TransferError {
        let error = match error {
            FilesError::Transfer(error) => {
                self.lock().is_broken |= !matches!(error, TransferError::Node { .. });
                error
            }
            other => {
                let text = other.to_string();
                let mut state = self.lock();
                state.is_broken = true;
                state.failure.get_or_insert(other);
                TransferError::Store(text)
            }
        };
        self.changed.notify_all();
        error
    }

    /// Returns the error of the server behind an error of the transfer, if there is one.
    pub fn cause_of(&self, error: TransferError) -> FilesError {
        match (&error, self.lock().failure.take()) {
            (TransferError::Store(_), Some(failure)) => failure,
            _ => error.into(),
        }
    }

    fn number(&self, part: ConcreteId) -> Result<Numbered, TransferError> {
        let numbered = self.numbers.number(self.writing.connection, part.number());
        numbered.map_err(|error| self.fail(error))
    }

    fn client(&self, range: &StoredRange) -> DataClient {
        self.writing.connection.showing(range)
    }

    /// Adds a small part, and writes the batch that is full with it.
    fn add_small(
        &self,
        planned: u32,
        numbered: &Numbered,
        payload: Vec<u8>,
    ) -> Result<Content, TransferError> {
        let content = Content { bytes: payload.len() as u64, crc32c: crc32c::crc32c(&payload) };
        let part = StoredPart { concrete: numbered.id, bytes: content.bytes, crc32c: content.crc32c };
        let full = self.lock().batches.add(numbered, BatchedPart { planned, part, payload });
        if let Some(batch) = full {
            self.write_batch(&batch)?;
        }
        Ok(content)
    }

    /// Writes a batch to a disk and its replicas, to others if one fails.
    fn write_batch(&self, batch: &Batch) -> Result<(), TransferError> {
        let client = self.client(&batch.range);
        let parts: Vec<StoredPart> = batch.parts.iter().map(|part| part.part).collect();
        let mut tried = Vec::new();
        let disks = loop {
            let places = self.writing.place(batch.bytes, &tried).map_err(|error| self.broken(error))?;
            let written = self.upload_batch(&client, &places[0], batch);
            let replicated = written.and_then(|()| self.writing.replicate(&client, &parts, &places));
            match replicated {
                Ok(disks) => break disks,
                Err(TransferError::Node { .. }) if (tried.len() as u32) < BATCH_TRIES_MAX - 1 => {
                    tried.push(places[0].disk);
                }
                Err(error) => return Err(self.broken(error.into())),
            }
        };
        let mut state = self.lock();
        for part in &batch.parts {
            state.placed.insert(part.planned, Placed { part: part.part, disks: disks.clone() });
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Ends the put: nobody else has the bytes of a batch.
    fn broken(&self, error: FilesError) -> TransferError {
        self.fail(match error {
            FilesError::Transfer(TransferError::Node { reason }) => {
                let text = format!("parts were not stored: {reason}");
                FilesError::Remote { fault: RemoteFault::Failed, text }
            }
            other => other,
        })
    }

    fn upload_batch(
        &self,
        client: &DataClient,
        place: &StoredNode,
        batch: &Batch,
    ) -> Result<(), TransferError> {
        let upload = || {
            let mut upload = client.upload_parts(&peer_of(place), place.disk, batch.bytes);
            for part in &batch.parts {
                upload.begin(part.part.concrete)?;
                upload.write(&part.payload)?;
                upload.end()?;
            }
            upload.finish()
        };
        upload().map_err(|error| failed_at(&self.writing, place.disk, &error))
    }

    /// Writes the batches that are not full, and waits until other threads have written theirs, as far as these files
    /// need them.
    fn flush(&self, planned: &[u32]) -> Result<(), TransferError> {
        let mut state = self.lock();
        loop {
            if state.is_broken {
                return Err(has_failed());
            }
            if let Some(batch) = state.batches.take() {
                drop(state);
                self.write_batch(&batch)?;
                state = self.lock();
                continue;
            }
            if planned.iter().all(|number| state.placed.contains_key(number)) {
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the places of the parts of a file. Returns its content, and its parts with their numbers in the store.
    fn placed(
        &self,
        first_number: u32,
        parts: &[DonePart],
    ) -> Result<(ContentId, Vec<RecordedPart>), TransferError> {
        let mut state = self.lock();
        let taken = parts.iter().filter_map(|part| state.placed.remove(&part.concrete.number()));
        let taken: Vec<RecordedPart> =
            taken.map(|placed| RecordedPart { file: placed.part, disks: placed.disks }).collect();
        drop(state);
        let first = match taken.first() {
            Some(first) => first.file.concrete,
            // An empty file has a number of its own.
            None => self.number(ConcreteId::of(self.of.put, first_number).ok_or(TransferError::TooMany)?)?.id,
        };
        let content = ContentId::of(self.of.put, first.number()).ok_or(TransferError::TooMany)?;
        Ok((content, taken))
    }

    fn recorded(&self, file: &FileToPut, parts: &[DonePart]) -> Result<RecordedFile, TransferError> {
        let (content, parts) = self.placed(file.first_number, parts)?;
        let source = &file.source;
        let (name, bytes, modified_ns) = (source.name.clone(), source.bytes, source.modified_ns);
        Ok(RecordedFile { name, content, bytes, modified_ns, parts, hashed: None })
    }

    /// Makes the only file of a stream durable, and records it.
    pub fn keep_stream(&self, parts: &[DonePart], hashed: Option<HashedFile>) -> Result<(), FilesError> {
        let numbers: Vec<u32> = parts.iter().map(|part| part.concrete.number()).collect();
        let bytes = parts.iter().map(|part| part.content.bytes).sum();
        let placed = self.flush(&numbers).and_then(|()| self.placed(0, parts));
        let (content, parts) = placed.map_err(|error| self.cause_of(error))?;
        let file = RecordedFile { name: String::new(), content, bytes, modified_ns: 0, parts, hashed };
        self.record(vec![file], Vec::new())
    }

    /// Reports files to the server, and names that the source does not have any more.
    pub fn record(&self, files: Vec<RecordedFile>, forgotten: Vec<String>) -> Result<(), FilesError> {
        let record = RecordStored { of: self.of, files, forgotten };
        self.writing.connection.ask(async |client| client.record_stored(&record).await)
    }
}

impl PartStore for PutParts<'_> {
    fn create(&self, part: ConcreteId, bytes: Option<u64>) -> Result<Box<dyn PartSink + '_>, TransferError> {
        if self.lock().is_broken {
            return Err(has_failed());
        }
        let numbered = self.number(part)?;
        let sink = PutSink { parts: self, planned: part.number(), numbered, held: Vec::new(), large: None };
        match bytes {
            Some(bytes) if bytes > SMALL_BYTES_MAX => Ok(Box::new(sink.opened(bytes)?)),
            _ => Ok(Box::new(sink)),
        }
    }

    fn open(&self, _part: &ConcreteRow) -> Result<Box<dyn PartSource + '_>, TransferError> {
        Err(TransferError::Store("a put reads no parts".to_string()))
    }

    fn keep(&self, files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError> {
        let numbers: Vec<u32> =
            files.iter().flat_map(|(_, parts)| parts.iter().map(|part| part.concrete.number())).collect();
        self.flush(&numbers)?;
        let mut page = Vec::new();
        let mut parts_count = 0;
        for (file, parts) in files {
            if !page.is_empty()
                && (page.len() == STORED_PAGE_MAX as usize || parts_count + parts.len() > RECORDED_PARTS_MAX)
            {
                self.record(std::mem::take(&mut page), Vec::new()).map_err(|error| self.fail(error))?;
                parts_count = 0;
            }
            page.push(self.recorded(file, parts)?);
            parts_count += parts.len();
        }
        self.record(page, Vec::new()).map_err(|error| self.fail(error))
    }

    fn keeps_all(&self) -> bool {
        true
    }
}

/// Returns the error of a thread that ends because another one has the reason.
fn has_failed() -> TransferError {
    TransferError::Store("the put has failed".to_string())
}

/// A part on its way: in memory as long as it is small.
struct PutSink<'a> {
    parts: &'a PutParts<'a>,
    planned: u32,
    numbered: Numbered,
    held: Vec<u8>,
    large: Option<LargePart>,
}

/// A large part on its way to the first of its disks.
struct LargePart {
    client: DataClient,
    places: Vec<StoredNode>,
    upload: PartsUpload,
}

impl PutSink<'_> {
    /// Begins the upload of a part that is too large to be held. `bytes`: its length, or more.
    fn opened(mut self, bytes: u64) -> Result<Self, TransferError> {
        let tried = self.parts.lock().tried.get(&self.planned).cloned().unwrap_or_default();
        let places = self.parts.writing.place(bytes, &tried).map_err(|error| self.parts.fail(error))?;
        let client = self.parts.client(&self.numbered.range);
        let first = &places[0];
        let upload = client.upload_parts(&peer_of(first), first.disk, bytes);
        let mut large = LargePart { client, places, upload };
        let begun = large.upload.begin(self.numbered.id);
        let held = std::mem::take(&mut self.held);
        let written = begun.and_then(|()| large.upload.write(&held));
        if let Err(error) = written {
            return Err(self.failed(large.places[0].disk, &error));
        }
        self.large = Some(large);
        Ok(self)
    }

    /// Handles a failure of the first disk: the part is written again to another one.
    fn failed(&self, disk: DiskId, error: &dataport::DataError) -> TransferError {
        self.parts.lock().tried.entry(self.planned).or_default().push(disk);
        failed_at(&self.parts.writing, disk, error)
    }

    fn finish_large(self, large: LargePart) -> Result<Content, TransferError> {
        let LargePart { client, places, mut upload } = large;
        let ended = upload.end().and_then(|content| upload.finish().map(|()| content));
        let content = ended.map_err(|error| self.failed(places[0].disk, &error))?;
        let part = StoredPart { concrete: self.numbered.id, bytes: content.bytes, crc32c: content.crc32c };
        let replicated = self.parts.writing.replicate(&client, &[part], &places);
        let disks = replicated.inspect_err(|_| {
            self.parts.lock().tried.entry(self.planned).or_default().push(places[0].disk);
        })?;
        let mut state = self.parts.lock();
        state.tried.remove(&self.planned);
        state.placed.insert(self.planned, Placed { part, disks });
        drop(state);
        self.parts.changed.notify_all();
        Ok(content)
    }
}

impl PartSink for PutSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        if self.large.is_none() && (self.held.len() + bytes.len()) as u64 > SMALL_BYTES_MAX {
            // A stream, whose parts have no length beforehand.
            let held = std::mem::take(&mut self.held);
            let (parts, planned, numbered) = (self.parts, self.planned, self.numbered.clone());
            let sink = PutSink { parts, planned, numbered, held, large: None };
            self.large = sink.opened(PART_BYTES)?.large.take();
        }
        match &mut self.large {
            None => self.held.extend_from_slice(bytes),
            Some(large) => {
                if let Err(error) = large.upload.write(bytes) {
                    let disk = large.places[0].disk;
                    return Err(self.failed(disk, &error));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Content, TransferError> {
        match self.large.take() {
            Some(large) => self.finish_large(large),
            None => {
                let payload = std::mem::take(&mut self.held);
                self.parts.add_small(self.planned, &self.numbered, payload)
            }
        }
    }
}
