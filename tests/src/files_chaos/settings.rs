//! How many kills, and the seed.

use std::fmt;

const SEED: &str = "SAILFISH_CHAOS_SEED";
const KILLS: &str = "SAILFISH_FILES_CHAOS_KILLS";

/// Counts, not minutes: a slow machine does the same, only longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub seed: u64,
    pub kills: u64,
}

impl Settings {
    /// Returns those of the environment over these. A seed that nobody names is another one each time.
    pub fn from_environment(kills: u64) -> Settings {
        Settings {
            seed: number(SEED).unwrap_or_else(|| u64::from(std::process::id())),
            kills: number(KILLS).unwrap_or(kills),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SEED}={} {KILLS}={}", self.seed, self.kills)
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
