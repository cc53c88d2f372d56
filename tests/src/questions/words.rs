//! Words of the rows: stages, states and events.

/// A stage of a job.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    Map,
    Merge,
    Reduce,
    Adopt,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Merge => "merge",
            Self::Reduce => "reduce",
            Self::Adopt => "adopt",
        }
    }
}

/// State of a job, task, attempt, replica, node or file.
#[derive(Clone, Copy, Debug)]
pub enum State {
    Running,
    Succeeded,
    Failed,
    Cancelled,
    /// An attempt that succeeded too late.
    Discarded,
    /// A task that is over.
    Done,
    /// A replica or an intermediate file that is whole.
    Complete,
    /// A replica that is read in place of a lost run.
    Standing,
    Lost,
    Writing,
    /// A node that lives.
    Up,
    Dead,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
            Self::Done => "done",
            Self::Complete => "complete",
            Self::Standing => "standing",
            Self::Lost => "lost",
            Self::Writing => "writing",
            Self::Up => "up",
            Self::Dead => "dead",
        }
    }
}

/// Kind of an event.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    DataIsBack,
    DataLost,
    NodeGone,
    RangeSplit,
    ReplicasStandIn,
    Speculation,
    StageReopened,
    StandInRefused,
    TaskRetried,
}

impl Event {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::DataIsBack => "data is back",
            Self::DataLost => "data lost",
            Self::NodeGone => "node gone",
            Self::RangeSplit => "range split",
            Self::ReplicasStandIn => "replicas stand in",
            Self::Speculation => "speculation",
            Self::StageReopened => "stage reopened",
            Self::StandInRefused => "stand-in refused",
            Self::TaskRetried => "task retried",
        }
    }
}
