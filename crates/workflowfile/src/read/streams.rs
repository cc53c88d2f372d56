//! Files of a step that its program opens as streams.

use super::task_file;
use crate::error::{Nearest, WorkflowFileError};
use api::job::workflow::WorkflowSpec;
use api::job::workflow_file::WorkflowFileStep;
use api::task::RunTask;
use std::collections::BTreeSet;
use std::path::Path;

/// Marks the files of a program that its step names in `streams`.
pub(super) fn mark(task: &mut RunTask, step: &WorkflowFileStep, dir: &Path) -> Result<(), WorkflowFileError> {
    for stream in &step.streams {
        let name = task_file(step, stream, dir, false)?.name;
        let mut files = task.inputs.iter_mut().chain(&mut task.outputs);
        match files.find(|file| file.name == name) {
            Some(file) => file.stream = true,
            None => {
                let shown = stream.display().to_string();
                let files = task.inputs.iter().chain(&task.outputs);
                let nearest = Nearest::of(&shown, files.filter_map(|file| file.name.to_str()));
                return Err(WorkflowFileError::NoSuchStream {
                    step: step.name.clone(),
                    name: shown,
                    nearest,
                });
            }
        }
    }
    Ok(())
}

/// Checks that a stored file that is a stream is written by a step.
pub(super) fn check(spec: &WorkflowSpec) -> Result<(), WorkflowFileError> {
    let inputs = || {
        let each =
            spec.steps.iter().flat_map(|step| step.program.inputs.iter().map(move |input| (step, input)));
        each.filter(|(_, input)| input.stream && input.is_stored())
    };
    if inputs().next().is_none() {
        return Ok(());
    }
    let outputs = spec.steps.iter().flat_map(|step| &step.program.outputs);
    let written: BTreeSet<&Path> = outputs.map(|output| output.path.as_path()).collect();
    match inputs().find(|(_, input)| !written.contains(input.path.as_path())) {
        Some((step, input)) => {
            let (step, path) = (step.name.clone(), input.path.clone());
            Err(WorkflowFileError::StreamOfStored { step, path })
        }
        None => Ok(()),
    }
}
