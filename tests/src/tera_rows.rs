//! Rows of the sort benchmark, to compare with.

use sha2::{Digest, Sha256};
use tera::{ROW_BYTES, RowGenerator, RowKind, RowLayout};

/// `rows` rows from number `start` on.
pub fn tera_rows(layout: RowLayout, skewed: bool, start: u128, rows: usize) -> Vec<u8> {
    let kind = match skewed {
        true => RowKind::with_skewed_keys(layout).expect("the test asks for rows that exist"),
        false => RowKind::uniform(layout),
    };
    let mut bytes = vec![0; rows * ROW_BYTES];
    RowGenerator::new(kind, start).fill(&mut bytes);
    bytes
}

/// The SHA-256 of bytes, in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
