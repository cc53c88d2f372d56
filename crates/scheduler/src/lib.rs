//! # What it does
//! Decides which attempt runs where and when: a state machine over jobs, their stages and tasks.
//!
//! # Where it sits
//! events from the server -> scheduler -> actions for the server.
//!
//! # Invariants
//! Pure: (state, outbox, now, event) and nothing else, so every history can be replayed. The first success of
//! a task wins. Every start it orders is answered by exactly one end. A job that is over leaves the state when
//! its last attempt has ended, and says so once. A slot runs an attempt or waits; nobody waits for the slot of
//! another stage, so no reduce holds one while maps run. [`sanity_check`] holds after every event.
//!
//! # Deliberately absent
//! It never looks inside a task, does not know what a chunk is, and keeps nothing of a job that is over.
//!
//! # How it is tested
//! Unit tests with a recording outbox that must be empty at the end, a property test of random events in
//! `tests/`, and [`sanity_check`] after each event in both.

mod check;
mod claims;
mod copies;
mod dispatch;
mod elastic;
mod elsewhere;
mod losses;
mod memory;
mod reactor;
mod ready;
mod recovery;
mod slots;
mod speculation;
mod state;

pub use check::sanity_check;
pub use copies::{COPIES_MIN, COPIES_PER_TASK, SLOW_NODE_NS, WASTE_PER_TASK_TIME};
pub use elastic::{ASKED_AGAIN_AFTER_NS, SPLIT_AFTER_NS, SPLIT_LEFT_NS_MIN};
use ids::StageKind;
pub use memory::{MEMORY_PATIENCE_NS, left_out, wait_of};
pub use reactor::handle;
pub use speculation::{COMPARED_MIN, Inputs, JUDGED_AFTER_NS, Label, NO_PROGRESS_NS, Waits, WhyLeft};
pub use state::{StageCounts, State, has_jobs, stage_counts};

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, TaskIndex, TaskKey};

/// Failures of one task that count as the user's; with the last one the job fails. For jobs that say nothing else.
pub const FAILURES_MAX: u32 = 3;

/// Time for which a job leaves a slot alone that is far from the data of its tasks, in the hope of a nearer one
/// (delay scheduling, Zaharia et al., EuroSys 2010). Counted from its last start near its data.
pub const LOCALITY_DELAY_NS: u64 = 500_000_000;

/// A job that was not served for this long counts as one priority higher, each time again up to that of the most
/// urgent one: urgent jobs go first, but none waits for ever.
pub const AGING_NS: u64 = 60_000_000_000;

/// Nanoseconds since 1970, given by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(pub u64);

/// Room for one pipeline on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub node: NodeId,
    /// Counts from 0 within the node.
    pub slot: u32,
}

/// Nodes on which a task may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    #[default]
    Anywhere,
    /// This node alone has what the task needs.
    On(NodeId),
    /// Best on one of these; elsewhere where those do not ask for [`LOCALITY_DELAY_NS`].
    Near(Vec<NodeId>),
}

/// A task as it stood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredTask {
    pub placement: Placement,
    /// Attempts are numbered from here on.
    pub attempts_started: u32,
    pub failures: u32,
    pub winner: Option<AttemptNumber>,
}

/// Reason why an attempt runs on its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    pub place: WhyHere,
    /// Nanoseconds since its job was served last, or came.
    pub waited_ns: u64,
    /// Slots that asked for work, this one among them.
    pub slots_free: u32,
    /// Attempts that its user had running before.
    pub user_running: u32,
    /// Levels that its job had risen, because it waited.
    pub levels_risen: u32,
}

/// Reason for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyHere {
    /// Any would do; its slot had asked first.
    Any,
    /// The node alone has what the task needs.
    OnlyHere,
    NearData,
    /// No slot near its data had asked for [`LOCALITY_DELAY_NS`].
    NoNearerSlot,
    /// Another attempt of the task is slow elsewhere.
    BesideSlow,
    /// The task failed for a reason of its node, and this is another one.
    NotWhereItFailed,
}

/// User and urgency of a job. Jobs of the highest priority go first; among these the user with the fewest running
/// attempts (among equals, the user who was not served for longest), and of this user the oldest job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Any number that is the user's alone.
    pub user: u64,
    pub priority: i32,
    pub needs: Needs,
}

/// Resources of nodes that a job needs, besides a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    /// Bytes out of the memory of a node for the buffers of jobs.
    pub memory_bytes: u64,
    /// Any number that is the architecture's alone; None: any.
    pub architecture: Option<u32>,
    /// Whether the job holds its memory on every node from its first start to its end, because its data may lie on each; else
    /// on the node of an attempt, while that runs. Goes with no architecture.
    pub everywhere: bool,
}

impl Needs {
    /// Whether any node with a free slot will do.
    pub fn is_nothing(&self) -> bool {
        self.memory_bytes == 0 && self.architecture.is_none()
    }
}

/// Reason why nothing of a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub needs: Needs,
    /// Nodes that work.
    pub nodes: u32,
    /// Nodes among them that could run it if nobody else did.
    pub nodes_large_enough: u32,
    /// Memory that jobs hold on all nodes, on each of them; and the number of these jobs.
    pub held_bytes: u64,
    pub jobs_with_memory: u32,
    /// Older jobs that wait to be let in.
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
        /// Failures of one task with which the job fails; at least 1.
        failures_max: u32,
    },
    /// A job that another server began, as it stood. All but the last of the expanded stages are complete.
    JobRecovered {
        job: JobId,
        claim: Claim,
        stages: Vec<StageKind>,
        failures_max: u32,
        /// The tasks of each expanded stage; at least those of the first.
        tasks: Vec<Vec<RecoveredTask>>,
        /// Attempts of the last expanded stage that run, as far as anybody knows.
        running: Vec<(AttemptKey, Slot)>,
        /// Numbers of attempts that stages have used before, also for tasks that are no more.
        attempts_used: Vec<(StageIndex, u32)>,
        /// Winners of tasks that are done in stages which are not expanded.
        standing: Vec<(StageIndex, TaskIndex, AttemptNumber)>,
    },
    /// Tasks of these stages of a job may run twice at the same time. After the job came; without it none does.
    MayCopy {
        job: JobId,
        stages: Vec<StageIndex>,
    },
    /// The range of a running attempt of this stage may be cut, and its unread end become a task of its own, where slots are
    /// idle. After the job came; without it none is.
    MaySplit {
        job: JobId,
        stage: StageIndex,
    },
    /// An attempt gave up the end of its range, as [`Action::SplitTask`] asked for: its stage has one more task. Other attempts of
    /// its own task, which have the range whole, are told to stop.
    TaskAdded {
        of: AttemptKey,
        placement: Placement,
    },
    /// Progress of an attempt: units that it has done of all that its task has, and its time by cause, both since its
    /// start. Bytes, or whatever all tasks of the stage count alike.
    Progress {
        attempt: AttemptKey,
        done: u64,
        /// 0: nobody knows.
        total: u64,
        /// None: nobody knows, or as before.
        waits: Option<Waits>,
    },
    /// The answer to [`Action::ExpandStage`].
    StageExpanded {
        job: JobId,
        stage: StageIndex,
        /// One for each task.
        tasks: Vec<Placement>,
    },
    /// The other answer to [`Action::ExpandStage`]: the stage cannot be run and the job must fail. Also later, where what
    /// its tasks need is gone for good.
    StageRefused {
        job: JobId,
        stage: StageIndex,
    },
    /// The tasks of the stage that the job asked for last will come later, perhaps much later: others may have its memory. Where what
    /// came before must run again meanwhile ([`Event::StageSentBack`]), it takes the memory back at once: others wait for it.
    JobRests {
        job: JobId,
    },
    /// The third answer to [`Action::ExpandStage`]: what came before is not as it should be. As [`Event::ResultsLost`] from
    /// there on.
    StageSentBack {
        job: JobId,
        stage: StageIndex,
        /// The one that is to run again.
        to: StageIndex,
        tasks: Vec<TaskIndex>,
        stands: Option<Standing>,
    },
    /// A node is there, before its slots ask. What jobs need is compared with what it has; a node of which this was never
    /// said has everything.
    NodeCame {
        node: NodeId,
        memory_bytes: u64,
        architecture: u32,
    },
    /// A slot asks for work. It asks again after each attempt.
    SlotFree {
        slot: Slot,
    },
    /// A node has so many places where an attempt may wait for one of its slots, under these numbers, none of which is a
    /// slot's. It says so anew each time that changes. Only tasks that are all of their job are given to them, and only when no
    /// slot asks: such a task is a program, there may be very many of them, and each may be over sooner than the next
    /// one could be fetched.
    PlacesFree {
        node: NodeId,
        places: Vec<u32>,
    },
    /// A slot no longer asks.
    SlotGone {
        slot: Slot,
    },
    /// Nor does any of a node, and none of its places takes anything. All at once: what happens to one slot gives work to others.
    SlotsGone {
        node: NodeId,
    },
    AttemptSucceeded {
        attempt: AttemptKey,
    },
    AttemptFailed {
        attempt: AttemptKey,
        retryable: bool,
        /// The reason may be one of its node: the task goes to another one, where there is any.
        of_node: bool,
    },
    /// Nobody knows what became of the attempt. The task runs again and this does not count as a failure;
    /// if the lost attempt succeeds after all, it wins or loses like any other.
    AttemptLost {
        attempt: AttemptKey,
    },
    /// A node is being emptied, or cannot write: from now on its slots get only tasks that can run nowhere else.
    NodeDraining {
        node: NodeId,
    },
    /// It works as before.
    NodeResumes {
        node: NodeId,
    },
    /// A node is gone: its slots ask no more, its attempts are lost.
    NodeLost {
        node: NodeId,
    },
    /// Results of a stage that is complete, or runs, no longer exist: these tasks run again, and all stages after
    /// this one are made anew. Attempts of those that still run will be discarded; numbers of attempts go on.
    ResultsLost {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<TaskIndex>,
        stands: Option<Standing>,
    },
    /// Tasks of a stage that wait for nothing now are to run elsewhere than was said when they run again: before the event that lets
    /// them.
    TasksMoved {
        job: JobId,
        stage: StageIndex,
        tasks: Vec<(TaskIndex, Placement)>,
    },
    /// Time has passed: slots that were kept for a task nearby may go to others.
    Tick,
    /// Somebody wants the job to stop.
    JobCancelled {
        job: JobId,
    },
}

/// A later stage of which the tasks that are done stay so, and attempts run on; it will have the same tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub stage: StageIndex,
    /// But not attempts of these: they read what was lost.
    pub stops: Vec<TaskIndex>,
    /// And these run again though they are done.
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
    /// Why the attempt that starts next runs where it does. Not said of the only task of a stage that may run
    /// anywhere: there is little to say, and there may be very many of them.
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
    /// The task of this attempt has a winner: it is of no use any more. Its end is awaited all the same.
    StopAttempt {
        attempt: AttemptKey,
        slot: Slot,
    },
    /// The attempt that starts next is a second one beside one that is slow.
    Speculated {
        attempt: AttemptKey,
        of: AttemptKey,
        label: Label,
        inputs: Inputs,
    },
    /// An attempt is slow and gets no copy, at least not now. Once for each label.
    SlowTask {
        attempt: AttemptKey,
        label: Label,
        left: WhyLeft,
        inputs: Inputs,
    },
    /// Slots are idle that the unread end of what this attempt has would keep busy. It may say no: nothing follows then.
    SplitTask {
        attempt: AttemptKey,
        slot: Slot,
        /// Units of its data that it had done by what it said last.
        done: u64,
    },
    /// The task runs again.
    TaskRetried {
        task: TaskKey,
    },
    /// The job failed. Attempts that still run are to be told to stop.
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
    /// The job is over and none of its attempts runs any more: its files may go. Once per job, after one of
    /// the three above; nothing about the job follows.
    JobDrained {
        job: JobId,
    },
}

/// Reason why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    Attempt(AttemptKey),
    /// The tasks of this stage could not be made.
    Stage(StageIndex),
}

/// Takes actions in order. The server executes them, the tests record them.
pub trait Outbox {
    fn push(&mut self, action: Action);
}

impl Outbox for std::collections::VecDeque<Action> {
    fn push(&mut self, action: Action) {
        self.push_back(action);
    }
}
