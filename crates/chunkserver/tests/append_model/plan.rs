//! Generated plan of a test: map tasks, their records, the attempts that die, the order of steps.

use api::{Codec, Layout};
use iappender::Partitioner;
use ids::{AttemptNumber, IfileIndex, TaskIndex};
use ifile::KeyShape;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub const CHUNK_BYTES: u64 = 64 << 10;
pub const FRAME_BYTES: u64 = 4 << 10;
/// Bytes of the partition key where keys have a sort part behind it.
pub const PREFIX_BYTES: usize = 2;

#[derive(Clone, Debug)]
pub struct Case {
    pub ifile_count: u32,
    /// Memory for frames and runs, in chunks.
    pub arena_chunks: u64,
    pub sorters: u32,
    pub disks: usize,
    pub keep: bool,
    pub codec: Codec,
    pub prefix_keys: bool,
    /// A key goes to another I-file in another map task, as with newer range boundaries.
    pub wandering_keys: bool,
    pub tasks: Vec<TaskPlan>,
    /// (worker, records) of each step; afterwards the workers take turns.
    pub steps: Vec<(usize, usize)>,
    pub workers: usize,
    pub answers_lost_per_mille: u64,
    pub seed: u64,
    /// Runs merged at a time before reading; 0 for none.
    pub merge_width: usize,
    pub read_ahead_bytes: usize,
    /// Cuts between key ranges, as indexes into the sorted records.
    pub cuts: Vec<prop::sample::Index>,
}

#[derive(Clone, Debug)]
pub struct TaskPlan {
    pub records: Vec<RecordPlan>,
    /// For each attempt the share of the records, in 255ths, after which it is killed; 255 lets it finish.
    pub attempts: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct RecordPlan {
    pub key: Vec<u8>,
    pub value_bytes: usize,
}

/// A record as an attempt puts it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Case {
    pub fn layout(&self) -> Layout {
        Layout {
            ifile_count: self.ifile_count,
            chunk_bytes: CHUNK_BYTES,
            frame_bytes: FRAME_BYTES,
            block_bytes: 2 << 10,
            record_bytes_max: 2 * CHUNK_BYTES,
            combine_window_bytes: 0,
            split_bytes: 1 << 20,
            chunk_share_bytes: self.arena_chunks * CHUNK_BYTES,
            sort_share_bytes: u64::from(self.sorters) * CHUNK_BYTES,
            io_share_bytes: CHUNK_BYTES,
        }
    }

    pub fn key_shape(&self) -> KeyShape {
        if self.prefix_keys { KeyShape::Prefix } else { KeyShape::Whole }
    }

    pub fn partition_key_bytes(&self, key: &[u8]) -> usize {
        if self.prefix_keys { PREFIX_BYTES } else { key.len() }
    }

    /// The I-file of a key in a map task.
    pub fn ifile(&self, task: TaskIndex, key: &[u8]) -> IfileIndex {
        let partitioner = Partitioner::Hash { ifile_count: self.ifile_count };
        let ifile = partitioner.ifile(&key[..self.partition_key_bytes(key)]);
        let moved = if self.wandering_keys { task.0 } else { 0 };
        IfileIndex((ifile.0 + moved) % self.ifile_count)
    }

    /// Returns a record as an attempt puts it out. The values differ from attempt to attempt, so that a mixture is
    /// seen.
    pub fn pair(&self, task: TaskIndex, attempt: AttemptNumber, position: usize) -> Pair {
        let plan = &self.tasks[task.0 as usize].records[position];
        let mut value = format!("{}/{}/{position}/", task.0, attempt.0).into_bytes();
        let mark = value.len();
        value.resize(plan.value_bytes, 0);
        for (index, byte) in value.iter_mut().enumerate().skip(mark) {
            *byte = (index * 31 + position) as u8;
        }
        Pair { key: plan.key.clone(), value }
    }
}

fn value_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => Just(0usize),
        60 => 1usize..60,
        25 => 200usize..1500,
        // Larger than a frame, and than a chunk.
        6 => 5_000usize..9_000,
        1 => 66_000usize..80_000,
    ]
}

fn key(prefix_keys: bool) -> BoxedStrategy<Vec<u8>> {
    if prefix_keys {
        let group = prop::collection::vec(0u8..4, PREFIX_BYTES);
        let sort = prop::collection::vec(any::<u8>(), 0..3);
        return (group, sort).prop_map(|(group, sort)| [group, sort].concat()).boxed();
    }
    prop_oneof![
        8 => prop::collection::vec(0u8..4, 0..5),
        2 => prop::collection::vec(any::<u8>(), 0..20),
        // Keys that agree for longer than an index entry keeps.
        1 => (250usize..300, any::<u8>()).prop_map(|(bytes, last)| [vec![1; bytes], vec![last]].concat()),
    ]
    .boxed()
}

fn task(prefix_keys: bool) -> impl Strategy<Value = TaskPlan> {
    let record =
        (key(prefix_keys), value_bytes()).prop_map(|(key, value_bytes)| RecordPlan { key, value_bytes });
    let attempt = prop_oneof![2 => any::<u8>(), 3 => Just(255u8)];
    (prop::collection::vec(record, 0..120), prop::collection::vec(attempt, 1..4))
        .prop_map(|(records, attempts)| TaskPlan { records, attempts })
}

/// Schedules of up to eight map tasks.
pub fn cases() -> impl Strategy<Value = Case> {
    any::<bool>().prop_flat_map(|prefix_keys| {
        let sizes = (1u32..4, 1u32..3, 1usize..3, prop::bool::weighted(0.2));
        let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)];
        let schedule = (prop::collection::vec((any::<usize>(), 0usize..60), 0..60), 1usize..5);
        let faults = (prop_oneof![Just(0u64), Just(20), Just(150), Just(450)], any::<u64>());
        let reading = (
            prop_oneof![Just(0usize), 2usize..5],
            prop_oneof![Just(1usize), Just(4096), Just(1 << 20)],
            prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        );
        let tasks = prop::collection::vec(task(prefix_keys), 1..8);
        (sizes, 0u64..3, codec, any::<bool>(), tasks, schedule, faults, reading).prop_map(
            move |(sizes, spare_chunks, codec, wandering_keys, tasks, schedule, faults, reading)| Case {
                ifile_count: sizes.0,
                // Open chunks, frames in flight and one oversize record always fit.
                arena_chunks: u64::from(sizes.0) + 4 + 3 * spare_chunks,
                sorters: sizes.1,
                disks: sizes.2,
                keep: sizes.3,
                codec,
                prefix_keys,
                wandering_keys,
                tasks,
                steps: schedule.0,
                workers: schedule.1,
                answers_lost_per_mille: faults.0,
                seed: faults.1,
                merge_width: reading.0,
                read_ahead_bytes: reading.1,
                cuts: reading.2,
            },
        )
    })
}

/// A case made from a number alone.
pub fn case_from_seed(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    cases().new_tree(&mut runner).expect("no strategy here rejects").current()
}
