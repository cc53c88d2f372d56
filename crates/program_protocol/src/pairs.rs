//! Pairs from a program: the lengths of all keys, the lengths of all values, the keys, the values. If keys have tails,
//! the lengths of the partition keys follow those of the values.

/// Reason why a payload holds no pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairsError {
    #[error("it has {present} bytes, too few for the lengths of {count} pairs")]
    Lengths { count: u64, present: usize },
    #[error("its lengths add up to {told} bytes, but {present} follow them")]
    Bytes { told: u64, present: usize },
    #[error(
        "the partition key of its pair {pair} has {partition_key_bytes} bytes, but the key has {key_bytes}"
    )]
    PartitionKey { pair: usize, partition_key_bytes: u32, key_bytes: u32 },
}

/// A checked payload: every length lies within it.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    key_lengths: &'a [[u8; 4]],
    value_lengths: &'a [[u8; 4]],
    keys: &'a [u8],
    values: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Parses a payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PairsError> {
        let (count, lengths, data) = columns(payload, 2)?;
        let (key_lengths, value_lengths) = lengths.split_at(count);
        Self::of(key_lengths, value_lengths, data)
    }

    fn of(
        key_lengths: &'a [[u8; 4]],
        value_lengths: &'a [[u8; 4]],
        data: &'a [u8],
    ) -> Result<Self, PairsError> {
        let (key_bytes, value_bytes) = (sum(key_lengths), sum(value_lengths));
        if key_bytes + value_bytes != data.len() as u64 {
            return Err(PairsError::Bytes { told: key_bytes + value_bytes, present: data.len() });
        }
        let (keys, values) = data.split_at(key_bytes as usize);
        Ok(Self { key_lengths, value_lengths, keys, values })
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.key_lengths.len()
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.key_lengths.is_empty()
    }

    /// Returns the pairs in order.
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

/// Pairs of keys with tails: the first bytes of a key are its partition key, and each pair has their number.
#[derive(Clone, Copy, Debug)]
pub struct TailedPairs<'a> {
    pairs: Pairs<'a>,
    partition_key_lengths: &'a [[u8; 4]],
}

impl<'a> TailedPairs<'a> {
    /// Parses a payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PairsError> {
        let (count, lengths, data) = columns(payload, 3)?;
        let (key_lengths, rest) = lengths.split_at(count);
        let (value_lengths, partition_key_lengths) = rest.split_at(count);
        let lengths = partition_key_lengths.iter().zip(key_lengths).enumerate();
        for (pair, (partition_key_length, key_length)) in lengths {
            let key_bytes = u32::from_le_bytes(*key_length);
            let partition_key_bytes = u32::from_le_bytes(*partition_key_length);
            if partition_key_bytes > key_bytes {
                return Err(PairsError::PartitionKey { pair, partition_key_bytes, key_bytes });
            }
        }
        let pairs = Pairs::of(key_lengths, value_lengths, data)?;
        Ok(Self { pairs, partition_key_lengths })
    }

    /// Returns the pairs without the lengths of their partition keys.
    pub fn pairs(&self) -> Pairs<'a> {
        self.pairs
    }

    /// Returns the pairs in order: key, value, and the length of the partition key.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8], usize)> {
        let lengths = self.partition_key_lengths.iter().map(|length| u32::from_le_bytes(*length) as usize);
        self.pairs.iter().zip(lengths).map(|((key, value), length)| (key, value, length))
    }
}

/// Reads the number of pairs, the columns of lengths, and the rest.
#[expect(clippy::type_complexity, reason = "three things that have one use")]
fn columns(payload: &[u8], lengths_of_pair: usize) -> Result<(usize, &[[u8; 4]], &[u8]), PairsError> {
    let Some((count, rest)) = payload.split_first_chunk::<4>() else {
        return Err(PairsError::Lengths { count: 0, present: payload.len() });
    };
    let count = u32::from_le_bytes(*count) as usize;
    let (lengths, _) = rest.as_chunks::<4>();
    if lengths.len() / lengths_of_pair < count {
        return Err(PairsError::Lengths { count: count as u64, present: payload.len() });
    }
    let lengths = &lengths[..lengths_of_pair * count];
    Ok((count, lengths, &rest[lengths.as_flattened().len()..]))
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
    use super::{Pairs, PairsError, TailedPairs};
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

    /// Pairs with the lengths of their partition keys.
    type Tailed = Vec<((Vec<u8>, Vec<u8>), u32)>;

    fn encoded_with_tails(tailed: &Tailed) -> Vec<u8> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = tailed.iter().map(|(pair, _)| pair.clone()).collect();
        let mut payload = encoded(&pairs);
        let partition_keys = tailed.iter().flat_map(|(_, length)| length.to_le_bytes());
        let behind_lengths = 4 + 8 * tailed.len();
        payload.splice(behind_lengths..behind_lengths, partition_keys);
        payload
    }

    fn any_tailed() -> impl Strategy<Value = Tailed> {
        let pair = any::<((Vec<u8>, Vec<u8>), prop::sample::Index)>();
        let with_length = pair.prop_map(|(pair, index)| {
            let length = index.index(pair.0.len() + 1) as u32;
            (pair, length)
        });
        prop::collection::vec(with_length, 0..20)
    }

    proptest! {
        #[test]
        fn pairs_with_tails_come_back(tailed in any_tailed(), cut: prop::sample::Index) {
            let payload = encoded_with_tails(&tailed);
            let parsed = TailedPairs::parse(&payload).unwrap();
            prop_assert_eq!(parsed.pairs().len(), tailed.len());
            let back: Tailed =
                parsed.iter().map(|(key, value, length)| ((key.to_vec(), value.to_vec()), length as u32)).collect();
            prop_assert_eq!(back, tailed);
            prop_assert!(TailedPairs::parse(&payload[..cut.index(payload.len())]).is_err());
            prop_assert!(TailedPairs::parse(&[&payload[..], &[0]].concat()).is_err());
        }

        #[test]
        fn no_partition_key_is_longer_than_its_key(
            mut tailed in any_tailed(),
            at: prop::sample::Index,
            more in 1..1000u32,
        ) {
            prop_assume!(!tailed.is_empty());
            let pair = at.index(tailed.len());
            let key_bytes = tailed[pair].0.0.len() as u32;
            let partition_key_bytes = key_bytes + more;
            tailed[pair].1 = partition_key_bytes;
            let expected = PairsError::PartitionKey { pair, partition_key_bytes, key_bytes };
            prop_assert_eq!(TailedPairs::parse(&encoded_with_tails(&tailed)).unwrap_err(), expected);
        }

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
