//! A time of the monotonic clock that control is told.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Time since some start that the caller has chosen; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

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
