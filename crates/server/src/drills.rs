//! Fault drills: an administrator has something done to a node that was started for it, and waits until the node says what
//! became of it. Nothing of that is stored: what a server that ends had ordered is answered by nobody, and asked for again.

use crate::ServerError;
use crate::event_loop::{EventLoop, Reply};
use api::control::NodeOrder;
use api::drill::{DRILL_JOB_PREFIX, DrillFault, DrillNews, DrillOutcome};
use ids::{JobId, NodeId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Faults at once of which the node has not said yet what became of them.
const STRIKES_MAX: usize = 64;
/// A node that works answers at once; the answer must come before the caller gives up.
const UNANSWERED_MAX: Duration = Duration::from_secs(8);
/// Longest text of a node that is passed on.
const TEXT_BYTES_MAX: usize = 4096;

/// Requests about fault drills to the loop.
pub(crate) enum DrillRequest {
    Strike { node: String, fault: DrillFault, reply: Reply<DrillOutcome> },
    News { node: NodeId, news: DrillNews, reply: Reply<()> },
}

/// Faults that were ordered and are not answered, by name.
#[derive(Default)]
pub(crate) struct Drills(BTreeMap<String, Strike>);

struct Strike {
    node: NodeId,
    since: Instant,
    reply: Reply<DrillOutcome>,
}

impl Drills {
    /// A node is gone, and what it was to do with it.
    pub fn node_lost(&mut self, node: NodeId) {
        self.give_up(|strike| strike.node == node);
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        self.give_up(|strike| strike.since.elapsed() > UNANSWERED_MAX);
    }

    fn give_up(&mut self, is_over: impl Fn(&Strike) -> bool) {
        let names: Vec<String> =
            self.0.iter().filter(|(_, strike)| is_over(strike)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(strike) = self.0.remove(&name) else { continue };
            drop(strike.reply.send(Err(ServerError::DrillUnanswered { node: strike.node })));
        }
    }
}

impl EventLoop {
    pub fn drill(&mut self, request: DrillRequest) {
        match request {
            DrillRequest::Strike { node, fault, reply } => {
                if let Err((error, reply)) = self.strike(&node, fault, reply) {
                    drop(reply.send(Err(error)));
                }
            }
            DrillRequest::News { node, news, reply } => {
                let heard = self.fleet.heard(node, &news.incarnation).map(drop);
                if heard.is_ok() {
                    self.struck(node, news);
                }
                drop(reply.send(heard));
            }
        }
    }

    /// Orders a fault; the answer waits for what the node says. Gives the reply back with what forbids it.
    fn strike(
        &mut self,
        name: &str,
        fault: DrillFault,
        reply: Reply<DrillOutcome>,
    ) -> Result<(), (ServerError, Reply<DrillOutcome>)> {
        let node = match self.check_fault(name, &fault) {
            Ok(node) => node,
            Err(error) => return Err((error, reply)),
        };
        let strike = Uuid::new_v4().to_string();
        if let Some(known) = self.fleet.get_mut(node) {
            tracing::info!(%node, ?fault, "a drill has something done to a node");
            known.order(NodeOrder::Drill { strike: strike.clone(), fault });
        }
        self.drills.0.insert(strike, Strike { node, since: Instant::now(), reply });
        Ok(())
    }

    /// Only what belongs to a drill is damaged, and the last node that works is not killed.
    fn check_fault(&self, name: &str, fault: &DrillFault) -> Result<NodeId, ServerError> {
        let node = self.fleet.named(name)?;
        if fault.ends_node() && self.fleet.takers(node).is_empty() {
            return Err(ServerError::LastNode { node });
        }
        if let Some(job) = fault.job() {
            self.check_drill_job(job)?;
        }
        if self.drills.0.len() >= STRIKES_MAX {
            return Err(ServerError::TooManyStrikes { strikes_max: STRIKES_MAX });
        }
        Ok(node)
    }

    fn check_drill_job(&self, job: JobId) -> Result<(), ServerError> {
        let known = self.jobs.get(&job).ok_or(ServerError::UnknownJob { job })?;
        match known.run.spec.name.starts_with(DRILL_JOB_PREFIX) {
            true => Ok(()),
            false => Err(ServerError::NotOfDrill { job }),
        }
    }

    fn struck(&mut self, node: NodeId, news: DrillNews) {
        // Another node cannot speak for it.
        if self.drills.0.get(&news.strike).is_none_or(|strike| strike.node != node) {
            return;
        }
        let Some(strike) = self.drills.0.remove(&news.strike) else { return };
        let mut outcome = news.outcome;
        let (DrillOutcome::Struck { what: text }
        | DrillOutcome::NoVictim { why: text }
        | DrillOutcome::Refused { why: text }) = &mut outcome;
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        drop(strike.reply.send(Ok(outcome)));
    }
}
