//! Sorting of many entries: partitioned by their first differing bits into buckets that fit the cache, then sorted
//! there.
//!
//! One level of most-significant-digit radix sort before a comparison sort. The digit begins at the first bit in which
//! the entries differ, so that a common prefix of all keys costs nothing; a bucket that got too many (skewed keys) is
//! partitioned again by its own first differing bits.

/// Number of entries up to which one comparison sort is as fast.
const PART_ABOVE: usize = 1 << 14;
const DIGIT_BITS: u32 = 11;
/// The low bits of an entry are its position, which decides among equal keys. Entries are made in that order, and
/// partitioning keeps it.
const DECIDED_BITS: u32 = 32;
const BUCKETS: usize = 1 << DIGIT_BITS;

/// Sorts the entries; those with equal [`DECIDED_BITS`] must be in order already. If `spare` has the same length, they
/// are partitioned first. Returns the sorted entries, which may be in either slice.
pub(crate) fn sort_parted<'a>(entries: &'a mut [u128], spare: &'a mut [u128]) -> &'a mut [u128] {
    match spare.get_mut(..entries.len()) {
        Some(spare) if entries.len() >= PART_ABOVE => {
            if part(entries, spare) {
                return spare;
            }
        }
        _ => entries.sort_unstable(),
    }
    entries
}

/// Sorts `entries` into `spare`, which has the same length; false if they are sorted in place. Each level uses later
/// bits than the previous one, so there are at most 128 / [`DIGIT_BITS`] of them.
fn part(entries: &mut [u128], spare: &mut [u128]) -> bool {
    let bounds = |(low, high): (u128, u128), entry: &u128| (low.min(*entry), high.max(*entry));
    let (low, high) = entries.iter().fold((u128::MAX, 0), bounds);
    let differing_bits = u128::BITS - (low ^ high).leading_zeros();
    if differing_bits <= DECIDED_BITS {
        // A single key: partitioning keeps the order of arrival.
        return false;
    }
    let shift = differing_bits.saturating_sub(DIGIT_BITS).max(DECIDED_BITS);
    let digit = |entry: u128| (entry >> shift) as usize & (BUCKETS - 1);
    let mut ends = [0_usize; BUCKETS];
    for entry in entries.iter() {
        ends[digit(*entry)] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        // Start of the bucket; the loop below moves it to its end.
        start += std::mem::replace(end, start);
    }
    for entry in entries.iter() {
        let place = &mut ends[digit(*entry)];
        spare[*place] = *entry;
        *place += 1;
    }
    let mut start = 0;
    for end in ends {
        let bucket = &mut spare[start..end];
        if bucket.len() < PART_ABOVE {
            bucket.sort_unstable();
        } else if shift > DECIDED_BITS {
            let own_spare = &mut entries[start..end];
            if part(bucket, own_spare) {
                bucket.copy_from_slice(own_spare);
            }
        }
        start = end;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{PART_ABOVE, sort_parted};

    #[test]
    fn parted_entries_are_sorted() {
        let count = 3 * PART_ABOVE as u128;
        let mix = |number: u128| number.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645) >> 32;
        let kinds: [&dyn Fn(u128) -> u128; 7] = [
            &mix,
            &|number| number,
            &|number| count - number,
            &|_| 7,
            // A common beginning, and most of them in one bucket.
            &|number| 0xabcd << 68 | (mix(number) >> 40),
            &|number| if number % 10 == 0 { mix(number) } else { 0x11 << 88 | mix(number) >> 64 },
            // Few keys, each many times.
            &|number| mix(number % 5),
        ];
        for kind in kinds {
            for length in [0, 1, PART_ABOVE as u128 - 1, PART_ABOVE as u128, count] {
                let entries: Vec<u128> = (0..length).map(|number| kind(number) << 32 | number).collect();
                let mut expected = entries.clone();
                expected.sort_unstable();
                for spare_length in [length as usize, length as usize / 2] {
                    let (mut sorted, mut spare) = (entries.clone(), vec![0; spare_length]);
                    assert_eq!(sort_parted(&mut sorted, &mut spare), expected);
                }
            }
        }
    }
}
