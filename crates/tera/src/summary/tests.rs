use super::{Checksum, KEY_BYTES, PartialRow, ROW_BYTES, ROWS_MAX, SUMMARY_BYTES, Summary, SummaryError};

/// Makes one row per letter: its key is the letter ten times.
fn rows_of(letters: &str) -> Vec<u8> {
    let row = |letter: u8| [vec![letter; KEY_BYTES], vec![b'.'; ROW_BYTES - KEY_BYTES]].concat();
    letters.bytes().flat_map(row).collect()
}

fn summary_of(letters: &str) -> Summary {
    let mut summary = Summary::new();
    summary.add_rows(&rows_of(letters)).expect("whole rows");
    summary
}

fn check_order(letters: &str, duplicates: u64, unordered: u64, first_unordered: Option<u64>) {
    let summary = summary_of(letters);
    assert_eq!(summary.records(), letters.len() as u64, "{letters}");
    assert_eq!(summary.duplicates(), duplicates, "{letters}");
    assert_eq!(summary.unordered(), unordered, "{letters}");
    assert_eq!(summary.first_unordered(), first_unordered, "{letters}");
    assert_eq!(summary.is_ordered(), first_unordered.is_none(), "{letters}");
}

#[test]
fn each_row_is_compared_with_its_predecessor() {
    check_order("", 0, 0, None);
    check_order("a", 0, 0, None);
    check_order("abcd", 0, 0, None);
    check_order("aabbbc", 3, 0, None);
    check_order("ba", 0, 1, Some(1));
    check_order("abdcef", 0, 1, Some(3));
    // Only the row after the step down counts, however long its successors stay below earlier rows.
    check_order("zabcde", 0, 1, Some(1));
    check_order("abaab", 1, 1, Some(2));
    check_order("dcba", 0, 3, Some(1));
}

#[test]
fn all_and_only_the_key_bytes_decide() {
    for place in 0..KEY_BYTES {
        let mut rows = rows_of("aa");
        rows[ROW_BYTES + place] = 0xff;
        let mut summary = Summary::new();
        summary.add_rows(&rows).expect("whole rows");
        assert_eq!((summary.duplicates(), summary.unordered()), (0, 0), "byte {place} is larger");
        rows[place] = 0xff;
        rows[ROW_BYTES + place] = 0x7f;
        let mut summary = Summary::new();
        summary.add_rows(&rows).expect("whole rows");
        assert_eq!((summary.duplicates(), summary.unordered()), (0, 1), "byte {place} is smaller");
    }
    let mut rows = rows_of("aa");
    rows[KEY_BYTES] = 0xff;
    let mut summary = Summary::new();
    summary.add_rows(&rows).expect("whole rows");
    assert_eq!((summary.duplicates(), summary.unordered()), (1, 0));
}

#[test]
fn a_partial_row_adds_nothing() {
    let mut summary = summary_of("ab");
    let before = summary;
    let mut rows = rows_of("cde");
    rows.truncate(237);
    let error = summary.add_rows(&rows).expect_err("a partial row");
    assert_eq!(error, PartialRow { rows: 2, bytes_left: 37 });
    assert!(error.to_string().starts_with("37 bytes are left after 2 whole rows"));
    assert_eq!(summary, before);
}

#[test]
fn keys_are_those_at_the_ends() {
    assert_eq!((summary_of("").first_key(), summary_of("").last_key()), (None, None));
    let summary = summary_of("hallo");
    assert_eq!((summary.first_key(), summary.last_key()), (Some([b'h'; 10]), Some([b'o'; 10])));
}

#[test]
fn checksums_print_as_valsort_prints_them() {
    assert_eq!(Checksum(0).to_string(), "0");
    assert_eq!(Checksum(0x0055_fea8_a1a0).to_string(), "55fea8a1a0");
    assert_eq!(Checksum(u128::MAX).to_string(), "f".repeat(32));
    assert_eq!(format!("{:>6}", Checksum(0xab)), "    ab");
}

#[test]
fn bytes_hold_all_figures() {
    for letters in ["", "a", "abc", "aab", "cab", "abaab", "aaaa"] {
        let summary = summary_of(letters);
        assert_eq!(Summary::from_bytes(&summary.to_bytes()), Ok(summary), "{letters}");
    }
}

#[test]
fn version_one_keeps_its_bytes() {
    let golden = "5453554d010000000300000000000000d9d8b902020000000000000000000000000000000000000001000000000000\
                  0001000000000000006363636363636363636362626262626262626262";
    let bytes = summary_of("cab").to_bytes();
    assert_eq!(hex::encode(&bytes[..76]), golden);
    assert_eq!(bytes[76..], crc32fast::hash(&bytes[..76]).to_le_bytes());
}

#[test]
fn foreign_and_damaged_bytes_are_refused() {
    let good = summary_of("abba").to_bytes();
    for length in [0, 4, SUMMARY_BYTES - 1] {
        assert_eq!(Summary::from_bytes(&good[..length]), Err(SummaryError::Length { found: length }));
    }
    let long = [&good[..], &[0]].concat();
    assert_eq!(Summary::from_bytes(&long), Err(SummaryError::Length { found: SUMMARY_BYTES + 1 }));
    for bit in 0..8 * SUMMARY_BYTES {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 32 { SummaryError::Foreign } else { SummaryError::Damaged };
        assert_eq!(Summary::from_bytes(&bytes), Err(expected), "bit {bit}");
    }
}

/// Changes the bytes before the CRC is computed.
fn check_refused(change: impl Fn(&mut [u8; SUMMARY_BYTES]), expected: SummaryError) {
    let mut bytes = summary_of("abba").to_bytes();
    change(&mut bytes);
    let crc = crc32fast::hash(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Summary::from_bytes(&bytes), Err(expected));
}

#[test]
fn figures_that_no_rows_have_are_refused() {
    check_refused(|bytes| bytes[4] = 2, SummaryError::Version { found: 2 });
    check_refused(|bytes| bytes[7] = 1, SummaryError::Contradiction);
    check_refused(|bytes| bytes[8..16].fill(0), SummaryError::Contradiction);
    check_refused(|bytes| bytes[8] = 2, SummaryError::Contradiction);
    check_refused(|bytes| bytes[31] = 1, SummaryError::Contradiction);
    check_refused(|bytes| bytes[32] = 3, SummaryError::Contradiction);
    check_refused(|bytes| bytes[40] = 0, SummaryError::Contradiction);
    check_refused(|bytes| bytes[40] = 2, SummaryError::Contradiction);
    check_refused(|bytes| bytes[48] = 0, SummaryError::Contradiction);
    check_refused(|bytes| bytes[48] = 4, SummaryError::Contradiction);
    let many = (ROWS_MAX + 1).to_le_bytes();
    check_refused(|bytes| bytes[8..16].copy_from_slice(&many), SummaryError::Contradiction);
    let backwards = |bytes: &mut [u8; SUMMARY_BYTES]| {
        bytes[40..56].fill(0);
        bytes[66] = b'A';
    };
    check_refused(backwards, SummaryError::Contradiction);
}
