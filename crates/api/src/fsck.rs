//! What a job kept, verified where it lies: the work, what is found of each file, and the answer (`sailfish fsck`).

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

/// What was found of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckedFile {
    pub run: RunId,
    /// Where it lies, or should.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Of the file; 0 where it cannot be opened.
    pub bytes: u64,
    /// Blocks that were read and are whole.
    pub blocks: u64,
    /// Over all bytes, in hex; empty where nobody compares it, or where it could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_hash: String,
    /// The first [`DAMAGES_PER_FILE_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damages: Vec<Damage>,
    /// All of them.
    #[serde(default)]
    pub damage_count: u64,
    /// What its records add up to, by source and chunk; empty where it is damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub books: Vec<SourceBooks>,
}

/// What is wrong at one place of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The block, counted from 0; None where it is another part of the file, or the whole of it.
    pub block: Option<u64>,
    /// In the file; None where it is the whole file.
    pub offset_bytes: Option<u64>,
    /// One sentence.
    pub why: String,
}

/// The answer: what a job kept, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckReport {
    /// The job that has the I-files: another one than was asked for where that one reduced them again.
    pub job: JobId,
    /// Runs that the I-files consist of.
    pub runs: u64,
    /// Files of these besides the first of each.
    pub replicas: u64,
    /// Blocks that are whole, of all files.
    pub blocks: u64,
    /// Of all files.
    pub bytes: u64,
    /// The first [`FINDINGS_MAX`], by run.
    pub damaged: Vec<DamagedFile>,
    /// All of them.
    pub damaged_count: u64,
    /// Of these, runs of which there is no intact copy.
    pub lost_runs: u64,
    /// I-files whose sums were compared.
    pub ifiles: u64,
    /// Those whose intact runs do not hold what the maps committed; the first [`FINDINGS_MAX`].
    pub disagreeing: Vec<DisagreeingIfile>,
    /// All of them.
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
    /// A copy of a run that another node made.
    pub is_replica: bool,
    /// Name of the node that has it; None on one machine, and where no node has it.
    pub node: Option<String>,
    /// None where no node has it.
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    pub damages: Vec<Damage>,
    /// All of them.
    pub damage_count: u64,
    /// Another copy of the run that is whole.
    pub intact: Option<IntactCopy>,
}

/// Where a run is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntactCopy {
    pub node: Option<String>,
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// An I-file of which the intact runs do not hold what the maps committed to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DisagreeingIfile {
    pub ifile: IfileIndex,
    /// By the maps that count.
    pub committed: DataSum,
    /// In intact runs, of these maps.
    pub held: DataSum,
    /// The first chunk and map of which it is so, in one sentence.
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

/// How far a check is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FsckAnswer {
    /// Its name, to ask again with. A check that nobody asks about for a minute is given up.
    pub check: String,
    /// Of the files, so far.
    pub read_bytes: u64,
    /// Of all files, as the store remembers them.
    pub total_bytes: u64,
    /// Once all files are read.
    pub report: Option<FsckReport>,
}

/// A node tells what it has read for a check. What is told twice counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckNews {
    pub incarnation: String,
    /// The name of the check.
    pub check: String,
    /// Whose directories these are, as in the order.
    pub made_by: NodeId,
    /// Of its files, so far.
    pub read_bytes: u64,
    /// What was found since it told last.
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
    /// False where nobody wants to hear more.
    pub goes_on: bool,
}
