//! The sums that prove the shuffle complete (`docs/internals/lost-data.md`).

use ids::{ChunkId, IfileIndex};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Records, their encoded bytes, and the wrapping 128-bit sum of their hashes. Independent of order;
/// two sums add up field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DataSum {
    pub records: u64,
    /// Bytes of the encoded records as `ifile` counts them (lengths, key, value; no source).
    pub bytes: u64,
    #[serde(with = "hash_hex")]
    #[schema(value_type = String)]
    pub hash_sum: u128,
}

impl DataSum {
    /// Adds one record.
    #[inline]
    pub fn add_record(&mut self, encoded_bytes: u64, hash: u128) {
        self.records += 1;
        self.bytes += encoded_bytes;
        self.hash_sum = self.hash_sum.wrapping_add(hash);
    }

    /// Adds another sum.
    #[inline]
    pub fn add(&mut self, other: &DataSum) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.hash_sum = self.hash_sum.wrapping_add(other.hash_sum);
    }
}

/// The records that a map attempt claims to have appended to one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceCommit {
    pub ifile: IfileIndex,
    pub chunk: ChunkId,
    pub sum: DataSum,
}

/// A 128-bit number as 32 hex digits, because JSON numbers cannot hold it.
pub(crate) mod hash_hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}
