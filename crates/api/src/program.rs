//! JSON messages between the engine and a program, in frames (`docs/formats/program-frames.md`).

use crate::RecordFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Role of a program in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramRole {
    Map,
    Combine,
    Reduce,
}

/// The first frame of a task for a program.
#[derive(Clone, Debug, Serialize)]
pub struct JobFrame<'a> {
    pub version: u32,
    pub role: ProgramRole,
    /// The rule that divides the input of a mapper into records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RecordFormat>,
    /// Maximum bytes of key and value of a pair together.
    pub record_bytes_max: u64,
    /// Maximum payload bytes of a frame from the program; a frame with a single pair may have more.
    pub frame_bytes: u64,
    /// Environment variables of the attempt, by name. A program that is started finds them in its environment; a reused
    /// program finds them only here.
    pub env: BTreeMap<&'a str, &'a str>,
    /// Work directory of the attempt, absolute; the current directory of a program that is started.
    pub work_dir: &'a Path,
}

impl JobFrame<'_> {
    /// Version of the described frames.
    pub const VERSION: u32 = 2;
}

/// A stretch of an input that a program reads by itself. The stretches of a file cover it without overlap.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch<'a> {
    /// Path, absolute, or the URL of an object.
    pub path: &'a Path,
    /// Offset in stored bytes.
    pub offset: u64,
    pub length: u64,
    /// Bytes of the whole file at submit.
    pub size: u64,
}

/// The last message of a program that cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProgramFailure {
    pub message: String,
    /// True if another attempt would fail in the same way.
    #[serde(default)]
    pub is_of_data: bool,
    /// Lines of the traceback.
    #[serde(default)]
    pub traceback: Vec<String>,
}
