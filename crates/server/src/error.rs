//! Why the server refuses or gives up.

use control::users::NoRoom;
use ids::{JobId, NodeId};
use std::path::PathBuf;

/// Answers whose move it is: the user's (options, paths), the machine's, or a look-up that went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the output {path} exists already; choose another or say --overwrite", path = path.display())]
    OutputExists { path: PathBuf },
    #[error("the output {path} is not a directory and is not overwritten", path = path.display())]
    OutputNotADirectory { path: PathBuf },
    #[error("the output {path} holds {entry:?}, which no job wrote there: --overwrite replaces only an empty directory, or one with \
        nothing but an output; choose another, or move that away", path = path.display())]
    OutputNotOurs { path: PathBuf, entry: std::ffi::OsString },
    #[error("overwriting the output {output} would remove {inside}, which the job needs",
        output = output.display(), inside = inside.display())]
    OutputHoldsWhatTheJobNeeds { output: PathBuf, inside: PathBuf },
    #[error("a job needs {needs} MiB of memory on a node, and the largest node has {largest} MiB for jobs: give less with \
        --memory, or add a larger node", needs = needs_bytes.div_ceil(1 << 20), largest = largest_bytes >> 20)]
    FitsNowhere { needs_bytes: u64, largest_bytes: u64 },
    #[error("a job needs a node of the architecture {name:?}, and there are only nodes of {there}")]
    NoSuchArchitecture { name: String, there: String },
    #[error(transparent)]
    OutsideRoots(#[from] roots::OutsideRoots),
    #[error("the output {path} cannot be read to see whether it may be replaced: {source}", path = path.display())]
    OutputUnreadable { path: PathBuf, source: std::io::Error },
    #[error("the output {path} has no name or no parent directory", path = path.display())]
    OutputUnusable { path: PathBuf },
    #[error("cannot create the directory {path}: {source}", path = path.display())]
    DirectoryUnwritable { path: PathBuf, source: std::io::Error },
    #[error("cannot take the owner lock in {path}: {source}", path = path.display())]
    OwnerLock { path: PathBuf, source: std::io::Error },
    #[error("another server works with the state in {state_dir}: end it first, or give this one another --state", state_dir = state_dir.display())]
    StateInUse { state_dir: PathBuf },
    #[error("cannot start the thread of the server: {0}")]
    Thread(std::io::Error),
    #[error("there is no job {job} in this server")]
    UnknownJob { job: JobId },
    #[error("the job cannot be planned: {0}")]
    Plan(#[from] mapreduce::ExpandError),
    #[error(transparent)]
    NotReducible(#[from] crate::NotReducible),
    #[error("job {job} is {state}: its files are not removed while it runs")]
    NotCollectable { job: JobId, state: &'static str },
    #[error("the I-files of job {job} cannot be checked: {reason}")]
    CheckFailed { job: JobId, reason: String },
    #[error(
        "there is no such check: nobody asked about it for too long, or the server began anew; begin again"
    )]
    UnknownCheck,
    #[error("{checks_max} checks of I-files go on already: begin this one when one of them is done")]
    TooManyChecks { checks_max: usize },
    #[error(
        "{node} did not say what became of the fault: it was struck by it, or something else has struck it"
    )]
    DrillUnanswered { node: NodeId },
    #[error("{node} is the only node that works: a drill does not end it")]
    LastNode { node: NodeId },
    #[error("job {job} is not of a drill: only data and programs of jobs are struck whose name begins with {prefix}",
        prefix = api::drill::DRILL_JOB_PREFIX)]
    NotOfDrill { job: JobId },
    #[error("{strikes_max} faults are under way already: wait until nodes have said what became of them")]
    TooManyStrikes { strikes_max: usize },
    #[error("there is no intermediate file {name:?}: `sailfish ifile list` lists those there are")]
    UnknownIntermediate { name: String },
    #[error(
        "there is an intermediate file {name:?} already, which is {state}: it has one writer, and never changes; remove it first"
    )]
    IntermediateExists { name: String, state: &'static str },
    #[error("{name:?} is no name of an intermediate file: give 1 to {max} bytes that can be printed",
        max = api::intermediate::INTERMEDIATE_NAME_BYTES_MAX)]
    BadIntermediateName { name: String },
    #[error("a writer may be silent for 1 to {max} seconds, not for {seconds}", max = api::intermediate::SILENCE_SECONDS_MAX)]
    BadSilence { seconds: u32 },
    #[error("there are {max} intermediate files of this user, or too many of all: remove some first")]
    TooManyIntermediates { max: usize },
    #[error("{max} readers wait for files already: ask again in a moment")]
    TooManyReaders { max: usize },
    #[error("no node takes intermediate files now: none works, or their disks are full")]
    NoNodeForFile,
    #[error("the output: {0}")]
    Object(#[from] objects::ObjectError),
    #[error(transparent)]
    Store(#[from] metastore::StoreError),
    #[error("the server stopped because its store failed: {reason}")]
    Failed { reason: String },
    #[error(
        "there is no {node} of that incarnation: it was not heard of for too long, or the server is another one"
    )]
    UnknownNode { node: NodeId },
    #[error("{node} has nothing to do with job {job}: it runs nothing of it, and holds nothing of it")]
    NotOfNode { node: NodeId, job: JobId },
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
    #[error("the file with the environment {path} is not among the files that the job brings", path = path.display())]
    EnvFileNotShipped { path: PathBuf },
    #[error("no node of the name {name} works for this server")]
    NoSuchNode { name: String },
    #[error(
        "{word} may mean two nodes: {} named {:?}, and {} named {:?}: say another name or number of the one you mean",
        number(nodes[0].0), nodes[0].1, number(nodes[1].0), nodes[1].1
    )]
    TwoNodes { word: String, nodes: [(NodeId, String); 2] },
    #[error("{node} cannot be emptied: there is no other node that could take over what it holds")]
    NowhereToMove { node: NodeId },
    #[error("the name {name} belongs to {node}, which lives: give another with --name")]
    NameTaken { name: String, node: NodeId },
    #[error("the node cannot be taken in: {what}")]
    UnusableNode { what: String },
    #[error(
        "a word of a program, or a variable with its name, has {bytes} bytes: no kernel starts a program with more than {max}; \
        give a --file in its place"
    )]
    LongArgument { bytes: usize, max: usize },
    #[error(
        "the words and variables of a program have {bytes} bytes: no kernel starts a program with more than {max}; \
        give a --file in their place"
    )]
    ManyArguments { bytes: usize, max: usize },
    #[error("the name of a {what} has {bytes} bytes: give at most {max}", max = api::control::NAME_BYTES_MAX)]
    LongName { what: &'static str, bytes: usize },
    #[error("the job cannot be taken: {0}")]
    Spec(#[from] mapreduce::SpecError),
    #[error("the flow cannot be taken: {0}")]
    Flow(crate::FlowError),
    #[error("this server speaks version {server} of its protocol, the caller version {caller}")]
    ProtocolDiffers { server: u32, caller: u32 },
    #[error("{count} jobs were handed in together; give 1 to {max}", max = api::control::BATCH_JOBS_MAX)]
    BatchSize { count: usize },
    #[error("{user:?} has {jobs_max} jobs that are not over, which is the most a user may have here")]
    TooManyJobs { user: String, jobs_max: u32 },
    #[error(
        "the words, variables and names of files of the jobs of {user:?} that are not over would have more than {bytes_max} bytes, \
         which is the most a user may have here: give data as files"
    )]
    TooManySpecBytes { user: String, bytes_max: u64 },
    #[error(
        "jobs of {user:?} keep {kept_bytes} bytes of I-files, and a user may keep {bytes_max} here: remove some with `sailfish gc`"
    )]
    TooMuchKept { user: String, kept_bytes: u64, bytes_max: u64 },
    #[error(
        "{user:?} has intermediate files of {bytes_max} bytes, which is the most a user may have here: remove some first"
    )]
    TooManyIntermediateBytes { user: String, bytes_max: u64 },
    #[error("the role of {user:?} is {role}: give it, or name another user")]
    RoleDiffers { user: String, role: &'static str },
    #[error("there is no token {token:?}: `sailfish token ls` lists those there are")]
    UnknownToken { token: String },
    #[error("a program is run {retries} times more; give at most {max}", max = api::task::RUN_RETRIES_MAX)]
    TooManyRetries { retries: u32 },
    #[error("{name:?} is no name of a file in the directory of a program")]
    BadFileName { name: PathBuf },
    #[error("a job ships {count} files: at most {max}", max = api::shipping::SHIPPED_FILES_MAX)]
    TooManyFiles { count: usize },
    #[error("the job needs the file {content}, which you have not shipped to this server, or too long ago")]
    NotShipped { content: api::ContentHash },
    #[error(transparent)]
    Shipped(#[from] shipped::ShippedError),
    #[error("the server has been shut down")]
    ShutDown,
}

/// A number of a node as lists print it.
fn number(node: NodeId) -> String {
    format!("#{}", node.0)
}

impl ServerError {
    /// A user may not have so much.
    pub(crate) fn of_quota(user: &str, error: NoRoom) -> Self {
        let user = user.to_string();
        match error {
            NoRoom::Jobs { jobs_max } => Self::TooManyJobs { user, jobs_max },
            NoRoom::SpecBytes { bytes_max } => Self::TooManySpecBytes { user, bytes_max },
        }
    }
}
