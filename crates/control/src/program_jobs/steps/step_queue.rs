//! Planned steps of a job that have not begun.

use jobkind::Step;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Planned steps: the highest rank first, and among equals in the order of planning.
#[derive(Default)]
pub(super) struct StepQueue {
    steps: BTreeMap<(Reverse<u64>, u64), Step>,
    /// Number of steps that came so far.
    came: u64,
}

impl StepQueue {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn push(&mut self, rank: u64, step: Step) {
        self.came += 1;
        self.steps.insert((Reverse(rank), self.came), step);
    }

    /// Takes the first steps, of which at most `count_max` jobs run; only a flow may have more.
    pub fn take(&mut self, count_max: usize) -> Vec<Step> {
        let mut room = count_max;
        let first = std::iter::from_fn(|| {
            let (_, step) = (room > 0).then(|| self.steps.pop_first())??;
            room = room.saturating_sub(step.work.jobs());
            Some(step)
        });
        first.collect()
    }

    /// Takes all steps for which `is_it` holds.
    pub fn take_if(&mut self, is_it: impl Fn(&Step) -> bool) -> Vec<Step> {
        self.steps.extract_if(.., |_, step| is_it(step)).map(|(_, step)| step).collect()
    }

    pub fn clear(&mut self) {
        self.steps.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::StepQueue;
    use ids::StepNumber;
    use jobkind::{Step, StepWork};
    use std::sync::Arc;

    #[test]
    fn highest_rank_is_taken_first() {
        let mut queue = StepQueue::default();
        for (number, rank) in [1, 3, 0, 3, 2].into_iter().enumerate() {
            let (number, work) = (StepNumber(number as u32), StepWork::Program(Arc::default()));
            queue.push(rank, Step { number, name: "step".into(), work, beside: Vec::new() });
        }
        let numbers = |steps: Vec<Step>| steps.iter().map(|step| step.number.0).collect::<Vec<_>>();
        assert_eq!(numbers(queue.take(2)), [1, 3]);
        assert_eq!(numbers(queue.take_if(|step| step.number.0 == 0)), [0]);
        assert_eq!(numbers(queue.take(9)), [4, 2]);
        assert!(queue.is_empty());
    }
}
