//! Specifications of jobs as they are stored: as JSON of today, or as earlier versions wrote it. A large one of steps is
//! compressed, because a database needs several times its bytes in memory while it writes a text.

use crate::StoreError;
use crate::convert::json;
use api::task::RunTask;
use api::{JobSpec, Task};
use serde::de::Error;
use serde_json::{Map, Value};

/// Beginning of a compressed text, before the bytes in hexadecimal digits.
const COMPRESSED: &str = "zstd:";
/// Bytes of steps from which on they are compressed.
const LARGE_BYTES: usize = 1 << 20;

/// Returns the form of a specification that is stored. Questions about finished runs are left out: a server that restarts
/// asks them again.
pub(crate) fn written(spec: &JobSpec) -> Result<String, StoreError> {
    match spec.kind.program().is_some_and(|task| !task.looks.is_empty()) {
        true => json(&JobSpec::of_one_task(spec.name.clone(), RunTask::default())),
        false if is_large(spec) => compressed(spec).map_err(StoreError::Json),
        false => json(spec),
    }
}

/// Returns whether a specification is compressed. One with stored files is not: questions in SQL look for their names.
fn is_large(spec: &JobSpec) -> bool {
    let has_many_steps = spec.kind.steps().is_some_and(|steps| steps.spec.text().len() >= LARGE_BYTES);
    has_many_steps && spec.pinned.is_empty() && spec.stored_output.is_none()
}

fn compressed(spec: &JobSpec) -> Result<String, serde_json::Error> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 0).map_err(serde_json::Error::io)?;
    serde_json::to_writer(&mut encoder, spec)?;
    let bytes = encoder.finish().map_err(serde_json::Error::io)?;
    Ok(format!("{COMPRESSED}{}", hex::encode(bytes)))
}

fn decompressed(digits: &str) -> Result<String, serde_json::Error> {
    let bytes = hex::decode(digits).map_err(serde_json::Error::custom)?;
    let decoder = zstd::Decoder::new(&bytes[..]).map_err(serde_json::Error::io)?;
    std::io::read_to_string(decoder).map_err(serde_json::Error::io)
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
    if let Some(digits) = text.strip_prefix(COMPRESSED) {
        return serde_json::from_str(&decompressed(digits)?);
    }
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
    use super::{COMPRESSED, LARGE_BYTES, parse, written};
    use api::task::RunTask;
    use api::{
        Compression, GeneratedRows, JobKind, JobSpec, JsonText, MapReduce, SteppedKind, TasksKind, TeraLayout,
    };
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

    #[test]
    fn large_steps_are_compressed() {
        let of_steps = |words: usize| {
            let spec = JsonText::of(&vec!["step"; words]).unwrap();
            JobSpec::of_steps("steps".to_string(), SteppedKind { kind: "some".to_string(), spec })
        };
        let (few, many) = (of_steps(10), of_steps(LARGE_BYTES / 4));
        let text = written(&many).unwrap();
        assert!(text.starts_with(COMPRESSED) && text.len() < LARGE_BYTES / 100);
        assert!(parse(&text).unwrap() == many);
        assert!(written(&few).unwrap().starts_with('{'));
        // A damaged one is an error.
        assert!(parse(&text[..text.len() - 8]).is_err() && parse("zstd:x").is_err());
    }
}
