//! Requests of nodes to the loop: to register, to hand in results and get work, and to leave. Also the handling of
//! nodes that are not heard of any more.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Joining, Reply};
use crate::fleet::NodeProcess;
use crate::job::{Loss, RunAgain};
use crate::messages::{Finished, Service};
use crate::readmission::{incarnation_of, is_proven};
use api::TaskResult;
use api::control::{
    AttemptEnd, AttemptOutcome, NODE_NAME_BYTES_MAX, NODE_TEXT_BYTES_MAX, NodeInfo, NodeOrders, NodePoll,
    NodeWelcome, PLACES_MAX, PROTOCOL_VERSION, SLOTS_MAX,
};
use api::data_access::SecretText;
use ids::{AttemptKey, JobId, NodeId};
use mapreduce::Gone;
use metastore::{AttemptState, Change, NodeRow, NodeState, StoreError};
use scheduler::{Event, Slot};
use trust::Secret;

/// Memory of a node for jobs; more is a mistake, and sums of it would overflow.
const NODE_MEMORY_BYTES_MAX: u64 = 1 << 48;

/// Refuses a node whose description of itself is out of bounds, with the reason: all of it is counted, printed and
/// stored.
fn check_node(info: &NodeInfo) -> Result<(), String> {
    let NodeInfo { name, rack, slots, .. } = info;
    if !(1..=SLOTS_MAX).contains(slots) {
        return Err(format!("it has {slots} slots: give 1 to {SLOTS_MAX}"));
    }
    if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX {
        return Err(format!("its name has {} bytes: give 1 to {NODE_NAME_BYTES_MAX}", name.len()));
    }
    if info.memory_bytes > NODE_MEMORY_BYTES_MAX {
        return Err(format!("it has {} bytes of memory: at most {NODE_MEMORY_BYTES_MAX}", info.memory_bytes));
    }
    // Other nodes connect there. A node that serves no data has none.
    let is_http = ["http://", "https://"].iter().any(|scheme| info.data_url.starts_with(scheme));
    if !info.data_url.is_empty() && !is_http {
        return Err(format!("its data URL {:?} is neither http:// nor https://", info.data_url));
    }
    let (version, arch, url) = (&info.version, &info.architecture, &info.data_url);
    for (what, text) in [("rack", rack), ("version", version), ("architecture", arch), ("data URL", url)] {
        if text.len() > NODE_TEXT_BYTES_MAX {
            return Err(format!("its {what} has {} bytes: at most {NODE_TEXT_BYTES_MAX}", text.len()));
        }
    }
    Ok(())
}

/// The end of an attempt with times that our clock can have shown: a node may have a wrong one. How long the attempt took
/// is believed, as long as it fits between its start here and now.
fn in_our_time(mut finished: Finished, assigned_ns: u64, now_ns: u64) -> Finished {
    let (started_ns, ended_ns) = (finished.started_ns, finished.ended_ns);
    if assigned_ns <= started_ns && started_ns <= ended_ns && ended_ns <= now_ns {
        return finished;
    }
    let took_ns = ended_ns.saturating_sub(started_ns).min(now_ns.saturating_sub(assigned_ns));
    let started_here_ns = now_ns - took_ns;
    if let Ok(TaskResult::Reduce(reduce)) = &mut finished.outcome {
        let moved = |opened_ns: u64| started_here_ns + opened_ns.saturating_sub(started_ns).min(took_ns);
        reduce.opened_ns = reduce.opened_ns.map(moved);
    }
    (finished.started_ns, finished.ended_ns) = (started_here_ns, now_ns);
    finished
}

/// For the disks of a process that may be a node.
fn proof_for(info: &NodeInfo) -> Result<Secret, ServerError> {
    if info.protocol != PROTOCOL_VERSION {
        let (server, caller) = (PROTOCOL_VERSION, info.protocol);
        return Err(ServerError::ProtocolDiffers { server, caller });
    }
    check_node(info).map_err(|what| ServerError::UnusableNode { what })?;
    Ok(Secret::random()?)
}

impl EventLoop {
    /// Takes a node in. An error of the store ends the server; all others go to the node.
    pub async fn register(&mut self, joining: Joining, reply: Reply<NodeWelcome>) -> Result<(), StoreError> {
        let Joining { mut info, secret_hash, join_token } = joining;
        let proof = match proof_for(&info) {
            Ok(proof) => proof,
            Err(error) => {
                drop(reply.send(Err(error)));
                return Ok(());
            }
        };
        let mut left = std::mem::take(&mut info.left);
        left.retain(is_proven);
        // Their locks were free, so their processes are dead, whatever their connections seem to say.
        let mut forerunners = self.forerunners(&left);
        match self.fleet.namesake(&info.name).filter(|(node, _)| !forerunners.contains(node)) {
            Some((node, true)) => {
                let name = info.name;
                drop(reply.send(Err(ServerError::NameTaken { name, node })));
                return Ok(());
            }
            Some((older, false)) => forerunners.push(older),
            None => {}
        }
        let node = self.store.reserve_node_id().await?;
        let (incarnation, now_ns) = (incarnation_of(&proof), now_ns());
        let row = NodeRow {
            node,
            name: info.name.clone(),
            url: info.data_url.clone(),
            rack: info.rack.clone(),
            slots: info.slots,
            memory_bytes: info.memory_bytes,
            // Nothing follows from it yet.
            cpu_count: info.slots,
            arch: info.architecture.clone(),
            version: info.version.clone(),
            state: NodeState::Up,
            generation: 1,
            incarnation: incarnation.clone(),
            secret_hash: Some(secret_hash),
            join_token: join_token.clone(),
            registered_ns: now_ns,
            last_seen_ns: now_ns,
        };
        self.changes.push(Change::NodeRegistered { node: row, disks: Vec::new() });
        self.node_came(node, info.memory_bytes, &info.architecture);
        let welcome = NodeWelcome {
            data_keys: self.signing.told(),
            disk_proof: SecretText(proof.text()),
            ..self.fleet.add(node, NodeProcess { incarnation, join_token }, info)
        };
        let readmitted = self.readmit(node, left);
        self.fleet.holds(node, readmitted.iter().copied());
        for older in forerunners {
            let why = format!("{node} came in its place");
            self.lose_node(older, NodeState::Dead, &why);
        }
        let welcome = NodeWelcome { readmitted, ..welcome };
        let replicating = self.jobs.values().filter(|job| job.replicating.is_on).map(|job| job.id);
        self.fleet.may_hold(node, replicating);
        self.let_nodes_rest();
        self.fleet.nodes_changed();
        self.replies.push(Box::new(move || drop(reply.send(Ok(welcome)))));
        Ok(())
    }

    pub fn poll(&mut self, node: NodeId, poll: NodePoll, reply: Reply<NodeOrders>) {
        let known = match self.fleet.heard(node, &poll.incarnation) {
            Ok(known) => known,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let unheard = known.met_again(poll.received, &poll.held);
        known.received(poll.received);
        known.park(reply);
        for (attempt, started_ns) in unheard {
            self.attempt_lost(attempt, started_ns, AttemptState::Interrupted);
            self.feed(Event::AttemptLost { attempt });
        }
        self.reported(node, poll.report);
        for end in poll.finished {
            // Not running: said before, and heard.
            let known = self.fleet.get_mut(node).and_then(|known| {
                known.heard.remove(&end.attempt);
                known.running.remove(&end.attempt)
            });
            if let Some((_, assigned_ns)) = known {
                self.attempt_end(end, assigned_ns);
            }
        }
        let slots = self.fleet.get_mut(node).map_or(0, |known| known.info.slots);
        // A slot that the node did not bring would outlive it.
        for slot in poll.free_slots.into_iter().filter(|slot| *slot < slots) {
            // An order for it may be on its way.
            let free = self.fleet.get_mut(node).is_some_and(|known| !known.runs_in(slot));
            if free {
                self.feed(Event::SlotFree { slot: Slot { node, slot } });
            }
        }
        let Some(known) = self.fleet.get_mut(node) else { return };
        let numbers = known.info.slots..known.info.slots.saturating_add(PLACES_MAX);
        let is_free = |place: &u32| numbers.contains(place) && !known.runs_in(*place);
        let places: Vec<u32> = poll.places.into_iter().filter(is_free).collect();
        self.feed(Event::PlacesFree { node, places });
    }

    fn attempt_end(&mut self, end: AttemptEnd, assigned_ns: u64) {
        let AttemptEnd { attempt, outcome, started_ns, ended_ns } = end;
        let outcome = match outcome {
            AttemptOutcome::Succeeded(result) => Ok(result),
            AttemptOutcome::Failed(failure) => Err(failure),
            AttemptOutcome::GivenBack => {
                self.attempt_lost(attempt, assigned_ns, AttemptState::Interrupted);
                return self.feed(Event::AttemptLost { attempt });
            }
        };
        let finished = Finished { attempt, outcome, started_ns, ended_ns };
        self.attempt_finished(in_our_time(finished, assigned_ns, now_ns()));
    }

    pub fn leave(&mut self, node: NodeId, incarnation: &str, reply: Reply<()>) {
        match self.fleet.heard(node, incarnation) {
            Ok(_) => {
                self.lose_node(node, NodeState::Left, "it said good-bye");
                self.replies.push(Box::new(move || drop(reply.send(Ok(())))));
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        self.fleet.ticked();
        for (node, why) in self.fleet.silent() {
            self.miss(node, why);
        }
        self.give_up_away();
        self.drills.tick();
        self.end_files();
        self.end_drains();
        self.write_telemetry();
        self.feed(Event::Tick);
    }

    /// A node is gone, with the attempts that it ran and the data that it held.
    pub fn lose_node(&mut self, node: NodeId, state: NodeState, why: &str) {
        let Some(mut gone) = self.fleet.remove(node) else { return };
        self.fleet.nodes_changed();
        tracing::info!(%node, name = gone.info.name, why, "a node is gone");
        // One that was emptied stays so in the tables.
        if gone.drain.as_ref().is_none_or(|drain| !drain.is_done) {
            self.changes.push(Change::NodeStateChanged { node, state, now_ns: now_ns() });
        }
        self.note("node gone", format!("{node} ({}): {why}", gone.info.name));
        if let Some(reply) = gone.take_parked() {
            self.replies.push(Box::new(move || drop(reply.send(Err(ServerError::UnknownNode { node })))));
        }
        for (attempt, (_, started_ns)) in &gone.running {
            self.attempt_lost(*attempt, *started_ns, AttemptState::Interrupted);
        }
        // First its slots, so that nothing is given to them; then the data, so that no task of a stage that goes
        // starts once more; then the attempts.
        self.feed(Event::SlotsGone { node });
        let with = format!("the node {} ({why})", gone.info.name);
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            self.data_gone(id, &Gone::node(node), &with);
        }
        self.feed(Event::NodeLost { node });
        self.parts_gone(node);
        self.mend_flows(&with);
        self.let_nodes_rest();
        self.keeper_lost(node, &gone.info.name);
        self.files_gone(node, &gone.info.name);
        self.drills.node_lost(node);
    }

    /// Data of a job is gone, `with` what; whether the job needed it.
    pub fn data_gone(&mut self, id: JobId, gone: &Gone, with: &str) -> bool {
        let (fleet, changes) = (&self.fleet, &mut self.changes);
        // On one machine there is nobody who could have left.
        let has_left = |node| self.service == Service::Cluster && !fleet.has(node);
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let given_up = job.given_up.clone();
        let has_left = |node| has_left(node) || given_up.contains(&node);
        let loss = job.lose(gone, with, has_left, changes);
        let is_needed = loss.is_some();
        match loss {
            None | Some(Loss::FellBack) => {}
            Some(Loss::ForGood(stage)) => self.feed(Event::StageRefused { job: id, stage }),
            Some(Loss::Again(again)) => self.run_again(id, again),
        }
        self.replicate_again(id);
        is_needed
    }

    /// Tasks run again: attempts that work on what is no more are given up.
    pub fn run_again(&mut self, job: JobId, again: RunAgain) {
        let is_stale = |attempt: &AttemptKey| attempt.task.job == job && again.ends(attempt.task);
        let stale: Vec<(AttemptKey, u64)> =
            self.fleet.all_mut().flat_map(|node| node.give_up(is_stale)).collect();
        let RunAgain { stage, tasks, stands } = again;
        self.feed(Event::ResultsLost { job, stage, tasks, stands });
        for (attempt, started_ns) in stale {
            self.attempt_lost(attempt, started_ns, AttemptState::Discarded);
        }
    }

    pub fn attempt_lost(&mut self, attempt: AttemptKey, started_ns: u64, state: AttemptState) {
        let Some(job) = self.jobs.get_mut(&attempt.task.job) else { return };
        let outcome = Err(api::TaskFailure::new(api::Blame::Environment, "its node is gone"));
        let finished = Finished { attempt, outcome, started_ns, ended_ns: now_ns() };
        job.attempt_ended(&finished, state, Ok(None), &mut self.changes);
    }

    pub fn note(&mut self, kind: &'static str, detail: String) {
        self.changes.push(Change::Note { job: None, kind, detail, now_ns: now_ns() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Finished, in_our_time};
    use api::TaskResult;
    use api::task::ReduceResult;
    use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};

    #[test]
    fn a_node_with_a_wrong_clock_is_timed_by_ours() {
        let task = TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        // Assigned at 1000, heard of at 2000.
        let check = |(started_ns, opened_ns, ended_ns), expected: (u64, u64, u64)| {
            let reduce = ReduceResult { opened_ns: Some(opened_ns), ..ReduceResult::default() };
            let outcome = Ok(TaskResult::Reduce(reduce));
            let finished = in_our_time(Finished { attempt, outcome, started_ns, ended_ns }, 1000, 2000);
            let Ok(TaskResult::Reduce(reduce)) = finished.outcome else { panic!("another result") };
            assert_eq!((finished.started_ns, reduce.opened_ns.unwrap(), finished.ended_ns), expected);
        };
        check((1000, 1200, 2000), (1000, 1200, 2000));
        check((1100, 1150, 1300), (1100, 1150, 1300));
        check((10, 50, 110), (1900, 1940, 2000));
        check((90_000, 90_100, 90_500), (1500, 1600, 2000));
        check((0, u64::MAX, u64::MAX), (1000, 2000, 2000));
        check((70, 60, 50), (2000, 2000, 2000));
    }
}
