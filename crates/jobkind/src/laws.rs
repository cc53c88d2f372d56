//! The laws of kinds, checked on a specification.

use crate::{FinishedSteps, NodeSize, STEPS_MAX, Step, StepPlan};
use ids::StepNumber;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of the largest node, which change at each end of a step.
const SLOTS: [u32; 5] = [8, 1, 3, 2, 5];

/// A law that a kind breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenLaw {
    #[error("two different steps have the number {0}")]
    NumberUsedTwice(StepNumber),
    #[error("{0} has no name")]
    Unnamed(StepNumber),
    #[error("there are more than {STEPS_MAX} steps")]
    TooManySteps,
    #[error("after a restart with {finished} finished steps, {step} is not returned")]
    ForgottenByRestart { step: StepNumber, finished: usize },
    #[error("after a restart with {finished} finished steps, {step} is returned too early")]
    EarlyAfterRestart { step: StepNumber, finished: usize },
    #[error("{0} is beside a step, and has begun or is in another pipeline too")]
    BesideTwice(StepNumber),
}

/// Ends all steps of a job, in the order that `choose` makes, and checks at each end that a restarted server would plan
/// the same steps, also if its largest node has another size. `choose` returns a number below its argument. Returns the
/// numbers of the steps in the order of their ends.
pub fn check(
    plan: &dyn StepPlan,
    mut choose: impl FnMut(usize) -> usize,
) -> Result<Vec<StepNumber>, BrokenLaw> {
    let (mut run, mut order, mut ends) = (Run::default(), Vec::new(), 0);
    run.begin(plan.first(size(ends)))?;
    loop {
        run.restart(plan, size(ends + 1))?;
        if run.open.is_empty() {
            return Ok(order);
        }
        ends += 1;
        let number = run.open.swap_remove(choose(run.open.len()));
        let last: Vec<StepNumber> = run.steps[&number].numbers().collect();
        run.finished.extend(&last);
        order.extend(&last);
        let finished = FinishedSteps { all: &run.finished, last: &last, begun: &run.begun };
        let next = plan.next(&finished, size(ends));
        run.begin(next)?;
    }
}

fn size(ends: usize) -> NodeSize<'static> {
    NodeSize { slots: SLOTS[ends % SLOTS.len()], memory_bytes: u64::MAX, ..NodeSize::default() }
}

#[derive(Default)]
struct Run {
    /// The steps that have jobs.
    steps: BTreeMap<StepNumber, Step>,
    /// Those, and the steps beside them.
    begun: BTreeSet<StepNumber>,
    finished: BTreeSet<StepNumber>,
    open: Vec<StepNumber>,
}

impl Run {
    fn begin(&mut self, steps: Vec<Step>) -> Result<(), BrokenLaw> {
        for step in steps {
            let number = step.number;
            if step.name.is_empty() {
                return Err(BrokenLaw::Unnamed(number));
            }
            match self.steps.get(&number) {
                Some(same) if *same == step => continue,
                Some(_) => return Err(BrokenLaw::NumberUsedTwice(number)),
                None => {}
            }
            if let Some(twice) = step.numbers().find(|number| !self.begun.insert(*number)) {
                return Err(BrokenLaw::BesideTwice(twice));
            }
            self.steps.insert(number, step);
            self.open.push(number);
        }
        match self.begun.len() > STEPS_MAX {
            true => Err(BrokenLaw::TooManySteps),
            false => Ok(()),
        }
    }

    /// Compares the begun steps with those that a restarted server begins if none of the open ones is known to it. They
    /// may be in other pipelines.
    fn restart(&self, plan: &dyn StepPlan, size: NodeSize) -> Result<(), BrokenLaw> {
        let finished = FinishedSteps { all: &self.finished, last: &[], begun: &self.finished };
        let again: Vec<Step> = plan.first(size).into_iter().chain(plan.next(&finished, size)).collect();
        let covered: BTreeSet<StepNumber> = again.iter().flat_map(Step::numbers).collect();
        let count = self.finished.len();
        if let Some(step) = self.open.iter().find(|step| !covered.contains(step)) {
            return Err(BrokenLaw::ForgottenByRestart { step: *step, finished: count });
        }
        match again.iter().find(|step| !self.begun.contains(&step.number)) {
            Some(step) => Err(BrokenLaw::EarlyAfterRestart { step: step.number, finished: count }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BrokenLaw, check};
    use crate::{FinishedSteps, NodeSize, Step, StepPlan, StepWork};
    use ids::StepNumber;
    use std::sync::Arc;

    fn step(number: u32, name: &str) -> Step {
        let work = StepWork::Program(Arc::default());
        Step { number: StepNumber(number), name: name.into(), work, beside: Vec::new() }
    }

    /// A chain of steps 0, 1, 2 with one flaw.
    struct Chain {
        flaw: &'static str,
    }

    impl StepPlan for Chain {
        fn first(&self, _: NodeSize) -> Vec<Step> {
            vec![step(0, if self.flaw == "unnamed" { "" } else { "a" })]
        }

        fn next(&self, finished: &FinishedSteps<'_>, _: NodeSize) -> Vec<Step> {
            let done = finished.all.len() as u32;
            match (self.flaw, finished.last) {
                ("forgets", []) => Vec::new(),
                ("hurries", []) if done == 1 => vec![step(1, "b"), step(2, "c")],
                ("repeats", [_]) => vec![step(0, "other")],
                ("joins", [_]) => vec![Step { beside: vec![StepNumber(0)], ..step(1, "b") }],
                _ if done < 3 => vec![step(done, ["a", "b", "c"][done as usize])],
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn each_broken_law_is_found() {
        let check = |flaw| check(&Chain { flaw }, |_| 0);
        let number = StepNumber;
        assert_eq!(check(""), Ok(vec![number(0), number(1), number(2)]));
        assert_eq!(check("unnamed"), Err(BrokenLaw::Unnamed(number(0))));
        assert_eq!(check("repeats"), Err(BrokenLaw::NumberUsedTwice(number(0))));
        assert_eq!(check("joins"), Err(BrokenLaw::BesideTwice(number(0))));
        assert_eq!(check("forgets"), Err(BrokenLaw::ForgottenByRestart { step: number(1), finished: 1 }));
        assert_eq!(check("hurries"), Err(BrokenLaw::EarlyAfterRestart { step: number(2), finished: 1 }));
    }
}
