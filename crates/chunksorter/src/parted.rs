//! Sorting many entries: parted by their first differing bits into buckets that fit the cache, then sorted there.
//!
//! One level of most-significant-digit radix sort in front of a comparison sort. The digit begins at the first bit
//! in which the entries differ, so that a common beginning of all keys costs nothing; a bucket that took too much
//! (skewed keys) is parted again by its own first differing bits.

/// Entries below which one comparison sort is as fast.
const PART_ABOVE: usize = 1 << 14;
const DIGIT_BITS: u32 = 11;
const BUCKETS: usize = 1 << DIGIT_BITS;

/// Sorts the entries; where `spare` is as long, by parting them first.
pub(crate) fn sort_parted(entries: &mut [u128], spare: &mut [u128]) {
    match spare.get_mut(..entries.len()) {
        Some(spare) if entries.len() >= PART_ABOVE => part(entries, spare),
        _ => entries.sort_unstable(),
    }
}

/// Sorts `entries`; `spare` is as long. Each level looks at later bits than the one before, so there are at most
/// 128 / [`DIGIT_BITS`] of them.
fn part(entries: &mut [u128], spare: &mut [u128]) {
    let bounds = |(low, high): (u128, u128), entry: &u128| (low.min(*entry), high.max(*entry));
    let (low, high) = entries.iter().fold((u128::MAX, 0), bounds);
    let differing_bits = u128::BITS - (low ^ high).leading_zeros();
    let shift = differing_bits.saturating_sub(DIGIT_BITS);
    let digit = |entry: u128| (entry >> shift) as usize & (BUCKETS - 1);
    let mut ends = [0_usize; BUCKETS];
    for entry in entries.iter() {
        ends[digit(*entry)] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        // Where the bucket starts; the loop below moves it to its end.
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
        } else if shift > 0 {
            part(bucket, &mut entries[start..end]);
        }
        start = end;
    }
    entries.copy_from_slice(spare);
}

#[cfg(test)]
mod tests {
    use super::{PART_ABOVE, sort_parted};

    #[test]
    fn parted_entries_are_sorted() {
        let count = 3 * PART_ABOVE as u128;
        let mix = |number: u128| number.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
        let kinds: [&dyn Fn(u128) -> u128; 6] = [
            &mix,
            &|number| number,
            &|number| count - number,
            &|_| 7,
            // A common beginning, and most of them in one bucket.
            &|number| 0xabcd << 100 | (mix(number) >> 40),
            &|number| if number % 10 == 0 { mix(number) } else { 0x11 << 120 | mix(number) >> 64 },
        ];
        for kind in kinds {
            for length in [0, 1, PART_ABOVE as u128 - 1, PART_ABOVE as u128, count] {
                let entries: Vec<u128> = (0..length).map(kind).collect();
                let mut expected = entries.clone();
                expected.sort_unstable();
                for spare_length in [length as usize, length as usize / 2] {
                    let mut sorted = entries.clone();
                    sort_parted(&mut sorted, &mut vec![0; spare_length]);
                    assert_eq!(sorted, expected);
                }
            }
        }
    }
}
