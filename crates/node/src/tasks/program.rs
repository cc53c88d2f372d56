//! The task of a job that is no MapReduce job: any executable, run once.

use crate::attempt::{Assignment, JobRun};
use crate::failure::file_failure;
use crate::shared::Shared;
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::declared_files::DeclaredFiles;
use crate::tasks::work_dir::{SandboxNeeds, env_of_file, open_port, sandbox_for, socket_variable};
use api::task::{RunResult, RunTask};
use api::{LimitKind, TaskFailure};
use faults::{IoCall, io_call};
use ids::JobId;
use program::{FunctionContext, ProgramLimits, ProgramSpec, Sandbox, TemporaryDir};
use programport::OpenPort;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of directories of programs in errors.
const SOCKETS: &str = "the directory for sockets of programs";
const TEMPORARY: &str = "the directory for temporary files of a program";

/// Creates links to files in a directory.
fn link(files: &[PathBuf], dir: &Path) -> Result<(), TaskFailure> {
    for file in files {
        let link = dir.join(file.file_name().unwrap_or(file.as_os_str()));
        let linked = io_call(IoCall::Create, &link).and_then(|()| symlink(file, &link));
        linked.map_err(|error| file_failure("link", &link, error))?;
    }
    Ok(())
}

/// Opens a socket of the node for the program; None without a server.
fn open_socket(shared: &Shared, job: JobId) -> Result<Option<OpenPort>, TaskFailure> {
    if shared.options.program_port.is_none() {
        return Ok(None);
    }
    let dir = shared.options.programs.socket_directory();
    let dir = dir.map_err(|error| file_failure("create", Path::new(SOCKETS), error))?;
    open_port(shared, job, &dir)
}

/// Makes a directory for the temporary files of a program in a sandbox or with a limit on disks, or for links to files
/// of the job.
fn temporary_dir(
    shared: &Shared,
    task: &RunTask,
    limits: &ProgramLimits,
) -> Result<Option<TemporaryDir>, TaskFailure> {
    let is_measured = limits.get(LimitKind::Disk).is_some();
    let needs_own = is_measured || shared.options.sandbox.is_some() || task.has_own_directory();
    let dir = needs_own.then(|| shared.options.programs.private_directory());
    dir.transpose().map_err(|error| file_failure("create", Path::new(TEMPORARY), error))
}

/// Returns the sandbox of a program; None: the node has none.
fn sandbox_in(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
    files: &AttemptFiles,
    temporary: Option<&TemporaryDir>,
) -> Result<Option<Arc<Sandbox>>, TaskFailure> {
    let Some(base) = &shared.options.sandbox else { return Ok(None) };
    let work_dir = Some(task.directory.clone()).filter(|_| !task.has_own_directory());
    let needs = SandboxNeeds {
        readable: task
            .files
            .iter()
            .map(PathBuf::as_path)
            .chain(task.inputs.iter().map(|input| input.path.as_path()))
            .chain(files.paths())
            .map(Path::to_path_buf)
            .collect(),
        work_dir,
        writable: temporary.map(|own| own.path().to_path_buf()).into_iter().collect(),
        has_network: task.network,
    };
    sandbox_for(base, &assignment.job.paths, needs).map(Some)
}

/// Puts the files of a job and its declared inputs into the directory of its program.
fn bring<'a>(
    assignment: &'a Assignment,
    task: &'a RunTask,
    dir: &Path,
) -> Result<DeclaredFiles<'a>, TaskFailure> {
    link(&task.files, dir)?;
    DeclaredFiles::bring(task, &assignment.job.paths, dir)
}

/// Publishes the outputs of a program that has succeeded.
fn take(
    shared: &Shared,
    assignment: &Assignment,
    declared: &DeclaredFiles<'_>,
    dir: &Path,
) -> Result<(), TaskFailure> {
    // Processes that the program left behind could still write to its outputs.
    shared.options.programs.end_attempt();
    declared.take(dir, assignment.attempt, &assignment.cancelled)
}

/// Runs the program, or nothing if none is named. A failure includes its output too.
pub(crate) fn run(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
) -> Result<RunResult, TaskFailure> {
    if task.words.is_empty() {
        return Ok(RunResult::default());
    }
    if task.pinned.is_empty() {
        return run_with(shared, assignment, task, &AttemptFiles::default());
    }
    let mut task = task.clone();
    let files = AttemptFiles::bring_for_program(shared, assignment, &mut task)?;
    let paths = assignment.job.paths.with_more_own(files.paths().map(Path::to_path_buf));
    let job = Arc::new(JobRun { paths, ..assignment.job.as_ref().clone() });
    let assignment = Assignment { job, ..assignment.clone() };
    let ran = run_with(shared, &assignment, &task, &files);
    ran.map_err(|failure| files.named_in(failure))
}

/// Runs the program, which may open these copies of stored files.
fn run_with(
    shared: &Shared,
    assignment: &Assignment,
    task: &RunTask,
    files: &AttemptFiles,
) -> Result<RunResult, TaskFailure> {
    let attempt = assignment.attempt;
    let listed = shared.outputs.begin(attempt);
    let output = &*listed.output;
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    env.extend(shared.options.program_env.iter().cloned());
    let socket = open_socket(shared, attempt.task.job)?;
    env.extend(socket.as_ref().map(socket_variable));
    // The working directory belongs to the job; temporary files do not go there.
    let limits = ProgramLimits { of_job: *task.limits, of_node: shared.options.limits };
    let temporary = temporary_dir(shared, task, &limits)?;
    let own_directory = temporary.as_ref().filter(|_| task.has_own_directory()).map(TemporaryDir::path);
    let declared = own_directory.map(|own| bring(assignment, task, own)).transpose()?;
    let work_dir = own_directory.unwrap_or(&task.directory).to_path_buf();
    let sandbox = sandbox_in(shared, assignment, task, files, temporary.as_ref())?;
    if let Some(own) = temporary.as_ref().filter(|_| own_directory.is_none() || sandbox.is_some()) {
        env.push(("TMPDIR".to_string(), own.path().to_string_lossy().into_owned()));
    }
    env.extend(env_of_file(task.env_file.as_deref())?);
    env.extend(task.env.iter().cloned());
    let socket_dir = socket.as_ref().and_then(|socket| socket.socket().parent());
    let own = temporary.as_ref().map(TemporaryDir::path).into_iter().chain(socket_dir).chain(files.paths());
    let named = task.files.iter().chain(task.inputs.iter().map(|input| &input.path)).map(PathBuf::as_path);
    let context = FunctionContext {
        programs: Arc::clone(&shared.options.programs),
        work_dir,
        start_dir: task.directory.clone(),
        env,
        limits,
        // The directory in which it runs belongs to the job, and may hold more.
        disk_dirs: temporary.iter().map(|own| own.path().to_path_buf()).collect(),
        record_bytes_max: 0,
        buffer_bytes: 0,
        cancelled: Arc::clone(&assignment.cancelled),
        stderr_log: Some(output.error_path().to_path_buf()),
        reports: Arc::default(),
        sandbox,
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        named: named.chain(own).map(Path::to_path_buf).collect(),
    };
    let spec = ProgramSpec::new(&task.words, &context);
    let ran = program::run_without_input(&context, &spec, |bytes| output.add_output(bytes));
    let outcome = ran.and_then(|()| {
        files.check_unchanged()?;
        declared.map_or(Ok(()), |declared| take(shared, assignment, &declared, &context.work_dir))
    });
    match outcome {
        Ok(()) => Ok(output.finish()),
        Err(failure) => Err(TaskFailure { said: Some(Box::new(output.finish())), ..failure }),
    }
}
