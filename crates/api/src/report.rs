//! `_report.json`: the figures of a job. Written into the output directory and kept in the store.

use crate::{Formats, Layout, task::Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Version of the format of the report.
pub const REPORT_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    pub report_version: u32,
    pub sailfish_version: String,
    pub job: ids::JobId,
    pub name: String,
    pub mapper: String,
    pub combiner: String,
    pub reducer: String,
    /// `hash`, `range` or `map_only`.
    pub partitioning: String,
    pub memory_bytes: u64,
    pub slots: u32,
    /// True if the output was synced before the rename.
    pub synced: bool,
    pub layout: Layout,
    /// The formats in which records were read and written.
    #[serde(default)]
    pub formats: Formats,
    pub input: InputReport,
    pub map: MapReport,
    pub shuffle: ShuffleReport,
    pub reduce: ReduceReport,
    pub phases: Vec<PhaseReport>,
    /// Slot seconds of attempts that failed, lost or were cancelled.
    pub waste_slot_seconds: f64,
    /// Slot seconds in which a slot was idle.
    pub idle_slot_seconds: f64,
    pub proof: ProofReport,
    pub plan: Vec<PlanRow>,
    pub parts: Vec<Part>,
    /// Counters of programs (`reporter:counter:`), winning attempts only, by `GROUP,NAME`.
    pub counters: BTreeMap<String, i64>,
    /// Warnings about the inputs; at most [`REPORT_WARNINGS_MAX`]. `warning_count` has their total number.
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub warning_count: u64,
    /// The job whose kept I-files were reduced again; the maps ran in that job.
    #[serde(default)]
    pub reduce_again: Option<ids::JobId>,
}

/// Value of [`JobReport::partitioning`] for a job without a shuffle.
pub const MAP_ONLY: &str = "map_only";

impl JobReport {
    /// Returns whether records went through I-files.
    pub fn has_shuffle(&self) -> bool {
        self.partitioning != MAP_ONLY
    }
}

/// The names of the parts of a report of any version; an output holds these files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReportedParts {
    pub parts: Vec<ReportedPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReportedPart {
    pub name: String,
}

/// The number of the job of a report of any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ReportedJob {
    pub job: ids::JobId,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputReport {
    pub files: u64,
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Bytes and records after decompression.
    pub bytes: u64,
    pub records: u64,
    pub splits: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapReport {
    pub tasks: u64,
    pub attempts: u64,
    pub output_records: u64,
    pub output_bytes: u64,
    pub unread_bytes: u64,
    /// Tasks whose program ended before its input, most bytes first; at most [`UNREAD_TASKS_SHOWN_MAX`].
    #[serde(default)]
    pub unread: Vec<UnreadTask>,
    /// Number of all such tasks.
    #[serde(default)]
    pub unread_tasks: u64,
    /// The stored files of a cluster that the tasks read; None if they read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredReport>,
}

/// Reads of stored files of a cluster by the winning map tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredReport {
    /// Tasks that read stored files, and those of them that read at least half of these bytes from their own node.
    pub tasks: u64,
    pub near_tasks: u64,
    /// Bytes from disks of the own node, and from other nodes.
    pub here_bytes: u64,
    pub elsewhere_bytes: u64,
    /// Those of the bytes from other nodes that came from local copies, and not from replicas.
    #[serde(default)]
    pub passed_on_bytes: u64,
}

/// Maximum number of warnings in a report.
pub const REPORT_WARNINGS_MAX: usize = 20;

/// Maximum number of map tasks with unread input in a report.
pub const UNREAD_TASKS_SHOWN_MAX: usize = 20;

/// A map task whose program ended without an error before the end of its input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnreadTask {
    pub task: u32,
    /// The first input of the task.
    pub input: String,
    pub unread_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShuffleReport {
    pub ifiles: u64,
    pub records: u64,
    pub bytes: u64,
    pub chunks: u64,
    /// Sum over the I-files of ceil(bytes / chunk size).
    pub chunks_optimum: u64,
    pub oversize_chunks: u64,
    /// Lowest fill of a chunk that is not the last of its I-file, in percent; 100 if there is none.
    pub fill_percent_min: f64,
    /// Mean over the same chunks.
    pub fill_percent_mean: f64,
    pub runs: u64,
    pub runs_in_memory: u64,
    pub run_stored_bytes: u64,
    pub raw_spills: u64,
    pub raw_spill_bytes: u64,
    /// Runs made by extra merge passes.
    pub merged_runs: u64,
    pub sort_seconds: f64,
    pub write_seconds: f64,
    /// Bytes in the spools of map tasks, with mode `selective`.
    #[serde(default)]
    pub spooled_bytes: u64,
    /// Record bytes that were sent again from spools.
    #[serde(default)]
    pub resent_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReduceReport {
    pub tasks: u64,
    pub attempts: u64,
    pub plan_version: u32,
    pub target_bytes: u64,
    pub groups: u64,
    pub dropped_records: u64,
    pub unread_bytes: u64,
    pub retrievals: u64,
    pub retrieved_bytes: u64,
    pub bytes_per_retrieval: f64,
    pub fan_in_max: u32,
}

/// Wall time of a stage, from the start of its first attempt to the end of its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseReport {
    pub stage: ids::StageKind,
    pub wall_seconds: f64,
    pub slot_seconds: f64,
    pub tasks: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProofReport {
    /// True if the records that the reduce tasks merged equal the records that the maps committed, I-file by I-file.
    pub agrees: bool,
    pub ifiles: u64,
    pub records: u64,
    pub bytes: u64,
    /// 32 hex digits.
    pub hash_sum: String,
}

/// A reduce task of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRow {
    pub part: u32,
    pub ifiles: Vec<ids::IfileIndex>,
    pub lower_key: Option<crate::KeyBytes>,
    pub upper_key: Option<crate::KeyBytes>,
    pub runs: u64,
    pub expected_bytes: u64,
    pub merged_bytes: u64,
}
