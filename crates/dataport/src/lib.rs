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
//! Source: Sailfish section 5 (batched retrieval of a key range from each chunkserver), section 4 (record append).

mod any_run;
mod append_lane;
mod body_reader;
mod client;
mod copy_run;
mod copy_stage_file;
mod data_of;
mod error;
mod fallback;
mod hosts;
mod placement;
mod receive;
mod receive_copy;
mod receive_file;
mod refused_body;
mod remote_chunks;
mod remote_run;
mod remote_scan;
mod routes;
mod scan_reader;
mod scan_source;
pub mod scan_wire;
mod send_file;
mod stage_files;
mod stage_name;
mod stage_reader;
pub mod stage_wire;
mod token;
mod user_client;
mod user_files;
pub mod wire;

pub use any_run::{AnyRun, CoveredCursor};
pub use client::{DataClient, Peer, Unanswered};
pub use copy_run::CopiedRun;
pub use data_of::DataOf;
pub use error::{CopyError, DataError, ScanError};
pub use fallback::{Fallback, Places};
pub use hosts::{chunk_hosts, replica_hosts};
pub use placement::{Candidate, ChunkPlacement, SpreadByIfile};
pub use remote_chunks::{RemoteChunks, RemoteChunksOptions};
pub use remote_run::RemoteRun;
pub use remote_scan::{RemoteScan, ScanOptions};
pub use routes::{COPIES_MAX, Chunkservers, router};
pub use stage_files::{StageFileHere, StageFiles};
pub use stage_name::{STAGE_FILE_NAME_BYTES_MAX, StageFileName};
pub use stage_reader::{
    AnyStageFile, CopyFailure, CopyProblem, StageFileCopy, StageFileOptions, StageReadError,
};
pub use stage_wire::StageFileRef;
pub use token::{JobTokens, Token};
pub use user_files::{Told, UserFileError, UserFiles};

/// The header that names the incarnation of the node that is meant.
pub const INCARNATION_HEADER: &str = "sailfish-incarnation";
/// The header that names the attempt for which runs are scanned, as `STAGE-TASK-ATTEMPT`: should a disk fail, its node can tell who has
/// read all. A scan without it is served all the same.
pub const ATTEMPT_HEADER: &str = "sailfish-attempt";
