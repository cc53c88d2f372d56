//! Shapes of `[params]` and `sweep`, checked before they are read, so that each mistake has its sentence.

use super::error::ExpansionError;
use super::placeholder::is_name;
use crate::error::Nearest;
use toml::{Table, Value};

const PARAMS: &str = "[params]";

/// Checks the parameters of a file, and the sweeps of its steps.
pub(crate) fn check_values(file: &Table) -> Result<(), ExpansionError> {
    let no_params = Table::new();
    let params = file.get("params").and_then(Value::as_table).unwrap_or(&no_params);
    for (key, value) in params {
        check_name(PARAMS, key)?;
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if let Some(found) = values.iter().find_map(no_scalar) {
            return Err(ExpansionError::BadParameter { place: PARAMS.to_string(), key: key.clone(), found });
        }
    }
    let steps = file.get("step").and_then(Value::as_array).into_iter().flatten();
    for step in steps.filter_map(Value::as_table) {
        let Some(sweep) = step.get("sweep") else { continue };
        let place =
            format!("the sweep of the step {:?}", step.get("name").and_then(Value::as_str).unwrap_or(""));
        match sweep.as_table() {
            Some(sweep) => check_sweep(sweep, params, &place)?,
            None => {
                let (key, found) = ("sweep".to_string(), "no table");
                return Err(ExpansionError::BadSweep { place, key, found });
            }
        }
    }
    Ok(())
}

fn check_sweep(sweep: &Table, params: &Table, place: &str) -> Result<(), ExpansionError> {
    for (key, value) in sweep {
        check_name(place, key)?;
        let (place, key) = (place.to_string(), key.clone());
        let list = match value {
            Value::Array(list) => list,
            Value::String(list) => match params.get(list).and_then(Value::as_array) {
                Some(values) => values,
                None => {
                    let lists = params.iter().filter(|(_, value)| value.is_array());
                    let nearest = Nearest::of(list, lists.map(|(name, _)| name.as_str()));
                    return Err(ExpansionError::NoSuchList { place, key, list: list.clone(), nearest });
                }
            },
            _ => return Err(ExpansionError::BadSweep { place, key, found: "no list" }),
        };
        if list.is_empty() {
            return Err(ExpansionError::EmptyList { place, key });
        }
        if let Some(found) = list.iter().find_map(no_scalar) {
            return Err(ExpansionError::BadSweep { place, key, found });
        }
    }
    Ok(())
}

fn check_name(place: &str, key: &str) -> Result<(), ExpansionError> {
    match is_name(key) {
        true => Ok(()),
        false => Err(ExpansionError::BadName { place: place.to_string(), key: key.to_string() }),
    }
}

/// Returns the kind of a value that has no text.
fn no_scalar(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Boolean(_) => None,
        Value::Float(float) if float.is_finite() => None,
        Value::Float(_) => Some("no finite number"),
        Value::Datetime(_) => Some("a time"),
        Value::Array(_) => Some("a list in a list"),
        Value::Table(_) => Some("a table"),
    }
}
