//! A limit of one per minute for log lines that callers can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct OnceAMinute(Mutex<Option<Instant>>);

impl OnceAMinute {
    /// Returns whether the line may be written now; if so, a new minute begins.
    pub fn is_due(&self) -> bool {
        let mut written_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = written_at.is_none_or(|written_at| now.duration_since(written_at) >= MINUTE);
        if is_due {
            *written_at = Some(now);
        }
        is_due
    }
}
