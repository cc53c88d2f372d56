//! Small parts that are read before they are asked for, many with one request. Threads share what was read.

use crate::read_parts::{PartReads, read_group};
use api::StoredPart;
use bytes::Bytes;
use filetransfer::TransferError;
use ids::ConcreteId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Longest part that travels with others.
pub(crate) const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Bytes and parts of one group.
pub(crate) const GROUP_BYTES_MAX: u64 = 8 << 20;
pub(crate) const GROUP_PARTS_MAX: usize = 1000;
/// Bytes that wait for their readers; what an interrupted get has already is never asked for.
const HELD_BYTES_MAX: u64 = 8 * GROUP_BYTES_MAX;

/// The state of a small part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// Nobody reads it, or it was taken: a copy of a file asks for it once more.
    Unread,
    /// A thread reads it.
    Reading,
    Held,
}

/// The parts that may be read ahead, in their order.
pub(crate) struct ReadAhead {
    order: Vec<StoredPart>,
    places: HashMap<ConcreteId, usize>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    parts: Vec<Ahead>,
    held: HashMap<usize, Bytes>,
    /// The held ones, the oldest first.
    oldest: VecDeque<usize>,
    held_bytes: u64,
    /// Behind the last part that was read ahead: no part before it is read ahead once more.
    next: usize,
}

impl State {
    /// Returns the parts that are read together with one: those behind it that nobody has read.
    fn claim(&mut self, order: &[StoredPart], first: usize) -> Vec<usize> {
        let mut group = vec![first];
        let mut bytes = order[first].bytes;
        for (index, part) in order.iter().enumerate().skip((first + 1).max(self.next)) {
            bytes += part.bytes;
            if group.len() == GROUP_PARTS_MAX || bytes > GROUP_BYTES_MAX {
                break;
            }
            group.push(index);
        }
        self.next = self.next.max(group.last().map_or(0, |last| last + 1));
        group.iter().for_each(|index| self.parts[*index] = Ahead::Reading);
        group
    }

    /// Holds a part, and lets go of the oldest ones beyond the bound.
    fn hold(&mut self, index: usize, bytes: Bytes) {
        self.held_bytes += bytes.len() as u64;
        self.parts[index] = Ahead::Held;
        self.held.insert(index, bytes);
        self.oldest.push_back(index);
        while self.held_bytes > HELD_BYTES_MAX
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.let_go(oldest);
        }
        // Parts that were taken leave their places here.
        if self.oldest.len() > 2 * self.held.len() + GROUP_PARTS_MAX {
            let held = &self.held;
            self.oldest.retain(|index| held.contains_key(index));
        }
    }

    fn let_go(&mut self, index: usize) -> Option<Bytes> {
        let bytes = self.held.remove(&index)?;
        self.held_bytes -= bytes.len() as u64;
        self.parts[index] = Ahead::Unread;
        Some(bytes)
    }
}

impl ReadAhead {
    /// `order`: all parts in the order in which they will be read; the large ones are left out.
    pub fn new(order: impl IntoIterator<Item = StoredPart>) -> Self {
        let mut places = HashMap::new();
        let mut small = Vec::new();
        for part in order.into_iter().filter(|part| part.bytes <= SMALL_BYTES_MAX) {
            places.entry(part.concrete).or_insert_with(|| {
                small.push(part);
                small.len() - 1
            });
        }
        let state = State {
            parts: vec![Ahead::Unread; small.len()],
            held: HashMap::new(),
            oldest: VecDeque::new(),
            held_bytes: 0,
            next: 0,
        };
        Self { order: small, places, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns whether a part is a small one of the order.
    pub fn has(&self, part: ConcreteId) -> bool {
        self.places.contains_key(&part)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of a part: reads it with those behind it, or waits for the thread that reads it.
    pub fn take(&self, reads: &PartReads, part: ConcreteId) -> Result<Bytes, TransferError> {
        let index = self.places[&part];
        let mut state = self.lock();
        loop {
            match state.parts[index] {
                Ahead::Held => {
                    if let Some(bytes) = state.let_go(index) {
                        return Ok(bytes);
                    }
                }
                Ahead::Reading => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Ahead::Unread => {
                    let group = state.claim(&self.order, index);
                    drop(state);
                    return self.read(reads, &group);
                }
            }
        }
    }

    /// Reads a group, and returns its first part.
    fn read(&self, reads: &PartReads, group: &[usize]) -> Result<Bytes, TransferError> {
        // Others read what this thread does not bring, also after a panic.
        let _claimed = Claimed { ahead: self, group };
        let parts: Vec<StoredPart> = group.iter().map(|index| self.order[*index]).collect();
        let own = std::cell::RefCell::new(None);
        let is_wanted = || own.borrow().is_none();
        let mut deliver = |part: ConcreteId, bytes: Bytes| {
            let index = self.places[&part];
            if index == group[0] {
                *own.borrow_mut() = Some(bytes);
                return;
            }
            // A part of a large piece must not keep all of it in memory.
            self.lock().hold(index, Bytes::copy_from_slice(&bytes));
            self.changed.notify_all();
        };
        let read = read_group(reads, &parts, &is_wanted, &mut deliver);
        match own.into_inner() {
            Some(bytes) => Ok(bytes),
            None => {
                read?;
                Err(TransferError::Store(format!("{} was not read", parts[0].concrete)))
            }
        }
    }
}

/// The parts that a thread reads. When it is dropped, those that are missing are open to others.
struct Claimed<'a> {
    ahead: &'a ReadAhead,
    group: &'a [usize],
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut state = self.ahead.lock();
        for index in self.group {
            if state.parts[*index] == Ahead::Reading {
                state.parts[*index] = Ahead::Unread;
            }
        }
        drop(state);
        self.ahead.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUP_PARTS_MAX, ReadAhead, SMALL_BYTES_MAX};
    use api::StoredPart;
    use bytes::Bytes;
    use ids::ConcreteId;

    fn part(concrete: i64, bytes: u64) -> StoredPart {
        StoredPart { concrete: ConcreteId(concrete), bytes, crc32c: 0 }
    }

    #[test]
    fn groups_are_bounded_and_claimed_once() {
        let order = (0..3000).map(|concrete| part(concrete, 10));
        let ahead = ReadAhead::new(order.chain([part(1, 10), part(9000, SMALL_BYTES_MAX + 1)]));
        assert!(ahead.has(ConcreteId(1)) && !ahead.has(ConcreteId(9000)));
        let mut state = ahead.lock();
        assert_eq!(state.claim(&ahead.order, 0), (0..GROUP_PARTS_MAX).collect::<Vec<_>>());
        // A part that was let go is read alone or with those that follow the last group.
        let again = state.claim(&ahead.order, 5);
        assert_eq!((again[0], again[1], again.len()), (5, 1000, GROUP_PARTS_MAX));
        let large = ReadAhead::new((0..20).map(|concrete| part(concrete, SMALL_BYTES_MAX)));
        assert_eq!(large.lock().claim(&large.order, 2), (2..10).collect::<Vec<_>>());
    }

    #[test]
    fn unclaimed_bytes_are_let_go() {
        let ahead = ReadAhead::new((0..100).map(|concrete| part(concrete, SMALL_BYTES_MAX)));
        let mut state = ahead.lock();
        let block = Bytes::from(vec![0; SMALL_BYTES_MAX as usize]);
        (0..100).for_each(|index| state.hold(index, block.clone()));
        assert_eq!((state.held.len(), state.let_go(0), state.let_go(99).is_some()), (64, None, true));
        assert_eq!(state.held_bytes, 63 << 20);
    }
}
