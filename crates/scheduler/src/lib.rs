//! # What it does
//! Decides which attempt runs where and when: a state machine over jobs, their stages and tasks. Beside it stand two
//! decisions for whole stages: [`place`] chooses a node for each task ([`plan`] for the queues), [`fetch_trees`] the ways of a shared input.
//!
//! # Where it sits
//! events from the server -> scheduler -> actions for the server.
//!
//! # Invariants
//! Pure: (state, outbox, now, event) and nothing else, so every history can be replayed. The first success of a task
//! wins. Every start that it orders is answered by exactly one end. A finished job leaves the state when its last
//! attempt has ended, which is reported once. A slot runs an attempt, is taken by an attempt of its node besides the
//! attempt's own, or waits; no attempt waits in a slot for another stage, so no reduce holds one while maps run.
//! [`sanity_check`] holds after every event.
//!
//! # Deliberately absent
//! It never looks inside a task, does not know chunks, and keeps nothing of a finished job.
//!
//! # How it is tested
//! Unit tests with a recording outbox that must be empty at the end, a property test of random events in
//! `tests/`, and [`sanity_check`] after each event in both. [`place`] is compared with brute force, and in large worlds
//! with a best matching (`crates/sim/tests/world.rs`).

mod check;
mod claims;
mod dispatch;
mod elastic;
mod locality;
mod losses;
mod memory;
mod node_exclusion;
mod reactor;
mod ready;
mod recovery;
mod slots;
mod speculation;
mod speculative_attempts;
mod state;

pub use check::sanity_check;
pub use elastic::{ASKED_AGAIN_AFTER_NS, SPLIT_AFTER_NS, SPLIT_LEFT_NS_MIN};
use ids::{Placement, StageKind};
pub use locality::{
    Fetch, FetchTree, InputPlace, NodeOfRack, NodeRoom, PlacedTask, Proximity, Reach, SERVES_MAX,
    fetch_trees, place, plan,
};
pub use memory::{Amount, Amounts, MEMORY_PATIENCE_NS, RESOURCE_KINDS_MAX, left_out, wait_of};
pub use reactor::handle;
pub use slots::held::{has_idle_room, live_attempt, wants_slots};
pub use speculation::{
    COMPARED_MIN, JUDGED_AFTER_NS, Label, NO_PROGRESS_NS, NO_PROGRESS_TIMES, SpeculationFigures, Waits,
    WhyLeft,
};
pub use speculative_attempts::{COPIES_MIN, COPIES_PER_TASK, SLOW_NODE_NS, WASTE_PER_TASK_TIME};
pub use state::{StageCounts, State, has_jobs, stage_counts};

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, TaskIndex, TaskKey};

/// Number of failures of one task that make the job fail, if they count as the user's. Default for all jobs.
pub const FAILURES_MAX: u32 = 3;

/// Time for which a job does not use slots far from the data of its tasks, waiting for a nearer one (delay scheduling,
/// Zaharia et al., EuroSys 2010). Counted from its last start near its data.
pub const LOCALITY_DELAY_NS: u64 = 500_000_000;

/// Time without service after which a job counts as one priority higher, repeatedly, up to the highest priority
/// present: urgent jobs go first, but none waits forever.
pub const AGING_NS: u64 = 60_000_000_000;

/// Nanoseconds since 1970, given by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(pub u64);

/// Room for a pipeline on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub node: NodeId,
    /// Counts from 0 within the node.
    pub slot: u32,
}

/// A task of a recovered job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredTask {
    pub placement: Placement,
    /// Number of the next attempt.
    pub attempts_started: u32,
    pub failures: u32,
    pub winner: Option<AttemptNumber>,
}

/// The reason why an attempt runs in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    pub place: WhyHere,
    /// Nanoseconds since its job was last served, or was submitted.
    pub waited_ns: u64,
    /// Number of slots that asked for work, this one included.
    pub slots_free: u32,
    /// Number of slots that running attempts of its user took before it.
    pub user_running: u32,
    /// Number of levels that its job had risen because it waited.
    pub levels_risen: u32,
}

/// The reason for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyHere {
    /// Any node would do; its slot was the first to ask.
    Any,
    /// Only this node has the data of the task.
    OnlyHere,
    NearData,
    /// No slot near its data had asked for [`LOCALITY_DELAY_NS`], or for the wait of the task.
    NoNearerSlot,
    /// A speculative attempt: another attempt of the task is slow on another node.
    BesideSlow,
    /// A retry: the task failed because of its previous node.
    NotWhereItFailed,
}

/// User and urgency of a job. Jobs of the highest priority go first; among these the user whose running attempts take
/// the fewest slots (among equals, the user who was not served for longest), and of this user the oldest job. Steps of a
/// job are as old as this job; among these the step with the highest rank goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Number of the user, unique among users.
    pub user: u64,
    pub priority: i32,
    pub needs: Needs,
    /// None for a job that is no step of another one.
    pub step: Option<StepRank>,
}

/// Place of a step among the steps of its job. It counts only there: no other job waits longer because of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRank {
    /// The job of which it is a step.
    pub of: JobId,
    /// The highest goes first; among equals, the step that began first.
    pub rank: u64,
}

/// Node resources that a job needs, besides a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    /// Bytes of a node's memory for buffers of jobs.
    pub memory_bytes: u64,
    /// Number of the architecture; None accepts any.
    pub architecture: Option<u32>,
    /// True if the job holds its memory on every node from its first start to its end, because its data may be on each;
    /// otherwise it holds the memory only on the node of a running attempt. Excludes an architecture, and slots beside.
    pub everywhere: bool,
    /// Number of slots of the node that it takes besides its own, while an attempt runs.
    pub slots_beside: u32,
    /// Generic resources of the node that it takes while an attempt runs. Excludes memory on every node.
    pub resources: Amounts,
}

impl Needs {
    /// Returns whether any node with a free slot will do.
    pub fn is_nothing(&self) -> bool {
        self.memory_bytes == 0
            && self.architecture.is_none()
            && self.slots_beside == 0
            && self.resources.is_none()
    }

    /// Returns whether an attempt takes memory or generic resources of its own node, which later attempts may miss.
    pub(crate) fn takes_amounts(&self) -> bool {
        !self.everywhere && (self.memory_bytes > 0 || !self.resources.is_none())
    }

    /// Returns the number of slots that an attempt takes, its own included.
    pub(crate) fn slots(&self) -> u32 {
        self.slots_beside.saturating_add(1)
    }

    /// Returns whether the resources of each node decide which one may run an attempt.
    pub(crate) fn picks_nodes(&self) -> bool {
        !self.everywhere && !self.is_nothing()
    }

    /// Returns whether an attempt takes several slots.
    pub(crate) fn is_wide(&self) -> bool {
        self.slots_beside > 0
    }
}

/// The reason why no attempt of a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub needs: Needs,
    /// Number of working nodes.
    pub nodes: u32,
    /// Number of these nodes that could run it if no other job ran.
    pub nodes_large_enough: u32,
    /// Memory that jobs hold on all nodes, per node; and the number of these jobs.
    pub held_bytes: u64,
    pub jobs_with_memory: u32,
    /// Number of older jobs that wait for admission.
    pub before: u32,
}

/// Event for the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job arrived; its stages run one after the other. Ids are never used twice.
    JobSubmitted {
        job: JobId,
        claim: Claim,
        stages: Vec<StageKind>,
        /// Number of failures of one task that make the job fail; at least 1.
        failures_max: u32,
    },
    /// A job of a previous server, with its state. All expanded stages except the last are complete.
    JobRecovered {
        job: JobId,
        claim: Claim,
        stages: Vec<StageKind>,
        failures_max: u32,
        /// The tasks of each expanded stage; at least those of the first.
        tasks: Vec<Vec<RecoveredTask>>,
        /// Running attempts of the last expanded stage, as far as known.
        running: Vec<(AttemptKey, Slot)>,
        /// Attempt numbers that stages have used, including those of dropped tasks.
        attempts_used: Vec<(StageIndex, u32)>,
        /// Winners of finished tasks in stages that are not expanded.
        standing: Vec<(StageIndex, TaskIndex, AttemptNumber)>,
    },
    /// Allows speculative attempts for the tasks of these stages of a job. Follows the submit; without it there are
    /// none.
    MayCopy {
        job: JobId,
        stages: Vec<StageIndex>,
    },
    /// Allows splits of running attempts of this stage: the unread end of a range may become a separate task for an
    /// idle slot. Follows the submit; without it there are none.
    MaySplit {
        job: JobId,
        stage: StageIndex,
    },
    /// An attempt gave up the end of its range, as ordered by [`Action::SplitTask`]: its stage has one more task. Other
    /// attempts of the split task, which have the whole range, are told to stop.
    TaskAdded {
        of: AttemptKey,
        placement: Placement,
    },
    /// Progress of an attempt: finished units, all units of its task, and its time by cause, since its start. Units are
    /// bytes, or anything that all tasks of the stage count in the same way.
    Progress {
        attempt: AttemptKey,
        done: u64,
        /// 0 if unknown.
        total: u64,
        /// None if unknown or unchanged.
        waits: Option<Waits>,
    },
    /// The answer to [`Action::ExpandStage`].
    StageExpanded {
        job: JobId,
        stage: StageIndex,
        /// A placement for each task.
        tasks: Vec<Placement>,
    },
    /// The other answer to [`Action::ExpandStage`]: the stage cannot run and the job must fail. Also sent later if the
    /// input of its tasks is lost permanently.
    StageRefused {
        job: JobId,
        stage: StageIndex,
    },
    /// The tasks of the last requested stage will come later, perhaps much later: other jobs may use the memory
    /// meanwhile. If earlier stages must run again before that ([`Event::StageSentBack`]), the job takes the memory
    /// back at once, because other jobs wait for it.
    JobRests {
        job: JobId,
    },
    /// The third answer to [`Action::ExpandStage`]: the results of an earlier stage are wrong. The effect is that of
    /// [`Event::ResultsLost`] for that stage.
    StageSentBack {
        job: JobId,
        stage: StageIndex,
        /// The stage that runs again.
        to: StageIndex,
        tasks: Vec<TaskIndex>,
        retained: Option<RetainedStage>,
    },
    /// A node has joined; sent before its slots ask. Its resources are compared with the needs of jobs. A node without
    /// declared resources matches any request.
    NodeCame {
        node: NodeId,
        memory_bytes: u64,
        architecture: u32,
        /// Number of its slots.
        slots: u32,
        /// Generic resources that it declares.
        resources: Amounts,
    },
    /// A slot asks for work. It asks again after each attempt. A slot that an attempt has taken besides its own gets no
    /// order and may go on asking; it gets none until the attempt ends.
    SlotFree {
        slot: Slot,
    },
    /// A node has these places in which an attempt may wait for a slot; their numbers differ from those of slots. The
    /// event is repeated with each poll of the node, or each request of its threads in this process. Places get only
    /// tasks that are the only one of their job, and only if no slot asks: such a task is a program, there may be very
    /// many of them, and each may end sooner than the next one could be fetched. Ignored while attempts on the node have
    /// taken slots besides their own.
    PlacesFree {
        node: NodeId,
        places: Vec<u32>,
    },
    /// A slot no longer asks.
    SlotGone {
        slot: Slot,
    },
    /// All slots and places of a node stop asking. They do so together, because a change of one slot gives work to the
    /// others.
    SlotsGone {
        node: NodeId,
    },
    AttemptSucceeded {
        attempt: AttemptKey,
    },
    AttemptFailed {
        attempt: AttemptKey,
        retryable: bool,
        /// True if the node may be the cause: the task is retried on another node if there is one.
        of_node: bool,
    },
    /// An attempt was lost: its outcome is unknown. The task runs again, and this does not count as a failure. If the
    /// lost attempt succeeds after all, it wins or loses like any other.
    AttemptLost {
        attempt: AttemptKey,
    },
    /// A node is being drained, or cannot write: from now on its slots get only tasks that can run on no other node.
    NodeDraining {
        node: NodeId,
    },
    /// A node gets any tasks again.
    NodeResumes {
        node: NodeId,
    },
    /// A node is lost: its slots no longer ask, its attempts are lost.
    NodeLost {
        node: NodeId,
    },
    /// Results of a stage that is complete, or runs, are lost: these tasks run again, and all later stages are created
    /// anew. Running attempts of later stages will be discarded; attempt numbers continue.
    ResultsLost {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<TaskIndex>,
        retained: Option<RetainedStage>,
    },
    /// New placements for tasks that are not waiting now, for their next run. Sent before the event that lets them run
    /// again.
    TasksMoved {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<(TaskIndex, Placement)>,
    },
    /// New placements for tasks of the current stage, whether they wait or not, because nodes or inputs have moved. Waits
    /// go on.
    TasksPlaced {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<(TaskIndex, Placement)>,
    },
    /// Time has passed: slots that were reserved for a task nearby may be given to other tasks.
    Tick,
    /// From now on no attempt of a job starts; those that run go on.
    JobHeld {
        job: JobId,
    },
    /// The running attempts of a held job must stop. Their tasks wait again, and this does not count as a failure.
    AttemptsStopped {
        job: JobId,
    },
    /// Attempts of a held job start again.
    JobReleased {
        job: JobId,
    },
    /// The job is to be cancelled.
    JobCancelled {
        job: JobId,
    },
}

/// A later stage whose finished tasks stay valid and whose attempts keep running; it will have the same tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedStage {
    pub stage: StageIndex,
    /// Tasks whose attempts must stop, because they read lost data.
    pub stops: Vec<TaskIndex>,
    /// Finished tasks that run again nevertheless.
    pub redo: Vec<TaskIndex>,
}

/// Action for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find the tasks of a stage and answer with [`Event::StageExpanded`] or [`Event::StageRefused`].
    ExpandStage {
        job: JobId,
        stage: StageIndex,
    },
    /// The reason for the placement of the next started attempt. Omitted for the only task of a stage that may run
    /// anywhere: there is little to say, and there may be very many such tasks.
    Placed {
        attempt: AttemptKey,
        why: Why,
    },
    StartAttempt {
        attempt: AttemptKey,
        slot: Slot,
    },
    /// The attempt is the winner of its task.
    TaskDone {
        attempt: AttemptKey,
    },
    /// The attempt succeeded too late: its task has a winner, or its job is over.
    AttemptDiscarded {
        attempt: AttemptKey,
    },
    /// The task of this attempt has a winner: stop the attempt. Its end is still reported.
    StopAttempt {
        attempt: AttemptKey,
        slot: Slot,
    },
    /// The next started attempt is a speculative one beside a slow attempt.
    Speculated {
        attempt: AttemptKey,
        of: AttemptKey,
        label: Label,
        inputs: SpeculationFigures,
    },
    /// An attempt is slow and gets no speculative attempt for now. Sent once per label.
    SlowTask {
        attempt: AttemptKey,
        label: Label,
        left: WhyLeft,
        inputs: SpeculationFigures,
    },
    /// Slots are idle: ask this attempt to give up the unread end of its range. It may refuse; nothing follows in this
    /// case.
    SplitTask {
        attempt: AttemptKey,
        slot: Slot,
        /// Units of its data that were done at its last report.
        done: u64,
    },
    /// The task runs again.
    TaskRetried {
        task: TaskKey,
    },
    /// The job failed. Running attempts must be told to stop.
    JobFailed {
        job: JobId,
        because: FailureCause,
    },
    JobSucceeded {
        job: JobId,
    },
    /// The job was cancelled and has stopped.
    JobCancelled {
        job: JobId,
    },
    /// The job is over and none of its attempts runs: its files may be removed. Sent once per job, after one of the
    /// three above; nothing follows for the job.
    JobDrained {
        job: JobId,
    },
}

/// Reason why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    Attempt(AttemptKey),
    /// The tasks of this stage could not be created.
    Stage(StageIndex),
}

/// A receiver of actions in order. The server executes them, tests record them.
pub trait Outbox {
    fn push(&mut self, action: Action);
}

impl Outbox for std::collections::VecDeque<Action> {
    fn push(&mut self, action: Action) {
        self.push_back(action);
    }
}
