//! Generated cases, the workers that run them, and what must be read back.

use crate::cluster::{Cluster, JOB, NODES};
use api::{Codec, DataSum, Layout, SourceCommit};
use arena::FrameBytes;
use chunkserver::Config;
use iappender::{AppendError, AppendFrame, IAppender, Partitioner, WorkerSlabs};
use ids::{AttemptNumber, IfileIndex, NodeId, Source, TaskIndex};
use ifile::record::{encode, record_hash};
use ifile::{FrameHeader, KeyShape};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHUNK_BYTES: u64 = 64 << 10;
const ATTEMPTS_MAX: u32 = 40;
const WORKERS: usize = 3;

/// Key and bytes of the value of each record.
pub type TaskPlan = Vec<(Vec<u8>, usize)>;

#[derive(Clone, Debug)]
pub struct Case {
    pub ifile_count: u32,
    pub codec: Codec,
    pub keep: bool,
    pub arena_chunks: u64,
    pub tasks: Vec<TaskPlan>,
    pub lines_cut_per_mille: u64,
    /// Records after which a node starts anew, in 255ths of all.
    pub restart_after: Option<u8>,
    /// Keys at which key ranges are cut.
    pub cuts: Vec<Vec<u8>>,
    pub seed: u64,
}

impl Case {
    pub fn plain() -> Self {
        Self {
            ifile_count: 2,
            codec: Codec::Lz4,
            keep: false,
            arena_chunks: 24,
            tasks: vec![(0..300u32).map(|number| (number.to_be_bytes().to_vec(), 50)).collect(); 3],
            lines_cut_per_mille: 0,
            restart_after: None,
            cuts: vec![vec![1]],
            seed: 1,
        }
    }

    pub fn config(&self, node: NodeId, disk_dir: PathBuf) -> Config {
        Config {
            job: JOB,
            node,
            layout: Layout {
                ifile_count: self.ifile_count,
                chunk_bytes: CHUNK_BYTES,
                frame_bytes: 4 << 10,
                block_bytes: 2 << 10,
                record_bytes_max: 2 * CHUNK_BYTES,
                combine_window_bytes: 0,
                split_bytes: 1 << 20,
                chunk_share_bytes: self.arena_chunks * CHUNK_BYTES,
                sort_share_bytes: CHUNK_BYTES,
                io_share_bytes: CHUNK_BYTES,
            },
            codec: self.codec,
            key_shape: KeyShape::Whole,
            disk_dirs: vec![disk_dir],
            slots: 2,
            keep: self.keep,
            elsewhere: false,
            cancelled: std::sync::Arc::new(AtomicBool::new(false)),
        }
    }

    /// Values differ from attempt to attempt, so that a mixture is seen.
    fn record(&self, source: Source, position: usize) -> (Vec<u8>, Vec<u8>) {
        let (key, value_bytes) = &self.tasks[source.map_task.0 as usize][position];
        let mut value = format!("{}/{}/{position}/", source.map_task.0, source.attempt.0).into_bytes();
        let mark = value.len();
        value.resize(mark.max(*value_bytes), 0);
        for (index, byte) in value.iter_mut().enumerate().skip(mark) {
            *byte = (index * 31 + position) as u8;
        }
        (key.clone(), value)
    }

    pub fn ifile(&self, key: &[u8]) -> IfileIndex {
        Partitioner::Hash { ifile_count: self.ifile_count }.ifile(key)
    }

    /// Returns the records that must be read of a key range: the winners' records in input order, sorted stably by key.
    pub fn expected(
        &self,
        outcome: &Outcome,
        range: (Option<&[u8]>, Option<&[u8]>),
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let inside =
            |key: &[u8]| range.0.is_none_or(|low| key >= low) && range.1.is_none_or(|high| key < high);
        let mut records = Vec::new();
        for winner in outcome.winners.values() {
            let count = self.tasks[winner.source.map_task.0 as usize].len();
            let all = (0..count).map(|position| self.record(winner.source, position));
            records.extend(all.filter(|(key, _)| inside(key)));
        }
        records.sort_by(|left, right| left.0.cmp(&right.0));
        records
    }
}

fn tasks() -> impl Strategy<Value = Vec<TaskPlan>> {
    let key = prop_oneof![
        6 => prop::collection::vec(0u8..5, 0..4),
        2 => prop::collection::vec(any::<u8>(), 0..20),
        // Keys that agree for longer than an index entry keeps.
        1 => (250usize..300, any::<u8>()).prop_map(|(bytes, last)| [vec![1; bytes], vec![last]].concat()),
    ];
    let value_bytes = prop_oneof![
        60 => 0usize..60,
        20 => 200usize..1500,
        3 => 5_000usize..9_000,
        1 => 66_000usize..80_000,
    ];
    prop::collection::vec(prop::collection::vec((key, value_bytes), 0..200), 1..6)
}

pub fn cases() -> impl Strategy<Value = Case> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)];
    let cut = prop_oneof![Just(0u64), Just(10), Just(40)];
    let restart = prop_oneof![2 => Just(None), 1 => any::<u8>().prop_map(Some)];
    let cuts = prop::collection::vec(prop::collection::vec(0u8..5, 0..3), 0..3);
    let sizes = (1u32..4, 0u64..3, prop::bool::weighted(0.3));
    (sizes, codec, tasks(), cut, restart, cuts, any::<u64>()).prop_map(
        |((ifile_count, spare, keep), codec, tasks, lines_cut_per_mille, restart_after, mut cuts, seed)| {
            cuts.sort();
            cuts.dedup();
            // Open chunks, frames on their way both ways and oversize records of all workers always fit.
            let arena_chunks = u64::from(ifile_count) + 12 + 6 * spare;
            Case {
                ifile_count,
                codec,
                keep,
                arena_chunks,
                tasks,
                lines_cut_per_mille,
                restart_after,
                cuts,
                seed,
            }
        },
    )
}

pub fn source(map_task: u32, attempt: u32) -> Source {
    Source { map_task: TaskIndex(map_task), attempt: AttemptNumber(attempt) }
}

/// A frame of one record.
pub fn frame(source: Source, sequence: u64, value: &[u8]) -> AppendFrame {
    let mut payload = Vec::new();
    encode(KeyShape::Whole, b"key", value, 3, &mut payload);
    let mut sum = DataSum::default();
    sum.add_record(payload.len() as u64, record_hash(&payload));
    let header = FrameHeader {
        ifile: IfileIndex(0),
        source,
        sequence,
        key_shape: KeyShape::Whole,
        sum,
        payload_crc32c: crc32c(&payload),
    };
    AppendFrame { header, payload: FrameBytes::on_heap(payload, None) }
}

/// Bit by bit: the tests need it once.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// An attempt that finished.
#[derive(Clone, Debug)]
pub struct Winner {
    pub source: Source,
    pub commits: Vec<SourceCommit>,
    /// Incarnations of all nodes, when it began.
    incarnations: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub winners: BTreeMap<TaskIndex, Winner>,
}

/// Runs attempts until each task has a winner whose chunks are all still there.
pub fn run(case: &Case, cluster: &Cluster) -> Outcome {
    let mut outcome = Outcome::default();
    let appended = AtomicUsize::new(0);
    let all: usize = case.tasks.iter().map(Vec::len).sum();
    let restart_at = case.restart_after.map_or(usize::MAX, |share| all * usize::from(share) / 255);
    for attempt in 0..ATTEMPTS_MAX {
        let missing: Vec<u32> = (0..case.tasks.len() as u32)
            .filter(|task| !outcome.winners.contains_key(&TaskIndex(*task)))
            .collect();
        if missing.is_empty() {
            return outcome;
        }
        let next = AtomicUsize::new(0);
        let finished = Mutex::new(&mut outcome);
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (next, finished, appended, missing) = (&next, &finished, &appended, &missing);
                scope.spawn(move || {
                    while let Some(task) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let run =
                            Attempt { case, cluster, source: source(*task, attempt), appended, restart_at };
                        if let Some(winner) = run.run(worker) {
                            finished.lock().unwrap().winners.insert(winner.source.map_task, winner);
                        }
                    }
                });
            }
        });
        let current = cluster.incarnations();
        outcome.winners.retain(|_, winner| {
            let stands = |node: NodeId| {
                let index = node.0 as usize - 1;
                winner.incarnations[index] == current[index]
            };
            winner.commits.iter().all(|commit| stands(commit.chunk.node()))
        });
    }
    panic!("some task never finished");
}

struct Attempt<'a> {
    case: &'a Case,
    cluster: &'a Cluster,
    source: Source,
    appended: &'a AtomicUsize,
    restart_at: usize,
}

impl Attempt<'_> {
    fn run(&self, here: usize) -> Option<Winner> {
        let incarnations = self.cluster.incarnations();
        // Some attempts have chunks of their own node to choose, some have not.
        let hosts: Vec<usize> =
            (0..NODES).filter(|node| self.source.map_task.0.is_multiple_of(2) || *node != here).collect();
        let service = self.cluster.service(here, self.source, &hosts);
        let mut slabs = WorkerSlabs::default();
        match self.append(&service, &mut slabs) {
            Ok(commits) => Some(Winner { source: self.source, commits, incarnations }),
            Err(AppendError::Gone(_) | AppendError::GaveUp { .. } | AppendError::Refused { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn append(
        &self,
        service: &dyn iappender::ChunkService,
        slabs: &mut WorkerSlabs,
    ) -> Result<Vec<SourceCommit>, AppendError> {
        let case = self.case;
        let mut appender = IAppender::new(service, slabs, self.source, KeyShape::Whole, case.ifile_count);
        for position in 0..case.tasks[self.source.map_task.0 as usize].len() {
            if self.appended.fetch_add(1, Ordering::Relaxed) == self.restart_at {
                self.cluster.restart(case.seed as usize % NODES);
            }
            let (key, value) = case.record(self.source, position);
            appender.append(case.ifile(&key), &key, &value, key.len())?;
        }
        Ok(appender.finish()?.commits)
    }
}
