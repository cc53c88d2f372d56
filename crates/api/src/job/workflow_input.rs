//! An input of a step as its user writes it: a path, or a table with one.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt::Formatter;
use std::path::PathBuf;

/// An input of a step: `"path"`, or `{ path = "path", view = true }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkflowInput {
    pub path: PathBuf,
    /// True: the step reads a stored file through the node's mount, without a copy.
    pub view: bool,
}

impl WorkflowInput {
    /// Keys of the table.
    pub const KEYS: [&str; 2] = ["path", "view"];
}

impl From<PathBuf> for WorkflowInput {
    fn from(path: PathBuf) -> Self {
        Self { path, view: false }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputTable {
    path: PathBuf,
    #[serde(default)]
    view: bool,
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = WorkflowInput;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text, or a table with `path`")
    }

    fn visit_str<E: Error>(self, path: &str) -> Result<WorkflowInput, E> {
        Ok(PathBuf::from(path).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<WorkflowInput, A::Error> {
        let InputTable { path, view } = InputTable::deserialize(MapAccessDeserializer::new(table))?;
        Ok(WorkflowInput { path, view })
    }
}

impl<'de> Deserialize<'de> for WorkflowInput {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        text.deserialize_any(TextOrTable)
    }
}
