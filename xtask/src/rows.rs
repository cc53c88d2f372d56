//! Checks sorted benchmark rows without any code of the product: order, count and checksum.
//!
//! The checksum is the sort benchmark's: the sum of the CRC-32 of each 100-byte row, modulo 2^128.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of a row, and of the key in front of it.
pub const ROW_BYTES: usize = 100;
pub const KEY_BYTES: usize = 10;
const BLOCK_ROWS: usize = 40_960;

/// Requirements for the rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demands {
    /// True if inputs may be unordered.
    pub any_order: bool,
    /// True if line tools may have dropped the CR before the LF: rows have 99 bytes, and the CR counts as if it were
    /// there.
    pub without_cr: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSums {
    pub rows: u64,
    pub checksum: u128,
    last_key: Option<[u8; KEY_BYTES]>,
}

impl RowSums {
    /// Adds a row. Fails if its key is smaller than that of the previous row.
    fn add(&mut self, row: &[u8; ROW_BYTES], demands: Demands) -> Result<()> {
        let key: [u8; KEY_BYTES] = *row.first_chunk().expect("a row is longer than its key");
        if !demands.any_order && self.last_key.is_some_and(|last| last > key) {
            bail!("row {} has a smaller key than the row before it", self.rows);
        }
        self.last_key = Some(key);
        self.rows += 1;
        self.checksum = self.checksum.wrapping_add(u128::from(crc32fast::hash(row)));
        Ok(())
    }

    /// Formats rows and checksum as one line.
    pub fn line(&self) -> String {
        format!("{}\t{:x}", self.rows, self.checksum)
    }
}

/// Sums the rows of `paths`, one file after another. The error names the file that breaks a requirement.
pub fn check(paths: &[impl AsRef<Path>], demands: Demands) -> Result<RowSums> {
    let mut sums = RowSums::default();
    for path in paths {
        let path = path.as_ref();
        let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        check_file(&mut file, demands, &mut sums).with_context(|| format!("check {}", path.display()))?;
    }
    Ok(sums)
}

fn check_file(file: &mut impl Read, demands: Demands, sums: &mut RowSums) -> Result<()> {
    let stored_bytes = if demands.without_cr { ROW_BYTES - 1 } else { ROW_BYTES };
    let mut block = vec![0; BLOCK_ROWS * stored_bytes];
    loop {
        let filled_bytes = fill(file, &mut block)?;
        if !filled_bytes.is_multiple_of(stored_bytes) {
            bail!("the last row is incomplete");
        }
        for stored in block[..filled_bytes].chunks_exact(stored_bytes) {
            let mut row = [0; ROW_BYTES];
            row[..stored_bytes].copy_from_slice(stored);
            if demands.without_cr {
                row[ROW_BYTES - 2..].copy_from_slice(b"\r\n");
            }
            sums.add(&row, demands)?;
        }
        if filled_bytes < block.len() {
            return Ok(());
        }
    }
}

/// Reads until `block` is full or the input ends.
fn fill(input: &mut impl Read, block: &mut [u8]) -> Result<usize> {
    let mut filled_bytes = 0;
    while filled_bytes < block.len() {
        match input.read(&mut block[filled_bytes..])? {
            0 => break,
            read_bytes => filled_bytes += read_bytes,
        }
    }
    Ok(filled_bytes)
}

#[cfg(test)]
mod tests {
    use super::{Demands, ROW_BYTES, RowSums, check_file};

    fn row(start: &str) -> Vec<u8> {
        let mut row = start.as_bytes().to_vec();
        row.resize(ROW_BYTES - 2, b'.');
        row.extend_from_slice(b"\r\n");
        row
    }

    fn sums(bytes: &[u8], demands: Demands) -> anyhow::Result<RowSums> {
        let mut sums = RowSums::default();
        check_file(&mut &bytes[..], demands, &mut sums).map(|()| sums)
    }

    #[test]
    fn order_is_demanded_of_keys_only() {
        let ordered = [row("a         2"), row("a         1"), row("b")].concat();
        let unordered = [row("b"), row("a")].concat();
        assert_eq!(sums(&ordered, Demands::default()).unwrap().rows, 3);
        assert!(sums(&unordered, Demands::default()).unwrap_err().to_string().contains("row 1"));
        assert_eq!(sums(&unordered, Demands { any_order: true, ..Demands::default() }).unwrap().rows, 2);
        assert!(sums(&ordered[..150], Demands::default()).is_err());
    }

    #[test]
    fn the_checksum_is_that_of_the_sort_benchmark() {
        let first_row = b"AsfAGHM5om  00000000000000000000000000000000  \
            0000222200002222000022220000222200002222000000001111\r\n";
        assert_eq!(sums(first_row, Demands::default()).unwrap().line(), "1\t3fcaea0a");
    }

    #[test]
    fn dropped_carriage_returns_count_as_present() {
        let rows = [row("a"), row("b")].concat();
        let dropped: Vec<u8> = rows.iter().copied().filter(|byte| *byte != b'\r').collect();
        let demands = Demands { without_cr: true, ..Demands::default() };
        assert_eq!(sums(&dropped, demands).unwrap(), sums(&rows, Demands::default()).unwrap());
    }
}
