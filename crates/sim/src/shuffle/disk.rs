//! A disk: a written file is visible to all at once, and durable only after a sync.

use fastrand::Rng;
use std::collections::BTreeMap;

/// Files by name, each written as a whole by a machine.
#[derive(Clone, Debug)]
pub(crate) struct Disk<V> {
    /// Content that survives a power cut.
    synced: BTreeMap<String, V>,
    /// Content not yet synced, with the number of the machine that wrote it.
    unsynced: BTreeMap<String, (u64, V)>,
}

impl<V> Default for Disk<V> {
    fn default() -> Self {
        Self { synced: BTreeMap::new(), unsynced: BTreeMap::new() }
    }
}

impl<V> Disk<V> {
    pub fn write(&mut self, machine: u64, name: &str, content: V) {
        self.unsynced.insert(name.to_string(), (machine, content));
    }

    pub fn sync(&mut self, name: &str) {
        if let Some((_, content)) = self.unsynced.remove(name) {
            self.synced.insert(name.to_string(), content);
        }
    }

    pub fn read(&self, name: &str) -> Option<&V> {
        self.unsynced.get(name).map(|(_, content)| content).or_else(|| self.synced.get(name))
    }

    /// Returns the worst-case content if all machines lost power now.
    pub fn after_power_cut(&self, name: &str) -> Option<&V> {
        self.synced.get(name)
    }

    /// Cuts the power of a machine. Some of its unsynced files still reach the disk; returns the number of lost ones.
    pub fn crash(&mut self, machine: u64, random: &mut Rng) -> usize {
        let all = std::mem::take(&mut self.unsynced);
        let mut lost = 0;
        for (name, (writer, content)) in all {
            match writer == machine {
                true if random.bool() => drop(self.synced.insert(name, content)),
                true => lost += 1,
                false => drop(self.unsynced.insert(name, (writer, content))),
            }
        }
        lost
    }
}
