//! The inputs of a step: paths, and tables that say how a stored file is read.

use super::task_file;
use crate::error::{Nearest, WorkflowFileError};
use api::job::workflow::WorkflowSpec;
use api::job::workflow_file::WorkflowFileStep;
use api::job::workflow_input::WorkflowInput;
use api::task::TaskFile;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// Refuses unknown keys of inputs that are tables, with the nearest one, and tables without a path.
pub(super) fn check_keys(step: &str, table: &Table) -> Result<(), WorkflowFileError> {
    let inputs = table.get("inputs").and_then(Value::as_array).into_iter().flatten();
    for input in inputs.filter_map(Value::as_table) {
        let place = format!("an input of {step}");
        if let Some(key) = input.keys().find(|key| !WorkflowInput::KEYS.contains(&key.as_str())) {
            let nearest = Nearest::of(key, WorkflowInput::KEYS);
            return Err(WorkflowFileError::UnknownKey { place, key: key.clone(), nearest });
        }
        if !input.contains_key("path") {
            return Err(WorkflowFileError::NoInputPath { place });
        }
    }
    Ok(())
}

/// Returns the declared inputs of a program. Its standard input need not be listed.
pub(super) fn task_files(step: &WorkflowFileStep, dir: &Path) -> Result<Vec<TaskFile>, WorkflowFileError> {
    let listed = step
        .inputs
        .iter()
        .map(|input| Ok(TaskFile { view: input.view, ..task_file(step, &input.path, dir, false)? }));
    let more = step.stdin.iter().filter(|stdin| step.inputs.iter().all(|input| input.path != **stdin));
    listed.chain(more.map(|stdin| task_file(step, stdin, dir, false))).collect()
}

/// Checks that views are of stored files that no step writes.
pub(super) fn check_views(spec: &WorkflowSpec) -> Result<(), WorkflowFileError> {
    let mut writers: BTreeMap<&Path, &str> = BTreeMap::new();
    for step in &spec.steps {
        writers.extend(step.program.outputs.iter().map(|file| (file.path.as_path(), step.name.as_str())));
    }
    for step in &spec.steps {
        for input in step.program.inputs.iter().filter(|input| input.view) {
            let (name, path) = (step.name.clone(), input.path.clone());
            if let Some(writer) = writers.get(input.path.as_path()) {
                return Err(WorkflowFileError::ViewOfOutput { step: name, path, writer: writer.to_string() });
            }
            if !input.is_stored() {
                return Err(WorkflowFileError::ViewOfPlain { step: name, path });
            }
        }
    }
    Ok(())
}
