//! The task of a job that is no MapReduce: any executable, run once.

use crate::NodeOptions;
use crate::failure::file_failure;
use api::task::{RUN_OUTPUT_BYTES_MAX, RunResult, RunTask};
use api::{Blame, TaskFailure};
use ids::AttemptKey;
use program::{FunctionContext, ProgramSpec};
use server::Assignment;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes read from the program at once.
const READ_BYTES: usize = 16 << 10;

/// What the program writes to its standard error, in a file that goes with the attempt.
struct ErrorFile(PathBuf);

impl Drop for ErrorFile {
    fn drop(&mut self) {
        // A program that wrote nothing may have left nothing.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where a program in a sandbox may put what it needs for a while.
struct TemporaryDir(PathBuf);

impl TemporaryDir {
    fn create(attempt: AttemptKey) -> Result<Self, TaskFailure> {
        let name = format!("sailfish-{}-job{}-{}", std::process::id(), attempt.task.job, attempt.attempt.0);
        let path = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| file_failure("create", &path, error))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // Only what nobody looks at any more is left where this fails.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the program, or nothing where none is named.
pub(crate) fn run(
    options: &NodeOptions,
    assignment: &Assignment,
    task: &RunTask,
) -> Result<RunResult, TaskFailure> {
    if task.words.is_empty() {
        return Ok(RunResult::default());
    }
    let attempt = assignment.attempt;
    let name = format!("sailfish-{}-job{}-{}.err", std::process::id(), attempt.task.job, attempt.attempt.0);
    let error_file = ErrorFile(std::env::temp_dir().join(name));
    let mut env = vec![
        ("SAILFISH_JOB".to_string(), attempt.task.job.to_string()),
        ("SAILFISH_ATTEMPT".to_string(), attempt.attempt.0.to_string()),
    ];
    // The directory is one that the job names; what is temporary does not go there.
    let temporary = options.sandbox.as_ref().map(|_| TemporaryDir::create(attempt)).transpose()?;
    let sandbox = options.sandbox.clone().zip(temporary.as_ref()).map(|(mut sandbox, temporary)| {
        sandbox.writable.push(temporary.0.clone());
        env.push(("TMPDIR".to_string(), temporary.0.to_string_lossy().into_owned()));
        Arc::new(sandbox)
    });
    env.extend(task.env.iter().cloned());
    let context = FunctionContext {
        programs: Arc::clone(&options.programs),
        work_dir: task.directory.clone(),
        start_dir: task.directory.clone(),
        env,
        record_bytes_max: 0,
        buffer_bytes: READ_BYTES,
        cancelled: Arc::clone(&assignment.job.cancelled),
        stderr_log: Some(error_file.0.clone()),
        reports: Arc::default(),
        sandbox,
        any_exit_code: false,
    };
    let spec = ProgramSpec::new(&task.words, &context);
    let ((), standard_output) = program::run(&context, &spec, |feed, output| {
        let no_input = move || {
            drop(feed);
            Ok(())
        };
        (no_input, move || read_tail(output))
    })?;
    Ok(RunResult { standard_output, standard_error: said(&error_file.0) })
}

/// Reads to the end and keeps the last of it.
fn read_tail(mut source: impl Read) -> Result<String, TaskFailure> {
    let (mut tail, mut buffer) = (Vec::new(), [0; READ_BYTES]);
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                let message = format!("reading what the program writes: {error}");
                return Err(TaskFailure::new(Blame::Environment, message));
            }
        };
        tail.extend_from_slice(&buffer[..count]);
        if tail.len() > 2 * RUN_OUTPUT_BYTES_MAX {
            tail.drain(..tail.len() - RUN_OUTPUT_BYTES_MAX);
        }
    }
    tail.drain(..tail.len().saturating_sub(RUN_OUTPUT_BYTES_MAX));
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

/// What could not be written there is not worth the program's success.
fn said(path: &Path) -> String {
    std::fs::File::open(path).ok().and_then(|file| read_tail(file).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{RUN_OUTPUT_BYTES_MAX, read_tail};

    #[test]
    fn the_last_of_a_long_output_is_kept() {
        let mut text = vec![b'a'; 5 * RUN_OUTPUT_BYTES_MAX];
        text.extend_from_slice(b"end\xff");
        let tail = read_tail(&text[..]).unwrap();
        assert!(tail.ends_with("end\u{fffd}") && tail.starts_with('a'));
        assert_eq!(tail.len(), RUN_OUTPUT_BYTES_MAX + 2);
        assert_eq!(read_tail(&b""[..]).unwrap(), "");
    }
}
