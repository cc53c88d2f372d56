//! The task that polls for all slots of a node.

use crate::link::messages::{Order, ServerMessage, Up};
use crate::link::newest_keys::KeysFromServer;
use crate::link::order_prefetch::OrderPrefetch;
use crate::link::pending_report::PendingReport;
use crate::tasks::growing_outputs::GrowingOutputs;
use api::control::{
    AttemptEnd, AttemptOutcome, ErrorCode, NodeAddress, NodeOrder, NodeOrders, NodePoll, NodeWelcome,
};
use api::machine::NodeReport;
use api::task::AttemptUsage;
use api::{Blame, TaskFailure};
use client::{Client, ClientError};
use ids::{AttemptKey, JobId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc as asynchronous;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of polls in flight: one waits at the server, the next carries later events.
const POLLS_MAX: usize = 2;
/// Time after which a silent server is reported, and the interval of repetitions: a restart takes a moment.
const TELL_AFTER: Duration = Duration::from_secs(10);
const TELL_EVERY: Duration = Duration::from_secs(60);
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(50);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);
/// Time that ends of attempts wait for others while the slots have enough work.
const GATHER: Duration = Duration::from_millis(5);

/// The end of an attempt that the server has not confirmed.
struct Waiting {
    end: AttemptEnd,
    /// True if a poll in flight carries it.
    carried: bool,
}

pub(crate) struct Poller {
    client: Client,
    welcome: NodeWelcome,
    slots: Vec<blocking::SyncSender<Order>>,
    messages: blocking::SyncSender<ServerMessage>,
    shared: Shared,
    received: u64,
    /// Slots that ask for work.
    idle: BTreeSet<u32>,
    /// Orders that no slot has asked for yet.
    prefetch: OrderPrefetch,
    /// Attempts that have not ended, with the number of their slot or place from the server.
    numbers: BTreeMap<AttemptKey, u32>,
    waiting: Vec<Waiting>,
    /// Attempts that have not ended, or whose end is not confirmed.
    held: BTreeSet<AttemptKey>,
    pending: PendingReport,
    /// Time at which the next poll must leave, if there is room for one.
    news: Option<Instant>,
    /// Time before which no poll leaves, because the server did not respond.
    held_until: Instant,
    again_after: Duration,
    /// Set while the server does not respond.
    silence: Option<Silence>,
}

struct Silence {
    since: Instant,
    /// Time of the last report.
    told: Option<Instant>,
}

/// Data from the server's answers, for other threads.
pub(crate) struct Shared {
    pub peers: Arc<Mutex<Vec<NodeAddress>>>,
    pub keys: KeysFromServer,
    pub growing: Arc<GrowingOutputs>,
}

/// Ends and report in a poll without an answer yet.
struct Carried {
    ends: Vec<AttemptKey>,
    report: NodeReport,
}

/// A poll that has been answered.
type Answered = (Carried, Result<NodeOrders, ClientError>);

/// The decision whether the poller continues.
enum Next {
    Goes,
    Ends,
}

impl Poller {
    pub fn new(
        client: Client,
        welcome: NodeWelcome,
        slots: Vec<blocking::SyncSender<Order>>,
        messages: blocking::SyncSender<ServerMessage>,
        shared: Shared,
    ) -> Self {
        Self {
            prefetch: OrderPrefetch::new(slots.len() as u32),
            client,
            welcome,
            slots,
            messages,
            shared,
            received: 0,
            idle: BTreeSet::new(),
            numbers: BTreeMap::new(),
            waiting: Vec::new(),
            held: BTreeSet::new(),
            pending: PendingReport::default(),
            news: None,
            held_until: Instant::now(),
            again_after: AGAIN_AFTER_MIN,
            silence: None,
        }
    }

    /// Runs until no slot asks any more, or until the server removes the node. The channels of slots are closed
    /// afterwards.
    pub async fn run(mut self, mut inbox: asynchronous::Receiver<Up>) {
        let mut polls: JoinSet<Answered> = JoinSet::new();
        loop {
            let now = Instant::now();
            self.give_back(now);
            if polls.is_empty() {
                self.tell_by(self.soon(now));
            }
            if polls.len() < POLLS_MAX && self.due().is_some_and(|due| due <= now) {
                self.news = None;
                self.send(&mut polls);
            }
            let due = if polls.len() < POLLS_MAX { self.due() } else { None };
            let wake = due.into_iter().chain(self.prefetch.overdue_at()).min();
            let next = tokio::select! {
                up = inbox.recv() => self.take_all(up, &mut inbox),
                Some(answered) = polls.join_next() => self.answered(answered),
                () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => Next::Goes,
            };
            if matches!(next, Next::Ends) {
                return;
            }
        }
    }

    /// Returns the time of the next poll.
    fn due(&self) -> Option<Instant> {
        self.news.map(|news| news.max(self.held_until))
    }

    fn tell_by(&mut self, latest: Instant) {
        self.news = Some(self.news.map_or(latest, |news| news.min(latest)));
    }

    /// Returns the time for events that can wait: at once if slots are about to become idle.
    fn soon(&self, now: Instant) -> Instant {
        if self.prefetch.has_enough() { now + GATHER } else { now }
    }

    fn take_all(&mut self, first: Option<Up>, inbox: &mut asynchronous::Receiver<Up>) -> Next {
        let mut up = first;
        loop {
            match up {
                // A second end finds the channel closed.
                None | Some(Up::Close) => return Next::Ends,
                Some(up) => self.take(up),
            }
            match inbox.try_recv() {
                Ok(another) => up = Some(another),
                Err(_) => return Next::Goes,
            }
        }
    }

    fn take(&mut self, up: Up) {
        let now = Instant::now();
        match up {
            Up::Free { slot, finished } => {
                self.idle.insert(slot);
                if let Some(end) = finished {
                    let took = Duration::from_nanos(end.ended_ns.saturating_sub(end.started_ns));
                    self.prefetch.ran_for(took);
                    self.ended(*end);
                }
                self.hand_out();
                self.tell_by(self.soon(now));
            }
            Up::Report(report) => {
                if self.pending.add(*report) {
                    self.tell_by(now);
                }
            }
            Up::Close => {}
        }
    }

    fn ended(&mut self, end: AttemptEnd) {
        self.numbers.remove(&end.attempt);
        self.waiting.push(Waiting { end, carried: false });
    }

    fn send(&mut self, polls: &mut JoinSet<Answered>) {
        let mut finished = Vec::new();
        for each in self.waiting.iter_mut().filter(|each| !each.carried) {
            each.carried = true;
            finished.push(each.end.clone());
        }
        let ends = finished.iter().map(|end| end.attempt).collect();
        let report = self.pending.take();
        let taken: BTreeSet<u32> = self.numbers.values().copied().collect();
        let free = (0..self.slots.len() as u32).filter(|slot| !taken.contains(slot));
        let poll = NodePoll {
            incarnation: self.welcome.incarnation.clone(),
            received: self.received,
            // An attempt may run in another slot than that of its number.
            free_slots: free.take(self.idle.len()).collect(),
            places: self.prefetch.places(&taken),
            finished,
            held: self.held.iter().copied().collect(),
            report,
        };
        let (client, node) = (self.client.clone(), self.welcome.node);
        polls.spawn(async move {
            let answered = client.poll(node, &poll).await;
            (Carried { ends, report: poll.report }, answered)
        });
    }

    fn answered(&mut self, answered: Result<Answered, tokio::task::JoinError>) -> Next {
        match answered {
            Ok((carried, Ok(orders))) => {
                self.again_after = AGAIN_AFTER_MIN;
                if self.silence.take().is_some_and(|silence| silence.told.is_some()) {
                    tracing::warn!("the server answers again");
                }
                self.held.retain(|attempt| !carried.ends.contains(attempt));
                self.waiting.retain(|each| !carried.ends.contains(&each.end.attempt));
                self.shared.growing.confirmed(&carried.ends);
                self.obey(orders);
            }
            Ok((carried, Err(error))) => {
                // A node whose token is no longer valid learns the reason when it joins again.
                let gone = [ErrorCode::UnknownNode, ErrorCode::Unauthenticated, ErrorCode::Forbidden];
                if error.code().is_some_and(|code| gone.contains(&code)) {
                    self.tell(ServerMessage::Expelled);
                    return Next::Ends;
                }
                self.pending.put_back(carried.report);
                self.hold_back(&carried.ends, &error);
            }
            // A poll that panicked has carried nothing.
            Err(_) => self.waiting.iter_mut().for_each(|each| each.carried = false),
        }
        Next::Goes
    }

    /// Delays the next poll after a failure of the server: the carried data is sent again.
    fn hold_back(&mut self, carried: &[AttemptKey], error: &ClientError) {
        let now = Instant::now();
        for each in self.waiting.iter_mut().filter(|each| carried.contains(&each.end.attempt)) {
            each.carried = false;
        }
        self.tell_by(now);
        // If two polls failed together, the second adds nothing.
        if now < self.held_until {
            return;
        }
        let silence = self.silence.get_or_insert(Silence { since: now, told: None });
        let tells = match silence.told {
            None => now.duration_since(silence.since) >= TELL_AFTER,
            Some(told) => now.duration_since(told) >= TELL_EVERY,
        };
        if tells {
            silence.told = Some(now);
            let seconds = now.duration_since(silence.since).as_secs();
            tracing::warn!(%error, "the server has not answered for {seconds} s; retrying until it does");
        }
        self.held_until = now + self.again_after;
        self.again_after = (self.again_after * 2).min(AGAIN_AFTER_MAX);
    }

    fn obey(&mut self, orders: NodeOrders) {
        if !orders.peers.is_empty() {
            *self.shared.peers.lock().unwrap_or_else(PoisonError::into_inner) = orders.peers;
        }
        let now = Instant::now();
        for numbered in orders.orders {
            // A repeated order, because its arrival was not confirmed.
            if numbered.number <= self.received {
                continue;
            }
            self.received = numbered.number;
            match numbered.order {
                NodeOrder::Start { attempt, slot, task } => {
                    self.held.insert(attempt);
                    self.numbers.insert(attempt, slot);
                    self.prefetch.arrived(now, Order { attempt, task: *task });
                }
                NodeOrder::DataKeys { keys } => self.shared.keys.0.tell(keys),
                order => {
                    self.drop_stopped(&order);
                    self.tell(ServerMessage::Order(order));
                }
            }
        }
        self.hand_out();
    }

    fn tell(&self, message: ServerMessage) {
        // A node without a receiver ends.
        let _ = self.messages.try_send(message);
    }

    /// Ends the attempts that an order stops before they began.
    fn drop_stopped(&mut self, order: &NodeOrder) {
        match order {
            NodeOrder::Stop { job } | NodeOrder::Forget { job } => self.drop_orders_of(*job),
            NodeOrder::StopAttempt { attempt } => self.drop_order(*attempt),
            _ => {}
        }
    }

    /// Passes orders to slots that ask.
    fn hand_out(&mut self) {
        while let Some(slot) = self.idle.first().copied() {
            let Some(order) = self.prefetch.next() else { return };
            self.idle.remove(&slot);
            if let Some(sender) = self.slots.get(slot as usize) {
                // The slot asked, so its channel is empty; a missing slot belongs to a node that ends.
                let _ = sender.try_send(order);
            }
        }
    }

    /// Ends the order of an attempt that was told to stop before it began.
    fn drop_order(&mut self, attempt: AttemptKey) {
        if self.prefetch.remove(attempt) {
            let failure = TaskFailure::new(Blame::Cancelled, "it was told to stop before it began");
            self.end_unbegun(attempt, AttemptOutcome::Failed(failure));
        }
    }

    /// Ends the orders of a job that was told to stop before they began.
    fn drop_orders_of(&mut self, job: JobId) {
        for attempt in self.prefetch.remove_job(job) {
            let failure = TaskFailure::new(Blame::Cancelled, "its job was told to stop before it began");
            self.end_unbegun(attempt, AttemptOutcome::Failed(failure));
        }
    }

    /// Gives back the orders that have waited here for too long: they may run sooner on other nodes.
    fn give_back(&mut self, now: Instant) {
        for attempt in self.prefetch.overdue(now) {
            self.end_unbegun(attempt, AttemptOutcome::GivenBack);
        }
    }

    fn end_unbegun(&mut self, attempt: AttemptKey, outcome: AttemptOutcome) {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let usage = AttemptUsage::default();
        self.ended(AttemptEnd { attempt, outcome, started_ns: now_ns, ended_ns: now_ns, usage });
        self.tell_by(Instant::now());
    }
}
