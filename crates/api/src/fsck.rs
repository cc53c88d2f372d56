//! Verification of the kept files of a job on the nodes: the work, the findings for each file, and the answer
//! (`sailfish fsck`).

use crate::DataSum;
use crate::task::{KeptRun, SourceAudit};
use ids::{IfileIndex, JobId, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Maximum number of damages of one file that are listed; further ones are counted.
pub const DAMAGES_PER_FILE_MAX: usize = 16;
/// Maximum number of damaged files, and of I-files with a failed proof, that an answer lists; further ones are counted.
pub const FINDINGS_MAX: usize = 1000;

/// Files of runs in the directories that one process kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckTask {
    /// The job that kept the files.
    pub source: JobId,
    /// The node that made the directories; the files in them are its own copies.
    pub made_by: NodeId,
    /// Directories by the disk index of a run; empty if there is no directory for an index.
    #[schema(value_type = Vec<String>)]
    pub dirs: Vec<PathBuf>,
    pub files: Vec<FileToCheck>,
}

/// A run, or a replica of a run, as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileToCheck {
    pub run: KeptRun,
    /// True if there is another copy, with which its bytes are compared.
    pub has_other_copy: bool,
}

/// Findings for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckedFile {
    pub run: RunId,
    /// Path of the file, or its expected path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Bytes of the file; 0 if it cannot be opened.
    pub bytes: u64,
    /// Number of blocks that were read and are intact.
    pub blocks: u64,
    /// Hash over all bytes, in hex; empty if the file could not be read, or if there is no other copy to compare.
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
    pub books: Vec<SourceAudit>,
}

/// A damage at one position of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The block, counted from 0; None if another part of the file is damaged, or the whole file.
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
    /// The job that has the I-files. It differs from the requested job if that job reduced kept I-files of this one.
    pub job: JobId,
    /// Number of runs of the I-files.
    pub runs: u64,
    /// Number of files of these runs besides the first of each.
    pub replicas: u64,
    /// Number of intact blocks in all files.
    pub blocks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Damaged files: the first [`FINDINGS_MAX`], by run.
    pub damaged: Vec<DamagedFile>,
    /// Number of all damaged files.
    pub damaged_count: u64,
    /// Number of these runs without an intact copy.
    pub lost_runs: u64,
    /// Number of I-files whose sums were compared.
    pub ifiles: u64,
    /// I-files whose intact runs do not hold the records that the maps committed; the first [`FINDINGS_MAX`].
    pub disagreeing: Vec<DisagreeingIfile>,
    /// Number of all I-files with a failed proof.
    pub disagreeing_count: u64,
}

impl FsckReport {
    /// Returns whether nothing is wrong.
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
    /// True if it is a copy of a run that another node made.
    pub is_replica: bool,
    /// Name of the node that has it; None on one machine, and if no node has it.
    pub node: Option<String>,
    /// Path of the file; None if no node has it.
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    pub damages: Vec<Damage>,
    /// Number of all damages of the file.
    pub damage_count: u64,
    /// Another, intact copy of the run.
    pub intact: Option<IntactCopy>,
}

/// Location of an intact copy of a run.
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
    /// Sum of the records that the winning map attempts committed.
    pub committed: DataSum,
    /// Sum of the records of these attempts in intact runs.
    pub held: DataSum,
    /// The first chunk and map whose sums differ, in one sentence.
    pub first: String,
}

/// A client's request for a check, or for the progress of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckRequest {
    /// Name of a running check. Without it a check begins, unless a check of this job is already under way.
    #[serde(default)]
    pub check: Option<String>,
}

/// Progress of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckAnswer {
    /// Name of the check, for the next poll. The server abandons a check that no client polls for a minute.
    pub check: String,
    /// Bytes of the files that were read so far.
    pub read_bytes: u64,
    /// Bytes of all files, according to the store.
    pub total_bytes: u64,
    /// The report, after all files are read.
    pub report: Option<FsckReport>,
}

/// A node's report on the bytes and findings of a check so far. A finding that is reported twice counts once.
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
    /// Findings since the last report of the node.
    #[serde(default)]
    pub files: Vec<CheckedFile>,
    /// The reason why the node cannot continue.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The answer to a node's findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckAnswer {
    /// True if the node must continue; false if no client waits for the result.
    pub goes_on: bool,
}
