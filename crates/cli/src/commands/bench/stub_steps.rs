//! Steps of a workflow for clients that run nothing: each declares a file, of which its client reports a finished run.

use api::control::JobSubmission;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{FileContent, FinishedRun, RunResult, RunTask, StepCaching, TaskFile};
use api::{ContentHash, JobSpec, JsonText, SteppedKind};
use std::path::PathBuf;

/// Bytes of the file of each step.
const FILE_BYTES: u64 = 100;

/// Returns a workflow of steps that do not wait for each other.
pub(super) fn workflow(count: u64) -> anyhow::Result<JobSubmission> {
    let directory = std::env::temp_dir();
    let step = |number: u64| {
        let name = number.to_string();
        let file =
            TaskFile { name: PathBuf::from(&name), path: directory.join(&name), ..TaskFile::default() };
        let program = RunTask {
            words: vec!["true".to_string()],
            directory: directory.clone(),
            outputs: vec![file],
            caching: Some(Box::new(StepCaching::default())),
            ..RunTask::default()
        };
        WorkflowStep { name, program, ..WorkflowStep::default() }
    };
    let spec = JsonText::of(&WorkflowSpec { steps: (0..count).map(step).collect(), only_judges: false })?;
    let kind = SteppedKind { kind: "workflow".to_string(), spec };
    let spec = JobSpec::of_steps("bench".to_string(), kind);
    Ok(JobSubmission { spec, splits: Vec::new(), user: String::new(), priority: 0 })
}

/// Returns the result of a program, which wrote the files that it declares.
pub(super) fn result(task: &RunTask) -> RunResult {
    let written = |file: &TaskFile| FileContent {
        path: file.path.clone(),
        real_path: None,
        sha256: Some(ContentHash([1; 32])),
        bytes: FILE_BYTES,
        stamp: None,
        made_by: None,
        stored: None,
        compression: None,
    };
    let run = |program: &RunTask| {
        let outputs = program.outputs.iter().map(written).collect();
        program.is_recorded().then(|| FinishedRun { outputs, ..FinishedRun::default() })
    };
    let runs = if task.outputs.is_empty() { Vec::new() } else { task.programs().map(run).collect() };
    RunResult { runs, ..RunResult::default() }
}
