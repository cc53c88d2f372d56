//! # What it does
//! The shell of control, and the memory of a cluster: a loop that drains events, lets control decide, writes one
//! transaction and replies. Slots of this process pull work by function call; remote nodes poll, and their silence
//! shows that they are lost.
//!
//! # Where it sits
//! scheduler + metastore + mapreduce -> server -> node, controlport, cli.
//!
//! # Invariants
//! No reply leaves before the rows it promises are committed. The server's memory is a cache: when the store
//! fails, the server stops, and the next one cleans up from the rows. A process schedules and cleans only its
//! own jobs and those whose owner lock is free. Directories of a job exist only while its row says so.
//!
//! # Deliberately absent
//! No record data, no user programs, no renames of the output: a task run by the node publishes it.
//!
//! # How it is tested
//! `tests/` drives it with a made-up node over the real SQLite store.

mod access;
mod clock;
mod directories;
mod error;
mod event_loop;
mod history;
mod kept;
mod messages;
mod owner;
mod recovery;
mod registering;
mod submission;

use crate::directories::sweep;
use crate::kept::gc;
use crate::submission::{arguments, program_jobs, shipping};
use access::Signing;
use api::control::{
    ClusterStatus, JobBatch, JobBrief, JobLogs, JobSubmission, NodeInfo, NodeOrders, NodePoll, NodeStatus,
    NodeWelcome, PlacesAnswer, PlacesQuestion, SubmittedBatch,
};
use api::data_access::{BriefQuestion, TokensAnswer, TokensQuestion};
use api::drill::{DrillFault, DrillNews, DrillOutcome};
use api::flow::{FlowSubmission, StageSubmission, SubmittedFlow};
use api::fsck::{CheckAnswer, CheckNews, FsckAnswer};
use api::intermediate::{
    CreatedIntermediate, IntermediateAnswer, IntermediateChange, IntermediateList, IntermediateNews,
    NewIntermediate, OpenedIntermediate,
};
use api::kept::{GcAnswer, KeptAnnouncement};
use api::seen::{SeenAnswer, SeenNews, SeenNewsAnswer, SeenQuestion};
use api::stored::need::{DrainingNode, NodeNeed};
use api::{Boundaries, JobSpec, KeyBytes, Split};
use control::program_jobs::FileHold;
use control::{FileRequest, NewStrike, NewsAnswer, RunningJob, SeenRequest};
use event_loop::{
    EventLoop, JobFiles, Joining, ProgressBoard, REQUESTS_MAX, Reply, Request, Submission, caller, caller_of,
};
use filetree::Changer;
use ids::{JobId, NodeId};
use jobkind::{Kinds, StepPlan};
use mapreduce::PartNodes;
use metastore::{AuditRow, Change, Metastore};
use owner::OwnerLock;
use roots::{JobPaths, OutsideRoots, Roots};
use shipped::{Depot, Hold};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use trust::DataRight;
use uuid::Uuid;

pub use access::NewToken;
pub use api::control::{JobOutcome, JobProgress, StageProgress, SubmittedJob};
pub use control::flows::FlowError;
pub use control::retention::KeptCheck;
pub use control::{ControlError, Finished, NamedFile, PullRequest, Service};
pub use error::ServerError;
pub use history::{History, gone_nodes, job_placements, lineage, runs_of_steps};
pub use kept::{
    Collected, GcOptions, GcOutcome, GcSelection, KeptSource, NotReducible, check_here, check_reducible,
    collect_garbage, kept_bytes, kept_source,
};
pub use messages::{LocalAssignment, LocalJob, PullReply, ServerOptions, Submitter, UserQuota};
pub use submission::{ShippedOptions, job_logs};

/// Timeout of a caller without an answer for the end of the event loop, which knows the reason.
const END_WAIT_MAX: Duration = Duration::from_secs(1);
const END_LOOK_EVERY: Duration = Duration::from_millis(1);

/// The server; shared by `Arc`. Methods that are not async block the calling thread, so async code may not call them.
pub struct Server {
    owner_uuid: String,
    state_dir: PathBuf,
    sender: mpsc::Sender<Request>,
    progress_board: Arc<ProgressBoard>,
    depot: Option<Arc<Depot>>,
    roots: Option<Arc<Roots>>,
    kinds: Kinds,
    signing: Arc<Signing>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Opens the state, removes the remains of dead owners, and starts the event loop.
    pub fn open(options: ServerOptions) -> Result<Server, ServerError> {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        let (progress_board, signing) = (Arc::new(ProgressBoard::default()), Arc::new(Signing::begin()?));
        let (ready_sender, ready) = oneshot::channel();
        let state_dir = options.state_dir.clone();
        let (service, slots, database) = (options.service, options.slots, options.database.clone());
        let (files, resources) = (options.shipped, options.resources);
        let (loop_roots, roots) = (options.roots.clone(), options.roots.map(Arc::new));
        let (loop_kinds, kinds) = (options.kinds.clone(), options.kinds);
        let (loop_sender, loop_shared, loop_signing) =
            (sender.clone(), Arc::clone(&progress_board), Arc::clone(&signing));
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready_sender.send(Err(ServerError::Thread(error)))),
            };
            runtime.block_on(async {
                let begun = start(&state_dir, database.as_deref()).await;
                let begun = begun.and_then(|(store, lock)| match (service, database) {
                    // A lock inside PostgreSQL decides who leads.
                    (Service::Embedded, _) | (_, Some(_)) => Ok((store, lock, None)),
                    _ => owner::serve_alone(&state_dir).map(|file| (store, lock, Some(file))),
                });
                // Only the leader inspects existing files.
                let begun = begun.and_then(|begun| Ok((begun, shipping::open(service, &files, &state_dir)?)));
                match begun {
                    Ok(((store, lock, _alone), depot)) => {
                        let uuid = lock.uuid.clone();
                        let paths = JobPaths::below(loop_roots.into_iter().collect());
                        let files = JobFiles::new(depot.clone(), paths, state_dir, loop_sender);
                        let (shared, signing, kinds) = (loop_shared, loop_signing, loop_kinds);
                        let mut server = EventLoop::new(store, lock, shared, signing, service, files, kinds);
                        let recovered = match service {
                            Service::Embedded => {
                                server.local_node_has(slots, resources);
                                Ok(())
                            }
                            Service::Cluster => server.recover().await,
                        };
                        match recovered {
                            Ok(()) => {
                                drop(ready_sender.send(Ok((uuid, depot))));
                                server.run(receiver).await;
                            }
                            Err(error) => drop(ready_sender.send(Err(error))),
                        }
                    }
                    Err(error) => drop(ready_sender.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("server".to_string())
            .spawn(work)
            .map_err(ServerError::Thread)?;
        let (owner_uuid, depot) = ready.blocking_recv().unwrap_or(Err(ServerError::ShutDown))?;
        let thread = Mutex::new(Some(thread));
        Ok(Server {
            owner_uuid,
            state_dir: options.state_dir,
            sender,
            progress_board,
            depot,
            roots,
            kinds,
            signing,
            thread,
        })
    }

    /// Returns the name of this process among the owners of jobs.
    pub fn owner_uuid(&self) -> &str {
        &self.owner_uuid
    }

    /// Stores a job and creates its staging and disk directories. Fails if the output exists (unless it may be
    /// overwritten), or if a directory is not writable.
    pub fn submit(&self, spec: JobSpec, splits: Vec<Split>) -> Result<SubmittedJob, ServerError> {
        let spec = JobSpec { stage: None, recording: None, ..spec };
        let submission = JobSubmission { spec, splits, user: String::new(), priority: 0 };
        let submission = self.checked(submission, &Submitter::default())?;
        if submission.plan.is_none() {
            directories::check_output(&submission.spec, &self.state_dir)?;
        }
        self.ask(|reply| Request::Submit { submission, reply })
    }

    /// Stores the stages of a flow in one transaction; each begins when those that it reads are done.
    pub fn submit_flow(&self, flow: FlowSubmission) -> Result<SubmittedFlow, ServerError> {
        let stages = self.checked_flow(flow, &Submitter::default())?;
        for stage in &stages {
            directories::check_output(&stage.spec, &self.state_dir)?;
        }
        self.ask(|reply| Request::SubmitFlow { stages, reply })
    }

    fn checked_flow(
        &self,
        flow: FlowSubmission,
        submitter: &Submitter,
    ) -> Result<Vec<Submission>, ServerError> {
        control::flows::check(&flow)?;
        let FlowSubmission { stages, user, priority } = flow;
        let mut checked = Vec::with_capacity(stages.len());
        for StageSubmission { spec, splits, reads } in stages {
            let submission = JobSubmission { spec, splits, user: user.clone(), priority };
            checked.push(Submission { reads, ..*self.checked(submission, submitter)? });
        }
        Ok(checked)
    }

    /// Stores jobs of one task each, in one transaction.
    pub fn submit_batch(&self, batch: JobBatch) -> Result<SubmittedBatch, ServerError> {
        let (batch, hold) = self.checked_batch(batch, &Submitter::default())?;
        self.ask(|reply| Request::SubmitBatch { batch, hold, quota: None, reply })
    }

    fn checked(
        &self,
        submission: JobSubmission,
        submitter: &Submitter,
    ) -> Result<Box<Submission>, ServerError> {
        let JobSubmission { mut spec, splits, user, priority } = submission;
        check_names(&spec.name, &user)?;
        arguments::check_spec(&spec)?;
        program_jobs::check_retries(spec.kind.program().map(std::slice::from_ref).unwrap_or_default())?;
        shipping::check(&spec)?;
        if self.depot.is_some() {
            shipping::check_env_files(&spec)?;
        }
        let plan = self.checked_steps(&mut spec)?;
        let hold = shipping::hold(self.depot.as_ref(), &submitter.files_of, &shipping::contents(&spec))?;
        let (quota, part_nodes) = (submitter.quota, Arc::clone(&submitter.part_nodes));
        let hold = hold.map(|hold| hold as FileHold);
        let (spec, reads, step_of) = (Arc::new(spec), Vec::new(), None);
        Ok(Box::new(Submission {
            spec,
            splits,
            hold,
            user,
            priority,
            quota,
            reads,
            part_nodes,
            plan,
            step_of,
        }))
    }

    /// Reads the specification of a job with steps; returns None for any other job.
    fn checked_steps(&self, spec: &mut JobSpec) -> Result<Option<Arc<dyn StepPlan>>, ServerError> {
        let Some(steps) = spec.kind.steps() else { return Ok(None) };
        let plan = self.kinds.read(&steps.kind, &steps.spec)?;
        // It may be large: it is not copied to be compared.
        let kind = std::mem::take(&mut spec.kind);
        let (shipped, pinned) = (spec.shipped.clone(), spec.pinned.clone());
        let only_steps = JobSpec { shipped, pinned, ..JobSpec::named(spec.name.clone()) };
        let is_bare = only_steps == *spec;
        spec.kind = kind;
        if is_bare { Ok(Some(plan)) } else { Err(ServerError::MoreThanSteps) }
    }

    fn checked_batch(
        &self,
        batch: JobBatch,
        submitter: &Submitter,
    ) -> Result<(Box<JobBatch>, Option<Arc<Hold>>), ServerError> {
        check_names(&batch.name, &batch.user)?;
        let batch = program_jobs::checked(batch)?;
        let hold = shipping::hold_for_batch(self.depot.as_ref(), &submitter.files_of, &batch)?;
        Ok((batch, hold))
    }

    /// Returns the shipped files of clients, in a cluster.
    pub fn depot(&self) -> Option<&Arc<Depot>> {
        self.depot.as_ref()
    }

    /// Reports the result of a slot and waits for its next attempt. Waits before the first submit; once all submitted
    /// jobs are over, the answer is to stop.
    pub fn pull(&self, request: PullRequest) -> Result<PullReply, ServerError> {
        self.ask(|reply| Request::Pull { request: Box::new(request), reply })
    }

    /// Proposes range boundaries. The first stored proposal wins, and every caller gets it.
    pub fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ServerError> {
        self.ask(|reply| Request::Propose { job, keys, reply })
    }

    /// Cancels a job. Has no effect if the job is over, or if its commit is too far to be stopped.
    pub fn cancel(&self, job: JobId, reason: &str) {
        // If the server has ended, it has stopped the job already. The flag comes second: an attempt that stops because
        // of it must not end before the event loop knows of the cancel, or it would count as a failure. The answer comes
        // when the flags of all its steps are set: a program that starts meanwhile sees its flag, or is killed after it.
        let reason = reason.to_string();
        let _ = self.ask(|reply| Request::Cancel { job, reason, reply });
        self.progress_board.stop(job);
    }

    /// Returns the flag that running attempts of a job poll; always true for an unknown job.
    pub fn cancelled(&self, job: JobId) -> Arc<AtomicBool> {
        self.progress_board.cancelled(job)
    }

    /// Waits until a job is over, its attempts have ended, and its directories are removed if they must be.
    pub fn wait(&self, job: JobId) -> Result<JobOutcome, ServerError> {
        self.ask(|reply| Request::Wait { job, reply })
    }

    /// Returns the progress of a job; None for a job that this server does not know.
    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.progress_board.progress(job)
    }

    /// Stops the event loop. Unfinished jobs are marked as interrupted and their files removed: cancel and wait first
    /// if that matters. A second call has no effect.
    pub fn shutdown(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let (reply, _answer) = oneshot::channel();
        // The loop may have ended by itself; only its thread is left in this case.
        let _ = self.sender.blocking_send(Request::Shutdown { reply });
        if thread.join().is_err() {
            tracing::error!("the thread of the server panicked");
        }
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ServerError> {
        let (reply, answer) = oneshot::channel();
        self.sender.blocking_send(request(reply)).map_err(|_| self.gone())?;
        answer.blocking_recv().map_err(|_| self.gone_soon())?
    }

    async fn ask_later<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ServerError> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(request(reply)).await.map_err(|_| self.gone())?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => {
                let _ = tokio::time::timeout(END_WAIT_MAX, self.sender.closed()).await;
                Err(self.gone())
            }
        }
    }

    /// Waits for the end of the event loop after a request without an answer, and returns the reason: a failed store
    /// ends the loop soon.
    fn gone_soon(&self) -> ServerError {
        let deadline = Instant::now() + END_WAIT_MAX;
        while !self.sender.is_closed() && Instant::now() < deadline {
            std::thread::sleep(END_LOOK_EVERY);
        }
        self.gone()
    }

    fn gone(&self) -> ServerError {
        match self.progress_board.failure() {
            Some(reason) => ServerError::Failed { reason },
            None => ServerError::ShutDown,
        }
    }
}

/// Requests of the control port: the same methods for async code.
impl Server {
    /// Stores a job and creates its staging directory. Fails if the quota of the user does not allow the job.
    pub async fn submit_job(
        &self,
        mut submission: JobSubmission,
        submitter: &Submitter,
    ) -> Result<SubmittedJob, ServerError> {
        // Stages are only submitted with their flow.
        submission.spec.stage = None;
        let has_steps = submission.spec.kind.steps().is_some();
        if !has_steps {
            mapreduce::check(&submission.spec, &submission.splits)?;
        }
        let submission = self.checked(submission, submitter)?;
        // The places of steps are checked before they begin.
        if !has_steps {
            self.check_place(&submission.spec, &submission.user).await?;
        }
        self.ask_later(|reply| Request::Submit { submission, reply }).await
    }

    /// Stores the stages of a flow in one transaction. Fails if the quota of the user does not allow them.
    pub async fn submit_stages(
        &self,
        flow: FlowSubmission,
        submitter: &Submitter,
    ) -> Result<SubmittedFlow, ServerError> {
        for stage in &flow.stages {
            mapreduce::check(&stage.spec, &stage.splits)?;
        }
        let stages = self.checked_flow(flow, submitter)?;
        for stage in &stages {
            self.check_place(&stage.spec, &stage.user).await?;
        }
        self.ask_later(|reply| Request::SubmitFlow { stages, reply }).await
    }

    /// Tells the nodes that have the stored inputs of a job now. Returns whether later changes matter to the job.
    pub async fn inputs_moved(&self, job: JobId, places: PartNodes) -> Result<bool, ServerError> {
        self.ask_later(|reply| Request::InputsMoved { job, places, reply }).await
    }

    /// Returns the job that made the output which this job will replace; None without a report. Looks only below the
    /// roots.
    pub async fn replaced_job(&self, spec: &JobSpec, user: &str) -> Result<Option<JobId>, ServerError> {
        if !spec.overwrite || spec.feeds() || api::is_stored_output(&spec.output) {
            return Ok(None);
        }
        let output = spec.output.clone();
        self.within_roots(user, move |roots| roots.check_output(&output)).await?;
        let output = spec.output.clone();
        let looking = tokio::task::spawn_blocking(move || directories::job_of_output(&output));
        looking.await.map_err(|_| ServerError::ShutDown)?
    }

    /// Checks that a job may read its inputs and write its output.
    async fn check_place(&self, spec: &Arc<JobSpec>, user: &str) -> Result<(), ServerError> {
        let of_roots = Arc::clone(spec);
        self.within_roots(user, move |roots| roots.check_job(&of_roots)).await?;
        let (spec, state_dir) = (Arc::clone(spec), self.state_dir.clone());
        match api::is_object_url(&spec.output) {
            false => directories::check_output(&spec, &state_dir),
            // An object store may be slow; nobody else waits for it.
            true => {
                let check = move || directories::check_output(&spec, &state_dir);
                tokio::task::spawn_blocking(check).await.map_err(|_| ServerError::ShutDown)?
            }
        }
    }

    /// Stores jobs of one task each, in one transaction. Fails if the quota of the user does not allow them.
    pub async fn submit_jobs(
        &self,
        batch: JobBatch,
        submitter: &Submitter,
    ) -> Result<SubmittedBatch, ServerError> {
        let (batch, hold) = self.checked_batch(batch, submitter)?;
        let batch = match &self.roots {
            None => batch,
            Some(_) => {
                let user = batch.user.clone();
                self.within_roots(&user, move |roots| roots.check_tasks(&batch.tasks).map(|()| batch)).await?
            }
        };
        let quota = submitter.quota;
        self.ask_later(|reply| Request::SubmitBatch { batch, hold, quota, reply }).await
    }

    /// Runs a check of file systems on another thread, because it may be slow.
    async fn within_roots<T: Default + Send + 'static>(
        &self,
        user: &str,
        check: impl FnOnce(&Roots) -> Result<T, OutsideRoots> + Send + 'static,
    ) -> Result<T, ServerError> {
        let Some(roots) = self.roots.as_ref().map(|roots| roots.for_user(user)) else {
            return Ok(T::default());
        };
        let checked = tokio::task::spawn_blocking(move || check(&roots)).await;
        Ok(checked.map_err(|_| ServerError::ShutDown)??)
    }

    /// Returns the roots below which jobs may name paths and objects, as given; None permits all.
    pub fn roots(&self) -> Option<Vec<String>> {
        self.roots.as_ref().map(|roots| roots.texts())
    }

    /// Stores a token, and its user if the name is new.
    pub async fn issue_token(&self, token: NewToken) -> Result<(), ServerError> {
        let token = Box::new(token);
        self.ask_later(|reply| Request::IssueToken { token, reply }).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, token: String) -> Result<(), ServerError> {
        self.ask_later(|reply| Request::RevokeToken { token, reply }).await
    }

    /// Stores audit rows about callers with the next transaction.
    pub async fn audit(&self, rows: Vec<AuditRow>) -> Result<(), ServerError> {
        self.sender.send(Request::Audit { rows }).await.map_err(|_| self.gone())
    }

    /// Waits until a job is over. Dropping the future ends the wait.
    pub async fn wait_job(&self, job: JobId) -> Result<JobOutcome, ServerError> {
        self.ask_later(|reply| Request::Wait { job, reply }).await
    }

    /// Cancels a job; has no effect if it is over. Returns when the request is durable: any later server that has the
    /// job stops it.
    pub async fn cancel_job(&self, job: JobId, reason: String) -> Result<(), ServerError> {
        self.ask_later(|reply| Request::Cancel { job, reason, reply }).await?;
        self.progress_board.stop(job);
        Ok(())
    }

    /// Proposes range boundaries; the first stored proposal wins.
    pub async fn propose(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ServerError> {
        self.ask_later(|reply| Request::Propose { job, keys, reply }).await
    }

    /// Registers a node under a secret with this SHA-256, as long as its join token is valid.
    pub async fn register_node(
        &self,
        info: NodeInfo,
        secret_hash: [u8; 32],
        join_token: Option<String>,
    ) -> Result<NodeWelcome, ServerError> {
        let joining = Box::new(Joining { info, secret_hash, join_token });
        self.ask_later(|reply| Request::Register { joining, reply }).await
    }

    /// Signs a right for data ports.
    pub fn sign(&self, right: &DataRight) -> String {
        self.signing.sign(right)
    }

    /// Returns new tokens of jobs for a node.
    pub async fn renew_tokens(
        &self,
        node: NodeId,
        question: TokensQuestion,
    ) -> Result<TokensAnswer, ServerError> {
        let question = Box::new(question);
        self.ask_later(|reply| Request::RenewTokens { node, question, reply }).await
    }

    /// Handles a poll: takes results and returns orders; waits while there are none.
    pub async fn poll_node(&self, node: NodeId, poll: NodePoll) -> Result<NodeOrders, ServerError> {
        let poll = Box::new(poll);
        self.ask_later(|reply| Request::Poll { node, poll, reply }).await
    }

    /// Handles the graceful shutdown of a node: its attempts are retried on other nodes.
    pub async fn leave_node(&self, node: NodeId, incarnation: String) -> Result<(), ServerError> {
        self.ask_later(|reply| Request::Leave { node, incarnation, reply }).await
    }

    /// Begins to drain a node, given by its name or number: it gets no new work, its data moves to other nodes, and
    /// when no job needs it, it is told to leave. Returns when the drain is durable.
    pub async fn drain_node(&self, name: String) -> Result<NodeStatus, ServerError> {
        self.ask_later(|reply| Request::Drain { name, reply }).await
    }

    /// Tells which stored files need nodes that are being drained, and returns these nodes. They stay until no file needs
    /// them: to be called about each second.
    pub async fn stored_needs(&self, needs: Vec<NodeNeed>) -> Result<Vec<DrainingNode>, ServerError> {
        self.ask_later(|reply| Request::StoredNeeds { needs, reply }).await
    }

    /// Handles a node's announcement of kept data.
    pub async fn kept(&self, node: NodeId, announcement: KeptAnnouncement) -> Result<(), ServerError> {
        let announcement = Box::new(announcement);
        self.ask_later(|reply| Request::Kept { node, announcement, reply }).await
    }

    /// Removes kept data from the disks of nodes, of a user or of all users.
    pub async fn collect(&self, options: GcOptions, user: Option<String>) -> Result<GcAnswer, ServerError> {
        let options = Box::new(options);
        self.ask_later(|reply| Request::Collect { options, user, reply }).await
    }

    /// Begins a check of a job's kept data on nodes, or returns the progress of the check of this name.
    pub async fn fsck(&self, job: JobId, check: Option<String>) -> Result<FsckAnswer, ServerError> {
        self.ask_later(|reply| Request::Fsck { job, check, reply }).await
    }

    /// Handles a node's findings for a check.
    pub async fn check_news(&self, node: NodeId, news: CheckNews) -> Result<CheckAnswer, ServerError> {
        let news = Box::new(news);
        self.ask_later(|reply| Request::CheckNews { node, news, reply }).await
    }

    /// Injects a fault into a node, given by its name or number, and waits for its report.
    pub async fn drill_node(&self, node: String, fault: DrillFault) -> Result<DrillOutcome, ServerError> {
        self.ask_later(|reply| Request::Strike {
            strike: NewStrike { name: Uuid::new_v4().to_string(), node, fault },
            reply,
        })
        .await
    }

    /// Handles a node's report on the outcome of a fault.
    pub async fn drill_news(&self, node: NodeId, news: DrillNews) -> Result<(), ServerError> {
        self.ask_later(|reply| Request::Struck { node, news, reply }).await
    }

    /// Returns a page of the files at a path that only some nodes see.
    pub async fn seen(&self, question: SeenQuestion) -> Result<SeenAnswer, ServerError> {
        let request = SeenRequest { name: Uuid::new_v4().to_string(), question };
        self.ask_later(|reply| Request::Seen { request, reply }).await
    }

    /// Handles a page of a node's listing.
    pub async fn seen_news(&self, node: NodeId, news: SeenNews) -> Result<SeenNewsAnswer, ServerError> {
        let news = Box::new(news);
        self.ask_later(|reply| Request::SeenListed { node, news, reply }).await
    }

    /// Creates an intermediate file of a user, to be written on a node.
    pub async fn create_intermediate(
        &self,
        of: NamedFile,
        new: NewIntermediate,
        bytes_max: Option<u64>,
    ) -> Result<CreatedIntermediate, ServerError> {
        self.ask_later(|reply| Request::CreateFile { of, new, bytes_max, reply }).await
    }

    /// Returns the state of an intermediate file, and the nodes to read it from.
    pub async fn open_intermediate(&self, of: NamedFile) -> Result<OpenedIntermediate, ServerError> {
        let request = |reply| FileRequest::Open { of, wait: false, reply: caller(reply) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Does the same after the file is no longer being written. Dropping the future ends the wait.
    pub async fn open_written_intermediate(&self, of: NamedFile) -> Result<OpenedIntermediate, ServerError> {
        let request = |reply| FileRequest::Open { of, wait: true, reply: caller(reply) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Returns the intermediate files that a user may read.
    pub async fn intermediates(&self, changer: Changer) -> Result<IntermediateList, ServerError> {
        let request = |reply| FileRequest::List { changer, reply: caller(reply) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Removes an intermediate file, even while it is being written.
    pub async fn remove_intermediate(&self, of: NamedFile) -> Result<(), ServerError> {
        let request = |reply| FileRequest::Remove { of, reply: caller(reply) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Changes the groups or the owner of an intermediate file. The caller has looked that the groups exist.
    pub async fn change_intermediate(
        &self,
        of: NamedFile,
        change: IntermediateChange,
    ) -> Result<(), ServerError> {
        let request = |reply| FileRequest::Change { of, change, reply: caller(reply) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Handles a node's report about intermediate files. The answer lists the files that it must drop.
    pub async fn intermediate_news(
        &self,
        node: NodeId,
        news: IntermediateNews,
    ) -> Result<IntermediateAnswer, ServerError> {
        let signing = Arc::clone(&self.signing);
        let finish = move |NewsAnswer { dropped, copies }| {
            let grants = copies.into_iter().map(|copy| signing.copy_grant(copy)).collect();
            IntermediateAnswer { dropped, grants }
        };
        let request = |reply| FileRequest::News { node, news, reply: caller_of(reply, finish) };
        self.ask_later(|reply| Request::File(Box::new(request(reply)))).await
    }

    /// Returns the facts of a running job that a node needs.
    pub async fn job_brief(
        &self,
        node: NodeId,
        job: JobId,
        question: BriefQuestion,
    ) -> Result<JobBrief, ServerError> {
        self.ask_later(|reply| Request::Brief { node, job, question, reply }).await
    }

    /// Returns a job of which a node runs an attempt.
    pub async fn running_on(&self, node: NodeId, job: JobId) -> Result<RunningJob, ServerError> {
        self.ask_later(|reply| Request::RunningOn { node, job, reply }).await
    }

    /// Returns the current locations of runs of a running job.
    pub async fn places(&self, job: JobId, question: PlacesQuestion) -> Result<PlacesAnswer, ServerError> {
        self.ask_later(|reply| Request::Places { job, question, reply }).await
    }

    /// Returns a sentence about the memory or architecture that a job waits for; None for a job that runs, could run,
    /// or is over.
    pub async fn job_waits_for(&self, job: JobId) -> Result<Option<String>, ServerError> {
        self.ask_later(|reply| Request::WaitsFor { job, reply }).await
    }

    /// Returns the output so far of the program of a job of one task; None if no program runs, or its node has reported
    /// nothing yet.
    pub async fn job_said(&self, job: JobId) -> Result<Option<JobLogs>, ServerError> {
        self.ask_later(|reply| Request::OutputSoFar { job, reply }).await
    }

    /// Waits until the event loop has ended: by a shutdown, or because its store failed.
    pub async fn stopped(&self) {
        self.sender.closed().await;
    }

    /// Returns the reason for the end of the event loop, if its store failed.
    pub fn failure(&self) -> Option<String> {
        self.progress_board.failure()
    }

    /// Returns the live nodes.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, ServerError> {
        self.ask_later(|reply| Request::Cluster { reply }).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Opens the store under a new owner lock, and removes the remains of dead owners and expired kept data.
async fn start(
    state_dir: &std::path::Path,
    database: Option<&str>,
) -> Result<(Metastore, OwnerLock), ServerError> {
    let (store, lock) = take_over(state_dir, database).await?;
    gc::collect_expired(&store, state_dir, &lock.uuid).await?;
    Ok((store, lock))
}

/// Returns an error if the name of a job or a user is too long.
fn check_names(job: &str, user: &str) -> Result<(), ServerError> {
    for (what, name) in [("job", job), ("user", user)] {
        if name.len() > api::control::NAME_BYTES_MAX {
            return Err(ServerError::LongName { what, bytes: name.len() });
        }
    }
    Ok(())
}

/// Opens the store under a new owner lock, waits for the lead if other servers may have it, and cleans up after dead
/// owners.
async fn take_over(
    state_dir: &std::path::Path,
    database: Option<&str>,
) -> Result<(Metastore, OwnerLock), ServerError> {
    // The store comes first: its errors describe a bad state directory best.
    let store = match database {
        None => Metastore::open(state_dir).await?,
        Some(url) => Metastore::connect(url).await?,
    };
    let lock = OwnerLock::take(state_dir)?;
    if !store.try_lead(&lock.uuid).await? {
        tracing::warn!(database = %store.path().display(), "another server leads, waiting for the lead");
        store.lead(&lock.uuid).await?;
        tracing::warn!("this server leads now");
    }
    let started =
        Change::OwnerStarted { uuid: lock.uuid.clone(), pid: std::process::id(), now_ns: clock::now_ns() };
    store.apply(&[started]).await?;
    sweep::sweep(&store, state_dir, &lock.uuid).await?;
    Ok((store, lock))
}
