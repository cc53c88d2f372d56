//! How much of what.

use std::fmt;

/// Counts, not minutes: a slow machine does the same, only longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub seed: u64,
    /// Jobs at least; there are more where faults are left when these are over.
    pub jobs: u64,
    /// Kills and stops.
    pub faults: u64,
    /// Files that are damaged.
    pub corruptions: u64,
}

impl Settings {
    /// Those of the environment (`SAILFISH_CHAOS_SEED`, `_JOBS`, `_FAULTS`, `_CORRUPTIONS`) over these. A seed that nobody
    /// names is another one each time.
    pub fn from_environment(jobs: u64, faults: u64, corruptions: u64) -> Settings {
        Settings {
            seed: number("SAILFISH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id())),
            jobs: number("SAILFISH_CHAOS_JOBS").unwrap_or(jobs),
            faults: number("SAILFISH_CHAOS_FAULTS").unwrap_or(faults),
            corruptions: number("SAILFISH_CHAOS_CORRUPTIONS").unwrap_or(corruptions),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { seed, jobs, faults, corruptions } = self;
        write!(f, "SAILFISH_CHAOS_SEED={seed} SAILFISH_CHAOS_JOBS={jobs} ")?;
        write!(f, "SAILFISH_CHAOS_FAULTS={faults} SAILFISH_CHAOS_CORRUPTIONS={corruptions}")
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
