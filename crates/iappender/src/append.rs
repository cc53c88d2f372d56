//! Filling, stamping and appending frames.

use crate::service::{AppendError, AppendFrame, AppendReply, ChunkService, Reservation};
use crate::{APPEND_TRIES_MAX, REBINDS_MAX};
use api::{DataSum, SourceCommit};
use arena::{FrameBytes, SlabWriter};
use faults::{CrashPoint, crash_point};
use ids::{ChunkId, IfileIndex, Source};
use ifile::record::{RecordHeader, record_hash};
use ifile::{FrameHeader, KeyShape};
use std::collections::BTreeMap;

/// The slabs a worker is filling, one per I-file. They outlive a map task: the worker's next task goes on in
/// what is left of them, so that slabs are handed over nearly full.
#[derive(Default)]
pub struct WorkerSlabs {
    slabs: Vec<Option<SlabWriter>>,
}

impl WorkerSlabs {
    /// Lets go of all slabs; frames already sealed in them stay.
    pub fn clear(&mut self) {
        self.slabs.clear();
    }

    fn discard_pending(&mut self) {
        for slab in self.slabs.iter_mut().flatten() {
            slab.discard();
        }
    }
}

/// The state of one I-file in an appender.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// Of the records in the frame being filled.
    sum: DataSum,
    next_sequence: u64,
    chunk: Option<ChunkId>,
}

/// The appender of one map attempt.
pub struct IAppender<'a> {
    service: &'a dyn ChunkService,
    slabs: &'a mut WorkerSlabs,
    source: Source,
    key_shape: KeyShape,
    streams: Vec<Stream>,
    commits: BTreeMap<(IfileIndex, ChunkId), DataSum>,
    finished: bool,
}

impl<'a> IAppender<'a> {
    /// An appender for `ifile_count` I-files.
    pub fn new(
        service: &'a dyn ChunkService,
        slabs: &'a mut WorkerSlabs,
        source: Source,
        key_shape: KeyShape,
        ifile_count: u32,
    ) -> Self {
        slabs.slabs.resize_with(ifile_count as usize, || None);
        let streams = vec![Stream::default(); ifile_count as usize];
        Self { service, slabs, source, key_shape, streams, commits: BTreeMap::new(), finished: false }
    }

    /// Appends one record. The first `partition_key_bytes` of the key are its partition key; they are stored
    /// only for [`KeyShape::Prefix`].
    #[inline]
    pub fn append(
        &mut self,
        ifile: IfileIndex,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
    ) -> Result<(), AppendError> {
        let header = RecordHeader::new(self.key_shape, key.len(), value.len(), partition_key_bytes);
        let encoded_bytes = header.bytes().len() + key.len() + value.len();
        let index = ifile.0 as usize;
        let fits = self.slabs.slabs[index].as_ref().is_some_and(|slab| slab.room_bytes() >= encoded_bytes);
        if !fits && !self.make_room(ifile, encoded_bytes)? {
            return self.append_oversize(ifile, header, key, value);
        }
        let Some(slab) = self.slabs.slabs[index].as_mut() else {
            unreachable!("make_room put a slab here");
        };
        let hash = record_hash(slab.write_record(header.bytes(), key, value));
        self.streams[index].sum.add_record(encoded_bytes as u64, hash);
        Ok(())
    }

    /// Sends the frame being filled and takes a fresh slab. False when the record is larger than a slab.
    #[cold]
    fn make_room(&mut self, ifile: IfileIndex, encoded_bytes: usize) -> Result<bool, AppendError> {
        self.send_pending(ifile)?;
        let index = ifile.0 as usize;
        // The old slab goes first: a worker never holds two slabs of an I-file while it waits for memory.
        let replaced = self.slabs.slabs[index].take();
        let slab = match replaced {
            Some(slab) if slab.room_bytes() >= encoded_bytes => slab,
            other => {
                drop(other);
                self.service.slab()?
            }
        };
        let fits = slab.room_bytes() >= encoded_bytes;
        self.slabs.slabs[index] = Some(slab);
        Ok(fits)
    }

    #[cold]
    fn append_oversize(
        &mut self,
        ifile: IfileIndex,
        header: RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), AppendError> {
        let encoded_bytes = header.bytes().len() + key.len() + value.len();
        let charge = self.service.oversize(encoded_bytes as u64)?;
        let mut payload = Vec::with_capacity(encoded_bytes);
        payload.extend_from_slice(header.bytes());
        payload.extend_from_slice(key);
        payload.extend_from_slice(value);
        self.streams[ifile.0 as usize].sum.add_record(encoded_bytes as u64, record_hash(&payload));
        self.send(ifile, FrameBytes::on_heap(payload, Some(charge)))
    }

    fn send_pending(&mut self, ifile: IfileIndex) -> Result<(), AppendError> {
        match self.slabs.slabs[ifile.0 as usize].as_mut() {
            Some(slab) if slab.pending_bytes() > 0 => {
                let payload = slab.seal();
                self.send(ifile, payload)
            }
            _ => Ok(()),
        }
    }

    /// Stamps the frame and brings it into a chunk, whatever answers get lost on the way.
    fn send(&mut self, ifile: IfileIndex, payload: FrameBytes) -> Result<(), AppendError> {
        let stream = &mut self.streams[ifile.0 as usize];
        let header = FrameHeader {
            ifile,
            source: self.source,
            sequence: stream.next_sequence,
            key_shape: self.key_shape,
            sum: std::mem::take(&mut stream.sum),
            payload_crc32c: crc32c::crc32c(&payload),
        };
        assert_eq!(header.sum.bytes, payload.len() as u64, "the sum covers the payload");
        stream.next_sequence += 1;
        let frame = AppendFrame { header, payload };
        for _ in 0..REBINDS_MAX {
            let chunk = self.bound_chunk(&frame)?;
            match self.deliver(chunk, &frame)? {
                AppendReply::Acked => {
                    self.commits.entry((ifile, chunk)).or_default().add(&header.sum);
                    return Ok(());
                }
                // The fence: the chunk says what stands. Only what does not stand goes elsewhere.
                AppendReply::Closed { standing_end } => {
                    self.service.release(chunk, self.source);
                    self.streams[ifile.0 as usize].chunk = None;
                    if header.sequence < standing_end {
                        self.commits.entry((ifile, chunk)).or_default().add(&header.sum);
                        return Ok(());
                    }
                }
            }
        }
        Err(AppendError::GaveUp { from: self.source, ifile, tries: REBINDS_MAX })
    }

    fn bound_chunk(&mut self, frame: &AppendFrame) -> Result<ChunkId, AppendError> {
        let ifile = frame.header.ifile;
        let index = ifile.0 as usize;
        if let Some(chunk) = self.streams[index].chunk {
            return Ok(chunk);
        }
        for _ in 0..APPEND_TRIES_MAX {
            match self.service.bind(ifile, self.source, frame.header.sum.bytes) {
                Ok(chunk) => {
                    self.streams[index].chunk = Some(chunk);
                    return Ok(chunk);
                }
                Err(AppendError::AnswerLost) => {}
                Err(error) => return Err(error),
            }
        }
        Err(AppendError::GaveUp { from: self.source, ifile, tries: APPEND_TRIES_MAX })
    }

    fn deliver(&self, chunk: ChunkId, frame: &AppendFrame) -> Result<AppendReply, AppendError> {
        for _ in 0..APPEND_TRIES_MAX {
            match self.service.reserve(chunk, self.source, frame.header.sum.bytes) {
                Ok(Reservation::Granted) => {}
                Ok(Reservation::Closed { standing_end }) => return Ok(AppendReply::Closed { standing_end }),
                Err(AppendError::AnswerLost) => continue,
                Err(error) => return Err(error),
            }
            crash_point(CrashPoint::FrameBeforeHandOver);
            match self.service.append(chunk, frame.clone()) {
                Ok(reply) => {
                    crash_point(CrashPoint::FrameAfterHandOver);
                    return Ok(reply);
                }
                Err(AppendError::AnswerLost) => {}
                Err(error) => return Err(error),
            }
        }
        Err(AppendError::GaveUp { from: self.source, ifile: frame.header.ifile, tries: APPEND_TRIES_MAX })
    }

    /// Sends what is left and gives back what was appended, per (I-file, chunk), in that order.
    pub fn finish(mut self) -> Result<Vec<SourceCommit>, AppendError> {
        for index in 0..self.streams.len() {
            self.send_pending(IfileIndex(index as u32))?;
        }
        self.release_all();
        self.finished = true;
        let commits = std::mem::take(&mut self.commits);
        Ok(commits.into_iter().map(|((ifile, chunk), sum)| SourceCommit { ifile, chunk, sum }).collect())
    }

    fn release_all(&mut self) {
        for stream in &mut self.streams {
            if let Some(chunk) = stream.chunk.take() {
                self.service.release(chunk, self.source);
            }
        }
    }
}

impl Drop for IAppender<'_> {
    /// An attempt that failed leaves its acknowledged frames where they are (readers drop them, as the
    /// attempt never wins), but keeps no promise open and no half frame in a shared slab.
    fn drop(&mut self) {
        if !self.finished {
            self.release_all();
            self.slabs.discard_pending();
        }
    }
}
