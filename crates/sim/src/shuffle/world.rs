//! Simulated worlds, planted errors, and outcomes.

use std::collections::BTreeMap;

/// A cluster that runs shuffle jobs while things fail. Times are nanoseconds of the simulated clock.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleWorld {
    pub seed: u64,
    /// Processes that host chunks and run tasks; one that dies is followed by another at its address.
    pub nodes: u32,
    pub slots_per_node: u32,
    pub jobs: u32,
    /// Pairs of jobs besides: the second reads the parts of the first, which rest on the disks of nodes.
    pub flows: u32,
    /// Map tasks of a job at most, and records that each puts out at most.
    pub maps_max: u32,
    pub records_max: u32,
    pub faults: FaultRates,
    /// So many nodes die in turn besides, each while reducers run and all that they have yet to read lies on two nodes that live.
    pub deaths_in_turn: u32,
    /// None: faults go on until `end_ns`, and jobs may be unfinished then. Some: nothing fails from that moment on, and every job
    /// must have ended by `end_ns`.
    pub faults_end_ns: Option<u64>,
    pub end_ns: u64,
    /// An error in what is modelled, to see that it is noticed.
    pub planted: Option<Planted>,
}

/// Failure message of an attempt that fails by [`FaultRates::attempt_fails`] alone.
pub const FAILED_BY_CHANCE: &str = "the machine had enough";

/// How often things fail. Chances are per message or per attempt.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    pub node_deaths_per_minute: f64,
    pub server_crashes_per_minute: f64,
    /// Moments at which a node cannot be reached for some seconds, though it lives.
    pub partitions_per_minute: f64,
    /// Runs, or chunks before they are runs, that their disk loses while their node lives.
    pub losses_per_minute: f64,
    pub message_lost: f64,
    /// A request that arrives a second time, late.
    pub message_repeated: f64,
    /// An append request that breaks off in the middle.
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

/// Errors that somebody could make, or made, in what is modelled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// The server answers, and sends orders, before its transaction is on the disk.
    ReplyBeforeDurable,
    /// A reduce task takes the records of any attempt of a map task for those of the winner.
    AttemptMixUp,
    /// A process at the address of one that died answers for its runs: there is nothing in them.
    StaleChunkReadAsEmpty,
    /// The commits of an attempt that repeats another one count twice.
    DoubleCommit,
    /// A node that has not the part which is asked for says that there is nothing in it.
    LostPartReadAsEmpty,
    /// The store has a resting stage as over when the server starts again, though a stage that reads it has yet to begin.
    RestsForNobody,
    /// A chunk that closed says of a frame that it holds that the frame must go elsewhere.
    FrameInTwoChunks,
}

/// Situations that must come up now and then, or the worlds are too quiet to show anything ("sometimes" assertions).
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
    /// Situations that come up where there are flows.
    pub const OF_FLOWS: [Self; 4] =
        [Self::PartReadFromReplica, Self::PartMadeAgain, Self::ReaderWaited, Self::NodeLostUnderReader];
    /// Situations that come up in all worlds.
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

/// How often each was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sometimes(BTreeMap<Situation, u64>);

impl Sometimes {
    pub(crate) fn saw(&mut self, situation: Situation) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// How often a situation came up.
    pub fn count(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or(0)
    }

    /// Adds what another world has seen.
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
    /// Jobs that failed, and why: nodes failed a task too often.
    pub failed: u32,
    pub failures: Vec<String>,
    /// Faults had no end, and the world had.
    pub unfinished: u32,
    pub records: u64,
    pub attempts: u64,
    pub died_in_turn: u32,
    pub ended_ns: u64,
    pub sometimes: Sometimes,
}

/// A broken promise, which no fault excuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at_ns: u64,
    pub what: String,
}
