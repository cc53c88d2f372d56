//! Delays for callers with invalid tokens, per address: a guess costs time, and a valid token from the same address is
//! not delayed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Delay that each failure adds for its address.
const EACH: Duration = Duration::from_millis(100);
/// Delay below which no answer waits, for a person who mistypes.
const FREE: Duration = Duration::from_millis(500);
/// Longest wait of an answer.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Maximum number of remembered addresses; all others wait for the longest time.
const ADDRESSES_MAX: usize = 10_000;

/// End of the delay of each address.
#[derive(Default)]
pub(crate) struct FailedTokens {
    paid_until: Mutex<HashMap<IpAddr, Instant>>,
}

impl FailedTokens {
    /// Waits for the delay of one more failure from this address.
    pub async fn wait(&self, address: IpAddr) {
        let wait = self.count(address, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a failure. Returns the delay of its answer.
    fn count(&self, address: IpAddr, now: Instant) -> Duration {
        let mut paid_until = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
        if paid_until.len() >= ADDRESSES_MAX && !paid_until.contains_key(&address) {
            paid_until.retain(|_, end| *end > now);
            if paid_until.len() >= ADDRESSES_MAX {
                return WAIT_MAX;
            }
        }
        let end = paid_until.entry(address).or_insert(now);
        // The delay is bounded, so that an address is not shut out for long.
        *end = ((*end).max(now) + EACH).min(now + FREE + WAIT_MAX);
        end.duration_since(now).saturating_sub(FREE).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES_MAX, EACH, FailedTokens, WAIT_MAX};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    #[test]
    fn first_failures_are_free_and_later_ones_wait() {
        let (failed, now) = (FailedTokens::default(), Instant::now());
        let (ann, bob) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let waits: Vec<Duration> = (0..8).map(|_| failed.count(ann, now)).collect();
        assert_eq!(waits[..5], [Duration::ZERO; 5]);
        assert_eq!(waits[5..], [EACH, EACH * 2, EACH * 3]);
        assert_eq!(failed.count(bob, now), Duration::ZERO, "an address does not pay for another");
        let last = (0..10_000).map(|_| failed.count(ann, now)).last();
        assert_eq!(last, Some(WAIT_MAX));
        assert_eq!(failed.count(ann, now + WAIT_MAX * 2), Duration::ZERO);
    }

    #[test]
    fn addresses_are_bounded() {
        let (failed, now) = (FailedTokens::default(), Instant::now());
        let address = |number: usize| IpAddr::V4(Ipv4Addr::from(number as u32));
        let free = (0..2 * ADDRESSES_MAX).filter(|number| failed.count(address(*number), now).is_zero());
        assert_eq!(free.count(), ADDRESSES_MAX);
        assert!(failed.count(address(3 * ADDRESSES_MAX), now + Duration::from_secs(1)).is_zero());
    }
}
