//! The end of the threads for stored files.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that wakes those who rest.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    has_ended: Mutex<bool>,
    told: Condvar,
}

impl Ending {
    pub fn end(&self) {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    pub fn has_ended(&self) -> bool {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests for this time, or until the end.
    pub fn rest(&self, time: Duration) {
        let has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.told.wait_timeout_while(has_ended, time, |has_ended| !*has_ended));
    }
}
