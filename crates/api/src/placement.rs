//! Reasons why attempts ran where they did, as the store remembers them and people are told.

use crate::history::AttemptState;
use ids::{AttemptKey, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason why an attempt ran on its node. The store keeps it as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementReason {
    pub place: PlacementKind,
    /// Nanoseconds since its job was served last, or came.
    pub waited_ns: u64,
    /// Slots that asked for work then, its own among them.
    pub slots_free: u32,
    /// Attempts that its user had running before.
    pub user_running: u32,
    /// How many priorities its job had risen, because it waited.
    pub levels_risen: u32,
}

/// Why this node and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementKind {
    /// Any would do; its slot had asked first.
    Any,
    /// This node alone has what the task needs.
    OnlyHere,
    NearData,
    /// No slot near its data asked in time.
    NoNearerSlot,
    /// Another attempt of the task was slow on another node.
    BesideSlow,
    /// The task failed for a reason of its node, and this is another one.
    NotWhereItFailed,
}

/// The attempts of a job and why each ran where it did.
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
    /// None where there was little to say: the only task of its stage, which might run anywhere.
    pub reason: Option<PlacementReason>,
}
