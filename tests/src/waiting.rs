//! Waiting for a condition that nothing announces.

use crate::WAIT_MAX;
use std::time::{Duration, Instant};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks again and again until a condition holds. Fails the test after [`WAIT_MAX`], and says what was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let found = wait_for_some(|| holds().then_some(()));
    assert!(found.is_some(), "waited in vain until {what}");
}

/// Looks again and again until there is something. Returns None after [`WAIT_MAX`].
pub(crate) fn wait_for_some<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
