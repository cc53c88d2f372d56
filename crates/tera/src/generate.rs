//! Makes rows.

use crate::digits::{fourfold_digit, hexadecimal, increment_hexadecimal, write_base_95, write_fourfold};
use crate::random::Random;
use crate::{KEY_BYTES, ROW_BYTES, Row, RowKind, RowLayout};

/// Groups of ten bytes in a modern row.
const GROUPS: usize = ROW_BYTES / KEY_BYTES;
/// Modern rows made at a time. Their groups fit into the first-level cache beside the rows.
const BLOCK_ROWS: usize = 128;
/// Bytes of the groups of a block, with room behind the last for the bits of a random number that no group uses.
const STREAM_BYTES: usize = (BLOCK_ROWS + GROUPS - 1) * KEY_BYTES + size_of::<u128>() - KEY_BYTES;

/// Masks of the groups of a modern row (combined by exclusive or), the first group first.
const MODERN_MASK: [[u8; KEY_BYTES]; GROUPS] = [
    [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],
    [0xf0, 0xe8, 0xe4, 0xe2, 0xe1, 0xd8, 0xd4, 0xd2, 0xd1, 0xcc],
    [0xca, 0xc9, 0xc6, 0xc5, 0xc3, 0xb8, 0xb4, 0xb2, 0xb1, 0xac],
    [0xaa, 0xa9, 0xa6, 0xa5, 0xa3, 0x9c, 0x9a, 0x99, 0x96, 0x95],
    [0x93, 0x8e, 0x8d, 0x8b, 0x87, 0x78, 0x74, 0x72, 0x71, 0x6c],
    [0x6a, 0x69, 0x66, 0x65, 0x63, 0x5c, 0x5a, 0x59, 0x56, 0x55],
    [0x53, 0x4e, 0x4d, 0x4b, 0x47, 0x3c, 0x3a, 0x39, 0x36, 0x35],
    [0x33, 0x2e, 0x2d, 0x2b, 0x27, 0x1e, 0x1d, 0x1b, 0x17, 0x0f],
    [0xc8, 0xc4, 0xc2, 0xc1, 0x98, 0x94, 0x92, 0x91, 0x8c, 0xe0],
    [0x17, 0x0f, 0x33, 0x2e, 0x2d, 0x2b, 0x27, 0x1e, 0x1d, 0x1b],
];

/// Bytes of a key that skew may overwrite.
const PREFIX_BYTES: usize = 6;
/// One prefix for each number of significant bits that a row number can have, 0 to 128.
const PREFIXES: usize = 129;

/// The prefixes of skewed keys, each in the top 48 bits.
type Prefixes = Box<[u64; PREFIXES]>;

/// Makes consecutive rows of one kind, from any row on. After row 2^128 - 1 comes row 0.
#[derive(Clone, Debug)]
pub struct RowGenerator {
    kind: RowKind,
    number: u128,
    random: Random,
    /// Present if the keys are skewed.
    prefixes: Option<Prefixes>,
}

impl RowGenerator {
    /// A generator whose first row is row `start`. It costs the same for every `start`: there is nothing to skip.
    pub fn new(kind: RowKind, start: u128) -> RowGenerator {
        let prefixes = kind.skewed().then(|| prefixes(kind.layout()));
        RowGenerator { kind, number: start, random: Random::of_row(start), prefixes }
    }

    /// The kind of its rows.
    pub fn kind(&self) -> RowKind {
        self.kind
    }

    /// The number of the row that comes next.
    pub fn position(&self) -> u128 {
        self.number
    }

    /// Passes over `rows` rows without making them.
    pub fn skip(&mut self, rows: u128) {
        self.number = self.number.wrapping_add(rows);
        self.random.jump(rows);
    }

    /// Fills `rows` with the next rows and moves on behind them.
    ///
    /// # Panics
    /// If the length of `rows` is not a multiple of [`ROW_BYTES`].
    pub fn fill(&mut self, rows: &mut [u8]) {
        let (rows, rest) = rows.as_chunks_mut::<ROW_BYTES>();
        assert!(rest.is_empty(), "a generator fills whole rows of {ROW_BYTES} bytes");
        let (number, mut random) = (self.number, self.random);
        match self.kind.layout() {
            RowLayout::Modern => fill_modern(rows, &mut self.random),
            RowLayout::Legacy => fill_legacy(rows, number, &mut self.random),
            RowLayout::Ascii => fill_ascii(rows, number, &mut self.random),
        }
        self.number = number.wrapping_add(rows.len() as u128);
        if let Some(prefixes) = &self.prefixes {
            skew_keys(rows, self.kind.layout(), prefixes, number, &mut random);
        }
    }
}

/// Group `g` of row `i` comes from the random number of row `i + g`. So the groups of consecutive rows, before the
/// masks, are windows of one stream, each ten bytes further on: one random number makes ten groups.
fn fill_modern(rows: &mut [Row], random: &mut Random) {
    let mask: Row = *MODERN_MASK.as_flattened().as_array().expect("ten groups are a row");
    let mut stream = [0; STREAM_BYTES];
    for block in rows.chunks_mut(BLOCK_ROWS) {
        let mut ahead = *random;
        for group in 0..block.len() + GROUPS - 1 {
            if group == block.len() {
                *random = ahead;
            }
            // Sixteen bytes are stored at once; the next group overwrites the six that no group uses.
            let place = group * KEY_BYTES;
            stream[place..place + size_of::<u128>()].copy_from_slice(&ahead.bits().to_be_bytes());
            ahead.step();
        }
        let windows = stream.windows(ROW_BYTES).step_by(KEY_BYTES);
        for (row, window) in block.iter_mut().zip(windows) {
            for ((byte, random), mask) in row.iter_mut().zip(window).zip(&mask) {
                *byte = random ^ mask;
            }
        }
    }
}

fn fill_legacy(rows: &mut [Row], number: u128, random: &mut Random) {
    let mut digits = hexadecimal(number);
    for row in rows {
        let bits = random.bits();
        row[..10].copy_from_slice(&bits.to_be_bytes()[..KEY_BYTES]);
        row[10..12].copy_from_slice(&[0x00, 0x11]);
        row[12..44].copy_from_slice(&digits);
        row[44..48].copy_from_slice(&[0x88, 0x99, 0xaa, 0xbb]);
        let mut filling = [[0; 8]; 6];
        write_fourfold(&mut filling, bits);
        row[48..96].copy_from_slice(filling.as_flattened());
        row[96..].copy_from_slice(&[0xcc, 0xdd, 0xee, 0xff]);
        increment_hexadecimal(&mut digits);
        random.step();
    }
}

fn fill_ascii(rows: &mut [Row], number: u128, random: &mut Random) {
    let mut digits = hexadecimal(number);
    for row in rows {
        let bits = random.bits();
        write_base_95(&mut row[..8], (bits >> 64) as u64);
        write_base_95(&mut row[8..10], bits as u64);
        row[10..12].copy_from_slice(b"  ");
        row[12..44].copy_from_slice(&digits);
        row[44..46].copy_from_slice(b"  ");
        row[46..50].copy_from_slice(&fourfold_digit(bits >> 48));
        let mut filling = [[0; 8]; 6];
        write_fourfold(&mut filling, bits);
        row[50..98].copy_from_slice(filling.as_flattened());
        row[98..].copy_from_slice(b"\r\n");
        increment_hexadecimal(&mut digits);
        random.step();
    }
}

/// The prefix for row numbers of `s` significant bits is the front of the unskewed key of row `s`.
fn prefixes(layout: RowLayout) -> Prefixes {
    let mut rows = vec![[0; ROW_BYTES]; PREFIXES];
    let mut random = Random::of_row(0);
    match layout {
        RowLayout::Modern | RowLayout::Legacy => fill_modern(&mut rows, &mut random),
        RowLayout::Ascii => fill_ascii(&mut rows, 0, &mut random),
    }
    let mut prefixes = Box::new([0; PREFIXES]);
    for (prefix, row) in prefixes.iter_mut().zip(&rows) {
        *prefix = front(row) & (u64::MAX << (64 - 8 * PREFIX_BYTES));
    }
    prefixes
}

/// The first eight bytes of a row, as a number that has their order.
#[inline]
fn front(row: &Row) -> u64 {
    u64::from_be_bytes(*row.first_chunk().expect("a row is longer than eight bytes"))
}

/// Which prefix row `number` uses: its significant bits, but that gensort takes each half of a number from 2^60 on
/// for a full one.
#[inline]
fn prefix_index(number: u128) -> usize {
    const FULL: u64 = 1 << 60;
    let significant = |half: u64| if half >= FULL { 64 } else { (64 - half.leading_zeros()) as usize };
    let (high, low) = ((number >> 64) as u64, number as u64);
    if high > 0 { 64 + significant(high) } else { significant(low) }
}

/// Overwrites the first bits of each key by the prefix of its row number; how many is random: 0 to 48 bits in
/// binary rows, 0 to 6 whole bytes in ASCII rows.
fn skew_keys(rows: &mut [Row], layout: RowLayout, prefixes: &Prefixes, number: u128, random: &mut Random) {
    let mut number = number;
    for row in rows {
        let choice = (random.bits() >> 32) as u32;
        let bits = match layout {
            RowLayout::Modern | RowLayout::Legacy => choice & 63,
            RowLayout::Ascii => 8 * (choice & 7),
        };
        if bits <= 8 * PREFIX_BYTES as u32 {
            let kept = u64::MAX.checked_shr(bits).unwrap_or(0);
            let key = (front(row) & kept) | (prefixes[prefix_index(number)] & !kept);
            row[..size_of::<u64>()].copy_from_slice(&key.to_be_bytes());
        }
        number = number.wrapping_add(1);
        random.step();
    }
}

#[cfg(test)]
mod tests {
    use super::{RowGenerator, prefix_index};
    use crate::{RowKind, RowLayout};

    #[test]
    fn the_prefix_goes_by_significant_bits() {
        for (number, index) in [
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
            ((1 << 60) - 1, 60),
            (1 << 60, 64),
            ((1 << 64) - 1, 64),
            (1 << 64, 65),
            ((1 << 66) + 7, 67),
            ((1 << 124) - 1, 124),
            (1 << 124, 128),
            (u128::MAX, 128),
        ] {
            assert_eq!(prefix_index(number), index, "{number}");
        }
    }

    #[test]
    #[should_panic(expected = "whole rows")]
    fn a_partial_row_is_refused() {
        let kind = RowKind::uniform(RowLayout::Modern);
        RowGenerator::new(kind, 0).fill(&mut [0; 150]);
    }
}
