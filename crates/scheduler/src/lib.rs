//! # What it does
//! Decides which attempt runs where and when: a state machine over jobs, their stages and tasks.
//!
//! # Where it sits
//! events from the server -> scheduler -> actions for the server.
//!
//! # Invariants
//! Pure: (state, outbox, now, event) and nothing else, so every history can be replayed. The first success of
//! a task wins. Every start it orders is answered by exactly one end. A job that is over leaves the state when
//! its last attempt has ended, and says so once. [`sanity_check`] holds after every event.
//!
//! # Deliberately absent
//! It never looks inside a task, does not know what a chunk is, and keeps nothing of a job that is over.
//!
//! # How it is tested
//! Unit tests with a recording outbox that must be empty at the end, a property test of random events in
//! `tests/`, and [`sanity_check`] after each event in both.

mod check;
mod dispatch;
mod reactor;
mod state;

pub use check::sanity_check;
pub use reactor::handle;
pub use state::{StageCounts, State, has_jobs, stage_counts};

use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskKey};

/// Failures of one task that count as the user's; with the last one the job fails.
pub const ATTEMPTS_MAX: u32 = 3;

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

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job arrived; its stages run one after the other. Ids are never used twice.
    JobSubmitted {
        job: JobId,
        stages: Vec<&'static str>,
    },
    /// The answer to [`Action::ExpandStage`].
    StageExpanded {
        job: JobId,
        stage: StageIndex,
        task_count: u32,
    },
    /// The other answer to [`Action::ExpandStage`]: the stage cannot be run and the job must fail.
    StageRefused {
        job: JobId,
        stage: StageIndex,
    },
    /// A slot asks for work. It asks again after each attempt.
    SlotFree {
        slot: Slot,
    },
    /// A slot no longer asks.
    SlotGone {
        slot: Slot,
    },
    AttemptSucceeded {
        attempt: AttemptKey,
    },
    AttemptFailed {
        attempt: AttemptKey,
        retryable: bool,
    },
    /// Nobody knows what became of the attempt. The task runs again and this does not count as a failure;
    /// if the lost attempt succeeds after all, it wins or loses like any other.
    AttemptLost {
        attempt: AttemptKey,
    },
    /// Somebody wants the job to stop.
    JobCancelled {
        job: JobId,
    },
}

/// What the server must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find the tasks of a stage and answer with [`Event::StageExpanded`] or [`Event::StageRefused`].
    ExpandStage {
        job: JobId,
        stage: StageIndex,
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

/// Why a job failed.
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
