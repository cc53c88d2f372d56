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

/// The first frame that a program gets of a task.
#[derive(Clone, Debug, Serialize)]
pub struct JobFrame<'a> {
    pub version: u32,
    pub role: ProgramRole,
    /// Rule by which the input of a mapper is parted into records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RecordFormat>,
    /// Most bytes of key and value of a pair together.
    pub record_bytes_max: u64,
    /// Most bytes that the payload of a frame from the program should have; a frame with a single pair may have more.
    pub frame_bytes: u64,
    /// Variables of the environment of the attempt, by name. A program that is started finds them in its environment;
    /// a program that goes on is only told.
    pub env: BTreeMap<&'a str, &'a str>,
    /// Work directory of the attempt, absolute; the current directory of a program that is started.
    pub work_dir: &'a Path,
}

impl JobFrame<'_> {
    /// Version of the frames that are described.
    pub const VERSION: u32 = 2;
}

/// A stretch of an input that a program is to read by itself. Those of a file cover it, and none lies in another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch<'a> {
    /// Path, absolute, or the URL of an object.
    pub path: &'a Path,
    /// Bytes as they are stored.
    pub offset: u64,
    pub length: u64,
    /// Bytes of the whole file as it was at submit.
    pub size: u64,
}

/// Message of a program that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProgramFailure {
    pub message: String,
    /// Whether another attempt would give the same.
    #[serde(default)]
    pub is_of_data: bool,
    /// Lines of the traceback.
    #[serde(default)]
    pub traceback: Vec<String>,
}
