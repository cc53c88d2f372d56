//! Counts of a run, as a table, and its problems.

use std::collections::BTreeMap;
use std::time::Duration;

/// With so many problems there is no sense in going on.
const PROBLEMS_MAX: usize = 8;

/// Counts by group and row.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<(&'static str, String), u64>,
    pub bytes: u64,
    pub problems: Vec<String>,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, group: &'static str, row: impl Into<String>) {
        *self.counts.entry((group, row.into())).or_default() += 1;
    }

    /// Returns the sum of a group.
    pub fn sum(&self, group: &str) -> u64 {
        self.counts.iter().filter(|((of, _), _)| *of == group).map(|(_, count)| count).sum()
    }

    /// Notes a fact that must not be.
    pub fn problem(&mut self, what: String) {
        println!("PROBLEM: {what}");
        self.problems.push(what);
    }

    /// Returns whether there are so many problems that the run ends.
    pub fn is_hopeless(&self) -> bool {
        self.problems.len() >= PROBLEMS_MAX
    }

    /// Returns the table.
    pub fn table(&self, took: Duration) -> String {
        let mut text = String::new();
        for ((group, row), count) in &self.counts {
            text.push_str(&format!("{group:<12} {row:<28} {count:>6}\n"));
        }
        let megabytes = self.bytes as f64 / f64::from(1 << 20);
        text.push_str(&format!("{megabytes:.0} MiB compared, {:.1} minutes", took.as_secs_f64() / 60.0));
        text
    }
}
