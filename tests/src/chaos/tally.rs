//! Counts of faults and jobs in a run, and its problems.

use super::plan::FaultKind;
use super::settings::Settings;
use super::strike::{Struck, WHAT};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How a job ended that did what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Right,
    /// With files damaged, and right all the same.
    RightThoughDamaged,
    /// It said that its data was damaged.
    DamageTold,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfKind {
    right: u64,
    right_though_damaged: u64,
    damage_told: u64,
    handed_in_again: u64,
    followed: u64,
    longest: Duration,
}

#[derive(Default)]
pub(super) struct Tally {
    fired: BTreeMap<&'static str, u64>,
    passed_over: BTreeMap<FaultKind, u64>,
    jobs: BTreeMap<&'static str, OfKind>,
    nodes_gave_up: u64,
    pub problems: Vec<String>,
}

impl Tally {
    pub fn fired(&mut self, struck: &Struck) {
        *self.fired.entry(struck.what).or_default() += 1;
    }

    pub fn passed_over(&mut self, kind: FaultKind) {
        *self.passed_over.entry(kind).or_default() += 1;
    }

    pub fn node_gave_up(&mut self) {
        self.nodes_gave_up += 1;
    }

    pub fn problem(&mut self, what: String) {
        println!("PROBLEM: {what}");
        self.problems.push(what);
    }

    pub fn ended(&mut self, kind: &'static str, ended: Ended, after: Duration) {
        let row = self.jobs.entry(kind).or_default();
        row.longest = row.longest.max(after);
        match ended {
            Ended::Right => row.right += 1,
            Ended::RightThoughDamaged => row.right_though_damaged += 1,
            Ended::DamageTold => row.damage_told += 1,
        }
    }

    /// The server went away before the job was in its store.
    pub fn handed_in_again(&mut self, kind: &'static str) {
        self.jobs.entry(kind).or_default().handed_in_again += 1;
    }

    /// The client gave up, and the job went on.
    pub fn followed(&mut self, kind: &'static str) {
        self.jobs.entry(kind).or_default().followed += 1;
    }

    fn count(&self, damages: bool) -> u64 {
        let is_damage = |what: &str| what.contains(": ");
        self.fired.iter().filter(|(what, _)| is_damage(what) == damages).map(|(_, count)| count).sum()
    }

    /// As many faults and jobs as were asked for.
    pub fn expect_enough(&self, settings: &Settings) {
        let rows = self.jobs.values();
        let jobs: u64 = rows.map(|row| row.right + row.right_though_damaged + row.damage_told).sum();
        assert!(jobs >= settings.jobs, "{jobs} jobs");
        assert!(self.count(false) >= settings.faults, "{} kills and stops", self.count(false));
        assert!(self.count(true) >= settings.corruptions, "{} corruptions", self.count(true));
    }

    /// Lists the rows of the table that never fired, with the reason.
    pub fn never_fired(&self) -> Vec<(&'static str, &'static str)> {
        let none = |what: &&str| !self.fired.contains_key(*what);
        let why = |what: &'static str| match what.starts_with("raw") {
            true => (what, "no chunk went to disk unsorted while files were to be damaged"),
            false => (what, "too few faults of this run, or no victim"),
        };
        WHAT.into_iter().filter(none).map(why).collect()
    }

    /// The table.
    pub fn table(&self, settings: &Settings, took: Duration) -> String {
        let mut out = format!("\n{settings}\n{} s\n\nfault                      fired\n", took.as_secs());
        for what in WHAT {
            let _ = writeln!(out, "{what:<26} {:>5}", self.fired.get(what).unwrap_or(&0));
        }
        let _ = writeln!(out, "kills and stops            {:>5}", self.count(false));
        let _ = writeln!(out, "corruptions                {:>5}", self.count(true));
        for (kind, count) in &self.passed_over {
            let _ = writeln!(out, "{kind:?} found no victim {count} times; another fault came in its place");
        }
        for (what, why) in self.never_fired() {
            let _ = writeln!(out, "{what}: could not run: {why}");
        }
        let _ = writeln!(out, "nodes that gave up waiting for the server: {}", self.nodes_gave_up);
        out.push_str(
            "\njob                               right  damaged, right  damage told  again  followed  longest\n",
        );
        for (kind, row) in &self.jobs {
            let _ = writeln!(
                out,
                "{kind:<32} {:>6} {:>15} {:>12} {:>6} {:>9} {:>6} s",
                row.right,
                row.right_though_damaged,
                row.damage_told,
                row.handed_in_again,
                row.followed,
                row.longest.as_secs()
            );
        }
        let _ = writeln!(out, "problems: {}", self.problems.len());
        out
    }
}
