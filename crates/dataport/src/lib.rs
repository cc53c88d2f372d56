//! # What it does
//! Carries record data between nodes over HTTP: frames from appenders to chunks on other nodes, key ranges of sorted
//! runs from other nodes to merges, ranges of stage files to map tasks, and copies of whole runs and stage files; and
//! intermediate files of users, as their writers write them. Bytes are in `docs/protocol-data.md`.
//!
//! # Where it sits
//! iappender (frames) -> dataport -> chunkserver of another node; chunkserver of another node (blocks) -> dataport
//! -> imerger (cursors); stage file of this node or another one (blocks) -> dataport -> mapper (bytes).
//!
//! # Invariants
//! Of the frames of one attempt to one node, one request is under way at a time and is repeated as it was until it
//! is answered, so that no frame overtakes an earlier one and none counts twice. What a scan gives is whole or an
//! error: every entry is numbered and checked, every run says how many blocks and records it had, and the stream
//! has an end mark. Where a stream breaks and the run has a copy, the reader goes on there behind the last record that
//! it gave out; so does the reader of a stage file, block by block. A copy is byte for byte the run or stage file, or nothing of it is left. An unknown job, chunk, run or stage file, and a node that is another incarnation than the one meant, is an
//! error, never an empty answer. Every length is bounded before memory is made for it, on both sides.
//!
//! # Deliberately absent
//! No copy of a frame is kept beyond its answer; a server that went away takes its chunks with it. Which nodes
//! there are, and whether a token is right for a job, is said by whoever makes the port and the client.
//!
//! # How it is tested
//! Unit tests of every message with every bit flipped; in `tests/`, appenders over several chunkservers through a
//! proxy that cuts connections, and scans of random ranges, against a model; the decoders are fuzzed.
//!
//! `wire` has the bytes, `serve` the data port, `request` what is asked of other ports: more than to fetch, since frames and copies
//! are sent.
//!
//! Source: Sailfish section 5 (batched retrieval of a key range from each chunkserver), section 4 (record append).

mod error;
mod hosts;
mod placement;
mod request;
mod serve;
pub mod wire;

pub use error::{CopyError, DataError, ScanError};
pub use hosts::{chunk_hosts, replica_hosts};
pub use placement::{Candidate, ChunkPlacement, SpreadByIfile};
pub use request::any_run::{AnyRun, FailoverCursor};
pub use request::append::{RemoteChunks, RemoteChunksOptions};
pub use request::client::{DataClient, Peer, Unanswered};
pub use request::copy::run::CopiedRun;
pub use request::failover::{Fallback, Places};
pub use request::scan::run::RemoteRun;
pub use request::scan::{RemoteScan, ScanOptions};
pub use request::stage::{
    AnyStageFile, CopyFailure, CopyProblem, StageFileCopy, StageFileOptions, StageReadError,
};
pub use serve::routes::{COPIES_MAX, router};
pub use serve::services::{Chunkservers, StageFileHere, StageFiles, Told, UserFileError, UserFiles};
pub use wire::data_scope::DataScope;
pub use wire::stage::StageFileRef;
pub use wire::stage_name::{STAGE_FILE_NAME_BYTES_MAX, StageFileName};
pub use wire::token::{JobTokens, Token};
pub use wire::{ATTEMPT_HEADER, INCARNATION_HEADER};
