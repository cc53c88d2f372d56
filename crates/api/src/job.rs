//! A job as submitted: everything the user chose, with defaults filled in, and the pinned inputs.

mod kind;

use crate::task::RunTask;
use crate::{Compression, FlowStage, Formats, Function, KeyRules, Layout, ObjectPin, ShippedFile, StageFile};
use ids::JobId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

pub use kind::{JobKind, MapReduce, TasksKind};

/// An input file as it was at submit. A reader refuses the file when size or time differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// Position of the name that gave this file among all names of inputs by the user: a directory or a glob gives
    /// many files one number. The stages that a stage reads follow the inputs that it names itself.
    #[serde(default)]
    pub named: u32,
    /// Set for an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectPin>,
    /// Set for an intermediate file of a stage before; its path is only a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_file: Option<StageFile>,
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

/// Rule by which keys go to I-files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Partitioning {
    /// By hash of the partition key; each part is sorted.
    Hash,
    /// By range of keys; the parts together are sorted (`--total-order`).
    Range,
    /// By the number of the partition in front of the stored key ([`crate::PartitionRule`]).
    Partitions,
}

/// How blocks are compressed; a block that does not shrink is stored raw.
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
    /// None: identity.
    pub mapper: Option<Function>,
    pub combiner: Option<Function>,
    /// None: the sorted pairs are written.
    pub reducer: Option<Function>,
    /// Absolute path of the output directory, or the URL of a prefix of objects.
    #[schema(value_type = String)]
    pub output: PathBuf,
    pub overwrite: bool,
    pub partitioning: Partitioning,
    pub codec: Codec,
    /// Budget of the engine's own buffers.
    pub memory_bytes: u64,
    /// Pipelines that run at once.
    pub slots: u32,
    /// Absolute directories for intermediate data; never empty.
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// Files linked into the work directory of user programs, absolute.
    #[schema(value_type = Vec<String>)]
    pub files: Vec<PathBuf>,
    /// Extra environment of user programs.
    pub env: Vec<(String, String)>,
    /// File with more of the environment, absolute: lines of `NAME=VALUE`. It travels as other files do; its content
    /// is nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub env_file: Option<PathBuf>,
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
    /// Seconds after the end for which the intermediate files are kept; None: `keep_ifiles` says for good or not at
    /// all.
    #[serde(default)]
    pub keep_seconds: Option<u64>,
    /// Times that lost intermediate data is made again before the job fails.
    #[serde(default = "max_regenerations")]
    pub max_regenerations: u32,
    /// Treatment of a mapper that ends, without an error, before its input does.
    #[serde(default, skip_serializing_if = "Notice::is_default")]
    pub unread: Notice,
    /// A slow attempt of a map or reduce task may get a second one beside it on another node.
    #[serde(default = "is_wanted", skip_serializing_if = "is_default")]
    pub speculation: bool,
    /// The unread end of a reduce task's range may go to a new task where slots are idle. Never where the user has set the
    /// partitions.
    #[serde(default = "is_wanted", skip_serializing_if = "is_default")]
    pub elastic: bool,
    /// In a cluster: whether sorted runs lie on a second node as well.
    #[serde(default, skip_serializing_if = "Replication::is_default")]
    pub replication: Replication,
    /// In a cluster: files of the client's machine that nodes fetch from the server; elsewhere in here they are named by
    /// their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shipped: Vec<ShippedFile>,
    /// Set for a stage of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<FlowStage>,
}

/// Treatment of a case that is often a mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The user is told.
    #[default]
    Tell,
    /// It fails.
    Fail,
}

impl Notice {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a second node has the intermediate data of a job as well, so that no data is lost with one node (ISS,
/// section 4). On one machine there is no second node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// Lost data is made again.
    None,
    /// Each run goes to another node of the rack, or of another rack where there is none, while the job goes on.
    Rack,
    /// Map tasks append on other nodes than their own, and keep the frames that they sent in a file on their own
    /// node, a spool. All data lies on two nodes as soon as a map is done, nothing is copied, and lost data is sent
    /// again without the user's program.
    Selective,
    /// As `rack`; and no map task ends on a node, and no chunk is sealed there, while a run of it waits for its
    /// replica. For comparison: it has the cost that ISS avoids.
    Sync,
    /// As `rack`, as soon as it would take longer to make the output of the maps again than to send it; the choice
    /// and its reason are kept.
    #[default]
    Auto,
}

impl Replication {
    /// As users write it, in the order of help texts.
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

/// Times that lost data is made again unless the job says otherwise: far more often than machines fail during a job,
/// and seldom enough that a job comes to an end if every disk is broken.
pub const MAX_REGENERATIONS: u32 = 20;

fn max_regenerations() -> u32 {
    MAX_REGENERATIONS
}

/// Default of an option that a specification does not name.
fn is_wanted() -> bool {
    true
}

fn is_default(wanted: &bool) -> bool {
    *wanted
}

impl JobSpec {
    /// A job with nothing in it but its name, to be filled: keys are hashed, nothing is compressed or synced, and there is one
    /// slot without memory or directories.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: JobKind::default(),
            inputs: Vec::new(),
            mapper: None,
            combiner: None,
            reducer: None,
            output: PathBuf::new(),
            overwrite: false,
            partitioning: Partitioning::Hash,
            codec: Codec::None,
            memory_bytes: 0,
            slots: 1,
            disks: Vec::new(),
            files: Vec::new(),
            env: Vec::new(),
            env_file: None,
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
            stage: None,
        }
    }

    /// A job of one task: all but its name and its kind is empty.
    pub fn of_one_task(name: String, task: RunTask) -> Self {
        Self { kind: JobKind::Tasks { kind: TasksKind::Program(task) }, ..Self::named(name) }
    }

    /// Whether later stages of a flow read its output, so that its parts are intermediate files.
    pub fn feeds(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.feeds)
    }

    /// The jobs whose output it reads.
    pub fn reads(&self) -> &[JobId] {
        self.stage.as_ref().map_or(&[], |stage| &stage.reads)
    }

    /// Bytes of all inputs as stored, or of the rows that are made in their place.
    pub fn input_bytes(&self) -> u64 {
        let made = self.kind.generated().map_or(0, |generated| generated.bytes());
        made + self.inputs.iter().map(|input| input.size_bytes).sum::<u64>()
    }
}

/// Facts by which programs see the job as one of Hadoop Streaming.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Streaming {
    /// The properties of the job (`-D` and what other options set): programs find each in their environment with
    /// `_` for every character that is no letter or digit.
    pub properties: Vec<(String, String)>,
    /// A program that ends with another code than 0 has not failed (`stream.non.zero.exit.is.failure=false`).
    pub any_exit_code: bool,
    /// Links in the work directory of programs, besides `JobSpec::files`.
    #[serde(default)]
    pub links: Vec<FileLink>,
    /// Input of a mapper program.
    #[serde(default)]
    pub mapper_input: MapperInput,
    /// A part without a record is not published (`-lazyOutput`).
    #[serde(default)]
    pub lazy_output: bool,
}

/// A file or directory under another name in the work directory of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileLink {
    /// One word without slashes.
    pub name: String,
    /// Absolute path.
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// Input of a mapper program of a streaming job for each line of input. A line of Hadoop's ends with LF, CR or CR LF;
/// a program reads LF in place of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MapperInput {
    /// The line.
    #[default]
    Lines,
    /// Offset of the line in its file, in bytes after decompression; the separator; the line.
    Numbered { separator: Vec<u8> },
    /// The line parted at the first `split`; the separator, always, between the two.
    Pairs { split: Vec<u8>, separator: Vec<u8> },
    /// The rest of the line after the first `split`; nothing if there is no `split`.
    Values { split: Vec<u8> },
}

/// A job that is in the store, with its staging directory created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmittedJob {
    pub job: JobId,
    /// Hidden sibling of the output directory in which the parts are written.
    #[schema(value_type = String)]
    pub staging: PathBuf,
    /// Embedded: one directory for each `--disk`, made and removed by the server. In a cluster each node makes its
    /// own, and this is empty.
    #[schema(value_type = Vec<String>)]
    pub disk_dirs: Vec<PathBuf>,
}
