//! The comparison of keys, and the assignment of keys to reducers, for jobs in which the bytes of the key do not
//! decide.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A position in a key: field and character, both counted from 1, as in `sort -k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldPlace {
    pub field: u32,
    /// In a start: the first character, 1 by default. In an end: the last character; 0 is the end of the field.
    pub character: u32,
}

/// A stretch of a key, between two positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyStretch {
    pub start: FieldPlace,
    /// None extends it to the end of the key.
    pub end: Option<FieldPlace>,
}

impl KeyStretch {
    /// The whole key.
    pub const WHOLE: KeyStretch = KeyStretch { start: FieldPlace { field: 1, character: 1 }, end: None };
}

/// The texts that count as numbers in a numeric order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Integers of any size and decimals, by value; anything else is an error that names the record.
    Strict,
    /// As in Hadoop's comparator: a text that is no number counts as 0.
    Lenient,
}

/// A step of an order: keys that are equal in it are ordered by the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderStep {
    pub stretch: KeyStretch,
    /// None compares bytes.
    pub numbers: Option<Numbers>,
    pub reversed: bool,
}

/// The choice of a partition from the bytes of a key. Fixed per job: a rerun must choose the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionRule {
    /// Number of partitions. Each has one reducer, which sees its partition whole.
    pub count: u32,
    /// The stretches that are hashed; if empty, the whole key, hashed as in Hadoop's HashPartitioner.
    pub stretches: Vec<KeyStretch>,
}

/// Order and partitions of a job. The default is bytewise order without partitions of the user.
///
/// With an order, the stored key is an encoding whose bytes compare as the keys should, and the key itself is stored in
/// front of the value. With partitions, the number of the partition is the first four bytes of the stored key, so that
/// it does not determine the number of I-files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRules {
    /// Steps of the order; if empty, bytewise by the whole key.
    pub order: Vec<OrderStep>,
    /// Separator of the fields in stretches; never empty if there are any.
    pub separator: Vec<u8>,
    pub partitions: Option<PartitionRule>,
    /// Number of leading steps of `order` that form the partition key: a reduce range never splits records that are
    /// equal in them. 0 means all steps.
    pub group_steps: u32,
    /// True if mappers give, for each key, the number of leading bytes that form its partition key. The remaining
    /// bytes, its tail, only determine the order. Order and partitions are empty in this case.
    #[serde(default)]
    pub tails: bool,
}
