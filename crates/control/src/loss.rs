//! Lost data, and data that comes back.

mod gone;
mod lose;
mod readmission;
mod record;
mod repair;

pub(crate) use gone::data_gone;
pub(crate) use lose::{Loss, RunAgain};
pub(crate) use readmission::{forerunners, readmit};
pub(crate) use record::LossRecord;
pub(crate) use repair::{evidence, found_lost, lost_on_disk};
