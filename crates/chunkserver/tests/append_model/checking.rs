//! Runs a case against a real chunkserver and compares what is read back with the model.

use crate::faulty_service::FaultyService;
use crate::plan::{CHUNK_BYTES, Case, Pair};
use crate::running::Outcome;
use api::DataSum;
use api::task::SealResult;
use chunkserver::{ChunkServer, Config, Run, RunCursor};
use iappender::ChunkService;
use ids::{ChunkId, IfileIndex, JobId, RunId, Source};
use ifile::record::{encode, record_hash};
use imerger::{Groups, Merge, Winners};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts of the events that a schedule led to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub raw_spills: u64,
    pub runs_in_memory: u64,
    pub runs_on_disk: u64,
    pub answers_lost: u64,
    pub attempts_given_up: u64,
    pub dropped_records: u64,
    pub oversize_chunks: u64,
}

impl Reached {
    pub fn add(&mut self, other: &Self) {
        self.raw_spills += other.raw_spills;
        self.runs_in_memory += other.runs_in_memory;
        self.runs_on_disk += other.runs_on_disk;
        self.answers_lost += other.answers_lost;
        self.attempts_given_up += other.attempts_given_up;
        self.dropped_records += other.dropped_records;
        self.oversize_chunks += other.oversize_chunks;
    }
}

/// A record as it is read back; the flag says that it starts a group.
type Grouped = (Vec<u8>, Vec<u8>, bool);

/// Runs the case and checks everything that must hold.
pub fn check(case: &Case, run: fn(&Case, &dyn ChunkService) -> Outcome) -> Reached {
    let place = tempfile::tempdir().expect("a temporary directory");
    let disk_dirs: Vec<_> = (0..case.disks).map(|disk| place.path().join(format!("disk-{disk}"))).collect();
    for dir in &disk_dirs {
        std::fs::create_dir(dir).expect("a disk directory");
    }
    let config = Config {
        job: JobId(1),
        node: ids::NodeId(0),
        layout: case.layout(),
        codec: case.codec,
        key_shape: case.key_shape(),
        disk_dirs,
        slots: case.sorters,
        keep: case.keep,
        elsewhere: false,
        cancelled: Arc::new(AtomicBool::new(false)),
    };
    let server = ChunkServer::start(config).expect("a chunkserver");
    let service = FaultyService::new(server.service(), case.answers_lost_per_mille, case.seed);
    let outcome = run(case, &service);
    let sealed = server.seal(&[]).expect("nothing fails here");
    assert_eq!(server.seal(&[]).expect("sealing again is harmless"), sealed);

    check_chunks(&sealed, &outcome);
    let runs: Vec<Arc<Run>> =
        sealed.runs.iter().map(|run| server.run(run.run).expect("each run in the list exists")).collect();
    check_rows(&runs, &outcome);
    let mut reached = Reached {
        raw_spills: sealed.raw_spills,
        runs_in_memory: runs.iter().filter(|run| run.is_in_memory()).count() as u64,
        runs_on_disk: runs.iter().filter(|run| !run.is_in_memory()).count() as u64,
        answers_lost: service.answers_lost.load(Ordering::Relaxed),
        attempts_given_up: outcome.attempts_given_up,
        oversize_chunks: sealed.chunks.iter().filter(|chunk| chunk.oversize).count() as u64,
        dropped_records: 0,
    };
    drop(runs);
    merge_some(case, &server, &sealed);
    reached.dropped_records = check_records(case, &server, &outcome);
    let layout = case.layout();
    assert!(server.peak_bytes() <= layout.chunk_share_bytes, "the budget was exceeded");
    check_files(case, &server, place.path());
    reached
}

/// The winners' commits and the chunks' own books agree; no chunk holds more than it may.
fn check_chunks(sealed: &SealResult, outcome: &Outcome) {
    let mut books: BTreeMap<(Source, ChunkId), (IfileIndex, DataSum)> = BTreeMap::new();
    for chunk in &sealed.chunks {
        assert!(chunk.appended_bytes <= chunk.capacity_bytes);
        assert!(chunk.oversize || chunk.capacity_bytes == CHUNK_BYTES);
        let bytes: u64 = chunk.sources.iter().map(|(_, sum)| sum.bytes).sum();
        assert_eq!(bytes, chunk.appended_bytes, "{}", chunk.chunk);
        for (source, sum) in &chunk.sources {
            books.insert((*source, chunk.chunk), (chunk.ifile, *sum));
        }
    }
    for (task, (attempt, commits)) in &outcome.winners {
        let source = Source { map_task: *task, attempt: *attempt };
        for commit in commits {
            assert_eq!(books.remove(&(source, commit.chunk)), Some((commit.ifile, commit.sum)), "{source}");
        }
    }
    for ((source, chunk), (_, sum)) in books {
        let won = outcome.winners.get(&source.map_task).is_some_and(|winner| winner.0 == source.attempt);
        assert!(!won || sum == DataSum::default(), "{source} has more in {chunk} than it committed");
    }
}

/// Each chunk is in exactly one run, and the runs' source tables say what the winners committed.
fn check_rows(runs: &[Arc<Run>], outcome: &Outcome) {
    let mut rows: BTreeMap<(Source, ChunkId), DataSum> = BTreeMap::new();
    let mut run_of_chunk: BTreeMap<ChunkId, RunId> = BTreeMap::new();
    for run in runs {
        for row in &run.sources {
            rows.entry((row.source, row.chunk)).or_default().add(&row.sum);
            assert_eq!(*run_of_chunk.entry(row.chunk).or_insert(run.id), run.id, "{}", row.chunk);
        }
        let records: u64 = run.sources.iter().map(|row| row.sum.records).sum();
        assert_eq!(records, run.records(), "{}", run.id);
    }
    for (task, (attempt, commits)) in &outcome.winners {
        for commit in commits {
            let source = Source { map_task: *task, attempt: *attempt };
            assert_eq!(rows.get(&(source, commit.chunk)), Some(&commit.sum), "{source}");
        }
    }
}

/// Merges the runs of each I-file, a few at a time, as an extra pass would.
fn merge_some(case: &Case, server: &ChunkServer, sealed: &SealResult) {
    if case.merge_width == 0 {
        return;
    }
    for ifile in (0..case.ifile_count).map(IfileIndex) {
        let ids: Vec<RunId> =
            sealed.runs.iter().filter(|run| run.ifile == ifile).map(|run| run.run).collect();
        for some in ids.chunks(case.merge_width).filter(|some| some.len() > 1) {
            let merged = server.merge_runs(ifile, some, case.read_ahead_bytes).expect("a merge pass");
            assert_eq!(merged.replaced, some);
            let records: u64 =
                sealed.runs.iter().filter(|run| some.contains(&run.run)).map(|run| run.records).sum();
            assert_eq!(merged.run.records, records);
            assert!(some.iter().all(|old| server.run(*old).is_none()));
        }
    }
}

/// The model: the winners' records in task order, sorted stably by key.
fn model(case: &Case, outcome: &Outcome, wanted: impl Fn(IfileIndex) -> bool) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (task, (attempt, _)) in &outcome.winners {
        let count = case.tasks[task.0 as usize].records.len();
        pairs.extend(
            (0..count)
                .map(|position| case.pair(*task, *attempt, position))
                .filter(|pair| wanted(case.ifile(*task, &pair.key))),
        );
    }
    pairs.sort_by(|left, right| left.key.cmp(&right.key));
    pairs
}

fn with_groups(case: &Case, pairs: &[Pair]) -> Vec<Grouped> {
    let group = |pair: &Pair| pair.key[..case.partition_key_bytes(&pair.key)].to_vec();
    let starts = |index: usize| index == 0 || group(&pairs[index - 1]) != group(&pairs[index]);
    pairs.iter().enumerate().map(|(i, pair)| (pair.key.clone(), pair.value.clone(), starts(i))).collect()
}

fn model_sum(case: &Case, pairs: &[Pair]) -> DataSum {
    let mut sum = DataSum::default();
    for pair in pairs {
        let mut bytes = Vec::new();
        let partition_key_bytes = case.partition_key_bytes(&pair.key);
        encode(case.key_shape(), &pair.key, &pair.value, partition_key_bytes, &mut bytes);
        sum.add_record(bytes.len() as u64, record_hash(&bytes));
    }
    sum
}

/// Reads each I-file, all together, and key range by key range; gives back the records that were dropped.
fn check_records(case: &Case, server: &ChunkServer, outcome: &Outcome) -> u64 {
    let all: Vec<IfileIndex> = (0..case.ifile_count).map(IfileIndex).collect();
    for ifile in &all {
        let expected = model(case, outcome, |each| each == *ifile);
        let (read, sums, _) = read_range(case, server, outcome, &[*ifile], (None, None));
        assert!(read == with_groups(case, &expected), "the records of {ifile} differ from the model");
        let committed = outcome.winners.values().flat_map(|winner| &winner.1);
        let mut commit_sum = DataSum::default();
        committed.filter(|commit| commit.ifile == *ifile).for_each(|commit| commit_sum.add(&commit.sum));
        let merged = sums.get(ifile).copied().unwrap_or_default();
        assert_eq!(merged, model_sum(case, &expected), "{ifile}");
        assert_eq!(merged, commit_sum, "{ifile}");
    }
    let expected = model(case, outcome, |_| true);
    let (read, _, dropped) = read_range(case, server, outcome, &all, (None, None));
    assert!(read == with_groups(case, &expected), "the records of all I-files differ from the model");
    check_ranges(case, server, outcome, &expected);
    dropped
}

/// Key ranges that touch each other give the whole, each record once.
fn check_ranges(case: &Case, server: &ChunkServer, outcome: &Outcome, expected: &[Pair]) {
    let all: Vec<IfileIndex> = (0..case.ifile_count).map(IfileIndex).collect();
    let mut bounds: BTreeSet<Vec<u8>> = BTreeSet::new();
    for cut in case.cuts.iter().filter(|_| !expected.is_empty()) {
        let key = &expected[cut.index(expected.len())].key;
        bounds.insert(key[..case.partition_key_bytes(key)].to_vec());
    }
    let mut edges: Vec<Option<Vec<u8>>> = vec![None];
    edges.extend(bounds.into_iter().map(Some));
    edges.push(None);
    let mut together = Vec::new();
    for range in edges.windows(2) {
        let range = (range[0].as_deref(), range[1].as_deref());
        together.extend(read_range(case, server, outcome, &all, range).0);
    }
    assert!(together == with_groups(case, expected), "key ranges together differ from the model");
}

type Range<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn read_range(
    case: &Case,
    server: &ChunkServer,
    outcome: &Outcome,
    ifiles: &[IfileIndex],
    (lower, upper): Range<'_>,
) -> (Vec<Grouped>, BTreeMap<IfileIndex, DataSum>, u64) {
    let winners = Winners::new(outcome.winners.iter().map(|(task, winner)| (*task, winner.0)), []);
    let runs = server.runs_of(ifiles);
    let valid = runs.iter().map(|run| winners.valid_rows(run.ifile, &run.sources)).collect();
    let open = |run| RunCursor::open(run, lower, upper, case.read_ahead_bytes).expect("a run opens");
    let cursors: Vec<RunCursor<'_>> = runs.iter().map(|run| open(run)).collect();
    let mut groups = Groups::new(Merge::new(cursors).expect("a merge starts"), valid);
    let mut read = Vec::new();
    while let Some(record) = groups.advance().expect("runs are readable") {
        read.push((record.key.to_vec(), record.value.to_vec(), record.starts_group));
    }
    let report = groups.report();
    (read, report.merged.into_iter().collect(), report.dropped_records)
}

/// On the disks lie the runs that are not in memory, and nothing else.
fn check_files(case: &Case, server: &ChunkServer, place: &Path) {
    let all: Vec<IfileIndex> = (0..case.ifile_count).map(IfileIndex).collect();
    let runs = server.runs_of(&all);
    let expected: BTreeSet<&Path> = runs.iter().filter_map(|run| run.path()).collect();
    let mut found = BTreeSet::new();
    for disk in 0..case.disks {
        let dir = std::fs::read_dir(place.join(format!("disk-{disk}"))).expect("the disk directory is there");
        found.extend(dir.map(|entry| entry.expect("an entry").path()));
    }
    assert_eq!(found.iter().map(|path| path.as_path()).collect::<BTreeSet<_>>(), expected);
    assert!(!case.keep || runs.iter().all(|run| !run.is_in_memory()), "kept runs are on disk");
}
