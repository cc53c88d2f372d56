//! Fault drills: faults that an administrator has done to nodes, to see that nothing is lost. The nodes were started
//! for it.

use ids::JobId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Prefix of the names of jobs of drills; only their data and programs are struck.
pub const DRILL_JOB_PREFIX: &str = "sailfish-drill-";
/// Longest that a node stands still.
pub const PAUSE_SECONDS_MAX: u32 = 60;
/// Longest that a crash point stays armed.
pub const ARMED_SECONDS_MAX: u32 = 600;

/// Fault that is done to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrillFault {
    /// Nothing: it only says whether it takes part.
    Look,
    /// Its process ends at once, as by a crash.
    KillNode,
    /// Its process stands still for so many seconds, and then goes on: at most [`PAUSE_SECONDS_MAX`].
    PauseNode { seconds: u32 },
    /// One byte of a run file of the job changes; `choice` selects the file and the byte.
    DamageRun { job: JobId, choice: u64 },
    /// A run file of the job is removed.
    DropRun { job: JobId, choice: u64 },
    /// A user program of the job is killed.
    KillProgram { job: JobId },
    /// Its process ends as soon as it comes past this crash point, within so many seconds: at most [`ARMED_SECONDS_MAX`].
    CrashAt { point: String, seconds: u32 },
    /// No crash point is armed any more.
    Disarm,
}

impl DrillFault {
    /// Returns the job whose data or programs are struck; None for a fault that strikes the node.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::DamageRun { job, .. } | Self::DropRun { job, .. } | Self::KillProgram { job } => Some(*job),
            Self::Look | Self::KillNode | Self::PauseNode { .. } | Self::CrashAt { .. } | Self::Disarm => {
                None
            }
        }
    }

    /// Whether the process of the node ends, now or when it comes to a crash point.
    pub fn ends_node(&self) -> bool {
        matches!(self, Self::KillNode | Self::CrashAt { .. })
    }
}

/// Outcome of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrillOutcome {
    /// The fault strikes: `what` describes the deed in words. A node that dies or stands still says so before.
    Struck { what: String },
    /// There is nothing there that it could strike.
    NoVictim { why: String },
    /// The node does not do it.
    Refused { why: String },
}

/// A node tells what became of a fault that it was ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillNews {
    pub incarnation: String,
    /// The name of the order.
    pub strike: String,
    pub outcome: DrillOutcome,
}
