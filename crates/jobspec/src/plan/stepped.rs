//! Stored files that the steps of a job read: each gets its version and the identity of its bytes at submit.

use super::is_stored;
use super::pinning::{Pinned, Pinning};
use crate::front_end::{FrontEnd, StoredPin};
use anyhow::{Context, ensure};
use api::stored::of_partition;
use api::{JobSpec, JsonText, PinnedFile, STORED_PREFIX};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Pins the stored files that the programs of steps declare as inputs, and no step writes. An input keeps its name as written, and gets the
/// identity of the bytes that it has now. Returns the pins, which keep the versions while they live.
///
/// Errors: a name without a file, or a directory.
pub fn pin_inputs_of_steps(
    front_end: &dyn FrontEnd,
    state_dir: &Path,
    spec: &mut JobSpec,
) -> anyhow::Result<Vec<StoredPin>> {
    let mut pinning = Pinning::new(front_end, state_dir);
    let Some(of_steps) = spec.kind.steps_mut().filter(|steps| steps.spec.text().contains(STORED_PREFIX))
    else {
        return Ok(Vec::new());
    };
    let mut value: Value = of_steps.spec.read().context("reading the steps")?;
    let steps = value.get_mut("steps").and_then(Value::as_array_mut);
    let Some(steps) = steps else { return Ok(Vec::new()) };
    let written = stored_outputs(steps);
    let mut partitions: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for step in steps {
        let is_job = step.get("job").is_some_and(|job| !job.is_null());
        let inputs = step.pointer_mut("/program/inputs").and_then(Value::as_array_mut);
        for input in inputs.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(name) = input.get("path").and_then(Value::as_str).filter(|path| is_stored(path)) else {
                continue;
            };
            if written.contains(name) {
                continue;
            }
            let identity = match of_partition(Path::new(name)) {
                Some((file, partition)) => {
                    let file = file.to_string_lossy();
                    partitions.entry(file.to_string()).or_default().insert(partition);
                    pinning.pin_partition("the input", &file, partition)?
                }
                None if is_job => {
                    let (identity, compression) = pinning.pin_input("the input", name)?;
                    let found = compression.map(serde_json::to_value).transpose();
                    let found = found.context("writing a compression")?;
                    input.extend(found.map(|compression| ("compression".to_string(), compression)));
                    identity
                }
                None => pinning.pin("the input", name)?.stored.identity(),
            };
            let content = serde_json::to_value(identity).context("writing a hash")?;
            input.insert("content".to_string(), content);
        }
    }
    of_steps.spec = JsonText::of(&value).context("writing the steps")?;
    let pinned = pinning.finish();
    for (file, read) in partitions {
        check_partitions(&file, read.len(), &pinned)?;
    }
    spec.pinned = pinned.files;
    Ok(pinned.pins)
}

/// Checks that the steps of a workflow read all partitions of a file: it may have got another version since its steps were
/// made from it.
fn check_partitions(file: &str, read_count: usize, pinned: &Pinned) -> anyhow::Result<()> {
    let versions = pinned.files.iter().filter(|pinned| pinned.by_partition);
    let of_file = |pinned: &&PinnedFile| {
        let path = pinned.path.to_string_lossy();
        path.strip_prefix(file).is_some_and(|version| version.starts_with('@'))
    };
    let known = versions.filter(of_file).find(|pinned| pinned.stored.parts.len() == read_count);
    ensure!(
        known.is_some(),
        "{file} has another number of partitions than the {read_count} that the steps read: run the workflow again"
    );
    Ok(())
}

/// Returns the stored files that steps write: their readers get the versions of this run.
fn stored_outputs(steps: &[Value]) -> BTreeSet<String> {
    let outputs = steps.iter().filter_map(|step| step.pointer("/program/outputs")?.as_array()).flatten();
    let paths = outputs.filter_map(|output| output.get("path")?.as_str());
    paths.filter(|path| is_stored(path)).map(str::to_string).collect()
}
