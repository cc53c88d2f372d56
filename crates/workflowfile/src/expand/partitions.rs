//! Steps with `per = "partition"`: one for each partition of a stored file (Clustera, section 3.4: a logical file is a set of
//! concrete ones, and a job may get one of these).

use super::error::ExpansionError;
use super::instance::absolute_path;
use super::stored::{declared_name, is_of_store};
use super::values::{Bound, BoundBy};
use crate::error::{Nearest, WorkflowFileError};
use api::job::workflow_file::WorkflowFileStep;
use api::stored::partition_path;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Values of `per`.
const PER_FILE: &str = "file";
const PER_PARTITION: &str = "partition";
/// The placeholder for the number of the partition.
const PLACEHOLDER: &str = "partition";
const NAME_TAKEN: &str = "{partition} is the number of the partition: choose another name";
const NOT_STORED: &str = "`per = \"partition\"` needs stored files, as in `files:logs/{day}`";
const OF_OUTPUT: &str = "a step writes such a file, and the number of its partitions is not known before: put it with `sailfish files put` first";
const NOT_READ: &str = "the step has no such file among its inputs, of which it would get one partition";

/// Returns whether a step stands for one step for each partition.
pub fn is_per_partition(step: &WorkflowFileStep) -> bool {
    step.per.as_deref() == Some(PER_PARTITION)
}

/// Checks the value of `per`.
pub(crate) fn check_per(step: &WorkflowFileStep) -> Result<(), WorkflowFileError> {
    let Some(per) = step.per.as_deref() else { return Ok(()) };
    let reason = match per {
        PER_FILE => return Ok(()),
        PER_PARTITION if step.each.is_some() => return Ok(()),
        PER_PARTITION => "give `each` the stored file, as in each = \"files:logs/day\"".to_string(),
        other => {
            let nearest = Nearest::of(other, [PER_FILE, PER_PARTITION]);
            format!("it is neither `file` nor `partition`{nearest}")
        }
    };
    Err(WorkflowFileError::BadValue { step: step.name.clone(), key: "per", value: per.to_string(), reason })
}

fn bad(step: &WorkflowFileStep, pattern: &str, reason: &'static str) -> ExpansionError {
    ExpansionError::BadPattern { step: step.name.clone(), pattern: pattern.to_string(), reason }
}

/// Checks a pattern, by its names and the directory below which it looks.
pub fn check_pattern<'n>(
    step: &WorkflowFileStep,
    pattern: &str,
    base: &str,
    mut names: impl Iterator<Item = &'n str>,
) -> Result<(), ExpansionError> {
    match () {
        () if !is_of_store(base) => Err(bad(step, pattern, NOT_STORED)),
        () if names.any(|name| name == PLACEHOLDER) => Err(bad(step, pattern, NAME_TAKEN)),
        () => Ok(()),
    }
}

/// Returns the error for a pattern that an output matches.
pub fn of_output(step: &WorkflowFileStep, pattern: &str) -> ExpansionError {
    bad(step, pattern, OF_OUTPUT)
}

/// Returns the own names of the step for a partition.
pub fn with_partition<'a>(own: &BTreeMap<&'a str, Bound>, partition: usize) -> BTreeMap<&'a str, Bound> {
    let mut own = own.clone();
    own.insert(PLACEHOLDER, Bound { text: partition.to_string(), source: BoundBy::FileName });
    own
}

/// Puts a partition in place of the whole file among the inputs of a step.
pub fn read_partition(
    of: &WorkflowFileStep,
    made: &mut WorkflowFileStep,
    file: &str,
    partition: usize,
) -> Result<(), ExpansionError> {
    let mut is_read = false;
    let is_file = |input: &&mut PathBuf| absolute_path("", input).is_some_and(|path| path == file);
    let listed = made.inputs.iter_mut().map(|input| &mut input.path);
    for input in listed.chain(&mut made.stdin).filter(is_file) {
        *input = partition_path(&declared_name(file), partition);
        is_read = true;
    }
    if is_read { Ok(()) } else { Err(bad(of, &declared_name(file), NOT_READ)) }
}
