//! Prefetched orders, which a node has before a slot asks.
//!
//! The end of a short program and the next order cost a request and a transaction of the server, during which a slot is
//! idle. A node whose recent attempts were short therefore fetches a few more orders than it has slots. An order that
//! waits too long, because another attempt was longer, is given back: it may run on another node.

use crate::link::messages::Order;
use api::control::PLACES_MAX;
use ids::{AttemptKey, JobId};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Longer attempts are fetched one by one.
const SHORT: Duration = Duration::from_millis(50);
/// Target number of waiting orders: as many as the slots finish in this time.
const AHEAD_FOR: Duration = Duration::from_millis(20);
/// Maximum number of waiting orders, so that there are numbers for running ones too.
const WAITING_MAX: u32 = PLACES_MAX / 4;
/// Time after which a waiting order is given back.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(100);
/// Divisor for the weight of one attempt in the usual time.
const ONE_OF: u32 = 8;

/// Waiting orders, and the usual time of an attempt, which determines their target number.
pub(crate) struct OrderPrefetch {
    slots: u32,
    /// Oldest first, with the time of arrival.
    waiting: VecDeque<(Instant, Order)>,
    /// Usual time of an attempt; None before the first.
    usual: Option<Duration>,
}

impl OrderPrefetch {
    pub fn new(slots: u32) -> Self {
        Self { slots, waiting: VecDeque::new(), usual: None }
    }

    /// Records the run time of an ended attempt.
    pub fn ran_for(&mut self, took: Duration) {
        let usual = self.usual.map_or(took, |usual| (usual * (ONE_OF - 1) + took) / ONE_OF);
        self.usual = Some(usual);
    }

    pub fn arrived(&mut self, now: Instant, order: Order) {
        self.waiting.push_back((now, order));
    }

    /// Takes the next order to run.
    pub fn next(&mut self) -> Option<Order> {
        self.waiting.pop_front().map(|(_, order)| order)
    }

    /// Takes the orders that have waited too long. From now on fewer are fetched.
    pub fn overdue(&mut self, now: Instant) -> Vec<AttemptKey> {
        let late = self.waiting.iter().take_while(|(came, _)| *came + GIVE_BACK_AFTER <= now).count();
        if late > 0 {
            self.usual = self.usual.max(Some(GIVE_BACK_AFTER));
        }
        self.waiting.drain(..late).map(|(_, order)| order.attempt).collect()
    }

    /// Returns the time at which the next order is overdue.
    pub fn overdue_at(&self) -> Option<Instant> {
        self.waiting.front().map(|(came, _)| *came + GIVE_BACK_AFTER)
    }

    /// Takes the orders of a job.
    pub fn remove_job(&mut self, job: JobId) -> Vec<AttemptKey> {
        let waiting = std::mem::take(&mut self.waiting);
        let (gone, kept) = waiting.into_iter().partition(|(_, order)| order.attempt.task.job == job);
        self.waiting = kept;
        let gone: VecDeque<(Instant, Order)> = gone;
        gone.into_iter().map(|(_, order)| order.attempt).collect()
    }

    /// Removes an order. Returns whether it was there.
    pub fn remove(&mut self, attempt: AttemptKey) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, order)| order.attempt != attempt);
        self.waiting.len() < before
    }

    /// Returns whether slots find enough orders when their attempts end.
    pub fn has_enough(&self) -> bool {
        let waiting = self.waiting.len() as u32;
        waiting > 0 && waiting * 2 >= self.depth()
    }

    /// Returns numbers of places for further orders, without the taken ones.
    pub fn places(&self, taken: &BTreeSet<u32>) -> Vec<u32> {
        let room = self.depth().saturating_sub(self.waiting.len() as u32);
        let numbers = self.slots..self.slots.saturating_add(PLACES_MAX);
        numbers.filter(|number| !taken.contains(number)).take(room as usize).collect()
    }

    /// Returns the target number of waiting orders.
    fn depth(&self) -> u32 {
        match self.usual {
            Some(usual) if usual <= SHORT => {
                let in_time = AHEAD_FOR.as_nanos() * u128::from(self.slots) / usual.as_nanos().max(1);
                u32::try_from(in_time).unwrap_or(u32::MAX).clamp(1, WAITING_MAX)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Task;
    use ids::{AttemptNumber, StageIndex, TaskIndex, TaskKey};

    fn order(job: i64) -> Order {
        let task = TaskKey { job: JobId(job), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        Order { attempt, task: Task::Run(Box::default()) }
    }

    fn with_usual(took: Duration) -> OrderPrefetch {
        let mut prefetch = OrderPrefetch::new(4);
        prefetch.ran_for(took);
        prefetch
    }

    #[test]
    fn node_asks_ahead_by_its_recent_rate() {
        let asked = |took| with_usual(took).places(&BTreeSet::new());
        assert!(OrderPrefetch::new(4).places(&BTreeSet::new()).is_empty());
        assert!(asked(Duration::from_millis(51)).is_empty());
        assert_eq!(asked(Duration::from_millis(20)), [4, 5, 6, 7]);
        assert_eq!(asked(Duration::from_millis(50)), [4]);
        assert_eq!(asked(Duration::ZERO).len() as u32, WAITING_MAX);
        let taken = BTreeSet::from([0, 1, 5]);
        assert_eq!(with_usual(Duration::from_millis(20)).places(&taken), [4, 6, 7, 8]);
    }

    #[test]
    fn long_attempts_end_and_short_ones_resume_asking() {
        let mut prefetch = with_usual(Duration::from_millis(1));
        prefetch.ran_for(Duration::from_secs(3600));
        assert!(prefetch.places(&BTreeSet::new()).is_empty());
        let mut short = 0;
        while prefetch.places(&BTreeSet::new()).is_empty() {
            prefetch.ran_for(Duration::from_millis(1));
            short += 1;
        }
        assert!((10..200).contains(&short), "{short}");
    }

    #[test]
    fn waiting_orders_count_and_leave_in_order() {
        let mut prefetch = with_usual(Duration::from_millis(20));
        let now = Instant::now();
        assert!(!prefetch.has_enough());
        for job in 1..=3 {
            prefetch.arrived(now, order(job));
        }
        assert!(prefetch.has_enough());
        assert_eq!(prefetch.places(&BTreeSet::new()), [4]);
        assert_eq!(prefetch.remove_job(JobId(2)), [order(2).attempt]);
        prefetch.arrived(now, order(4));
        assert!(prefetch.remove(order(4).attempt) && !prefetch.remove(order(4).attempt));
        assert_eq!(prefetch.next(), Some(order(1)));
        assert_eq!(prefetch.next(), Some(order(3)));
        assert_eq!(prefetch.next(), None);
    }

    #[test]
    fn orders_that_wait_too_long_are_returned() {
        let mut prefetch = with_usual(Duration::from_millis(1));
        let now = Instant::now();
        assert_eq!(prefetch.overdue_at(), None);
        prefetch.arrived(now, order(1));
        prefetch.arrived(now + Duration::from_millis(1), order(2));
        assert_eq!(prefetch.overdue(now), []);
        assert_eq!(prefetch.overdue_at(), Some(now + GIVE_BACK_AFTER));
        assert_eq!(prefetch.overdue(now + GIVE_BACK_AFTER), [order(1).attempt]);
        // The attempts here are longer than expected.
        assert!(prefetch.places(&BTreeSet::new()).is_empty());
        assert_eq!(prefetch.next(), Some(order(2)));
    }
}
