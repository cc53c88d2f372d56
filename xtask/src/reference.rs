//! The in-memory reference for `tera sort`: the simple way to sort 100-byte rows that fit in memory. Two threads read
//! half of the rows each and sort (80-bit key, 32-bit index) packed into a u128; then each merges and gathers half of
//! the output into a second buffer, and one writes it: two writers of one file wait for each other and took twice as
//! long. Everything lies on huge pages. No spilling, no checksums, no recovery, no other format: it measures the cost
//! of these.

use crate::huge_pages::HugePages;
use crate::rows::{KEY_BYTES, ROW_BYTES};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read by one call, a multiple of a row.
const READ_BYTES: usize = 40_960 * ROW_BYTES;
/// Rows picked from the two sorted halves before they are copied.
const BATCH_ROWS: usize = 4096;
const INDEX_BITS: u32 = 32;

/// Sorts the rows of `input` by key into the new file `output`; equal keys keep their order.
pub fn sort(input: &Path, output: &Path) -> Result<()> {
    let source = File::open(input).with_context(|| format!("open {}", input.display()))?;
    let size_bytes = source.metadata().with_context(|| format!("look at {}", input.display()))?.len();
    let row_count = usize::try_from(size_bytes / ROW_BYTES as u64).context("count the rows")?;
    if row_count * ROW_BYTES != size_bytes as usize || row_count as u64 > 1 << INDEX_BITS {
        bail!("{} is {size_bytes} bytes: not whole rows, or more than an index counts", input.display());
    }
    let mut rows = HugePages::map(size_bytes)?;
    let mut entries = HugePages::map(row_count as u64 * 16)?;
    let rows = &mut rows.bytes_mut()[..row_count * ROW_BYTES];
    let entries = &mut entries.numbers_mut()[..row_count];
    let middle = row_count / 2;
    let (low_rows, high_rows) = rows.split_at_mut(middle * ROW_BYTES);
    let (low_entries, high_entries) = entries.split_at_mut(middle);
    for read in on_two_threads(
        || read_and_sort(&source, 0, low_rows, low_entries),
        || read_and_sort(&source, middle, high_rows, high_entries),
    ) {
        read.with_context(|| format!("read {}", input.display()))?;
    }

    let mut sorted = HugePages::map(size_bytes)?;
    let sorted = &mut sorted.bytes_mut()[..row_count * ROW_BYTES];
    let (low_sorted, high_sorted) = sorted.split_at_mut(middle * ROW_BYTES);
    let low_taken = taken_from_low(low_entries, high_entries, middle);
    let (low_first, low_second) = low_entries.split_at(low_taken);
    let (high_first, high_second) = high_entries.split_at(middle - low_taken);
    on_two_threads(
        || gather(rows, [low_first, high_first], low_sorted),
        || gather(rows, [low_second, high_second], high_sorted),
    );
    std::fs::write(output, sorted).with_context(|| format!("write {}", output.display()))
}

fn on_two_threads<T: Send>(first: impl FnOnce() -> T + Send, second: impl FnOnce() -> T) -> [T; 2] {
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        [first.join().expect("a thread of the reference does not panic"), second]
    })
}

fn read_and_sort(
    source: &File,
    first_row: usize,
    rows: &mut [u8],
    entries: &mut [u128],
) -> std::io::Result<()> {
    let mut done = 0;
    for block in rows.chunks_mut(READ_BYTES) {
        source.read_exact_at(block, ((first_row + done) * ROW_BYTES) as u64)?;
        for row in block.chunks_exact(ROW_BYTES) {
            let mut bytes = [0; 16];
            bytes[..KEY_BYTES].copy_from_slice(&row[..KEY_BYTES]);
            entries[done] = u128::from_be_bytes(bytes) | (first_row + done) as u128;
            done += 1;
        }
    }
    entries.sort_unstable();
    Ok(())
}

/// Returns how many of the `count` smallest entries are in `low`. Entries are unique, since each has its index.
fn taken_from_low(low: &[u128], high: &[u128], count: usize) -> usize {
    let (mut least, mut most) = (count.saturating_sub(high.len()), count.min(low.len()));
    while least < most {
        let taken = (least + most) / 2;
        if low[taken] < high[count - taken - 1] {
            least = taken + 1;
        } else {
            most = taken;
        }
    }
    least
}

/// Merges two sorted lists of entries and copies their rows in that order to `sorted`.
fn gather(rows: &[u8], [mut low, mut high]: [&[u128]; 2], sorted: &mut [u8]) {
    let mut picked = [0_usize; BATCH_ROWS];
    for batch in sorted.chunks_mut(BATCH_ROWS * ROW_BYTES) {
        let picked = &mut picked[..batch.len() / ROW_BYTES];
        for index in picked.iter_mut() {
            let take_low = high.first().is_none_or(|high| low.first().is_some_and(|low| low < high));
            let list = if take_low { &mut low } else { &mut high };
            *index = (list[0] & u128::from(u32::MAX)) as usize;
            *list = &list[1..];
        }
        for (row, index) in batch.chunks_exact_mut(ROW_BYTES).zip(picked) {
            row.copy_from_slice(&rows[*index * ROW_BYTES..][..ROW_BYTES]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{sort, taken_from_low};
    use crate::rows::ROW_BYTES;

    fn check(row_count: usize, key_of: impl Fn(usize) -> u8) {
        let directory = tempfile::tempdir().unwrap();
        let (input, output) = (directory.path().join("in"), directory.path().join("out"));
        let mut rows: Vec<Vec<u8>> = Vec::new();
        for index in 0..row_count {
            let mut row = vec![0_u8; ROW_BYTES];
            row[0] = key_of(index);
            row[ROW_BYTES - 8..].copy_from_slice(&index.to_be_bytes());
            rows.push(row);
        }
        std::fs::write(&input, rows.concat()).unwrap();
        sort(&input, &output).unwrap();
        rows.sort_by_key(|row| row[0]);
        assert!(std::fs::read(&output).unwrap() == rows.concat(), "{row_count} rows");
    }

    #[test]
    fn rows_are_ordered_by_key_then_input() {
        for row_count in [0, 1, 2, 3, 9999] {
            check(row_count, |index| (index * 7919 % 251) as u8);
            check(row_count, |index| (index % 2) as u8);
            check(row_count, |index| 255 - (index * 255 / row_count.max(1)) as u8);
        }
    }

    #[test]
    fn a_partial_row_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let input = directory.path().join("in");
        std::fs::write(&input, [0; 150]).unwrap();
        assert!(sort(&input, &directory.path().join("out")).is_err());
    }

    #[test]
    fn cut_of_two_lists_matches_a_merge() {
        let cases: &[(&[u128], &[u128])] =
            &[(&[], &[1, 2]), (&[1, 2], &[]), (&[1, 3, 5], &[2, 4, 6]), (&[4, 5], &[1, 2, 3])];
        for (low, high) in cases {
            for count in 0..=low.len() + high.len() {
                let mut all = [*low, *high].concat();
                all.sort_unstable();
                let expected = all[..count].iter().filter(|entry| low.contains(entry)).count();
                assert_eq!(taken_from_low(low, high, count), expected, "{low:?} {high:?} {count}");
            }
        }
    }
}
