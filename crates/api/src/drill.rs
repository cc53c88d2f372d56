//! Fault drills: an administrator injects faults into nodes that were started for this purpose, to verify that nothing
//! is lost.

use ids::JobId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Prefix of the names of drill jobs; only their data and programs are damaged.
pub const DRILL_JOB_PREFIX: &str = "sailfish-drill-";
/// Longest pause of a node, in seconds.
pub const PAUSE_SECONDS_MAX: u32 = 60;
/// Longest time that a crash point stays armed, in seconds.
pub const ARMED_SECONDS_MAX: u32 = 600;

/// A fault to inject into a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrillFault {
    /// No fault: the node only says whether it takes part.
    Look,
    /// Its process ends at once, as in a crash.
    KillNode,
    /// Its process is paused for this many seconds, at most [`PAUSE_SECONDS_MAX`].
    PauseNode { seconds: u32 },
    /// A byte in a run file of the job is changed; `choice` selects the file and the byte.
    DamageRun { job: JobId, choice: u64 },
    /// A run file of the job is removed.
    DropRun { job: JobId, choice: u64 },
    /// A user program of the job is killed.
    KillProgram { job: JobId },
    /// Its process ends when it next passes this crash point, within this many seconds, at most [`ARMED_SECONDS_MAX`].
    CrashAt { point: String, seconds: u32 },
    /// All crash points are disarmed.
    Disarm,
}

impl DrillFault {
    /// Returns the job whose data or programs are damaged; None for a fault of the whole node.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::DamageRun { job, .. } | Self::DropRun { job, .. } | Self::KillProgram { job } => Some(*job),
            Self::Look | Self::KillNode | Self::PauseNode { .. } | Self::CrashAt { .. } | Self::Disarm => {
                None
            }
        }
    }

    /// Returns whether the process of the node ends, now or at a crash point.
    pub fn ends_node(&self) -> bool {
        matches!(self, Self::KillNode | Self::CrashAt { .. })
    }
}

/// Outcome of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrillOutcome {
    /// The fault was injected, as `what` describes. A node that dies or pauses reports this before.
    Struck { what: String },
    /// The node has nothing that the fault could damage.
    NoVictim { why: String },
    /// The node refuses the fault.
    Refused { why: String },
}

/// A node's report on the outcome of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillNews {
    pub incarnation: String,
    /// Name of the fault in the order.
    pub strike: String,
    pub outcome: DrillOutcome,
}
