//! Kinds of the events that the history of a job remembers.

/// Kind of the events with the standard error of a program: the last part of it for a one-task job; for another job,
/// that of one of its tasks.
pub const STDERR_NOTE: &str = "standard error";
/// Kind of the event with the standard output of the program of a one-task job.
pub const STDOUT_NOTE: &str = "standard output";
/// Kinds of the events with the count of bytes that it wrote, where that is more than is remembered.
pub const STDOUT_BYTES_NOTE: &str = "standard output bytes";
pub const STDERR_BYTES_NOTE: &str = "standard error bytes";
/// The kind of the events that tell which attempts were slow, why, and what was done about it.
pub const SPECULATION_NOTE: &str = "speculation";
/// Kinds of the events about replicas: sorted runs of a job get replicas, or none, and why; and replicas were read in
/// place of runs.
pub const REPLICATION_NOTE: &str = "replication";
pub const FELL_BACK_NOTE: &str = "replicas stand in";
/// Kind of the events that tell that a node came back with whole data of a job.
pub const READMITTED_NOTE: &str = "data is back";

/// The kinds of the events that tell what was lost of a job, and which attempts did not make it again.
pub const DATA_LOST_NOTE: &str = "data lost";
pub const STAND_IN_REFUSED_NOTE: &str = "stand-in refused";
/// And that a spool could not be sent again.
pub const NOT_RESENT_NOTE: &str = "spool not sent";
/// And that data was read again because the proof did not agree.
pub const READ_AGAIN_NOTE: &str = "read again";

/// And that the unread end of a reduce task's range went to another task.
pub const RANGE_SPLIT_NOTE: &str = "range split";

/// The kind of the event that somebody wants a job to stop.
pub const CANCEL_ASKED_NOTE: &str = "job cancel asked";
