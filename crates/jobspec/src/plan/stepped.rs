//! Stored files that the steps of a job read: each gets its version and the identity of its bytes at submit.

use super::is_stored;
use super::pinning::Pinning;
use crate::front_end::{FrontEnd, StoredPin};
use anyhow::Context;
use api::STORED_PREFIX;
use api::{JobSpec, JsonText};
use serde_json::Value;
use std::collections::BTreeSet;
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
    for step in steps {
        let inputs = step.pointer_mut("/program/inputs").and_then(Value::as_array_mut);
        for input in inputs.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(name) = input.get("path").and_then(Value::as_str).filter(|path| is_stored(path)) else {
                continue;
            };
            if written.contains(name) {
                continue;
            }
            let pinned = pinning.pin("the input", name)?;
            let content = serde_json::to_value(pinned.stored.identity()).context("writing a hash")?;
            input.insert("content".to_string(), content);
        }
    }
    of_steps.spec = JsonText::of(&value).context("writing the steps")?;
    let pinned = pinning.finish();
    spec.pinned = pinned.files;
    Ok(pinned.pins)
}

/// Returns the stored files that steps write: their readers get the versions of this run.
fn stored_outputs(steps: &[Value]) -> BTreeSet<String> {
    let outputs = steps.iter().filter_map(|step| step.pointer("/program/outputs")?.as_array()).flatten();
    let paths = outputs.filter_map(|output| output.get("path")?.as_str());
    paths.filter(|path| is_stored(path)).map(str::to_string).collect()
}
