//! The only place where the server reads the clock.

use control::{Moment, Now};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns nanoseconds since 1970; 1 for a clock before that.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Returns the time on both clocks.
pub(crate) fn now() -> Now {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    Now { unix_ns: now_ns(), moment: Moment(FIRST.get_or_init(Instant::now).elapsed()) }
}
