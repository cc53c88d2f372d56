//! How many kills, and the seed.

use std::fmt;

const SEED: &str = "SAILFISH_CHAOS_SEED";

/// Counts, not minutes: a slow machine does the same, only longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub seed: u64,
    pub kills: u64,
    /// Name of the variable with the number of kills.
    variable: &'static str,
}

impl Settings {
    /// Returns those of the environment over these. A seed that nobody names is another one each time.
    pub fn from_environment(variable: &'static str, kills: u64) -> Settings {
        Settings {
            seed: number(SEED).unwrap_or_else(|| u64::from(std::process::id())),
            kills: number(variable).unwrap_or(kills),
            variable,
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SEED}={} {}={}", self.seed, self.variable, self.kills)
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
