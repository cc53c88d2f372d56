//! Time to live of names.

use std::time::Duration;

/// The word that is stored with the removal of a name whose time is over.
pub const EXPIRE: &str = "expire";
/// Longest time to live: a hundred years, so that every time that it gives fits the numbers of a store.
pub const TTL_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// Reason why a duration is no time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TtlError {
    #[error("a time to live of 0 would remove the name at once: give at least a second")]
    Zero,
    #[error("the time to live is longer than a hundred years: without one the name stays for good")]
    TooLong,
}

/// Returns a time to live in nanoseconds.
pub fn ttl_ns(ttl: Duration) -> Result<u64, TtlError> {
    match ttl {
        Duration::ZERO => Err(TtlError::Zero),
        ttl if ttl > TTL_MAX => Err(TtlError::TooLong),
        ttl => u64::try_from(ttl.as_nanos()).map_err(|_| TtlError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::{TTL_MAX, TtlError, ttl_ns};
    use std::time::Duration;

    #[test]
    fn times_to_live_are_bounded() {
        assert_eq!(ttl_ns(Duration::from_secs(7)), Ok(7_000_000_000));
        assert_eq!(ttl_ns(Duration::ZERO), Err(TtlError::Zero));
        assert_eq!(ttl_ns(TTL_MAX + Duration::from_nanos(1)), Err(TtlError::TooLong));
        // From the year 2100 on too, the time fits the signed numbers of a store.
        let year_2100_ns = 130 * 366 * 86_400 * 1_000_000_000_u64;
        assert!(year_2100_ns + ttl_ns(TTL_MAX).unwrap() < i64::MAX as u64);
    }
}
