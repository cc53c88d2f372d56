//! # What it does
//! Carries record data between nodes over HTTP: frames from appenders to chunks on other nodes, key ranges of sorted
//! runs from other nodes to merges, ranges of stage files to map tasks, and copies of whole runs and stage files; and
//! intermediate files of users, as their writers write them; outputs that programs are writing; and parts of stored files
//! to and from disks. Bytes are in `docs/protocol-data.md`.
//!
//! # Where it sits
//! iappender (frames) -> dataport -> chunkserver of another node; chunkserver of another node (blocks) -> dataport
//! -> imerger (cursors); stage file of this node or another one (blocks) -> dataport -> mapper (bytes); clients
//! (parts) -> dataport -> concretefile on a node, and back.
//!
//! # Invariants
//! The frames of an attempt for a node travel in one request at a time, which is repeated unchanged until it is
//! answered, so that no frame overtakes an earlier one and none counts twice. A scan returns complete data or an error:
//! every entry is numbered and checked, every run states its number of blocks and records, and the stream has an end
//! mark. If a stream breaks and the run has a replica, the reader continues there after the last returned record; a
//! reader of a stage file does the same, block by block. A copy is byte for byte the run or stage file, or nothing of
//! it is left. An upload of parts is synced as a whole, or nothing of it is left; no byte of a part is returned before
//! its block is verified against the content that the caller named, also when a node passes on a copy that it is still
//! making. An unknown job, chunk, run or stage file, and a node of another incarnation than requested, is an error,
//! never an empty answer. Both sides bound every length before they allocate memory for it.
//!
//! # Deliberately absent
//! No copy of a frame is kept after its answer; a lost server loses its chunks. The creator of the port and the client
//! provides the list of nodes, and decides whether a token is valid for a job.
//!
//! # How it is tested
//! Unit tests of every message with every bit flipped; in `tests/`, appenders over several chunkservers through a
//! proxy that cuts connections, and scans of random ranges, against a model; the decoders are fuzzed.
//!
//! `wire` has the bytes, `serve` the data port, `request` the requests to other ports, which also send frames and
//! copies.
//!
//! Source: Sailfish section 5 (batched retrieval of a key range from each chunkserver), section 4 (record append).

mod error;
mod hosts;
mod placement;
mod request;
mod serve;
pub mod wire;

pub use error::{CopyError, DataError, ScanError, with_causes};
pub use hosts::{chunk_hosts, replica_hosts};
pub use placement::{Candidate, ChunkPlacement, SpreadByIfile};
pub use request::any_run::{AnyRun, FailoverCursor};
pub use request::append::{RemoteChunks, RemoteChunksOptions};
pub use request::client::{DataClient, Passed, Peer, Unanswered};
pub use request::copy::run::CopiedRun;
pub use request::failover::{Fallback, Places};
pub use request::scan::run::RemoteRun;
pub use request::scan::{RemoteScan, ScanOptions};
pub use request::stage::{
    AnyStageFile, CopyFailure, CopyProblem, StageFileCopy, StageFileOptions, StageReadError,
};
pub use request::stored::parts_stream::PartStream;
pub use request::stored::upload::PartsUpload;
pub use serve::refused_body::pass_over_refused;
pub use serve::routes::{COPIES_MAX, router};
pub use serve::services::{
    Chunkservers, GrowingOutputService, IntermediateFileError, IntermediateFileService, StageFileHere,
    StageFileService, StatedContent,
};
pub use serve::stored::services::{
    OpenedPart, PartReceiver, PassError, PassedPart, StoredFileError, StoredFileService,
};
pub use wire::data_scope::DataScope;
pub use wire::growing::{GROWING_BYTES_MAX, GrowingPiece, GrowingRead};
pub use wire::stage::StageFileRef;
pub use wire::stage_name::{STAGE_FILE_NAME_BYTES_MAX, StageFileName};
pub use wire::stored::{PARTS_PER_REQUEST_MAX, PartRange};
pub use wire::token::{JobTokens, Token};
pub use wire::{ATTEMPT_HEADER, INCARNATION_HEADER};
