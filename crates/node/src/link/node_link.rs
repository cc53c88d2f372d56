//! The link of a node to its server: slots report and wait, one task polls for all of them.

use crate::link::messages::{Order, ServerMessage, Up};
use crate::link::newest_keys::{KeysFromServer, NewestKeys};
use crate::link::poller::{Poller, Shared};
use crate::stored::server::{StoredServer, TellError};
use crate::tasks::growing_outputs::GrowingOutputs;
use api::control::{AttemptEnd, JobBrief, NodeAddress, NodeInfo, NodeWelcome, PlacesAnswer};
use api::data_access::{
    BriefQuestion, DataKeys, FileCopy, JobToken, SecretText, TokensAnswer, TokensQuestion,
};
use api::drill::{DrillNews, DrillOutcome};
use api::fsck::{CheckAnswer, CheckNews};
use api::intermediate::{IntermediateAnswer, IntermediateNews, IntermediateNote};
use api::kept::KeptAnnouncement;
use api::machine::{LostOnDisk, NodeReport, ReplicatedPart, ReplicatedRun};
use api::seen::SeenNews;
use api::stored::cluster::{
    CommitOutput, CommittedStored, ListedParts, PartsOfJob, PartsOnDisk, PlaceOutput, PlacedOutput,
    StoredNews, StoredOrders, StoredPage,
};
use api::{Boundaries, ContentHash, KeyBytes};
use client::{Blocking, Client, ClientError};
use dataport::Peer;
use ids::{ConcreteId, JobId, NodeId, RunId};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc as asynchronous;

/// Maximum number of messages that wait for the acting thread.
const MESSAGES_MAX: usize = 1024;

/// A node's side of the control port. Shared by its slot threads.
pub struct NodeLink {
    welcome: NodeWelcome,
    /// URL of the data port of this node.
    data_url: String,
    up: asynchronous::Sender<Up>,
    down: Vec<Mutex<blocking::Receiver<Order>>>,
    messages: Mutex<blocking::Receiver<ServerMessage>>,
    peers: Arc<Mutex<Vec<NodeAddress>>>,
    keys: Arc<NewestKeys>,
    growing: Arc<GrowingOutputs>,
    blocking: Blocking,
}

impl NodeLink {
    /// Registers the node and begins to poll. Waits for a server that is not available yet.
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
        let (message, messages) = std::sync::mpsc::sync_channel(MESSAGES_MAX);
        let peers: Arc<Mutex<Vec<NodeAddress>>> = Arc::default();
        let (runtime, client) = blocking.parts();
        let keys: Arc<NewestKeys> = Arc::default();
        let growing: Arc<GrowingOutputs> = Arc::default();
        let shared = Shared {
            peers: Arc::clone(&peers),
            keys: KeysFromServer(Arc::clone(&keys)),
            growing: Arc::clone(&growing),
        };
        let poller = Poller::new(client.clone(), welcome.clone(), slots, message, shared);
        runtime.spawn(poller.run(inbox));
        let (data_url, messages) = (info.data_url.clone(), Mutex::new(messages));
        Ok(Self { welcome, data_url, up, down, messages, peers, keys, growing, blocking })
    }

    /// Returns the client that acts as this node.
    pub fn client(&self) -> Client {
        self.blocking.parts().1.clone()
    }

    /// Returns the number of this node.
    pub fn node(&self) -> NodeId {
        self.welcome.node
    }

    /// Returns the unique name of this process.
    pub fn incarnation(&self) -> &str {
        &self.welcome.incarnation
    }

    /// Returns whether the server requires a sandbox for user programs.
    pub fn must_sandbox(&self) -> bool {
        self.welcome.sandbox
    }

    /// Returns the proof to keep on the disks of this node.
    pub fn disk_proof(&self) -> &SecretText {
        &self.welcome.disk_proof
    }

    /// Returns the jobs that read their files on the disks of this node again.
    pub fn readmitted(&self) -> &[JobId] {
        &self.welcome.readmitted
    }

    /// Returns the directories and prefixes below which the server lets jobs name paths and objects; None permits all.
    pub fn roots(&self) -> Option<&[String]> {
        self.welcome.roots.as_deref()
    }

    /// Reports the result of a slot and waits for its next attempt. None if there will be none.
    pub fn pull(&self, slot: u32, finished: Option<AttemptEnd>) -> Option<Order> {
        let down = self.down.get(slot as usize)?;
        self.up.blocking_send(Up::Free { slot, finished: finished.map(Box::new) }).ok()?;
        down.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Waits for the next message of the server. None if there will be none.
    pub fn next_message(&self) -> Option<ServerMessage> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Sends a report with one of the next polls. Dropped if very many messages are waiting.
    pub fn report(&self, report: NodeReport) {
        // The channel is temporarily full, or closed.
        let _ = self.up.try_send(Up::Report(Box::new(report)));
    }

    /// Reports that a part has a replica. Never dropped: it waits for room.
    pub fn replicated_part(&self, part: ReplicatedPart) {
        let report = NodeReport { replicated_parts: vec![part], ..NodeReport::default() };
        // A closed channel means that nothing is reported any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// Does the same for a run.
    pub fn replicated(&self, run: ReplicatedRun) {
        let report = NodeReport { replicated: vec![run], ..NodeReport::default() };
        // A closed channel means that nothing is reported any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// Reports the data lost with a disk. Never dropped: it waits for room.
    pub fn lost_on_disk(&self, lost: LostOnDisk) {
        let report = NodeReport { lost: vec![lost], ..NodeReport::default() };
        // A closed channel means that nothing is reported any more.
        let _ = self.up.blocking_send(Up::Report(Box::new(report)));
    }

    /// Returns the live nodes, according to the last answer of the server.
    pub fn peers(&self) -> Vec<NodeAddress> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the keys for verifying the server's signatures, as of the join.
    pub fn data_keys(&self) -> &DataKeys {
        &self.welcome.data_keys
    }

    /// Waits for new signing keys of the server. None if there will be none.
    pub fn next_data_keys(&self) -> Option<Box<DataKeys>> {
        self.keys.next()
    }

    /// Returns the outputs that programs of this node are writing.
    pub(crate) fn growing_outputs(&self) -> Arc<GrowingOutputs> {
        Arc::clone(&self.growing)
    }

    /// Returns whether the link to the server has ended permanently.
    pub fn is_over(&self) -> bool {
        self.keys.is_over()
    }

    /// Asks for the facts of a job: this node runs an attempt of it, or another node sent data and presented this
    /// token.
    pub fn brief(&self, job: JobId, shown: Option<SecretText>) -> Result<JobBrief, ClientError> {
        let question = BriefQuestion { token: shown };
        self.blocking.run(async |client| client.brief(job, &question).await)
    }

    /// Returns new tokens of jobs in place of these.
    pub fn renew_tokens(&self, tokens: Vec<JobToken>) -> Result<TokensAnswer, ClientError> {
        let question = TokensQuestion { incarnation: self.welcome.incarnation.clone(), tokens };
        self.blocking.run(async |client| client.renew_tokens(self.welcome.node, &question).await)
    }

    /// Returns the current locations of runs of a job.
    pub fn places(&self, job: JobId, runs: Vec<RunId>) -> Result<PlacesAnswer, ClientError> {
        self.blocking.run(async |client| client.places(job, runs).await)
    }

    /// Returns a number for a part of a job's stored output, and disks for it.
    pub fn stored_output_places(&self, job: JobId, ask: &PlaceOutput) -> Result<PlacedOutput, ClientError> {
        self.blocking.run(async |client| client.place_stored_output(job, ask).await)
    }

    /// Makes the parts of a job's stored output visible; to be repeated until the answer has a version.
    pub fn commit_stored_output(
        &self,
        job: JobId,
        commit: &CommitOutput,
    ) -> Result<CommittedStored, ClientError> {
        self.blocking.run(async |client| client.commit_stored_output(job, commit).await)
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

    /// Proposes range boundaries. Returns the boundaries in effect.
    pub fn propose(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ClientError> {
        self.blocking.run(async |client| client.propose(job, keys).await)
    }

    /// Announces the kept directories on the disks of this node; adds its incarnation.
    pub fn announce(&self, mut announcement: KeptAnnouncement) -> Result<(), ClientError> {
        announcement.incarnation.clone_from(&self.welcome.incarnation);
        self.blocking.run(async |client| client.announce(self.welcome.node, &announcement).await)
    }

    /// Reports intermediate files of users on this node.
    pub fn tell_intermediates(
        &self,
        notes: Vec<IntermediateNote>,
    ) -> Result<IntermediateAnswer, ClientError> {
        let incarnation = self.welcome.incarnation.clone();
        let news = IntermediateNews { incarnation, notes, copies: Vec::new() };
        self.blocking.run(async |client| client.tell_intermediates(self.welcome.node, &news).await)
    }

    /// Returns the right to send another node a copy of a file of a user; None if this node may not.
    pub fn copy_grant(&self, copy: FileCopy) -> Result<Option<SecretText>, ClientError> {
        let incarnation = self.welcome.incarnation.clone();
        let news = IntermediateNews { incarnation, notes: Vec::new(), copies: vec![copy] };
        let node = self.welcome.node;
        let answer = self.blocking.run(async |client| client.tell_intermediates(node, &news).await)?;
        Ok(answer.grants.into_iter().find(|given| given.copy == copy).map(|given| given.grant))
    }

    /// Reports the findings for a check; adds the incarnation of this node.
    pub fn tell_check(&self, mut news: CheckNews) -> Result<CheckAnswer, ClientError> {
        news.incarnation.clone_from(&self.welcome.incarnation);
        self.blocking.run(async |client| client.tell_check(self.welcome.node, &news).await)
    }

    /// Reports the outcome of a fault.
    pub fn tell_drill(&self, strike: String, outcome: DrillOutcome) -> Result<(), ClientError> {
        let news = DrillNews { incarnation: self.welcome.incarnation.clone(), strike, outcome };
        self.blocking.run(async |client| client.tell_drill(self.welcome.node, &news).await)
    }

    /// Sends a page of a listing; adds the incarnation of this node. Returns whether the server wants more.
    pub fn tell_seen(&self, news: &mut SeenNews) -> Result<bool, ClientError> {
        news.incarnation.clone_from(&self.welcome.incarnation);
        let told = self.blocking.run(async |client| client.tell_seen(self.welcome.node, news).await);
        told.map(|answer| answer.goes_on)
    }

    /// Shuts down gracefully: the server retries the attempts of this node on others, and waiting slots are stopped.
    pub fn leave(&self) -> Result<(), ClientError> {
        // An ended poller has stopped all slots already.
        let _ = self.up.blocking_send(Up::Close);
        self.blocking.run(async |client| client.leave(self.welcome.node, &self.welcome.incarnation).await)
    }
}

impl StoredServer for NodeLink {
    fn tell(&self, mut news: StoredNews, patience: Duration) -> Result<StoredOrders, TellError> {
        news.incarnation.clone_from(&self.welcome.incarnation);
        news.data_url.clone_from(&self.data_url);
        let told = self.blocking.run(async |client| {
            tokio::time::timeout(patience, client.tell_stored(self.welcome.node, &news)).await
        });
        told.map_err(|_| TellError::Silent { seconds: patience.as_secs() })?.map_err(TellError::from)
    }

    fn parts_on(&self, uuid: &str, after: Option<ConcreteId>) -> Result<ListedParts, TellError> {
        let incarnation = self.welcome.incarnation.clone();
        let question = PartsOnDisk { incarnation, uuid: uuid.to_string(), after };
        let node = self.welcome.node;
        Ok(self.blocking.run(async |client| client.stored_parts_on(node, &question).await)?)
    }

    fn parts_of(&self, job: JobId, question: &PartsOfJob) -> Result<StoredPage, ClientError> {
        self.blocking.run(async |client| client.stored_of_job(job, question).await)
    }

    fn peer(&self, node: NodeId) -> Option<Peer> {
        let peers = self.peers();
        let peer = peers.iter().find(|peer| peer.node == node && !peer.data_url.is_empty())?;
        Some(Peer { node, url: peer.data_url.clone(), incarnation: data_incarnation(node) })
    }
}

/// Returns the incarnation for data ports: a process that joins gets a number that no other had, so the number
/// identifies the process.
pub fn data_incarnation(node: NodeId) -> u64 {
    u64::from(node.0)
}
