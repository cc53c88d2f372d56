//! Verification of a whole run file: every byte against its checksum, every record against order, index, source table
//! and footer.

use crate::block::{self, BLOCK_HEADER_BYTES, BlockHeader};
use crate::error::{FormatError, Problem};
use crate::key_index::{IndexEntry, index_key};
use crate::record::{Record, record_hash};
use crate::run_file::{ReadAt, RunFile, read_vec};
use api::DataSum;

/// Reads one block of a run into `raw` (replaced) and checks it against its index entry.
pub fn read_block<F: ReadAt + ?Sized>(
    file: &F,
    entry: &IndexEntry,
    raw: &mut Vec<u8>,
) -> Result<BlockHeader, FormatError> {
    let bytes = read_vec(file, entry.offset_bytes, u64::from(entry.stored_bytes))?;
    decode_block(&bytes, entry, raw)
}

/// Checks the bytes of a block (header and stored bytes) against its index entry and decompresses them.
pub fn decode_block(bytes: &[u8], entry: &IndexEntry, raw: &mut Vec<u8>) -> Result<BlockHeader, FormatError> {
    let shifted = |error: FormatError| error.shifted(entry.offset_bytes);
    let header = BlockHeader::decode(bytes).map_err(shifted)?;
    let stored = bytes.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
    for (what, here, there) in [
        ("stored size of a block", stored.len() as u64, u64::from(header.stored_bytes)),
        ("size of a block", u64::from(header.raw_bytes), u64::from(entry.raw_bytes)),
        ("records of a block", u64::from(header.records), u64::from(entry.records)),
    ] {
        if here != there {
            return Err(FormatError::at(entry.offset_bytes, Problem::Disagreement { what, here, there }));
        }
    }
    block::decode_into(&header, stored, raw)
        .map_err(|error| error.shifted(entry.offset_bytes + BLOCK_HEADER_BYTES as u64))?;
    Ok(header)
}

/// Calls `each` with every record of the run, in order, after its block was checked; the first argument is the source
/// row. Checks order, sums per source row, first keys and totals.
pub fn walk_run<F: ReadAt + ?Sized>(
    file: &F,
    run: &RunFile,
    mut each: impl FnMut(u32, &Record<'_>),
) -> Result<(), FormatError> {
    let mut walk = Walk::new(run);
    for entry in &run.index.entries {
        walk.block(file, entry, &mut each)?;
    }
    check_sums(run, &walk.sums, &walk.total)
}

/// A finding of [`find_damage`].
#[derive(Debug)]
pub enum Met<'a> {
    /// An intact block.
    Block(&'a IndexEntry),
    /// A damaged block, by its position among all.
    DamagedBlock(u64, FormatError),
    /// All blocks are intact, but their sums differ from those of the source table or footer.
    Sums(FormatError),
}

/// Reads every block of a run, also after damaged ones, and checks the same as [`walk_run`]; sums only if all blocks
/// are intact. Ends early if `met` returns false, which is called after each block.
pub fn find_damage<F: ReadAt + ?Sized>(file: &F, run: &RunFile, mut met: impl FnMut(Met<'_>) -> bool) {
    let mut walk = Walk::new(run);
    let mut all_whole = true;
    for (position, entry) in run.index.entries.iter().enumerate() {
        let goes_on = match walk.block(file, entry, &mut |_, _| {}) {
            Ok(()) => met(Met::Block(entry)),
            Err(error) => {
                all_whole = false;
                // The next block has no known predecessor to be in order with.
                walk.previous_key = None;
                met(Met::DamagedBlock(position as u64, error))
            }
        };
        if !goes_on {
            return;
        }
    }
    if all_whole && let Err(error) = check_sums(run, &walk.sums, &walk.total) {
        met(Met::Sums(error));
    }
}

/// Computes a fingerprint of the bytes of a file (XXH3-128 over windows, each with the number of the one before it).
pub fn content_hash<F: ReadAt + ?Sized>(
    file: &F,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<u128, FormatError> {
    const WINDOW_BYTES: u64 = 1 << 20;
    let read_error = |offset| move |source| FormatError::at(offset, Problem::Read(source));
    let file_bytes = file.size_bytes().map_err(read_error(0))?;
    let mut hash = u128::from(file_bytes);
    let mut window = Vec::new();
    let mut offset = 0;
    while offset < file_bytes {
        let window_bytes = WINDOW_BYTES.min(file_bytes - offset);
        window.clear();
        window.extend_from_slice(&hash.to_le_bytes());
        window.resize(size_of::<u128>() + window_bytes as usize, 0);
        file.read_at(offset, &mut window[size_of::<u128>()..]).map_err(read_error(offset))?;
        hash = record_hash(&window);
        offset += window_bytes;
        if !goes_on(window_bytes) {
            break;
        }
    }
    Ok(hash)
}

/// State of a walk over the blocks of a run.
struct Walk<'a> {
    run: &'a RunFile,
    sums: Vec<DataSum>,
    total: DataSum,
    raw: Vec<u8>,
    previous_key: Option<(Vec<u8>, u32)>,
}

impl<'a> Walk<'a> {
    fn new(run: &'a RunFile) -> Self {
        let sums = vec![DataSum::default(); run.sources.len()];
        Self { run, sums, total: DataSum::default(), raw: Vec::new(), previous_key: None }
    }

    /// Checks a block and its records.
    fn block<F: ReadAt + ?Sized>(
        &mut self,
        file: &F,
        entry: &IndexEntry,
        each: &mut impl FnMut(u32, &Record<'_>),
    ) -> Result<(), FormatError> {
        let (run, raw) = (self.run, &mut self.raw);
        read_block(file, entry, raw)?;
        let at_block = |problem| FormatError::at(entry.offset_bytes, problem);
        let mut offset = 0;
        let mut records = 0;
        while offset < raw.len() {
            let Some((row, record, taken)) = block::decode_record(run.identity.key_shape, &raw[offset..])
            else {
                return Err(at_block(Problem::Field {
                    what: "the lengths of a record",
                    value: offset as u64,
                }));
            };
            if row as usize >= run.sources.len() {
                return Err(at_block(Problem::Field { what: "the source of a record", value: row.into() }));
            }
            if offset == 0 && index_key(&record) != (entry.first_key.clone(), entry.key_is_cut) {
                return Err(at_block(Problem::Field { what: "the first key in the index", value: 0 }));
            }
            if let Some((key, previous_row)) = &self.previous_key {
                let ranks = (run.sources[*previous_row as usize].rank(), run.sources[row as usize].rank());
                if (key.as_slice(), ranks.0) > (record.key, ranks.1) {
                    return Err(at_block(Problem::Order));
                }
            }
            let hash = record_hash(record.encoded);
            self.sums[row as usize].add_record(record.encoded.len() as u64, hash);
            self.total.add_record(record.encoded.len() as u64, hash);
            each(row, &record);
            let (mut key, _) = self.previous_key.take().unwrap_or_default();
            key.clear();
            key.extend_from_slice(record.key);
            self.previous_key = Some((key, row));
            offset += taken;
            records += 1;
        }
        if records != entry.records {
            let (here, there) = (records.into(), entry.records.into());
            return Err(at_block(Problem::Disagreement { what: "records of a block", here, there }));
        }
        Ok(())
    }
}

fn check_sums(run: &RunFile, sums: &[DataSum], total: &DataSum) -> Result<(), FormatError> {
    for (row, sum) in run.sources.iter().zip(sums) {
        if row.sum != *sum {
            let problem = Problem::Disagreement {
                what: "the sum of a source's records",
                here: sum.records,
                there: row.sum.records,
            };
            return Err(FormatError::at(run.footer.sources_offset, problem));
        }
    }
    if *total != run.footer.sum {
        let problem = Problem::Disagreement {
            what: "the sum of all records",
            here: total.records,
            there: run.footer.sum.records,
        };
        return Err(FormatError::at(run.footer.sources_offset + run.footer.sources_bytes(), problem));
    }
    Ok(())
}
