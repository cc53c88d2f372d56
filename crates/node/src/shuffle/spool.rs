//! The spool of a map attempt (replication `selective`; section 4.3 of the paper on the intermediate storage system,
//! ISS, adapted to a shuffle that pushes): every frame that the attempt appends to chunks of other nodes is also
//! written to one file of its own node. The file is read only when a chunk was lost.
//!
//! A spool is a stage file (`docs/formats/stage-file.md`), so it has checksums and other nodes can read it. Its payload
//! consists only of frames (`docs/formats/ifile.md`), one after the other, in the order of their numbers within each
//! I-file (`ifile::spool` reads it).

use crate::job_data::JobData;
use api::task::Spool;
use arena::{Charge, SlabWriter};
use dataport::StageFileName;
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{ChunkId, IfileIndex, NodeId, Source};
use ifile::FrameHeader;
use stagefile::{StageFileError, StageFileSummary, StageFileWriter, Syncing};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The chunks of an attempt that spools its frames. A spool that cannot be written is abandoned: the frames are only in
/// chunks, and the user's program must run again if they are lost.
pub(crate) struct SpooledChunks<'a> {
    inner: &'a dyn ChunkService,
    job: &'a JobData,
    source: Source,
    here: NodeId,
    name: StageFileName,
    /// None after a failure, when the file is removed.
    filling: Mutex<Option<SpoolWriter>>,
}

impl<'a> SpooledChunks<'a> {
    /// Begins a spool on the first disk that accepts it; None if no disk does.
    pub fn create(
        inner: &'a dyn ChunkService,
        job: &'a JobData,
        source: Source,
        here: NodeId,
    ) -> Option<Self> {
        let name = format!("spool-{:05}.{}.stage", source.map_task.0, source.attempt);
        let name = StageFileName::new(name)?;
        let create = |path| SpoolWriter::create(path).inspect_err(|error| given_up(job, source, error)).ok();
        let writer = job.stage_files.places(&name).into_iter().find_map(create)?;
        Some(Self { inner, job, source, here, name, filling: Mutex::new(Some(writer)) })
    }

    fn keep(&self, frame: &AppendFrame) {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = &mut *filling else { return };
        if let Err(error) = writer.keep(&frame.header, &frame.payload) {
            given_up(self.job, self.source, &error);
            *filling = None;
        }
    }

    /// Completes the file after all frames are in chunks: from now on it is found. Returns None if it was abandoned, or
    /// is empty.
    pub fn finish(self) -> Option<Spool> {
        let writer = self.filling.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let finished = writer.finish().inspect_err(|error| given_up(self.job, self.source, error));
        let (path, summary) = finished.ok()??;
        let spool = Spool {
            node: self.here,
            name: self.name.to_string(),
            attempt: self.source.attempt,
            bytes: summary.bytes,
            crc32c: summary.crc32c,
        };
        self.job.stage_files.register(self.name, path, summary);
        Some(spool)
    }
}

fn given_up(job: &JobData, source: Source, error: &impl std::error::Error) {
    tracing::warn!(job = %job.job, %source, %error, "cannot spool the output of a map task");
}

/// A spool that is being written. If it is dropped before its end, nothing of it is left.
struct SpoolWriter {
    path: PathBuf,
    file: StageFileWriter,
    /// Frames below these numbers are in it.
    next: BTreeMap<IfileIndex, u64>,
}

impl SpoolWriter {
    fn create(path: PathBuf) -> Result<Self, StageFileError> {
        let file = StageFileWriter::create(&path)?;
        Ok(Self { path, file, next: BTreeMap::new() })
    }

    /// Writes a frame. A frame that a chunk refused is sent to the next chunk, and one without an answer is sent again:
    /// both are here already.
    fn keep(&mut self, header: &FrameHeader, payload: &[u8]) -> std::io::Result<()> {
        let next = self.next.entry(header.ifile).or_default();
        if header.sequence < *next {
            return Ok(());
        }
        *next = header.sequence + 1;
        self.file.write_all(&header.encode())?;
        self.file.write_all(payload)
    }

    /// Completes the file; None if it is empty, in which case there is no file.
    fn finish(self) -> Result<Option<(PathBuf, StageFileSummary)>, StageFileError> {
        match self.file.written_bytes() {
            0 => Ok(None),
            _ => Ok(Some((self.path, self.file.finish(Syncing::NotSynced)?))),
        }
    }
}

impl ChunkService for SpooledChunks<'_> {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        self.inner.slab()
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        self.inner.oversize(bytes)
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        self.inner.bind(ifile, source, frame_bytes)
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        self.keep(&frame);
        self.inner.append(chunk, frame)
    }

    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        self.inner.answers(wait)
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        self.inner.release(chunk, source);
    }
}

#[cfg(test)]
mod tests {
    use super::SpoolWriter;
    use ids::{AttemptNumber, IfileIndex, Source, TaskIndex};
    use ifile::spool::{SpoolFrames, SpoolOf};
    use ifile::{FrameHeader, KeyShape};
    use stagefile::StageFileReader;

    /// Frames of one attempt, by turns of three I-files.
    const SPOOL: &[u8] = include_bytes!("../../../ifile/test_data/v2/spool.part");
    const SOURCE: Source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
    const OF: SpoolOf = SpoolOf { source: SOURCE, key_shape: KeyShape::Whole, payload_bytes_max: 1 << 20 };
    /// So often the frames, each time for three other I-files: more than one block of a stage file.
    const ROUNDS: u32 = 40;

    type Frame = (FrameHeader, Vec<u8>);

    fn frames() -> Vec<Frame> {
        let of_round = |round| {
            let moved = move |(header, payload): Frame| {
                (FrameHeader { ifile: IfileIndex(header.ifile.0 + 3 * round), ..header }, payload)
            };
            read(SPOOL).into_iter().map(moved)
        };
        (0..ROUNDS).flat_map(of_round).collect()
    }

    fn bytes_of(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|(header, payload)| [&header.encode()[..], payload].concat()).collect()
    }

    fn read(bytes: &[u8]) -> Vec<Frame> {
        let mut frames = SpoolFrames::new(OF, bytes);
        let mut shown = Vec::new();
        while let Some((header, payload)) = frames.next_frame().unwrap() {
            shown.push((header, payload.to_vec()));
        }
        shown
    }

    #[test]
    fn every_frame_comes_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool-00003.attempt-1.stage");
        let mut writer = SpoolWriter::create(path.clone()).unwrap();
        let frames = frames();
        for (index, (header, payload)) in frames.iter().enumerate() {
            writer.keep(header, payload).unwrap();
            // A frame that a chunk refused comes again, with all later ones.
            for (header, payload) in &frames[..=index] {
                writer.keep(header, payload).unwrap();
            }
        }
        let (finished, summary) = writer.finish().unwrap().unwrap();
        assert_eq!((finished, summary.bytes), (path.clone(), bytes_of(&frames).len() as u64));
        let mut reader = StageFileReader::open(&path, summary.payload(), 0, summary.bytes).unwrap();
        let mut bytes = Vec::new();
        loop {
            let piece = reader.fill().unwrap();
            let length = piece.len();
            bytes.extend_from_slice(piece);
            reader.consume(length);
            if length == 0 {
                break;
            }
        }
        assert_eq!(read(&bytes), frames);
    }

    #[test]
    fn empty_and_abandoned_spools_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool-00003.attempt-1.stage");
        assert!(SpoolWriter::create(path.clone()).unwrap().finish().unwrap().is_none());
        let (header, payload) = &frames()[0];
        SpoolWriter::create(path).unwrap().keep(header, payload).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
