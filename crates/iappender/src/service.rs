//! The interface that an appender needs from the owner of chunks.

use arena::{Charge, FrameBytes, SlabWriter};
use ids::{ChunkId, IfileIndex, Source};
use ifile::FrameHeader;

/// The hand-over from appender to chunkserver: a stamped frame. Clones share the payload.
#[derive(Clone, Debug)]
pub struct AppendFrame {
    pub header: FrameHeader,
    pub payload: FrameBytes,
}

/// Answer to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendReply {
    /// The frame is in the chunk (now, or since an earlier try).
    Acked,
    /// The chunk is closed. Frames of this source below `standing_end` that were sent to it stand.
    Closed { standing_end: u64 },
    /// The frame is in transit; [`ChunkService::answers`] returns its answer. The sender keeps the frame until then.
    Sent,
}

/// The answer to a frame that was [`AppendReply::Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAnswer {
    pub ifile: IfileIndex,
    pub chunk: ChunkId,
    /// Sequence number of the frame.
    pub sequence: u64,
    /// None: acknowledged. Some: the chunk is closed, with the standing frames as in [`AppendReply::Closed`].
    pub closed: Option<u64>,
}

/// Error of a chunk service.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The answer was lost; the frame may be in the chunk or not. Send it again.
    #[error("the answer of the chunkserver was lost")]
    AnswerLost,
    /// The chunkserver was lost with the chunk: the attempt fails, blameless, and a new one runs.
    #[error("the chunkserver with {0} was lost")]
    Gone(ChunkId),
    /// The attempt was cancelled.
    #[error("the attempt was cancelled")]
    Cancelled,
    /// The record can never fit the given memory.
    #[error(
        "a record of {record_bytes} bytes needs {needed_bytes} bytes of memory for frames, but the job has \
         {budget_bytes}: give more --memory"
    )]
    TooLarge { record_bytes: u64, needed_bytes: u64, budget_bytes: u64 },
    /// A spill to disk failed while memory was being freed.
    #[error("cannot spill to {path}")]
    Spill { path: std::path::PathBuf, source: std::io::Error },
    /// The frame contradicts its header, or is out of order: an error of the engine.
    #[error("a frame of {from} for {ifile} was refused: {why}")]
    Refused { from: Source, ifile: IfileIndex, why: &'static str },
    /// Chunk after chunk closed under the appender, or answers were lost repeatedly.
    #[error("a frame of {from} for {ifile} was not acknowledged after {tries} tries")]
    GaveUp { from: Source, ifile: IfileIndex, tries: u32 },
}

/// The owner of chunks for appenders: the chunkserver in the same process, one behind HTTP, or a faulty one in tests.
pub trait ChunkService: Sync {
    /// Returns a slab to fill; waits until there is room.
    fn slab(&self) -> Result<SlabWriter, AppendError>;
    /// Returns the budget for a frame larger than a slab; waits until there is room.
    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError>;
    /// Chooses an open chunk of the I-file, or opens one, and counts the source among its appenders.
    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError>;
    /// Appends a frame if the chunk has room for it, or reports that the chunk is closed. Repeating a frame is
    /// harmless. After a frame was answered `Closed`, in any way, the following frames to the same chunk are answered
    /// `Closed` too: otherwise a repetition of the first would be taken for a standing frame.
    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError>;
    /// Returns answers to sent frames, for each I-file in the order of sending. With `wait` it flushes buffered frames
    /// and waits for at least one answer while any is missing.
    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError>;
    /// Records that the source sends no more to this chunk.
    fn release(&self, chunk: ChunkId, source: Source);
}
