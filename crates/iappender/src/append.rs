//! Filling, stamping and appending of frames.

use crate::service::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use crate::{APPEND_TRIES_MAX, REBINDS_MAX};
use api::{DataSum, SourceCommit};
use arena::{FrameBytes, SlabWriter};
use faults::{CrashPoint, crash_point};
use ids::{ChunkId, IfileIndex, Source};
use ifile::record::{self, RecordHeader, record_hash};
use ifile::{FrameHeader, KeyShape};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Records are summed once this many bytes of a frame are new and still in a core's first-level cache: one record at a
/// time, a processor waits for the bytes it has just written; many in one loop overlap.
const STAMP_STEP_BYTES: usize = 4 << 10;

/// The slabs that a worker fills, one per I-file. They outlive a map task: the worker's next task continues in their
/// rest, so that slabs are nearly full when handed over.
#[derive(Default)]
pub struct WorkerSlabs {
    slabs: Vec<Option<SlabWriter>>,
}

impl WorkerSlabs {
    /// Drops all slabs; sealed frames in them stay.
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
#[derive(Default)]
struct Stream {
    /// Sum of the first `stamped_bytes` of the frame being filled.
    sum: DataSum,
    /// CRC32C of the same.
    crc32c: u32,
    stamped_bytes: usize,
    next_sequence: u64,
    chunk: Option<ChunkId>,
    /// Unanswered frames sent to `chunk`, in order.
    sent: VecDeque<AppendFrame>,
    /// Frames for the next chunk, in order. Frames that a chunk refused wait here until every frame sent to that chunk
    /// is answered: the next chunk must also get them in order.
    waiting: VecDeque<AppendFrame>,
    refused: Vec<AppendFrame>,
    /// Number of consecutive chunks that refused the first frame of `waiting`.
    rebinds: u32,
}

impl Stream {
    /// Sums the new bytes of the frame being filled.
    #[inline(never)]
    fn stamp(&mut self, shape: KeyShape, pending: &[u8]) {
        let fresh = &pending[self.stamped_bytes..];
        let mut offset = 0;
        while offset < fresh.len() {
            let record =
                record::decode(shape, &fresh[offset..]).expect("the record was written by this appender");
            self.sum.add_record(record.encoded.len() as u64, record_hash(record.encoded));
            offset += record.encoded.len();
        }
        self.crc32c = crc32c::crc32c_append(self.crc32c, fresh);
        self.stamped_bytes = pending.len();
    }
}

/// The appender of one map attempt.
pub struct IAppender<'a> {
    service: &'a dyn ChunkService,
    slabs: &'a mut WorkerSlabs,
    source: Source,
    key_shape: KeyShape,
    streams: Vec<Stream>,
    /// The I-files to append to, if not all; records for the others are only counted.
    only: Option<BTreeSet<IfileIndex>>,
    withheld: BTreeMap<IfileIndex, DataSum>,
    commits: BTreeMap<(IfileIndex, ChunkId), DataSum>,
    finished: bool,
}

/// Result of an appender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Per (I-file, chunk), in that order.
    pub commits: Vec<SourceCommit>,
    /// Sums of the records that were not appended ([`IAppender::only_to`]), per I-file, in order.
    pub withheld: Vec<(IfileIndex, DataSum)>,
}

impl<'a> IAppender<'a> {
    /// Makes an appender for `ifile_count` I-files.
    pub fn new(
        service: &'a dyn ChunkService,
        slabs: &'a mut WorkerSlabs,
        source: Source,
        key_shape: KeyShape,
        ifile_count: u32,
    ) -> Self {
        slabs.slabs.resize_with(ifile_count as usize, || None);
        let streams = (0..ifile_count).map(|_| Stream::default()).collect();
        Self {
            service,
            slabs,
            source,
            key_shape,
            streams,
            only: None,
            withheld: BTreeMap::new(),
            commits: BTreeMap::new(),
            finished: false,
        }
    }

    /// Appends to these I-files alone; records for others are counted as if appended.
    pub fn only_to(mut self, ifiles: impl IntoIterator<Item = IfileIndex>) -> Self {
        self.only = Some(ifiles.into_iter().collect());
        self
    }

    /// Appends one record. The first `partition_key_bytes` of the key are its partition key; their number is stored
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
        self.append_behind(ifile, header, key, value)
    }

    /// Appends a separated record ([`ifile::record`]).
    #[cold]
    pub fn append_separated(
        &mut self,
        ifile: IfileIndex,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
    ) -> Result<(), AppendError> {
        let header = RecordHeader::separated(self.key_shape, key.len(), value.len(), partition_key_bytes);
        self.append_behind(ifile, header, key, value)
    }

    #[inline]
    fn append_behind(
        &mut self,
        ifile: IfileIndex,
        header: RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), AppendError> {
        let encoded_bytes = header.len() + key.len() + value.len();
        let index = ifile.0 as usize;
        let fits = self.slabs.slabs[index].as_ref().is_some_and(|slab| slab.room_bytes() >= encoded_bytes);
        if !fits && !self.make_room(ifile, encoded_bytes)? {
            return self.append_oversize(ifile, header, key, value);
        }
        let Some(slab) = self.slabs.slabs[index].as_mut() else {
            unreachable!("make_room put a slab here");
        };
        slab.write_record(header.padded(), header.len(), key, value);
        if slab.pending_bytes() - self.streams[index].stamped_bytes >= STAMP_STEP_BYTES {
            self.streams[index].stamp(self.key_shape, slab.pending());
        }
        Ok(())
    }

    /// Sends the frame being filled and takes a new slab. False if the record is larger than a slab.
    #[cold]
    fn make_room(&mut self, ifile: IfileIndex, encoded_bytes: usize) -> Result<bool, AppendError> {
        self.send_pending(ifile)?;
        let index = ifile.0 as usize;
        // The old slab is dropped first: a worker never holds two slabs of an I-file while it waits for memory.
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
        let encoded_bytes = header.len() + key.len() + value.len();
        let charge = self.service.oversize(encoded_bytes as u64)?;
        let mut payload = Vec::with_capacity(encoded_bytes);
        payload.extend_from_slice(&header.padded()[..header.len()]);
        payload.extend_from_slice(key);
        payload.extend_from_slice(value);
        let stream = &mut self.streams[ifile.0 as usize];
        stream.stamp(self.key_shape, &payload);
        self.send(ifile, FrameBytes::on_heap(payload, Some(charge)))
    }

    fn send_pending(&mut self, ifile: IfileIndex) -> Result<(), AppendError> {
        let index = ifile.0 as usize;
        match self.slabs.slabs[index].as_mut() {
            Some(slab) if slab.pending_bytes() > 0 => {
                self.streams[index].stamp(self.key_shape, slab.pending());
                let payload = slab.seal();
                self.send(ifile, payload)
            }
            _ => Ok(()),
        }
    }

    /// Stamps the frame and sends it to a chunk.
    fn send(&mut self, ifile: IfileIndex, payload: FrameBytes) -> Result<(), AppendError> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&ifile)) {
            let stream = &mut self.streams[ifile.0 as usize];
            self.withheld.entry(ifile).or_default().add(&std::mem::take(&mut stream.sum));
            (stream.crc32c, stream.stamped_bytes) = (0, 0);
            return Ok(());
        }
        self.take_answers(false)?;
        while !self.streams[ifile.0 as usize].refused.is_empty() {
            self.take_answers(true)?;
        }
        let stream = &mut self.streams[ifile.0 as usize];
        let header = FrameHeader {
            ifile,
            source: self.source,
            sequence: stream.next_sequence,
            key_shape: self.key_shape,
            sum: std::mem::take(&mut stream.sum),
            payload_crc32c: std::mem::take(&mut stream.crc32c),
        };
        stream.stamped_bytes = 0;
        assert_eq!(header.sum.bytes, payload.len() as u64, "the sum covers the payload");
        stream.next_sequence += 1;
        stream.waiting.push_back(AppendFrame { header, payload });
        self.send_waiting(ifile)
    }

    /// Sends the waiting frames, to one chunk after another if chunks close.
    fn send_waiting(&mut self, ifile: IfileIndex) -> Result<(), AppendError> {
        let index = ifile.0 as usize;
        while let Some(frame) = self.streams[index].waiting.pop_front() {
            if self.streams[index].rebinds == REBINDS_MAX {
                return Err(AppendError::GaveUp { from: self.source, ifile, tries: REBINDS_MAX });
            }
            let chunk = self.bound_chunk(&frame)?;
            match self.deliver(chunk, &frame)? {
                AppendReply::Acked => self.stands(chunk, &frame),
                AppendReply::Sent => self.streams[index].sent.push_back(frame),
                AppendReply::Closed { standing_end } => {
                    while !self.streams[index].sent.is_empty() {
                        self.take_answers(true)?;
                    }
                    self.closed(chunk, frame, standing_end);
                    self.rebind(ifile);
                }
            }
        }
        Ok(())
    }

    fn stands(&mut self, chunk: ChunkId, frame: &AppendFrame) {
        let ifile = frame.header.ifile;
        self.commits.entry((ifile, chunk)).or_default().add(&frame.header.sum);
        self.streams[ifile.0 as usize].rebinds = 0;
    }

    /// Processes the fence: the chunk reports the standing frames. Only the others go to another chunk.
    fn closed(&mut self, chunk: ChunkId, frame: AppendFrame, standing_end: u64) {
        if frame.header.sequence < standing_end {
            self.stands(chunk, &frame);
        } else {
            self.streams[frame.header.ifile.0 as usize].refused.push(frame);
        }
    }

    /// Leaves a chunk that closed. Its refused frames are next.
    fn rebind(&mut self, ifile: IfileIndex) {
        let stream = &mut self.streams[ifile.0 as usize];
        stream.rebinds += 1;
        for frame in stream.refused.drain(..) {
            let before =
                stream.waiting.partition_point(|other| other.header.sequence < frame.header.sequence);
            stream.waiting.insert(before, frame);
        }
        if let Some(chunk) = stream.chunk.take() {
            self.service.release(chunk, self.source);
        }
    }

    /// Processes the answers to sent frames.
    fn take_answers(&mut self, wait: bool) -> Result<(), AppendError> {
        let answers = self.service.answers(wait)?;
        assert!(!wait || !answers.is_empty(), "a chunk service that owes answers gives one or fails");
        answers.into_iter().try_for_each(|answer| self.take_answer(answer))
    }

    fn take_answer(&mut self, answer: AppendAnswer) -> Result<(), AppendError> {
        let AppendAnswer { ifile, chunk, sequence, closed } = answer;
        let out_of_turn =
            AppendError::Refused { from: self.source, ifile, why: "its answer came out of turn" };
        let Some(stream) = self.streams.get_mut(ifile.0 as usize) else { return Err(out_of_turn) };
        if stream.chunk != Some(chunk) {
            return Err(out_of_turn);
        }
        match stream.sent.pop_front() {
            Some(frame) if frame.header.sequence == sequence => match closed {
                None => self.stands(chunk, &frame),
                Some(standing_end) => self.closed(chunk, frame, standing_end),
            },
            _ => return Err(out_of_turn),
        }
        let stream = &self.streams[ifile.0 as usize];
        if stream.sent.is_empty() && !stream.refused.is_empty() {
            self.rebind(ifile);
        }
        Ok(())
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

    /// Sends the rest and returns the sums of the appended frames.
    pub fn finish(mut self) -> Result<Appended, AppendError> {
        for index in 0..self.streams.len() {
            self.send_pending(IfileIndex(index as u32))?;
        }
        self.await_answers()?;
        self.release_all();
        self.finished = true;
        let (commits, withheld) = (std::mem::take(&mut self.commits), std::mem::take(&mut self.withheld));
        let commits = commits.into_iter().map(|((ifile, chunk), sum)| SourceCommit { ifile, chunk, sum });
        Ok(Appended { commits: commits.collect(), withheld: withheld.into_iter().collect() })
    }

    /// Waits until every frame is in a chunk.
    fn await_answers(&mut self) -> Result<(), AppendError> {
        loop {
            for index in 0..self.streams.len() {
                self.send_waiting(IfileIndex(index as u32))?;
            }
            if self.streams.iter().all(|stream| stream.sent.is_empty() && stream.waiting.is_empty()) {
                return Ok(());
            }
            self.take_answers(true)?;
        }
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
    /// A failed attempt leaves its acknowledged frames where they are (readers drop them, as the attempt never wins),
    /// but keeps no binding open and no partial frame in a shared slab.
    fn drop(&mut self) {
        if !self.finished {
            self.release_all();
            self.slabs.discard_pending();
        }
    }
}
