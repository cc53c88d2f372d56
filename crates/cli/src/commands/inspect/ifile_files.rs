//! `sailfish ifile`: inspection of run files and raw chunk files.

use crate::commands::admin::intermediate_files::OldFileCommand;
use crate::exit::{FAILED, Failure, sentence};
use crate::show::escape;
use crate::show::quantity::{bytes, count, counted};
use crate::show::tables::{Column, facts, left, right, table};
use crate::show::terminal::{print, print_with, tell};
use anyhow::Context;
use api::{Codec, DataSum};
use chunkserver::DiskFile;
use clap::Subcommand;
use ids::Source;
use ifile::frame::FrameRecords;
use ifile::raw_chunk::{self, RawChunkIdentity};
use ifile::verify::{read_block, walk_run};
use ifile::{
    BLOCK_HEADER_BYTES, BlockHeader, FrameHeader, KeyShape, RAW_CHUNK_MAGIC, ReadAt, RunFile, block,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub enum IfileCommand {
    #[command(flatten)]
    Old(OldFileCommand),
    /// Show header, blocks, sources and sums
    Inspect {
        /// Run files (.ifile) or raw chunk files (.raw)
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Read every byte and check it against checksums, order, index and sums
    Verify {
        /// Run files (.ifile) or raw chunk files (.raw)
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print the records in key order as KEY TAB VALUE lines, with bytes unchanged
    Scan {
        /// A run file (.ifile) or a raw chunk file (.raw)
        path: PathBuf,
        /// First key to print
        #[arg(long, value_name = "KEY")]
        lower: Option<std::ffi::OsString>,
        /// Print only keys below this one
        #[arg(long, value_name = "KEY")]
        upper: Option<std::ffi::OsString>,
    },
}

/// Maximum number of rows of the source table that are shown.
const SOURCES_SHOWN_MAX: usize = 20;
/// Maximum bytes of a key that are shown.
const KEY_BYTES_SHOWN_MAX: usize = 64;

/// Runs a subcommand.
pub fn run(command: IfileCommand) -> Result<(), Failure> {
    match command {
        IfileCommand::Old(command) => command.run(),
        IfileCommand::Inspect { paths } => each(&paths, inspect),
        IfileCommand::Verify { paths } => each(&paths, verify),
        IfileCommand::Scan { path, lower, upper } => {
            let range =
                KeyRange { lower: lower.map(OsStringExt::into_vec), upper: upper.map(OsStringExt::into_vec) };
            let scanned = print_with(|output| scan(&path, &range, output));
            Ok(scanned.with_context(|| format!("scanning {}", path.display()))?)
        }
    }
}

/// Inspects every file, even if others are damaged.
fn each(paths: &[PathBuf], look: fn(&Path) -> anyhow::Result<String>) -> Result<(), Failure> {
    let mut damaged = false;
    for path in paths {
        match look(path) {
            Ok(text) => print(&text)?,
            Err(error) => {
                damaged = true;
                tell(&format!("sailfish: {}: {}", path.display(), sentence(&error)));
            }
        }
    }
    if damaged { Err(Failure::said(FAILED)) } else { Ok(()) }
}

/// Keys that a scan prints: from `lower` on, below `upper`.
struct KeyRange {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl KeyRange {
    fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_deref().is_none_or(|lower| key >= lower)
            && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

fn open(path: &Path) -> anyhow::Result<DiskFile> {
    DiskFile::open(path).context("cannot open")
}

/// Returns whether the file begins like a raw chunk. The reader of runs judges all other files.
fn is_raw_chunk(file: &DiskFile) -> bool {
    let mut magic = [0; RAW_CHUNK_MAGIC.len()];
    file.read_at(0, &mut magic).is_ok() && magic == RAW_CHUNK_MAGIC
}

fn inspect(path: &Path) -> anyhow::Result<String> {
    let file = open(path)?;
    let body = if is_raw_chunk(&file) { inspect_raw(&file)? } else { inspect_run(&file)? };
    Ok(format!("{}\n{body}", path.display()))
}

fn keys(shape: KeyShape) -> String {
    match shape {
        KeyShape::Whole => "the whole key decides the group",
        KeyShape::Prefix => "a prefix of the key decides the group",
    }
    .to_string()
}

fn inspect_run(file: &DiskFile) -> anyhow::Result<String> {
    let run = RunFile::open(file)?;
    let (identity, footer) = (&run.identity, &run.footer);
    let stored: u64 = run.index.entries.iter().map(|entry| u64::from(entry.stored_bytes)).sum();
    let raw: u64 = run.index.entries.iter().map(|entry| u64::from(entry.raw_bytes)).sum();
    let first_key = run
        .index
        .entries
        .first()
        .map(|entry| escape::key(&entry.first_key, KEY_BYTES_SHOWN_MAX))
        .unwrap_or_default();
    let last_block = run
        .index
        .entries
        .last()
        .map(|entry| escape::key(&entry.first_key, KEY_BYTES_SHOWN_MAX))
        .unwrap_or_default();
    let mut text = facts(&[
        ("kind", format!("sorted run {} of {}, job {}", identity.run.0, identity.ifile, identity.job)),
        ("keys", keys(identity.key_shape)),
        ("file", bytes(run.file_bytes())),
        ("records", format!("{}, {}", count(footer.sum.records), bytes(footer.sum.bytes))),
        ("hash sum", format!("{:032x}", footer.sum.hash_sum)),
        (
            "blocks",
            format!(
                "{} in {} ({} uncompressed), the largest {}; {}",
                count(footer.block_count),
                bytes(stored),
                bytes(raw),
                bytes(footer.block_bytes_max),
                codecs(file, &run)?
            ),
        ),
        ("first key", first_key),
        ("last block", format!("begins with {last_block}")),
        ("key index", format!("{} at byte {}", bytes(footer.index_bytes), count(footer.index_offset))),
        ("sources", format!("{} at byte {}", bytes(footer.sources_bytes()), count(footer.sources_offset))),
    ]);
    let columns = source_columns();
    let rows = run.sources.iter().take(SOURCES_SHOWN_MAX).map(|row| {
        let (source, sum) = (row.source, row.sum);
        source_cells(row.chunk.to_string(), source, row.first_sequence, &sum)
    });
    text.push_str(&table(&columns, rows.collect()));
    text.push_str(&left_off(run.sources.len()));
    Ok(text)
}

fn source_columns() -> [Column; 7] {
    [
        left("chunk"),
        right("map task"),
        right("attempt"),
        right("first frame"),
        right("records"),
        right("bytes"),
        left("hash sum"),
    ]
}

fn source_cells(chunk: String, source: Source, first_sequence: u64, sum: &DataSum) -> Vec<String> {
    vec![
        chunk,
        source.map_task.0.to_string(),
        source.attempt.0.to_string(),
        first_sequence.to_string(),
        count(sum.records),
        bytes(sum.bytes),
        format!("{:032x}", sum.hash_sum),
    ]
}

fn left_off(rows: usize) -> String {
    match rows.saturating_sub(SOURCES_SHOWN_MAX) {
        0 => String::new(),
        more => format!("and {} more\n", counted(more as u64, "source")),
    }
}

/// Returns the compression of the blocks, as in `12 lz4, 1 raw`.
fn codecs(file: &DiskFile, run: &RunFile) -> anyhow::Result<String> {
    let mut blocks_by_codec: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &run.index.entries {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        file.read_at(entry.offset_bytes, &mut bytes)
            .with_context(|| format!("reading the block at byte {}", entry.offset_bytes))?;
        let header = BlockHeader::decode(&bytes).map_err(|error| error.shifted(entry.offset_bytes))?;
        let name = match header.codec {
            Codec::None => "raw",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        };
        *blocks_by_codec.entry(name).or_default() += 1;
    }
    let texts: Vec<String> =
        blocks_by_codec.iter().map(|(name, blocks)| format!("{} {name}", count(*blocks))).collect();
    Ok(texts.join(", "))
}

/// Frames of one source in a raw chunk: the first sequence number, and the sum of all.
#[derive(Default)]
struct RawSource {
    first_sequence: u64,
    sum: DataSum,
}

fn inspect_raw(file: &DiskFile) -> anyhow::Result<String> {
    let mut sources: BTreeMap<Source, RawSource> = BTreeMap::new();
    let mut total = DataSum::default();
    let (identity, frames) = raw_chunk::read_frames(file, |header, _payload| {
        let first = RawSource { first_sequence: header.sequence, sum: DataSum::default() };
        sources.entry(header.source).or_insert(first).sum.add(&header.sum);
        total.add(&header.sum);
    })?;
    let file_bytes = file.size_bytes().context("reading the size")?;
    let mut text = facts(&[
        ("kind", format!("raw {} of {}, job {}", identity.chunk, identity.ifile, identity.job)),
        ("keys", keys(identity.key_shape)),
        ("file", bytes(file_bytes)),
        ("frames", count(frames)),
        ("records", format!("{}, {}", count(total.records), bytes(total.bytes))),
        ("hash sum", format!("{:032x}", total.hash_sum)),
    ]);
    let columns = source_columns();
    let rows = sources
        .iter()
        .take(SOURCES_SHOWN_MAX)
        .map(|(source, row)| source_cells(identity.chunk.to_string(), *source, row.first_sequence, &row.sum));
    text.push_str(&table(&columns, rows.collect()));
    text.push_str(&left_off(sources.len()));
    Ok(text)
}

fn verify(path: &Path) -> anyhow::Result<String> {
    let file = open(path)?;
    let shown = path.display();
    if is_raw_chunk(&file) {
        let mut sum = DataSum::default();
        let mut offset = ifile::run_file::FILE_HEADER_BYTES as u64;
        let mut damage = None;
        let (identity, frames) = raw_chunk::read_frames(&file, |header, payload| {
            let payload_offset = offset + ifile::FRAME_HEADER_BYTES as u64;
            offset = payload_offset + payload.len() as u64;
            if let (Err(error), None) = (header.check_records(&payload), &damage) {
                damage = Some(error.shifted(payload_offset));
            }
            sum.add(&header.sum);
        })?;
        if let Some(error) = damage {
            return Err(error.into());
        }
        let chunk = identity.chunk;
        return Ok(format!(
            "{shown}: raw {chunk} is whole: {}, {}\n",
            counted(frames, "frame"),
            amount(&sum)
        ));
    }
    let run = RunFile::open(&file)?;
    walk_run(&file, &run, |_, _| {})?;
    let blocks = counted(run.footer.block_count, "block");
    Ok(format!("{shown}: {} is whole: {blocks}, {}\n", run.identity.run, amount(&run.footer.sum)))
}

fn amount(sum: &DataSum) -> String {
    format!("{}, {}", counted(sum.records, "record"), bytes(sum.bytes))
}

fn scan(path: &Path, range: &KeyRange, output: &mut dyn Write) -> anyhow::Result<()> {
    let file = open(path)?;
    if is_raw_chunk(&file) {
        return scan_raw(&file, range, output);
    }
    let run = RunFile::open(&file)?;
    let mut raw = Vec::new();
    let blocks = run.index.blocks_in_range(range.lower.as_deref(), range.upper.as_deref());
    for entry in &run.index.entries[blocks] {
        read_block(&file, entry, &mut raw)?;
        let mut offset = 0;
        while offset < raw.len() {
            let decoded = block::decode_record(run.identity.key_shape, &raw[offset..]);
            let (_, record, taken) = decoded.with_context(|| {
                format!("damaged: no record {offset} bytes into the block at byte {}", entry.offset_bytes)
            })?;
            offset += taken;
            if range.contains(record.key) {
                write_pair(output, record.key, record.value)?;
            }
        }
    }
    Ok(())
}

/// Scans a raw chunk. Its records are in order of arrival, so they are sorted first, equal keys in input order.
fn scan_raw(file: &DiskFile, range: &KeyRange, output: &mut dyn Write) -> anyhow::Result<()> {
    let mut frames: Vec<(FrameHeader, Vec<u8>)> = Vec::new();
    let (identity, _) = raw_chunk::read_frames(file, |header, payload| frames.push((header, payload)))?;
    let RawChunkIdentity { key_shape, .. } = identity;
    frames.sort_by_key(|(header, _)| (header.source, header.sequence));
    let mut records = Vec::new();
    for (header, payload) in &frames {
        for each in FrameRecords::new(key_shape, payload) {
            let (_, record) =
                each.with_context(|| format!("frame {} of {}", header.sequence, header.source))?;
            if range.contains(record.key) {
                records.push((record.key, record.value));
            }
        }
    }
    records.sort_by_key(|(key, _)| *key);
    records.iter().try_for_each(|(key, value)| write_pair(output, key, value))
}

fn write_pair(output: &mut dyn Write, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
    output.write_all(key)?;
    output.write_all(b"\t")?;
    output.write_all(value)?;
    Ok(output.write_all(b"\n")?)
}

#[cfg(test)]
mod tests;
