//! The nodes of a cluster as the loop knows them: leases, orders on their way, attempts they run.

use crate::ServerError;
use crate::away::Away;
use crate::clock::{moment, now_ns};
use crate::draining::Drain;
use crate::event_loop::Reply;
use crate::machines::Heard;
use api::control::{
    ClusterStatus, NodeAddress, NodeInfo, NodeOrder, NodeOrders, NodeState, NodeStatus, NodeWelcome,
    NumberedOrder, POLL_MS_MAX,
};
use api::data_access::{DataKeys, SecretText};
use api::machine::{DiskReport, DiskState, MachineSample, UNREACHED_MAX, UnreachedNode};
use api::{Blame, Task, TaskFailure, TaskResult};
use control::Moment;
use control::membership::{LEASE, Presence};
use ids::{AttemptKey, JobId, NodeId};
use mapreduce::Replicas;
use scheduler::Slot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// A node polls again at once; one that has no poll here for so long may be gone.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// Between two looks at the clock: below the time that tasks wait for a node near their data.
const TICK: Duration = Duration::from_millis(200);

/// Nodes that were drained and are listed with those that live.
const DRAINED_SHOWN_MAX: usize = 64;

/// More orders than one process is ever given.
const ORDERS_MAX: u64 = 1 << 48;

const _: () = assert!(POLL_MS_MAX * 2 <= LEASE.as_millis() as u64);

/// The process behind a node.
pub(crate) struct NodeProcess {
    pub incarnation: String,
    /// The name of the token that it joined by, where it has one.
    pub join_token: Option<String>,
}

/// A node that lives.
pub(crate) struct Node {
    pub info: NodeInfo,
    pub incarnation: String,
    /// The token that it joined by, where it has one of its own.
    join_token: Option<String>,
    pub presence: Presence,
    /// The poll that waits for something to say, and since when.
    parked: Option<(Reply<NodeOrders>, Instant)>,
    /// Orders whose arrival the node has not confirmed.
    orders: VecDeque<NumberedOrder>,
    last_number: u64,
    /// The last order that a poll of it carried away.
    sent: u64,
    /// With their slots, and when they were given out, in nanoseconds since 1970.
    pub running: BTreeMap<AttemptKey, (u32, u64)>,
    /// Jobs it has heard of.
    jobs: BTreeSet<JobId>,
    /// Jobs of which data lies there that nobody brought: it is told of them without a token.
    holds: BTreeSet<JobId>,
    /// It was known to the server before this one and has not polled yet.
    restored: bool,
    /// As it told last.
    pub disks: Vec<DiskReport>,
    pub sample: Option<MachineSample>,
    /// Last output so far of the programs that run there.
    pub heard: BTreeMap<AttemptKey, Heard>,
    /// Set while it is being emptied.
    pub drain: Option<Drain>,
    /// Gets only what is bound to it, because it cannot write and others can.
    pub rests: bool,
    /// Jobs that keep something on its disks.
    pub kept: BTreeSet<JobId>,
    /// Set when its process has ended, while what it held is not given up.
    pub away: Option<Away>,
    /// The change of [`Fleet::changes`] of which it knows.
    told_changes: u64,
}

/// All of them.
pub(crate) struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    last_tick: Instant,
    /// When a node was lost last, or this server began: the one before it may have known of a loss. In nanoseconds since 1970.
    lost_ns: u64,
    /// The same of a disk of a node.
    disk_lost_ns: u64,
    /// The last that were drained and are gone, for people to see.
    drained: VecDeque<NodeStatus>,
    /// Counts how often something changed that every node must know of the others.
    changes: u64,
    /// Nodes on which no data of jobs may lie now: these hold more memory than they have.
    left_out: BTreeSet<NodeId>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            last_tick: Instant::now(),
            lost_ns: now_ns(),
            disk_lost_ns: now_ns(),
            drained: VecDeque::new(),
            changes: 0,
            left_out: BTreeSet::new(),
        }
    }
}

impl Fleet {
    /// Takes a node in. Its number must be one that no node had before: ids of its chunks hold it.
    pub fn add(&mut self, node: NodeId, process: NodeProcess, info: NodeInfo) -> NodeWelcome {
        let incarnation = process.incarnation.clone();
        self.nodes.insert(node, Node::new(info, process));
        NodeWelcome {
            node,
            incarnation,
            // The control port made it and puts it in: the server has its hash.
            secret: SecretText::default(),
            disk_proof: SecretText::default(),
            data_keys: DataKeys::default(),
            lease_ms: LEASE.as_millis() as u64,
            sandbox: false,
            roots: None,
            readmitted: Vec::new(),
        }
    }

    /// Takes a node in that the server before this one knew, with a new lease. It may have heard of these jobs.
    pub fn restore(&mut self, node: NodeId, process: NodeProcess, info: NodeInfo, jobs: &[JobId]) {
        let mut known = Node::new(info, process);
        known.jobs.extend(jobs);
        known.restored = true;
        self.nodes.insert(node, known);
    }

    /// The node, where it is the one it says it is; it was heard of just now.
    pub fn heard(&mut self, node: NodeId, incarnation: &str) -> Result<&mut Node, ServerError> {
        let is_it = |known: &&mut Node| known.incarnation == incarnation && known.away.is_none();
        let known = self.nodes.get_mut(&node).filter(is_it);
        let known = known.ok_or(ServerError::UnknownNode { node })?;
        known.presence.heard(moment());
        Ok(known)
    }

    /// Counts a change of the facts that nodes know of each other: waiting polls are answered at once.
    pub fn nodes_changed(&mut self) {
        self.changes += 1;
    }

    pub fn any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// When nodes were heard of last that were heard of in the last while.
    pub fn seen_within(&self, since: Duration, now_ns: u64) -> Vec<(NodeId, u64)> {
        let now = moment();
        let seen = self.nodes.iter().map(|(node, known)| (*node, known.presence.silent_for(now)));
        let fresh = seen.filter(|(_, silent)| *silent <= since);
        fresh.map(|(node, silent)| (node, now_ns.saturating_sub(silent.as_nanos() as u64))).collect()
    }

    /// Returns the last output so far of the program of a job, with its attempt.
    pub fn heard_of(&self, job: JobId) -> Option<(AttemptKey, &Heard)> {
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

    /// The nodes that begin (true) or cease to rest: where none can write, the tasks that fail say so.
    pub fn who_rests(&mut self) -> Vec<(NodeId, bool)> {
        let any_writes = self.nodes.values().any(|node| node.drain.is_none() && node.can_write());
        let working = self.nodes.iter_mut().filter(|(_, node)| node.drain.is_none());
        let changed = working.filter_map(|(id, node)| {
            let rests = any_writes && !node.can_write();
            (std::mem::replace(&mut node.rests, rests) != rests).then_some((*id, rests))
        });
        changed.collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.values_mut()
    }

    /// Those that joined by this token.
    pub fn joined_by(&self, token: &str) -> Vec<NodeId> {
        let by_it = self.nodes.iter().filter(|(_, node)| node.join_token.as_deref() == Some(token));
        by_it.map(|(id, _)| *id).collect()
    }

    /// Whether a node runs an attempt of a job, or holds data of it that nobody brought.
    pub fn has_to_do_with(&self, node: NodeId, job: JobId) -> bool {
        let Some(node) = self.nodes.get(&node) else { return false };
        node.holds.contains(&job) || node.running.keys().any(|attempt| attempt.task.job == job)
    }

    /// Data of these jobs lies with a node, or is asked of it.
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

    pub fn remove(&mut self, node: NodeId) -> Option<Node> {
        let status = self.status_of(node)?;
        if status.state == NodeState::Drained {
            self.drained.truncate(DRAINED_SHOWN_MAX - 1);
            self.drained.push_front(status);
        }
        self.lost_ns = now_ns();
        self.nodes.remove(&node)
    }

    /// The node of a name, or of a number as in `#5`. A name wins over `node-5`, which older lists print. Errors: none; two that it
    /// may mean, because one is named like the number of the other.
    pub fn named(&self, word: &str) -> Result<NodeId, ServerError> {
        let by_name = self.nodes.iter().find(|(_, node)| node.info.name == word).map(|(id, _)| *id);
        let of_number = |number: &str| {
            let number = number.parse().ok().map(NodeId);
            number.filter(|node| self.nodes.contains_key(node))
        };
        match (by_name, word.strip_prefix('#').and_then(of_number)) {
            (Some(named), Some(numbered)) if named != numbered => {
                let shown = |node: NodeId| (node, self.nodes[&node].info.name.clone());
                Err(ServerError::TwoNodes { word: word.to_string(), nodes: [shown(named), shown(numbered)] })
            }
            (Some(node), _) | (None, Some(node)) => Ok(node),
            (None, None) => {
                let of_older_lists = word.strip_prefix("node-").and_then(of_number);
                of_older_lists.ok_or_else(|| ServerError::NoSuchNode { name: word.to_string() })
            }
        }
    }

    /// One of the last that were drained and are gone, by its name or number.
    pub fn drained_named(&self, word: &str) -> Option<NodeStatus> {
        let by_name = self.drained.iter().find(|status| status.info.name == word);
        let is_meant = |status: &&NodeStatus| {
            let node = status.node;
            word.strip_prefix('#').is_some_and(|number| number == node.0.to_string())
                || word == node.to_string()
        };
        by_name.or_else(|| self.drained.iter().find(is_meant)).cloned()
    }

    /// Whether a node is there and has not been told to leave: what is asked of one that was may come too late.
    pub fn stays(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.drain.as_ref().is_none_or(|drain| !drain.is_done))
    }

    pub fn draining(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.drain.is_some()).map(|(id, _)| *id).collect()
    }

    /// Whether a node is being emptied, or has been.
    pub fn drains(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.drain.is_some())
    }

    /// Whether a node lives.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Nodes that can take over what lies on one: of its rack where there are any, else of others.
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

    /// Nodes that are being emptied, with those that take over what lies there.
    pub fn leaving(&self) -> BTreeMap<NodeId, Vec<NodeId>> {
        self.draining().into_iter().map(|node| (node, self.takers(node))).collect()
    }

    /// The node of a name, and whether its process is connected: one that was killed is not, whatever its lease
    /// says.
    pub fn namesake(&self, name: &str) -> Option<(NodeId, bool)> {
        let (id, node) = self.nodes.iter().find(|(_, node)| node.info.name == name)?;
        let connected = node.parked.as_ref().is_some_and(|(reply, _)| !reply.is_closed());
        Some((*id, connected))
    }

    /// The node of an incarnation, where it is not given up.
    pub fn of_incarnation(&self, incarnation: &str) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.incarnation == incarnation).map(|(id, _)| *id)
    }

    /// Nodes that are taken for dead, and why.
    pub fn silent(&mut self) -> Vec<(NodeId, String)> {
        let now = moment();
        self.nodes.values_mut().for_each(|node| node.look_for_poll(now));
        let here = self.nodes.iter().filter(|(_, node)| node.away.is_none());
        here.filter_map(|(id, node)| Some((*id, node.presence.is_gone(now)?))).collect()
    }

    /// Nodes that are away, with their names.
    pub fn away(&self) -> Vec<(NodeId, String)> {
        let away = self.nodes.iter().filter(|(_, node)| node.away.is_some());
        away.map(|(id, node)| (*id, node.info.name.clone())).collect()
    }

    /// A node is not here any more: what fails now may fail of that.
    pub fn lost_one(&mut self) {
        self.lost_ns = now_ns();
        self.changes += 1;
    }

    /// A node could not reach others. What it says of those that are gone, or of itself, is no news.
    pub fn unreached(&mut self, by: NodeId, unreached: &[UnreachedNode]) {
        for report in unreached.iter().filter(|report| report.node != by).take(UNREACHED_MAX) {
            if let Some(node) = self.nodes.get_mut(&report.node) {
                node.presence.reported(by, report.how);
            }
        }
    }

    /// A disk of a node has failed, or takes nothing any more: attempts that had begun before may fail of it.
    pub fn disk_was_lost(&mut self) {
        self.disk_lost_ns = now_ns();
    }

    /// Whether an attempt that began then may have failed because a node or a disk is gone that it needed, through no fault of its
    /// own: one was lost since, or one may be. Whoever meets a dead node tries for a while, and gives up about when it is known to be lost.
    /// Who says which node it could not reach is believed unless that one waits here for something to do.
    pub fn may_excuse(&self, started_ns: u64, unreachable: Option<NodeId>) -> bool {
        let waits_here = |node: &Node| node.parked.as_ref().is_some_and(|(reply, _)| !reply.is_closed());
        let is_away = |node: NodeId| self.nodes.get(&node).is_some_and(|node| !waits_here(node));
        started_ns <= self.lost_ns.max(self.disk_lost_ns)
            || self.any_suspect()
            || unreachable.is_some_and(is_away)
    }

    /// Whether a node hung up and has not polled since, or not since this server began: it may be dead.
    fn any_suspect(&self) -> bool {
        let now = moment();
        let suspect = |node: &Node| match &node.parked {
            Some((reply, _)) => reply.is_closed(),
            None => node.restored || node.presence.silent_for(now) > SUSPECT_AFTER,
        };
        self.nodes.values().any(suspect)
    }

    /// The loop stood still (its store was away, the machine slept): nobody could be heard in that time, so it counts
    /// against no lease.
    fn forgive(&mut self, stood_still: Duration) {
        let now = moment();
        for node in self.nodes.values_mut() {
            node.presence.forgive(stood_still, now);
        }
    }

    /// How long the loop may sleep.
    pub fn until_tick(&self) -> Duration {
        TICK.saturating_sub(self.last_tick.elapsed())
    }

    pub fn ticked(&mut self) {
        let since = self.last_tick.elapsed();
        if since > TICK * 5 {
            self.forgive(since);
        }
        self.last_tick = Instant::now();
    }

    /// Sends an attempt on its way.
    pub fn start(&mut self, attempt: AttemptKey, task: Task, slot: Slot, now_ns: u64) {
        let node = self.nodes.get_mut(&slot.node).expect("slots of nodes that are gone ask no more");
        node.running.insert(attempt, (slot.slot, now_ns));
        // Of a job of one task a node remembers nothing when its attempt has ended.
        if !matches!(task, Task::Run(_)) {
            node.jobs.insert(attempt.task.job);
        }
        node.order(NodeOrder::Start { attempt, slot: slot.slot, task: Box::new(task) });
    }

    /// How many nodes there are, and slots.
    pub fn nodes_and_slots(&self) -> (usize, u64) {
        let here = || self.nodes.values().filter(|node| node.away.is_none());
        (here().count(), here().map(|node| u64::from(node.info.slots)).sum())
    }

    /// Tells every node, whether it has to do with the job or not; from now on it has.
    pub fn order_everybody(&mut self, job: JobId, order: NodeOrder) {
        for node in self.nodes.values_mut() {
            node.jobs.insert(job);
            node.order(order.clone());
        }
    }

    /// Data of these jobs may come to a node that runs nothing of them.
    pub fn may_hold(&mut self, node: NodeId, jobs: impl Iterator<Item = JobId>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.jobs.extend(jobs);
        }
    }

    /// Tells every node that has to do with a job.
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

    /// Tells every node that has to do with a job that it is over: the keepers keep what they have of it.
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

    /// A map result counts only where all its chunks are on nodes that live: a chunkserver that died in between took
    /// what was appended with it. The task runs again.
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

    /// Answers the polls for which there is news, and those that have waited long enough.
    pub fn answer_polls(&mut self, state: &scheduler::State) {
        let left_out = scheduler::left_out(state);
        if left_out != self.left_out {
            self.left_out = left_out;
            self.nodes_changed();
        }
        let changes = self.changes;
        let has_news = |node: &Node| node.last_number > node.sent || node.told_changes != changes;
        let has_waited = |node: &Node| {
            let since = node.parked.as_ref().map(|(_, since)| since.elapsed());
            let poll_max = node.presence.poll_max(Duration::from_millis(POLL_MS_MAX));
            since.is_some_and(|waited| waited >= poll_max)
        };
        if !self.nodes.values().any(|node| node.parked.is_some() && (has_news(node) || has_waited(node))) {
            return;
        }
        let peers = self.addresses();
        for node in self.nodes.values_mut().filter(|node| has_news(node) || has_waited(node)) {
            if let Some((reply, _)) = node.parked.take() {
                node.presence.answered(moment());
                node.sent = node.last_number;
                node.told_changes = changes;
                let orders =
                    NodeOrders { orders: node.orders.iter().cloned().collect(), peers: peers.clone() };
                // A node that hung up polls again, and gets the same orders again.
                let _ = reply.send(Ok(orders));
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

    /// All that live, and the last that were drained.
    pub fn status(&self) -> ClusterStatus {
        let living = self.nodes.keys().filter_map(|node| self.status_of(*node));
        ClusterStatus { nodes: living.chain(self.drained.iter().cloned()).collect(), gone: Vec::new() }
    }

    pub fn status_of(&self, node: NodeId) -> Option<NodeStatus> {
        let known = self.nodes.get(&node)?;
        Some(NodeStatus {
            node,
            info: known.info.clone(),
            running: known.running.len() as u32,
            silent_ms: known.presence.silent_for(moment()).as_millis() as u64,
            disks: known.disks.clone(),
            sample: known.sample,
            kept_jobs: known.kept.iter().copied().collect(),
            state: match &known.drain {
                None => NodeState::Up,
                Some(drain) if drain.is_done => NodeState::Drained,
                Some(_) => NodeState::Draining,
            },
        })
    }
}

impl Node {
    fn new(info: NodeInfo, process: NodeProcess) -> Self {
        let NodeProcess { incarnation, join_token } = process;
        Self {
            info,
            incarnation,
            join_token,
            presence: Presence::new(moment()),
            parked: None,
            orders: VecDeque::new(),
            last_number: 0,
            sent: 0,
            running: BTreeMap::new(),
            jobs: BTreeSet::new(),
            holds: BTreeSet::new(),
            restored: false,
            disks: Vec::new(),
            sample: None,
            heard: BTreeMap::new(),
            drain: None,
            rests: false,
            kept: BTreeSet::new(),
            away: None,
            told_changes: 0,
        }
    }

    /// Whether new chunks may lie there: not where no disk takes anything, nor where all must go.
    pub fn takes_chunks(&self) -> bool {
        let has_room = self.disks.is_empty() || self.disks.iter().any(|disk| disk.state == DiskState::Usable);
        self.drain.is_none() && self.away.is_none() && has_room
    }

    /// Whether it can make files, as far as it told. On a full disk it can.
    fn can_write(&self) -> bool {
        let writable = |disk: &DiskReport| matches!(disk.state, DiskState::Usable | DiskState::Full);
        self.disks.is_empty() || self.disks.iter().any(writable)
    }

    /// The first poll after a restart: orders of this server are numbered after those the node has, and attempts
    /// it does not hold were never ordered; these are the answer.
    pub fn met_again(&mut self, received: u64, held: &[AttemptKey]) -> Vec<(AttemptKey, u64)> {
        if !std::mem::take(&mut self.restored) {
            return Vec::new();
        }
        // No server ever counted further, whatever the node says.
        let received = received.min(ORDERS_MAX);
        self.last_number += received;
        self.orders.iter_mut().for_each(|order| order.number += received);
        let unheard = self.running.iter().filter(|(attempt, _)| !held.contains(attempt));
        let unheard: Vec<(AttemptKey, u64)> =
            unheard.map(|(attempt, (_, started_ns))| (*attempt, *started_ns)).collect();
        self.running.retain(|attempt, _| held.contains(attempt));
        unheard
    }

    pub fn order(&mut self, order: NodeOrder) {
        self.last_number += 1;
        self.orders.push_back(NumberedOrder { number: self.last_number, order });
    }

    /// Orders up to this one have arrived. What comes after and was sent before was lost on its way.
    pub fn received(&mut self, number: u64) {
        while self.orders.front().is_some_and(|order| order.number <= number) {
            self.orders.pop_front();
        }
        self.sent = number.min(self.last_number);
    }

    /// Lets a poll wait for orders; one that waited before is answered with nothing.
    pub fn park(&mut self, reply: Reply<NodeOrders>) {
        self.presence.polls(moment());
        if let Some((older, _)) = self.parked.replace((reply, Instant::now())) {
            let _ = older.send(Ok(NodeOrders::default()));
        }
    }

    /// Notes when its poll is answered, or nobody waits for it any more.
    fn look_for_poll(&mut self, now: Moment) {
        if self.parked.as_ref().is_some_and(|(reply, _)| reply.is_closed()) {
            self.presence.hangs_up(now);
        }
    }

    /// The poll that waits, to be refused.
    pub fn take_parked(&mut self) -> Option<Reply<NodeOrders>> {
        self.parked.take().map(|(reply, _)| reply)
    }

    /// Takes away attempts, which stop: what they work on is no more.
    pub fn give_up(&mut self, is_stale: impl Fn(&AttemptKey) -> bool) -> Vec<(AttemptKey, u64)> {
        let running = std::mem::take(&mut self.running);
        let (gone, kept) = running.into_iter().partition(|(attempt, _)| is_stale(attempt));
        self.running = kept;
        let gone: BTreeMap<AttemptKey, (u32, u64)> = gone;
        gone.keys().for_each(|attempt| self.order(NodeOrder::StopAttempt { attempt: *attempt }));
        gone.into_iter().map(|(attempt, (_, started_ns))| (attempt, started_ns)).collect()
    }

    pub fn runs_in(&self, slot: u32) -> bool {
        self.running.values().any(|(busy, _)| *busy == slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fleet, NodeProcess};
    use crate::clock::now_ns;
    use api::control::{NodeInfo, PROTOCOL_VERSION};
    use ids::NodeId;
    use std::time::Instant;

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
            data_url: String::new(),
            left: Vec::new(),
        }
    }

    /// By the time that an attempt gives up on a dead node, the server may have given it up as well.
    #[test]
    fn a_loss_excuses_what_began_before_it() {
        let mut fleet = Fleet::default();
        fleet.add(NODE, process(), info());
        let started_ns = now_ns() + 1;
        assert!(!fleet.may_excuse(started_ns, None));
        while now_ns() <= started_ns {}
        fleet.remove(NODE);
        assert!(fleet.may_excuse(started_ns, None));
        assert!(!fleet.may_excuse(now_ns() + 1, None), "each attempt is excused once");
    }

    #[test]
    fn who_could_not_reach_a_node_is_believed_unless_it_waits_here() {
        let mut fleet = Fleet::default();
        fleet.add(NODE, process(), info());
        let (reply, poll) = tokio::sync::oneshot::channel();
        fleet.get_mut(NODE).expect("it was added").parked = Some((reply, Instant::now()));
        let later_ns = now_ns() + 1_000_000_000;
        assert!(!fleet.may_excuse(later_ns, Some(NODE)));
        fleet.get_mut(NODE).expect("it was added").parked = None;
        assert!(fleet.may_excuse(later_ns, Some(NODE)));
        assert!(!fleet.may_excuse(later_ns, None));
        // Of one that is not here any more all is known.
        assert!(!fleet.may_excuse(later_ns, Some(NodeId(7))));
        drop(poll);
    }

    #[test]
    fn a_node_that_was_not_heard_of_since_the_server_began_may_be_gone() {
        let mut fleet = Fleet::default();
        let before_ns = now_ns();
        fleet.restore(NODE, process(), info(), &[]);
        assert!(fleet.may_excuse(now_ns() + 1, None));
        fleet.heard(NODE, "a").expect("it is known").met_again(0, &[]);
        assert!(!fleet.may_excuse(now_ns() + 1, None));
        assert!(!fleet.may_excuse(before_ns + 1_000_000_000, None));
    }
}
