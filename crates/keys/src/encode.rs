//! Encoding of a key and a value for storage.

use crate::fields::{Fields, fields_needed};
use crate::number::encode_number;
use crate::partition::{PARTITIONS_MAX, partition_of};
use api::{KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule};
use memchr::memchr_iter;

/// Escape after a zero byte that belongs to the text.
const ESCAPED_ZERO: u8 = 0xff;
/// End of a text. It is smaller than any continuation.
const TEXT_END: [u8; 2] = [0, 1];
/// Code for a stretch beyond the end of the key: before every text and every number.
const NO_SUCH_PLACE: [u8; 2] = [0, 0];
/// Capacity to which buffers return after a long record.
const BUFFER_BYTES_KEPT_MAX: usize = 1 << 20;
/// Bytes of a key that an error shows.
const SHOWN_BYTES_MAX: usize = 100;

/// Contradictory rules, for the user to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRulesError {
    #[error("fields of a key need a separator, but the records of this job have none")]
    NoSeparator,
    #[error("fields and characters count from 1")]
    PlaceZero,
    #[error("{count} partitions: give 1 to {PARTITIONS_MAX}")]
    PartitionCount { count: u32 },
    #[error("the partition key has {group_steps} steps, but the order has only {steps}")]
    GroupSteps { group_steps: u32, steps: usize },
    #[error("keys with tails are compared by their bytes: give no order and no partitions with them")]
    Tails,
}

/// A key without a place in the order. The cause is user data, so the task is not retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{text:?} is not a number")]
    NotANumber { text: String },
}

/// A stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The partition, if the rules have partitions.
    pub partition: Option<u32>,
    /// Length of the partition key at the start of `key`, including the number of the partition.
    pub partition_key_bytes: usize,
}

/// Returns whether the partition key is a proper prefix of the stored key.
pub fn groups_by_prefix(rules: &KeyRules) -> bool {
    rules.tails || (1..rules.order.len()).contains(&(rules.group_steps as usize))
}

/// Encoder of keys by the rules of a job. Its buffers are reused for each record.
#[derive(Debug)]
pub struct KeyEncoder {
    steps: Vec<OrderStep>,
    separator: Vec<u8>,
    partitions: Option<PartitionRule>,
    /// Number of steps in the partition key; all of them by default.
    group_steps: usize,
    /// Number of fields to find; 0 if no stretch refers to fields.
    fields_needed: usize,
    fields: Fields,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl KeyEncoder {
    /// Makes an encoder. Fails if the rules are contradictory.
    pub fn new(rules: &KeyRules) -> Result<KeyEncoder, KeyRulesError> {
        if rules.tails && !(rules.order.is_empty() && rules.partitions.is_none()) {
            return Err(KeyRulesError::Tails);
        }
        let of_order = rules.order.iter().map(|step| &step.stretch);
        let of_partitions = rules.partitions.iter().flat_map(|rule| &rule.stretches);
        let stretches: Vec<&KeyStretch> = of_order.chain(of_partitions).collect();
        for stretch in &stretches {
            let end_field = stretch.end.map_or(1, |end| end.field);
            if stretch.start.field == 0 || stretch.start.character == 0 || end_field == 0 {
                return Err(KeyRulesError::PlaceZero);
            }
        }
        let needed = stretches.iter().map(|stretch| fields_needed(stretch)).max().unwrap_or(0);
        if needed > 0 && rules.separator.is_empty() {
            return Err(KeyRulesError::NoSeparator);
        }
        if let Some(rule) = &rules.partitions
            && !(1..=PARTITIONS_MAX).contains(&rule.count)
        {
            return Err(KeyRulesError::PartitionCount { count: rule.count });
        }
        let steps = rules.order.len();
        let group_steps = match rules.group_steps as usize {
            0 => steps,
            some if some <= steps => some,
            _ => return Err(KeyRulesError::GroupSteps { group_steps: rules.group_steps, steps }),
        };
        Ok(KeyEncoder {
            steps: rules.order.clone(),
            separator: rules.separator.clone(),
            partitions: rules.partitions.clone(),
            group_steps,
            fields_needed: needed,
            fields: Fields::default(),
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Returns whether keys and values are stored unchanged, so that no encoding is needed.
    pub fn is_plain(&self) -> bool {
        self.steps.is_empty() && self.partitions.is_none()
    }

    /// Encodes a record. Allocates nothing once the buffers have grown.
    pub fn encode<'a>(&'a mut self, key: &'a [u8], value: &'a [u8]) -> Result<Stored<'a>, KeyError> {
        self.key.clear();
        self.fields.scan(key, &self.separator, self.fields_needed);
        let partition = self.partitions.as_ref().map(|rule| {
            let partition = partition_of(rule, &self.fields, key, self.separator.len());
            self.key.extend_from_slice(&partition.to_be_bytes());
            partition
        });
        if self.steps.is_empty() {
            self.key.extend_from_slice(key);
            self.key.shrink_to(BUFFER_BYTES_KEPT_MAX);
            return Ok(Stored { key: &self.key, value, partition, partition_key_bytes: self.key.len() });
        }
        let mut partition_key_bytes = 0;
        for (index, step) in self.steps.iter().enumerate() {
            let stretch = self.fields.stretch(key, self.separator.len(), &step.stretch);
            push_step(step, stretch, &mut self.key)?;
            if index + 1 == self.group_steps {
                partition_key_bytes = self.key.len();
            }
        }
        self.value.clear();
        push_length(key.len(), &mut self.value);
        self.value.extend_from_slice(key);
        self.value.extend_from_slice(value);
        self.key.shrink_to(BUFFER_BYTES_KEPT_MAX);
        self.value.shrink_to(BUFFER_BYTES_KEPT_MAX);
        Ok(Stored { key: &self.key, value: &self.value, partition, partition_key_bytes })
    }
}

#[inline]
fn push_step(step: &OrderStep, stretch: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), KeyError> {
    let start = out.len();
    match (stretch, step.numbers) {
        (Some(bytes), None) => push_text(bytes, out),
        (Some(bytes), Some(numbers)) => {
            encode_number(numbers, bytes, out).map_err(|_| not_a_number(bytes))?;
        }
        (None, Some(Numbers::Strict)) => return Err(not_a_number(b"")),
        (None, _) => out.extend_from_slice(&NO_SUCH_PLACE),
    }
    if step.reversed {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

#[inline]
fn push_text(bytes: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    for zero in memchr_iter(0, bytes) {
        out.extend_from_slice(&bytes[start..=zero]);
        out.push(ESCAPED_ZERO);
        start = zero + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.extend_from_slice(&TEXT_END);
}

/// Appends a LEB128 number.
#[inline]
fn push_length(length: usize, out: &mut Vec<u8>) {
    let mut rest = length;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cold]
fn not_a_number(bytes: &[u8]) -> KeyError {
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned();
    if bytes.len() > SHOWN_BYTES_MAX {
        text.push('…');
    }
    KeyError::NotANumber { text }
}

#[cfg(test)]
mod tests {
    use super::{KeyEncoder, KeyError, KeyRulesError, groups_by_prefix};
    use crate::{parse_order_options, parse_partition_options};
    use api::{KeyRules, Numbers, PartitionRule};

    fn rules(order: &str, partitions: Option<(u32, &str)>, group_steps: u32) -> KeyRules {
        let rule = |(count, options): (u32, &str)| PartitionRule {
            count,
            stretches: parse_partition_options(options).unwrap(),
        };
        KeyRules {
            order: parse_order_options(order, Numbers::Strict).unwrap(),
            separator: b".".to_vec(),
            partitions: partitions.map(rule),
            group_steps,
            tails: false,
        }
    }

    /// (stored key, stored value, bytes of the partition key)
    fn check(rules: &KeyRules, key: &[u8], expected: (&[u8], &[u8], usize)) {
        let mut encoder = KeyEncoder::new(rules).unwrap();
        let stored = encoder.encode(key, b"v").unwrap();
        assert_eq!((stored.key, stored.value, stored.partition_key_bytes), expected, "{key:?} {rules:?}");
    }

    #[test]
    fn records_are_stored_as_documented() {
        assert!(KeyEncoder::new(&KeyRules::default()).unwrap().is_plain());
        check(&KeyRules::default(), b"key", (b"key", b"v", 3));
        check(&rules("", Some((10, "")), 0), b"a", (b"\0\0\0\x08a", b"v", 5));
        check(&rules("-k1", None, 0), b"a\0b", (b"a\0\xffb\0\x01", b"\x03a\0bv", 6));
        check(&rules("-k1r", None, 0), b"a", (&[!b'a', 0xff, 0xfe], b"\x01av", 3));
        check(&rules("-k2,2n -k1,1", None, 1), b"a.0", (b"\x80a\0\x01", b"\x03a.0v", 1));
        check(&rules("-k2,2 -k1,1", Some((10, "-k1,1")), 1), b"a", (b"\0\0\0\x07\0\0a\0\x01", b"\x01av", 6));
        assert!(groups_by_prefix(&rules("-k1 -k2", None, 1)));
        assert!(groups_by_prefix(&KeyRules { tails: true, ..KeyRules::default() }));
        assert!(
            !groups_by_prefix(&rules("-k1 -k2", None, 2)) && !groups_by_prefix(&rules("-k1 -k2", None, 0))
        );
    }

    #[test]
    fn a_long_key_has_a_long_length() {
        let key = [b'x'; 300];
        let mut encoder = KeyEncoder::new(&rules("-k1", None, 0)).unwrap();
        let stored = encoder.encode(&key, b"").unwrap();
        assert_eq!(stored.value[..2], [0xac, 0x02]);
    }

    #[test]
    fn wrong_numbers_are_shown() {
        let mut encoder = KeyEncoder::new(&rules("-k2,2n", None, 0)).unwrap();
        let mut refused = |key: &[u8]| match encoder.encode(key, b"").unwrap_err() {
            KeyError::NotANumber { text } => text,
        };
        assert_eq!(refused(b"a.b"), "b");
        assert_eq!(refused(b"a"), "");
        assert_eq!(refused(&[&b"a."[..], &[b'x'; 200]].concat()).chars().count(), 101);
    }

    #[test]
    fn rules_that_cannot_be_obeyed_are_refused() {
        let check = |change: fn(&mut KeyRules), expected| {
            let mut changed = rules("-k1,1 -k2", Some((3, "")), 0);
            change(&mut changed);
            assert_eq!(KeyEncoder::new(&changed).err(), Some(expected));
        };
        check(|rules| rules.tails = true, KeyRulesError::Tails);
        check(|rules| rules.separator.clear(), KeyRulesError::NoSeparator);
        check(|rules| rules.order[0].stretch.start.field = 0, KeyRulesError::PlaceZero);
        check(|rules| rules.order[0].stretch.start.character = 0, KeyRulesError::PlaceZero);
        check(|rules| rules.group_steps = 3, KeyRulesError::GroupSteps { group_steps: 3, steps: 2 });
        let count = |count| KeyRulesError::PartitionCount { count };
        check(|rules| rules.partitions.as_mut().unwrap().count = 0, count(0));
        check(|rules| rules.partitions.as_mut().unwrap().count = 50_001, count(50_001));
    }
}
