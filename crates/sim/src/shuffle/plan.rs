//! The jobs of a world, and their records.

use super::world::ShuffleWorld;
use api::{FlowStage, JobSpec, Layout, RecordFormat, Replication, Segment, Split};
use fastrand::Rng;
use ids::{IfileIndex, JobId, StageIndex, TaskIndex};
use std::collections::BTreeSet;

/// Size of a frame, equal to the smallest slab; a few records fill it.
const FRAME_BYTES: u64 = 4 << 10;
const CHUNK_BYTES: u64 = 5 * FRAME_BYTES;
const RECORD_BYTES: usize = 900;
const OVERSIZE_BYTES: usize = CHUNK_BYTES as usize + 100;
/// So low that some I-files need merges before the reduce.
const SORT_SHARE_BYTES: u64 = 10 << 10;
const BLOCK_BYTES: u64 = 1 << 10;
/// Assumed bytes of a record of a part when splits are made, so that a split has few records.
pub(crate) const PART_RECORD_BYTES: u32 = 256 << 10;
/// Least memory for which sizes are derived; it determines the splits, and all other sizes are those above.
const MEMORY_BYTES: u64 = 64 << 20;

/// The stages of a job, by number.
pub(crate) const MAP: StageIndex = StageIndex(0);
pub(crate) const MERGE: StageIndex = StageIndex(2);
pub(crate) const REDUCE: StageIndex = StageIndex(3);
pub(crate) const COMMIT: StageIndex = StageIndex(4);
/// Suffix of the name of a job whose attempts are not deterministic.
pub(crate) const OTHER_DATA: &str = " (other data each time)";

/// First number of second stages, so that their keys differ from those of first stages.
const SECOND_STAGES: u32 = 1000;

/// A job to be submitted.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    /// Number of the job among those of the world.
    pub index: u32,
    pub ifiles: u32,
    /// Records of each map task.
    pub maps: Vec<u32>,
    /// True if each attempt of a map gives its records other keys.
    pub gives_other_data: bool,
    pub replicates: bool,
    /// True if another job reads its parts, which are not published.
    pub feeds: bool,
    /// Job whose parts it reads; `maps` equals that of the other job.
    pub reads: Option<JobId>,
    pub hands_in_at_ns: u64,
}

/// A record that a map task emits at the position `sequence`.
pub(crate) struct PlannedRecord {
    pub ifile: IfileIndex,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// (map task, sequence) of a record that the output must hold once.
pub(crate) type RecordName = (u32, u32);

impl JobPlan {
    pub fn all(world: &ShuffleWorld, random: &mut Rng) -> Vec<Self> {
        let job = |index| Self {
            index,
            ifiles: random.u32(1..=4),
            maps: (0..random.u32(1..=world.maps_max)).map(|_| random.u32(0..=world.records_max)).collect(),
            gives_other_data: random.u32(0..5) == 0,
            replicates: random.bool(),
            feeds: false,
            reads: None,
            hands_in_at_ns: random.u64(1..3_000_000_000),
        };
        (0..world.jobs).map(job).collect()
    }

    /// Makes the two stages of each flow. The second gets the number of the first when they are submitted.
    pub fn flows(world: &ShuffleWorld, random: &mut Rng) -> Vec<(Self, Self)> {
        let flow = |index| {
            let maps: Vec<u32> =
                (0..random.u32(1..=world.maps_max)).map(|_| random.u32(0..=world.records_max)).collect();
            let first = Self {
                index,
                ifiles: random.u32(1..=4),
                maps: maps.clone(),
                // Recomputed parts must be the same, because readers may have read some of them.
                gives_other_data: false,
                replicates: random.bool(),
                feeds: true,
                reads: None,
                hands_in_at_ns: random.u64(1..3_000_000_000),
            };
            let second = Self {
                index: SECOND_STAGES + index,
                ifiles: random.u32(1..=4),
                gives_other_data: random.u32(0..5) == 0,
                replicates: random.bool(),
                feeds: false,
                ..first.clone()
            };
            (first, second)
        };
        (world.jobs..world.jobs + world.flows).map(flow).collect()
    }

    /// Returns whether it is a stage of a flow.
    pub fn is_stage(&self) -> bool {
        self.feeds || self.reads.is_some()
    }

    pub fn layout(&self) -> Layout {
        Layout {
            ifile_count: self.ifiles,
            chunk_bytes: CHUNK_BYTES,
            frame_bytes: FRAME_BYTES,
            block_bytes: BLOCK_BYTES,
            record_bytes_max: 1 << 20,
            combine_window_bytes: 0,
            split_bytes: 1,
            chunk_share_bytes: 1 << 30,
            sort_share_bytes: SORT_SHARE_BYTES,
            io_share_bytes: 1 << 20,
        }
    }

    /// Makes the specification of the job with this number.
    pub fn spec(&self, job: JobId) -> JobSpec {
        let stage = FlowStage {
            flow: self.reads.unwrap_or(job),
            name: format!("stage {}", self.index),
            reads: self.reads.into_iter().collect(),
            named_inputs: 0,
            feeds: self.feeds,
        };
        let mut spec = JobSpec {
            slots: 2,
            sync: true,
            layout: self.layout(),
            memory_bytes: MEMORY_BYTES,
            max_regenerations: u32::MAX,
            stage: self.is_stage().then_some(stage),
            replication: if self.replicates { Replication::Rack } else { Replication::None },
            elastic: false,
            output: format!("/job {}", self.index).into(),
            ..JobSpec::named(format!(
                "job {}{}",
                self.index,
                if self.gives_other_data { OTHER_DATA } else { "" }
            ))
        };
        spec.formats.input = RecordFormat::Fixed { record_bytes: PART_RECORD_BYTES, key_bytes: 1 };
        spec
    }

    pub fn splits(&self) -> Vec<Split> {
        // The splits of a stage that reads another one are made when that one is done.
        let maps = if self.reads.is_some() { &[][..] } else { &self.maps };
        let split =
            |_: &u32| Split { segments: vec![Segment { file_index: 0, offset_bytes: 0, length_bytes: 1 }] };
        maps.iter().map(split).collect()
    }

    /// Returns the records of a map attempt, in order.
    pub fn records(&self, task: TaskIndex, attempt: u32) -> Vec<PlannedRecord> {
        let count = self.maps.get(task.0 as usize).copied().unwrap_or(0);
        let salt = if self.gives_other_data { attempt } else { 0 };
        (0..count).map(|sequence| self.record(task.0, sequence, salt)).collect()
    }

    /// Returns the records that a map attempt makes of records that it has read.
    pub fn records_of(&self, names: &[RecordName], attempt: u32) -> Vec<PlannedRecord> {
        let salt = if self.gives_other_data { attempt } else { 0 };
        names.iter().map(|(task, sequence)| self.record(*task, *sequence, salt)).collect()
    }

    fn record(&self, task: u32, sequence: u32, salt: u32) -> PlannedRecord {
        let mixed = Rng::with_seed(
            u64::from(self.index) << 48 ^ u64::from(salt) << 40 ^ u64::from(task) << 20 ^ u64::from(sequence),
        )
        .u64(..);
        let ifile = IfileIndex((mixed % u64::from(self.ifiles)) as u32);
        // Few distinct keys, so that most come from several maps.
        let key = format!("{:03}", mixed >> 32 & 0x3f).into_bytes();
        let mut value = [task.to_be_bytes(), sequence.to_be_bytes()].concat();
        value.resize(if mixed >> 56 < 2 { OVERSIZE_BYTES } else { RECORD_BYTES }, 0);
        PlannedRecord { ifile, key, value }
    }

    /// Returns the name of the record with this value.
    pub fn name_of(value: &[u8]) -> RecordName {
        let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|index| value[at + index]));
        (number(0), number(4))
    }

    /// Returns the problem of an output; None if the output holds each record once.
    pub fn problem_of(&self, output: &[RecordName]) -> Option<String> {
        let mut missing: BTreeSet<RecordName> = BTreeSet::new();
        for (task, count) in self.maps.iter().enumerate() {
            missing.extend((0..*count).map(|sequence| (task as u32, sequence)));
        }
        let expected = missing.len();
        let doubled: Vec<&RecordName> = output.iter().filter(|name| !missing.remove(name)).collect();
        if missing.is_empty() && doubled.is_empty() {
            return None;
        }
        let first = missing.first();
        Some(format!(
            "of {expected} records {} are missing (first {first:?}), and {} are there twice (first {:?})",
            missing.len(),
            doubled.len(),
            doubled.first()
        ))
    }
}
