//! Times of events, as the caller gives them.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Time since a start that the caller chooses. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

/// The time of an event, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since 1970, for rows and for times that are sent to nodes.
    pub unix_ns: u64,
    /// Monotonic time, for waits and leases.
    pub moment: Moment,
}

impl Moment {
    /// Returns the time since an earlier moment; zero if the moment is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, more: Duration) -> Moment {
        Moment(self.0.saturating_add(more))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, more: Duration) {
        *self = *self + more;
    }
}
