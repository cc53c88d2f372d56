//! Changes of the store. Times are nanoseconds since 1970.

use crate::{
    AuditRow, DiskRow, IntermediateReplicaRow, NodeRow, NodeState, PartReplicaRow, ReplicaRow, SampleRow,
    TokenRow,
};
use api::history::{AttemptState, EventKind, JobState};
use api::intermediate::IntermediateStatus;
use api::kept::KeptPlace;
use api::people::Role;
use api::task::{ChunkSummary, Part, ReduceTask, RunSummary, TaskResult};
use api::{Boundaries, DataSum, JobReport, JobSpec, SourceCommit, Task, TaskFailure};
use ids::{
    AttemptKey, IfileIndex, IntermediateId, JobId, NodeId, PlanVersion, RunId, StageIndex, StageKind,
    TaskIndex, TaskKey,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How long the intermediate data of a cleaned job stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is gone.
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
        stages: Vec<StageKind>,
        staging: PathBuf,
        disk_dirs: Vec<PathBuf>,
        /// User who submitted it; None if the server does not ask for users, as on one machine.
        user: Option<String>,
        /// Larger goes first.
        priority: i32,
        /// It is in no stage yet: it waits until its tasks are written.
        waits: bool,
        now_ns: u64,
    },
    /// The inputs of a stage of a flow are there: its specification, and what follows from it, is whole now.
    JobInputs {
        job: JobId,
        spec: Arc<JobSpec>,
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
    /// Nodes keep these directories of a job; what was known of the same ones is replaced.
    KeptDirs {
        job: JobId,
        places: Vec<KeptPlace>,
    },
    /// The I-files that a job kept are gone, or every node that has any of them will be told so.
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
    /// Data of a stage was lost: these of its tasks run again as told here, with new attempts. Tasks of later stages, chunks
    /// and runs are struck; they will be told anew.
    StageReopened {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<(TaskIndex, Task)>,
        /// A later stage whose tasks stand as far as they are done.
        retained: Option<StageIndex>,
        now_ns: u64,
    },
    /// The range of a task was cut: the task as it is now, and the one that was added behind all others of its stage for
    /// the rest.
    TaskSplit {
        key: TaskKey,
        task: Box<Task>,
        added_key: TaskKey,
        added: Box<Task>,
    },
    /// Parts of this stage get other names than their attempts thought: each task's.
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
    /// Sums that the winner of a map task appended to each chunk.
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
    /// Parts that later stages read lie on second nodes; each in place of what was known of its part before.
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
    /// A version that differs from the one before it in these tasks alone.
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
    /// Added to what the counters hold.
    Counters {
        job: JobId,
        counters: BTreeMap<String, i64>,
    },
    /// Result of the winner of a task, for a server that starts again in the middle of the job. The last stage does
    /// not need it, nor does a job that no server goes on with. Dropped when the job is over.
    Result {
        attempt: AttemptKey,
        result: Arc<TaskResult>,
    },
    /// Why an attempt runs where it does, as JSON.
    Placed {
        attempt: AttemptKey,
        reason: String,
    },
    /// Runs that lie on a second node, and how they stand there now; of a known (run, node) only that changes.
    Replicas {
        job: JobId,
        replicas: Vec<ReplicaRow>,
    },
    /// A node came, or came back; its row is replaced.
    NodeRegistered {
        node: NodeRow,
        disks: Vec<DiskRow>,
    },
    NodeStateChanged {
        node: NodeId,
        state: NodeState,
        now_ns: u64,
    },
    /// When each node was last heard of.
    NodesSeen {
        nodes: Vec<(NodeId, u64)>,
    },
    /// How the disks of a node stand; those not named stay as they are.
    Disks {
        node: NodeId,
        disks: Vec<DiskRow>,
    },
    Samples {
        rows: Vec<SampleRow>,
    },
    /// Samples older than this go.
    SamplesForgotten {
        before_ns: u64,
    },
    UserAdded {
        name: String,
        role: Role,
        now_ns: u64,
    },
    /// disabled_ns: None lets the user in again.
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
    /// A server begins to sign with this key what data ports let in.
    DataKeyMade {
        public_key: String,
        /// Tokens of nodes that earlier keys signed are good no more.
        withdraws_earlier: bool,
        now_ns: u64,
    },
    Audit {
        row: AuditRow,
    },
    /// An intermediate file of a user, as it is from now on; its replica has a row of its own.
    Intermediate {
        row: Box<IntermediateStatus>,
    },
    /// One lies on a second node; in place of what was known of that before.
    IntermediateReplica {
        row: IntermediateReplicaRow,
    },
    IntermediateReplicaGone {
        file: IntermediateId,
    },
    /// Nobody knows of it any more.
    IntermediateRemoved {
        file: IntermediateId,
    },
    /// Standard error of the programs of an attempt, in a job of many tasks.
    AttemptSaid {
        attempt: AttemptKey,
        text: String,
        now_ns: u64,
    },
    /// Something worth remembering that changes no other row.
    Note {
        job: Option<JobId>,
        kind: EventKind,
        detail: String,
        now_ns: u64,
    },
}
