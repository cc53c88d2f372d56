//! The task of a job that is no MapReduce job: any executable, run once.

use crate::attempt::Assignment;
use crate::failure::file_failure;
use crate::shared::Shared;
use crate::tasks::work_dir::{SandboxNeeds, env_of_file, open_port, sandbox_for, socket_variable};
use api::TaskFailure;
use api::task::{RunResult, RunTask};
use faults::{IoCall, io_call};
use ids::AttemptKey;
use program::{FunctionContext, ProgramLimits, ProgramSpec};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

/// Temporary directory of a program in a sandbox, for the socket of the node, and for links to files of the job.
struct TemporaryDir(PathBuf);

impl TemporaryDir {
    fn create(attempt: AttemptKey) -> Result<Self, TaskFailure> {
        let name = format!("sailfish-{}-job{}-{}", std::process::id(), attempt.task.job, attempt.attempt.0);
        let path = std::env::temp_dir().join(name);
        let made = io_call(IoCall::Create, &path)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&path));
        made.map_err(|error| file_failure("create", &path, error))?;
        Ok(Self(path))
    }

    /// Creates links to files in it, and returns its path.
    fn link(&self, files: &[PathBuf]) -> Result<PathBuf, TaskFailure> {
        for file in files {
            let link = self.0.join(file.file_name().unwrap_or(file.as_os_str()));
            let linked = io_call(IoCall::Create, &link).and_then(|()| symlink(file, &link));
            linked.map_err(|error| file_failure("link", &link, error))?;
        }
        Ok(self.0.clone())
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // If this fails, only unused files are left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
    let attempt = assignment.attempt;
    let listed = shared.outputs.begin(attempt);
    let output = &*listed.output;
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    env.extend(shared.options.program_env.iter().cloned());
    // The working directory belongs to the job; temporary files do not go there.
    let needs_own = task.limits.disk_bytes.is_some()
        || shared.options.sandbox.is_some()
        || shared.options.program_port.is_some()
        || !task.files.is_empty();
    let temporary = needs_own.then(|| TemporaryDir::create(attempt)).transpose()?;
    let port =
        temporary.as_ref().map(|own| open_port(shared, attempt.task.job, &own.0)).transpose()?.flatten();
    env.extend(port.as_ref().map(socket_variable));
    let work_dir = match &temporary {
        Some(own) if !task.files.is_empty() => own.link(&task.files)?,
        _ => task.directory.clone(),
    };
    let base = shared.options.sandbox.as_ref();
    let sandboxed = base.zip(temporary.as_ref()).map(|(base, temporary)| {
        env.push(("TMPDIR".to_string(), temporary.0.to_string_lossy().into_owned()));
        let needs = SandboxNeeds {
            readable: task.files.clone(),
            work_dir: Some(task.directory.clone()).filter(|directory| *directory == work_dir),
            writable: vec![temporary.0.clone()],
            has_network: task.network,
        };
        sandbox_for(base, &assignment.job.paths, needs)
    });
    let sandbox = sandboxed.transpose()?;
    env.extend(env_of_file(task.env_file.as_deref())?);
    env.extend(task.env.iter().cloned());
    let context = FunctionContext {
        programs: Arc::clone(&shared.options.programs),
        work_dir,
        start_dir: task.directory.clone(),
        env,
        limits: ProgramLimits { of_job: *task.limits, of_node: shared.options.limits },
        // The directory in which it runs belongs to the job, and may hold more.
        disk_dirs: temporary.iter().map(|own| own.0.clone()).collect(),
        record_bytes_max: 0,
        buffer_bytes: 0,
        cancelled: Arc::clone(&assignment.cancelled),
        stderr_log: Some(output.error_path().to_path_buf()),
        reports: Arc::default(),
        sandbox,
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        named: task.files.iter().chain(temporary.iter().map(|own| &own.0)).cloned().collect(),
    };
    let spec = ProgramSpec::new(&task.words, &context);
    let outcome = program::run_without_input(&context, &spec, |bytes| output.add_output(bytes));
    match outcome {
        Ok(()) => Ok(output.finish()),
        Err(failure) => Err(TaskFailure { said: Some(Box::new(output.finish())), ..failure }),
    }
}
