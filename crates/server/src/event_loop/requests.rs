//! Requests to the event loop.

use crate::ServerError;
use crate::access::NewToken;
use crate::messages::{PullReply, UserQuota};
use api::control::{
    ClusterStatus, JobBatch, JobBrief, JobLogs, JobOutcome, NodeInfo, NodeOrders, NodePoll, NodeStatus,
    NodeWelcome, PlacesAnswer, PlacesQuestion, SubmittedBatch, SubmittedJob,
};
use api::data_access::{BriefQuestion, TokensAnswer, TokensQuestion};
use api::drill::{DrillNews, DrillOutcome};
use api::flow::SubmittedFlow;
use api::fsck::{CheckAnswer, CheckNews, FsckAnswer};
use api::history::StepOf;
use api::intermediate::{CreatedIntermediate, NewIntermediate};
use api::kept::{GcAnswer, GcOptions, KeptAnnouncement};
use api::seen::{SeenAnswer, SeenNews, SeenNewsAnswer};
use api::stored::need::{DrainingNode, NodeNeed};
use api::{Boundaries, JobSpec, KeyBytes};
use control::program_jobs::FileHold;
use control::{FileRequest, NamedFile, NewSteps, NewStrike, PullRequest, RunningJob, SeenRequest};
use ids::{JobId, NodeId};
use jobkind::StepPlan;
use mapreduce::PartNodes;
use metastore::AuditRow;
use shipped::Hold;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ServerError>>;

/// A request to the event loop.
pub(crate) enum Request {
    Submit {
        submission: Box<Submission>,
        reply: Reply<SubmittedJob>,
    },
    /// Submits the stages of a flow, each after those that it reads.
    SubmitFlow {
        stages: Vec<Submission>,
        reply: Reply<SubmittedFlow>,
    },
    SubmitBatch {
        batch: Box<JobBatch>,
        /// A hold on the shipped files that they need.
        hold: Option<Arc<Hold>>,
        /// Quota of the user, in which these jobs count.
        quota: Option<UserQuota>,
        reply: Reply<SubmittedBatch>,
    },
    /// Steps of a job were checked. `problem`: the reason why they cannot begin.
    StepsChecked {
        new: NewSteps,
        problem: Option<String>,
    },
    Pull {
        request: Box<PullRequest>,
        reply: Reply<PullReply>,
    },
    Propose {
        job: JobId,
        keys: Vec<KeyBytes>,
        reply: Reply<Boundaries>,
    },
    Cancel {
        job: JobId,
        reason: String,
        /// Comes when it is stored.
        reply: Reply<()>,
    },
    Wait {
        job: JobId,
        reply: Reply<JobOutcome>,
    },
    Register {
        joining: Box<Joining>,
        reply: Reply<NodeWelcome>,
    },
    Poll {
        node: NodeId,
        poll: Box<NodePoll>,
        reply: Reply<NodeOrders>,
    },
    /// Handles the graceful shutdown of a node.
    Leave {
        node: NodeId,
        incarnation: String,
        reply: Reply<()>,
    },
    /// Drains a node.
    Drain {
        name: String,
        reply: Reply<NodeStatus>,
    },
    /// Handles the needs of stored files for nodes; answered with the nodes that are being drained.
    StoredNeeds {
        needs: Vec<NodeNeed>,
        reply: Reply<Vec<DrainingNode>>,
    },
    Places {
        job: JobId,
        question: PlacesQuestion,
        reply: Reply<PlacesAnswer>,
    },
    Brief {
        node: NodeId,
        job: JobId,
        question: BriefQuestion,
        reply: Reply<JobBrief>,
    },
    /// Asks for a job of which a node runs an attempt.
    RunningOn {
        node: NodeId,
        job: JobId,
        reply: Reply<RunningJob>,
    },
    /// Takes the nodes that have the stored inputs of a job now.
    InputsMoved {
        job: JobId,
        places: PartNodes,
        reply: Reply<bool>,
    },
    /// Sends a node tokens of jobs that are signed with the newest key.
    RenewTokens {
        node: NodeId,
        question: Box<TokensQuestion>,
        reply: Reply<TokensAnswer>,
    },
    Cluster {
        reply: Reply<ClusterStatus>,
    },
    /// Asks for the memory or architecture that a job waits for.
    WaitsFor {
        job: JobId,
        reply: Reply<Option<String>>,
    },
    /// Asks for the output so far of the program of a job.
    OutputSoFar {
        job: JobId,
        reply: Reply<Option<JobLogs>>,
    },
    /// Issues a token.
    IssueToken {
        token: Box<NewToken>,
        reply: Reply<()>,
    },
    RevokeToken {
        token: String,
        reply: Reply<()>,
    },
    /// Records the calls of users that changed something or were refused.
    Audit {
        rows: Vec<AuditRow>,
    },
    /// Handles a node's announcement of kept data.
    Kept {
        node: NodeId,
        announcement: Box<KeptAnnouncement>,
        reply: Reply<()>,
    },
    /// Removes data that jobs kept.
    Collect {
        options: Box<GcOptions>,
        /// User whose jobs these are; None: the jobs of all users.
        user: Option<String>,
        reply: Reply<GcAnswer>,
    },
    /// Begins a check of a job's kept data; with the name of a check, asks for its progress.
    Fsck {
        job: JobId,
        check: Option<String>,
        reply: Reply<FsckAnswer>,
    },
    /// Handles a node's findings for a check.
    CheckNews {
        node: NodeId,
        news: Box<CheckNews>,
        reply: Reply<CheckAnswer>,
    },
    /// Injects a fault into a node.
    Strike {
        strike: NewStrike,
        reply: Reply<DrillOutcome>,
    },
    /// Handles a node's report on the outcome of a fault.
    Struck {
        node: NodeId,
        news: DrillNews,
        reply: Reply<()>,
    },
    /// Lists files that only some nodes see.
    Seen {
        request: SeenRequest,
        reply: Reply<SeenAnswer>,
    },
    /// Handles a page of a node's listing.
    SeenListed {
        node: NodeId,
        news: Box<SeenNews>,
        reply: Reply<SeenNewsAnswer>,
    },
    /// Creates an intermediate file of a user.
    CreateFile {
        of: NamedFile,
        new: NewIntermediate,
        /// Byte quota of this user for all intermediate files; None is unlimited.
        bytes_max: Option<u64>,
        reply: Reply<CreatedIntermediate>,
    },
    /// Handles any other request about intermediate files.
    File(Box<FileRequest>),
    /// Comes from the thread that removed a job's directories.
    Cleaned {
        job: JobId,
        problem: Option<String>,
    },
    Shutdown {
        reply: Reply<()>,
    },
}

/// A node that joins, with its identity.
pub(crate) struct Joining {
    pub info: NodeInfo,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Name of its join token, if the token is its own.
    pub join_token: Option<String>,
}

/// A submitted job.
pub(crate) struct Submission {
    pub spec: Arc<JobSpec>,
    pub splits: Vec<api::Split>,
    /// A hold on the shipped files that it needs.
    pub hold: Option<FileHold>,
    pub user: String,
    pub priority: i32,
    /// Quota of the user, in which this job counts.
    pub quota: Option<UserQuota>,
    /// Indexes of the earlier stages of the flow that this stage reads.
    pub reads: Vec<u32>,
    /// Nodes with its stored inputs.
    pub part_nodes: Arc<PartNodes>,
    /// Set for a job with steps.
    pub plan: Option<Arc<dyn StepPlan>>,
    /// Set for a step of another job.
    pub step_of: Option<StepOf>,
}
