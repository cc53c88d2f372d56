//! Requests to the loop.

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
use api::intermediate::{CreatedIntermediate, NewIntermediate};
use api::kept::{GcAnswer, GcOptions, KeptAnnouncement};
use api::{Boundaries, JobSpec, KeyBytes};
use control::{FileRequest, NewStrike, PullRequest};
use ids::{JobId, NodeId};
use metastore::AuditRow;
use shipped::Hold;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ServerError>>;

/// A request to the loop.
pub(crate) enum Request {
    Submit {
        submission: Box<Submission>,
        reply: Reply<SubmittedJob>,
    },
    /// The stages of a flow, each behind those that it reads.
    SubmitFlow {
        stages: Vec<Submission>,
        reply: Reply<SubmittedFlow>,
    },
    SubmitBatch {
        batch: Box<JobBatch>,
        /// Hold on the shipped files that they need.
        hold: Option<Arc<Hold>>,
        /// Jobs that the user may have at once, these with them.
        quota: Option<UserQuota>,
        reply: Reply<SubmittedBatch>,
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
        /// For whoever wants to know that it is stored.
        reply: Option<Reply<()>>,
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
    /// A node says good-bye.
    Leave {
        node: NodeId,
        incarnation: String,
        reply: Reply<()>,
    },
    /// A node is to be emptied.
    Drain {
        name: String,
        reply: Reply<NodeStatus>,
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
    /// A node wants tokens of jobs that are signed with the newest key.
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
    /// Gives out a token.
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
    /// A node tells what is kept on its disks.
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
    /// Begins to check the data that a job kept; with the name of a check, asks for its progress.
    Fsck {
        job: JobId,
        check: Option<String>,
        reply: Reply<FsckAnswer>,
    },
    /// A node tells what it has read for a check.
    CheckNews {
        node: NodeId,
        news: Box<CheckNews>,
        reply: Reply<CheckAnswer>,
    },
    /// A fault for a node.
    Strike {
        strike: NewStrike,
        reply: Reply<DrillOutcome>,
    },
    /// A node tells the outcome of a fault.
    Struck {
        node: NodeId,
        news: DrillNews,
        reply: Reply<()>,
    },
    /// Makes an intermediate file of a user.
    CreateFile {
        user: String,
        new: NewIntermediate,
        /// Limit of the bytes of all intermediate files of this user; None: no limit.
        bytes_max: Option<u64>,
        reply: Reply<CreatedIntermediate>,
    },
    /// Another request about intermediate files.
    File(Box<FileRequest>),
    /// From the thread that removed a job's directories.
    Cleaned {
        job: JobId,
        problem: Option<String>,
    },
    Shutdown {
        reply: Reply<()>,
    },
}

/// A node that comes, and by what it will be known.
pub(crate) struct Joining {
    pub info: NodeInfo,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// The name of the token that it came by, where it has one of its own.
    pub join_token: Option<String>,
}

/// A job handed in.
pub(crate) struct Submission {
    pub spec: Arc<JobSpec>,
    pub splits: Vec<api::Split>,
    /// Hold on the shipped files that it needs.
    pub hold: Option<Arc<Hold>>,
    pub user: String,
    pub priority: i32,
    /// Limits of the user, who may have this job within them.
    pub quota: Option<UserQuota>,
    /// Indexes of the earlier stages of the flow that this stage reads.
    pub reads: Vec<u32>,
}
