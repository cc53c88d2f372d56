//! Runs that need a copy on another node.

use ids::RunId;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

/// A run that has no copy yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunToCopy {
    pub run: RunId,
    pub sorted_at: Instant,
}

/// Runs without a copy, oldest first. They are recorded from the beginning: copies may be requested later.
#[derive(Default)]
pub(crate) struct ToCopy {
    pub begun: bool,
    waiting: VecDeque<RunToCopy>,
    /// Given out, and neither done nor returned.
    under_way: BTreeSet<RunId>,
    /// Promoted copies here, which need one more copy.
    standing: BTreeSet<RunId>,
}

impl ToCopy {
    /// Adds a new run.
    pub fn add(&mut self, run: RunId) {
        self.waiting.push_back(RunToCopy { run, sorted_at: Instant::now() });
    }

    /// Removes runs that were merged or lost, so that they are not copied.
    pub fn forget(&mut self, runs: &[RunId]) {
        self.standing.retain(|each| !runs.contains(each));
        self.waiting.retain(|each| !runs.contains(&each.run));
        self.under_way.retain(|each| !runs.contains(each));
    }

    /// Sets the promoted runs of other nodes that need a copy now; no other ones do.
    pub fn want_standing(&mut self, runs: BTreeSet<RunId>) {
        let before = std::mem::replace(&mut self.standing, runs);
        let over: Vec<RunId> = before.difference(&self.standing).copied().collect();
        self.forget(&over);
        let new: Vec<RunId> = self.standing.difference(&before).copied().collect();
        new.into_iter().for_each(|run| self.add(run));
    }

    pub fn take(&mut self) -> Option<RunToCopy> {
        if !self.begun {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.under_way.insert(next.run);
        Some(next)
    }

    pub fn put_back(&mut self, again: RunToCopy) {
        self.under_way.remove(&again.run);
        if self.waiting.iter().all(|each| each.run != again.run) {
            self.waiting.push_back(again);
        }
    }

    /// Records that the run has its copy.
    pub fn has_copy(&mut self, run: RunId) {
        self.under_way.remove(&run);
        self.standing.remove(&run);
    }

    /// Returns whether it is a promoted copy that needs one more.
    pub fn is_standing(&self, run: RunId) -> bool {
        self.standing.contains(&run)
    }

    /// Returns the number of runs without a copy; 0 before copies begin.
    pub fn count(&self) -> usize {
        if self.begun { self.waiting.len() + self.under_way.len() } else { 0 }
    }
}
