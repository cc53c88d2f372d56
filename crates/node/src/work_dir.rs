//! The private work directory of an attempt that runs user programs.

use crate::Shared;
use crate::failure::file_failure;
use crate::job_data::JobData;
use api::{Function, TaskFailure};
use ids::AttemptKey;
use program::FunctionContext;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that goes with the attempt.
pub(crate) struct WorkDir {
    path: PathBuf,
    created: bool,
}

impl WorkDir {
    /// Creates the directory with links to the job's files, if one of the functions is a program.
    pub fn create(
        job: &JobData,
        attempt: AttemptKey,
        functions: &[Option<&Function>],
    ) -> Result<Self, TaskFailure> {
        let name = format!("work-{}-{}-{}", attempt.task.stage.0, attempt.task.task.0, attempt.attempt.0);
        let path = job.run.disk_dirs[0].join(name);
        if !functions.iter().flatten().any(|function| matches!(function, Function::Command { .. })) {
            return Ok(Self { path, created: false });
        }
        std::fs::create_dir_all(&path).map_err(|error| file_failure("create", &path, error))?;
        let work_dir = Self { path, created: true };
        for file in &job.run.spec.files {
            let name = file.file_name().unwrap_or(file.as_os_str());
            let link = work_dir.path.join(name);
            symlink(file, &link).map_err(|error| file_failure("link", &link, error))?;
        }
        Ok(work_dir)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.created {
            // What stays behind lies in the job's directory and goes with it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What the functions of an attempt get.
pub(crate) fn function_context(
    shared: &Shared,
    job: &JobData,
    attempt: AttemptKey,
    work_dir: &WorkDir,
) -> FunctionContext {
    let spec = &job.run.spec;
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_STAGE".to_string(), attempt.task.stage.0.to_string()),
        ("SAILFISH_TASK".to_string(), attempt.task.task.0.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    env.extend(spec.env.iter().cloned());
    FunctionContext {
        programs: Arc::clone(&shared.options.programs),
        work_dir: work_dir.path().to_path_buf(),
        start_dir: shared.options.start_dir.clone(),
        env,
        record_bytes_max: spec.layout.record_bytes_max,
        buffer_bytes: job.buffer_bytes(),
        cancelled: Arc::clone(&job.run.cancelled),
        stderr_log: None,
    }
}
