//! The link of a node to its server: slots hand in and wait, one task polls for all of them.

use crate::pending::PendingReport;
use crate::{Blocking, Client, ClientError};
use api::control::{
    AttemptEnd, ErrorCode, JobBrief, NodeAddress, NodeInfo, NodeOrder, NodeOrders, NodePoll, NodeWelcome,
};
use api::kept::{KeptAnnouncement, KeptDir};
use api::machine::NodeReport;
use api::{Boundaries, ContentHash, KeyBytes, Task};
use ids::{AttemptKey, JobId, NodeId};
use std::collections::BTreeSet;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc as asynchronous;
use tokio::task::JoinSet;

/// Polls on their way: one waits at the server, the next carries what has happened since.
const POLLS_MAX: usize = 2;
/// Notices that may wait for whoever acts on them.
const NOTICES_MAX: usize = 1024;
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(50);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);

/// An attempt to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub attempt: AttemptKey,
    pub task: Task,
}

/// What the server says of a job, or of this node, besides attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Attempts of the job stop.
    Stop(JobId),
    /// Everything of the job goes.
    Forget(JobId),
    /// The job is over, and its runs on disk stay.
    Keep(JobId),
    /// The server wants to know what is kept here.
    TellKept,
    /// Kept directories of these names go.
    DropKept(Vec<String>),
    /// No new chunk may lie here.
    Drain,
    /// Nobody needs this node any more: it says good-bye and ends.
    Leave,
    /// The server does not know this node any more: everything goes, and no slot gets anything again.
    Expelled,
}

/// From slots to the task that polls.
enum Up {
    Free {
        slot: u32,
        finished: Option<Box<AttemptEnd>>,
    },
    Report(Box<NodeReport>),
    /// No slot asks any more.
    Close,
}

/// A node's side of the control port. Shared by its slot threads.
pub struct NodeLink {
    welcome: NodeWelcome,
    up: asynchronous::Sender<Up>,
    down: Vec<Mutex<blocking::Receiver<Order>>>,
    notices: Mutex<blocking::Receiver<Notice>>,
    peers: Arc<Mutex<Vec<NodeAddress>>>,
    blocking: Blocking,
}

impl NodeLink {
    /// Registers the node and begins to poll. Waits for a server that is not there yet.
    pub fn join(blocking: Blocking, info: &NodeInfo) -> Result<Self, ClientError> {
        let welcome = blocking.run(async |client| client.register(info).await)?;
        let (up, inbox) = asynchronous::channel(info.slots as usize * 2 + 2);
        let (mut slots, mut down) = (Vec::new(), Vec::new());
        for _ in 0..info.slots {
            // A slot has one attempt at a time.
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            slots.push(sender);
            down.push(Mutex::new(receiver));
        }
        let (notice, notices) = std::sync::mpsc::sync_channel(NOTICES_MAX);
        let peers: Arc<Mutex<Vec<NodeAddress>>> = Arc::default();
        let (runtime, client) = blocking.parts();
        let poller = Poller {
            client: client.clone(),
            welcome: welcome.clone(),
            slots,
            notice,
            peers: Arc::clone(&peers),
            received: 0,
            free: BTreeSet::new(),
            waiting: Vec::new(),
            held: BTreeSet::new(),
            pending: PendingReport::default(),
            again_after: AGAIN_AFTER_MIN,
        };
        runtime.spawn(poller.run(inbox));
        Ok(Self { welcome, up, down, notices: Mutex::new(notices), peers, blocking })
    }

    /// The number under which the server knows this node.
    pub fn node(&self) -> NodeId {
        self.welcome.node
    }

    /// What tells this process from every other one.
    pub fn incarnation(&self) -> &str {
        &self.welcome.incarnation
    }

    /// Whether the server wants user programs kept in a sandbox.
    pub fn must_sandbox(&self) -> bool {
        self.welcome.sandbox
    }

    /// Below which the server lets jobs name paths and objects; None: anywhere.
    pub fn roots(&self) -> Option<&[String]> {
        self.welcome.roots.as_deref()
    }

    /// Hands in what a slot finished and waits for its next attempt. None: there will be none.
    pub fn pull(&self, slot: u32, finished: Option<AttemptEnd>) -> Option<Order> {
        let down = self.down.get(slot as usize)?;
        self.up.blocking_send(Up::Free { slot, finished: finished.map(Box::new) }).ok()?;
        down.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Waits for the next notice. None: there will be none.
    pub fn next_notice(&self) -> Option<Notice> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Tells how the node is, with one of the next polls. Dropped where very much else waits to be told.
    pub fn report(&self, report: NodeReport) {
        // The channel is full for a moment, or closed for good.
        let _ = self.up.try_send(Up::Report(Box::new(report)));
    }

    /// The nodes that live, as the server told last.
    pub fn peers(&self) -> Vec<NodeAddress> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What there is to know of a job.
    pub fn brief(&self, job: JobId) -> Result<JobBrief, ClientError> {
        self.blocking.run(async |client| client.brief(job).await)
    }

    /// Fetches a file that a job needs, piece by piece.
    pub fn fetch<E: From<ClientError>>(
        &self,
        content: ContentHash,
        bytes: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.blocking.run(async |client| {
            let mut fetched = client.fetch_file(content, bytes).await?;
            while let Some(piece) = fetched.next().await? {
                take(&piece)?;
            }
            Ok(())
        })
    }

    /// Proposes range boundaries; the answer is what stands.
    pub fn propose(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ClientError> {
        self.blocking.run(async |client| client.propose(job, keys).await)
    }

    /// Tells the server what is kept on the disks of this node.
    pub fn announce(
        &self,
        job: Option<JobId>,
        dirs: Vec<KeptDir>,
        problem: Option<String>,
    ) -> Result<(), ClientError> {
        let incarnation = self.welcome.incarnation.clone();
        let announcement = KeptAnnouncement { incarnation, job, dirs, problem };
        self.blocking.run(async |client| client.announce(self.welcome.node, &announcement).await)
    }

    /// Says good-bye: the server gives what this node ran to others, and slots that wait are sent home.
    pub fn leave(&self) -> Result<(), ClientError> {
        // A poller that has ended has sent everybody home already.
        let _ = self.up.blocking_send(Up::Close);
        self.blocking.run(async |client| client.leave(self.welcome.node, &self.welcome.incarnation).await)
    }
}

/// An end that the server has not confirmed.
struct Waiting {
    end: AttemptEnd,
    /// Carried by a poll that is on its way.
    carried: bool,
}

struct Poller {
    client: Client,
    welcome: NodeWelcome,
    slots: Vec<blocking::SyncSender<Order>>,
    notice: blocking::SyncSender<Notice>,
    peers: Arc<Mutex<Vec<NodeAddress>>>,
    received: u64,
    free: BTreeSet<u32>,
    waiting: Vec<Waiting>,
    /// Attempts that run, or whose end is not confirmed.
    held: BTreeSet<AttemptKey>,
    pending: PendingReport,
    again_after: Duration,
}

/// What a poll carried, until it has been answered.
struct Carried {
    ends: Vec<AttemptKey>,
    report: NodeReport,
}

/// A poll that has come back.
type Answered = (Carried, Result<NodeOrders, ClientError>);

impl Poller {
    /// Runs until nobody asks any more or the server sends the node away. Slots then find their channel closed.
    async fn run(mut self, mut inbox: asynchronous::Receiver<Up>) {
        let mut polls: JoinSet<Answered> = JoinSet::new();
        // What has happened since the last poll left.
        let mut news = true;
        loop {
            if polls.is_empty() || (news && polls.len() < POLLS_MAX) {
                self.send(&mut polls);
                news = false;
            }
            tokio::select! {
                up = inbox.recv() => match up {
                    Some(Up::Close) | None => return,
                    Some(up) => {
                        news |= self.take(up);
                        // A second end of it finds the channel closed.
                        while let Ok(up) = inbox.try_recv() {
                            if matches!(up, Up::Close) {
                                return;
                            }
                            news |= self.take(up);
                        }
                    }
                },
                answered = polls.join_next() => match answered {
                    Some(Ok((carried, Ok(orders)))) => {
                        self.confirm(&carried.ends);
                        self.obey(orders);
                    }
                    Some(Ok((carried, Err(error)))) => {
                        // A node whose token is not good any more learns why when it joins anew.
                        let gone = [
                            ErrorCode::UnknownNode, ErrorCode::Unauthenticated, ErrorCode::Forbidden,
                        ];
                        if error.code().is_some_and(|code| gone.contains(&code)) {
                            // Whoever listens has ended where this cannot be told.
                            let _ = self.notice.try_send(Notice::Expelled);
                            return;
                        }
                        self.pending.put_back(carried.report);
                        self.hold_back(&carried.ends, &error).await;
                        news = true;
                    }
                    // A poll that panicked has carried nothing.
                    Some(Err(_)) | None => self.waiting.iter_mut().for_each(|each| each.carried = false),
                },
            }
        }
    }

    /// True where the server must hear of it at once.
    fn take(&mut self, up: Up) -> bool {
        match up {
            Up::Free { slot, finished } => {
                self.free.insert(slot);
                self.waiting.extend(finished.map(|end| Waiting { end: *end, carried: false }));
                true
            }
            Up::Report(report) => self.pending.add(*report),
            Up::Close => false,
        }
    }

    fn send(&mut self, polls: &mut JoinSet<Answered>) {
        let mut finished = Vec::new();
        for each in self.waiting.iter_mut().filter(|each| !each.carried) {
            each.carried = true;
            finished.push(each.end.clone());
        }
        let ends = finished.iter().map(|end| end.attempt).collect();
        let report = self.pending.take();
        let poll = NodePoll {
            incarnation: self.welcome.incarnation.clone(),
            received: self.received,
            free_slots: self.free.iter().copied().collect(),
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

    fn confirm(&mut self, carried: &[AttemptKey]) {
        self.again_after = AGAIN_AFTER_MIN;
        self.held.retain(|attempt| !carried.contains(attempt));
        self.waiting.retain(|each| !carried.contains(&each.end.attempt));
    }

    /// The server cannot be reached, or fails: what was on its way goes again, after a while.
    async fn hold_back(&mut self, carried: &[AttemptKey], error: &ClientError) {
        if self.again_after == AGAIN_AFTER_MIN {
            tracing::info!(%error, "the server does not answer; asking again until it does");
        }
        for each in self.waiting.iter_mut().filter(|each| carried.contains(&each.end.attempt)) {
            each.carried = false;
        }
        tokio::time::sleep(self.again_after).await;
        self.again_after = (self.again_after * 2).min(AGAIN_AFTER_MAX);
    }

    fn obey(&mut self, orders: NodeOrders) {
        if !orders.peers.is_empty() {
            *self.peers.lock().unwrap_or_else(PoisonError::into_inner) = orders.peers;
        }
        for numbered in orders.orders {
            // One that was sent again, because its arrival was not known.
            if numbered.number <= self.received {
                continue;
            }
            self.received = numbered.number;
            match numbered.order {
                NodeOrder::Start { attempt, slot, task } => {
                    self.free.remove(&slot);
                    self.held.insert(attempt);
                    if let Some(sender) = self.slots.get(slot as usize) {
                        // It waits, so its channel is empty; a slot that is gone belongs to a node that ends.
                        let _ = sender.try_send(Order { attempt, task: *task });
                    }
                }
                // A node that does not listen any more ends.
                NodeOrder::Stop { job } => drop(self.notice.try_send(Notice::Stop(job))),
                NodeOrder::Forget { job } => drop(self.notice.try_send(Notice::Forget(job))),
                NodeOrder::Keep { job } => drop(self.notice.try_send(Notice::Keep(job))),
                NodeOrder::TellKept => drop(self.notice.try_send(Notice::TellKept)),
                NodeOrder::DropKept { names } => drop(self.notice.try_send(Notice::DropKept(names))),
                NodeOrder::Drain => drop(self.notice.try_send(Notice::Drain)),
                NodeOrder::Leave => drop(self.notice.try_send(Notice::Leave)),
            }
        }
    }
}
