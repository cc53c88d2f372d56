//! Rows of the tasks and the data of jobs.

use api::{KeyBytes, SourceCommit, Task};
use ids::{
    AttemptKey, AttemptNumber, ChunkId, DiskIndex, IfileIndex, PlanVersion, RunId, TaskIndex, TaskKey,
};
use std::collections::BTreeMap;

/// The owner of the jobs of `sailfish server`, for any process that serves the store. Its row always exists.
pub const CLUSTER_OWNER: &str = "cluster";

/// Valid commits of each map task. All are from one attempt, unless a part of its data was lost and recomputed.
pub type WinningCommits = BTreeMap<TaskIndex, Vec<(AttemptNumber, SourceCommit)>>;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Waiting,
    Running,
    Done,
    /// An earlier stage is being recomputed; the task waits for it.
    Dropped,
}

ids::words!(TaskState: Waiting = "waiting", Running = "running", Done = "done", Dropped = "dropped");

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub task: TaskKey,
    pub state: TaskState,
    pub payload: Task,
    pub winner: Option<AttemptNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRow {
    pub chunk: ChunkId,
    pub generation: u32,
    pub disk: DiskIndex,
    pub ifile: IfileIndex,
    pub capacity_bytes: u64,
    pub appended_bytes: u64,
    pub oversize: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub run: RunId,
    pub ifile: IfileIndex,
    pub disk: DiskIndex,
    pub records: u64,
    pub record_bytes: u64,
    pub stored_bytes: u64,
    pub in_memory: bool,
    pub replaced_by: Option<RunId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTaskRow {
    pub version: PlanVersion,
    pub part: u32,
    pub ifiles: Vec<IfileIndex>,
    pub runs: Vec<RunId>,
    pub lower_key: Option<KeyBytes>,
    pub upper_key: Option<KeyBytes>,
    pub expected_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRow {
    pub name: String,
    pub attempt: AttemptKey,
    pub bytes: u64,
    pub records: u64,
    pub crc32c: u32,
}
