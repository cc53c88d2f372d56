use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Kind of a stage: the work of its tasks. A job has at most one stage of each kind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Reads and maps input, and appends to chunks.
    #[default]
    Map,
    /// Sort of chunks into runs.
    Seal,
    /// Adoption of the kept runs of another job.
    Adopt,
    /// Merge of runs into fewer ones.
    Merge,
    Reduce,
    Commit,
    /// Runs a program: the work of a job that is not MapReduce.
    Run,
}

crate::words!(
    StageKind: Map = "map", Seal = "seal", Adopt = "adopt", Merge = "merge", Reduce = "reduce",
    Commit = "commit", Run = "run"
);

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
