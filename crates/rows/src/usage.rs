//! Sums of what attempts used, for accounting.

use api::task::AttemptUsage;

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// Sums over attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    pub attempts: u64,
    pub used: AttemptUsage,
    /// Claimed memory times wall time, in MiB times milliseconds.
    pub memory_mib_ms: u64,
    /// Bytes of I-files that stay after the job.
    pub kept_bytes: u64,
}

impl UsageSums {
    /// Returns the sums of one attempt that claimed this memory for this time. A figure that its node cannot have
    /// measured is cut.
    pub fn attempt(used: AttemptUsage, claimed_bytes: u64, took_ns: u64) -> Self {
        let byte_ms = u128::from(claimed_bytes) * u128::from(took_ns / 1_000_000);
        let memory_mib_ms = u64::try_from(byte_ms >> 20).unwrap_or(u64::MAX);
        Self { attempts: 1, used: used.believed(), memory_mib_ms, kept_bytes: 0 }
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.used.add(&other.used);
        self.memory_mib_ms = self.memory_mib_ms.saturating_add(other.memory_mib_ms);
        self.kept_bytes = self.kept_bytes.saturating_add(other.kept_bytes);
    }
}

/// Returns the day of a time, in UTC: days since 1970.
pub fn day_of(time_ns: u64) -> u64 {
    time_ns / DAY_NS
}

#[cfg(test)]
mod tests {
    use super::{DAY_NS, UsageSums, day_of};
    use api::task::AttemptUsage;

    #[test]
    fn claimed_memory_counts_by_time() {
        let of = |bytes, took_ns| UsageSums::attempt(AttemptUsage::default(), bytes, took_ns).memory_mib_ms;
        assert_eq!(of(64 << 20, 1_500_000_000), 64 * 1500);
        assert_eq!(of(1 << 19, 4_000_000), 2);
        assert_eq!(of(0, u64::MAX), 0);
        assert!(of(u64::MAX, u64::MAX) > 1 << 60);
    }

    #[test]
    fn days_begin_at_midnight_in_utc() {
        assert_eq!((day_of(DAY_NS - 1), day_of(DAY_NS)), (0, 1));
    }
}
