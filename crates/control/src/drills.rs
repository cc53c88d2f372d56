//! Fault drills: an administrator injects a fault into a node that was started for this purpose, and waits for the
//! node's report. Nothing of a drill is stored: when a server ends, its drills are lost, and the caller must ask again.

use crate::interface::{ControlError, Moment, Outbox, Reply};
use crate::job::Jobs;
use crate::membership::Fleet;
use api::control::NodeOrder;
use api::drill::{DRILL_JOB_PREFIX, DrillFault, DrillNews, DrillOutcome};
use ids::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of faults whose outcome is not reported yet.
const STRIKES_MAX: usize = 64;
/// Timeout for the report of a node. A working node answers at once; the timeout must end before the caller gives up.
const UNANSWERED_MAX: Duration = Duration::from_secs(8);
/// Longest text of a node that is passed on, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Faults without a reported outcome, by name.
#[derive(Default)]
pub(crate) struct Drills(BTreeMap<String, Strike>);

struct Strike {
    node: NodeId,
    since: Moment,
    reply: Reply<DrillOutcome>,
}

impl Drills {
    /// Fails the drills of a lost node.
    pub fn node_lost(&mut self, node: NodeId, outbox: &mut Outbox) {
        self.give_up(outbox, |strike| strike.node == node);
    }

    /// Fails the drills whose timeout has passed.
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

/// A fault that an administrator injects into a node.
pub struct NewStrike {
    /// Unique name of the fault.
    pub name: String,
    /// Name or number of the node.
    pub node: String,
    pub fault: DrillFault,
}

/// Orders a fault. The caller is answered when the node reports.
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

/// Resolves the node of a fault. Returns an error if the fault would damage a job that is not part of a drill, or would
/// kill the last working node.
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
        if !known.spec().name.starts_with(DRILL_JOB_PREFIX) {
            return Err(ControlError::NotOfDrill { job });
        }
    }
    if drills.0.len() >= STRIKES_MAX {
        return Err(ControlError::TooManyStrikes { strikes_max: STRIKES_MAX });
    }
    Ok(node)
}

/// Handles a node's report on the outcome of a fault.
pub(crate) fn struck(drills: &mut Drills, outbox: &mut Outbox, node: NodeId, news: DrillNews) {
    // A node may report only its own faults.
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
