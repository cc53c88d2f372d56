//! One node as the server knows it: its poll, orders on their way, attempts that it runs.

use crate::interface::{Moment, Outbox, Reply};
use crate::membership::{Heard, LEASE, Presence};
use api::control::{NodeInfo, NodeOrder, NodeOrders, NumberedOrder, POLL_MS_MAX};
use api::machine::{DiskReport, DiskState, MachineSample};
use ids::{AttemptKey, JobId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A node polls again at once; one that has no poll here for so long may be gone.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// More orders than one process is ever given.
const ORDERS_MAX: u64 = 1 << 48;

const _: () = assert!(POLL_MS_MAX * 2 <= LEASE.as_millis() as u64);

/// A node that is being emptied.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Jobs that came before it began; those that come later put nothing there.
    pub jobs: BTreeSet<JobId>,
    /// Nobody needs the node any more, and it has been told to leave.
    pub is_done: bool,
}

/// State of a node that is away.
pub(crate) struct Away {
    pub since: Moment,
    pub why: String,
    /// Longest wait of each job that needs data of this node.
    pub patience: BTreeMap<JobId, Duration>,
}

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
    parked: Option<(Reply<NodeOrders>, Moment)>,
    /// Orders whose arrival the node has not confirmed.
    orders: VecDeque<NumberedOrder>,
    last_number: u64,
    /// The last order that a poll of it carried away.
    sent: u64,
    /// With their slots, and when they were given out, in nanoseconds since 1970.
    pub running: BTreeMap<AttemptKey, (u32, u64)>,
    /// Jobs it has heard of.
    pub jobs: BTreeSet<JobId>,
    /// Jobs of which data lies there that nobody brought: it is told of them without a token.
    pub holds: BTreeSet<JobId>,
    /// It was known to the server before this one and has not polled yet.
    pub restored: bool,
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

impl Node {
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
    pub fn can_write(&self) -> bool {
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

    /// Whether its poll is here and somebody waits for the answer.
    pub fn waits_here(&self) -> bool {
        self.parked.as_ref().is_some_and(|(reply, _)| !reply.is_gone())
    }

    /// Whether it hung up and has not polled since, or not since this server began: it may be dead.
    pub fn is_suspect(&self, now: Moment) -> bool {
        match &self.parked {
            Some((reply, _)) => reply.is_gone(),
            None => self.restored || self.presence.silent_for(now) > SUSPECT_AFTER,
        }
    }

    /// Whether there are orders for it, or facts about other nodes, since the given number of changes.
    pub fn has_news(&self, changes: u64) -> bool {
        self.last_number > self.sent || self.told_changes != changes
    }

    /// Whether its poll has waited as long as one may.
    pub fn has_waited(&self, now: Moment) -> bool {
        let poll_max = self.presence.poll_max(Duration::from_millis(POLL_MS_MAX));
        self.parked.as_ref().is_some_and(|(_, since)| now.since(*since) >= poll_max)
    }

    /// Takes its poll and the orders that it gets; None where no poll is here.
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

    /// Whether it joined by this token.
    pub fn joined_by(&self, token: &str) -> bool {
        self.join_token.as_deref() == Some(token)
    }

    /// Notes when its poll is answered, or nobody waits for it any more.
    pub fn look_for_poll(&mut self, now: Moment) {
        if self.parked.as_ref().is_some_and(|(reply, _)| reply.is_gone()) {
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
