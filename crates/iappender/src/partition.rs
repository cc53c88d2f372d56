//! Assignment of keys to I-files.

use api::{Boundaries, KeyBytes};
use ids::IfileIndex;
use ifile::record::key_prefix;
use xxhash_rust::xxh3::xxh3_64;

/// Assignment of partition keys to I-files. The same key always goes to the same I-file within a map attempt.
#[derive(Clone, Debug)]
pub enum Partitioner {
    /// By hash: even for any keys.
    Hash { ifile_count: u32 },
    /// By range: I-file i holds keys from boundary i-1 to boundary i. A hint for batching: reduce ranges are cut from
    /// the chunk indexes and cover all I-files, so that outdated boundaries cost speed, never order.
    Range { boundaries: Boundaries, prefixes: Vec<u64> },
}

impl Partitioner {
    /// Makes a range partitioning by boundaries, which are in key order.
    pub fn range(boundaries: Boundaries) -> Self {
        let prefixes = boundaries.keys.iter().map(|key| key_prefix(&key.0)).collect();
        Self::Range { boundaries, prefixes }
    }

    /// Returns the I-file of a partition key.
    #[inline]
    pub fn ifile(&self, partition_key: &[u8]) -> IfileIndex {
        match self {
            Self::Hash { ifile_count: 1 } => IfileIndex(0),
            // Multiply-shift takes the high bits of the hash evenly to 0..ifile_count, without a division.
            Self::Hash { ifile_count } => {
                let product = u128::from(xxh3_64(partition_key)) * u128::from(*ifile_count);
                IfileIndex((product >> 64) as u32)
            }
            Self::Range { boundaries, prefixes } => {
                // Counting without a branch is faster than a search among so few; keys are read only if prefixes are
                // equal.
                let own = key_prefix(partition_key);
                let below = prefixes.iter().filter(|prefix| **prefix < own).count();
                let equal = prefixes[below..].iter().take_while(|prefix| **prefix == own).count();
                let tied = &boundaries.keys[below..below + equal];
                let passed = tied.partition_point(|boundary| boundary.0.as_slice() <= partition_key);
                IfileIndex((below + passed) as u32)
            }
        }
    }
}

/// A boundary is a hint: for a longer key its prefix is enough.
const BOUNDARY_BYTES_MAX: usize = 256;

/// Returns at most `ifile_count - 1` boundaries that split a sample of (partition key, bytes) into stretches of about
/// equal bytes. Fewer if the sample has few distinct keys.
pub fn choose_boundaries(mut sample: Vec<(&[u8], u64)>, ifile_count: u32) -> Vec<KeyBytes> {
    sample.sort_unstable();
    let total: u64 = sample.iter().map(|(_, bytes)| bytes).sum();
    let mut boundaries: Vec<KeyBytes> = Vec::new();
    // A boundary at or below the smallest key would leave the first I-file empty.
    let smallest = sample.first().map_or(&b""[..], |(key, _)| key);
    let mut passed = 0;
    for (key, bytes) in sample {
        let key = &key[..key.len().min(BOUNDARY_BYTES_MAX)];
        let wanted = (boundaries.len() as u64 + 1) * total / u64::from(ifile_count);
        let differs = boundaries.last().map_or(smallest, |last| last.0.as_slice()) < key;
        if passed >= wanted.max(1) && differs && boundaries.len() + 1 < ifile_count as usize {
            boundaries.push(KeyBytes(key.to_vec()));
        }
        passed += bytes;
    }
    boundaries
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::BoundariesVersion;

    #[test]
    fn hashing_spreads_evenly_and_stays_in_bounds() {
        let partitioner = Partitioner::Hash { ifile_count: 7 };
        let mut counts = [0u32; 7];
        for number in 0..7000u32 {
            counts[partitioner.ifile(&number.to_be_bytes()).0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn boundaries_split_a_sample_by_bytes() {
        let keys: Vec<Vec<u8>> = (0..100u8).map(|byte| vec![byte]).collect();
        let sample = keys.iter().map(|key| (key.as_slice(), 10)).collect();
        let boundaries = choose_boundaries(sample, 4);
        assert_eq!(boundaries, vec![KeyBytes(vec![25]), KeyBytes(vec![50]), KeyBytes(vec![75])]);
        let partitioner = Partitioner::range(Boundaries { version: BoundariesVersion(1), keys: boundaries });
        assert_eq!(partitioner.ifile(&[24]), IfileIndex(0));
        assert_eq!(partitioner.ifile(&[25]), IfileIndex(1));
        assert_eq!(partitioner.ifile(&[99]), IfileIndex(3));
    }

    #[test]
    fn keys_with_equal_prefixes_are_told_apart() {
        let keys = [&b"a"[..], b"a\0", b"prefix--", b"prefix--\0", b"prefix--m", b"z"];
        let boundaries = keys.iter().map(|key| KeyBytes(key.to_vec())).collect();
        let partitioner = Partitioner::range(Boundaries { version: BoundariesVersion(1), keys: boundaries });
        let probes =
            [&b""[..], b"a", b"a\0", b"a\0\0", b"prefix-", b"prefix--", b"prefix--a", b"prefix--z", b"zz"];
        for probe in probes {
            let expected = keys.iter().filter(|key| **key <= probe).count() as u32;
            assert_eq!(partitioner.ifile(probe), IfileIndex(expected), "{probe:?}");
        }
    }

    #[test]
    fn few_distinct_keys_give_few_boundaries() {
        assert!(choose_boundaries(vec![], 16).is_empty());
        assert!(choose_boundaries(vec![(b"same", 5); 40], 16).is_empty());
        assert!(choose_boundaries(vec![(b"a", 1)], 1).is_empty());
    }
}
