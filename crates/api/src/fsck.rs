//! Verification of the kept files of a job on the nodes: the work, the findings for each file, and the answer
//! (`sailfish fsck`).

use crate::DataSum;
use crate::task::{KeptRun, SourceBooks};
use ids::{IfileIndex, JobId, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Most damages of one file that are told; further ones are counted.
pub const DAMAGES_PER_FILE_MAX: usize = 16;
/// Most damaged files, and most I-files whose proof does not agree, that an answer lists; further ones are counted.
pub const FINDINGS_MAX: usize = 1000;

/// Files of runs that lie in the directories of one process that kept them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckTask {
    /// The job that kept them.
    pub source: JobId,
    /// The node that made the directories; the files in them are copies of its own.
    pub made_by: NodeId,
    /// A run's disk index is a position in this list; empty where there is no directory.
    #[schema(value_type = Vec<String>)]
    pub dirs: Vec<PathBuf>,
    pub files: Vec<FileToCheck>,
}

/// A run, or a replica of one, as the store remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileToCheck {
    pub run: KeptRun,
    /// There is another copy, with which its bytes are compared.
    pub has_other_copy: bool,
}

/// Findings for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckedFile {
    pub run: RunId,
    /// Path of the file, or the path at which it should lie.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Bytes of the file; 0 if it cannot be opened.
    pub bytes: u64,
    /// Blocks that were read and are whole.
    pub blocks: u64,
    /// Hash over all bytes, in hex; empty if nobody compares it, or if the file could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_hash: String,
    /// Damages of the file: the first [`DAMAGES_PER_FILE_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damages: Vec<Damage>,
    /// Number of all damages.
    #[serde(default)]
    pub damage_count: u64,
    /// Sums of its records by source and chunk; empty if the file is damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub books: Vec<SourceBooks>,
}

/// Damage at one place of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The block, counted from 0; None where it is another part of the file, or the whole of it.
    pub block: Option<u64>,
    /// Offset of the damage in the file; None if it is the whole file.
    pub offset_bytes: Option<u64>,
    /// Reason, in one sentence.
    pub why: String,
}

/// The answer: the kept files of a job, and the damage to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckReport {
    /// The job that has the I-files. It is not the job asked for if that one reduced the I-files of this one again.
    pub job: JobId,
    /// Runs that the I-files consist of.
    pub runs: u64,
    /// Files of these runs besides the first of each.
    pub replicas: u64,
    /// Whole blocks of all files.
    pub blocks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Damaged files: the first [`FINDINGS_MAX`], by run.
    pub damaged: Vec<DamagedFile>,
    /// Number of all damaged files.
    pub damaged_count: u64,
    /// Runs among them of which there is no intact copy.
    pub lost_runs: u64,
    /// I-files whose sums were compared.
    pub ifiles: u64,
    /// I-files whose intact runs do not hold the records that the maps committed; the first [`FINDINGS_MAX`].
    pub disagreeing: Vec<DisagreeingIfile>,
    /// Number of all such I-files.
    pub disagreeing_count: u64,
}

impl FsckReport {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.damaged_count == 0 && self.disagreeing_count == 0
    }
}

/// A file of a run that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DamagedFile {
    pub run: RunId,
    pub ifile: IfileIndex,
    /// Whether it is a copy of a run that another node made.
    pub is_replica: bool,
    /// Name of the node that has it; None on one machine, and where no node has it.
    pub node: Option<String>,
    /// Path of the file; None if no node has it.
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    pub damages: Vec<Damage>,
    /// Number of all damages of the file.
    pub damage_count: u64,
    /// Other copy of the run that is whole.
    pub intact: Option<IntactCopy>,
}

/// Place of a whole copy of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntactCopy {
    pub node: Option<String>,
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// An I-file whose intact runs do not hold the records that the maps committed to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DisagreeingIfile {
    pub ifile: IfileIndex,
    /// Sum of the records that the maps that count committed.
    pub committed: DataSum,
    /// Sum of the records of these maps in intact runs.
    pub held: DataSum,
    /// The first chunk and map that do not agree, in one sentence.
    pub first: String,
}

/// A client asks for a check, or how far one is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckRequest {
    /// The name of a check that goes on; without it one begins, unless one of this job goes on already.
    #[serde(default)]
    pub check: Option<String>,
}

/// Progress of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckAnswer {
    /// Name of the check, to ask again with. The server gives up a check that nobody asks about for a minute.
    pub check: String,
    /// Bytes of the files that were read so far.
    pub read_bytes: u64,
    /// Bytes of all files, as the store remembers them.
    pub total_bytes: u64,
    /// The report, once all files are read.
    pub report: Option<FsckReport>,
}

/// A node tells the bytes and findings of a check so far. A finding that is told twice counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckNews {
    pub incarnation: String,
    /// The name of the check.
    pub check: String,
    /// Node that made the directories, as in the order.
    pub made_by: NodeId,
    /// Bytes of the files of the order that were read so far.
    pub read_bytes: u64,
    /// Findings since the node told last.
    #[serde(default)]
    pub files: Vec<CheckedFile>,
    /// Why it cannot go on.
    #[serde(default)]
    pub problem: Option<String>,
}

/// Whether a node goes on with a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckAnswer {
    /// False if nobody wants to hear more.
    pub goes_on: bool,
}
