//! Checks a whole run file: every byte against its checksum, every record against order, index, source table
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

/// Calls `each` with every record of the run, in order, after its block was checked; the flag of the first
/// argument is the source row. Checks order, sums per source row, first keys and totals.
pub fn walk_run<F: ReadAt + ?Sized>(
    file: &F,
    run: &RunFile,
    mut each: impl FnMut(u32, &Record<'_>),
) -> Result<(), FormatError> {
    let mut sums = vec![DataSum::default(); run.sources.len()];
    let mut total = DataSum::default();
    let mut raw = Vec::new();
    let mut previous_key: Option<(Vec<u8>, u32)> = None;
    for entry in &run.index.entries {
        read_block(file, entry, &mut raw)?;
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
            if let Some((key, previous_row)) = &previous_key {
                let ranks = (run.sources[*previous_row as usize].rank(), run.sources[row as usize].rank());
                if (key.as_slice(), ranks.0) > (record.key, ranks.1) {
                    return Err(at_block(Problem::Order));
                }
            }
            let hash = record_hash(record.encoded);
            sums[row as usize].add_record(record.encoded.len() as u64, hash);
            total.add_record(record.encoded.len() as u64, hash);
            each(row, &record);
            let (mut key, _) = previous_key.take().unwrap_or_default();
            key.clear();
            key.extend_from_slice(record.key);
            previous_key = Some((key, row));
            offset += taken;
            records += 1;
        }
        if records != entry.records {
            let (here, there) = (records.into(), entry.records.into());
            return Err(at_block(Problem::Disagreement { what: "records of a block", here, there }));
        }
    }
    check_sums(run, &sums, &total)
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
