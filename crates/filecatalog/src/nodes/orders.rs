//! Orders for a disk: to fetch, to remove and to look for concrete files. An order is forgotten when its end is reported,
//! or after a while, because the next scan makes it again.

use api::StoredPart;
use ids::ConcreteId;
use rows::ConcreteRow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

/// Maximum number of fetches that a disk has at once, and of their bytes, except for one larger file.
const FETCHES_MAX: usize = 1000;
const FETCHED_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of removals and look-ups that wait for the next report.
const WAITING_MAX: usize = 20_000;
/// Maximum number of them in one answer.
const IN_ANSWER_MAX: usize = 5000;
/// Time after which an order whose end was not reported counts as lost.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Time for which a file that a disk could not fetch is not ordered from it again.
const FAILED_REST: Duration = Duration::from_secs(30);

/// Returns the message of a row.
pub(crate) fn part_of(row: &ConcreteRow) -> StoredPart {
    StoredPart { concrete: row.concrete, bytes: row.bytes, crc32c: row.crc32c }
}

/// A fetch.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    file: StoredPart,
    since: Instant,
    is_sent: bool,
}

/// A look at a file: at its length, or at all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Length(StoredPart),
    Whole(StoredPart),
}

impl Look {
    pub fn file(&self) -> StoredPart {
        match self {
            Self::Length(file) | Self::Whole(file) => *file,
        }
    }
}

/// The orders of a disk.
#[derive(Debug, Default)]
pub(crate) struct DiskOrders {
    fetches: BTreeMap<ConcreteId, Fetch>,
    /// Bytes of all fetches: a scan asks for them once for each file and disk.
    incoming_bytes: u64,
    failed: BTreeMap<ConcreteId, Instant>,
    removals: BTreeMap<ConcreteId, Option<Instant>>,
    looks: BTreeMap<ConcreteId, Look>,
}

/// Orders for the next answer.
#[derive(Debug, Default)]
pub(crate) struct TakenOrders {
    pub fetch: Vec<StoredPart>,
    pub remove: Vec<ConcreteId>,
    pub look: Vec<Look>,
}

impl DiskOrders {
    pub fn incoming_bytes(&self) -> u64 {
        self.incoming_bytes
    }

    fn end_fetch(&mut self, file: ConcreteId) {
        if let Some(ended) = self.fetches.remove(&file) {
            self.incoming_bytes = self.incoming_bytes.saturating_sub(ended.file.bytes);
        }
    }

    /// Returns whether one more fetch may be ordered.
    pub fn has_room_for(&self, file: &StoredPart) -> bool {
        let bytes = self.incoming_bytes.saturating_add(file.bytes);
        self.fetches.is_empty() || (self.fetches.len() < FETCHES_MAX && bytes <= FETCHED_BYTES_MAX)
    }

    /// Returns whether the disk failed to fetch the file a moment ago.
    pub fn failed_lately(&self, file: ConcreteId, now: Instant) -> bool {
        self.failed.get(&file).is_some_and(|since| now.saturating_duration_since(*since) < FAILED_REST)
    }

    pub fn fetches(&self, file: ConcreteId) -> bool {
        self.fetches.contains_key(&file)
    }

    pub fn fetched_files(&self) -> impl Iterator<Item = ConcreteId> {
        self.fetches.keys().copied()
    }

    pub fn removes(&self, file: ConcreteId) -> bool {
        self.removals.contains_key(&file)
    }

    pub fn fetch(&mut self, file: StoredPart, now: Instant) {
        if let Entry::Vacant(vacant) = self.fetches.entry(file.concrete) {
            vacant.insert(Fetch { file, since: now, is_sent: false });
            self.incoming_bytes = self.incoming_bytes.saturating_add(file.bytes);
        }
    }

    /// Orders a removal; false if too many are waiting.
    pub fn remove(&mut self, file: ConcreteId) -> bool {
        if self.removals.len() >= WAITING_MAX {
            return false;
        }
        self.removals.entry(file).or_default();
        true
    }

    pub fn look(&mut self, look: Look) {
        if self.looks.len() < WAITING_MAX {
            self.looks.insert(look.file().concrete, look);
        }
    }

    /// Notes that an order has ended, or that the file is gone.
    pub fn has_ended(&mut self, file: ConcreteId) {
        self.end_fetch(file);
        self.removals.remove(&file);
        self.failed.remove(&file);
    }

    /// Notes that the file could not be fetched.
    pub fn has_failed(&mut self, file: ConcreteId, now: Instant) {
        self.end_fetch(file);
        self.failed.retain(|_, since| now.saturating_duration_since(*since) < FAILED_REST);
        if self.failed.len() < WAITING_MAX {
            self.failed.insert(file, now);
        }
    }

    /// Takes the orders that were not sent yet, and forgets those that were lost.
    pub fn take(&mut self, now: Instant) -> TakenOrders {
        let is_lost = |since: Instant| now.saturating_duration_since(since) >= FORGOTTEN_AFTER;
        let lost: Vec<ConcreteId> =
            self.fetches.iter().filter(|(_, fetch)| is_lost(fetch.since)).map(|(file, _)| *file).collect();
        lost.into_iter().for_each(|file| self.end_fetch(file));
        self.removals.retain(|_, sent| !sent.is_some_and(is_lost));
        let mut taken = TakenOrders::default();
        for fetch in self.fetches.values_mut().filter(|fetch| !fetch.is_sent).take(IN_ANSWER_MAX) {
            (fetch.is_sent, fetch.since) = (true, now);
            taken.fetch.push(fetch.file);
        }
        for (file, sent) in self.removals.iter_mut().filter(|(_, sent)| sent.is_none()).take(IN_ANSWER_MAX) {
            *sent = Some(now);
            taken.remove.push(*file);
        }
        while taken.look.len() < IN_ANSWER_MAX
            && let Some((_, file)) = self.looks.pop_first()
        {
            taken.look.push(file);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::{DiskOrders, FAILED_REST, FORGOTTEN_AFTER, Look};
    use api::StoredPart;
    use ids::ConcreteId;
    use std::time::Instant;

    #[test]
    fn orders_are_sent_once_and_end() {
        let now = Instant::now();
        let part = |number| StoredPart { concrete: ConcreteId(number), bytes: 300 << 20, crc32c: 0 };
        let mut orders = DiskOrders::default();
        assert!(orders.has_room_for(&part(1)));
        orders.fetch(part(1), now);
        assert!(!orders.has_room_for(&part(2)), "too many bytes at once");
        orders.remove(ConcreteId(3));
        orders.look(Look::Whole(part(4)));
        let taken = orders.take(now);
        assert_eq!(
            (taken.fetch, taken.remove, taken.look),
            (vec![part(1)], vec![ConcreteId(3)], vec![Look::Whole(part(4))])
        );
        assert!(
            orders.take(now).fetch.is_empty()
                && orders.fetches(ConcreteId(1))
                && orders.removes(ConcreteId(3))
        );
        orders.has_failed(ConcreteId(1), now);
        assert!(
            orders.failed_lately(ConcreteId(1), now)
                && !orders.failed_lately(ConcreteId(1), now + FAILED_REST)
        );
        orders.take(now + FORGOTTEN_AFTER);
        assert!(!orders.removes(ConcreteId(3)), "an order that never ended is made again");
        // Bytes of fetches count once, until they end, fail or are lost.
        orders.fetch(part(5), now);
        orders.fetch(part(5), now);
        assert_eq!(orders.incoming_bytes(), 300 << 20);
        orders.take(now + FORGOTTEN_AFTER);
        assert_eq!(orders.incoming_bytes(), 0);
    }
}
