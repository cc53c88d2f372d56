//! The reasons for the placement of attempts, as stored and shown.

use crate::history::AttemptState;
use ids::{AttemptKey, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The reason why an attempt ran on its node. The store keeps it as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementReason {
    pub place: PlacementKind,
    /// Nanoseconds since its job was last served, or was submitted.
    pub waited_ns: u64,
    /// Number of slots that asked for work at that time, its own included.
    pub slots_free: u32,
    /// Number of running attempts of its user before it.
    pub user_running: u32,
    /// Number of priority levels that its job had risen because it waited.
    pub levels_risen: u32,
}

/// The reason for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementKind {
    /// Any node would do; its slot was the first to ask.
    Any,
    /// Only this node has the data of the task.
    OnlyHere,
    NearData,
    /// No slot near its data asked in time.
    NoNearerSlot,
    /// A speculative attempt: another attempt of the task was slow on another node.
    BesideSlow,
    /// A retry: the task failed because of its previous node.
    NotWhereItFailed,
}

/// The attempts of a job with the reasons for their placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPlacements {
    /// Its stages, by number.
    pub stages: Vec<ids::StageKind>,
    /// In order of stage, task and number.
    pub attempts: Vec<PlacedAttempt>,
    /// Losses of its data and the repairs, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
    /// Slow attempts, the reasons, and the decisions, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<String>,
    /// Resource that the job waits for besides a slot, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacedAttempt {
    pub attempt: AttemptKey,
    pub node: NodeId,
    pub slot: u32,
    pub state: AttemptState,
    /// None if there is little to say: the only task of its stage, which may run on any node.
    pub reason: Option<PlacementReason>,
}
