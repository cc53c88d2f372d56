//! Pairs as a program puts them out: the lengths of all keys, the lengths of all values, the keys, the values.

/// Why a payload holds no pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairsError {
    #[error("it has {present} bytes, too few for the lengths of {count} pairs")]
    Lengths { count: u64, present: usize },
    #[error("its lengths add up to {told} bytes, and {present} follow them")]
    Bytes { told: u64, present: usize },
}

/// A payload that was looked at: every length lies within it.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    key_lengths: &'a [[u8; 4]],
    value_lengths: &'a [[u8; 4]],
    keys: &'a [u8],
    values: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Takes a payload apart.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PairsError> {
        let Some((count, rest)) = payload.split_first_chunk::<4>() else {
            return Err(PairsError::Lengths { count: 0, present: payload.len() });
        };
        let count = u32::from_le_bytes(*count) as usize;
        let too_few = PairsError::Lengths { count: count as u64, present: payload.len() };
        let (lengths, _) = rest.as_chunks::<4>();
        if lengths.len() / 2 < count {
            return Err(too_few);
        }
        let (key_lengths, value_lengths) = lengths[..2 * count].split_at(count);
        let data = &rest[2 * count * 4..];
        let (key_bytes, value_bytes) = (sum(key_lengths), sum(value_lengths));
        if key_bytes + value_bytes != data.len() as u64 {
            return Err(PairsError::Bytes { told: key_bytes + value_bytes, present: data.len() });
        }
        let (keys, values) = data.split_at(key_bytes as usize);
        Ok(Self { key_lengths, value_lengths, keys, values })
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.key_lengths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.key_lengths.is_empty()
    }

    /// The pairs in their order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let Self { mut keys, mut values, .. } = self;
        let mut next = move |key_length: &[u8; 4], value_length: &[u8; 4]| {
            let key = take(&mut keys, key_length);
            (key, take(&mut values, value_length))
        };
        self.key_lengths.iter().zip(self.value_lengths).map(move |(key, value)| next(key, value))
    }
}

/// No overflow: four billion times four billion fit.
fn sum(lengths: &[[u8; 4]]) -> u64 {
    lengths.iter().map(|length| u64::from(u32::from_le_bytes(*length))).sum()
}

fn take<'a>(bytes: &mut &'a [u8], length: &[u8; 4]) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(u32::from_le_bytes(*length) as usize);
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::{Pairs, PairsError};
    use proptest::prelude::*;

    fn encoded(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let length = |bytes: &Vec<u8>| (bytes.len() as u32).to_le_bytes();
        let mut payload = (pairs.len() as u32).to_le_bytes().to_vec();
        payload.extend(pairs.iter().flat_map(|(key, _)| length(key)));
        payload.extend(pairs.iter().flat_map(|(_, value)| length(value)));
        payload.extend(pairs.iter().flat_map(|(key, _)| key.iter().copied()));
        payload.extend(pairs.iter().flat_map(|(_, value)| value.iter().copied()));
        payload
    }

    proptest! {
        #[test]
        fn pairs_come_back(pairs: Vec<(Vec<u8>, Vec<u8>)>) {
            let payload = encoded(&pairs);
            let parsed = Pairs::parse(&payload).unwrap();
            let back: Vec<(Vec<u8>, Vec<u8>)> =
                parsed.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(back, pairs);
        }

        #[test]
        fn whatever_is_cut_off_is_noticed(pairs: Vec<(Vec<u8>, Vec<u8>)>, cut: prop::sample::Index) {
            let payload = encoded(&pairs);
            prop_assert!(Pairs::parse(&payload[..cut.index(payload.len())]).is_err());
            let more = [&payload[..], &[0]].concat();
            prop_assert!(Pairs::parse(&more).is_err());
        }
    }

    #[test]
    fn lengths_that_are_too_large_are_refused() {
        let mut payload = encoded(&[(b"ab".to_vec(), b"c".to_vec())]);
        payload[4] = 3;
        assert_eq!(Pairs::parse(&payload).unwrap_err(), PairsError::Bytes { told: 4, present: 3 });
        payload[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let expected = PairsError::Lengths { count: u64::from(u32::MAX), present: payload.len() };
        assert_eq!(Pairs::parse(&payload).unwrap_err(), expected);
    }
}
