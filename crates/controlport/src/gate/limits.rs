//! Limits on the requests of a user, so that no user blocks the server for others.

use server::UserQuota;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time by which a user may exceed the average rate.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// Limits of each user of the roles `user` and `read-only`. Administrators and nodes have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Limits on the user's current jobs and data.
    pub quota: UserQuota,
    /// Average number of requests; bursts may be somewhat larger.
    pub requests_per_second: u32,
    /// Average bytes of bodies; bursts may be somewhat larger.
    pub bytes_per_second: u64,
    /// Maximum bytes of a body.
    pub body_bytes_max: usize,
}

impl Default for UserLimits {
    fn default() -> Self {
        Self {
            quota: UserQuota {
                jobs_max: 100_000,
                spec_bytes_max: 256 << 20,
                kept_bytes_max: 1 << 40,
                intermediate_bytes_max: 1 << 40,
                stored_bytes_max: 1 << 40,
            },
            requests_per_second: 500,
            bytes_per_second: 16 << 20,
            body_bytes_max: 64 << 20,
        }
    }
}

/// A rate that must hold on average, as the time until which the past requests are paid for.
#[derive(Clone, Copy)]
struct Rate {
    paid_until: Instant,
}

impl Rate {
    /// Takes an amount. Returns false if the past requests are too far ahead of the rate.
    fn take(&mut self, amount: u64, per_second: u64, now: Instant) -> bool {
        let from = self.paid_until.max(now);
        if from.duration_since(now) > AHEAD_MAX {
            return false;
        }
        let cost_ns = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
        let cost = Duration::from_nanos(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        // An overflow means a time beyond all future requests.
        self.paid_until = from.checked_add(cost).unwrap_or(from + AHEAD_MAX * 1000);
        true
    }
}

/// The rates of all users that have called: at most one row per user with a token.
#[derive(Default)]
pub(crate) struct Meters {
    rates: Mutex<HashMap<Arc<str>, (Rate, Rate)>>,
}

impl Meters {
    /// Counts a request. Returns false if the user exceeds the limits.
    pub fn take(&self, user: &Arc<str>, body_bytes: u64, limits: &UserLimits, now: Instant) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Rate { paid_until: now };
        let (requests, bytes) = rates.entry(Arc::clone(user)).or_insert((new, new));
        requests.take(1, u64::from(limits.requests_per_second), now)
            && bytes.take(body_bytes, limits.bytes_per_second, now)
    }
}

#[cfg(test)]
mod tests {
    use super::{Meters, UserLimits, UserQuota};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const LIMITS: UserLimits = UserLimits {
        requests_per_second: 10,
        bytes_per_second: 1000,
        body_bytes_max: 1,
        quota: UserQuota {
            jobs_max: 1,
            spec_bytes_max: 1,
            kept_bytes_max: 1,
            intermediate_bytes_max: 1,
            stored_bytes_max: 1,
        },
    };

    #[test]
    fn requests_come_at_their_rate_after_a_burst() {
        let (meters, start) = (Meters::default(), Instant::now());
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let admitted = |user, at| (0..100).filter(|_| meters.take(user, 0, &LIMITS, at)).count();
        assert_eq!(admitted(&ann, start), 21);
        assert_eq!(admitted(&ann, start), 0);
        assert_eq!(admitted(&bob, start), 21, "a user does not pay for another");
        assert_eq!(admitted(&ann, start + Duration::from_secs(1)), 10);
        assert_eq!(admitted(&ann, start + Duration::from_secs(100)), 21);
    }

    #[test]
    fn bytes_are_paid_for_afterwards() {
        let (meters, start) = (Meters::default(), Instant::now());
        let ann: Arc<str> = "ann".into();
        assert!(meters.take(&ann, 5000, &LIMITS, start));
        assert!(!meters.take(&ann, 0, &LIMITS, start + Duration::from_millis(2900)));
        assert!(meters.take(&ann, u64::MAX, &LIMITS, start + Duration::from_millis(3100)));
        assert!(!meters.take(&ann, 0, &LIMITS, start + Duration::from_secs(1000)));
    }
}
