//! Turns of attempts. On one machine a node begins more attempts than it has slots while programs are short, so that the end
//! of one program (its outputs reach the disk, the server records it) and the start of the next overlap. The gate lets as
//! many of them run programs at once as there are slots, in the order in which they came.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Programs that run for longer gain nothing from an early start.
const SHORT: Duration = Duration::from_millis(50);
/// Divisor for the weight of one attempt in the usual time.
const ONE_OF: u32 = 8;
/// Interval at which a waiting attempt looks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Waiting {
    free: u32,
    /// Tickets of the attempts that wait, in order.
    line: VecDeque<u64>,
    next_ticket: u64,
    /// Usual time of a turn; None before the first.
    usual: Option<Duration>,
    /// Slots whose threads have not ended.
    slots_left: u32,
}

/// The gate of a node.
#[derive(Debug)]
pub(crate) struct RunGate {
    slots: u32,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The turn of an attempt, which ends when this is dropped.
pub(crate) struct Turn<'a> {
    gate: &'a RunGate,
    taken: u32,
    began: Instant,
}

impl RunGate {
    pub fn new(slots: u32) -> Self {
        let (line, next_ticket, usual) = (VecDeque::new(), 0, None);
        let waiting = Waiting { free: slots, line, next_ticket, usual, slots_left: slots };
        Self { slots, waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of an attempt that takes this number of slots. None if it is cancelled before.
    pub fn enter(&self, wanted: u32, cancelled: &AtomicBool) -> Option<Turn<'_>> {
        // An attempt of a job that was planned for more slots takes all.
        let taken = wanted.min(self.slots);
        let mut waiting = self.lock();
        let ticket = waiting.next_ticket;
        waiting.next_ticket += 1;
        waiting.line.push_back(ticket);
        while waiting.line.front() != Some(&ticket) || waiting.free < taken {
            if cancelled.load(Ordering::Relaxed) {
                waiting.line.retain(|other| *other != ticket);
                self.changed.notify_all();
                return None;
            }
            let woken = self.changed.wait_timeout(waiting, LOOK_EVERY);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.line.pop_front();
        waiting.free -= taken;
        if !waiting.line.is_empty() {
            self.changed.notify_all();
        }
        Some(Turn { gate: self, taken, began: Instant::now() })
    }

    /// Waits until programs are short, so that a place may ask for an attempt. Returns false when all slots have ended.
    pub fn wait_for_short_programs(&self) -> bool {
        let asks_not =
            |waiting: &mut Waiting| waiting.slots_left > 0 && waiting.usual.is_none_or(|usual| usual > SHORT);
        let waiting = self.changed.wait_while(self.lock(), asks_not).unwrap_or_else(PoisonError::into_inner);
        waiting.slots_left > 0
    }

    /// Returns the life of the thread of a slot. Places end with the last of them.
    pub fn slot(&self) -> SlotLife<'_> {
        SlotLife(self)
    }
}

/// The life of a thread, which ends when this is dropped, also by a panic.
pub(crate) struct SlotLife<'a>(&'a RunGate);

impl Drop for SlotLife<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.slots_left = waiting.slots_left.saturating_sub(1);
        self.0.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let mut waiting = self.gate.lock();
        waiting.free += self.taken;
        let usual = waiting.usual.map_or(took, |usual| (usual * (ONE_OF - 1) + took) / ONE_OF);
        waiting.usual = Some(usual);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{RunGate, SHORT};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread::scope;

    #[test]
    fn no_more_run_than_slots() {
        let (gate, goes_on, running) = (RunGate::new(3), AtomicBool::new(false), AtomicU32::new(0));
        scope(|scope| {
            for number in 0..12_u32 {
                let (gate, goes_on, running) = (&gate, &goes_on, &running);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let wanted = number % 3 + 1;
                        let turn = gate.enter(wanted, goes_on).expect("nothing is cancelled");
                        let before = running.fetch_add(wanted, Ordering::SeqCst);
                        assert!(before + wanted <= 3, "{before} and {wanted}");
                        running.fetch_sub(wanted, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        let waiting = gate.lock();
        assert_eq!((waiting.free, waiting.line.len()), (3, 0));
    }

    #[test]
    fn cancelled_attempts_leave_the_line() {
        let (gate, goes_on, cancelled) = (RunGate::new(1), AtomicBool::new(false), AtomicBool::new(true));
        let turn = gate.enter(9, &goes_on).expect("the gate is free");
        assert!(gate.enter(1, &cancelled).is_none());
        drop(turn);
        assert!(gate.enter(1, &goes_on).is_some());
        assert!(gate.lock().line.is_empty());
    }

    #[test]
    fn places_wait_while_programs_are_long() {
        let gate = RunGate::new(1);
        let goes_on = AtomicBool::new(false);
        drop(gate.enter(1, &goes_on));
        assert!(gate.wait_for_short_programs());
        gate.lock().usual = Some(SHORT * 2);
        scope(|scope| {
            let waits = scope.spawn(|| gate.wait_for_short_programs());
            drop(gate.slot());
            assert!(!waits.join().unwrap(), "no slot is left");
        });
    }
}
