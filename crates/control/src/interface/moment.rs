//! Times that control is told.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Time since some start that the caller has chosen; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

/// The time of an event, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since 1970: for rows, and for times that nodes are told.
    pub unix_ns: u64,
    /// For waits and leases.
    pub moment: Moment,
}

impl Moment {
    /// The time since an earlier moment; none since a later one.
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
