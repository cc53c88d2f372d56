//! The interface that an appender needs from the owner of chunks.

use arena::{Charge, FrameBytes, SlabWriter};
use ids::{ChunkId, IfileIndex, Source};
use ifile::FrameHeader;

/// The hand-over from appender to chunkserver: a stamped frame. Cloning shares the payload.
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
    /// The chunk takes no more. Frames of this source below `standing_end` that were sent to it stand.
    Closed { standing_end: u64 },
    /// The frame is on its way; [`ChunkService::answers`] brings its answer. The sender keeps the frame until then.
    Sent,
}

/// The answer to a frame that was [`AppendReply::Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAnswer {
    pub ifile: IfileIndex,
    pub chunk: ChunkId,
    /// Sequence number of the frame.
    pub sequence: u64,
    /// None: acknowledged. Some: the chunk takes no more, with what stands as in [`AppendReply::Closed`].
    pub closed: Option<u64>,
}

/// Error of a chunk service.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The answer was lost; the frame may be in or not. Send it again.
    #[error("the answer of the chunkserver was lost")]
    AnswerLost,
    /// The chunkserver is gone with the chunk: the attempt fails, by nobody's fault, and a new one runs.
    #[error("the chunkserver that holds {0} is gone")]
    Gone(ChunkId),
    /// The attempt was told to stop.
    #[error("the attempt was told to stop")]
    Cancelled,
    /// The record can never fit the memory given.
    #[error(
        "a record of {record_bytes} bytes needs {needed_bytes} bytes of memory for frames, but the job has \
         {budget_bytes}: give more --memory"
    )]
    TooLarge { record_bytes: u64, needed_bytes: u64, budget_bytes: u64 },
    /// A spill to disk failed while room was made.
    #[error("cannot spill to {path}")]
    Spill { path: std::path::PathBuf, source: std::io::Error },
    /// The frame is not what its header says, or comes out of turn: the engine's own fault.
    #[error("a frame of {from} for {ifile} was refused: {why}")]
    Refused { from: Source, ifile: IfileIndex, why: &'static str },
    /// Frame after frame the chunks closed under the appender, or answers kept being lost.
    #[error("a frame of {from} for {ifile} was not acknowledged after {tries} tries")]
    GaveUp { from: Source, ifile: IfileIndex, tries: u32 },
}

/// The owner of chunks as appenders see it: the chunkserver in the same process, one behind HTTP, or a
/// faulty one in tests.
pub trait ChunkService: Sync {
    /// A slab to fill; waits until there is room.
    fn slab(&self) -> Result<SlabWriter, AppendError>;
    /// Budget for a frame too large for a slab; waits until there is room.
    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError>;
    /// Chooses an open chunk of the I-file, or opens one, and counts the source among its appenders.
    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError>;
    /// Takes a frame where the chunk has room for it, or says that the chunk takes no more. Repeating a frame is
    /// harmless. After a frame was answered `Closed`, by whatever way, the frames behind it that were sent to the
    /// same chunk are answered `Closed` too: else a repetition of the first would be taken for one that stands.
    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError>;
    /// Answers to frames that were sent, for each I-file in the order of sending. With `wait` it sends what is held
    /// back and waits for at least one answer while any is missing.
    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError>;
    /// The source sends no more to this chunk.
    fn release(&self, chunk: ChunkId, source: Source);
}
