//! The sentence for a file that is TOML, and has a value of a wrong type.

use crate::error::WorkflowFileError;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest value that is repeated in a sentence, in bytes.
const SHOWN_BYTES_MAX: usize = 80;
/// Memory from which on a number is one of bytes.
const BYTES_FROM: u64 = 1 << 20;

/// Returns the mistake in a file that is TOML, from the error of its reading.
pub(super) fn wrong_type(path: &Path, text: &str, error: &toml::de::Error) -> WorkflowFileError {
    let table = DeTable::parse(text).ok();
    let found = table.as_ref().zip(error.span()).and_then(|(table, span)| found(table.get_ref(), &span));
    // Messages about the keys of a job are those of job files.
    let found = found.filter(|found| found.key != "job" || !found.value.get_ref().is_table());
    let Some(Found { step, key, value }) = found else {
        let message = error.to_string().trim_end().to_string();
        return WorkflowFileError::NoWorkflow { path: path.to_path_buf(), message };
    };
    let (line, column) = place_of(text, value.span().start);
    WorkflowFileError::WrongType {
        path: path.to_path_buf(),
        line,
        column,
        place: step.map_or(format!("`{key}`"), |name| format!("`{key}` of the step {name:?}")),
        found: kind(value.get_ref()),
        advice: advice(key, value, text),
    }
}

/// A key whose value is wrong.
struct Found<'a> {
    /// Name of its step; None: it is a key of the file.
    step: Option<&'a str>,
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

fn found<'a>(table: &'a DeTable<'a>, span: &Range<usize>) -> Option<Found<'a>> {
    let key_in = |table: &'a DeTable<'a>| {
        let has =
            |value: &Spanned<DeValue<'_>>| value.span().start <= span.start && span.end <= value.span().end;
        let mut keys = table.iter().filter(|(_, value)| has(value));
        keys.next().map(|(key, value)| (key.get_ref().as_ref(), value))
    };
    let steps = table.get("step").and_then(|steps| steps.get_ref().as_array());
    for step in steps.into_iter().flatten().filter_map(|step| step.get_ref().as_table()) {
        if let Some((key, value)) = key_in(step) {
            let name = step.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
            return Some(Found { step: Some(name), key, value });
        }
    }
    let (key, value) = key_in(table).filter(|(key, value)| *key != "step" || !value.get_ref().is_array())?;
    Some(Found { step: None, key, value })
}

/// Returns the line and the column of a byte, from 1.
fn place_of(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Returns the right way to write a value.
fn advice(key: &str, value: &Spanned<DeValue<'_>>, text: &str) -> String {
    let raw = text.get(value.span()).unwrap_or_default();
    let (raw, value) = (Some(raw).filter(|raw| is_short(raw)), value.get_ref());
    let written = match key {
        "inputs" | "outputs" | "streams" | "after" | "words" | "reads" | "environment" => as_list(raw, value),
        "keep" | "network" | "cache" | "in_place" => {
            value.as_str().filter(|word| ["true", "false"].contains(word)).map(str::to_string)
        }
        "cores" | "retries" => value.as_str().filter(|word| word.parse::<u32>().is_ok()).map(str::to_string),
        "env" | "resources" | "params" | "sweep" | "step" | "job" => None,
        _ => as_text(key, raw, value, text),
    };
    match (written, key) {
        (Some(written), _) => format!("write {key} = {written}"),
        (None, "inputs") => {
            "give a list of texts and tables, as in inputs = [\"a\", { path = \"files:b\", view = true }]"
                .to_string()
        }
        (None, "outputs" | "streams" | "after" | "words" | "reads" | "environment") => {
            format!("give a list of texts, as in {key} = [\"a\", \"b\"]")
        }
        (None, "keep" | "network" | "cache" | "in_place") => format!("write {key} = true or {key} = false"),
        (None, "cores" | "retries") => format!("give a whole number, as in {key} = 2"),
        (None, "env") => "give each variable a text, as in env = { NAME = \"value\" }".to_string(),
        (None, "resources") => "give each resource a whole number, as in resources = { gpu = 1 }".to_string(),
        (None, "params" | "sweep") => format!("give a table, as in {key} = {{ name = [1, 2] }}"),
        (None, "job") => "write [step.job], and its keys below".to_string(),
        (None, "step") => "write [[step]] above each step".to_string(),
        (None, _) => format!("give a text, as in {key} = \"a\""),
    }
}

fn is_short(raw: &str) -> bool {
    raw.len() <= SHOWN_BYTES_MAX && !raw.chars().any(char::is_control)
}

fn as_list(raw: Option<&str>, value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(_) => raw.map(|raw| format!("[{raw}]")),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
            raw.map(|raw| format!("[\"{raw}\"]"))
        }
        _ => None,
    }
}

fn as_text(key: &str, raw: Option<&str>, value: &DeValue<'_>, text: &str) -> Option<String> {
    let raw = raw?;
    let unit = match (key, raw.parse::<u64>()) {
        ("timeout", Ok(_)) => "s",
        ("memory", Ok(memory)) if memory < BYTES_FROM => "G",
        _ => "",
    };
    match value {
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => Some(format!("\"{raw}{unit}\"")),
        DeValue::Array(list) if list.len() == 1 && list[0].get_ref().is_str() => {
            text.get(list[0].span()).map(str::to_string)
        }
        _ => None,
    }
}
