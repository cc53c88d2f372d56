//! The order against a model: decode everything, stable sort, compare.

use chunksorter::sort_frames;
use ifile::record::{KeyShape, decode, encode};
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0u8..3, 0..4),
        proptest::collection::vec(0u8..2, 8..16),
        proptest::collection::vec(any::<u8>(), 0..40),
        // Long common beginnings, so that ties are mended by new entries.
        proptest::collection::vec(0u8..2, 0..14).prop_map(|tail| [vec![9; 30], tail].concat()),
    ]
}

fn check(frames: Vec<Vec<(Vec<u8>, Vec<u8>)>>, scratch_entries: usize) {
    let payloads: Vec<Vec<u8>> = frames
        .iter()
        .map(|records| {
            let mut payload = Vec::new();
            for (key, value) in records {
                encode(KeyShape::Whole, key, value, key.len(), &mut payload);
            }
            payload
        })
        .collect();
    let views: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> = frames.concat();
    expected.sort_by(|left, right| left.0.cmp(&right.0));

    let counts: Vec<u64> = frames.iter().map(|records| records.len() as u64).collect();
    let largest = counts.iter().max().map_or(0, |count| *count as usize);
    let mut scratch = vec![0; scratch_entries.max(largest)];
    let order = sort_frames(KeyShape::Whole, &views, &counts, &mut scratch).unwrap();
    assert_eq!(order.len(), expected.len());
    let bound = expected.get(expected.len() / 2).map(|record| record.0.clone());
    for (lower, upper) in [(None, None), (bound.as_deref(), None), (None, bound.as_deref())] {
        let mut cursor = order.cursor(&views, lower, upper);
        let mut actual = Vec::new();
        loop {
            let before = actual.len();
            cursor.take_batch(&order, &views, |position, record| {
                let frame = &views[position.frame as usize];
                assert_eq!(decode(KeyShape::Whole, &frame[position.offset as usize..]), Some(record));
                actual.push((record.key.to_vec(), record.value.to_vec()));
            });
            if actual.len() == before {
                break;
            }
        }
        let inside =
            |key: &[u8]| lower.is_none_or(|lower| key >= lower) && upper.is_none_or(|upper| key < upper);
        let wanted: Vec<_> = expected.iter().filter(|record| inside(&record.0)).cloned().collect();
        assert_eq!(actual, wanted);
    }
}

proptest! {
    #[test]
    fn order_equals_a_stable_sort(
        frames in proptest::collection::vec(
            proptest::collection::vec((key(), proptest::collection::vec(any::<u8>(), 0..6)), 0..120), 0..6),
    ) {
        check(frames, 1 << 16);
    }
}

#[test]
fn batches_are_merged_in_order() {
    // More records than there is scratch for, so that batches are merged, with equal keys across them.
    let frames: Vec<Vec<(Vec<u8>, Vec<u8>)>> = (0..12u32)
        .map(|frame| {
            (0..1500u32)
                .map(|index| {
                    let key = format!("{:05}", (index * 7919 + frame) % 997);
                    (key.into_bytes(), format!("{frame}:{index}").into_bytes())
                })
                .collect()
        })
        .collect();
    check(frames.clone(), 1);
    check(frames, 5000);
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let frame: &[u8] = &[1, 0, b'k', 5, 5, b'x'];
    let refused = |count: u64, scratch_entries: usize| {
        let error =
            sort_frames(KeyShape::Whole, &[frame], &[count], &mut vec![0; scratch_entries]).unwrap_err();
        (error.frame, error.offset_bytes)
    };
    assert_eq!(refused(2, 10), (0, 3));
    // More bytes than the records it says, more records than bytes, more than there is room for.
    assert_eq!(refused(1, 10), (0, 3));
    assert_eq!(refused(3, 10), (0, 3));
    assert_eq!(refused(20, 10), (0, 0));
}

#[test]
fn keys_with_common_prefixes_spare_the_stack() {
    // Each key is the beginning of the next: every round of new entries settles only one of them.
    let records = (1..=1200usize).rev().map(|count| (vec![b'a'; 12 * count], vec![])).collect();
    check(vec![records], 1 << 16);
}
