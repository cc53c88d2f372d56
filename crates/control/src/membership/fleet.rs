//! The nodes of a cluster as the event loop knows them: leases, unconfirmed orders, running attempts.

use crate::interface::{ControlError, Moment, Now, Outbox, Reply, SlotOrder};
use crate::membership::{LEASE, Node, NodeProcess, OutputTail, Telemetry};
use api::control::{
    ClusterStatus, NodeAddress, NodeInfo, NodeOrder, NodeOrders, NodeState, NodeStatus, NodeWelcome,
};
use api::data_access::{DataKeys, SecretText};
use api::job::resources::GenericResources;
use api::machine::{UNREACHED_MAX, UnreachedNode};
use api::{Blame, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId};
use mapreduce::Replicas;
use scheduler::Slot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Interval between two ticks: shorter than the time for which tasks wait for a node near their data.
const TICK: Duration = Duration::from_millis(200);
/// Number of drained nodes that are listed beside the live ones.
const DRAINED_SHOWN_MAX: usize = 64;

/// All nodes of the server.
pub(crate) struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    /// Number of slots of the embedded node.
    local_slots: Option<u32>,
    /// Generic resources of the embedded node.
    local_resources: GenericResources,
    /// Slots of the embedded node that wait for work, and its places that do.
    pulls: BTreeMap<Slot, Reply<SlotOrder>>,
    pulls_of_places: BTreeMap<Slot, Reply<SlotOrder>>,
    last_tick: Moment,
    /// Time of the last node loss, or of the start of this server since the previous one may have known of a loss. In
    /// nanoseconds since 1970.
    lost_ns: u64,
    /// Time of the last disk failure of a node, in nanoseconds since 1970.
    disk_lost_ns: u64,
    /// The last drained nodes that are gone, for the lists.
    drained: VecDeque<NodeStatus>,
    /// Number of changes so far that every node must learn of.
    changes: u64,
    /// Nodes that may not receive data of jobs now, because their memory is overcommitted.
    left_out: BTreeSet<NodeId>,
    /// Reports that wait for the next write to the store.
    telemetry: Telemetry,
    /// True if a catalogue of stored files tells which of them need a node that is being drained.
    hears_stored_needs: bool,
}

impl Fleet {
    /// Creates the fleet of a server that begins now.
    pub fn new(now: Now) -> Self {
        Self {
            nodes: BTreeMap::new(),
            local_slots: None,
            local_resources: GenericResources::default(),
            pulls: BTreeMap::new(),
            pulls_of_places: BTreeMap::new(),
            last_tick: now.moment,
            lost_ns: now.unix_ns,
            disk_lost_ns: now.unix_ns,
            drained: VecDeque::new(),
            changes: 0,
            left_out: BTreeSet::new(),
            telemetry: Telemetry::default(),
            hears_stored_needs: false,
        }
    }

    /// Lets drained nodes stay until a catalogue says that no stored file needs them.
    pub fn expect_stored_needs(&mut self) {
        self.hears_stored_needs = true;
    }

    pub fn hears_stored_needs(&self) -> bool {
        self.hears_stored_needs
    }

    /// Adds a slot of this process that waits for work.
    pub fn add_pull(&mut self, slot: Slot, reply: Reply<SlotOrder>) {
        self.pulls.insert(slot, reply);
    }

    /// Adds a place of this process that waits for work.
    pub fn add_pull_of_place(&mut self, place: Slot, reply: Reply<SlotOrder>) {
        self.pulls_of_places.insert(place, reply);
    }

    /// Returns the numbers of the places of this process that wait for work.
    pub fn local_places(&self) -> Vec<u32> {
        self.pulls_of_places.keys().map(|place| place.slot).collect()
    }

    /// Sets the generic resources of the embedded node. Comes before its slots.
    pub fn declare_local(&mut self, resources: GenericResources) {
        self.local_resources = resources;
    }

    pub fn local_resources(&self) -> &GenericResources {
        &self.local_resources
    }

    pub fn has_local_slots(&mut self, slots: u32) {
        self.local_slots = Some(slots);
    }

    /// Returns the number of slots of the embedded node; None in a cluster.
    pub fn local_slots(&self) -> Option<u32> {
        self.local_slots
    }

    pub fn take_pull(&mut self, slot: Slot) -> Option<Reply<SlotOrder>> {
        self.pulls.remove(&slot).or_else(|| self.pulls_of_places.remove(&slot))
    }

    /// Takes all slots and places of this process that wait for work.
    pub fn take_pulls(&mut self) -> Vec<Reply<SlotOrder>> {
        let places = std::mem::take(&mut self.pulls_of_places);
        std::mem::take(&mut self.pulls).into_values().chain(places.into_values()).collect()
    }

    pub fn telemetry(&mut self) -> &mut Telemetry {
        &mut self.telemetry
    }

    /// Returns a node that reports, and the buffer for its samples.
    pub fn reporting(&mut self, node: NodeId) -> Option<(&mut Node, &mut Telemetry)> {
        Some((self.nodes.get_mut(&node)?, &mut self.telemetry))
    }

    /// Adds a node. No node may have had its number before, because ids of chunks contain it.
    pub fn add(&mut self, node: NodeId, process: NodeProcess, info: NodeInfo, now: Now) -> NodeWelcome {
        let incarnation = process.incarnation.clone();
        self.nodes.insert(node, Node::new(info, process, now.moment));
        NodeWelcome {
            node,
            incarnation,
            // The control port creates the secret and fills it in: the server has only the hash.
            secret: SecretText::default(),
            disk_proof: SecretText::default(),
            data_keys: DataKeys::default(),
            lease_ms: LEASE.as_millis() as u64,
            sandbox: false,
            roots: None,
            readmitted: Vec::new(),
        }
    }

    /// Restores a node of the previous server, with a new lease. The node may have heard of `jobs`.
    pub fn restore(
        &mut self,
        node: NodeId,
        process: NodeProcess,
        info: NodeInfo,
        jobs: &[JobId],
        now: Moment,
    ) {
        let mut known = Node::new(info, process, now);
        known.jobs.extend(jobs);
        known.restored = true;
        self.nodes.insert(node, known);
    }

    /// Returns a node and renews its lease. Fails if it is unknown or away, or if the incarnation differs.
    pub fn heard(&mut self, node: NodeId, incarnation: &str, now: Moment) -> Result<&mut Node, ControlError> {
        let is_it = |known: &&mut Node| known.incarnation == incarnation && known.away.is_none();
        let known = self.nodes.get_mut(&node).filter(is_it);
        let known = known.ok_or(ControlError::UnknownNode { node })?;
        known.presence.heard(now);
        Ok(known)
    }

    /// Counts a change that nodes must learn about each other: waiting polls are answered at once.
    pub fn nodes_changed(&mut self) {
        self.changes += 1;
    }

    /// Returns the number of these changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns the nodes that were heard from within `since`, with the time of the last message in nanoseconds since
    /// 1970.
    pub fn seen_within(&self, since: Duration, now: Now) -> Vec<(NodeId, u64)> {
        let seen = self.nodes.iter().map(|(node, known)| (*node, known.presence.silent_for(now.moment)));
        let fresh = seen.filter(|(_, silent)| *silent <= since);
        fresh.map(|(node, silent)| (node, now.unix_ns.saturating_sub(silent.as_nanos() as u64))).collect()
    }

    /// Returns the last output so far of the program of a job, with its attempt.
    pub fn heard_of(&self, job: JobId) -> Option<(AttemptKey, &OutputTail)> {
        let heard = self.nodes.values().flat_map(|node| &node.heard);
        let of_job = heard.filter(|(attempt, _)| attempt.task.job == job);
        of_job.map(|(attempt, heard)| (*attempt, heard)).max_by_key(|(attempt, _)| attempt.attempt)
    }

    pub fn runs_at_least(&self, attempts: usize) -> bool {
        let mut left = attempts;
        self.nodes.values().any(|node| {
            left = left.saturating_sub(node.running.len());
            left == 0
        })
    }

    /// Returns the nodes whose exclusion from new work begins (true) or ends (false). If no node can write, none is
    /// excluded: the tasks that fail report the problem.
    pub fn newly_cordoned(&mut self) -> Vec<(NodeId, bool)> {
        let any_writes = self.nodes.values().any(|node| node.drain.is_none() && node.can_write());
        let working = self.nodes.iter_mut().filter(|(_, node)| node.drain.is_none());
        let changed = working.filter_map(|(id, node)| {
            let is_cordoned = any_writes && !node.can_write();
            (std::mem::replace(&mut node.is_cordoned, is_cordoned) != is_cordoned)
                .then_some((*id, is_cordoned))
        });
        changed.collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.values_mut()
    }

    /// Returns the nodes that joined with this token.
    pub fn joined_by(&self, token: &str) -> Vec<NodeId> {
        let by_it = self.nodes.iter().filter(|(_, node)| node.joined_by(token));
        by_it.map(|(id, _)| *id).collect()
    }

    /// Returns whether a node runs an attempt of a job, or holds data of the job that no writer sent to it.
    pub fn has_to_do_with(&self, node: NodeId, job: JobId) -> bool {
        let holds = self.nodes.get(&node).is_some_and(|node| node.holds.contains(&job));
        holds || self.runs(node, job)
    }

    /// Returns whether a node runs an attempt of a job.
    pub fn runs(&self, node: NodeId, job: JobId) -> bool {
        let node = self.nodes.get(&node);
        node.is_some_and(|node| node.running.keys().any(|attempt| attempt.task.job == job))
    }

    /// Records that a node holds data of these jobs, or has been asked to hold it.
    pub fn holds(&mut self, node: NodeId, jobs: impl IntoIterator<Item = JobId>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.holds.extend(jobs);
        }
    }

    pub fn each(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&node)
    }

    pub fn remove(&mut self, node: NodeId, now: Now) -> Option<Node> {
        let status = self.status_of(node, now.moment)?;
        if status.state == NodeState::Drained {
            self.drained.truncate(DRAINED_SHOWN_MAX - 1);
            self.drained.push_front(status);
        }
        self.lost_ns = now.unix_ns;
        self.nodes.remove(&node)
    }

    /// Returns the node of a name, or of a number as in `#5`. A name wins over `node-5`, which older lists print. Fails
    /// if there is no such node, or if two nodes match because one is named like the number of the other.
    pub fn named(&self, word: &str) -> Result<NodeId, ControlError> {
        let by_name = self.nodes.iter().find(|(_, node)| node.info.name == word).map(|(id, _)| *id);
        let of_number = |number: &str| {
            let number = number.parse().ok().map(NodeId);
            number.filter(|node| self.nodes.contains_key(node))
        };
        match (by_name, word.strip_prefix('#').and_then(of_number)) {
            (Some(named), Some(numbered)) if named != numbered => {
                let shown = |node: NodeId| (node, self.nodes[&node].info.name.clone());
                Err(ControlError::TwoNodes { word: word.to_string(), nodes: [shown(named), shown(numbered)] })
            }
            (Some(node), _) | (None, Some(node)) => Ok(node),
            (None, None) => {
                let of_older_lists = word.strip_prefix("node-").and_then(of_number);
                of_older_lists.ok_or_else(|| ControlError::NoSuchNode { name: word.to_string() })
            }
        }
    }

    /// Returns a recently drained node that is gone, by its name or number.
    pub fn drained_named(&self, word: &str) -> Option<NodeStatus> {
        let by_name = self.drained.iter().find(|status| status.info.name == word);
        let is_meant = |status: &&NodeStatus| {
            let node = status.node;
            word.strip_prefix('#').is_some_and(|number| number == node.0.to_string())
                || word == node.to_string()
        };
        by_name.or_else(|| self.drained.iter().find(is_meant)).cloned()
    }

    /// Returns whether a node is in the cluster and has not been told to leave: a later request may not reach it.
    pub fn stays(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.drain.as_ref().is_none_or(|drain| !drain.is_done))
    }

    pub fn draining(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.drain.is_some()).map(|(id, _)| *id).collect()
    }

    /// Returns whether a node is being drained, or has been drained.
    pub fn drains(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.drain.is_some())
    }

    /// Returns whether a node is in the cluster.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Returns the nodes that can take over the data of a node: nodes of its rack if there are any, otherwise all
    /// others.
    pub fn takers(&self, node: NodeId) -> Vec<NodeId> {
        let rack = self.nodes.get(&node).map(|node| node.info.rack.as_str());
        let of = |is_near: &dyn Fn(&Node) -> bool| -> Vec<NodeId> {
            let takes = |(id, known): &(&NodeId, &Node)| {
                **id != node && known.drain.is_none() && known.takes_chunks() && is_near(known)
            };
            self.nodes.iter().filter(takes).map(|(id, _)| *id).collect()
        };
        let near = of(&|known| Some(known.info.rack.as_str()) == rack);
        if near.is_empty() { of(&|_| true) } else { near }
    }

    /// Returns the nodes that are being drained, each with the nodes that can take over its data.
    pub fn leaving(&self) -> BTreeMap<NodeId, Vec<NodeId>> {
        self.draining().into_iter().map(|node| (node, self.takers(node))).collect()
    }

    /// Returns the node of a name, and whether its process is connected. A killed process is not connected, even if its
    /// lease has not ended.
    pub fn namesake(&self, name: &str) -> Option<(NodeId, bool)> {
        let (id, node) = self.nodes.iter().find(|(_, node)| node.info.name == name)?;
        let connected = node.waits_here();
        Some((*id, connected))
    }

    /// Returns the node of an incarnation, unless it has been abandoned.
    pub fn of_incarnation(&self, incarnation: &str) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.incarnation == incarnation).map(|(id, _)| *id)
    }

    /// Returns the nodes whose timeout has passed, with the reasons.
    pub fn silent(&mut self, now: Moment) -> Vec<(NodeId, String)> {
        self.nodes.values_mut().for_each(|node| node.look_for_poll(now));
        let here = self.nodes.iter().filter(|(_, node)| node.away.is_none());
        here.filter_map(|(id, node)| Some((*id, node.presence.is_gone(now)?))).collect()
    }

    /// Returns the nodes that are away, with their names.
    pub fn away(&self) -> Vec<(NodeId, String)> {
        let away = self.nodes.iter().filter(|(_, node)| node.away.is_some());
        away.map(|(id, node)| (*id, node.info.name.clone())).collect()
    }

    /// Records the loss of a node: later failures of attempts may be due to it.
    pub fn lost_one(&mut self, now: Now) {
        self.lost_ns = now.unix_ns;
        self.changes += 1;
    }

    /// Records the nodes that a node could not reach. Reports about unknown nodes, or about itself, are ignored.
    pub fn unreached(&mut self, by: NodeId, unreached: &[UnreachedNode]) {
        for report in unreached.iter().filter(|report| report.node != by).take(UNREACHED_MAX) {
            if let Some(node) = self.nodes.get_mut(&report.node) {
                node.presence.reported(by, report.how);
            }
        }
    }

    /// Records that a disk of a node failed or is full: attempts that began earlier may fail because of it.
    pub fn disk_was_lost(&mut self, now: Now) {
        self.disk_lost_ns = now.unix_ns;
    }

    /// Returns whether an attempt that began at `started_ns` may have failed through the loss of a node or disk and not
    /// by its own fault: one was lost since, or a node is suspect now. A reader retries a dead node for about as long
    /// as the server takes to declare it lost. A report about an unreachable node is trusted unless that node has a
    /// poll open here.
    pub fn may_excuse(&self, started_ns: u64, unreachable: Option<NodeId>, now: Moment) -> bool {
        let is_away = |node: NodeId| self.nodes.get(&node).is_some_and(|node| !node.waits_here());
        started_ns <= self.lost_ns.max(self.disk_lost_ns)
            || self.nodes.values().any(|node| node.is_suspect(now))
            || unreachable.is_some_and(is_away)
    }

    /// Extends all leases after the event loop stood still (its store was unavailable, or the machine slept), because
    /// no node could be heard in that time.
    fn forgive(&mut self, stood_still: Duration, now: Moment) {
        for node in self.nodes.values_mut() {
            node.presence.forgive(stood_still, now);
        }
    }

    /// Returns how long the event loop may sleep.
    pub fn until_tick(&self, now: Moment) -> Duration {
        TICK.saturating_sub(now.since(self.last_tick))
    }

    pub fn ticked(&mut self, now: Moment) {
        let since = now.since(self.last_tick);
        if since > TICK * 5 {
            self.forgive(since, now);
        }
        self.last_tick = now;
    }

    /// Starts an attempt on a node.
    pub fn start(&mut self, attempt: AttemptKey, task: Task, slot: Slot, now_ns: u64) {
        let node = self.nodes.get_mut(&slot.node).expect("slots of nodes that are gone ask no more");
        node.running.insert(attempt, (slot.slot, now_ns));
        // A node forgets a job of one task when its attempt has ended.
        if !matches!(task, Task::Run(_)) {
            node.jobs.insert(attempt.task.job);
        }
        node.order(NodeOrder::Start { attempt, slot: slot.slot, task: Box::new(task) });
    }

    /// Returns the number of nodes that are not away, and the number of their slots.
    pub fn nodes_and_slots(&self) -> (usize, u64) {
        let here = || self.nodes.values().filter(|node| node.away.is_none());
        (here().count(), here().map(|node| u64::from(node.info.slots)).sum())
    }

    /// Sends an order about a job to every node. From now on each node counts as involved in the job.
    pub fn order_everybody(&mut self, job: JobId, order: NodeOrder) {
        for node in self.nodes.values_mut() {
            node.jobs.insert(job);
            node.order(order.clone());
        }
    }

    /// Records that data of these jobs may reach a node that runs no attempt of them.
    pub fn may_hold(&mut self, node: NodeId, jobs: impl Iterator<Item = JobId>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.jobs.extend(jobs);
        }
    }

    /// Sends an order to every node that is involved in a job.
    pub fn order_all(&mut self, job: JobId, order: NodeOrder) {
        let forget = matches!(order, NodeOrder::Forget { .. });
        let concerned = |node: &&mut Node| {
            node.jobs.contains(&job) || node.running.keys().any(|attempt| attempt.task.job == job)
        };
        for node in self.nodes.values_mut().filter(concerned) {
            node.order(order.clone());
            if forget {
                node.jobs.remove(&job);
                node.holds.remove(&job);
            }
        }
    }

    /// Tells every node that is involved in a job that it is over. The keepers keep their data of it.
    pub fn order_end(&mut self, job: JobId, keepers: &BTreeSet<NodeId>) {
        for keeper in keepers {
            if let Some(node) = self.nodes.get_mut(keeper) {
                node.order(NodeOrder::Keep { job });
                node.jobs.remove(&job);
                node.holds.remove(&job);
            }
        }
        self.order_all(job, NodeOrder::Forget { job });
    }

    /// Checks that all chunks of a map result are on live nodes. If not, the chunkserver died in between with the
    /// appended data, and the task must run again.
    pub fn check_homes(
        &self,
        result: &TaskResult,
        replicas: &Replicas,
        given_up: &BTreeSet<NodeId>,
    ) -> Result<(), TaskFailure> {
        let TaskResult::Map(map) = result else { return Ok(()) };
        let mut homes = map.commits.iter().map(|commit| replicas.chunk_home(commit.chunk));
        let gone = homes.find(|node| !self.nodes.contains_key(node) || given_up.contains(node));
        match gone {
            None => Ok(()),
            Some(node) => {
                let message = format!("{node}, which held some of the output, is gone");
                Err(TaskFailure::new(Blame::Environment, message))
            }
        }
    }

    /// Answers the polls that have news, and those that have waited for their maximum time.
    pub fn answer_polls(&mut self, left_out: BTreeSet<NodeId>, outbox: &mut Outbox) {
        let now = outbox.moment();
        if left_out != self.left_out {
            self.left_out = left_out;
            self.nodes_changed();
        }
        let changes = self.changes;
        let is_due = |node: &Node| node.has_news(changes) || node.has_waited(now);
        if !self.nodes.values().any(|node| node.is_parked() && is_due(node)) {
            return;
        }
        let peers = self.addresses();
        for node in self.nodes.values_mut().filter(|node| is_due(node)) {
            if let Some((reply, orders)) = node.answer_poll(changes, now) {
                // A node that hung up polls again and gets the same orders.
                outbox.answer(reply, Ok(NodeOrders { orders, peers: peers.clone() }));
            }
        }
    }

    fn addresses(&self) -> Vec<NodeAddress> {
        let address = |(node, known): (&NodeId, &Node)| NodeAddress {
            node: *node,
            rack: known.info.rack.clone(),
            data_url: known.info.data_url.clone(),
            takes_chunks: known.takes_chunks() && !self.left_out.contains(node),
        };
        self.nodes.iter().map(address).collect()
    }

    /// Returns all live nodes, and the last drained ones.
    pub fn status(&self, now: Moment) -> ClusterStatus {
        let living = self.nodes.keys().filter_map(|node| self.status_of(*node, now));
        ClusterStatus { nodes: living.chain(self.drained.iter().cloned()).collect(), gone: Vec::new() }
    }

    pub fn status_of(&self, node: NodeId, now: Moment) -> Option<NodeStatus> {
        let known = self.nodes.get(&node)?;
        Some(NodeStatus {
            node,
            info: known.info.clone(),
            running: known.running.len() as u32,
            silent_ms: known.presence.silent_for(now).as_millis() as u64,
            disks: known.disks.clone(),
            sample: known.sample,
            kept_jobs: known.kept.iter().copied().collect(),
            stored_need: known.drain.as_ref().and_then(|drain| drain.stored.clone()),
            state: match &known.drain {
                None => NodeState::Up,
                Some(drain) if drain.is_done => NodeState::Drained,
                Some(_) => NodeState::Draining,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Fleet;
    use crate::membership::NodeProcess;
    use crate::{Asker, ControlError, Moment, Now, Outbox};
    use api::control::{NodeInfo, PROTOCOL_VERSION};
    use api::job::resources::GenericResources;
    use ids::NodeId;
    use std::time::Duration;

    const NODE: NodeId = NodeId(1);

    fn process() -> NodeProcess {
        NodeProcess { incarnation: "a".to_string(), join_token: None }
    }

    fn info() -> NodeInfo {
        NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: String::new(),
            name: "node".to_string(),
            rack: "rack".to_string(),
            slots: 1,
            memory_bytes: 1 << 30,
            architecture: String::new(),
            resources: GenericResources::default(),
            data_url: String::new(),
            sees: Vec::new(),
            left: Vec::new(),
            predecessors: Vec::new(),
        }
    }

    fn at(seconds: u64) -> Now {
        let since = Duration::from_secs(seconds);
        Now { unix_ns: 1 + since.as_nanos() as u64, moment: Moment(since) }
    }

    struct Waits;

    impl<T> Asker<T> for Waits {
        fn is_gone(&self) -> bool {
            false
        }

        fn answer(self: Box<Self>, _answer: Result<T, ControlError>) {}
    }

    /// An attempt gives up on a dead node at about the time at which the server declares it lost.
    #[test]
    fn loss_excuses_attempts_that_began_before_it() {
        let mut fleet = Fleet::new(at(0));
        fleet.add(NODE, process(), info(), at(0));
        let started_ns = at(1).unix_ns;
        assert!(!fleet.may_excuse(started_ns, None, at(0).moment));
        fleet.remove(NODE, at(2));
        assert!(fleet.may_excuse(started_ns, None, at(2).moment));
        assert!(!fleet.may_excuse(at(3).unix_ns, None, at(3).moment), "each attempt is excused once");
    }

    #[test]
    fn unreachable_node_is_believed_unless_it_polls() {
        let mut fleet = Fleet::new(at(0));
        fleet.add(NODE, process(), info(), at(0));
        let mut outbox = Outbox::default();
        fleet.get_mut(NODE).expect("it was added").park(Box::new(Waits), &mut outbox);
        let (later_ns, now) = (at(1).unix_ns, at(0).moment);
        assert!(!fleet.may_excuse(later_ns, Some(NODE), now));
        fleet.get_mut(NODE).expect("it was added").take_parked();
        assert!(fleet.may_excuse(later_ns, Some(NODE), now));
        assert!(!fleet.may_excuse(later_ns, None, now));
        // A report about an unknown node is no news.
        assert!(!fleet.may_excuse(later_ns, Some(NodeId(7)), now));
    }

    #[test]
    fn restored_node_is_suspect_until_it_polls() {
        let mut fleet = Fleet::new(at(0));
        fleet.restore(NODE, process(), info(), &[], at(0).moment);
        let (later_ns, now) = (at(1).unix_ns, at(0).moment);
        assert!(fleet.may_excuse(later_ns, None, now));
        fleet.heard(NODE, "a", now).expect("it is known").met_again(0, &[]);
        assert!(!fleet.may_excuse(later_ns, None, now));
    }
}
