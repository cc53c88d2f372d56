//! Writes a run: sorted records in, one sequential stream of bytes out.

use crate::block::{self, BLOCK_HEADER_BYTES};
use crate::key_index::{IndexEntry, KeyIndex, index_key};
use crate::record::{Record, record_hash};
use crate::run_file::{FILE_HEADER_BYTES, RunFile, RunFooter, RunIdentity};
use crate::source_table::{self, SourceRow};
use api::{Codec, DataSum};
use std::io::Write;

/// A run being written. Records must come in run order: key, then rank of the source row, then position.
pub struct RunWriter<W: Write> {
    out: W,
    identity: RunIdentity,
    codec: Codec,
    block_bytes: usize,
    sources: Vec<SourceRow>,
    index: KeyIndex,
    raw: Vec<u8>,
    raw_records: u32,
    first_key: Vec<u8>,
    first_key_is_cut: bool,
    encoded: Vec<u8>,
    offset_bytes: u64,
    block_bytes_max: u64,
    sum: DataSum,
}

impl<W: Write> RunWriter<W> {
    /// Starts a run with its header. `sources` are the rows that records refer to; blocks are closed before they exceed
    /// `block_bytes` (a larger record gets its own block).
    pub fn new(
        mut out: W,
        identity: RunIdentity,
        codec: Codec,
        block_bytes: u64,
        sources: Vec<SourceRow>,
    ) -> std::io::Result<Self> {
        out.write_all(&identity.encode_header())?;
        Ok(Self {
            out,
            identity,
            codec,
            block_bytes: block_bytes as usize,
            sources,
            index: KeyIndex::default(),
            raw: Vec::with_capacity(block_bytes as usize),
            raw_records: 0,
            first_key: Vec::new(),
            first_key_is_cut: false,
            encoded: Vec::new(),
            offset_bytes: FILE_HEADER_BYTES as u64,
            block_bytes_max: 0,
            sum: DataSum::default(),
        })
    }

    /// Appends one record of the given source row.
    pub fn push(&mut self, source_row: u32, record: &Record<'_>) -> std::io::Result<()> {
        assert!((source_row as usize) < self.sources.len(), "source row {source_row} is not in the table");
        let needed = record.encoded.len() + 5;
        if !self.raw.is_empty() && self.raw.len() + needed > self.block_bytes {
            self.close_block()?;
        }
        if self.raw.is_empty() {
            (self.first_key, self.first_key_is_cut) = index_key(record);
        }
        block::push_record(&mut self.raw, source_row, record.encoded);
        self.raw_records += 1;
        self.sum.add_record(record.encoded.len() as u64, record_hash(record.encoded));
        Ok(())
    }

    fn close_block(&mut self) -> std::io::Result<()> {
        self.encoded.clear();
        let header = block::encode(&self.raw, self.raw_records, self.codec, &mut self.encoded);
        self.out.write_all(&self.encoded)?;
        let stored_bytes = BLOCK_HEADER_BYTES as u32 + header.stored_bytes;
        self.index.entries.push(IndexEntry {
            offset_bytes: self.offset_bytes,
            stored_bytes,
            raw_bytes: header.raw_bytes,
            records: header.records,
            first_key: std::mem::take(&mut self.first_key),
            key_is_cut: self.first_key_is_cut,
        });
        self.offset_bytes += u64::from(stored_bytes);
        self.block_bytes_max = self.block_bytes_max.max(self.raw.len() as u64);
        if self.raw.capacity() > 2 * self.block_bytes {
            // One huge record must not keep its buffers for the rest of the run.
            self.raw = Vec::with_capacity(self.block_bytes);
            self.encoded = Vec::new();
        }
        self.raw.clear();
        self.raw_records = 0;
        Ok(())
    }

    /// Writes index, source table and footer and flushes. Returns the writer and the facts that a reader would get by
    /// opening the file.
    pub fn finish(mut self) -> std::io::Result<(W, RunFile)> {
        if !self.raw.is_empty() {
            self.close_block()?;
        }
        let mut index_bytes = Vec::new();
        self.index.encode(&mut index_bytes);
        let mut source_bytes = Vec::new();
        source_table::encode(&self.sources, &mut source_bytes);
        let footer = RunFooter {
            run: self.identity.run,
            index_offset: self.offset_bytes,
            index_bytes: index_bytes.len() as u64,
            block_count: self.index.entries.len() as u64,
            index_crc32c: crc32c::crc32c(&index_bytes),
            sources_offset: self.offset_bytes + index_bytes.len() as u64,
            source_count: self.sources.len() as u64,
            sources_crc32c: crc32c::crc32c(&source_bytes),
            block_bytes_max: self.block_bytes_max,
            sum: self.sum,
        };
        self.out.write_all(&index_bytes)?;
        self.out.write_all(&source_bytes)?;
        self.out.write_all(&footer.encode())?;
        self.out.flush()?;
        let file = RunFile { identity: self.identity, footer, index: self.index, sources: self.sources };
        Ok((self.out, file))
    }
}

impl RunFile {
    /// Returns the bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.footer.sources_offset + self.footer.sources_bytes() + crate::run_file::FOOTER_BYTES as u64
    }
}
