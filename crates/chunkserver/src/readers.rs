//! Attempts that read runs from their files, and those that have read everything: when a disk fails, the latter
//! continue.

use crate::ChunkServer;
use ids::{AttemptKey, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered scans of finished attempts on other nodes: this node does not learn when such an
/// attempt ends. If a scan is dropped too early, its attempt is stopped without need.
const SERVED_MAX: usize = 4096;

/// Set when a reader needs nothing more from the file of a run.
pub type AllRead = Arc<AtomicBool>;

/// The runs that an attempt reads from files here.
struct Entry {
    attempt: AttemptKey,
    runs: Vec<(RunId, AllRead)>,
    is_served: bool,
}

/// By the order of their start.
#[derive(Default)]
struct Entries {
    next: u64,
    by_number: BTreeMap<u64, Entry>,
    served: usize,
}

/// All readers of a job here.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Entries>);

/// A reading attempt; dropping this ends the reading, unless everything was served.
pub struct Reading {
    readers: Arc<Readers>,
    number: u64,
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, attempt: AttemptKey, runs: Vec<(RunId, AllRead)>) -> Reading {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, Entry { attempt, runs, is_served: false });
        Reading { readers: Arc::clone(self), number }
    }

    fn have_read(&self, lost: &BTreeSet<RunId>) -> BTreeMap<AttemptKey, BTreeSet<RunId>> {
        let mut read: BTreeMap<AttemptKey, BTreeSet<RunId>> = BTreeMap::new();
        let mut unread: BTreeSet<(AttemptKey, RunId)> = BTreeSet::new();
        for entry in self.lock().by_number.values() {
            for (run, all_read) in entry.runs.iter().filter(|(run, _)| lost.contains(run)) {
                if all_read.load(Ordering::Acquire) {
                    read.entry(entry.attempt).or_default().insert(*run);
                } else {
                    unread.insert((entry.attempt, *run));
                }
            }
        }
        // A second read of the same run still needs the file.
        for (attempt, run) in unread {
            if let Some(runs) = read.get_mut(&attempt) {
                runs.remove(&run);
            }
        }
        read.retain(|_, runs| !runs.is_empty());
        read
    }
}

impl Reading {
    /// Records that everything is in memory, on the way to a reader on another node: the scan is remembered.
    pub fn is_served(self) {
        let mut entries = self.readers.lock();
        if let Some(entry) = entries.by_number.get_mut(&self.number) {
            entry.is_served = true;
            entries.served += 1;
        }
        if entries.served > SERVED_MAX {
            let oldest = entries.by_number.iter().find(|(_, entry)| entry.is_served);
            let oldest = oldest.map(|(number, _)| *number);
            if oldest.is_some_and(|oldest| entries.by_number.remove(&oldest).is_some()) {
                entries.served -= 1;
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut entries = self.readers.lock();
        if entries.by_number.get(&self.number).is_some_and(|entry| !entry.is_served) {
            entries.by_number.remove(&self.number);
        }
    }
}

impl ChunkServer {
    /// Records that an attempt has opened these runs in files here, and reads them.
    pub fn begin_reading(&self, attempt: AttemptKey, runs: Vec<(RunId, AllRead)>) -> Reading {
        self.shared.readers.begin(attempt, runs)
    }

    /// Returns the attempts that need nothing more of some of these runs, and those runs.
    pub fn have_read(&self, lost: &BTreeSet<RunId>) -> BTreeMap<AttemptKey, BTreeSet<RunId>> {
        self.shared.readers.have_read(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::{AllRead, Readers, SERVED_MAX};
    use ids::{AttemptKey, AttemptNumber, JobId, NodeId, RunId, StageIndex, TaskIndex, TaskKey};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn attempt(task: u32) -> AttemptKey {
        let task = TaskKey { job: JobId(1), stage: StageIndex(3), task: TaskIndex(task) };
        AttemptKey { task, attempt: AttemptNumber(0) }
    }

    fn run(number: u64) -> RunId {
        RunId::on(NodeId(1), number)
    }

    fn mark(is_read: bool) -> AllRead {
        Arc::new(AtomicBool::new(is_read))
    }

    #[test]
    fn only_complete_reads_are_reported() {
        let readers = Arc::new(Readers::default());
        let late = mark(false);
        let first = readers.begin(attempt(0), vec![(run(0), mark(true)), (run(1), Arc::clone(&late))]);
        let second = readers.begin(attempt(1), vec![(run(0), mark(true)), (run(7), mark(true))]);
        let check = |expected: &[(u32, &[u64])]| {
            let told = readers.have_read(&BTreeSet::from([run(0), run(1)]));
            let runs = |runs: &[u64]| runs.iter().map(|number| run(*number)).collect::<BTreeSet<_>>();
            let expected: BTreeMap<_, _> =
                expected.iter().map(|(task, of)| (attempt(*task), runs(of))).collect();
            assert_eq!(told, expected);
        };
        check(&[(0, &[0]), (1, &[0])]);
        late.store(true, Ordering::Release);
        check(&[(0, &[0, 1]), (1, &[0])]);
        // The same again, from the beginning.
        let again = readers.begin(attempt(0), vec![(run(1), mark(false))]);
        check(&[(0, &[0]), (1, &[0])]);
        drop(again);
        drop(first);
        second.is_served();
        check(&[(1, &[0])]);
    }

    #[test]
    fn served_readers_are_forgotten_in_time() {
        let readers = Arc::new(Readers::default());
        let going_on = readers.begin(attempt(0), vec![(run(0), mark(true))]);
        for task in 1..=SERVED_MAX as u32 + 1 {
            readers.begin(attempt(task), vec![(run(0), mark(true))]).is_served();
        }
        let told = readers.have_read(&BTreeSet::from([run(0)]));
        assert_eq!(told.len(), SERVED_MAX + 1);
        assert!(told.contains_key(&attempt(0)) && !told.contains_key(&attempt(1)));
        drop(going_on);
    }
}
