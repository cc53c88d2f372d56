//! The table of local copies: their users, and the attempts that wait for them.

use crate::stored::local_files::CopyKey;
use crate::stored::local_files::copying::Copy;
use api::{Blame, TaskFailure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A copy, or the place of one that is being made.
#[derive(Default)]
struct Entry {
    copy: Option<Copy>,
    /// Attempts that use it.
    holds: u32,
    /// Attempts that wait for it.
    waiters: u32,
    /// True while an attempt makes or verifies it.
    is_busy: bool,
    /// Number of times that this ended.
    rounds: u64,
    /// The failure of a round, with its number, unless its attempt was cancelled.
    failed: Option<(u64, TaskFailure)>,
    /// Larger after a later use.
    used: u64,
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.copy.is_some() && self.holds == 0 && self.waiters == 0 && !self.is_busy
    }
}

#[derive(Default)]
pub(super) struct Table {
    entries: BTreeMap<CopyKey, Entry>,
    /// Room for copies that are being made, by their numbers.
    coming: BTreeMap<u64, (PathBuf, u64)>,
    last_number: u64,
    uses: u64,
}

/// The next step of an attempt that needs a copy.
pub(super) enum Turn {
    /// It looks at this copy, and makes a new one if there is none or it is damaged.
    Make(Option<Copy>),
    Wait,
    Failed(TaskFailure),
}

impl Table {
    /// Returns the next step; `round` is the one for which the attempt waits.
    pub fn turn(&mut self, key: &CopyKey, round: &mut Option<u64>) -> Turn {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.is_busy {
            if round.is_none() {
                entry.waiters += 1;
            }
            round.get_or_insert(entry.rounds);
            return Turn::Wait;
        }
        if round.is_some() {
            entry.waiters -= 1;
        }
        if let (Some((number, failure)), Some(awaited)) = (&entry.failed, *round)
            && *number >= awaited
        {
            let failure = failure.clone();
            self.drop_if_empty(key);
            return Turn::Failed(failure);
        }
        entry.is_busy = true;
        Turn::Make(entry.copy.clone())
    }

    /// Begins to make a copy that nobody waits for. Returns false if it is here or being made.
    pub fn begins_early(&mut self, key: &CopyKey) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        let begins = !entry.is_busy && entry.copy.is_none();
        entry.is_busy |= begins;
        begins
    }

    /// Ends the wait of an attempt; `round` is the one for which it waited, if it did.
    pub fn stop_waiting(&mut self, key: &CopyKey, round: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(key).filter(|_| round.is_some()) {
            entry.waiters -= 1;
        }
        self.drop_if_empty(key);
    }

    /// Ends the making of a copy, which its attempt holds from now on.
    pub fn end_round(&mut self, key: &CopyKey, made: &Result<Copy, TaskFailure>) {
        self.uses += 1;
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_other = |copy: &Copy| entry.copy.as_ref().is_none_or(|before| before.number != copy.number);
        match made {
            Ok(copy) => {
                // Those who hold an earlier copy do not hold this one.
                entry.holds = if is_other(copy) { 1 } else { entry.holds + 1 };
                (entry.copy, entry.failed, entry.used) = (Some(copy.clone()), None, self.uses);
            }
            Err(failure) => {
                (entry.copy, entry.holds) = (None, 0);
                let counts = failure.blame != Blame::Cancelled;
                entry.failed = counts.then(|| (entry.rounds, failure.clone()));
            }
        }
        entry.rounds += 1;
        entry.is_busy = false;
        self.drop_if_empty(key);
    }

    pub fn let_go(&mut self, key: &CopyKey, number: u64) {
        self.uses += 1;
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.copy.as_ref().is_some_and(|copy| copy.number == number) {
            entry.holds = entry.holds.saturating_sub(1);
            entry.used = self.uses;
        }
    }

    fn drop_if_empty(&mut self, key: &CopyKey) {
        let is_empty = |entry: &Entry| entry.copy.is_none() && entry.waiters == 0 && !entry.is_busy;
        if self.entries.get(key).is_some_and(is_empty) {
            self.entries.remove(key);
        }
    }

    /// Takes out the copy that nothing has used for the longest time.
    pub fn take_least_used(&mut self) -> Option<Copy> {
        let unused = self.entries.iter().filter(|(_, entry)| entry.is_unused());
        let key = unused.min_by_key(|(_, entry)| entry.used)?.0.clone();
        self.entries.remove(&key)?.copy
    }

    /// Takes out unused copies until the others have at most so many bytes.
    pub fn take_surplus(&mut self, bytes_max: u64) -> Vec<Copy> {
        let unused = self.entries.values().filter(|entry| entry.is_unused());
        let mut bytes: u64 = unused.filter_map(|entry| Some(entry.copy.as_ref()?.bytes)).sum();
        let mut surplus = Vec::new();
        while bytes > bytes_max
            && let Some(copy) = self.take_least_used()
        {
            bytes = bytes.saturating_sub(copy.bytes);
            surplus.push(copy);
        }
        surplus
    }

    /// Returns whether a copy is here, or is being made.
    pub fn has(&self, key: &CopyKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.copy.is_some() || entry.is_busy)
    }

    /// Returns the bytes of copies in a directory that would make room.
    pub fn unused_bytes(&self, dir: &Path) -> u64 {
        let unused = self.entries.values().filter(|entry| entry.is_unused());
        let copies = unused.filter_map(|entry| entry.copy.as_ref());
        copies.filter(|copy| copy.path.starts_with(dir)).map(|copy| copy.bytes).sum()
    }

    /// Returns the number of attempts that wait.
    #[cfg(test)]
    pub fn waiters(&self) -> u32 {
        self.entries.values().map(|entry| entry.waiters).sum()
    }

    /// Promises room in a directory, and returns the number of the copy.
    pub fn promise(&mut self, dir: PathBuf, bytes: u64) -> u64 {
        self.last_number += 1;
        self.coming.insert(self.last_number, (dir, bytes));
        self.last_number
    }

    /// Ends the promise: the disk counts the bytes by itself.
    pub fn has_arrived(&mut self, number: u64) {
        self.coming.remove(&number);
    }

    pub fn coming_bytes(&self, dir: &Path) -> u64 {
        self.coming.values().filter(|(at, _)| at == dir).map(|(_, bytes)| bytes).sum()
    }
}
