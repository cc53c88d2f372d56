//! The tasks of a MapReduce job and their results. The scheduler never looks inside.
//!
//! Stages, in order: `map` -> `seal` -> `merge` (often without tasks) -> `reduce` -> `commit`. A map-only job has `map`
//! -> `commit`; a job that reduces kept I-files of another job has `adopt` -> `merge` -> `reduce` -> `commit`.

mod failure;
mod finished_run;
mod job_recording;
pub(crate) mod proof;
mod step_caching;
mod streams;
mod task_file;
mod usage;

pub use failure::{Blame, LostFile, LostInput, TaskFailure};
pub use finished_run::{
    CACHING_RULES, FileContent, FileStamp, FinishedRun, ProgramPlace, RecordedRun, RunDifference, RunLook,
    RunLooked,
};
pub use job_recording::JobRecording;
pub use proof::{DataSum, SourceCommit};
pub use step_caching::StepCaching;
pub use streams::{PIPELINE_STREAMS_MAX, TASK_STREAMS_MAX};
pub use task_file::{
    PIPELINE_PROGRAMS_MAX, TASK_FILES_MAX, TaskFile, TaskFileError, is_stored_name, is_stored_path,
};
pub use usage::{ATTEMPT_USAGE_MAX, AttemptUsage};

use crate::AttemptLimits;
use crate::job::resources::GenericResources;
use crate::stored::cluster::RecordedPart;
use crate::{ContentHash, KeyBytes, PinnedFile, ShippedFile, Split, StageFilePlace};
use ids::{
    AttemptKey, AttemptNumber, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, PlanVersion, RunId, Source,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// The work of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    Map(MapTask),
    Seal(SealTask),
    Adopt(AdoptTask),
    Merge(MergeTask),
    Reduce(ReduceTask),
    Commit(CommitTask),
    /// The only task of a job that is no MapReduce job.
    Run(Box<RunTask>),
}

/// The result of a finished attempt. Its variant is that of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskResult {
    Map(MapResult),
    Seal(SealResult),
    Adopt(AdoptResult),
    Merge(MergeResult),
    Reduce(ReduceResult),
    Commit(CommitResult),
    Run(RunResult),
}

/// A standard output that another attempt is writing. Its path is that of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowingInput {
    /// Attempt that writes it.
    pub attempt: AttemptKey,
    /// Node of that attempt.
    pub node: NodeId,
}

/// A run of any executable, or of nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTask {
    /// Program and arguments; if empty, the task succeeds without running anything, which measures the overhead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Directory in which the program runs, absolute. A relative program name is resolved there.
    #[serde(default, skip_serializing_if = "is_empty_path")]
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Environment variables in addition to those that always pass through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// File with more variables, as [`crate::JobSpec::env_file`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub env_file: Option<PathBuf>,
    /// In a sandbox: the program reaches the network, on a node that allows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Limits of its programs; those of the node hold too.
    #[serde(default, skip_serializing_if = "AttemptLimits::is_none")]
    #[schema(value_type = AttemptLimits)]
    pub limits: Box<AttemptLimits>,
    /// Number of retries of a program that failed, at most [`RUN_RETRIES_MAX`]. A run that was lost with its node is
    /// not a failure.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Absolute paths, or names of pinned files. If there are any, the program runs in a separate directory that has them under their file names,
    /// in place of `directory`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub files: Vec<PathBuf>,
    /// Files that the program reads under these names in a directory of its own. It runs there if there are any, or
    /// outputs; a program given by a relative path is still resolved in `directory`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<TaskFile>,
    /// Files that the program writes in that directory. They are renamed to their paths when it has succeeded; all
    /// else that it writes there is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<TaskFile>,
    /// True: the program runs in `directory`, reads its inputs and writes its outputs at their paths. It is never
    /// remembered, and no cluster takes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Name of the input that the program gets as its standard input, which is empty otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stdin: Option<PathBuf>,
    /// Set if the standard input is still being written: the attempt reads it from another node as it grows. The server
    /// sets it for each attempt, and removes one from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<GrowingInput>,
    /// Name of the output that holds the standard output of the program, which is shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stdout: Option<PathBuf>,
    /// Set for a program that is skipped where a finished run of it is known. It reads below the user's own directories only
    /// the files that it declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caching: Option<Box<StepCaching>>,
    /// Slots of one node that the program takes while it runs; 0 is 1. A slot is a core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cores: u32,
    /// The other programs of its pipeline: they run in the same attempt, at the same time where a file streams from one to
    /// another. A file that one writes and another reads has the same path in both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub pipeline: Vec<RunTask>,
    /// Phase of its pipeline in which the program runs: it starts when all programs of earlier phases have succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub phase: u32,
    /// Bytes that its directory may take in memory, within the claim of its pipeline: programs of later phases read its
    /// files there. 0, or no room in memory: the directory is on a disk.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub file_memory_bytes: u64,
    /// In place of a program: files that earlier steps of the job wrote and no other one needs, to be removed. One that
    /// is gone already is no error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub removes: Vec<PathBuf>,
    /// In place of a program: finished runs of other steps, to be compared with the present state of all files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<RunLook>,
    /// Files that nodes fetch: some of `files`, and the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shipped: Vec<ShippedFile>,
    /// Stored files that the program opens by a path: some of its words and of `files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedFile>,
    /// In a cluster: memory for jobs of its node that is reserved for this job while it runs. Its real use is not
    /// checked.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub memory_bytes: u64,
    /// In a cluster: the architecture of its node, as in `x86_64`; None accepts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Generic resources of its node that the program has while it runs. It sees them in its environment.
    #[serde(default, skip_serializing_if = "GenericResources::is_none")]
    pub resources: GenericResources,
    /// The user who owns the job. The server sets it and overwrites a name from the client.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
}

impl RunTask {
    /// Returns an error for inputs and outputs that have no places of their own in the directory of the program, and for
    /// programs that cannot run as one pipeline.
    pub fn check_files(&self) -> Result<(), TaskFileError> {
        self.check_own_files()?;
        self.check_pipeline()
    }

    /// Returns the input that becomes the standard input, with its position.
    pub fn stdin_file(&self) -> Option<(usize, &TaskFile)> {
        let name = self.stdin.as_ref()?;
        self.inputs.iter().enumerate().find(|(_, input)| input.name == *name)
    }

    pub(crate) fn check_own_files(&self) -> Result<(), TaskFileError> {
        let count = self.inputs.len() + self.outputs.len();
        if count > TASK_FILES_MAX {
            return Err(TaskFileError::TooMany { count });
        }
        if count > 0 && self.words.is_empty() {
            return Err(TaskFileError::NoProgram);
        }
        if !self.removes.is_empty() && (!self.words.is_empty() || self.removes.len() > TASK_FILES_MAX) {
            return Err(TaskFileError::RemovesAndRuns);
        }
        if !self.looks.is_empty() && (!self.words.is_empty() || self.looks.len() > TASK_FILES_MAX) {
            return Err(TaskFileError::LooksAndRuns);
        }
        if let Some(path) = self.removes.iter().find(|path| !task_file::is_removable(path)) {
            return Err(TaskFileError::BadRemoval { path: path.clone() });
        }
        let linked = self.files.iter().filter_map(|file| file.file_name()).map(Path::new);
        let mut names: BTreeSet<&Path> = linked.collect();
        let inputs = self.inputs.iter().map(|input| (input, input.is_valid_input()));
        let outputs = self
            .outputs
            .iter()
            .map(|output| (output, output.is_valid_output() && !(self.in_place && output.is_stored())));
        for (TaskFile { name, path, .. }, is_valid) in inputs.chain(outputs) {
            if !is_valid {
                return Err(TaskFileError::Bad { name: name.clone(), path: path.clone() });
            }
            if !names.insert(name) {
                return Err(TaskFileError::NameTaken { name: name.clone() });
            }
        }
        // A file there would be made through the other one, which may be a link to anywhere.
        let is_inside = |name: &&&Path| name.ancestors().skip(1).any(|above| names.contains(above));
        if let Some(name) = names.iter().find(is_inside) {
            return Err(TaskFileError::NameTaken { name: name.to_path_buf() });
        }
        let mut paths = BTreeSet::new();
        if let Some(output) = self.outputs.iter().find(|output| !paths.insert(&output.path)) {
            return Err(TaskFileError::PathTaken { path: output.path.clone() });
        }
        let lacks = |files: &[TaskFile], name: &&PathBuf| files.iter().all(|file| file.name != **name);
        if let Some(name) = self.stdin.as_ref().filter(|name| lacks(&self.inputs, name)) {
            return Err(TaskFileError::NoSuchInput { name: name.clone() });
        }
        match self.stdout.as_ref().filter(|name| lacks(&self.outputs, name)) {
            Some(name) => Err(TaskFileError::NoSuchOutput { name: name.clone() }),
            None => self.check_streams(),
        }
    }

    /// Returns whether runs of the program are remembered: all that it reads is declared, and it writes something.
    pub fn is_remembered(&self) -> bool {
        let has_others = !self.files.is_empty() || self.env_file.is_some();
        self.caching.is_some() && !self.outputs.is_empty() && !has_others && !self.in_place
    }

    /// Returns whether its runs are recorded: they are remembered, or other steps find there the versions of stored files
    /// that it wrote.
    pub fn is_recorded(&self) -> bool {
        self.is_remembered() || self.outputs.iter().any(TaskFile::is_stored)
    }

    /// Returns whether a run has the files that the program declares.
    pub fn declares(&self, run: &FinishedRun) -> bool {
        let same = |files: &[FileContent], declared: &[TaskFile]| {
            files.iter().map(|file| &file.path).eq(declared.iter().map(|file| &file.path))
        };
        let environment = self.caching.iter().flat_map(|caching| &caching.environment);
        same(&run.outputs, &self.outputs)
            && same(&run.inputs, &self.inputs)
            && run.environment.iter().map(|file| &file.path).eq(environment)
    }

    /// Returns the facts that determine its executable.
    pub fn place(&self) -> ProgramPlace {
        let word = self.words.first().cloned().unwrap_or_default();
        let plain_name = Path::new(word.strip_prefix("./").unwrap_or(&word));
        let input = self.inputs.iter().find(|input| input.name == plain_name);
        let search_path = self.env.iter().rev().find(|(name, _)| name == "PATH");
        ProgramPlace {
            input: input.map(|input| input.path.clone()),
            search_path: search_path.map(|(_, value)| value.clone()),
            directory: self.directory.clone(),
            word,
            is_shipped: false,
        }
    }

    /// Returns whether the program runs in a directory of its own, in place of `directory`.
    pub fn has_own_directory(&self) -> bool {
        !self.in_place && (!self.files.is_empty() || !self.inputs.is_empty() || !self.outputs.is_empty())
    }
}

/// Maximum number of retries of the program of a one-task job.
pub const RUN_RETRIES_MAX: u32 = 100;

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_empty_path(path: &std::path::Path) -> bool {
    path.as_os_str().is_empty()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The end of the program's text, at most [`RUN_OUTPUT_BYTES_MAX`] of each output; bytes that are not UTF-8 are
    /// replaced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub standard_output: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub standard_error: String,
    /// Bytes of all its text, if that is more than is stored; otherwise 0.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub standard_output_bytes: u64,
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub standard_error_bytes: u64,
    /// Runs of all programs of the pipeline, in their order, if any of them is remembered; one that is not has None.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Option<FinishedRun>>,
    /// Answers to [`RunTask::looks`], in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<RunLooked>,
}

fn is_none_left_out(bytes: &u64) -> bool {
    *bytes == 0
}

/// Maximum bytes that are stored of each of the two outputs of the program of a one-task job.
pub const RUN_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Runs the user's mapper over a split and appends its output to the I-files (or, in a map-only job, writes it as
/// part `part_index`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapTask {
    pub split: Split,
    /// Set in a map-only job.
    pub part_index: Option<u32>,
    /// Set if some of the data that an earlier attempt appended was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<MapAgain>,
    /// Locations of its inputs that are intermediate files, in order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<StageFilePlace>,
}

/// A rerun of a map task because a part of its data was lost. If it emits the same data as before, in all I-files, it
/// replaces the earlier attempt in the I-files that lost data, and only there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapAgain {
    /// I-files that lost data: the task appends to these, and counts the records for the other I-files. In order.
    pub ifiles: Vec<IfileIndex>,
    /// Records committed to each I-file before, lost or not. In order; only I-files with data.
    pub expected: Vec<(IfileIndex, DataSum)>,
    /// Records that still exist in the other I-files, with the attempts that appended them.
    pub standing: Vec<(AttemptNumber, SourceCommit)>,
    /// Number of data losses of the job so far.
    #[serde(default)]
    pub round: u32,
    /// Set if a spool has everything that the task ever appended: the spool is read, and the user's program runs only
    /// if that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend: Option<Box<Resend>>,
}

/// A spool that replaces a run of the user's program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resend {
    pub spool: Spool,
    /// Result of the attempt that wrote it, without the commits.
    pub told: MapResult,
}

/// A file on a node with all frames that an attempt of a map task appended, one after the other, as a stage file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Spool {
    pub node: NodeId,
    /// Name of the stage file.
    pub name: String,
    /// Attempt that wrote it: its frames have the same one.
    pub attempt: AttemptNumber,
    /// Bytes of its payload.
    pub bytes: u64,
    pub crc32c: u32,
}

/// Maximum number of warnings of one map task.
pub const TASK_WARNINGS_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapResult {
    /// Records appended, per (I-file, chunk). Empty in a map-only job.
    pub commits: Vec<SourceCommit>,
    /// Records that were not appended because they exist already ([`MapTask::again`]). In order; only I-files with
    /// data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<(IfileIndex, DataSum)>,
    /// The part written, in a map-only job.
    pub part: Option<Part>,
    /// Input bytes and records read by the engine (after decompression).
    pub input_bytes: u64,
    pub input_records: u64,
    /// Pairs that the mapper emitted, before combining.
    pub output_records: u64,
    pub output_bytes: u64,
    /// Input bytes that the user's program did not read; the engine still read and counted them.
    pub unread_bytes: u64,
    /// Bytes of stored files of the cluster that were read from disks of the node of the task, and from other nodes.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub stored_here_bytes: u64,
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub stored_elsewhere_bytes: u64,
    /// Those of the bytes from other nodes that came from local copies.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub stored_passed_on_bytes: u64,
    /// Warnings about the inputs; at most [`TASK_WARNINGS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Counters of programs, by `GROUP,NAME`.
    pub counters: BTreeMap<String, i64>,
    /// The last status that a program reported.
    #[serde(default)]
    pub status: Option<String>,
    /// The last lines that programs wrote to standard error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// Spool with everything that the task appended, with mode `selective`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<Spool>,
    /// Record bytes that were appended from a spool, without the user's program.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub resent_bytes: u64,
    /// The reason why the user's program ran although there was a spool ([`MapAgain::resend`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_resent: Option<String>,
}

/// Closes all open chunks of the job on a node and sorts the unsorted chunks into runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SealTask {
    /// The node that has the chunks; it runs the task.
    #[serde(default)]
    pub node: NodeId,
    /// Promoted replicas there, which replace runs of lost nodes; they belong to its inventory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<RunId>,
}

/// Location of a run that is not only on the node that made it. Tasks have them in order of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunPlace {
    pub run: RunId,
    /// Node to read it from.
    pub node: NodeId,
    /// Other node that holds a copy of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<NodeId>,
}

impl RunPlace {
    /// Returns the location of a run among those of a task.
    pub fn of(run: RunId, places: &[Self]) -> Option<&Self> {
        let index = places.binary_search_by_key(&run, |place| place.run).ok()?;
        places.get(index)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SealResult {
    pub chunks: Vec<ChunkSummary>,
    pub runs: Vec<RunSummary>,
    /// Raw chunks that went to disk before they were sorted.
    pub raw_spills: u64,
    pub raw_spill_bytes: u64,
    /// Thread seconds spent sorting, and writing runs.
    pub sort_seconds: f64,
    pub write_seconds: f64,
    /// Chunks whose data is lost: their disk failed, or returned damaged data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ChunkId>,
    /// Reason for the loss of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_because: Option<String>,
}

/// Opens the kept runs of an earlier job, in place of maps and seal. Its files are read, never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptTask {
    /// The job that kept the runs.
    pub source: JobId,
    /// The node that has them; it runs the task.
    #[serde(default)]
    pub node: NodeId,
    /// Its directories, by the disk index of a run.
    #[schema(value_type = Vec<String>)]
    pub dirs: Vec<PathBuf>,
    pub runs: Vec<KeptRun>,
    /// Chunks of the runs as the store has them: without the sums per source, which are in the runs.
    pub chunks: Vec<ChunkSummary>,
    /// Replicas in these directories of runs that other nodes open, with the run numbers from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<KeptRun>,
}

/// A run file as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptRun {
    /// Number under which the run was kept; its file contains this number.
    pub run: RunId,
    /// Number in the new job, if it differs: a number of the node that has the run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<RunId>,
    pub ifile: IfileIndex,
    pub disk: DiskIndex,
    pub records: u64,
    /// Encoded record bytes before compression.
    pub record_bytes: u64,
    /// Bytes of the file.
    pub stored_bytes: u64,
    /// True if another node opens a replica of it: the job does not depend on this file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_copy: bool,
}

impl KeptRun {
    /// Returns its number in the job that reduces it again.
    pub fn number(&self) -> RunId {
        self.adopted.unwrap_or(self.run)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptResult {
    /// The chunks of the task, with the sums of each source from the source tables of the runs.
    pub chunks: Vec<ChunkSummary>,
    pub runs: Vec<RunSummary>,
    /// The replicas whose header, index and footer are intact, with the sums of each source in their chunks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<AdoptedCopy>,
    /// Runs of the task that cannot be read and have replicas; with the reason for the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_because: Option<String>,
}

/// A replica of a kept run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptedCopy {
    pub run: RunSummary,
    pub chunks: Vec<ChunkSummary>,
}

/// A stable chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChunkSummary {
    pub chunk: ChunkId,
    pub ifile: IfileIndex,
    pub generation: u32,
    pub disk: DiskIndex,
    pub capacity_bytes: u64,
    /// Frame payload bytes in it, from every source, winners or not.
    pub appended_bytes: u64,
    /// True if it holds one record larger than a chunk.
    pub oversize: bool,
    /// Sums of the records that each source appended, from the chunk's own accounts.
    pub sources: Vec<(Source, DataSum)>,
}

/// A sorted run for the planner: its sources, and the distribution of its bytes over the keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSummary {
    pub run: RunId,
    pub ifile: IfileIndex,
    pub chunks: Vec<ChunkId>,
    pub records: u64,
    /// Encoded record bytes before compression.
    pub record_bytes: u64,
    /// Bytes of the file, 0 while the run is only in memory.
    pub stored_bytes: u64,
    pub in_memory: bool,
    pub disk: DiskIndex,
    /// Bytes of the largest block, uncompressed: a merge must hold this much per run.
    pub block_bytes_max: u64,
    /// A thinned copy of the key index, in key order.
    pub weights: Vec<KeyWeight>,
}

/// `bytes` of records whose keys are >= `first_key` and below the next entry's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyWeight {
    /// A lower bound of the keys: the first key, or a prefix of a long one.
    pub first_key: KeyBytes,
    pub bytes: u64,
    pub records: u64,
}

/// Merges some runs of one I-file into one, so that a later merge opens fewer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeTask {
    pub ifile: IfileIndex,
    pub runs: Vec<RunId>,
    /// Set if the runs are on a node that is being drained: one of these nodes reads them from there and keeps the
    /// merged run. If empty, they are merged on their node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<NodeId>,
    /// Locations of the runs that are not only on the nodes that made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RunPlace>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeResult {
    /// The runs that the new one replaces.
    pub replaced: Vec<RunId>,
    pub run: RunSummary,
    pub retrievals: u64,
    pub retrieved_bytes: u64,
}

/// Merges a key range of some I-files and runs the user's reducer over its groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReduceTask {
    pub plan_version: PlanVersion,
    /// Number of the output part.
    pub part_index: u32,
    /// I-files to read: one under `hash`, all that have data under `range`.
    pub ifiles: Vec<IfileIndex>,
    pub runs: Vec<RunId>,
    /// Locations of the runs that are not only on the nodes that made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RunPlace>,
    /// Lower bound: keys >= this; None from the first.
    pub lower_key: Option<KeyBytes>,
    /// Upper bound: keys < this; None to the last.
    pub upper_key: Option<KeyBytes>,
    /// The winning attempt of each map task that emitted anything, in map task order.
    pub valid_attempts: Vec<(ids::TaskIndex, AttemptNumber)>,
    /// I-files and map tasks for which an earlier attempt counts instead ([`MapTask::again`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub older_attempts: Vec<(IfileIndex, ids::TaskIndex, AttemptNumber)>,
    /// Record bytes expected, by the indexes.
    pub expected_bytes: u64,
    /// Total bytes of the largest block of each of its runs, uncompressed: a merge must hold this much of them.
    pub largest_blocks_bytes: u64,
    /// True if it must report the records it read by source and chunk ([`ReduceResult::source_audits`]), because the proof
    /// failed.
    #[serde(default, skip_serializing_if = "is_false", rename = "keeps_books")]
    pub audits_sources: bool,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Sum of the records of a source in a chunk, as a reduce task read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceAudit {
    pub ifile: IfileIndex,
    pub chunk: ChunkId,
    pub source: Source,
    pub sum: DataSum,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReduceResult {
    pub part: Part,
    /// Sums of the records that the merge emitted per I-file, whether the user's program read them or not.
    pub merged: Vec<(IfileIndex, DataSum)>,
    pub groups: u64,
    /// Group bytes that the user's program did not read.
    pub unread_bytes: u64,
    /// Records dropped because their attempt lost.
    pub dropped_records: u64,
    pub retrievals: u64,
    pub retrieved_bytes: u64,
    /// Largest fan-in of the merge.
    pub fan_in: u32,
    pub counters: BTreeMap<String, i64>,
    #[serde(default)]
    pub status: Option<String>,
    /// The last lines that programs wrote to standard error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// Time at which the runs were open and the merge was at its first record, in nanoseconds since 1970. From then on
    /// merging and reducing are one stream.
    #[serde(default)]
    pub opened_ns: Option<u64>,
    /// Sums of the records that count, by source and chunk.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "books")]
    pub source_audits: Vec<SourceAudit>,
    /// Upper bound of its range: that of its task, or an earlier key if the attempt was ordered to end there.
    #[serde(default)]
    pub upper_key: Option<KeyBytes>,
}

/// A finished part file, still under the name of its attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Final name, `part-00000`, or with the extension of its codec `part-00000.gz`.
    pub name: String,
    /// Name in the staging directory until the commit.
    pub attempt_name: String,
    pub bytes: u64,
    /// Lines of text, or records of a binary format, before compression.
    pub records: u64,
    pub crc32c: u32,
    /// Hash of its bytes, if the run of its job is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<ContentHash>,
    /// Node that has the part on its disk, if its stage feeds others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Its concrete file and the disks that have it, if the output is a stored file and the part is not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<RecordedPart>,
}

/// Publishes the output directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitTask {
    /// In part order.
    pub parts: Vec<Part>,
    pub report: Box<crate::JobReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitResult {
    /// True if an older output was exchanged for the new one and removed.
    pub replaced: bool,
    /// The run, if it is to be remembered and its contents are known for sure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<FinishedRun>>,
}
