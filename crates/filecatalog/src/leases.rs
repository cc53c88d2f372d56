//! Leases of readers: versions that keep their files.

use ids::FileVersion;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time after which a lease that is not renewed ends.
pub(crate) const LEASE: Duration = Duration::from_secs(300);
/// Maximum number of leases; beyond it the oldest end.
const LEASES_MAX: usize = 100_000;

/// The leases that are held.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<u64, (FileVersion, Instant)>,
    /// Before this, leases of before a restart may still be renewed: nothing is retired.
    not_before: Option<Instant>,
}

impl Leases {
    /// Makes the leases of a server that has restarted: readers may hold some that it does not know.
    pub fn after_restart(now: Instant) -> Self {
        Self { held: BTreeMap::new(), not_before: Some(now + LEASE) }
    }

    /// Begins a lease. Its number is random, so that nobody ends the lease of another.
    pub fn begin(&mut self, version: FileVersion, now: Instant) -> u64 {
        if self.held.len() >= LEASES_MAX {
            let oldest = self.held.iter().min_by_key(|(_, (_, ends))| *ends).map(|(lease, _)| *lease);
            oldest.and_then(|lease| self.held.remove(&lease));
        }
        // JSON of other languages has 53 bits.
        let lease = fastrand::u64(1..1 << 53);
        self.held.insert(lease, (version, now + LEASE));
        lease
    }

    /// Renews a lease, also one that a server had before it restarted.
    pub fn renew(&mut self, lease: u64, version: FileVersion, now: Instant) {
        if self.held.len() < LEASES_MAX || self.held.contains_key(&lease) {
            self.held.insert(lease, (version, now + LEASE));
        }
    }

    pub fn end(&mut self, lease: u64) {
        self.held.remove(&lease);
    }

    /// Returns the versions that are read; None if names must not be retired yet.
    pub fn read_versions(&mut self, now: Instant) -> Option<Vec<FileVersion>> {
        self.held.retain(|_, (_, ends)| *ends > now);
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return None;
        }
        let mut versions: Vec<FileVersion> = self.held.values().map(|(version, _)| *version).collect();
        versions.sort_unstable();
        versions.dedup();
        Some(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::{LEASE, Leases};
    use ids::FileVersion;
    use std::time::Instant;

    #[test]
    fn versions_stay_while_they_are_read() {
        let now = Instant::now();
        let mut leases = Leases::default();
        let first = leases.begin(FileVersion(3), now);
        let second = leases.begin(FileVersion(4), now);
        assert_eq!(leases.read_versions(now), Some(vec![FileVersion(3), FileVersion(4)]));
        leases.end(second);
        leases.renew(first, FileVersion(3), now + LEASE / 2);
        assert_eq!(leases.read_versions(now + LEASE), Some(vec![FileVersion(3)]));
        assert_eq!(leases.read_versions(now + LEASE * 2), Some(Vec::new()));
        let mut restarted = Leases::after_restart(now);
        assert_eq!(restarted.read_versions(now + LEASE / 2), None);
        restarted.renew(first, FileVersion(3), now + LEASE);
        assert_eq!(restarted.read_versions(now + LEASE), Some(vec![FileVersion(3)]));
    }
}
