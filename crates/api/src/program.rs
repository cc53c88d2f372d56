//! What the engine and a program say to each other as JSON, in frames (`docs/formats/program-frames.md`).

use crate::RecordFormat;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramRole {
    Map,
    Combine,
    Reduce,
}

/// The first frame that a program gets.
#[derive(Clone, Debug, Serialize)]
pub struct JobFrame {
    pub version: u32,
    pub role: ProgramRole,
    /// How the records of a mapper are parted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RecordFormat>,
    /// The most that key and value of a pair may have together.
    pub record_bytes_max: u64,
    /// What the payload of a frame from the program should have at most; one with a single pair may have more.
    pub frame_bytes: u64,
}

impl JobFrame {
    /// Of the frames that are described.
    pub const VERSION: u32 = 2;
}

/// A stretch of an input that a program is to read by itself. Those of a file cover it, and none lies in another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch<'a> {
    /// Absolute, or the URL of an object.
    pub path: &'a Path,
    /// Bytes as they are stored.
    pub offset: u64,
    pub length: u64,
    /// Of the whole file as it was at submit.
    pub size: u64,
}

/// What a program says when it cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProgramFailure {
    pub message: String,
    /// Another attempt would give the same.
    #[serde(default)]
    pub is_of_data: bool,
    /// Lines.
    #[serde(default)]
    pub traceback: Vec<String>,
}
