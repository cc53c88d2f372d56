//! Checks the output of gensort 1.5, and in the legacy layout of TeraGen of Hadoop 3.4.2: checksums, hashes, rows.

use sha2::{Digest, Sha256};
use tera::{ROW_BYTES, Row, RowGenerator, RowKind, RowLayout, Summary};

fn kind(layout: RowLayout, skewed: bool) -> RowKind {
    match skewed {
        true => RowKind::with_skewed_keys(layout).expect("a kind that exists"),
        false => RowKind::uniform(layout),
    }
}

fn rows_of(kind: RowKind, start: u128, rows: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * ROW_BYTES];
    RowGenerator::new(kind, start).fill(&mut bytes);
    bytes
}

fn summary_of(rows: &[u8]) -> Summary {
    let mut summary = Summary::new();
    summary.add_rows(rows).expect("whole rows");
    summary
}

fn check_checksums(kind: RowKind, expected: &[(usize, &str)]) {
    for (rows, checksum) in expected {
        let summary = summary_of(&rows_of(kind, 0, *rows));
        assert_eq!(summary.records(), *rows as u64);
        assert_eq!(summary.checksum().to_string(), *checksum, "{rows} rows, {kind}");
    }
}

#[test]
fn checksums_are_those_of_gensort() {
    check_checksums(
        kind(RowLayout::Modern, false),
        &[(1, "9ea593a0"), (10, "55fea8a1a"), (1000, "1ea6370b955"), (1_000_000, "7a0e0d4868cd4")],
    );
    check_checksums(
        kind(RowLayout::Ascii, false),
        &[(1, "3fcaea0a"), (10, "469302dca"), (1000, "1f5dfb3631a"), (1_000_000, "7a19cff467438")],
    );
    check_checksums(
        kind(RowLayout::Modern, true),
        &[(1, "9ea593a0"), (10, "5d95519b3"), (1000, "1e96301166b"), (1_000_000, "79f9a7e6de673")],
    );
    check_checksums(
        kind(RowLayout::Ascii, true),
        &[(1, "3fcaea0a"), (10, "46073c01c"), (1000, "1eef17d1cac"), (1_000_000, "7a135fbce6df2")],
    );
    check_checksums(
        kind(RowLayout::Legacy, false),
        &[(1, "97503e23"), (10, "5b2d1434d"), (1000, "1f9ffe645ec"), (1_000_000, "7a27e2d0d55de")],
    );
}

/// 300 rows each: modern, ascii, modern skewed, ascii skewed.
const FAR_CHECKSUMS: [(u128, [&str; 4]); 7] = [
    ((1 << 60) - 100, ["98fcc65262", "a1b5412dae", "952d67bcde", "946df79452"]),
    ((1 << 63) - 100, ["8fb8312cc4", "8e1453d16b", "997b09e755", "90cd7558b2"]),
    ((1 << 64) - 100, ["9b12bbed2c", "92d76b065b", "92a6867c4d", "9296f291ed"]),
    ((1 << 64) + 7, ["988de24312", "92f29eb7ff", "968fb90d39", "91fbd24e1b"]),
    ((1 << 124) - 100, ["9377f71bdb", "93f4113b82", "94e55e0ce2", "954eb0a265"]),
    ((1 << 127) - 100, ["9593365737", "926beb3894", "95128208d1", "92dbb13a0c"]),
    (u128::MAX - 99, ["966d306c39", "9322a700c7", "98b58e1e13", "96d310c849"]),
];

#[test]
fn rows_far_on_are_those_of_gensort() {
    for (start, checksums) in FAR_CHECKSUMS {
        for (checksum, (layout, skewed)) in checksums.into_iter().zip([
            (RowLayout::Modern, false),
            (RowLayout::Ascii, false),
            (RowLayout::Modern, true),
            (RowLayout::Ascii, true),
        ]) {
            let kind = kind(layout, skewed);
            let summary = summary_of(&rows_of(kind, start, 300));
            assert_eq!(summary.checksum().to_string(), checksum, "from {start}, {kind}");
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns the rows in order.
fn check_million(kind: RowKind, hash: &str, hash_sorted: Option<&str>, duplicates: u64) -> Vec<Row> {
    let bytes = rows_of(kind, 0, 1_000_000);
    assert_eq!(sha256(&bytes), hash, "{kind}");
    let unsorted = summary_of(&bytes);
    assert!(unsorted.unordered() > 400_000, "{kind}");
    let mut rows = bytes.as_chunks::<ROW_BYTES>().0.to_vec();
    rows.sort();
    let sorted = summary_of(rows.as_flattened());
    assert_eq!((sorted.unordered(), sorted.duplicates()), (0, duplicates), "{kind}");
    assert_eq!(sorted.checksum(), unsorted.checksum(), "{kind}");
    if let Some(hash) = hash_sorted {
        assert_eq!(sha256(rows.as_flattened()), hash, "{kind}, sorted");
    }
    rows
}

#[test]
fn a_million_modern_rows() {
    let sorted = check_million(
        kind(RowLayout::Modern, false),
        "515ea89a091c2a746500f46edd54dc5626878b4e9308d00ecf91656e8e3c3028",
        Some("e3a83e3f15d2cb3fd414046d6c10d3f525921150c4f824dac25556e466b099d3"),
        0,
    );
    let summary = summary_of(sorted.as_flattened());
    assert_eq!(summary.first_key().map(hex::encode).as_deref(), Some("0000033698a40790b743"));
    assert_eq!(summary.last_key().map(hex::encode).as_deref(), Some("fffffabd932c1e4baa50"));
}

#[test]
fn a_million_ascii_rows() {
    check_million(
        kind(RowLayout::Ascii, false),
        "f0521447a8c0928e6591308bbb3198e1d844a105f31ebe823f6ed80c743aef68",
        Some("b249eafb367b87aa35fdf55526302a72a5481d9d73376af44343d6187d56ca16"),
        0,
    );
}

#[test]
fn a_million_legacy_rows() {
    check_million(
        kind(RowLayout::Legacy, false),
        "cf78d55c00a01477428d0c03cb4ce1333ac011735a94b5444e9952e5bd21f68c",
        None,
        0,
    );
}

#[test]
fn a_million_skewed_rows() {
    let sorted = check_million(
        kind(RowLayout::Modern, true),
        "26c04b085341da0e8315cf26ba9347c08a1b143974831cde20704348a6417f08",
        None,
        0,
    );
    let share = |byte: u8| sorted.iter().filter(|row| row[0] == byte).count() / 10_000;
    assert_eq!((share(0x68), share(0x87)), (31, 17), "per cent of keys with a common first byte");
    check_million(
        kind(RowLayout::Ascii, true),
        "6412ad20e9729e0cc711c3ab0cb1cdab195be80737df7f8d96279a54964d51f7",
        None,
        35,
    );
}

#[test]
fn row_zero() {
    let modern = "4a696d4772617952495065080060836b392cd58b8f5e55961855e79b87f02283a466b6aab1f9e0cacf1e26b3292afd10\
                  64bb18b56ac07d6f656b1d2f430d57bde7e47d81f36a6dd267948bbc2397bfe28c334e4ad82b8e70166293cfaa0116bf\
                  da3bb1ab";
    assert_eq!(hex::encode(rows_of(kind(RowLayout::Modern, false), 0, 1)), modern);
    let ascii = b"AsfAGHM5om  00000000000000000000000000000000  0000222200002222000022220000222200002222000000001111\r\n";
    assert_eq!(rows_of(kind(RowLayout::Ascii, false), 0, 1), ascii);
    let legacy = [
        b"JimGrayRIP\x00\x1100000000000000000000000000000000\x88\x99\xaa\xbb".as_slice(),
        b"222200002222000022220000222200002222000000001111\xcc\xdd\xee\xff",
    ];
    assert_eq!(rows_of(kind(RowLayout::Legacy, false), 0, 1), legacy.concat());
}

#[test]
fn modern_and_legacy_rows_have_the_same_keys() {
    let modern = rows_of(kind(RowLayout::Modern, false), 1 << 70, 1000);
    let legacy = rows_of(kind(RowLayout::Legacy, false), 1 << 70, 1000);
    for (modern, legacy) in modern.chunks(ROW_BYTES).zip(legacy.chunks(ROW_BYTES)) {
        assert_eq!(modern[..10], legacy[..10]);
    }
}
