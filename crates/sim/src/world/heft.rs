//! Measures for the time of a workflow: two lower bounds, and HEFT (Topcuoglu, Hariri and Wu, 2002), which knows all
//! times in advance. All cores are equal, and the transfers of a step are part of its time, so the costs of HEFT between
//! processors are zero.

use super::DagStep;

/// Returns the time of the longest chain of steps: a lower bound.
pub fn critical_path_s(steps: &[DagStep]) -> f64 {
    upward_ranks(steps).into_iter().fold(0.0, f64::max)
}

/// Returns the time in which these cores do all work without a pause: a lower bound.
pub fn work_s(steps: &[DagStep], cores: u32) -> f64 {
    steps.iter().map(|step| step.seconds).sum::<f64>() / f64::from(cores)
}

/// Returns the time of the schedule that HEFT makes: each step, in the order of the longest chains that begin with it,
/// takes the gap of a core in which it ends first. Panics if steps wait for each other.
pub fn heft_s(steps: &[DagStep], cores: u32) -> f64 {
    let ranks = upward_ranks(steps);
    let mut order = order(steps);
    // Stable: a step of no time stays behind those that it waits for.
    order.sort_by(|left, right| ranks[*right].total_cmp(&ranks[*left]));
    let mut ends = vec![0.0_f64; steps.len()];
    let mut cores = vec![Core::default(); cores as usize];
    for index in order {
        let step = &steps[index];
        let ready_s = step.before().map(|before| ends[before]).fold(0.0, f64::max);
        let begin_s = |core: &Core| core.first_gap_s(ready_s, step.seconds);
        let begins = cores.iter().map(begin_s).enumerate();
        let Some((best, begins_s)) = begins.min_by(|left, right| left.1.total_cmp(&right.1)) else { break };
        ends[index] = begins_s + step.seconds;
        cores[best].takes(begins_s, ends[index]);
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// The busy times of a core, in order.
#[derive(Clone, Default)]
struct Core {
    busy: Vec<(f64, f64)>,
}

impl Core {
    fn first_gap_s(&self, ready_s: f64, seconds: f64) -> f64 {
        let mut begins_s = ready_s;
        for (begin, end) in &self.busy {
            if begins_s + seconds <= *begin {
                break;
            }
            begins_s = begins_s.max(*end);
        }
        begins_s
    }

    fn takes(&mut self, begins_s: f64, ends_s: f64) {
        let place = self.busy.partition_point(|(begin, _)| *begin < begins_s);
        self.busy.insert(place, (begins_s, ends_s));
    }
}

/// Returns for each step the time of the longest chain that begins with it.
fn upward_ranks(steps: &[DagStep]) -> Vec<f64> {
    let mut ranks: Vec<f64> = steps.iter().map(|step| step.seconds).collect();
    for index in order(steps).into_iter().rev() {
        for before in steps[index].before() {
            ranks[before] = ranks[before].max(steps[before].seconds + ranks[index]);
        }
    }
    ranks
}

/// Returns the positions of steps in an order in which they can run one by one.
fn order(steps: &[DagStep]) -> Vec<usize> {
    let mut readers = vec![Vec::new(); steps.len()];
    for (index, step) in steps.iter().enumerate() {
        step.before().for_each(|before| readers[before].push(index));
    }
    let mut waits: Vec<usize> = steps.iter().map(|step| step.before().count()).collect();
    let mut order: Vec<usize> = (0..steps.len()).filter(|step| waits[*step] == 0).collect();
    let mut place = 0;
    while let Some(step) = order.get(place).copied() {
        place += 1;
        for reader in &readers[step] {
            waits[*reader] -= 1;
            if waits[*reader] == 0 {
                order.push(*reader);
            }
        }
    }
    assert_eq!(order.len(), steps.len(), "steps wait for each other");
    order
}

#[cfg(test)]
mod tests {
    use super::{critical_path_s, heft_s, work_s};
    use crate::world::DagStep;

    #[track_caller]
    fn check(steps: &[(f64, &[u32])], cores: u32, expected: [f64; 3]) {
        let step = |(seconds, after): &(f64, &[u32])| DagStep {
            seconds: *seconds,
            after: after.to_vec(),
            ..DagStep::default()
        };
        let steps: Vec<DagStep> = steps.iter().map(step).collect();
        assert_eq!([critical_path_s(&steps), work_s(&steps, cores), heft_s(&steps, cores)], expected);
    }

    #[test]
    fn longest_chains_begin_first() {
        // The chain of 2 and 5 begins beside the first long step, and the short ones fill the gaps.
        check(&[(4.0, &[]), (4.0, &[]), (2.0, &[]), (5.0, &[2])], 2, [7.0, 7.5, 8.0]);
        check(&[(1.0, &[]), (3.0, &[0]), (2.0, &[0]), (1.0, &[1, 2])], 2, [5.0, 3.5, 5.0]);
        check(&[(0.0, &[1]), (3.0, &[]), (0.0, &[0])], 1, [3.0, 3.0, 3.0]);
    }

    #[test]
    fn later_steps_fill_gaps() {
        // The core that waits for step 1 until 4 s runs step 3 meanwhile.
        check(&[(4.0, &[]), (1.0, &[]), (6.0, &[0, 1]), (3.0, &[])], 2, [10.0, 7.0, 10.0]);
    }
}
