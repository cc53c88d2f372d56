//! Puts of one file whose records are distributed over its parts by the hash of their keys.

use crate::error::TransferError;
use crate::hash_by::{HashBy, Partitioner, RECORD_BYTES_MAX, RecordSum, Records};
use crate::put::{DonePart, PART_TRIES_MAX, check_unchanged};
use crate::source::SourceFile;
use crate::spool::Spool;
use crate::watch::Watch;
use crate::{PIECE_BYTES, PartStore};
use api::RecordFormat;
use api::stored::HashedFile;
use ids::{ConcreteId, PutId};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The source of such a put.
pub enum HashedSource<'a> {
    File(&'a SourceFile),
    /// Bytes without a length; the path stands for them in errors.
    Stream(&'a mut dyn Read, &'a Path),
}

/// The parts that were written, and how records lie in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedParts {
    pub parts: Vec<DonePart>,
    pub hashed: HashedFile,
}

/// The resources of such a put.
#[derive(Clone, Copy)]
pub struct HashedPut<'a> {
    pub put: PutId,
    pub store: &'a dyn PartStore,
    /// The directory of a temporary file, which has the records until their parts are written.
    pub spool_dir: &'a Path,
    pub threads: usize,
    pub watch: &'a Watch,
}

impl HashedPut<'_> {
    /// Puts a file or a stream. All bytes are written when this returns; the caller syncs them. A last line without its
    /// end gets one: other lines may follow it.
    pub fn put(&self, source: HashedSource<'_>, by: &HashBy) -> Result<HashedParts, TransferError> {
        let mut spool = Spool::new(self.spool_dir, by.partitions.count);
        let sum = match source {
            HashedSource::Stream(stream, path) => self.distribute(stream, path, by, &mut spool)?,
            HashedSource::File(source) => {
                self.watch.expect(1, source.bytes);
                let mut file = File::open(&source.path).map_err(TransferError::io("open", &source.path))?;
                check_unchanged(&file, source)?;
                let sum = self.distribute(&mut file, &source.path, by, &mut spool)?;
                check_unchanged(&file, source)?;
                sum
            }
        };
        let (full, empty): (Vec<u32>, Vec<u32>) =
            (0..by.partitions.count).partition(|lane| spool.bytes(*lane) > 0);
        let parts = self.write_parts(&spool, &full)?;
        self.watch.add_files(1);
        Ok(HashedParts { parts, hashed: by.hashed(empty, sum.finish()) })
    }

    /// Reads all records into their partitions. Returns their sum.
    fn distribute(
        &self,
        stream: &mut dyn Read,
        path: &Path,
        by: &HashBy,
        spool: &mut Spool,
    ) -> Result<RecordSum, TransferError> {
        let rules = |source| TransferError::Keys { path: path.to_path_buf(), source };
        let mut partitioner = Partitioner::new(by).map_err(rules)?;
        let mut sum = RecordSum::of(by.records);
        let mut records = Records::new(by.records);
        let is_lines = !matches!(by.records, RecordFormat::Fixed { .. });
        let mut take = |record: &[u8]| {
            sum.add_record(record);
            let lane = partitioner.partition(record);
            spool.append(lane, record)?;
            if is_lines { spool.append(lane, b"\n") } else { Ok(()) }
        };
        let mut buffer = vec![0; PIECE_BYTES];
        let mut bytes = 0;
        loop {
            if self.watch.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            let read = match stream.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(TransferError::io("read", path))?,
            };
            if read == 0 {
                break;
            }
            bytes += read as u64;
            self.watch.add_bytes(read as u64);
            records.feed(&buffer[..read], &mut take)?;
            if records.held().len() > RECORD_BYTES_MAX {
                return Err(TransferError::LongRecord { path: path.to_path_buf() });
            }
        }
        match by.records {
            _ if records.held().is_empty() => {}
            RecordFormat::Fixed { record_bytes, .. } => {
                let (path, record_bytes) = (path.to_path_buf(), u64::from(record_bytes));
                return Err(TransferError::RaggedRecords { path, bytes, record_bytes });
            }
            _ => take(records.held())?,
        }
        Ok(sum)
    }

    /// Writes the partitions that have records, by several threads.
    fn write_parts(&self, spool: &Spool, lanes: &[u32]) -> Result<Vec<DonePart>, TransferError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(vec![None; lanes.len()]);
        let failure = Mutex::new(None);
        let work = || -> Result<(), TransferError> {
            while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < lanes.len()) {
                let part = self.write_part(spool, lanes[number], number as u32)?;
                done.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(part);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, lanes.len().max(1)) {
                scope.spawn(|| {
                    if let Err(error) = work() {
                        // The others end too.
                        next.store(lanes.len(), Ordering::Relaxed);
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None => {
                let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(done.into_iter().flatten().collect())
            }
        }
    }

    /// Writes a partition as a part, again if a node fails.
    fn write_part(&self, spool: &Spool, lane: u32, number: u32) -> Result<DonePart, TransferError> {
        let concrete = ConcreteId::of(self.put, number).ok_or(TransferError::TooMany)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let written = self.store.create(concrete, Some(spool.bytes(lane))).and_then(|mut sink| {
                spool.read(lane, |bytes| match self.watch.is_stopped() {
                    true => Err(TransferError::Interrupted),
                    false => sink.write(bytes),
                })?;
                sink.finish()
            });
            match written {
                Err(TransferError::Node { .. }) if tries < PART_TRIES_MAX && !self.watch.is_stopped() => {}
                written => return Ok(DonePart { concrete, content: written? }),
            }
        }
    }
}
