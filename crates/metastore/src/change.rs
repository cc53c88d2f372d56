//! What can change in the store. Times are nanoseconds since 1970.

use api::task::{ChunkSummary, Part, ReduceTask, RunSummary};
use api::{Boundaries, DataSum, JobReport, JobSpec, SourceCommit, Task, TaskFailure};
use ids::{AttemptKey, IfileIndex, JobId, NodeId, PlanVersion, RunId, StageIndex, TaskKey};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Running,
    /// Its commit task exists: the output may be in place.
    Committing,
    Succeeded,
    Failed,
    Cancelled,
    /// Its owner died before it was over.
    Interrupted,
}

/// What became of the intermediate data that a job was told to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFiles {
    Kept,
    /// Somebody began to remove them: they may be read no more.
    Removing,
    Removed,
}

/// How long the intermediate data of a cleaned job stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is gone.
    Nothing,
    ForGood,
    Until(u64),
}

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptState {
    Running,
    Succeeded,
    /// It succeeded too late.
    Discarded,
    Failed,
    Cancelled,
    Interrupted,
}

/// The proof of one I-file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofRow {
    pub ifile: IfileIndex,
    pub committed: DataSum,
    pub merged: DataSum,
}

/// One change. A list of them goes in as one transaction.
#[derive(Clone, Debug)]
pub enum Change {
    OwnerStarted {
        uuid: String,
        pid: u32,
        now_ns: u64,
    },
    OwnerEnded {
        uuid: String,
        now_ns: u64,
    },
    JobSubmitted {
        job: JobId,
        owner: String,
        spec: Arc<JobSpec>,
        stages: Vec<&'static str>,
        staging: PathBuf,
        disk_dirs: Vec<PathBuf>,
        now_ns: u64,
    },
    /// The commit task is about to exist; the report is what it will publish.
    JobCommitting {
        job: JobId,
        report: Box<JobReport>,
        now_ns: u64,
    },
    /// The job is over. Where it is interrupted or has succeeded, attempts that still stand as running are marked
    /// interrupted: nobody will report them.
    JobEnded {
        job: JobId,
        state: JobState,
        exit_code: Option<i32>,
        error: Option<String>,
        now_ns: u64,
    },
    /// Its directories are gone, but for intermediate data that is kept on purpose.
    JobCleaned {
        job: JobId,
        kept: Keep,
        now_ns: u64,
    },
    /// What a job kept is gone.
    KeptFilesRemoved {
        job: JobId,
        bytes: u64,
        now_ns: u64,
    },
    StageExpanded {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<Task>,
        now_ns: u64,
    },
    StageEnded {
        job: JobId,
        stage: StageIndex,
        now_ns: u64,
    },
    AttemptStarted {
        attempt: AttemptKey,
        node: NodeId,
        slot: u32,
        now_ns: u64,
    },
    AttemptEnded {
        attempt: AttemptKey,
        state: AttemptState,
        started_ns: u64,
        /// When the runs of a reduce attempt were open.
        opened_ns: Option<u64>,
        ended_ns: u64,
        failure: Option<TaskFailure>,
    },
    /// The attempt is its task's winner.
    TaskDone {
        attempt: AttemptKey,
        now_ns: u64,
    },
    TaskRetried {
        task: TaskKey,
        now_ns: u64,
    },
    /// What the winner of a map task appended.
    Sources {
        attempt: AttemptKey,
        commits: Vec<SourceCommit>,
    },
    Chunks {
        job: JobId,
        chunks: Vec<ChunkSummary>,
    },
    /// New runs, and the runs that the one run given replaces.
    Runs {
        job: JobId,
        runs: Vec<RunSummary>,
        replaced: Vec<RunId>,
    },
    Boundaries {
        job: JobId,
        boundaries: Boundaries,
        now_ns: u64,
    },
    Plan {
        job: JobId,
        version: PlanVersion,
        target_bytes: u64,
        tasks: Vec<ReduceTask>,
        now_ns: u64,
    },
    Proofs {
        job: JobId,
        rows: Vec<ProofRow>,
    },
    Part {
        attempt: AttemptKey,
        part: Part,
    },
    /// Added to what the counters hold.
    Counters {
        job: JobId,
        counters: BTreeMap<String, i64>,
    },
    /// Something worth remembering that changes no other row.
    Note {
        job: Option<JobId>,
        kind: &'static str,
        detail: String,
        now_ns: u64,
    },
}

impl JobState {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Committing => "committing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Running, Self::Committing, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Interrupted]
            .into_iter()
            .find(|state| state.word() == word)
    }

    /// Whether nothing follows this state.
    pub fn over(self) -> bool {
        !matches!(self, Self::Running | Self::Committing)
    }
}

impl KeptFiles {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Removing => "removing",
            Self::Removed => "removed",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Kept, Self::Removing, Self::Removed].into_iter().find(|state| state.word() == word)
    }
}

impl AttemptState {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Discarded => "discarded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Running, Self::Succeeded, Self::Discarded, Self::Failed, Self::Cancelled, Self::Interrupted]
            .into_iter()
            .find(|state| state.word() == word)
    }
}
