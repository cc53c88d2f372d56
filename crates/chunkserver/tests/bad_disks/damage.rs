//! Ten thousand seeded damages to run files and raw chunk files on disk, each read by what reads such files in a job:
//! either it is found, or what was damaged is read by nobody and all that is read is as it was. `SAILFISH_SEED=N`
//! repeats them.

use crate::job::{Content, JOB, append, layout, merged, server, temporary_directory};
use api::task::{AdoptTask, KeptRun, RunSummary};
use api::{Codec, DataSum};
use chunkserver::{ChunkServer, ChunkServerError, Run};
use fastrand::Rng;
use ids::IfileIndex;
use ifile::{BLOCK_HEADER_BYTES, BlockHeader, KeyShape, RunFile, block};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const IFILE: IfileIndex = IfileIndex(0);
/// Damages to run files, over all codecs and ways to read.
const RUN_DAMAGES: u32 = 10_200;
/// Damages to raw chunk files; each takes a chunkserver of its own.
const RAW_DAMAGES: u32 = 400;
const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];
const READ_AHEAD_BYTES: usize = 4096;

fn seeded() -> Rng {
    let given = std::env::var("SAILFISH_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or(5);
    println!("SAILFISH_SEED={seed}");
    Rng::with_seed(seed)
}

/// Kind of damage to the bytes of a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Cut,
    /// A stretch of the file stands over another one, as a write at the wrong place leaves it.
    Misplaced,
    /// A stretch stands there twice, and what follows further back.
    Doubled,
    /// A stretch was never written.
    Zeros,
}

const DAMAGES: [Damage; 5] = [Damage::Flip, Damage::Cut, Damage::Misplaced, Damage::Doubled, Damage::Zeros];

/// The same file with damage that begins in a region; None where it happens to be the same.
fn damaged(bytes: &[u8], region: &Range<usize>, damage: Damage, random: &mut Rng) -> Option<Vec<u8>> {
    let mut changed = bytes.to_vec();
    let at = random.usize(region.clone());
    let len = (1 + random.usize(..600)).min(bytes.len() - at);
    match damage {
        Damage::Flip => changed[at] ^= 1 << random.usize(..8),
        Damage::Cut => changed.truncate(at),
        Damage::Misplaced => {
            let from = random.usize(..bytes.len() - len + 1);
            changed.copy_within(from..from + len, at);
        }
        Damage::Doubled => drop(changed.splice(at..at, bytes[at..at + len].iter().copied())),
        Damage::Zeros => changed[at..at + len].fill(0),
    }
    (changed != bytes).then_some(changed)
}

/// How it went, by region.
#[derive(Debug, Default)]
struct Tally {
    refused: u32,
    /// Read without an error, with sums other than were committed.
    by_proof: u32,
    /// Not read, and what was read is as it was.
    unread: u32,
}

fn print(title: &str, tallies: &BTreeMap<&'static str, Tally>) -> Tally {
    let mut all = Tally::default();
    println!("{title:30} refused  by the proof  unread");
    for (region, tally) in tallies {
        println!("{region:30} {:7} {:13} {:7}", tally.refused, tally.by_proof, tally.unread);
        all.refused += tally.refused;
        all.by_proof += tally.by_proof;
        all.unread += tally.unread;
    }
    all
}

/// The ways in which a run file is read in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// A reduce task on the node that has it, of all keys.
    Merge,
    /// The same of some keys.
    RangeOfMerge,
    /// For a reduce task on another node: as the data port reads it, and as the other end checks it.
    Scan,
    /// A job that reduces kept I-files again.
    Adopt,
}

const READERS: [Reader; 4] = [Reader::Merge, Reader::RangeOfMerge, Reader::Scan, Reader::Adopt];

/// A job's chunkserver with two runs of one I-file on disk, the first of which is damaged again and again.
struct Victim {
    server: ChunkServer,
    run: Arc<Run>,
    summary: RunSummary,
    path: PathBuf,
    bytes: Vec<u8>,
    /// Names and places of the regions of the file.
    regions: Vec<(&'static str, Range<usize>)>,
    /// A block each, header and all.
    blocks: Vec<Range<usize>>,
    _place: tempfile::TempDir,
}

impl Victim {
    fn new(codec: Codec) -> Self {
        let place = temporary_directory();
        let server = server(layout(1, 16 << 10, 8), codec, place.path(), true);
        (0..2).for_each(|map_task| append(&server, map_task, 140).expect("memory and disk take it"));
        let sealed = server.seal(&[]).expect("sorted");
        let run = server.runs_of(&[IFILE]).swap_remove(0);
        let summary = sealed.runs.into_iter().find(|summary| summary.run == run.id).expect("a summary each");
        let path = run.path().expect("kept runs are on disk").to_path_buf();
        let bytes = std::fs::read(&path).expect("a run file");
        let file = RunFile::open(&bytes[..]).expect("a whole run");
        let (index, sources) = (file.footer.index_offset as usize, file.footer.sources_offset as usize);
        let footer = sources + file.footer.sources_bytes() as usize;
        let block_of = |entry: &ifile::IndexEntry| {
            entry.offset_bytes as usize..entry.offset_bytes as usize + entry.stored_bytes as usize
        };
        let blocks: Vec<Range<usize>> = file.index.entries.iter().map(block_of).collect();
        assert!(blocks.len() > 5, "{} blocks", blocks.len());
        let in_block = &blocks[blocks.len() / 2];
        let payload = in_block.start + BLOCK_HEADER_BYTES;
        let regions = vec![
            ("file header", 0..blocks[0].start),
            ("blocks, anywhere", blocks[0].start..index),
            ("a block's header", in_block.start..payload),
            ("a block's records", payload..in_block.end),
            ("key index", index..sources),
            ("source table", sources..footer),
            ("footer", footer..bytes.len()),
        ];
        Self { server, run, summary, path, bytes, regions, blocks, _place: place }
    }

    fn read(&self, reader: Reader) -> Result<Content, ChunkServerError> {
        match reader {
            Reader::Merge => merged(&[&self.run], None, None),
            Reader::RangeOfMerge => merged(&[&self.run], Some(b"key-3"), Some(b"key-b")),
            Reader::Scan => scanned(&self.server, &self.run),
            Reader::Adopt => self.adopted(),
        }
    }

    /// Returns the content that another job reads when it reduces the run again.
    fn adopted(&self) -> Result<Content, ChunkServerError> {
        let place = temporary_directory();
        let server = server(layout(1, 16 << 10, 2), Codec::Lz4, place.path(), false);
        let kept = KeptRun {
            run: self.summary.run,
            adopted: None,
            ifile: IFILE,
            disk: self.summary.disk,
            records: self.summary.records,
            record_bytes: self.summary.record_bytes,
            stored_bytes: self.summary.stored_bytes,
            has_copy: false,
        };
        let dirs = vec![self.path.parent().expect("a directory").to_path_buf()];
        let (runs, node) = (vec![kept], ids::NodeId(0));
        let task = AdoptTask { source: JOB, node, dirs, runs, chunks: vec![], copies: vec![] };
        server.adopt(&task)?;
        let run = server.run(self.summary.run).expect("it was adopted");
        merged(&[&run], None, None)
    }
}

fn scanned(server: &ChunkServer, run: &Run) -> Result<Content, ChunkServerError> {
    let mut scan = server.scan(run.id, None, None, READ_AHEAD_BYTES)?;
    let (mut content, mut encoded, mut raw) = (Content::default(), Vec::new(), Vec::new());
    while scan.next_block(&mut encoded)?.is_some() {
        // From here on as at the other end of the line.
        let there = |source| ChunkServerError::Damaged { path: PathBuf::from("stream"), source };
        let header = BlockHeader::decode(&encoded).map_err(there)?;
        block::decode_into(&header, &encoded[BLOCK_HEADER_BYTES..], &mut raw).map_err(there)?;
        let mut next = 0;
        while next < raw.len() {
            let (row, record, taken) = block::decode_record(KeyShape::Whole, &raw[next..])
                .expect("blocks with right checksums decode");
            content.add(record.encoded, row);
            next += taken;
        }
        encoded.clear();
    }
    Ok(content)
}

/// Returns whether an error says that a file is damaged, which makes its run a lost one.
fn is_damage(error: &ChunkServerError) -> bool {
    match error {
        ChunkServerError::LostRun { source, .. } => is_damage(source),
        ChunkServerError::Damaged { .. } => true,
        _ => false,
    }
}

/// Reads a damaged file, and sorts the case under what came of it.
fn judge(read: Result<Content, ChunkServerError>, expected: &Content, tally: &mut Tally, case: &str) {
    match read {
        Err(error) => {
            let is_named = is_damage(&error);
            assert!(is_named, "{case}: damage that is called something else: {error:?}");
            tally.refused += 1;
        }
        Ok(content) if content.sum != expected.sum => tally.by_proof += 1,
        Ok(content) => {
            assert!(content == *expected, "{case}: other content, and nobody would know");
            tally.unread += 1;
        }
    }
}

#[test]
fn damaged_runs_are_refused_or_read_unchanged() {
    let victims = CODECS.map(Victim::new);
    let expected: Vec<Vec<Content>> = victims
        .iter()
        .map(|victim| READERS.map(|reader| victim.read(reader).expect("undamaged")).into())
        .collect();
    assert!(expected.iter().flatten().all(|content| content.records.len() > 40));
    let mut random = seeded();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut by_kind = [0; DAMAGES.len()];
    let mut count = 0;
    while count < RUN_DAMAGES {
        let (codec, reader) = (random.usize(..CODECS.len()), random.usize(..READERS.len()));
        let victim = &victims[codec];
        let (name, region) = &victim.regions[random.usize(..victim.regions.len())];
        let kind = random.usize(..DAMAGES.len());
        let Some(bytes) = damaged(&victim.bytes, region, DAMAGES[kind], &mut random) else { continue };
        std::fs::write(&victim.path, &bytes).expect("our own file is written");
        let case = format!("{:?} {name}, {:?} ({:?})", DAMAGES[kind], CODECS[codec], READERS[reader]);
        judge(
            victim.read(READERS[reader]),
            &expected[codec][reader],
            tallies.entry(name).or_default(),
            &case,
        );
        by_kind[kind] += 1;
        count += 1;
    }
    let all = print("run files", &tallies);
    println!("{count} in all: {DAMAGES:?} {by_kind:?}");
    assert_eq!(all.refused + all.by_proof + all.unread, RUN_DAMAGES);
    // A merge of all keys has what stands around the blocks from the books of its own process.
    assert!(tallies["a block's records"].unread < tallies["a block's records"].refused / 2);
}

/// A whole block in the place of another one has all its checksums: that a stretch was written at the wrong place is
/// then known by the sums, which no reader can make agree.
#[test]
fn proof_finds_a_misplaced_block_at_the_latest() {
    let victim = Victim::new(Codec::None);
    let (mut refused, mut by_proof) = (0, 0);
    for reader in READERS {
        let expected = victim.read(reader).expect("undamaged");
        for to in &victim.blocks {
            for from in victim.blocks.iter().filter(|from| from.len() == to.len() && *from != to) {
                let mut bytes = victim.bytes.clone();
                bytes.copy_within(from.clone(), to.start);
                std::fs::write(&victim.path, bytes).expect("our own file is written");
                let mut tally = Tally::default();
                judge(victim.read(reader), &expected, &mut tally, &format!("{from:?} at {to:?}, {reader:?}"));
                refused += tally.refused;
                by_proof += tally.by_proof;
            }
        }
    }
    println!("blocks in the place of others: {refused} refused, {by_proof} by the proof");
    assert!(by_proof > 100);
}

/// Open chunks of so many I-files want more memory than there is, so that some of each goes to disk as it is.
const CROWD: u32 = 8;
const CROWD_RECORDS: u32 = 6_000;

fn raw_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory of ours");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "raw")).collect();
    paths.sort();
    paths
}

/// Damage in what was written so far of a raw chunk file, in place: the chunkserver may go on to add to it. None where
/// it happens to be the same.
fn damage_in_place(path: &Path, kind: Damage, random: &mut Rng) -> Option<()> {
    use std::os::unix::fs::FileExt;
    let bytes = std::fs::read(path).expect("a raw chunk file");
    // One that is being begun.
    if bytes.is_empty() {
        return None;
    }
    let file = std::fs::File::options().write(true).open(path).expect("our own file");
    if matches!(kind, Damage::Cut) {
        file.set_len(random.usize(..bytes.len()) as u64).expect("our own file is cut");
        return Some(());
    }
    let mut changed = damaged(&bytes, &(0..bytes.len()), kind, random)?;
    changed.truncate(bytes.len());
    (changed != bytes).then(|| file.write_all_at(&changed, 0).expect("our own file is written"))
}

/// Spills chunks, damages one of the files, and has all sorted and read.
fn spill_damage_and_read(kind: Option<Damage>, random: &mut Rng) -> Option<Result<DataSum, String>> {
    let place = temporary_directory();
    let server = server(layout(CROWD, 64 << 10, 3), Codec::Lz4, place.path(), false);
    append(&server, 0, CROWD_RECORDS).expect("disks are well");
    let raw = raw_files(place.path());
    assert!(!raw.is_empty(), "nothing was spilled");
    if let Some(kind) = kind {
        damage_in_place(&raw[random.usize(..raw.len())], kind, random)?;
    }
    let sealed = server.seal(&[]).expect("a chunkserver goes on without what is lost");
    if !sealed.lost.is_empty() {
        let because = sealed.lost_because.expect("it says why");
        assert!(because.contains("is damaged"), "{because}");
        let is_listed = |lost| sealed.chunks.iter().any(|chunk| chunk.chunk == lost);
        assert!(!sealed.lost.iter().copied().any(is_listed), "a lost chunk stands in the inventory");
        return Some(Err(because));
    }
    let mut sum = DataSum::default();
    for ifile in (0..CROWD).map(IfileIndex) {
        for run in server.runs_of(&[ifile]) {
            sum.add(&merged(&[&run], None, None).expect("what was sorted is whole").sum);
        }
    }
    Some(Ok(sum))
}

#[test]
fn damaged_raw_chunk_files_are_refused() {
    let mut random = seeded();
    let committed = spill_damage_and_read(None, &mut random).expect("it ran").expect("undamaged");
    assert_eq!(committed.records, u64::from(CROWD_RECORDS));
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut count = 0;
    while count < RAW_DAMAGES {
        let kind = DAMAGES[random.usize(..DAMAGES.len())];
        let Some(read) = spill_damage_and_read(Some(kind), &mut random) else { continue };
        let tally = tallies.entry("raw chunk file").or_default();
        match read {
            Err(_) => tally.refused += 1,
            Ok(sum) => {
                assert!(sum != committed, "{kind:?}: nobody would know");
                tally.by_proof += 1;
            }
        }
        count += 1;
    }
    let all = print("raw chunk files", &tallies);
    assert!(all.refused > RAW_DAMAGES * 9 / 10);
}
