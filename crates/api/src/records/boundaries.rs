//! Range boundaries: the I-file to which a `range` partitioner sends a key. They guide batching and never decide about
//! order.

use crate::KeyBytes;
use ids::BoundariesVersion;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One version of the boundaries of a job. `keys` is sorted and has fewer entries than there are I-files: a key goes to
/// the I-file whose index is the number of boundaries that are <= the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Boundaries {
    pub version: BoundariesVersion,
    pub keys: Vec<KeyBytes>,
}
