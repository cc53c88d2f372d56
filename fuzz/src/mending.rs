//! Repairs the checksums of damaged bytes, so that fuzzing reaches the parsing behind them: a fuzzer does not guess a
//! CRC. Each target tries its input unchanged and then repaired.
//!
//! Offsets here are written as in `docs/formats/ifile.md` and not taken from the code under test, so that an
//! accidentally moved field is noticed: after the repair nothing would be accepted any more, and the coverage of the
//! targets shows it.

use api::DataSum;
use ifile::block::{self, BLOCK_HEADER_BYTES};
use ifile::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameRecords};
use ifile::key_index::IndexEntry;
use ifile::raw_chunk::TRAILER_BYTES;
use ifile::record::{self, KeyShape, Record};
use ifile::run_file::{FILE_HEADER_BYTES, FOOTER_BYTES};
use ifile::source_table::SOURCE_ROW_BYTES;
use ifile::{FORMAT_VERSION, KeyIndex, record_hash, verify};
use std::collections::BTreeMap;
use std::io::Read;

const FLAGS_OFFSET: usize = 10;
const FRAME_FLAGS_OFFSET: usize = 6;
const FRAME_IFILE_OFFSET: usize = 8;
const FRAME_SOURCE_OFFSET: usize = 12;
const FRAME_SEQUENCE_OFFSET: usize = 20;
const FRAME_SUM_OFFSET: usize = 28;
const FRAME_PAYLOAD_CRC_OFFSET: usize = 60;
const BLOCK_STORED_CRC_OFFSET: usize = 16;
const ROW_SUM_OFFSET: usize = 24;
const FOOTER_INDEX_OFFSET: usize = 16;
const FOOTER_INDEX_BYTES_OFFSET: usize = 24;
const FOOTER_BLOCKS_OFFSET: usize = 32;
const FOOTER_SOURCES_OFFSET: usize = 40;
const FOOTER_SOURCE_COUNT_OFFSET: usize = 48;
const FOOTER_BLOCK_MAX_OFFSET: usize = 56;
const FOOTER_SUM_OFFSET: usize = 64;
const FOOTER_INDEX_CRC_OFFSET: usize = 96;
const FOOTER_SOURCES_CRC_OFFSET: usize = 100;
/// Passes its bytes in pieces whose sizes they determine.
pub struct Pieces<'a>(pub &'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.first().map_or(0, |first| 1 + usize::from(*first) * 37);
        let count = count.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// Sizes and offsets of a stage file, as in `docs/formats/stage-file.md`.
const STAGE_HEADER_BYTES: usize = 32;
const STAGE_BLOCK_HEADER_BYTES: usize = 8;
const STAGE_BLOCK_PAYLOAD_BYTES: usize = 65536;
const STAGE_FOOTER_BYTES: usize = 40;
const STAGE_FOOTER_PAYLOAD_CRC_OFFSET: usize = 24;

/// Writes the CRC32C of all but the last four bytes into the last four. Fewer than four bytes stay unchanged.
pub fn mend_last_crc(bytes: &mut [u8]) {
    if let Some(covered) = bytes.len().checked_sub(4) {
        let crc = crc32c::crc32c(&bytes[..covered]);
        bytes[covered..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Bytes of a frame head between nodes, and the offset of its checksum over chunk and frame header.
const FRAME_HEAD_CRC_OFFSET: usize = 8;
const FRAME_HEAD_HEADER_OFFSET: usize = 12;
/// Bytes of the head of an entry of a scan, and the offsets of its fields.
const ENTRY_HEAD_BYTES: usize = 24;
const ENTRY_BODY_BYTES_OFFSET: usize = 8;
const ENTRY_BODY_CRC_OFFSET: usize = 12;
const ENTRY_ORDINAL_OFFSET: usize = 16;
const ENTRY_BLOCK: u8 = 2;

/// Repairs a frame header and the head around it.
pub fn mend_frame_head(bytes: &mut [u8]) {
    if bytes.len() < FRAME_HEAD_HEADER_OFFSET + FRAME_HEADER_BYTES {
        return;
    }
    mend_last_crc(&mut bytes[FRAME_HEAD_HEADER_OFFSET..FRAME_HEAD_HEADER_OFFSET + FRAME_HEADER_BYTES]);
    let crc = crc32c::crc32c(&bytes[..FRAME_HEAD_CRC_OFFSET]);
    let crc = crc32c::crc32c_append(crc, &bytes[FRAME_HEAD_HEADER_OFFSET..]);
    put_crc(bytes, FRAME_HEAD_CRC_OFFSET, crc);
}

/// Converts the head of a frame in a request to the current version: an older version of the header differs in its
/// number alone.
pub fn frame_head_of_today(bytes: &mut [u8]) {
    let header = of_today(&bytes[FRAME_HEAD_HEADER_OFFSET..], 4);
    bytes[FRAME_HEAD_HEADER_OFFSET..].copy_from_slice(&header);
    mend_frame_head(bytes);
}

/// Repairs the entries of a scan in sequence: their numbers and checksums.
pub fn mend_scan_stream(bytes: &mut [u8]) {
    let (mut offset, mut ordinal) = (0, 0u32);
    while bytes.len() - offset >= ENTRY_HEAD_BYTES {
        let entry = &mut bytes[offset..];
        let length = &entry[ENTRY_BODY_BYTES_OFFSET..ENTRY_BODY_BYTES_OFFSET + 4];
        let body_bytes = length.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
        let body_end = (ENTRY_HEAD_BYTES + body_bytes).min(entry.len());
        let is_block = entry[0] == ENTRY_BLOCK;
        let body_crc = if is_block { 0 } else { crc32c::crc32c(&entry[ENTRY_HEAD_BYTES..body_end]) };
        put_crc(entry, ENTRY_BODY_CRC_OFFSET, body_crc);
        put_crc(entry, ENTRY_ORDINAL_OFFSET, ordinal);
        mend_last_crc(&mut entry[..ENTRY_HEAD_BYTES]);
        offset += body_end;
        ordinal += 1;
    }
}

/// Repairs a stage file: header, blocks of the lengths that follow from its size, lengths and checksums of payload and
/// footer.
pub fn mend_stage_file(bytes: &mut [u8]) {
    if bytes.len() < STAGE_HEADER_BYTES + STAGE_FOOTER_BYTES {
        return;
    }
    mend_last_crc(&mut bytes[..STAGE_HEADER_BYTES]);
    let footer = bytes.len() - STAGE_FOOTER_BYTES;
    let (mut payload_crc, mut payload_bytes, mut blocks) = (0, 0, 0u64);
    let stored = STAGE_BLOCK_HEADER_BYTES + STAGE_BLOCK_PAYLOAD_BYTES;
    for block in bytes[STAGE_HEADER_BYTES..footer].chunks_mut(stored) {
        let Some(length) = block.len().checked_sub(STAGE_BLOCK_HEADER_BYTES) else { break };
        block[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&blocks.to_le_bytes()), &block[..4]);
        put_crc(block, 4, crc32c::crc32c_append(crc, &block[STAGE_BLOCK_HEADER_BYTES..]));
        payload_crc = crc32c::crc32c_append(payload_crc, &block[STAGE_BLOCK_HEADER_BYTES..]);
        payload_bytes += length as u64;
        blocks += 1;
    }
    let footer = &mut bytes[footer..];
    put_u64(footer, 8, payload_bytes);
    put_u64(footer, 16, blocks);
    put_crc(footer, STAGE_FOOTER_PAYLOAD_CRC_OFFSET, payload_crc);
    mend_last_crc(footer);
}

fn put_crc(bytes: &mut [u8], offset: usize, crc: u32) {
    bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

fn put_sum(bytes: &mut [u8], offset: usize, sum: &DataSum) {
    put_u64(bytes, offset, sum.records);
    put_u64(bytes, offset + 8, sum.bytes);
    bytes[offset + 16..offset + 32].copy_from_slice(&sum.hash_sum.to_le_bytes());
}

fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..offset + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn key_shape(flags: u8) -> KeyShape {
    if flags & 1 == 1 { KeyShape::Prefix } else { KeyShape::Whole }
}

/// Repairs a frame: the payload's size, checksum and sums, then the checksum of the header.
pub fn mend_frame(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_at_mut_checked(FRAME_HEADER_BYTES) else { return };
    let mut sum = DataSum::default();
    for record in FrameRecords::new(key_shape(header[FRAME_FLAGS_OFFSET]), payload) {
        let Ok((_, record)) = record else { break };
        sum.add_record(record.encoded.len() as u64, record_hash(record.encoded));
    }
    sum.bytes = payload.len() as u64;
    put_sum(header, FRAME_SUM_OFFSET, &sum);
    put_crc(header, FRAME_PAYLOAD_CRC_OFFSET, crc32c::crc32c(payload));
    mend_last_crc(header);
}

/// Repairs the payload of a spool: as many frames as their sizes allow, all with the source and the flags of the first,
/// and numbered.
pub fn mend_spool(bytes: &mut [u8]) {
    let (mut offset, mut next) = (0, BTreeMap::<Vec<u8>, u64>::new());
    while offset + FRAME_HEADER_BYTES <= bytes.len() {
        let payload_bytes = get_u64(bytes, offset + FRAME_SUM_OFFSET + 8);
        let room = bytes.len() - offset - FRAME_HEADER_BYTES;
        let Some(taken) = usize::try_from(payload_bytes).ok().filter(|each| *each <= room) else { break };
        let (first, rest) = bytes.split_at_mut(offset);
        let frame = &mut rest[..FRAME_HEADER_BYTES + taken];
        if let Some(first) = first.get(..FRAME_HEADER_BYTES) {
            for fields in [FRAME_FLAGS_OFFSET..FRAME_IFILE_OFFSET, FRAME_SOURCE_OFFSET..FRAME_SEQUENCE_OFFSET]
            {
                frame[fields.clone()].copy_from_slice(&first[fields]);
            }
        }
        let number = next.entry(frame[FRAME_IFILE_OFFSET..FRAME_SOURCE_OFFSET].to_vec()).or_default();
        put_u64(frame, FRAME_SEQUENCE_OFFSET, *number);
        *number += 1;
        mend_frame(frame);
        offset += FRAME_HEADER_BYTES + taken;
    }
}

/// Repairs a block: the checksums of its stored bytes (all that follow the header) and of its header.
pub fn mend_block(bytes: &mut [u8]) {
    let Some((header, stored)) = bytes.split_at_mut_checked(BLOCK_HEADER_BYTES) else { return };
    put_crc(header, BLOCK_STORED_CRC_OFFSET, crc32c::crc32c(stored));
    mend_last_crc(header);
}

/// Repairs a raw chunk file: header, as many frames as their sizes allow, trailer with their number.
pub fn mend_raw_chunk(bytes: &mut [u8]) {
    if bytes.len() < FILE_HEADER_BYTES + TRAILER_BYTES {
        return;
    }
    let end = bytes.len() - TRAILER_BYTES;
    mend_last_crc(&mut bytes[..FILE_HEADER_BYTES]);
    let mut offset = FILE_HEADER_BYTES;
    let mut frames = 0;
    while offset + FRAME_HEADER_BYTES <= end {
        let payload_bytes = get_u64(bytes, offset + FRAME_SUM_OFFSET + 8);
        let room = end - offset - FRAME_HEADER_BYTES;
        let Some(taken) = usize::try_from(payload_bytes).ok().filter(|each| *each <= room) else { break };
        let frame_end = offset + FRAME_HEADER_BYTES + taken;
        mend_frame(&mut bytes[offset..frame_end]);
        frames += 1;
        offset = frame_end;
    }
    put_u64(bytes, end + 16, frames);
    mend_last_crc(&mut bytes[end..]);
}

/// Repairs a run file: all checksums, and the sums of source table and footer if the records can be read.
pub fn mend_run(bytes: &mut [u8]) {
    if bytes.len() < FILE_HEADER_BYTES + FOOTER_BYTES {
        return;
    }
    let footer_start = bytes.len() - FOOTER_BYTES;
    mend_last_crc(&mut bytes[..FILE_HEADER_BYTES]);
    if let Some(places) = Places::find(bytes, footer_start) {
        let index_bytes = &bytes[places.index.clone()];
        if let Ok(index) = KeyIndex::decode(index_bytes, places.block_count) {
            mend_blocks_and_sums(bytes, &places, &index, footer_start);
        }
        let index_crc = crc32c::crc32c(&bytes[places.index]);
        let sources_crc = crc32c::crc32c(&bytes[places.sources]);
        put_crc(bytes, footer_start + FOOTER_INDEX_CRC_OFFSET, index_crc);
        put_crc(bytes, footer_start + FOOTER_SOURCES_CRC_OFFSET, sources_crc);
    }
    mend_last_crc(&mut bytes[footer_start..]);
}

/// The ranges of index and source table in a run file, if the footer is plausible.
struct Places {
    index: std::ops::Range<usize>,
    sources: std::ops::Range<usize>,
    block_count: u64,
}

impl Places {
    fn find(bytes: &[u8], footer_start: usize) -> Option<Self> {
        let field = |offset| get_u64(bytes, footer_start + offset);
        let range = |start: u64, size: u64| {
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            (end <= footer_start).then_some(start..end)
        };
        let sources_bytes = field(FOOTER_SOURCE_COUNT_OFFSET).checked_mul(SOURCE_ROW_BYTES as u64)?;
        Some(Self {
            index: range(field(FOOTER_INDEX_OFFSET), field(FOOTER_INDEX_BYTES_OFFSET))?,
            sources: range(field(FOOTER_SOURCES_OFFSET), sources_bytes)?,
            block_count: field(FOOTER_BLOCKS_OFFSET),
        })
    }
}

fn mend_blocks_and_sums(bytes: &mut [u8], places: &Places, index: &KeyIndex, footer_start: usize) {
    let shape = key_shape(bytes[FLAGS_OFFSET]);
    let mut rows = vec![DataSum::default(); places.sources.len() / SOURCE_ROW_BYTES];
    let mut total = DataSum::default();
    let mut raw = Vec::new();
    for entry in &index.entries {
        let Some(block_bytes) = block_range(entry, footer_start) else { return };
        mend_block(&mut bytes[block_bytes.clone()]);
        if verify::decode_block(&bytes[block_bytes], entry, &mut raw).is_err() {
            continue;
        }
        let mut offset = 0;
        while let Some((row, record, taken)) = block::decode_record(shape, &raw[offset..]) {
            let hash = record_hash(record.encoded);
            total.add_record(record.encoded.len() as u64, hash);
            if let Some(sum) = rows.get_mut(row as usize) {
                sum.add_record(record.encoded.len() as u64, hash);
            }
            offset += taken;
        }
    }
    for (position, sum) in rows.iter().enumerate() {
        put_sum(bytes, places.sources.start + position * SOURCE_ROW_BYTES + ROW_SUM_OFFSET, sum);
    }
    let block_bytes_max = index.entries.iter().map(|entry| entry.raw_bytes).max().unwrap_or(0);
    put_u64(bytes, footer_start + FOOTER_BLOCK_MAX_OFFSET, block_bytes_max.into());
    put_sum(bytes, footer_start + FOOTER_SUM_OFFSET, &total);
}

fn block_range(entry: &IndexEntry, footer_start: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(entry.offset_bytes).ok()?;
    let end = start.checked_add(entry.stored_bytes as usize)?;
    (end <= footer_start).then_some(start..end)
}

/// Asserts that the frame at the front of `bytes` has our spelling.
pub fn assert_same_frame(header: &FrameHeader, bytes: &[u8]) {
    assert_eq!(
        header.encode()[..],
        of_today(&bytes[..FRAME_HEADER_BYTES], 4),
        "a frame header has one spelling"
    );
}

/// Returns a header, with its version at that offset, in the current version: an older readable version differs in its
/// number alone.
pub fn of_today(header: &[u8], version_at: usize) -> Vec<u8> {
    let mut header = header.to_vec();
    header[version_at..version_at + 2].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let covered = header.len() - 4;
    let crc = crc32c::crc32c(&header[..covered]);
    header[covered..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Encodes the record.
pub fn encoded_again(shape: KeyShape, found: &Record<'_>) -> Vec<u8> {
    let mut encoded = Vec::new();
    let encode = if found.is_separated() { record::encode_separated } else { record::encode };
    encode(shape, found.key, found.value, found.partition_key_bytes, &mut encoded);
    encoded
}
