//! Kinds of the events in the history of a job and of a cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum EventKind {
    #[serde(rename = "owner started")]
    OwnerStarted,
    #[serde(rename = "owner ended")]
    OwnerEnded,
    /// Earlier versions wrote it for a node that joined.
    #[serde(rename = "node registered")]
    NodeRegistered,
    #[serde(rename = "node up")]
    NodeUp,
    #[serde(rename = "node draining")]
    NodeDraining,
    #[serde(rename = "node drained")]
    NodeDrained,
    #[serde(rename = "node dead")]
    NodeDead,
    #[serde(rename = "node left")]
    NodeLeft,
    /// A node did not poll in time; its grace period begins.
    #[serde(rename = "node away")]
    NodeAway,
    /// A node is lost, and why.
    #[serde(rename = "node gone")]
    NodeGone,
    #[serde(rename = "job submitted")]
    JobSubmitted,
    /// A restarted server took the job over.
    #[serde(rename = "job goes on")]
    JobGoesOn,
    /// A user or a stage of the flow asked for the end of the job.
    #[serde(rename = "job cancel asked")]
    JobCancelAsked,
    #[serde(rename = "job committing")]
    JobCommitting,
    #[serde(rename = "job succeeded")]
    JobSucceeded,
    #[serde(rename = "job failed")]
    JobFailed,
    #[serde(rename = "job cancelled")]
    JobCancelled,
    #[serde(rename = "job interrupted")]
    JobInterrupted,
    /// Its directories are removed.
    #[serde(rename = "job cleaned")]
    JobCleaned,
    /// Its directories could not be removed.
    #[serde(rename = "job not cleaned")]
    JobNotCleaned,
    #[serde(rename = "stage expanded")]
    StageExpanded,
    /// Tasks of a finished stage run again.
    #[serde(rename = "stage reopened")]
    StageReopened,
    #[serde(rename = "stage ended")]
    StageEnded,
    #[serde(rename = "task retried")]
    TaskRetried,
    /// Earlier versions wrote it for the end of a task.
    #[serde(rename = "task done")]
    TaskDone,
    #[serde(rename = "attempt started")]
    AttemptStarted,
    #[serde(rename = "attempt goes on")]
    AttemptGoesOn,
    #[serde(rename = "attempt succeeded")]
    AttemptSucceeded,
    /// It succeeded after another attempt had won.
    #[serde(rename = "attempt discarded")]
    AttemptDiscarded,
    #[serde(rename = "attempt failed")]
    AttemptFailed,
    #[serde(rename = "attempt cancelled")]
    AttemptCancelled,
    #[serde(rename = "attempt interrupted")]
    AttemptInterrupted,
    /// The key ranges of the I-files are final.
    #[serde(rename = "boundaries fixed")]
    BoundariesFixed,
    /// A version of the reduce plan is final.
    #[serde(rename = "plan fixed")]
    PlanFixed,
    /// The unread end of a reduce task's range went to a new task.
    #[serde(rename = "range split")]
    RangeSplit,
    /// An attempt was slow: why, and whether it got a second one.
    #[serde(rename = "speculation")]
    Speculation,
    /// Sorted runs get replicas, or none, and why.
    #[serde(rename = "replication")]
    Replication,
    /// Replicas were read in place of runs.
    #[serde(rename = "replicas stand in")]
    ReplicasStandIn,
    /// An attempt did not make lost data again byte for byte.
    #[serde(rename = "stand-in refused")]
    StandInRefused,
    /// Intermediate data was lost.
    #[serde(rename = "data lost")]
    DataLost,
    /// A node came back with whole data of the job.
    #[serde(rename = "data is back")]
    DataIsBack,
    /// A node could not send a spool again.
    #[serde(rename = "spool not sent")]
    SpoolNotSent,
    /// Data was read again because the proof did not agree.
    #[serde(rename = "read again")]
    ReadAgain,
    /// Kept I-files were lost.
    #[serde(rename = "I-files lost")]
    KeptDataLost,
    /// Kept I-files were removed.
    #[serde(rename = "I-files removed")]
    KeptDataRemoved,
    /// A step of a job that is known from earlier jobs runs again, and why.
    #[serde(rename = "step runs")]
    StepRuns,
    /// Number of steps of a job for which finished runs stand.
    #[serde(rename = "steps skipped")]
    StepsSkipped,
    /// Standard output of the program of a one-task job.
    #[serde(rename = "standard output")]
    StandardOutput,
    /// Bytes that the program wrote, where they are more than are kept.
    #[serde(rename = "standard output bytes")]
    StandardOutputBytes,
    /// Standard error of a program: its end, for a one-task job; that of one task, for another job.
    #[serde(rename = "standard error")]
    StandardError,
    /// Bytes that the program wrote, where they are more than are kept.
    #[serde(rename = "standard error bytes")]
    StandardErrorBytes,
    /// The last status line of a program (`reporter:status:`).
    #[serde(rename = "status")]
    Status,
}

ids::words!(
    EventKind:
    OwnerStarted = "owner started",
    OwnerEnded = "owner ended",
    NodeRegistered = "node registered",
    NodeUp = "node up",
    NodeDraining = "node draining",
    NodeDrained = "node drained",
    NodeDead = "node dead",
    NodeLeft = "node left",
    NodeAway = "node away",
    NodeGone = "node gone",
    JobSubmitted = "job submitted",
    JobGoesOn = "job goes on",
    JobCancelAsked = "job cancel asked",
    JobCommitting = "job committing",
    JobSucceeded = "job succeeded",
    JobFailed = "job failed",
    JobCancelled = "job cancelled",
    JobInterrupted = "job interrupted",
    JobCleaned = "job cleaned",
    JobNotCleaned = "job not cleaned",
    StageExpanded = "stage expanded",
    StageReopened = "stage reopened",
    StageEnded = "stage ended",
    TaskRetried = "task retried",
    TaskDone = "task done",
    AttemptStarted = "attempt started",
    AttemptGoesOn = "attempt goes on",
    AttemptSucceeded = "attempt succeeded",
    AttemptDiscarded = "attempt discarded",
    AttemptFailed = "attempt failed",
    AttemptCancelled = "attempt cancelled",
    AttemptInterrupted = "attempt interrupted",
    BoundariesFixed = "boundaries fixed",
    PlanFixed = "plan fixed",
    RangeSplit = "range split",
    Speculation = "speculation",
    Replication = "replication",
    ReplicasStandIn = "replicas stand in",
    StandInRefused = "stand-in refused",
    DataLost = "data lost",
    DataIsBack = "data is back",
    SpoolNotSent = "spool not sent",
    ReadAgain = "read again",
    KeptDataLost = "I-files lost",
    KeptDataRemoved = "I-files removed",
    StepRuns = "step runs",
    StepsSkipped = "steps skipped",
    StandardOutput = "standard output",
    StandardOutputBytes = "standard output bytes",
    StandardError = "standard error",
    StandardErrorBytes = "standard error bytes",
    Status = "status",
);

#[cfg(test)]
mod tests {
    use super::EventKind;

    #[test]
    fn json_and_store_share_the_word() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
            assert_eq!(EventKind::parse(kind.word()), Some(*kind));
        }
    }
}
