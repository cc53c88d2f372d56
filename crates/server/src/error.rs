//! The reasons why the server refuses a request or stops.

use ids::JobId;
use std::path::PathBuf;

/// An error that says who must act: the user (options, paths), the machine, or nobody (a failed look-up).
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Control(#[from] control::ControlError),
    #[error("the output {path} exists already; choose another or say --overwrite", path = path.display())]
    OutputExists { path: PathBuf },
    #[error("the output {path} is not a directory and is not overwritten", path = path.display())]
    OutputNotADirectory { path: PathBuf },
    #[error(transparent)]
    OutputNotOurs(#[from] output::output_dir::ForeignEntry),
    #[error("overwriting the output {output} would remove {inside}, which the job needs",
        output = output.display(), inside = inside.display())]
    OutputHoldsWhatTheJobNeeds { output: PathBuf, inside: PathBuf },
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
    #[error("another server uses the state in {state_dir}: end it first, or give another --state", state_dir = state_dir.display())]
    StateInUse { state_dir: PathBuf },
    #[error("cannot start the thread of the server: {0}")]
    Thread(std::io::Error),
    #[error("the job cannot be planned: {0}")]
    Plan(#[from] mapreduce::ExpandError),
    #[error(transparent)]
    NotReducible(#[from] crate::NotReducible),
    #[error("job {job} is {state}: its files are not removed while it runs")]
    NotCollectable { job: JobId, state: &'static str },
    #[error("the output: {0}")]
    Object(#[from] objects::ObjectError),
    #[error(transparent)]
    Store(#[from] metastore::StoreError),
    #[error("the server stopped because its store failed: {reason}")]
    Failed { reason: String },
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
    #[error("the environment file {path} is not among the files of the job", path = path.display())]
    EnvFileNotShipped { path: PathBuf },
    #[error(
        "an argument or environment variable of a program has {bytes} bytes, and the kernel accepts at most {max}: give a --file in its place"
    )]
    LongArgument { bytes: usize, max: usize },
    #[error(
        "the arguments and environment of a program have {bytes} bytes, and the kernel accepts at most {max}: give a --file in their place"
    )]
    ManyArguments { bytes: usize, max: usize },
    #[error(transparent)]
    BadResources(#[from] api::job::resources::ResourceError),
    #[error("the name of a {what} has {bytes} bytes: give at most {max}", max = api::control::NAME_BYTES_MAX)]
    LongName { what: &'static str, bytes: usize },
    #[error("the job cannot be taken: {0}")]
    Spec(#[from] mapreduce::SpecError),
    #[error("the job cannot be taken: {0}")]
    Kind(#[from] jobkind::KindError),
    #[error("the job cannot be taken: a job with steps has a name, a kind, shipped and pinned files only")]
    MoreThanSteps,
    #[error(
        "it runs in place, in the directory of its workflow, which only a run on this machine does: leave out `in_place`, \
         or run the workflow without --server"
    )]
    InPlace,
    #[error("it reads {path}, which is not among the stored files that its job has pinned: use `sailfish workflow run`, which pins them", path = path.display())]
    StepReadsOther { path: PathBuf },
    #[error("the stored file {path} is no pinned file of the job: pin it, or give another input", path = path.display())]
    InputNotPinned { path: PathBuf },
    #[error("it ships the file {path}, which is not among the shipped files of its job: ship it with the job", path = path.display())]
    StepShipsOther { path: PathBuf },
    #[error(transparent)]
    JobStep(#[from] jobkind::JobStepError),
    #[error(transparent)]
    Input(#[from] mapper::input::InputError),
    #[error(
        "its inputs have {bytes} bytes, and a job that is a step reads at most {max}: run it with `sailfish run`"
    )]
    LargeStep { bytes: u64, max: u64 },
    #[error("the job of which it is a step ends")]
    StepTooLate,
    #[error("the memory of the job: {0}")]
    Layout(#[from] mapreduce::layout::LayoutError),
    #[error(
        "the output {path} is not yours as far as this server knows, and a step replaces only your own outputs: choose \
         another, or remove it", path = path.display()
    )]
    OutputOfOther { path: PathBuf },
    #[error("job {job} runs and writes {path} too: wait for its end, or cancel it", path = path.display())]
    WrittenByOther { path: PathBuf, job: JobId },
    #[error("the flow cannot be taken: {0}")]
    Flow(#[from] crate::FlowError),
    #[error("{count} jobs were submitted together: give 1 to {max}", max = api::control::BATCH_JOBS_MAX)]
    BatchSize { count: usize },
    #[error(
        "jobs of {user:?} keep {kept_bytes} bytes of I-files, and a user may keep {bytes_max} here: remove some with `sailfish gc`"
    )]
    TooMuchKept { user: String, kept_bytes: u64, bytes_max: u64 },
    #[error("{user:?} has the role {role}: give that role, or name another user")]
    RoleDiffers { user: String, role: &'static str },
    #[error("there is no token {token:?}: `sailfish token ls` lists all tokens")]
    UnknownToken { token: String },
    #[error("{retries} retries are too many: give at most {max}", max = api::task::RUN_RETRIES_MAX)]
    TooManyRetries { retries: u32 },
    #[error("{name:?} is not a valid file name in the directory of a program")]
    BadFileName { name: PathBuf },
    #[error(transparent)]
    TaskFiles(#[from] api::task::TaskFileError),
    #[error("a job ships {count} files: at most {max}", max = api::shipping::SHIPPED_FILES_MAX)]
    TooManyFiles { count: usize },
    #[error("the job needs the file {content}, which you have not shipped to this server, or too long ago")]
    NotShipped { content: api::ContentHash },
    #[error(transparent)]
    Shipped(#[from] shipped::ShippedError),
    #[error("the server has been shut down")]
    ShutDown,
}
