//! A job as submitted: all choices of the user, with defaults filled in, and the pinned inputs.

mod json_text;
mod kind;
mod limits;
pub mod pipeline;
mod programs;
pub mod resources;
pub mod seen;
pub mod workflow;
pub mod workflow_file;
pub mod workflow_input;
pub mod workflow_param;

use crate::StoredOutput;
use crate::task::{JobRecording, RunTask};
use crate::{
    Compression, ContentHash, FlowStage, Formats, Function, KeyRules, Layout, ObjectPin, PinnedFile, SeenBy,
    ShippedFile, StageFile, StoredContent,
};
use ids::JobId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

pub use json_text::{JsonPart, JsonText};
pub use kind::{JobKind, MapReduce, SteppedKind, TasksKind};
pub use limits::{AttemptLimits, LimitKind};

/// An input file as it was at submit. A reader refuses the file if its size or time has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Absolute path, or the URL of an object.
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub size_bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Found from its first bytes, never from its name; None: it is read as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Position of the user's name for this file among all names of inputs: a directory or a glob gives many files the
    /// same number. The stages that a stage reads follow its own inputs.
    #[serde(default)]
    pub named: u32,
    /// Set for an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectPin>,
    /// Set for an intermediate file of an earlier stage; its path is only a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_file: Option<StageFile>,
    /// Set for a stored file; its path is only a name, `files:NAME@VERSION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredContent>,
    /// Identity of the bytes of a stored file, for a step that has not begun: the server finds them among those that its job
    /// has pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentHash>,
    /// Set for a file that only some nodes see: position in `JobSpec::seen_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u32>,
}

impl InputFile {
    /// Returns whether it is a file of a machine that every node sees: its path can be opened.
    pub fn is_path(&self) -> bool {
        let is_stored = self.stored.is_some() || self.content.is_some();
        self.object.is_none() && self.stage_file.is_none() && !is_stored && self.seen.is_none()
    }
}

/// A stretch of one input file. For plain files the reader moves both ends to line ends: a line belongs to
/// the segment in which it starts. Compressed files are one segment each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Position in `JobSpec::inputs`.
    pub file_index: u32,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// Input of one map task: segments in input order. The splits of a job partition each file exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Split {
    pub segments: Vec<Segment>,
}

/// The rule that assigns keys to I-files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Partitioning {
    /// By hash of the partition key; each part is sorted.
    Hash,
    /// By range of keys; the parts together are sorted (`--total-order`).
    Range,
    /// By the partition number in front of the stored key ([`crate::PartitionRule`]).
    Partitions,
}

/// Compression of blocks; a block that does not shrink is stored raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    None,
    Lz4,
    Zstd,
}

/// A submitted job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    pub name: String,
    #[serde(default)]
    pub kind: JobKind,
    /// Input files in input order: the order of the arguments, then of the names within a directory or glob.
    pub inputs: Vec<InputFile>,
    /// The nodes that see the inputs that not all see. At most [`crate::seen::SEEN_GROUPS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<SeenBy>,
    /// None is the identity.
    pub mapper: Option<Function>,
    pub combiner: Option<Function>,
    /// None writes the sorted pairs.
    pub reducer: Option<Function>,
    /// Absolute path of the output directory, the URL of a prefix of objects, or in a cluster the name of a stored file,
    /// `files:NAME`.
    #[schema(value_type = String)]
    pub output: PathBuf,
    /// Wished number of replicas of a stored output; None is the default of puts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_replicas: Option<u32>,
    /// Set by the server if the output is a stored file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_output: Option<StoredOutput>,
    pub overwrite: bool,
    pub partitioning: Partitioning,
    pub codec: Codec,
    /// Budget of the engine's own buffers.
    pub memory_bytes: u64,
    /// Number of pipelines that run at once.
    pub slots: u32,
    /// Absolute directories for intermediate data; never empty.
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// Files linked into the work directory of user programs: absolute paths, or names of [`Self::pinned`] ones.
    #[schema(value_type = Vec<String>)]
    pub files: Vec<PathBuf>,
    /// Extra environment of user programs.
    pub env: Vec<(String, String)>,
    /// File with further environment variables, absolute: lines of `NAME=VALUE`. It is shipped like other files; its
    /// content is stored nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub env_file: Option<PathBuf>,
    /// In a sandbox: programs reach the network, on nodes that allow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Limits of its programs; those of the node hold too.
    #[serde(default, skip_serializing_if = "AttemptLimits::is_none")]
    pub limits: AttemptLimits,
    /// Keep intermediate files after the job.
    pub keep_ifiles: bool,
    /// Sync the output before it is renamed into place.
    pub sync: bool,
    /// Sizes derived at submit from memory, slots and input.
    pub layout: Layout,
    #[serde(default)]
    pub formats: Formats,
    #[serde(default)]
    pub keys: KeyRules,
    /// Set for jobs whose programs expect the environment and input that Hadoop Streaming gives them.
    #[serde(default)]
    pub streaming: Option<Streaming>,
    /// Seconds after the end for which the intermediate files are kept; with None, `keep_ifiles` decides whether they
    /// are kept forever or not at all.
    #[serde(default)]
    pub keep_seconds: Option<u64>,
    /// Maximum number of times that lost intermediate data is recomputed before the job fails.
    #[serde(default = "max_regenerations")]
    pub max_regenerations: u32,
    /// Treatment of a mapper that ends without an error before the end of its input.
    #[serde(default, skip_serializing_if = "Notice::is_default")]
    pub unread: Notice,
    /// True if a slow attempt of a map or reduce task may get a speculative attempt on another node.
    #[serde(default = "is_wanted", skip_serializing_if = "is_default")]
    pub speculation: bool,
    /// True if the unread end of a reduce task's range may become a new task for an idle slot. Never used if the user
    /// has set the partitions.
    #[serde(default = "is_wanted", skip_serializing_if = "is_default")]
    pub elastic: bool,
    /// In a cluster: the mode in which sorted runs are replicated to a second node.
    #[serde(default, skip_serializing_if = "Replication::is_default")]
    pub replication: Replication,
    /// In a cluster: files of the client's machine that nodes fetch from the server; other fields of this type name
    /// them by their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shipped: Vec<ShippedFile>,
    /// Stored files that its programs open by a path; words of programs, files and links name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedFile>,
    /// Set for a stage of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<FlowStage>,
    /// Set for a step of a workflow whose runs are remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<Box<JobRecording>>,
}

/// Treatment of a likely mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// A warning to the user.
    #[default]
    Tell,
    /// A failure of the task.
    Fail,
}

impl Notice {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Replication of the intermediate data of a job to a second node, so that the loss of one node loses no data
/// (intermediate storage system, ISS, section 4). On one machine there is no second node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// No replicas: lost data is recomputed.
    None,
    /// Each run is copied to another node of the rack while the job runs, or to another rack if there is no such node.
    Rack,
    /// Map tasks append on other nodes than their own, and keep the sent frames in a file on their own node, a spool.
    /// All data is on two nodes as soon as a map is done. Nothing is copied, and lost data is sent again without the
    /// user's program.
    Selective,
    /// As `rack`; and no map task ends on a node, and no chunk is sealed there, while a run of the node waits for its
    /// replica. For comparisons only: it has the cost that ISS avoids.
    Sync,
    /// As `rack`, as soon as recomputing the output of the maps would take longer than sending it; the choice and its
    /// reason are stored.
    #[default]
    Auto,
}

impl Replication {
    /// Words of users, in the order of help texts.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("rack", Self::Rack),
        ("selective", Self::Selective),
        ("auto", Self::Auto),
        ("sync", Self::Sync),
    ];

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Default of the limit for recomputing lost data: far more often than machines fail during a job, and seldom enough
/// that a job ends if every disk is broken.
pub const MAX_REGENERATIONS: u32 = 20;

fn max_regenerations() -> u32 {
    MAX_REGENERATIONS
}

/// Returns the default of an option that a specification does not name.
fn is_wanted() -> bool {
    true
}

fn is_default(wanted: &bool) -> bool {
    *wanted
}

impl JobSpec {
    /// Creates a job with a name and nothing else, to be filled in: keys are hashed, nothing is compressed or synced,
    /// and there is one slot without memory or directories.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: JobKind::default(),
            inputs: Vec::new(),
            seen_by: Vec::new(),
            mapper: None,
            combiner: None,
            reducer: None,
            output: PathBuf::new(),
            output_replicas: None,
            stored_output: None,
            overwrite: false,
            partitioning: Partitioning::Hash,
            codec: Codec::None,
            memory_bytes: 0,
            slots: 1,
            disks: Vec::new(),
            files: Vec::new(),
            env: Vec::new(),
            env_file: None,
            network: false,
            limits: AttemptLimits::default(),
            keep_ifiles: false,
            sync: false,
            layout: Layout::default(),
            formats: Formats::default(),
            keys: KeyRules::default(),
            streaming: None,
            keep_seconds: None,
            max_regenerations: MAX_REGENERATIONS,
            unread: Notice::default(),
            speculation: true,
            elastic: true,
            replication: Replication::default(),
            shipped: Vec::new(),
            pinned: Vec::new(),
            stage: None,
            recording: None,
        }
    }

    /// Creates a job of one task: all but its name and its kind is empty.
    pub fn of_one_task(name: String, task: RunTask) -> Self {
        Self { kind: JobKind::Tasks { kind: TasksKind::Program(Box::new(task)) }, ..Self::named(name) }
    }

    /// Creates a job with steps: all but its name and its kind is empty.
    pub fn of_steps(name: String, steps: SteppedKind) -> Self {
        Self { kind: JobKind::Tasks { kind: TasksKind::Steps(steps) }, ..Self::named(name) }
    }

    /// Returns whether later stages of a flow read its output, so that its parts are intermediate files.
    pub fn feeds(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.feeds)
    }

    /// Returns the jobs whose output it reads.
    pub fn reads(&self) -> &[JobId] {
        self.stage.as_ref().map_or(&[], |stage| &stage.reads)
    }

    /// Returns the stored bytes of all inputs, or the bytes of the rows that are generated instead.
    pub fn input_bytes(&self) -> u64 {
        let made = self.kind.generated().map_or(0, |generated| generated.bytes());
        made + self.inputs.iter().map(|input| input.size_bytes).sum::<u64>()
    }
}

/// The properties that let programs see a Hadoop Streaming job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Streaming {
    /// The properties of the job (`-D` and those set by other options). Programs find each in their environment, with
    /// `_` for every character that is no letter or digit.
    pub properties: Vec<(String, String)>,
    /// True if a program with an exit code other than 0 has not failed (`stream.non.zero.exit.is.failure=false`).
    pub any_exit_code: bool,
    /// Links in the work directory of programs, besides `JobSpec::files`.
    #[serde(default)]
    pub links: Vec<FileLink>,
    /// Input of a mapper program.
    #[serde(default)]
    pub mapper_input: MapperInput,
    /// True if a part without records is not published (`-lazyOutput`).
    #[serde(default)]
    pub lazy_output: bool,
}

/// A file or directory under another name in the work directory of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileLink {
    /// Name of a single component, without slashes.
    pub name: String,
    /// Absolute path, or the name of a pinned file.
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// Input of a mapper program of a streaming job for each line of input. A line ends with LF, CR or CR LF as in Hadoop;
/// the program reads LF for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MapperInput {
    /// The line.
    #[default]
    Lines,
    /// Offset of the line in its file, in bytes after decompression; the separator; the line.
    Numbered { separator: Vec<u8> },
    /// The line divided at the first `split`, with the separator always between the two.
    Pairs { split: Vec<u8>, separator: Vec<u8> },
    /// The rest of the line after the first `split`; nothing if there is no `split`.
    Values { split: Vec<u8> },
}

/// A job that is stored, with its staging directory created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmittedJob {
    pub job: JobId,
    /// Hidden directory beside the output directory, in which the parts are written.
    #[schema(value_type = String)]
    pub staging: PathBuf,
    /// In the embedded engine, one directory for each `--disk`, created and removed by the server. In a cluster each
    /// node creates its own, and this is empty.
    #[schema(value_type = Vec<String>)]
    pub disk_dirs: Vec<PathBuf>,
}
