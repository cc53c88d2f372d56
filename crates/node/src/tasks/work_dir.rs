//! The private work directory of an attempt that runs user programs.

use crate::failure::{file_failure, named_failure};
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::tasks::commit::recording;
use crate::tasks::declared_reads::is_of_system;
use crate::tasks::streaming_env::{self, TaskPlace};
use api::{Blame, FileLink, Function, InputFile, JobSpec, TaskFailure};
use faults::{IoCall, io_call};
use ids::{AttemptKey, JobId};
use program::{
    DeclaredReads, EnvFileError, FunctionContext, Named, Network, OpenNamed, ProgramLimits, Sandbox,
};
use programport::OpenPort;
use roots::JobPaths;
use rustix::fs::Access;
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is removed with the attempt.
pub(crate) struct WorkDir {
    path: PathBuf,
    created: bool,
    /// Leads the programs to the server.
    port: Option<OpenPort>,
}

impl WorkDir {
    /// Creates the directory with links to the job's files, if one of the functions is a program.
    pub fn create(
        shared: &Shared,
        job: &AttemptData,
        attempt: AttemptKey,
        functions: &[Option<&Function>],
    ) -> Result<Self, TaskFailure> {
        let name = format!("work-{}-{}-{}", attempt.task.stage.0, attempt.task.task.0, attempt.attempt.0);
        if !functions.iter().flatten().any(|function| matches!(function, Function::Command { .. })) {
            return Ok(Self { path: job.run.disk_dirs[0].join(name), created: false, port: None });
        }
        let path = create_on_one_of(&job.run.disk_dirs, &name)?;
        let mut work_dir = Self { path, created: true, port: None };
        work_dir.port = open_port(shared, attempt.task.job, &work_dir.path)?;
        for file in &job.run.spec.files {
            let name = file.file_name().unwrap_or(file.as_os_str());
            let link = work_dir.path.join(name);
            let linked = io_call(IoCall::Create, &link).and_then(|()| symlink(file, &link));
            linked.map_err(|error| file_failure("link", &link, error))?;
        }
        for link in job.run.spec.streaming.iter().flat_map(|streaming| &streaming.links) {
            work_dir.put(&job.run.paths, link, functions)?;
        }
        Ok(work_dir)
    }

    /// Links a file; a program without execute permission is copied and made executable, as in Hadoop.
    fn put(
        &self,
        paths: &JobPaths,
        link: &FileLink,
        functions: &[Option<&Function>],
    ) -> Result<(), TaskFailure> {
        let place = self.path.join(&link.name);
        let is_program = |function: &&Function| match function {
            Function::Command { words } => words.first() == Some(&link.name),
            Function::Builtin { .. } => false,
        };
        let unreadable = |error| named_failure("read", &link.path, error);
        let mut file = paths.open_file(&link.path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let executable = metadata.permissions().mode() & 0o111 != 0;
        if executable || metadata.is_dir() || !functions.iter().flatten().any(is_program) {
            let linked = io_call(IoCall::Create, &place).and_then(|()| symlink(&link.path, &place));
            return linked.map_err(|error| file_failure("link", &place, error));
        }
        let copied = io_call(IoCall::Write, &place)
            .and_then(|()| std::io::copy(&mut file, &mut File::create_new(&place)?));
        copied.map_err(|error| file_failure("copy", &link.path, error))?;
        std::fs::set_permissions(&place, Permissions::from_mode(0o755))
            .map_err(|error| file_failure("make executable", &place, error))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the variable that names the socket of the node.
    fn socket_variable(&self) -> Option<(String, String)> {
        self.port.as_ref().map(socket_variable)
    }

    /// Returns the failure of the attempt; it is not the user's if the directory is lost or not writable, because its
    /// disk failed.
    pub fn excuse(&self, failure: TaskFailure) -> TaskFailure {
        let is_usable = || rustix::fs::access(&self.path, Access::WRITE_OK | Access::EXEC_OK);
        match failure.blame {
            Blame::UserProgram if self.created => match is_usable() {
                Ok(()) => failure,
                Err(error) => {
                    let lost = file_failure("use", &self.path, error);
                    TaskFailure::new(
                        Blame::Environment,
                        format!("{}, the work directory of a failed program", lost.message),
                    )
                }
            },
            _ => failure,
        }
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.created {
            // Remaining files are in the job's directory and are removed with it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Variable with the socket of the node, for programs.
const SOCKET_VARIABLE: &str = "SAILFISH_SOCKET";

/// Opens a socket of this node for the programs of an attempt; None without a server.
pub(crate) fn open_port(shared: &Shared, job: JobId, dir: &Path) -> Result<Option<OpenPort>, TaskFailure> {
    let port = shared.options.program_port.as_ref();
    let opened = port.map(|port| io_call(IoCall::Create, dir).and_then(|()| port.open(dir, job)));
    opened.transpose().map_err(|error| file_failure("open a socket in", dir, error))
}

pub(crate) fn socket_variable(port: &OpenPort) -> (String, String) {
    (SOCKET_VARIABLE.to_string(), port.socket().to_string_lossy().into_owned())
}

/// Creates a directory on the first disk that accepts it.
fn create_on_one_of(disk_dirs: &[PathBuf], name: &str) -> Result<PathBuf, TaskFailure> {
    let mut first_failure = None;
    for dir in disk_dirs {
        let path = dir.join(name);
        match io_call(IoCall::Create, &path).and_then(|()| std::fs::create_dir_all(&path)) {
            Ok(()) => return Ok(path),
            Err(error) => {
                first_failure = first_failure.or_else(|| Some(file_failure("create", &path, error)))
            }
        }
    }
    Err(first_failure
        .unwrap_or_else(|| TaskFailure::new(Blame::Engine, "a node has no disk for its programs")))
}

/// Maximum number of a job's inputs that all its programs may read; if there are more, a map's program may read those
/// of its task.
const INPUT_RULES_MAX: usize = 64;

/// Returns the paths that the programs of an attempt may read: inputs of its job, and the job's files.
fn readable(job: &AttemptData, place: TaskPlace<'_>) -> Vec<PathBuf> {
    let spec = &job.run.spec;
    let of_task = match place {
        TaskPlace::Map(split) => split.segments.as_slice(),
        TaskPlace::Reduce(_) => &[],
    };
    let of_task = of_task.iter().filter_map(|segment| spec.inputs.get(segment.file_index as usize));
    let inputs: Vec<&InputFile> = match spec.inputs.len() > INPUT_RULES_MAX {
        true => of_task.collect(),
        false => spec.inputs.iter().collect(),
    };
    // Only the engine reads objects and the output of earlier stages; of stored files, programs read copies.
    let inputs = inputs.into_iter().filter(|input| input.is_path()).map(|input| input.path.clone());
    let mut paths: BTreeSet<PathBuf> = inputs.collect();
    paths.extend(spec.files.iter().cloned());
    let recording = spec.recording.iter();
    paths.extend(recording.flat_map(|recording| recording.files.iter().chain(&recording.reads)).cloned());
    paths.extend(job.files.paths().map(Path::to_path_buf));
    paths.extend(spec.streaming.iter().flat_map(|streaming| &streaming.links).map(|link| link.path.clone()));
    paths.into_iter().collect()
}

/// Returns whether a path is one that a step may read besides its files, and lies in a folder of the system.
fn is_read_anyway(spec: &JobSpec, path: &PathBuf) -> bool {
    spec.recording.iter().any(|recording| recording.reads.contains(path)) && is_of_system(path)
}

/// Paths and rights that the sandbox of a job's programs needs.
pub(crate) struct SandboxNeeds {
    pub readable: Vec<PathBuf>,
    /// The work directory, if the job chose it.
    pub work_dir: Option<PathBuf>,
    /// Directories of the node.
    pub writable: Vec<PathBuf>,
    /// The job asks for the network.
    pub has_network: bool,
}

/// Returns the sandbox of the node for a program of a job, which opens the job's paths through `paths`.
pub(crate) fn sandbox_for(
    base: &Sandbox,
    paths: &JobPaths,
    needs: SandboxNeeds,
) -> Result<Arc<Sandbox>, TaskFailure> {
    let paths = paths.clone();
    let open: OpenNamed = Arc::new(move |path| paths.open_place(path));
    let named = Named { readable: needs.readable, work_dir: needs.work_dir, open };
    let network = if needs.has_network { Network::Allowed } else { Network::None };
    base.for_job(named, needs.writable, network).map(Arc::new)
}

/// Returns the context of the functions of an attempt.
pub(crate) fn function_context(
    shared: &Shared,
    job: &AttemptData,
    attempt: AttemptKey,
    place: TaskPlace<'_>,
    work_dir: &WorkDir,
) -> Result<FunctionContext, TaskFailure> {
    let spec = &job.run.spec;
    let mut task_env = vec![
        ("SAILFISH_STAGE".to_string(), attempt.task.stage.0.to_string()),
        ("SAILFISH_TASK".to_string(), attempt.task.task.0.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    task_env.extend(work_dir.socket_variable());
    let mut env = vec![("SAILFISH_JOB".to_string(), attempt.task.job.to_string())];
    env.extend(task_env.iter().cloned());
    env.extend(shared.options.program_env.iter().cloned());
    if let Some(streaming) = &spec.streaming {
        env.extend(streaming_env::variables(job, streaming, attempt, place, work_dir.path()));
    }
    recording::begin(shared, job);
    let base = shared.options.sandbox.as_ref();
    let readable = readable(job, place);
    let recording = spec.recording.as_ref().filter(|_| base.is_none());
    let declared_reads = recording
        .and_then(|recording| DeclaredReads::new(&recording.directory, readable.clone()))
        .map(Arc::new);
    // A sandbox shows these anyway, and they may lie outside of the node's roots.
    let readable: Vec<PathBuf> =
        readable.into_iter().filter(|path| base.is_none() || !is_read_anyway(spec, path)).collect();
    let named = job.run.disk_dirs.iter().chain(&readable).cloned().collect();
    let needs = SandboxNeeds { readable, work_dir: None, writable: Vec::new(), has_network: spec.network };
    let sandbox = base.map(|base| sandbox_for(base, &job.run.paths, needs)).transpose()?;
    // A directory of a user may lie in `/tmp`.
    if sandbox.is_some() || declared_reads.is_some() {
        env.push(("TMPDIR".to_string(), work_dir.path().to_string_lossy().into_owned()));
    }
    env.extend(env_of_file(spec.env_file.as_deref())?);
    env.extend(spec.env.iter().cloned());
    // Variables of the job override these.
    task_env.retain(|(name, _)| !spec.env.iter().any(|(given, _)| given == name));
    Ok(FunctionContext {
        programs: Arc::clone(&shared.options.programs),
        work_dir: work_dir.path().to_path_buf(),
        start_dir: shared.options.start_dir.clone(),
        env,
        task_env,
        // The environment of streaming programs contains more of the attempt.
        kept_for: spec.streaming.is_none().then_some(job.job),
        record_bytes_max: spec.layout.record_bytes_max,
        buffer_bytes: job.buffer_bytes(),
        cancelled: Arc::clone(&job.cancelled),
        limits: ProgramLimits { of_job: spec.limits, of_node: shared.options.limits },
        disk_dirs: vec![work_dir.path().to_path_buf()],
        stderr_log: None,
        reports: Arc::default(),
        sandbox,
        declared_reads,
        any_exit_code: spec.streaming.as_ref().is_some_and(|streaming| streaming.any_exit_code),
        named,
    })
}

/// Returns the variables of a shipped environment file.
pub(crate) fn env_of_file(path: Option<&Path>) -> Result<Vec<(String, String)>, TaskFailure> {
    let Some(path) = path else { return Ok(Vec::new()) };
    // The client has read it before: a disk may have failed here.
    program::read_env_file(path).map_err(|error| {
        let blame = match error {
            EnvFileError::Unreadable { .. } => Blame::Environment,
            _ => Blame::UserData,
        };
        TaskFailure::new(blame, error.to_string())
    })
}
