//! The laws of kinds, checked on a specification.

use crate::{FinishedSteps, STEPS_MAX, Step, StepPlan};
use ids::StepNumber;
use std::collections::{BTreeMap, BTreeSet};

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
}

/// Ends all steps of a job, in the order that `choose` makes, and checks at each end that a restarted server would plan
/// the same steps. `choose` returns a number below its argument. Returns the numbers of the steps in the order of their
/// ends.
pub fn check(
    plan: &dyn StepPlan,
    mut choose: impl FnMut(usize) -> usize,
) -> Result<Vec<StepNumber>, BrokenLaw> {
    let (mut begun, mut finished, mut order) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let mut open = Vec::new();
    begin(plan.first(), &mut begun, &mut open)?;
    loop {
        restart(plan, &begun, &finished)?;
        if open.is_empty() {
            return Ok(order);
        }
        let last = open.swap_remove(choose(open.len()));
        finished.insert(last);
        order.push(last);
        begin(plan.next(&FinishedSteps { all: &finished, last: Some(last) }), &mut begun, &mut open)?;
    }
}

fn begin(
    steps: Vec<Step>,
    begun: &mut BTreeMap<StepNumber, Step>,
    open: &mut Vec<StepNumber>,
) -> Result<(), BrokenLaw> {
    for step in steps {
        let number = step.number;
        if step.name.is_empty() {
            return Err(BrokenLaw::Unnamed(number));
        }
        match begun.get(&number) {
            Some(same) if *same == step => {}
            Some(_) => return Err(BrokenLaw::NumberUsedTwice(number)),
            None => {
                begun.insert(number, step);
                open.push(number);
            }
        }
    }
    match begun.len() > STEPS_MAX {
        true => Err(BrokenLaw::TooManySteps),
        false => Ok(()),
    }
}

/// Compares the begun steps with those that a restarted server begins.
fn restart(
    plan: &dyn StepPlan,
    begun: &BTreeMap<StepNumber, Step>,
    finished: &BTreeSet<StepNumber>,
) -> Result<(), BrokenLaw> {
    let again = plan.first().into_iter().chain(plan.next(&FinishedSteps { all: finished, last: None }));
    let again: BTreeSet<StepNumber> = again.map(|step| step.number).collect();
    let count = finished.len();
    if let Some(step) = begun.keys().find(|step| !finished.contains(step) && !again.contains(step)) {
        return Err(BrokenLaw::ForgottenByRestart { step: *step, finished: count });
    }
    match again.iter().find(|step| !begun.contains_key(step)) {
        Some(step) => Err(BrokenLaw::EarlyAfterRestart { step: *step, finished: count }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{BrokenLaw, check};
    use crate::{FinishedSteps, Step, StepPlan, StepWork};
    use ids::StepNumber;
    use std::sync::Arc;

    fn step(number: u32, name: &str) -> Step {
        Step { number: StepNumber(number), name: name.into(), work: StepWork::Program(Arc::default()) }
    }

    /// A chain of steps 0, 1, 2 with one flaw.
    struct Chain {
        flaw: &'static str,
    }

    impl StepPlan for Chain {
        fn first(&self) -> Vec<Step> {
            vec![step(0, if self.flaw == "unnamed" { "" } else { "a" })]
        }

        fn next(&self, finished: &FinishedSteps<'_>) -> Vec<Step> {
            let done = finished.all.len() as u32;
            match (self.flaw, finished.last) {
                ("forgets", None) => Vec::new(),
                ("hurries", None) if done == 1 => vec![step(1, "b"), step(2, "c")],
                ("repeats", Some(_)) => vec![step(0, "other")],
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
        assert_eq!(check("forgets"), Err(BrokenLaw::ForgottenByRestart { step: number(1), finished: 1 }));
        assert_eq!(check("hurries"), Err(BrokenLaw::EarlyAfterRestart { step: number(2), finished: 1 }));
    }
}
