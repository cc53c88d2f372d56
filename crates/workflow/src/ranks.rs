//! Upward ranks of steps (HEFT: Topcuoglu, Hariri and Wu, 2002): the time from the begin of a step to the end of the
//! workflow, if cores are never short. The step with the highest rank delays the end most if it waits.
//!
//! Times come from the last runs of the steps, also of those that must run again. A step without a known time counts as
//! the median of the others. If none is known, all are equal, so the longest chain of steps goes first.

use crate::PlannedWorkflow;
use ids::StepNumber;
use jobkind::KnownRuns;

/// Time of a step if no time is known.
const UNKNOWN_MS: u64 = 1_000;
/// Shortest time of a step, so that a longer chain of short steps has a higher rank.
const STEP_MS_MIN: u64 = 1;

impl PlannedWorkflow {
    /// Returns the rank of each step in milliseconds. Costs O(steps + dependencies).
    pub(crate) fn ranks(&self, known: &KnownRuns) -> Vec<u64> {
        let times = self.times_ms(known);
        let time = |step: StepNumber| times[step.0 as usize];
        let mut ranks = vec![0_u64; self.count()];
        for step in self.in_order().into_iter().rev() {
            let planned = self.step_at(step);
            let after = planned.readers.iter().map(|reader| {
                // Readers of its stream, which are in order, run at the same time.
                let is_beside = planned.stream_readers.binary_search(reader).is_ok();
                let beside_ms = if is_beside { time(*reader).min(time(step)) } else { 0 };
                ranks[reader.0 as usize] - beside_ms
            });
            let after = after.max().unwrap_or(0);
            ranks[step.0 as usize] = time(step).saturating_add(after);
        }
        ranks
    }

    /// Returns the expected time of each step.
    fn times_ms(&self, known: &KnownRuns) -> Vec<u64> {
        let recorded = |step| Some(known.recorded.get(&step)?.run.ran_ms.max(STEP_MS_MIN));
        let recorded: Vec<Option<u64>> = self.numbers().map(recorded).collect();
        let mut all: Vec<u64> = recorded.iter().flatten().copied().collect();
        let middle = all.len() / 2;
        let unknown_ms = match all.is_empty() {
            true => UNKNOWN_MS,
            false => *all.select_nth_unstable(middle).1,
        };
        recorded.into_iter().map(|ran_ms| ran_ms.unwrap_or(unknown_ms)).collect()
    }
}
