//! Rules by which a finished run of a program stands for another one.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// A program that is skipped where a finished run of it is known, with the files that it may read beside its inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepCaching {
    /// Files and directories that it may read, absolute. A change of them does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub reads: Vec<PathBuf>,
    /// Files that it may read, absolute. A change of their contents counts as one of an input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub environment: Vec<PathBuf>,
}
