//! The partition number of a key, computed like Hadoop.

use crate::fields::Fields;
use api::{KeyStretch, PartitionRule};
use ids::IfileIndex;

/// Maximum partitions of a job: part numbers have five digits.
pub const PARTITIONS_MAX: u32 = 50_000;

/// Start value of the hash of a whole key (Hadoop's WritableComparator.hashBytes, which is the hash of a Text).
const WHOLE_KEY_START: i32 = 1;
/// Start value of the hash of stretches (Hadoop's KeyFieldBasedPartitioner).
const STRETCHES_START: i32 = 0;

/// Continues a hash; bytes are signed in Java.
#[inline]
fn hash_bytes(start: i32, bytes: &[u8]) -> i32 {
    bytes.iter().fold(start, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte as i8)))
}

/// Returns the partition of a key whose fields were found. A stretch beyond the end of the key is ignored.
#[inline]
pub(crate) fn partition_of(rule: &PartitionRule, fields: &Fields, key: &[u8], separator_bytes: usize) -> u32 {
    let hash = if rule.stretches.is_empty() {
        hash_bytes(WHOLE_KEY_START, key)
    } else {
        let of_stretch = |stretch: &KeyStretch| fields.stretch(key, separator_bytes, stretch);
        rule.stretches.iter().filter_map(of_stretch).fold(STRETCHES_START, hash_bytes)
    };
    (hash & i32::MAX) as u32 % rule.count
}

/// Returns the I-file of a partition: consecutive partitions share an I-file, and all I-files get a share.
#[inline]
pub fn ifile_of_partition(partition: u32, partition_count: u32, ifile_count: u32) -> IfileIndex {
    let spread = u64::from(partition) * u64::from(ifile_count) / u64::from(partition_count.max(1));
    IfileIndex(spread as u32)
}

/// Returns the lowest stored key of a partition; that of the next partition is the upper bound.
pub fn lower_bound_of_partition(partition: u32) -> [u8; 4] {
    partition.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::{STRETCHES_START, WHOLE_KEY_START, hash_bytes, ifile_of_partition, partition_of};
    use crate::fields::Fields;
    use crate::parse_partition_options;
    use api::PartitionRule;

    /// Computed by hand from the definition; the hash of `"hello"` from zero is well known among Java programmers.
    #[test]
    fn hashes_are_those_of_hadoop() {
        let whole = |key: &[u8], expected| assert_eq!(hash_bytes(WHOLE_KEY_START, key), expected, "{key:?}");
        whole(b"", 1);
        whole(b"a", 128);
        whole(b"ab", 4066);
        whole(&[0xff], 30);
        whole(&[0x80, 0x7f], (31 - 128) * 31 + 127);
        let from_zero =
            |key: &[u8], expected| assert_eq!(hash_bytes(STRETCHES_START, key), expected, "{key:?}");
        from_zero(b"", 0);
        from_zero(b"a", 97);
        from_zero(b"hello", 99_162_322);
        from_zero(b"polygenelubricants", i32::MIN);
    }

    #[test]
    fn partitions_follow_the_stretches() {
        let check = |key: &str, options: &str, count, expected| {
            let rule = PartitionRule { count, stretches: parse_partition_options(options).unwrap() };
            let mut fields = Fields::default();
            fields.scan(key.as_bytes(), b".", 9);
            assert_eq!(partition_of(&rule, &fields, key.as_bytes(), 1), expected, "{key} {options}");
        };
        check("a", "", 10, 8);
        check("", "", 10, 1);
        check("a.b.c", "-k1,1", 10, 7);
        check("a.b.c", "-k2,2", 10, 8);
        check("a.b.c", "-k1,1 -k3,3", 1000, (97 * 31 + 99) % 1000);
        check("a.b.c", "-k1,1 -k4", 10, 7);
        check("", "-k1,1", 10, 0);
        check("polygenelubricants", "-k1", 7, 0);
    }

    #[test]
    fn partitions_spread_over_the_ifiles() {
        let spread = |partitions: u32, ifiles| -> Vec<u32> {
            (0..partitions).map(|partition| ifile_of_partition(partition, partitions, ifiles).0).collect()
        };
        assert_eq!(spread(7, 3), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(spread(2, 4), [0, 2]);
        assert_eq!(spread(3, 1), [0, 0, 0]);
        assert_eq!(ifile_of_partition(49_999, 50_000, 512).0, 511);
    }
}
