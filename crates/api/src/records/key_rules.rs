//! How keys are compared, and which reducer a key goes to, where that is not the key's bytes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A place in a key: field and character, both counted from 1, as in `sort -k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldPlace {
    pub field: u32,
    /// In a start: the first character, 1 by default. In an end: the last one; 0 is the field's end.
    pub character: u32,
}

/// A stretch of a key, from a place to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyStretch {
    pub start: FieldPlace,
    /// None: to the end of the key.
    pub end: Option<FieldPlace>,
}

impl KeyStretch {
    /// The whole key.
    pub const WHOLE: KeyStretch = KeyStretch { start: FieldPlace { field: 1, character: 1 }, end: None };
}

/// Texts that count as a number in a numeric order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Integers of any size and decimals, by value; anything else is an error that names the record.
    Strict,
    /// As Hadoop's comparator reads them: a text that is no number counts as 0.
    Lenient,
}

/// One step of an order: keys equal in it are ordered by the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderStep {
    pub stretch: KeyStretch,
    /// None: bytewise.
    pub numbers: Option<Numbers>,
    pub reversed: bool,
}

/// How a partition is chosen from the bytes of a key. Fixed per job: a re-run must choose the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionRule {
    /// Number of parts. Each has one reducer, which sees its partition whole.
    pub count: u32,
    /// The stretches that are hashed; empty: the whole key, hashed as Hadoop's HashPartitioner does.
    pub stretches: Vec<KeyStretch>,
}

/// Order and partitions of a job. The default: bytewise, no partitions of the user's own.
///
/// With an order the stored key is an encoding whose bytes compare as the keys should, and the key itself travels
/// in front of the value. With partitions the number of the partition is the first four bytes of the stored key,
/// so that it does not set the number of I-files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRules {
    /// Empty: bytewise by the whole key.
    pub order: Vec<OrderStep>,
    /// Separator of the fields that stretches name; never empty if there are any.
    pub separator: Vec<u8>,
    pub partitions: Option<PartitionRule>,
    /// The first so many steps of `order` are the partition key: a reduce range never splits records that are
    /// equal in them. 0: all of them.
    pub group_steps: u32,
    /// Mappers say for each key how many of its first bytes are its partition key; the bytes behind it, its tail,
    /// only order. Order and partitions are empty then.
    #[serde(default)]
    pub tails: bool,
}
