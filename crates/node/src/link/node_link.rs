//! The link of a node to its server: slots hand in and wait, one task polls for all of them.

use crate::link::messages::{Order, Told, Up};
use crate::link::poller::{Poller, Shared};
use crate::link::told_keys::{Telling, ToldKeys};
use api::control::{AttemptEnd, JobBrief, NodeAddress, NodeInfo, NodeWelcome, PlacesAnswer};
use api::data_access::{
    BriefQuestion, DataKeys, FileCopy, JobToken, SecretText, TokensAnswer, TokensQuestion,
};
use api::drill::{DrillNews, DrillOutcome};
use api::fsck::{CheckAnswer, CheckNews};
use api::intermediate::{IntermediateAnswer, IntermediateNews, IntermediateNote};
use api::kept::KeptAnnouncement;
use api::machine::{LostOnDisk, NodeReport, ReplicatedPart, ReplicatedRun};
use api::{Boundaries, ContentHash, KeyBytes};
use client::{Blocking, ClientError};
use ids::{JobId, NodeId, RunId};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc as asynchronous;

/// Orders that may wait for the thread that acts on them.
const ORDERS_MAX: usize = 1024;

/// A node's side of the control port. Shared by its slot threads.
pub struct NodeLink {
    welcome: NodeWelcome,
    up: asynchronous::Sender<Up>,
    down: Vec<Mutex<blocking::Receiver<Order>>>,
    told: Mutex<blocking::Receiver<Told>>,
    peers: Arc<Mutex<Vec<NodeAddress>>>,
    keys: Arc<ToldKeys>,
    blocking: Blocking,
}

impl NodeLink {
    /// Registers the node and begins to poll. Waits for a server that is not there yet.
    pub fn join(mut blocking: Blocking, info: &NodeInfo) -> Result<Self, ClientError> {
        let welcome = blocking.run(async |client| client.register(info).await)?;
        blocking.speak_for_node(&welcome.secret)?;
        let (up, inbox) = asynchronous::channel(info.slots as usize * 2 + 2);
        let (mut slots, mut down) = (Vec::new(), Vec::new());
        for _ in 0..info.slots {
            // A slot has one attempt at a time.
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            slots.push(sender);
            down.push(Mutex::new(receiver));
        }
        let (tell, told) = std::sync::mpsc::sync_channel(ORDERS_MAX);
        let peers: Arc<Mutex<Vec<NodeAddress>>> = Arc::default();
        let (runtime, client) = blocking.parts();
        let keys: Arc<ToldKeys> = Arc::default();
        let shared = Shared { peers: Arc::clone(&peers), keys: Telling(Arc::clone(&keys)) };
        let poller = Poller::new(client.clone(), welcome.clone(), slots, tell, shared);
        runtime.spawn(poller.run(inbox));
        Ok(Self { welcome, up, down, told: Mutex::new(told), peers, keys, blocking })
    }

    /// The number under which the server knows this node.
    pub fn node(&self) -> NodeId {
        self.welcome.node
    }

    /// Returns the name of this process, which tells it from every other one.
    pub fn incarnation(&self) -> &str {
        &self.welcome.incarnation
    }

    /// Whether the server wants user programs kept in a sandbox.
    pub fn must_sandbox(&self) -> bool {
        self.welcome.sandbox
    }

    /// Returns the proof to keep on the disks of this node.
    pub fn disk_proof(&self) -> &SecretText {
        &self.welcome.disk_proof
    }

    /// The jobs that read again what was left of them on the disks of this node.
    pub fn readmitted(&self) -> &[JobId] {
        &self.welcome.readmitted
    }

    /// Returns the directories and prefixes below which the server lets jobs name paths and objects; None: anywhere.
    pub fn roots(&self) -> Option<&[String]> {
        self.welcome.roots.as_deref()
    }

    /// Hands in what a slot finished and waits for its next attempt. None: there will be none.
    pub fn pull(&self, slot: u32, finished: Option<AttemptEnd>) -> Option<Order> {
        let down = self.down.get(slot as usize)?;
        self.up.blocking_send(Up::Free { slot, finished: finished.map(Box::new) }).ok()?;
        down.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Waits for what the server tells next. None: there will be nothing.
    pub fn next_told(&self) -> Option<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Tells how the node is, with one of the next polls. Dropped where very much else waits to be told.
    pub fn report(&self, report: NodeReport) {
        // The channel is full for a moment, or closed for good.
        let _ = self.up.try_send(Up::Report(Box::new(report)));
    }

    /// Tells that a part has a replica. Not dropped: it waits for its place.
    pub fn replicated_part(&self, part: ReplicatedPart) {
        let report = NodeReport { replicated_parts: vec![part], ..NodeReport::default() };
        // Closed for good: nobody is told anything any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// The same of a run.
    pub fn replicated(&self, run: ReplicatedRun) {
        let report = NodeReport { replicated: vec![run], ..NodeReport::default() };
        // Closed for good: nobody is told anything any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// Tells what is lost with a disk. Not dropped: it waits for its place.
    pub fn lost_on_disk(&self, lost: LostOnDisk) {
        let report = NodeReport { lost: vec![lost], ..NodeReport::default() };
        // Closed for good: nobody is told anything any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// The nodes that live, as the server told last.
    pub fn peers(&self) -> Vec<NodeAddress> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys by which its data port knows what the server signed, as they were when it joined.
    pub fn data_keys(&self) -> &DataKeys {
        &self.welcome.data_keys
    }

    /// Waits for keys that the server signs with from now on. None: there will be none.
    pub fn next_data_keys(&self) -> Option<Box<DataKeys>> {
        self.keys.next()
    }

    /// Whether nothing is heard of the server any more, and never will be.
    pub fn is_over(&self) -> bool {
        self.keys.is_over()
    }

    /// Asks about a job of which this node runs an attempt, or about one of which another node brought data and showed this token.
    pub fn brief(&self, job: JobId, shown: Option<SecretText>) -> Result<JobBrief, ClientError> {
        let question = BriefQuestion { token: shown };
        self.blocking.run(async |client| client.brief(job, &question).await)
    }

    /// Returns new tokens of jobs in place of these.
    pub fn renew_tokens(&self, tokens: Vec<JobToken>) -> Result<TokensAnswer, ClientError> {
        let question = TokensQuestion { incarnation: self.welcome.incarnation.clone(), tokens };
        self.blocking.run(async |client| client.renew_tokens(self.welcome.node, &question).await)
    }

    /// Returns the places of runs of a job by now.
    pub fn places(&self, job: JobId, runs: Vec<RunId>) -> Result<PlacesAnswer, ClientError> {
        self.blocking.run(async |client| client.places(job, runs).await)
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

    /// Tells the server what is on the disks of this node, whose incarnation is put in.
    pub fn announce(&self, mut announcement: KeptAnnouncement) -> Result<(), ClientError> {
        announcement.incarnation.clone_from(&self.welcome.incarnation);
        self.blocking.run(async |client| client.announce(self.welcome.node, &announcement).await)
    }

    /// Tells of intermediate files of users on this node.
    pub fn tell_intermediates(
        &self,
        notes: Vec<IntermediateNote>,
    ) -> Result<IntermediateAnswer, ClientError> {
        let incarnation = self.welcome.incarnation.clone();
        let news = IntermediateNews { incarnation, notes, copies: Vec::new() };
        self.blocking.run(async |client| client.tell_intermediates(self.welcome.node, &news).await)
    }

    /// The right to send another node a copy of a file of a user; None where this node may not.
    pub fn copy_grant(&self, copy: FileCopy) -> Result<Option<SecretText>, ClientError> {
        let incarnation = self.welcome.incarnation.clone();
        let news = IntermediateNews { incarnation, notes: Vec::new(), copies: vec![copy] };
        let node = self.welcome.node;
        let answer = self.blocking.run(async |client| client.tell_intermediates(node, &news).await)?;
        Ok(answer.grants.into_iter().find(|given| given.copy == copy).map(|given| given.grant))
    }

    /// Tells what was read for a check; the incarnation of this node is put in.
    pub fn tell_check(&self, mut news: CheckNews) -> Result<CheckAnswer, ClientError> {
        news.incarnation.clone_from(&self.welcome.incarnation);
        self.blocking.run(async |client| client.tell_check(self.welcome.node, &news).await)
    }

    /// Tells what became of a fault.
    pub fn tell_drill(&self, strike: String, outcome: DrillOutcome) -> Result<(), ClientError> {
        let news = DrillNews { incarnation: self.welcome.incarnation.clone(), strike, outcome };
        self.blocking.run(async |client| client.tell_drill(self.welcome.node, &news).await)
    }

    /// Says good-bye: the server gives what this node ran to others, and slots that wait are sent home.
    pub fn leave(&self) -> Result<(), ClientError> {
        // A poller that has ended has sent everybody home already.
        let _ = self.up.blocking_send(Up::Close);
        self.blocking.run(async |client| client.leave(self.welcome.node, &self.welcome.incarnation).await)
    }
}
