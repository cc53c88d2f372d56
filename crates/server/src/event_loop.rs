//! The event loop: drains requests, lets control decide, writes one transaction, and replies.

mod answers;
mod job_files;
mod numbers;
mod progress_board;
mod requests;

pub(crate) use answers::{caller, caller_of};
pub(crate) use job_files::JobFiles;
pub(crate) use numbers::JobNumbers;
pub(crate) use progress_board::ProgressBoard;
pub(crate) use requests::{Joining, Reply, Request, Submission};

use crate::access::Signing;
use crate::clock;
use crate::messages::{LocalAssignment, PullReply};
use crate::owner::OwnerLock;
use api::job::resources::GenericResources;
use control::{Control, DiskDirs, Outbox, PullRequest, Service, SlotOrder};
use faults::{CrashPoint, crash_point};
use jobkind::Kinds;
use metastore::{CLUSTER_OWNER, Change, Metastore, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Maximum number of requests that wait for the loop; more callers block.
pub(crate) const REQUESTS_MAX: usize = 1024;
/// Maximum number of requests in one transaction.
const BATCH_MAX: usize = 256;
/// Least time between two transactions while many attempts run: a transaction with few ends of attempts costs more
/// processor time per job.
const WRITES_APART: Duration = Duration::from_millis(4);
const RUNNING_FOR_MORE: usize = 8;
/// Longest time that a server acts without contact to its store.
const LOOK_AT_LEAD_EVERY: Duration = Duration::from_secs(2);

/// The shell of control: it waits, reads and writes the store, and handles files.
pub(crate) struct EventLoop {
    pub service: Service,
    pub store: Metastore,
    pub lock: OwnerLock,
    pub numbers: JobNumbers,
    pub progress_board: Arc<ProgressBoard>,
    /// Signs the rights that data ports accept.
    pub signing: Arc<Signing>,
    pub files: JobFiles,
    /// Kinds of jobs with steps.
    pub kinds: Kinds,
    pub control: Control,
    pub outbox: Outbox,
    pub timing: Timing,
}

/// Times of the last periodic actions.
pub(crate) struct Timing {
    /// The last search for expired kept files.
    pub collected: Option<Instant>,
    /// The last contact with the store.
    written: Instant,
}

impl EventLoop {
    pub fn new(
        store: Metastore,
        lock: OwnerLock,
        progress_board: Arc<ProgressBoard>,
        signing: Arc<Signing>,
        service: Service,
        files: JobFiles,
        kinds: Kinds,
    ) -> Self {
        let mut control = Control::new(service, clock::now());
        if service == Service::Cluster {
            control.expect_stored_needs();
        }
        Self {
            service,
            store,
            lock,
            numbers: JobNumbers::default(),
            progress_board,
            signing,
            files,
            kinds,
            control,
            outbox: Outbox::default(),
            timing: Timing { collected: None, written: Instant::now() },
        }
    }

    /// Runs until a shutdown, or until the store fails.
    pub async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            if !self.next_batch(&mut requests, &mut batch).await {
                return self.end(requests, None).await;
            }
            if let Err(error) = self.look_at_clock().await {
                return self.fail(error);
            }
            let mut shutdown = None;
            for request in batch.drain(..) {
                if let Request::Shutdown { reply } = request {
                    shutdown = Some(reply);
                } else if let Err(error) = self.take(request).await {
                    return self.fail(error);
                }
            }
            if let Err(error) = self.write_and_admit().await {
                return self.fail(error);
            }
            if shutdown.is_some() {
                return self.end(requests, shutdown).await;
            }
        }
    }

    /// Records the number of slots and the generic resources of this process.
    pub fn local_node_has(&mut self, slots: u32, resources: GenericResources) {
        self.tell_time();
        self.control.local_node_declares(resources);
        self.control.local_node_has(&mut self.outbox, slots);
    }

    /// Sets the time for control. Must come before every call of control.
    pub fn tell_time(&mut self) {
        self.outbox.set_now(clock::now());
    }

    async fn look_at_clock(&mut self) -> Result<(), StoreError> {
        if self.service == Service::Embedded || !self.control.until_tick(clock::now()).is_zero() {
            return Ok(());
        }
        self.keep_lead().await?;
        self.tell_time();
        self.control.tick(&mut self.outbox);
        self.collect_in_time().await
    }

    /// Checks that this server still leads, if it has written nothing for a while.
    async fn keep_lead(&mut self) -> Result<(), StoreError> {
        if self.timing.written.elapsed() >= LOOK_AT_LEAD_EVERY {
            self.store.keep_lead().await?;
            self.timing.written = Instant::now();
        }
        Ok(())
    }

    /// Collects requests, or none if the next tick comes first. Returns false when all senders are gone.
    async fn next_batch(&self, requests: &mut mpsc::Receiver<Request>, batch: &mut Vec<Request>) -> bool {
        let receive = requests.recv_many(batch, BATCH_MAX);
        match self.service {
            Service::Embedded => receive.await > 0,
            Service::Cluster => {
                let until_tick = self.control.until_tick(clock::now());
                let received = tokio::time::timeout(until_tick, receive).await;
                if received.is_ok_and(|count| count == 0) {
                    return false;
                }
                self.let_more_come(requests, batch).await;
                true
            }
        }
    }

    /// Waits briefly while many attempts run, so that requests shortly after a transaction share the next one.
    async fn let_more_come(&self, requests: &mut mpsc::Receiver<Request>, batch: &mut Vec<Request>) {
        let next_due = self.timing.written + WRITES_APART;
        if batch.is_empty() || !self.control.runs_at_least(RUNNING_FOR_MORE) || next_due <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(next_due.into()).await;
        while batch.len() < BATCH_MAX
            && let Ok(request) = requests.try_recv()
        {
            batch.push(request);
        }
    }

    /// Returns the owner that is stored for the jobs of this server.
    pub fn owner(&self) -> String {
        match self.service {
            Service::Embedded => self.lock.uuid.clone(),
            Service::Cluster => CLUSTER_OWNER.to_string(),
        }
    }

    /// Handles a request. An error of the store ends the server; all other errors go to the caller.
    async fn take(&mut self, request: Request) -> Result<(), StoreError> {
        self.tell_time();
        let (control, outbox) = (&mut self.control, &mut self.outbox);
        match request {
            // Its row must be stored before its directories exist, so it does not wait for the batch.
            Request::Submit { submission, reply } => self.submit(*submission, reply).await?,
            Request::SubmitFlow { stages, reply } => self.submit_flow(stages, reply).await?,
            Request::SubmitBatch { batch, hold, quota, reply } => {
                self.submit_batch(*batch, hold, quota, reply).await?;
            }
            Request::StepsChecked { new, problem } => self.take_steps(new, problem).await?,
            Request::IssueToken { token, reply } => self.issue_token(*token, reply).await?,
            Request::RevokeToken { token, reply } => self.revoke_token(token, reply).await?,
            Request::Register { joining, reply } => self.register(*joining, reply).await?,
            Request::Kept { node, announcement, reply } => self.announced(node, *announcement, reply).await?,
            Request::Collect { options, user, reply } => self.collect(*options, user, reply).await?,
            Request::Fsck { job, check, reply } => self.fsck(job, check, reply).await?,
            Request::CreateFile { of, new, bytes_max, reply } => {
                self.create_file(of, new, bytes_max, reply).await?;
            }
            Request::File(request) => control.file_request(outbox, *request),
            Request::Pull { request, reply } => self.pull(*request, reply),
            Request::Propose { job, keys, reply } => control.propose(outbox, job, keys, caller(reply)),
            Request::Cancel { job, reason, reply } => {
                control.cancel(outbox, job, reason);
                // Answered even if the job is over: its end may be in the same transaction.
                outbox.answer(caller(reply), Ok(()));
            }
            Request::Wait { job, reply } => control.wait(job, caller(reply)),
            Request::Cleaned { job, problem } => control.cleaned(outbox, job, problem),
            Request::Poll { node, poll, reply } => control.poll(outbox, node, *poll, caller(reply)),
            Request::Leave { node, incarnation, reply } => {
                control.leave(outbox, node, &incarnation, caller(reply));
            }
            Request::Drain { name, reply } => control.drain(outbox, &name, caller(reply)),
            Request::StoredNeeds { needs, reply } => {
                drop(reply.send(Ok(control.stored_needs(outbox, needs))));
            }
            Request::Brief { node, job, question, reply } => self.brief(node, job, &question, reply),
            Request::RunningOn { node, job, reply } => {
                drop(reply.send(control.running_on(node, job).map_err(Into::into)));
            }
            Request::InputsMoved { job, places, reply } => {
                drop(reply.send(Ok(control.inputs_moved(job, places))))
            }
            Request::RenewTokens { node, question, reply } => self.renew_tokens(node, &question, reply),
            Request::Places { job, question, reply } => control.places(outbox, job, &question, caller(reply)),
            Request::Audit { rows } => rows.into_iter().for_each(|row| outbox.write(Change::Audit { row })),
            Request::CheckNews { node, news, reply } => {
                control.check_news(outbox, node, *news, caller(reply))
            }
            Request::Strike { strike, reply } => control.strike(outbox, strike, caller(reply)),
            Request::Seen { request, reply } => control.list_seen(outbox, request, caller(reply)),
            Request::SeenListed { node, news, reply } => {
                control.seen_listed(outbox, node, *news, caller(reply));
            }
            Request::Struck { node, news, reply } => control.struck(outbox, node, news, caller(reply)),
            Request::OutputSoFar { job, reply } => drop(reply.send(Ok(control.output_so_far(job)))),
            Request::WaitsFor { job, reply } => drop(reply.send(Ok(control.waits_for(job)))),
            Request::Cluster { reply } => drop(reply.send(Ok(control.status(clock::now())))),
            Request::Shutdown { .. } => {}
        }
        Ok(())
    }

    fn pull(&mut self, request: PullRequest, reply: Reply<PullReply>) {
        let board = Arc::clone(&self.progress_board);
        let finish = move |order| match order {
            SlotOrder::Stop => PullReply::Stop,
            SlotOrder::Run { attempt, task, spec } => {
                let job = board.run_of(attempt.task.job, &spec);
                PullReply::Run(Box::new(LocalAssignment { attempt, task: *task, job }))
            }
        };
        self.control.pull(&mut self.outbox, request, caller_of(reply, finish));
    }

    /// Begins the next steps of jobs, writes and replies, and admits jobs of one task whose turn has come.
    pub async fn write_and_admit(&mut self) -> Result<(), StoreError> {
        self.begin_steps().await?;
        self.write_and_reply().await?;
        if self.admit_waiting().await? {
            self.write_and_reply().await?;
        }
        Ok(())
    }

    /// Ends a batch: stops slots without a job, writes all changes, and sends the replies.
    pub async fn write_and_reply(&mut self) -> Result<(), StoreError> {
        self.control.stop_idle_slots(&mut self.outbox);
        self.tell_shell();
        let changes = self.outbox.changes();
        let results = changes.iter().any(|change| matches!(change, Change::AttemptEnded { .. }));
        let boundaries = changes.iter().any(|change| matches!(change, Change::Boundaries { .. }));
        if boundaries {
            crash_point(CrashPoint::BoundariesBeforeTransaction);
        }
        if results {
            crash_point(CrashPoint::ResultBeforeTransaction);
        }
        if !changes.is_empty() {
            self.store.apply(changes).await?;
            self.outbox.written();
            self.timing.written = Instant::now();
        }
        if boundaries {
            crash_point(CrashPoint::BoundariesAfterTransaction);
        }
        if results {
            crash_point(CrashPoint::ResultAfterTransaction);
        }
        self.publish_progress();
        self.tell_time();
        self.control.answer_polls(&mut self.outbox);
        self.control.answer_waiters(&mut self.outbox);
        self.outbox.send_answers();
        for job in self.outbox.take_to_clean() {
            self.clean(job);
        }
        Ok(())
    }

    /// Performs actions that need not wait for the transaction: log lines, and flags that stop attempts of this
    /// process.
    fn tell_shell(&mut self) {
        for line in self.outbox.take_log() {
            match line.is_warning {
                true => tracing::warn!("{}", line.text),
                false => tracing::info!("{}", line.text),
            }
        }
        for job in self.outbox.take_stopped() {
            self.progress_board.stop(job);
        }
    }

    fn publish_progress(&mut self) {
        for job in self.outbox.take_touched() {
            if let Some(progress) = self.control.progress(job) {
                self.progress_board.set_progress(job, progress);
            }
        }
        for job in self.outbox.take_forgotten() {
            self.progress_board.forget(job);
        }
    }

    /// Removes the directories of a finished job on a separate thread, because they may hold many files.
    fn clean(&mut self, job: ids::JobId) {
        let Some((dirs, disk_dirs)) = self.control.dirs_of(job) else { return };
        if let Err(error) = self.files.clean(job, dirs, disk_dirs) {
            self.control.cleaned(&mut self.outbox, job, Some(error.to_string()));
        }
    }

    /// Ends in order: marks unfinished jobs as interrupted and removes their files.
    async fn end(mut self, mut requests: mpsc::Receiver<Request>, reply: Option<Reply<()>>) {
        requests.close();
        if self.service == Service::Embedded {
            self.control.jobs().for_each(|job| self.progress_board.stop(job));
        }
        self.tell_time();
        while let Some(request) = requests.recv().await {
            if let Request::Cleaned { job, problem } = request {
                self.control.cleaned(&mut self.outbox, job, problem);
            }
        }
        self.files.wait_for_cleaners();
        // The jobs of a cluster continue under the next server.
        if self.service == Service::Embedded {
            self.interrupt_jobs();
        }
        let uuid = self.lock.uuid.clone();
        self.outbox.write(Change::OwnerEnded { uuid, now_ns: clock::now_ns() });
        self.tell_shell();
        let written = self.store.apply(self.outbox.changes()).await;
        self.control.answer_waiters(&mut self.outbox);
        self.control.stop_slots(&mut self.outbox);
        self.control.answer_polls(&mut self.outbox);
        self.outbox.send_answers();
        let closed = self.store.close().await;
        match written.and(closed) {
            Ok(()) => self.lock.release(),
            // The lock file stays: the next process sees a dead owner and completes the cleanup.
            Err(error) => tracing::warn!(%error, "cannot store the end of the server"),
        }
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
    }

    fn interrupt_jobs(&mut self) {
        for job in self.control.jobs().collect::<Vec<_>>() {
            let Some((dirs, disk_dirs)) = self.control.dirs_of(job) else { continue };
            let kept = self.control.interrupt(&mut self.outbox, job);
            match self.files.remove_now(dirs, disk_dirs) {
                Ok(()) => self.outbox.write(Change::JobCleaned { job, kept, now_ns: clock::now_ns() }),
                Err(error) => tracing::warn!(%job, %error, "cannot remove the files of a job"),
            }
        }
        self.control.interrupt_waiting(&mut self.outbox);
        self.control.interrupt_stepped(&mut self.outbox);
    }

    /// Ends after a failure of the store. The state in memory may differ from the store, so nothing more is promised.
    /// The stored rows let the next process clean up; this one removes files as far as possible.
    fn fail(self, error: StoreError) {
        tracing::error!(%error, "the store failed, the server stops");
        self.progress_board.fail(error.to_string());
        if self.service == Service::Cluster {
            return;
        }
        for job in self.control.jobs() {
            self.progress_board.stop(job);
            let dirs = self.control.dirs_of(job).map(|(dirs, _)| dirs).unwrap_or_default();
            if let Err(error) = self.files.remove_now(dirs, DiskDirs::Remove) {
                tracing::warn!(%job, %error, "cannot remove the files of a job");
            }
        }
    }
}
