//! The types between control and its shell: times, messages, answers, and the outbox.

mod error;
mod messages;
mod moment;
mod outbox;
mod reply;

pub use error::ControlError;
pub(crate) use messages::Ended;
pub use messages::{
    DiskDirs, Finished, JobDirs, JobStart, NewJob, PullRequest, RoomWanted, RunningJob, Service, SlotOrder,
};
pub use moment::{Moment, Now};
pub(crate) use outbox::Fact;
pub use outbox::{LogLine, Outbox};
pub use reply::{Asker, Reply};
