//! Any stretch of rows can be made anywhere, and summaries do not depend on where rows are cut.

use proptest::prelude::*;
use tera::{Key, ROW_BYTES, RowGenerator, RowKind, RowLayout, Summary};

fn kinds() -> impl Strategy<Value = RowKind> {
    let skewed = |layout| RowKind::with_skewed_keys(layout).expect("a kind that exists");
    prop_oneof![
        Just(RowKind::uniform(RowLayout::Modern)),
        Just(skewed(RowLayout::Modern)),
        Just(RowKind::uniform(RowLayout::Legacy)),
        Just(RowKind::uniform(RowLayout::Ascii)),
        Just(skewed(RowLayout::Ascii)),
    ]
}

/// Anywhere, but often just before a place where something carries, changes or wraps.
fn starts() -> impl Strategy<Value = u128> {
    let edges = prop::sample::select(vec![0, 1 << 60, 1 << 63, 1 << 64, 1 << 124, 1 << 127]);
    let near = (edges, 0..400_u128).prop_map(|(edge, back): (u128, u128)| edge.wrapping_sub(back));
    prop_oneof![3 => near, 1 => any::<u128>()]
}

fn rows_from(generator: &mut RowGenerator, rows: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; rows * ROW_BYTES];
    generator.fill(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_start_further_on_gives_the_same_rows(kind in kinds(), start in starts(), skipped in 0..600_usize) {
        let mut whole = RowGenerator::new(kind, start);
        let rows = rows_from(&mut whole, skipped + 20);
        let further = start.wrapping_add(skipped as u128);
        prop_assert_eq!(whole.position(), further.wrapping_add(20));
        let mut direct = RowGenerator::new(kind, further);
        prop_assert_eq!(&rows[skipped * ROW_BYTES..], &rows_from(&mut direct, 20)[..]);
        let mut skipping = RowGenerator::new(kind, start);
        skipping.skip(skipped as u128);
        prop_assert_eq!(&rows[skipped * ROW_BYTES..], &rows_from(&mut skipping, 20)[..]);
    }

    #[test]
    fn skips_add_up_and_wrap(kind in kinds(), start in any::<u128>(), skip in any::<u128>()) {
        let mut there = RowGenerator::new(kind, start);
        there.skip(skip);
        let mut direct = RowGenerator::new(kind, start.wrapping_add(skip));
        prop_assert_eq!(rows_from(&mut there.clone(), 3), rows_from(&mut direct, 3));
        there.skip(skip.wrapping_neg());
        prop_assert_eq!(there.position(), start);
        prop_assert_eq!(rows_from(&mut there, 3), rows_from(&mut RowGenerator::new(kind, start), 3));
    }

    #[test]
    fn filling_in_pieces_equals_filling_at_once(
        kind in kinds(),
        start in starts(),
        pieces in prop::collection::vec(0..300_usize, 0..6),
    ) {
        let mut generator = RowGenerator::new(kind, start);
        let joined: Vec<u8> = pieces.iter().flat_map(|rows| rows_from(&mut generator, *rows)).collect();
        let at_once = rows_from(&mut RowGenerator::new(kind, start), pieces.iter().sum());
        prop_assert_eq!(joined, at_once);
    }

    #[test]
    fn generated_rows_are_recognised(kind in kinds(), start in starts()) {
        let rows = rows_from(&mut RowGenerator::new(kind, start), 50);
        prop_assert_eq!(RowKind::recognise(&rows), Some(kind.layout()));
    }
}

/// Rows with few different keys, so that every order and many duplicates occur.
fn rows_with_few_keys() -> impl Strategy<Value = Vec<u8>> {
    let key = (0..3_u8, 0..2_u8, 0..2_u8).prop_map(|(front, low, last)| {
        let key: Key = [front, 0, 0, 0, 0, 0, 0, low, 0, last];
        key
    });
    let row = (key, any::<u8>()).prop_map(|(key, filling)| {
        let mut row = [filling; ROW_BYTES];
        row[..key.len()].copy_from_slice(&key);
        row
    });
    prop::collection::vec(row, 0..40).prop_map(|rows| rows.into_iter().flatten().collect())
}

/// valsort in ten lines: records, checksum, duplicates, unordered, first unordered.
fn model(rows: &[u8]) -> (u64, u128, u64, u64, Option<u64>) {
    let rows: Vec<&[u8]> = rows.chunks(ROW_BYTES).collect();
    let checksum = rows.iter().map(|row| u128::from(crc32fast::hash(row))).sum();
    let count = |wanted| rows.windows(2).filter(|pair| pair[1][..10].cmp(&pair[0][..10]) == wanted).count();
    let duplicates = count(std::cmp::Ordering::Equal) as u64;
    let unordered = count(std::cmp::Ordering::Less) as u64;
    let first = rows.windows(2).position(|pair| pair[1][..10] < pair[0][..10]);
    (rows.len() as u64, checksum, duplicates, unordered, first.map(|place| place as u64 + 1))
}

fn figures(summary: &Summary) -> (u64, u128, u64, u64, Option<u64>) {
    let (checksum, first) = (summary.checksum().0, summary.first_unordered());
    (summary.records(), checksum, summary.duplicates(), summary.unordered(), first)
}

fn summary_of(rows: &[u8]) -> Summary {
    let mut summary = Summary::new();
    summary.add_rows(rows).expect("whole rows");
    summary
}

proptest! {
    #[test]
    fn a_summary_equals_the_model(rows in rows_with_few_keys()) {
        let summary = summary_of(&rows);
        prop_assert_eq!(figures(&summary), model(&rows));
        prop_assert_eq!(Summary::from_bytes(&summary.to_bytes()), Ok(summary));
    }

    #[test]
    fn cuts_do_not_matter(rows in rows_with_few_keys(), cuts in prop::collection::vec(0..40_usize, 0..5)) {
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| (cut * ROW_BYTES).min(rows.len())).collect();
        ends.push(rows.len());
        ends.sort_unstable();
        let mut start = 0;
        let (mut added, mut appended) = (Summary::new(), Summary::new());
        for end in ends {
            let stretch = &rows[start..end];
            added.add_rows(stretch).expect("whole rows");
            appended.append(&summary_of(stretch));
            start = end;
        }
        prop_assert_eq!(added, summary_of(&rows));
        prop_assert_eq!(appended, summary_of(&rows));
    }

    #[test]
    fn appending_is_associative(
        first in rows_with_few_keys(),
        second in rows_with_few_keys(),
        third in rows_with_few_keys(),
    ) {
        let (first, second, third) = (summary_of(&first), summary_of(&second), summary_of(&third));
        let mut left = first;
        left.append(&second);
        left.append(&third);
        let mut right = second;
        right.append(&third);
        let mut all = first;
        all.append(&right);
        prop_assert_eq!(left, all);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Summary::from_bytes(&bytes).is_err());
    }
}

#[test]
fn blocks_of_a_long_stretch_are_joined() {
    let kind = RowKind::uniform(RowLayout::Modern);
    let rows = rows_from(&mut RowGenerator::new(kind, 0), 20_000);
    assert_eq!(figures(&summary_of(&rows)), model(&rows));
    let mut sorted: Vec<&[u8]> = rows.chunks(ROW_BYTES).collect();
    sorted.sort_unstable();
    // One row out of order, where one block of the summary's loop borders on the next.
    for place in [4095, 4096, 4097, 8192, 19_999] {
        let mut disordered = sorted.clone();
        let row = disordered.remove(0);
        disordered.insert(place, row);
        let summary = summary_of(&disordered.concat());
        assert_eq!((summary.unordered(), summary.first_unordered()), (1, Some(place as u64)));
    }
}
