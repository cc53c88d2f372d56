//! Changes of the store. Times are nanoseconds since 1970.

use crate::{
    AuditRow, DiskRow, IntermediateReplicaRow, NodeRow, NodeState, PartReplicaRow, ReplicaRow, SampleRow,
    TokenRow, UsageSums,
};
use api::history::{AttemptState, EventKind, JobState, StepOf};
use api::intermediate::IntermediateStatus;
use api::kept::KeptPlace;
use api::people::Role;
use api::task::{ChunkSummary, Part, RecordedRun, ReduceTask, RunSummary, TaskResult};
use api::{Boundaries, DataSum, JobReport, JobSpec, SourceCommit, Task, TaskFailure};
use ids::{
    AttemptKey, IfileIndex, IntermediateId, JobId, NodeId, PlanVersion, RunId, StageIndex, StageKind,
    TaskIndex, TaskKey,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Lifetime of the intermediate data of a cleaned job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It was removed.
    Nothing,
    ForGood,
    Until(u64),
}

/// The proof of one I-file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofRow {
    pub ifile: IfileIndex,
    pub committed: DataSum,
    pub merged: DataSum,
}

/// A change. A list of them is one transaction.
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
        stages: Vec<StageKind>,
        staging: PathBuf,
        disk_dirs: Vec<PathBuf>,
        /// User who submitted it; None if the server does not ask for users, as on one machine.
        user: Option<String>,
        /// Higher values run first.
        priority: i32,
        /// True if it is in no stage yet: it waits until its tasks are written.
        waits: bool,
        /// Set if it is a step of another job.
        step_of: Option<StepOf>,
        now_ns: u64,
    },
    /// The inputs of a stage of a flow exist: its specification, and the values derived from it, are complete now.
    JobInputs {
        job: JobId,
        spec: Arc<JobSpec>,
    },
    /// The commit task is about to be created; this is the report that it will publish.
    JobCommitting {
        job: JobId,
        report: Box<JobReport>,
        now_ns: u64,
    },
    /// The job is over. If it is interrupted or has succeeded, attempts that are still recorded as running are marked
    /// interrupted: nobody will report them.
    JobEnded {
        job: JobId,
        state: JobState,
        exit_code: Option<i32>,
        error: Option<String>,
        now_ns: u64,
    },
    /// Its directories were removed, except for kept intermediate data.
    JobCleaned {
        job: JobId,
        kept: Keep,
        now_ns: u64,
    },
    /// Nodes keep these directories of a job; earlier entries for the same directories are replaced.
    KeptDirs {
        job: JobId,
        places: Vec<KeptPlace>,
    },
    /// The kept I-files of a job were removed, or every node that has any of them will be told to remove them.
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
    /// Data of a stage was lost: these of its tasks run again as given here, with new attempts. Tasks of later stages,
    /// chunks and runs are deleted; they will be written again.
    StageReopened {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<(TaskIndex, Task)>,
        /// A later stage whose finished tasks stay valid.
        retained: Option<StageIndex>,
        now_ns: u64,
    },
    /// The range of a task was cut: the changed task, and the new task for the rest, which was added at the end of its
    /// stage.
    TaskSplit {
        key: TaskKey,
        task: Box<Task>,
        added_key: TaskKey,
        added: Box<Task>,
    },
    /// Parts of this stage get other names than their attempts assumed: those of each task.
    PartsRenamed {
        job: JobId,
        stage: StageIndex,
        names: Vec<(TaskIndex, String)>,
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
        /// Time at which the runs of a reduce attempt were open.
        opened_ns: Option<u64>,
        ended_ns: u64,
        failure: Option<TaskFailure>,
    },
    /// Added to the accounts of the user and the day. Written with the end of each attempt, whatever its end.
    Used {
        job: JobId,
        /// Empty if the server does not ask for users.
        user: String,
        sums: Box<UsageSums>,
        now_ns: u64,
    },
    /// Accounts of days before this one are deleted: days since 1970.
    UsageForgotten {
        before_day: u64,
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
    /// Sums that the winner of a map task appended to each chunk.
    Sources {
        attempt: AttemptKey,
        commits: Vec<SourceCommit>,
    },
    Chunks {
        job: JobId,
        chunks: Vec<ChunkSummary>,
    },
    /// New runs, and the runs that a single given run replaces.
    Runs {
        job: JobId,
        runs: Vec<RunSummary>,
        replaced: Vec<RunId>,
    },
    /// Parts for later stages were replicated to other nodes; each replaces the earlier entry for its part.
    PartReplicas {
        job: JobId,
        replicas: Vec<PartReplicaRow>,
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
    /// A plan version that differs from the previous one in these tasks alone.
    PlanCut {
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
    /// Added to the counters.
    Counters {
        job: JobId,
        counters: BTreeMap<String, i64>,
    },
    /// Result of the winner of a task, for a server that restarts in the middle of the job. The last stage does not
    /// need it, nor does a job that no server continues. Dropped when the job is over.
    Result {
        attempt: AttemptKey,
        result: Arc<TaskResult>,
    },
    /// Reason for the placement of an attempt, as JSON.
    Placed {
        attempt: AttemptKey,
        reason: String,
    },
    /// Runs replicated to another node, and their current state; for a known (run, node) only the state changes.
    Replicas {
        job: JobId,
        replicas: Vec<ReplicaRow>,
    },
    /// A node joined, or came back; its row is replaced.
    NodeRegistered {
        node: NodeRow,
        disks: Vec<DiskRow>,
    },
    NodeStateChanged {
        node: NodeId,
        state: NodeState,
        now_ns: u64,
    },
    /// Time of the last poll of each node.
    NodesSeen {
        nodes: Vec<(NodeId, u64)>,
    },
    /// State of the disks of a node; the others are unchanged.
    Disks {
        node: NodeId,
        disks: Vec<DiskRow>,
    },
    Samples {
        rows: Vec<SampleRow>,
    },
    /// Samples older than this are deleted.
    SamplesForgotten {
        before_ns: u64,
    },
    UserAdded {
        name: String,
        role: Role,
        now_ns: u64,
    },
    /// disabled_ns: None enables the user again.
    UserChanged {
        name: String,
        role: Role,
        disabled_ns: Option<u64>,
    },
    TokenIssued {
        token: TokenRow,
    },
    TokenRevoked {
        token: String,
        now_ns: u64,
    },
    /// A server begins to sign the rights for data ports with this key.
    DataKeyMade {
        public_key: String,
        /// Tokens of nodes that earlier keys signed are revoked.
        withdraws_earlier: bool,
        now_ns: u64,
    },
    Audit {
        row: AuditRow,
    },
    /// An intermediate file of a user, in its new state; its replica has a separate row.
    Intermediate {
        row: Box<IntermediateStatus>,
    },
    /// A file was replicated to another node; replaces the earlier entry.
    IntermediateReplica {
        row: IntermediateReplicaRow,
    },
    IntermediateReplicaGone {
        file: IntermediateId,
    },
    /// The file is deleted.
    IntermediateRemoved {
        file: IntermediateId,
    },
    /// A run that is remembered under this path; it replaces the earlier one there. The user is empty on one machine.
    RunFinished {
        user: String,
        path: PathBuf,
        /// Job of the step; None for a run that is known, with more certain stamps.
        job: Option<JobId>,
        run: Arc<RecordedRun>,
        now_ns: u64,
    },
    /// Standard error of the programs of an attempt, in a job of many tasks.
    AttemptSaid {
        attempt: AttemptKey,
        text: String,
        now_ns: u64,
    },
    /// An event that changes no other row.
    Note {
        job: Option<JobId>,
        kind: EventKind,
        detail: String,
        now_ns: u64,
    },
}
