//! Specifications of jobs as they are stored: as JSON of today, or as earlier versions wrote it.

use crate::StoreError;
use crate::convert::json;
use api::task::RunTask;
use api::{JobSpec, Task};
use serde_json::{Map, Value};

/// Returns the form of a specification that is stored. Questions about finished runs are left out: a server that restarts
/// asks them again.
pub(crate) fn written(spec: &JobSpec) -> Result<String, StoreError> {
    match spec.kind.program().is_some_and(|task| !task.looks.is_empty()) {
        true => json(&JobSpec::of_one_task(spec.name.clone(), RunTask::default())),
        false => json(spec),
    }
}

/// Returns the same for a task.
pub(crate) fn written_task(task: &Task) -> Result<String, StoreError> {
    match task {
        Task::Run(run) if !run.looks.is_empty() => json(&Task::Run(Box::default())),
        task => json(task),
    }
}

/// Reads a stored specification.
pub(crate) fn parse(text: &str) -> Result<JobSpec, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match serde_json::from_str(text) {
        Ok(Value::Object(spec)) if spec.contains_key("map_only") => {
            serde_json::from_value(Value::Object(from_flags(spec)))
        }
        _ => Err(error),
    })
}

/// Returns a specification that says its kind, from one whose kind was in four fields and whose inputs had a format.
fn from_flags(mut spec: Map<String, Value>) -> Map<String, Value> {
    let mut take = |name: &str| spec.remove(name).unwrap_or_default();
    let (program, source) = (take("single"), take("reduce_again"));
    let (map_only, generate) = (take("map_only"), take("generate"));
    let kind = match (program, source) {
        (Value::Null, Value::Null) if map_only == Value::Bool(true) => {
            serde_json::json!({ "map_reduce": { "map_only": { "generate": generate } } })
        }
        (Value::Null, Value::Null) => {
            serde_json::json!({ "map_reduce": { "shuffled": { "generate": generate } } })
        }
        (Value::Null, source) => {
            serde_json::json!({ "map_reduce": { "reduce_again": { "source": source } } })
        }
        (program, _) => serde_json::json!({ "tasks": { "kind": { "program": program } } }),
    };
    spec.insert("kind".to_string(), kind);
    for input in spec.get_mut("inputs").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(input) = input.as_object_mut() else { continue };
        if let Some(format) = input.remove("format").filter(|format| format != "plain") {
            input.insert("compression".to_string(), format);
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::parse;
    use api::task::RunTask;
    use api::{Compression, GeneratedRows, JobKind, JobSpec, MapReduce, TasksKind, TeraLayout};
    use ids::JobId;
    use serde_json::Value;

    /// Today's specification of this kind, and the same as an earlier version wrote it.
    fn check(kind: JobKind, flags: Value) {
        let mut spec = JobSpec { kind, ..JobSpec::named("a job") };
        let input = serde_json::json!({ "path": "/in", "size_bytes": 3, "mtime_ns": 4, "format": "gzip" });
        let mut written = serde_json::to_value(&spec).unwrap();
        let fields = written.as_object_mut().unwrap();
        fields.remove("kind");
        fields.extend(flags.as_object().unwrap().clone());
        fields.insert("inputs".to_string(), serde_json::json!([input]));
        let read = parse(&written.to_string()).unwrap();
        spec.inputs.clone_from(&read.inputs);
        assert_eq!(read, spec);
        assert_eq!((read.inputs[0].size_bytes, read.inputs[0].compression), (3, Some(Compression::Gzip)));
        assert_eq!(parse(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    }

    #[test]
    fn specifications_of_before_are_read() {
        let rows = GeneratedRows { layout: TeraLayout::Ascii, skewed: false, start: 0, rows: 7 };
        let made = serde_json::to_value(rows).unwrap();
        let task = RunTask { words: vec!["true".to_string()], ..RunTask::default() };
        let program = serde_json::to_value(&task).unwrap();
        check(
            MapReduce::Shuffled { generate: None }.into(),
            serde_json::json!({ "map_only": false, "reduce_again": null }),
        );
        check(
            MapReduce::Shuffled { generate: Some(rows) }.into(),
            serde_json::json!({ "map_only": false, "generate": made }),
        );
        check(
            MapReduce::MapOnly { generate: None }.into(),
            serde_json::json!({ "map_only": true, "generate": null }),
        );
        check(
            MapReduce::MapOnly { generate: Some(rows) }.into(),
            serde_json::json!({ "map_only": true, "generate": made }),
        );
        check(
            MapReduce::ReduceAgain { source: JobId(7) }.into(),
            serde_json::json!({ "map_only": false, "reduce_again": 7 }),
        );
        let kind = TasksKind::Program(Box::new(task));
        check(JobKind::Tasks { kind }, serde_json::json!({ "map_only": true, "single": program }));
    }

    #[test]
    fn other_fields_stay_unknown() {
        assert!(parse("{}").is_err() && parse("[]").is_err() && parse("").is_err());
        assert!(parse(r#"{ "map_only": true }"#).is_err());
    }
}
