//! The reasons for the placement of attempts, for the store.

use api::placement::{PlacementKind, PlacementReason};
use ids::AttemptKey;
use rows::Change;
use scheduler::{Why, WhyHere};

/// Returns the row for the scheduler's reason.
pub(crate) fn placed(attempt: AttemptKey, why: Why) -> Change {
    let reason = PlacementReason {
        place: match why.place {
            WhyHere::Any => PlacementKind::Any,
            WhyHere::OnlyHere => PlacementKind::OnlyHere,
            WhyHere::NearData => PlacementKind::NearData,
            WhyHere::NoNearerSlot => PlacementKind::NoNearerSlot,
            WhyHere::BesideSlow => PlacementKind::BesideSlow,
            WhyHere::NotWhereItFailed => PlacementKind::NotWhereItFailed,
        },
        waited_ns: why.waited_ns,
        slots_free: why.slots_free,
        user_running: why.user_running,
        levels_risen: why.levels_risen,
    };
    let reason = serde_json::to_string(&reason).expect("numbers and words can be written");
    Change::Placed { attempt, reason }
}
