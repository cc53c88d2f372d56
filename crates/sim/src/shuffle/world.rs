//! Simulated worlds, planted errors, and outcomes.

use std::collections::BTreeMap;

/// A cluster that runs shuffle jobs under failures. Times are nanoseconds of the simulated clock.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleWorld {
    pub seed: u64,
    /// Number of processes that host chunks and run tasks; a dead one is replaced by another at its address.
    pub nodes: u32,
    pub slots_per_node: u32,
    pub jobs: u32,
    /// Number of additional pairs of jobs: the second reads the parts of the first, which stay on the disks of nodes.
    pub flows: u32,
    /// Maximum number of map tasks of a job, and of records that each emits.
    pub maps_max: u32,
    pub records_max: u32,
    pub faults: FaultRates,
    /// Number of additional nodes that die in turn, each while reducers run and all their unread data is on two live
    /// nodes.
    pub deaths_in_turn: u32,
    /// Time of the last fault; after it every job must end by `end_ns`. With None, faults continue until `end_ns`, and
    /// jobs may be unfinished.
    pub faults_end_ns: Option<u64>,
    pub end_ns: u64,
    /// A planted error in the model, to verify that it is noticed.
    pub planted: Option<Planted>,
}

/// Failure message of an attempt that fails only through [`FaultRates::attempt_fails`].
pub const FAILED_BY_CHANCE: &str = "the machine had enough";

/// Rates of failures. Probabilities are per message or per attempt.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    pub node_deaths_per_minute: f64,
    pub server_crashes_per_minute: f64,
    /// Times per minute at which a live node becomes unreachable for some seconds.
    pub partitions_per_minute: f64,
    /// Runs, or unsorted chunks, that a disk loses while its node lives.
    pub losses_per_minute: f64,
    pub message_lost: f64,
    /// Probability that a request arrives a second time, late.
    pub message_repeated: f64,
    /// Probability that an append request breaks off in the middle.
    pub message_cut: f64,
    pub message_slow: f64,
    pub attempt_fails: f64,
    pub attempt_slow: f64,
}

impl FaultRates {
    /// Nothing fails.
    pub const NONE: Self = Self {
        node_deaths_per_minute: 0.0,
        server_crashes_per_minute: 0.0,
        partitions_per_minute: 0.0,
        losses_per_minute: 0.0,
        message_lost: 0.0,
        message_repeated: 0.0,
        message_cut: 0.0,
        message_slow: 0.0,
        attempt_fails: 0.0,
        attempt_slow: 0.0,
    };
}

impl Default for FaultRates {
    fn default() -> Self {
        Self {
            node_deaths_per_minute: 8.0,
            server_crashes_per_minute: 12.0,
            partitions_per_minute: 6.0,
            losses_per_minute: 8.0,
            message_lost: 0.03,
            message_repeated: 0.05,
            message_cut: 0.03,
            message_slow: 0.05,
            attempt_fails: 0.01,
            attempt_slow: 0.15,
        }
    }
}

impl Default for ShuffleWorld {
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 5,
            slots_per_node: 2,
            jobs: 2,
            flows: 0,
            maps_max: 9,
            records_max: 40,
            faults: FaultRates::default(),
            deaths_in_turn: 0,
            faults_end_ns: None,
            end_ns: 60_000_000_000,
            planted: None,
        }
    }
}

/// Errors that somebody could make, or made, in the modelled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// The server answers, and sends orders, before its transaction is durable.
    ReplyBeforeDurable,
    /// A reduce task uses the records of any attempt of a map task instead of the winner's.
    AttemptMixUp,
    /// A process at the address of a dead one answers for its runs: they are empty.
    StaleChunkReadAsEmpty,
    /// The commits of an attempt that replaces another one count twice.
    DoubleCommit,
    /// A node without the requested part answers that the part is empty.
    LostPartReadAsEmpty,
    /// After a restart, the store has a resting stage as finished, although a stage that reads it has yet to begin.
    RestsForNobody,
    /// A closed chunk reports a frame that it holds as refused.
    FrameInTwoChunks,
}

/// Situations that must occur from time to time; otherwise the worlds are too quiet to show anything ("sometimes"
/// assertions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    ChunkClosedUnderAppender,
    ReboundAfterFence,
    FrameRepeatedAndDropped,
    OversizeRecord,
    RequestCutOff,
    AppendGivenUp,
    StaleChunkRefused,
    StaleRunRefused,
    AttemptLostTheRace,
    LateResultDiscarded,
    LostBeforeSeal,
    LostAfterSeal,
    StoodInForLost,
    StandInStale,
    StandInDiffers,
    ReduceStoodThroughLoss,
    ReplicaStands,
    ReplicaReadInstead,
    OnTwoAgain,
    RunsMerged,
    IfileCutInRanges,
    ServerDiedBeforeItsWrite,
    ServerDiedBetweenWriteAndReply,
    NodeTakenForDeadLived,
    /// An answer with orders was lost, so that they are sent again.
    OrderRepeated,
    CommitRanTwice,
    UnsyncedLost,
    /// A map attempt of a later stage read a part from its replica.
    PartReadFromReplica,
    PartMadeAgain,
    ReaderWaited,
    NodeLostUnderReader,
}

impl Situation {
    /// Situations that occur in worlds with flows.
    pub const OF_FLOWS: [Self; 4] =
        [Self::PartReadFromReplica, Self::PartMadeAgain, Self::ReaderWaited, Self::NodeLostUnderReader];
    /// Situations that occur in all worlds.
    pub const ALL: [Self; 27] = [
        Self::ChunkClosedUnderAppender,
        Self::ReboundAfterFence,
        Self::FrameRepeatedAndDropped,
        Self::OversizeRecord,
        Self::RequestCutOff,
        Self::AppendGivenUp,
        Self::StaleChunkRefused,
        Self::StaleRunRefused,
        Self::AttemptLostTheRace,
        Self::LateResultDiscarded,
        Self::LostBeforeSeal,
        Self::LostAfterSeal,
        Self::StoodInForLost,
        Self::StandInStale,
        Self::StandInDiffers,
        Self::ReduceStoodThroughLoss,
        Self::ReplicaStands,
        Self::ReplicaReadInstead,
        Self::OnTwoAgain,
        Self::RunsMerged,
        Self::IfileCutInRanges,
        Self::ServerDiedBeforeItsWrite,
        Self::ServerDiedBetweenWriteAndReply,
        Self::NodeTakenForDeadLived,
        Self::OrderRepeated,
        Self::CommitRanTwice,
        Self::UnsyncedLost,
    ];
}

/// Counts of the situations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sometimes(BTreeMap<Situation, u64>);

impl Sometimes {
    pub(crate) fn saw(&mut self, situation: Situation) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// Returns the number of times that a situation occurred.
    pub fn count(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or(0)
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        for (situation, count) in &other.0 {
            *self.0.entry(*situation).or_default() += count;
        }
    }
}

/// Outcome of a world in which nothing went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShuffleOutcome {
    pub succeeded: u32,
    /// Number of jobs that failed because nodes failed a task too often.
    pub failed: u32,
    pub failures: Vec<String>,
    /// Number of jobs that were unfinished at the end of a world with endless faults.
    pub unfinished: u32,
    pub records: u64,
    pub attempts: u64,
    pub died_in_turn: u32,
    pub ended_ns: u64,
    pub sometimes: Sometimes,
}

/// A violated guarantee, which no fault excuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at_ns: u64,
    pub what: String,
}
