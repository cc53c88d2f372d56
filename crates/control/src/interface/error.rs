//! The reasons why control refuses a request.

use crate::users::NoRoom;
use ids::{JobId, NodeId};

/// An error that the caller can fix, or that allows a retry. Each sentence says which.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("a job needs {needs} MiB of memory on a node, and the largest node has {largest} MiB for jobs: give less with \
        --memory, or add a larger node", needs = needs_bytes.div_ceil(1 << 20), largest = largest_bytes >> 20)]
    FitsNowhere { needs_bytes: u64, largest_bytes: u64 },
    #[error(
        "a job needs {needs_slots} slots of one node at once, one for each core of its programs, and the largest node \
        has {largest_slots}: ask for fewer cores, or add a larger node"
    )]
    FewSlots { needs_slots: u32, largest_slots: u32 },
    #[error(
        "a job needs {name}={needs} of one node, and the largest amount of a node that has its other needs is {largest}: ask \
         for less, or add a node with --resource {name}={needs}"
    )]
    FewResources { name: String, needs: u32, largest: u32 },
    #[error("a job needs a node of the architecture {name:?}, and there are only nodes of {there}")]
    NoSuchArchitecture { name: String, there: String },
    #[error("there is no job {job} in this server")]
    UnknownJob { job: JobId },
    #[error("the I-files of job {job} cannot be checked: {reason}")]
    CheckFailed { job: JobId, reason: String },
    #[error(
        "the check no longer exists: its client stopped polling, or the server was restarted; begin a new check"
    )]
    UnknownCheck,
    #[error("{checks_max} checks of I-files are under way: retry when one of them is done")]
    TooManyChecks { checks_max: usize },
    #[error("the files of {path} that only some nodes see cannot be listed: {reason}")]
    NotListed { path: String, reason: String },
    #[error("{node} did not report the result of the fault: this fault or another one ended it")]
    DrillUnanswered { node: NodeId },
    #[error("{node} is the only working node: a drill may not end it")]
    LastNode { node: NodeId },
    #[error("job {job} is not part of a drill: faults strike only jobs whose name begins with {prefix}",
        prefix = api::drill::DRILL_JOB_PREFIX)]
    NotOfDrill { job: JobId },
    #[error("{strikes_max} faults are under way already: wait for their results")]
    TooManyStrikes { strikes_max: usize },
    #[error("there is no intermediate file {name:?}: `sailfish intermediate list` lists all files")]
    UnknownIntermediate { name: String },
    #[error(
        "the intermediate file {name:?} exists already and is {state}: a file has one writer and never changes; remove it first, or say --replace"
    )]
    IntermediateExists { name: String, state: &'static str },
    /// It says the same about files that are not there: the names of others are not told.
    #[error(
        "the intermediate files of {user:?} belong to another user: only {user:?}, members of groups that {user:?} named and \
         administrators may do this"
    )]
    IntermediateOfOther { user: String },
    #[error("only administrators may give the intermediate file {name:?} another owner")]
    OwnerOfIntermediate { name: String },
    #[error("{user:?} is no name of a user")]
    BadUser { user: String },
    #[error("{name:?} is not a valid name of an intermediate file: give 1 to {max} printable bytes",
        max = api::intermediate::INTERMEDIATE_NAME_BYTES_MAX)]
    BadIntermediateName { name: String },
    #[error("a writer may be silent for 1 to {max} seconds, not for {seconds}", max = api::intermediate::SILENCE_SECONDS_MAX)]
    BadSilence { seconds: u32 },
    #[error(
        "this user has {max} intermediate files, or all users together have the maximum: remove some first"
    )]
    TooManyIntermediates { max: usize },
    #[error("{max} readers already wait for files: retry in a moment")]
    TooManyReaders { max: usize },
    #[error("no node takes intermediate files now: no node is working, or all disks are full")]
    NoNodeForFile,
    #[error("{node} is unknown in this incarnation: its lease has ended, or this is another server")]
    UnknownNode { node: NodeId },
    #[error("{node} may not ask about job {job}: it runs no attempt of the job and holds no data of it")]
    NotOfNode { node: NodeId, job: JobId },
    #[error("no node of the name {name} is in this cluster")]
    NoSuchNode { name: String },
    #[error(
        "{word} may mean two nodes: {} named {:?}, and {} named {:?}: give another name or number of the node",
        number(nodes[0].0), nodes[0].1, number(nodes[1].0), nodes[1].1
    )]
    TwoNodes { word: String, nodes: [(NodeId, String); 2] },
    #[error("{node} cannot be drained: no other node can take its data")]
    NowhereToMove { node: NodeId },
    #[error("the name {name} belongs to {node}, which is alive: give another name with --name")]
    NameTaken { name: String, node: NodeId },
    #[error("the node cannot join: {what}")]
    UnusableNode { what: String },
    #[error("this server speaks version {server} of its protocol, the caller version {caller}")]
    ProtocolDiffers { server: u32, caller: u32 },
    #[error("{user:?} has {jobs_max} unfinished jobs, the limit of a user on this server")]
    TooManyJobs { user: String, jobs_max: u32 },
    #[error(
        "the arguments, environments and file names of the unfinished jobs of {user:?} would take more than {bytes_max} bytes, the limit of a user on this server: give data as files"
    )]
    TooManySpecBytes { user: String, bytes_max: u64 },
    #[error(
        "the intermediate files of {user:?} have {bytes_max} bytes, the limit of a user on this server: remove some first"
    )]
    TooManyIntermediateBytes { user: String, bytes_max: u64 },
}

/// Formats the number of a node as lists print it.
fn number(node: NodeId) -> String {
    format!("#{}", node.0)
}

impl ControlError {
    /// Converts an exceeded quota of a user to an error.
    pub(crate) fn of_quota(user: &str, error: NoRoom) -> Self {
        let user = user.to_string();
        match error {
            NoRoom::Jobs { jobs_max } => Self::TooManyJobs { user, jobs_max },
            NoRoom::SpecBytes { bytes_max } => Self::TooManySpecBytes { user, bytes_max },
        }
    }
}
