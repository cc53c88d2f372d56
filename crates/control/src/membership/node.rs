//! A node as the server knows it: its poll, unconfirmed orders, and running attempts.

use crate::interface::{Moment, Outbox, Reply};
use crate::membership::{LEASE, OutputTail, Presence};
use api::control::{NodeInfo, NodeOrder, NodeOrders, NumberedOrder, POLL_MS_MAX};
use api::machine::{DiskReport, DiskState, MachineSample};
use api::stored::need::StoredNeed;
use ids::{AttemptKey, JobId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A node polls again at once; without a poll for this long, it may be lost.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// More orders than any process is ever given.
const ORDERS_MAX: u64 = 1 << 48;

const _: () = assert!(POLL_MS_MAX * 2 <= LEASE.as_millis() as u64);

/// State of a node that is being drained.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Jobs that were there when the drain began; later jobs put no data on the node.
    pub jobs: BTreeSet<JobId>,
    /// No job needs the node any more, and it has been told to leave.
    pub is_done: bool,
    /// The stored files that need the node; None until the catalogue has told them.
    pub stored: Option<StoredNeed>,
}

/// State of a node that is away.
pub(crate) struct Away {
    pub since: Moment,
    pub why: String,
    /// Grace period of each job that needs data of this node.
    pub patience: BTreeMap<JobId, Duration>,
}

/// The process behind a node.
pub(crate) struct NodeProcess {
    pub incarnation: String,
    /// Name of its join token, if the token is its own.
    pub join_token: Option<String>,
}

/// A node in the cluster.
pub(crate) struct Node {
    pub(super) info: NodeInfo,
    pub(super) incarnation: String,
    /// Its join token, if the token is its own.
    join_token: Option<String>,
    pub(super) presence: Presence,
    /// The poll that waits for orders, and the time of its arrival.
    parked: Option<(Reply<NodeOrders>, Moment)>,
    /// Orders that the node has not confirmed.
    orders: VecDeque<NumberedOrder>,
    last_number: u64,
    /// Number of the last order that was sent with the answer to a poll.
    sent: u64,
    /// Running attempts with their slots and their start times, in nanoseconds since 1970.
    pub(super) running: BTreeMap<AttemptKey, (u32, u64)>,
    /// Jobs that the node has heard of.
    pub(super) jobs: BTreeSet<JobId>,
    /// Jobs with data on the node that no writer sent to it: the node may ask about them without a token.
    pub(super) holds: BTreeSet<JobId>,
    /// It was known to the previous server and has not polled yet.
    pub(super) restored: bool,
    /// Disks as it reported them last.
    pub(super) disks: Vec<DiskReport>,
    pub(super) sample: Option<MachineSample>,
    /// Last output so far of the programs that run on it.
    pub(super) heard: BTreeMap<AttemptKey, OutputTail>,
    /// Set while it is being drained.
    pub(super) drain: Option<Drain>,
    /// It gets only tasks that are bound to it, because it cannot write and other nodes can.
    pub(super) is_cordoned: bool,
    /// Jobs with kept data on its disks.
    pub(super) kept: BTreeSet<JobId>,
    /// Set when its process has ended and its data is not abandoned yet.
    pub(super) away: Option<Away>,
    /// The value of [`Fleet::changes`] that it has been told of.
    told_changes: u64,
}

impl Node {
    /// Returns whether more attempts are there than it has slots: some wait in its places.
    pub fn has_waiting_attempts(&self) -> bool {
        self.running.len() > self.info.slots as usize
    }

    pub fn new(info: NodeInfo, process: NodeProcess, now: Moment) -> Self {
        let NodeProcess { incarnation, join_token } = process;
        Self {
            info,
            incarnation,
            join_token,
            presence: Presence::new(now),
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
            is_cordoned: false,
            kept: BTreeSet::new(),
            away: None,
            told_changes: 0,
        }
    }

    pub fn info(&self) -> &NodeInfo {
        &self.info
    }

    /// Returns its disks as it reported them last.
    pub fn disks(&self) -> &[DiskReport] {
        &self.disks
    }

    /// Returns its running attempts with their slots and their start times, in nanoseconds since 1970.
    pub fn running(&self) -> &BTreeMap<AttemptKey, (u32, u64)> {
        &self.running
    }

    /// Records a running attempt that an earlier server had started.
    pub fn runs(&mut self, attempt: AttemptKey, slot: u32, started_ns: u64) {
        self.running.insert(attempt, (slot, started_ns));
    }

    /// Records that its disks hold kept data of a job.
    pub fn keeps_data_of(&mut self, job: JobId) {
        self.kept.insert(job);
    }

    /// Records that its disks hold no kept data of a job any more.
    pub fn keeps_nothing_of(&mut self, job: JobId) {
        self.kept.remove(&job);
    }

    /// Returns whether it is silent, and its data may come back.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Returns whether new chunks may be put on it: not if it is away or being drained, nor if no disk accepts data.
    pub fn takes_chunks(&self) -> bool {
        let has_room = self.disks.is_empty() || self.disks.iter().any(|disk| disk.state == DiskState::Usable);
        self.drain.is_none() && self.away.is_none() && has_room
    }

    /// Returns whether it can create files, according to its last report. A full disk still permits it.
    pub fn can_write(&self) -> bool {
        let writable = |disk: &DiskReport| matches!(disk.state, DiskState::Usable | DiskState::Full);
        self.disks.is_empty() || self.disks.iter().any(writable)
    }

    /// Handles the first poll after a restart: this server numbers its orders after those that the node has. Returns
    /// the attempts that the node does not hold: their orders never arrived.
    pub fn met_again(&mut self, received: u64, held: &[AttemptKey]) -> Vec<(AttemptKey, u64)> {
        if !std::mem::take(&mut self.restored) {
            return Vec::new();
        }
        // No server ever counted further, whatever the node claims.
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

    /// Confirms the orders up to a number. Orders with higher numbers that were sent earlier were lost on their way.
    pub fn received(&mut self, number: u64) {
        while self.orders.front().is_some_and(|order| order.number <= number) {
            self.orders.pop_front();
        }
        self.sent = number.min(self.last_number);
    }

    /// Lets a poll wait for orders; an older waiting poll is answered without orders.
    pub fn park(&mut self, reply: Reply<NodeOrders>, outbox: &mut Outbox) {
        let now = outbox.moment();
        self.presence.polls(now);
        if let Some((older, _)) = self.parked.replace((reply, now)) {
            outbox.answer(older, Ok(NodeOrders::default()));
        }
    }

    pub fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Returns whether its poll is open and its caller still waits.
    pub fn waits_here(&self) -> bool {
        self.parked.as_ref().is_some_and(|(reply, _)| !reply.is_gone())
    }

    /// Returns whether it may be dead: it hung up and has not polled since, or has not polled since this server began.
    pub fn is_suspect(&self, now: Moment) -> bool {
        match &self.parked {
            Some((reply, _)) => reply.is_gone(),
            None => self.restored || self.presence.silent_for(now) > SUSPECT_AFTER,
        }
    }

    /// Returns whether there are orders for it, or facts about other nodes that changed since change number `changes`.
    pub fn has_news(&self, changes: u64) -> bool {
        self.last_number > self.sent || self.told_changes != changes
    }

    /// Lets its poll be answered at once, although there is no order: the answer confirms the ends of attempts.
    pub fn confirm_at_once(&mut self) {
        self.told_changes = u64::MAX;
    }

    /// Returns whether its poll has waited for the maximum time.
    pub fn has_waited(&self, now: Moment) -> bool {
        let poll_max = self.presence.poll_max(Duration::from_millis(POLL_MS_MAX));
        self.parked.as_ref().is_some_and(|(_, since)| now.since(*since) >= poll_max)
    }

    /// Takes its poll and the orders for the answer; None if no poll is open.
    pub fn answer_poll(
        &mut self,
        changes: u64,
        now: Moment,
    ) -> Option<(Reply<NodeOrders>, Vec<NumberedOrder>)> {
        let (reply, _) = self.parked.take()?;
        self.presence.answered(now);
        self.sent = self.last_number;
        self.told_changes = changes;
        Some((reply, self.orders.iter().cloned().collect()))
    }

    /// Returns whether it joined with this token.
    pub fn joined_by(&self, token: &str) -> bool {
        self.join_token.as_deref() == Some(token)
    }

    /// Records a poll whose caller has hung up.
    pub fn look_for_poll(&mut self, now: Moment) {
        if self.parked.as_ref().is_some_and(|(reply, _)| reply.is_gone()) {
            self.presence.hangs_up(now);
        }
    }

    /// Takes the open poll, to refuse it.
    pub fn take_parked(&mut self) -> Option<Reply<NodeOrders>> {
        self.parked.take().map(|(reply, _)| reply)
    }

    /// Removes attempts whose input no longer exists, and orders them to stop. Returns each with its start time in
    /// nanoseconds since 1970.
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
