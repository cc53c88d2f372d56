//! Fault drills: an administrator has something done to a node that was started for it, and waits until the node says what
//! became of it. Nothing of that is stored: what a server that ends had ordered is answered by nobody, and asked for again.

use crate::interface::{ControlError, Moment, Outbox, Reply};
use crate::job::Jobs;
use crate::membership::Fleet;
use api::control::NodeOrder;
use api::drill::{DRILL_JOB_PREFIX, DrillFault, DrillNews, DrillOutcome};
use ids::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Faults at once of which the node has not said yet what became of them.
const STRIKES_MAX: usize = 64;
/// A node that works answers at once; the answer must come before the caller gives up.
const UNANSWERED_MAX: Duration = Duration::from_secs(8);
/// Longest text of a node that is passed on.
const TEXT_BYTES_MAX: usize = 4096;

/// Faults that were ordered and are not answered, by name.
#[derive(Default)]
pub(crate) struct Drills(BTreeMap<String, Strike>);

struct Strike {
    node: NodeId,
    since: Moment,
    reply: Reply<DrillOutcome>,
}

impl Drills {
    /// A node is gone, and what it was to do with it.
    pub fn node_lost(&mut self, node: NodeId, outbox: &mut Outbox) {
        self.give_up(outbox, |strike| strike.node == node);
    }

    /// Time has passed.
    pub fn tick(&mut self, outbox: &mut Outbox) {
        let now = outbox.moment();
        self.give_up(outbox, |strike| now.since(strike.since) > UNANSWERED_MAX);
    }

    fn give_up(&mut self, outbox: &mut Outbox, is_over: impl Fn(&Strike) -> bool) {
        let names: Vec<String> =
            self.0.iter().filter(|(_, strike)| is_over(strike)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(strike) = self.0.remove(&name) else { continue };
            outbox.answer(strike.reply, Err(ControlError::DrillUnanswered { node: strike.node }));
        }
    }
}

/// A fault that an administrator wants to strike a node.
pub struct NewStrike {
    /// A name that no other fault has.
    pub name: String,
    /// Name or number of the node.
    pub node: String,
    pub fault: DrillFault,
}

/// Orders a fault; the answer waits for the word of the node.
pub(crate) fn strike(
    drills: &mut Drills,
    fleet: &mut Fleet,
    jobs: &Jobs,
    outbox: &mut Outbox,
    new: NewStrike,
    reply: Reply<DrillOutcome>,
) {
    let NewStrike { name, node, fault } = new;
    let node = match check_fault(drills, fleet, jobs, &node, &fault) {
        Ok(node) => node,
        Err(error) => return outbox.answer(reply, Err(error)),
    };
    if let Some(known) = fleet.get_mut(node) {
        outbox.info(format!("a drill strikes {node}: {fault:?}"));
        known.order(NodeOrder::Drill { strike: name.clone(), fault });
    }
    drills.0.insert(name, Strike { node, since: outbox.moment(), reply });
}

/// Only what belongs to a drill is damaged, and the last node that works is not killed.
fn check_fault(
    drills: &Drills,
    fleet: &Fleet,
    jobs: &Jobs,
    name: &str,
    fault: &DrillFault,
) -> Result<NodeId, ControlError> {
    let node = fleet.named(name)?;
    if fault.ends_node() && fleet.takers(node).is_empty() {
        return Err(ControlError::LastNode { node });
    }
    if let Some(job) = fault.job() {
        let known = jobs.get(&job).ok_or(ControlError::UnknownJob { job })?;
        if !known.spec.name.starts_with(DRILL_JOB_PREFIX) {
            return Err(ControlError::NotOfDrill { job });
        }
    }
    if drills.0.len() >= STRIKES_MAX {
        return Err(ControlError::TooManyStrikes { strikes_max: STRIKES_MAX });
    }
    Ok(node)
}

/// A node tells the outcome of a fault.
pub(crate) fn struck(drills: &mut Drills, outbox: &mut Outbox, node: NodeId, news: DrillNews) {
    // Another node cannot speak for it.
    if drills.0.get(&news.strike).is_none_or(|strike| strike.node != node) {
        return;
    }
    let Some(strike) = drills.0.remove(&news.strike) else { return };
    let mut outcome = news.outcome;
    let (DrillOutcome::Struck { what: text }
    | DrillOutcome::NoVictim { why: text }
    | DrillOutcome::Refused { why: text }) = &mut outcome;
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    outbox.answer(strike.reply, Ok(outcome));
}
