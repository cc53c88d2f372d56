//! The loop: drain requests, ask the scheduler, write one transaction, reply.

use crate::checks::Checks;
use crate::clock::now_ns;
use crate::data_keys::Signing;
use crate::drills::Drills;
use crate::fleet::Fleet;
use crate::intermediates::Intermediates;
use crate::job::Job;
use crate::machines::Telemetry;
use crate::messages::{Assignment, Finished, PullReply, PullRequest, Service};
use crate::needs::Architectures;
use crate::owner::OwnerLock;
pub(crate) use crate::requests::{Joining, Reply, Request, Submission};
use crate::shared::Shared;
use crate::{ServerError, clock, placements, repair};
use api::control::{JobOutcome, JobProgress, NodeOrder, StageProgress};
use api::{Boundaries, KeyBytes, Task, TaskFailure, TaskResult};
use control::program_jobs::Backlog;
use control::users::Users;
use faults::{CrashPoint, crash_point};
use ids::{AttemptKey, BoundariesVersion, JobId, StageIndex};
use mapreduce::ExpandError;
use metastore::{AttemptState, CLUSTER_OWNER, Change, JobState, Metastore, StoreError};
use roots::JobPaths;
use scheduler::{Action, Event, Slot, State, UnixNanos};
use shipped::Depot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Requests that may wait for the loop; more callers block.
pub(crate) const REQUESTS_MAX: usize = 1024;
/// Requests that go into one transaction.
const BATCH_MAX: usize = 256;
/// Jobs whose end is remembered for somebody who asks late.
const FINISHED_JOBS_MAX: usize = 256;
/// Least time between two transactions while so many attempts run: each costs the more processor time for a job, the fewer
/// ends of jobs it has.
const WRITES_APART: Duration = Duration::from_millis(4);
const RUNNING_FOR_MORE: usize = 8;
/// Longest that a server acts without having heard from its store.
const LOOK_AT_LEAD_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct EventLoop {
    pub store: Metastore,
    pub lock: OwnerLock,
    pub shared: Arc<Shared>,
    pub service: Service,
    /// For the threads that clean.
    sender: mpsc::Sender<Request>,
    pub state: State,
    outbox: VecDeque<Action>,
    pub jobs: BTreeMap<JobId, Job>,
    finished: VecDeque<(JobId, JobOutcome)>,
    waiters: Vec<(JobId, Reply<JobOutcome>)>,
    parked: BTreeMap<Slot, Reply<PullReply>>,
    pub fleet: Fleet,
    /// Files that clients have shipped.
    pub depot: Option<Arc<Depot>>,
    pub paths: JobPaths,
    /// Signs what data ports let in.
    pub signing: Arc<Signing>,
    pub checks: Checks,
    pub drills: Drills,
    pub intermediates: Intermediates,
    pub backlog: Backlog,
    pub telemetry: Telemetry,
    pub users: Users,
    pub architectures: Architectures,
    pub any_job_yet: bool,
    /// The attempt in hand while the scheduler decides about it.
    in_hand: Option<(Finished, Option<TaskResult>)>,
    pub changes: Vec<Change>,
    /// Run after the transaction, never before.
    pub replies: Vec<Box<dyn FnOnce()>>,
    pub to_clean: Vec<JobId>,
    /// Jobs that events of this round spoke of.
    touched: BTreeSet<JobId>,
    /// Numbers for jobs, taken from the store and not used yet.
    pub job_ids: Range<JobId>,
    /// The jobs of each flow, as far as they are not cleaned.
    pub flows: BTreeMap<JobId, Vec<JobId>>,
    /// Parts that later stages want may be gone.
    pub flows_hurt: bool,
    /// Jobs come back one after the other: those that are not there yet may be.
    pub is_recovering: bool,
    cleaners: Vec<JoinHandle<()>>,
    /// When it was last looked for kept files whose time is over.
    pub collected: Option<Instant>,
    /// When the store was last heard of.
    last_written: Instant,
}

impl EventLoop {
    pub fn new(
        store: Metastore,
        lock: OwnerLock,
        shared: Arc<Shared>,
        signing: Arc<Signing>,
        service: Service,
        sender: mpsc::Sender<Request>,
    ) -> Self {
        Self {
            store,
            lock,
            shared,
            signing,
            service,
            sender,
            state: State::default(),
            outbox: VecDeque::new(),
            jobs: BTreeMap::new(),
            finished: VecDeque::new(),
            waiters: Vec::new(),
            parked: BTreeMap::new(),
            fleet: Fleet::default(),
            depot: None,
            paths: JobPaths::default(),
            checks: Checks::default(),
            drills: Drills::default(),
            intermediates: Intermediates::default(),
            backlog: Backlog::default(),
            telemetry: Telemetry::default(),
            users: Users::default(),
            architectures: Architectures::default(),
            any_job_yet: false,
            in_hand: None,
            changes: Vec::new(),
            replies: Vec::new(),
            to_clean: Vec::new(),
            touched: BTreeSet::new(),
            job_ids: JobId(0)..JobId(0),
            flows: BTreeMap::new(),
            flows_hurt: false,
            is_recovering: false,
            cleaners: Vec::new(),
            collected: None,
            last_written: Instant::now(),
        }
    }

    /// Runs until it is shut down, or until the store fails.
    pub async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            if !self.next_batch(&mut requests, &mut batch).await {
                return self.end(requests, None).await;
            }
            if self.service == Service::Cluster && self.fleet.until_tick().is_zero() {
                if let Err(error) = self.keep_lead().await {
                    return self.fail(error);
                }
                self.tick();
                if let Err(error) = self.collect_in_time().await {
                    return self.fail(error);
                }
            }
            let mut shutdown = None;
            for request in batch.drain(..) {
                let done = match request {
                    Request::Shutdown { reply } => {
                        shutdown = Some(reply);
                        Ok(())
                    }
                    // Its row must stand before its directories do, so it does not wait for the batch.
                    Request::Submit { submission, reply } => self.submit(*submission, reply).await,
                    Request::SubmitFlow { stages, reply } => self.submit_flow(stages, reply).await,
                    Request::SubmitBatch { batch, hold, quota, reply } => {
                        self.submit_batch(*batch, hold, quota, reply).await
                    }
                    Request::IssueToken { token, reply } => self.issue_token(*token, reply).await,
                    Request::RevokeToken { token, reply } => self.revoke_token(token, reply).await,
                    Request::Register { joining, reply } => self.register(*joining, reply).await,
                    Request::Kept { node, announcement, reply } => {
                        self.announced(node, *announcement, reply).await
                    }
                    Request::Collect { options, user, reply } => self.collect(*options, user, reply).await,
                    Request::Fsck { job, check, reply } => self.fsck(job, check, reply).await,
                    Request::Intermediate(request) => self.intermediate(*request).await,
                    other => {
                        self.take(other);
                        Ok(())
                    }
                };
                if let Err(error) = done {
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

    /// Whoever has had nothing to write for a while looks whether it still leads.
    async fn keep_lead(&mut self) -> Result<(), StoreError> {
        if self.last_written.elapsed() >= LOOK_AT_LEAD_EVERY {
            self.store.keep_lead().await?;
            self.last_written = Instant::now();
        }
        Ok(())
    }

    /// Takes what has been asked, perhaps nothing before it is time to look at the clock; false at the end of all
    /// who might ask.
    async fn next_batch(&self, requests: &mut mpsc::Receiver<Request>, batch: &mut Vec<Request>) -> bool {
        let receive = requests.recv_many(batch, BATCH_MAX);
        match self.service {
            Service::Embedded => receive.await > 0,
            Service::Cluster => {
                let received = tokio::time::timeout(self.fleet.until_tick(), receive).await;
                if received.is_ok_and(|count| count == 0) {
                    return false;
                }
                self.let_more_come(requests, batch).await;
                true
            }
        }
    }

    /// Waits a moment while many attempts run, so that requests shortly after a transaction share the next one.
    async fn let_more_come(&self, requests: &mut mpsc::Receiver<Request>, batch: &mut Vec<Request>) {
        let next_due = self.last_written + WRITES_APART;
        if batch.is_empty() || !self.fleet.runs_at_least(RUNNING_FOR_MORE) || next_due <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(next_due.into()).await;
        while batch.len() < BATCH_MAX
            && let Ok(request) = requests.try_recv()
        {
            batch.push(request);
        }
    }

    /// Returns the owner that the store notes for the jobs of this server.
    pub fn owner(&self) -> String {
        match self.service {
            Service::Embedded => self.lock.uuid.clone(),
            Service::Cluster => CLUSTER_OWNER.to_string(),
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Pull { request, reply } => self.pull(*request, reply),
            Request::Propose { job, keys, reply } => self.propose(job, keys, reply),
            Request::Cancel { job, reason, reply } => self.cancel(job, reason, reply),
            Request::Wait { job, reply } => self.waiters.push((job, reply)),
            Request::Cleaned { job, problem } => self.cleaned(job, problem),
            Request::Poll { node, poll, reply } => self.poll(node, *poll, reply),
            Request::Leave { node, incarnation, reply } => self.leave(node, &incarnation, reply),
            Request::Drain { name, reply } => self.drain(&name, reply),
            Request::Brief { node, job, question, reply } => self.brief(node, job, &question, reply),
            Request::RenewTokens { node, question, reply } => self.renew_tokens(node, &question, reply),
            Request::Places { job, question, reply } => self.places(job, &question, reply),
            Request::Audit { rows } => {
                self.changes.extend(rows.into_iter().map(|row| Change::Audit { row }));
            }
            Request::CheckNews { node, news, reply } => self.check_news(node, *news, reply),
            Request::Drill(request) => self.drill(request),
            Request::Said { job, reply } => self.said(job, reply),
            Request::WaitsFor { job, reply } => self.waits_for(job, reply),
            Request::Cluster { reply } => drop(reply.send(Ok(self.fleet.status()))),
            Request::Submit { .. }
            | Request::SubmitFlow { .. }
            | Request::SubmitBatch { .. }
            | Request::IssueToken { .. }
            | Request::RevokeToken { .. }
            | Request::Register { .. }
            | Request::Kept { .. }
            | Request::Collect { .. }
            | Request::Fsck { .. }
            | Request::Intermediate(_)
            | Request::Shutdown { .. } => {
                unreachable!("the loop takes these itself");
            }
        }
    }

    fn pull(&mut self, request: PullRequest, reply: Reply<PullReply>) {
        let slot = Slot { node: request.node, slot: request.slot };
        if let Some(finished) = request.finished {
            self.attempt_finished(finished);
        }
        self.parked.insert(slot, reply);
        self.feed(Event::SlotFree { slot });
    }

    pub fn attempt_finished(&mut self, mut finished: Finished) {
        let attempt = finished.attempt;
        let Some(job) = self.jobs.get_mut(&attempt.task.job) else { return };
        if !job.knows(attempt.task.stage, attempt.task.task) {
            return;
        }
        let outcome = std::mem::replace(&mut finished.outcome, Ok(TaskResult::Commit(Default::default())));
        let checked = outcome.and_then(|result| job.check_result(attempt, &result).map(|()| result));
        let checked = checked.and_then(|result| match self.service {
            Service::Embedded => Ok(result),
            Service::Cluster => {
                self.fleet.check_homes(&result, &job.results.replicas, &job.given_up).map(|()| result)
            }
        });
        let checked = checked.and_then(|result| self.check_same_part(attempt, &result).map(|()| result));
        let job = self.jobs.get(&attempt.task.job);
        if let Some((gone, with)) = job.and_then(|job| repair::evidence(job, &checked)) {
            return self.found_lost(finished, checked, &gone, &with);
        }
        self.ended(finished, checked);
    }

    pub fn ended(&mut self, finished: Finished, outcome: Result<TaskResult, TaskFailure>) {
        let attempt = finished.attempt;
        let is_whole = outcome.as_ref().is_ok_and(|result| self.covers_task(attempt, result));
        if let Err(failure) = &outcome
            && let Some(lost) = failure.lost_input.clone()
        {
            let failure = failure.clone();
            return self.input_lost(finished, failure, &lost);
        }
        let Some(job) = self.jobs.get_mut(&attempt.task.job) else { return };
        // Nobody told the job to stop: another node did that has given it up, or the attempt was not needed any more.
        let stopped_alone =
            |failure: &TaskFailure| failure.blame == api::Blame::Cancelled && !job.is_stopping();
        let stopped_alone = outcome.as_ref().is_err_and(stopped_alone);
        match outcome {
            Ok(result) if !is_whole => {
                let state = AttemptState::Discarded;
                job.attempt_ended(&finished, state, Ok(Some(&result)), &mut self.changes);
                self.feed(Event::AttemptLost { attempt });
            }
            Ok(result) => match job.refuse_stand_in(attempt, &result, &mut self.changes) {
                None => {
                    self.all_done(attempt, &result);
                    self.weigh_replication(&finished, &result);
                    self.in_hand = Some((finished, Some(result)));
                    self.feed(Event::AttemptSucceeded { attempt });
                }
                Some(again) => {
                    let state = AttemptState::Discarded;
                    job.attempt_ended(&finished, state, Ok(Some(&result)), &mut self.changes);
                    self.feed(Event::AttemptLost { attempt });
                    self.run_again(attempt.task.job, again);
                }
            },
            // Not counted: the lease of the node that may be gone ends the question, one way or the other.
            Err(failure)
                if (failure.blame == api::Blame::Environment || stopped_alone)
                    && (job.may_lack_data(attempt)
                        || job.knows_lost(&failure.lost_runs)
                        || (self.service == Service::Cluster
                            && self.fleet.may_excuse(finished.started_ns, failure.unreachable))) =>
            {
                job.attempt_ended(&finished, AttemptState::Interrupted, Err(failure), &mut self.changes);
                self.feed(Event::AttemptLost { attempt });
            }
            Err(failure) => {
                let retryable = failure.retryable() || stopped_alone;
                let of_node = failure.blame == api::Blame::Environment;
                let state = match failure.blame {
                    api::Blame::Cancelled => AttemptState::Cancelled,
                    _ => AttemptState::Failed,
                };
                job.attempt_ended(&finished, state, Err(failure), &mut self.changes);
                self.feed(Event::AttemptFailed { attempt, retryable, of_node });
            }
        }
        self.in_hand = None;
    }

    fn propose(&mut self, id: JobId, keys: Vec<KeyBytes>, reply: Reply<Boundaries>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            drop(reply.send(Err(ServerError::UnknownJob { job: id })));
            return;
        };
        let boundaries = match &job.boundaries {
            Some(boundaries) => boundaries.clone(),
            None => {
                let boundaries = Boundaries { version: BoundariesVersion(1), keys };
                job.boundaries = Some(boundaries.clone());
                let stored = boundaries.clone();
                self.changes.push(Change::Boundaries { job: id, boundaries: stored, now_ns: now_ns() });
                boundaries
            }
        };
        self.replies.push(Box::new(move || drop(reply.send(Ok(boundaries)))));
    }

    fn cleaned(&mut self, id: JobId, problem: Option<String>) {
        let Some(job) = self.jobs.remove(&id) else { return };
        self.leaves_flow(&job);
        self.users.job_over(job.user, job.spec_bytes);
        if let Some(seat) = &job.seat {
            self.backlog.is_over(seat);
        }
        match problem {
            None => {
                let (kept, places) = job.keep_here_or_on_nodes(self.service);
                self.changes.extend(places);
                self.changes.push(Change::JobCleaned { job: id, kept, now_ns: now_ns() });
            }
            Some(detail) => {
                tracing::warn!(job = %id, %detail, "cannot remove the files of a job");
                let kind = "job not cleaned";
                self.changes.push(Change::Note { job: Some(id), kind, detail, now_ns: now_ns() });
            }
        }
        let outcome = job.outcome.expect("a job is cleaned after its end");
        self.has_finished(id, outcome);
    }

    /// Answers those who wait for the end of a job.
    pub fn has_finished(&mut self, id: JobId, outcome: JobOutcome) {
        self.finished.push_back((id, outcome));
        if self.finished.len() > FINISHED_JOBS_MAX
            && let Some((oldest, _)) = self.finished.pop_front()
        {
            self.shared.forget(oldest);
        }
    }

    /// Gives an event to the scheduler and does what it orders, and what follows from that.
    pub fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = UnixNanos(clock::now_ns());
            self.touched.extend(job_of(&event));
            if let Some(moved) = self.moved_before(&event) {
                scheduler::handle(&mut self.state, &mut self.outbox, now, moved);
            }
            scheduler::handle(&mut self.state, &mut self.outbox, now, event);
            while let Some(action) = self.outbox.pop_front() {
                events.extend(self.execute(action));
            }
        }
        if std::mem::take(&mut self.flows_hurt) {
            self.mend_flows("what was lost before");
        }
    }

    fn execute(&mut self, action: Action) -> Vec<Event> {
        match action {
            Action::ExpandStage { job, stage } => return self.expand(job, stage),
            Action::Placed { attempt, why } => self.changes.push(placements::placed(attempt, why)),
            Action::StartAttempt { attempt, slot } => self.start(attempt, slot),
            Action::TaskDone { attempt } => self.task_done(attempt),
            Action::AttemptDiscarded { attempt } => self.discarded(attempt),
            Action::StopAttempt { attempt, slot } => self.stop_attempt(attempt, slot),
            Action::SplitTask { attempt, slot, done } => self.ask_to_split(attempt, slot, done),
            decision @ (Action::Speculated { .. } | Action::SlowTask { .. }) => self.decided(decision),
            Action::TaskRetried { task } => {
                self.changes.push(Change::TaskRetried { task, now_ns: now_ns() });
            }
            Action::JobFailed { job, because } => {
                self.with_job(job, |job, changes| job.failed(because, changes));
                self.fleet.order_all(job, NodeOrder::Stop { job });
                return self.flow_goes_on(job);
            }
            Action::JobSucceeded { job } => {
                self.with_job(job, Job::succeeded);
                return self.flow_goes_on(job);
            }
            Action::JobCancelled { job } => {
                self.with_job(job, Job::cancelled);
                return self.flow_goes_on(job);
            }
            Action::JobDrained { job } if self.jobs.get(&job).is_some_and(Job::is_single) => {
                self.cleaned(job, None);
            }
            Action::JobDrained { job } => self.let_go(job),
        }
        Vec::new()
    }

    pub fn with_job(&mut self, id: JobId, change: impl FnOnce(&mut Job, &mut Vec<Change>)) {
        let job = self.jobs.get_mut(&id).expect("the scheduler speaks of jobs that are not cleaned yet");
        change(job, &mut self.changes);
    }

    pub fn expand(&mut self, id: JobId, stage: StageIndex) -> Vec<Event> {
        match self.waits_for_inputs(id) {
            Ok(false) => {}
            Ok(true) => {
                self.with_job(id, |job, _| job.in_flow.is_asked = true);
                return Vec::new();
            }
            Err(failure) => {
                self.with_job(id, |job, _| job.last_failure = Some(failure));
                return vec![Event::StageRefused { job: id, stage }];
            }
        }
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        match job.stage_names[usize::from(stage.0)] {
            "merge" => job.results.leaving = self.fleet.leaving(),
            "seal" => self.settle_replication(id),
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        let is_to_rest = job.run.spec.feeds() && job.stage_names[usize::from(stage.0)] == "commit";
        let expanded = match is_to_rest {
            true => job.prove_parts().map(|()| None),
            false => job.expand_stage(stage, &mut self.changes).map(Some),
        };
        let error = match expanded {
            Ok(None) => return self.rests(id),
            Ok(Some(mut tasks)) => {
                if stage == StageIndex(0) {
                    self.near_stage_files(id, &mut tasks);
                }
                return vec![Event::StageExpanded { job: id, stage, tasks }];
            }
            Err(error) => error,
        };
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        if let ExpandError::Proof(proof) = &error {
            let (fleet, service) = (&self.fleet, self.service);
            let has_left = |node| service == Service::Cluster && !fleet.has(node);
            let repaired = job.repair(proof, stage, has_left, &mut self.changes);
            if let Some(repaired) = repaired {
                return vec![repaired];
            }
        }
        job.stage_failed(&error, &mut self.changes);
        vec![Event::StageRefused { job: id, stage }]
    }

    fn start(&mut self, attempt: AttemptKey, slot: Slot) {
        self.touched.insert(attempt.task.job);
        let job = &self.jobs[&attempt.task.job];
        let task = job.task(attempt).expect("the scheduler starts tasks of expanded stages").clone();
        let mut task = self.with_stage_files(attempt.task.job, job.results.placed_now(task));
        let job = &self.jobs[&attempt.task.job];
        let now_ns = now_ns();
        self.changes.push(Change::AttemptStarted { attempt, node: slot.node, slot: slot.slot, now_ns });
        if self.service == Service::Cluster {
            if let Task::Run(run) = &mut task {
                run.user = self.users.name(job.user);
            }
            return self.fleet.start(attempt, task, slot, now_ns);
        }
        let reply = self.parked.remove(&slot).expect("the scheduler starts attempts in slots that pulled");
        let (run, cancelled) = (Arc::clone(&job.run), Arc::clone(&job.run.cancelled));
        let assignment = Box::new(Assignment { attempt, task, job: run, cancelled });
        self.replies.push(Box::new(move || drop(reply.send(Ok(PullReply::Run(assignment))))));
    }

    fn task_done(&mut self, attempt: AttemptKey) {
        let Some((finished, Some(result))) = self.in_hand.take() else {
            unreachable!("{attempt} wins while it is handed in");
        };
        let remembers = self.service == Service::Cluster;
        let has_read = matches!(result, TaskResult::Reduce(_));
        self.with_job(attempt.task.job, |job, changes| {
            job.attempt_ended(&finished, AttemptState::Succeeded, Ok(Some(&result)), changes);
            // For a server that starts again in the middle; on one machine nobody goes on with the job.
            if remembers && !matches!(result, TaskResult::Commit(_) | TaskResult::Run(_)) {
                changes.push(Change::Result { attempt, result: Arc::new(result.clone()) });
            }
            job.task_done(attempt, result, changes);
        });
        self.part_is_there(attempt);
        if has_read {
            self.replicate_again(attempt.task.job);
        }
    }

    fn discarded(&mut self, attempt: AttemptKey) {
        let Some((finished, result)) = self.in_hand.take() else { return };
        self.with_job(attempt.task.job, |job, changes| {
            job.attempt_ended(&finished, AttemptState::Discarded, Ok(result.as_ref()), changes);
        });
    }

    /// The end of a batch: slots without a job are sent home, all changes written, and then the replies go.
    pub async fn write_and_reply(&mut self) -> Result<(), StoreError> {
        self.stop_idle_slots();
        let results = self.changes.iter().any(|change| matches!(change, Change::AttemptEnded { .. }));
        let boundaries = self.changes.iter().any(|change| matches!(change, Change::Boundaries { .. }));
        if boundaries {
            crash_point(CrashPoint::BoundariesBeforeTransaction);
        }
        if results {
            crash_point(CrashPoint::ResultBeforeTransaction);
        }
        if !self.changes.is_empty() {
            self.store.apply(&self.changes).await?;
            self.changes.clear();
            self.last_written = Instant::now();
        }
        if boundaries {
            crash_point(CrashPoint::BoundariesAfterTransaction);
        }
        if results {
            crash_point(CrashPoint::ResultAfterTransaction);
        }
        self.publish_progress();
        self.replies.drain(..).for_each(|reply| reply());
        self.fleet.answer_polls(&self.state);
        self.answer_waiters();
        for job in std::mem::take(&mut self.to_clean) {
            self.clean(job);
        }
        Ok(())
    }

    fn stop_idle_slots(&mut self) {
        if self.service == Service::Cluster
            || !self.any_job_yet
            || scheduler::has_jobs(&self.state)
            || !self.backlog.is_empty()
        {
            return;
        }
        for (slot, reply) in std::mem::take(&mut self.parked) {
            self.feed(Event::SlotGone { slot });
            self.replies.push(Box::new(move || drop(reply.send(Ok(PullReply::Stop)))));
        }
    }

    fn publish_progress(&mut self) {
        for id in &std::mem::take(&mut self.touched) {
            let Some(job) = self.jobs.get(id) else { continue };
            let counts = scheduler::stage_counts(&self.state, *id);
            let over = counts.is_none();
            let stages = match counts {
                Some(counts) => counts
                    .into_iter()
                    .map(|stage| StageProgress {
                        name: stage.name.to_string(),
                        expanded: stage.expanded,
                        tasks: stage.tasks,
                        done: stage.done,
                        running: stage.running,
                    })
                    .collect(),
                None => last_progress(job),
            };
            self.shared.set_progress(*id, JobProgress { stages, over, rests: job.in_flow.rests });
        }
    }

    fn answer_waiters(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        for (id, reply) in std::mem::take(&mut self.waiters) {
            // Whoever waits over the network gives up now and then, and asks again.
            if reply.is_closed() {
                continue;
            }
            let finished = self.finished.iter().find(|(job, _)| *job == id);
            match finished {
                Some((_, outcome)) => drop(reply.send(Ok(outcome.clone()))),
                None if self.jobs.contains_key(&id) || self.backlog.has(id) => {
                    self.waiters.push((id, reply));
                }
                None => drop(reply.send(Err(ServerError::UnknownJob { job: id }))),
            }
        }
    }

    /// Removes the directories of a drained job, on a thread of its own: that may be a lot of files.
    fn clean(&mut self, id: JobId) {
        self.cleaners.retain(|cleaner| !cleaner.is_finished());
        let job = &self.jobs[&id];
        let (directories, keep, sender) = (job.directories(), job.keeps_ifiles(), self.sender.clone());
        let paths = self.paths.clone();
        let work = move || {
            let problem = directories.remove(&paths, keep).err().map(|error| error.to_string());
            // Nobody listens any more where the server ends at the same time; it cleans by itself then.
            let _ = sender.blocking_send(Request::Cleaned { job: id, problem });
        };
        match std::thread::Builder::new().name(format!("clean-{id}")).spawn(work) {
            Ok(cleaner) => self.cleaners.push(cleaner),
            Err(error) => self.cleaned(id, Some(error.to_string())),
        }
    }

    /// An orderly end. Whatever is not over is marked interrupted and removed.
    async fn end(mut self, mut requests: mpsc::Receiver<Request>, reply: Option<Reply<()>>) {
        requests.close();
        if self.service == Service::Embedded {
            self.jobs.values().for_each(Job::stop_attempts);
        }
        while let Some(request) = requests.recv().await {
            if let Request::Cleaned { job, problem } = request {
                self.cleaned(job, problem);
            }
        }
        for cleaner in self.cleaners.drain(..) {
            if cleaner.join().is_err() {
                tracing::warn!("a thread that removes the files of a job panicked");
            }
        }
        // The jobs of a cluster wait for the next server.
        let own_jobs = self.jobs.iter().filter(|_| self.service == Service::Embedded);
        for (id, job) in own_jobs {
            if job.outcome.is_none() {
                self.changes.push(Change::JobEnded {
                    job: *id,
                    state: JobState::Interrupted,
                    exit_code: None,
                    error: Some("the server was shut down".to_string()),
                    now_ns: now_ns(),
                });
            }
            match job.directories().remove(&self.paths, job.keeps_ifiles()) {
                Ok(()) => {
                    let kept = job.keep();
                    self.changes.push(Change::JobCleaned { job: *id, kept, now_ns: now_ns() });
                }
                Err(error) => tracing::warn!(job = %id, %error, "cannot remove the files of a job"),
            }
        }
        self.interrupt_waiting();
        self.changes.push(Change::OwnerEnded { uuid: self.lock.uuid.clone(), now_ns: now_ns() });
        let written = self.store.apply(&self.changes).await;
        self.answer_waiters();
        for (_, reply) in std::mem::take(&mut self.parked) {
            drop(reply.send(Ok(PullReply::Stop)));
        }
        self.fleet.answer_polls(&self.state);
        let closed = self.store.close().await;
        match written.and(closed) {
            Ok(()) => self.lock.release(),
            // The lock file stays: the next process sees a dead owner and does the rest.
            Err(error) => tracing::warn!(%error, "cannot store the end of the server"),
        }
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
    }

    /// The store failed: what is in memory may differ from it, so nothing more is promised. The rows that stand
    /// let the next process clean up; the files go now as far as they can.
    fn fail(self, error: StoreError) {
        tracing::error!(%error, "the store failed, the server stops");
        self.shared.fail(error.to_string());
        for job in self.jobs.values().filter(|_| self.service == Service::Embedded) {
            job.stop_attempts();
            if let Err(error) = job.directories().remove(&self.paths, false) {
                tracing::warn!(job = %job.id, %error, "cannot remove the files of a job");
            }
        }
    }
}

/// The job that an event is about, where it is about one.
fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::JobSubmitted { job, .. }
        | Event::JobRecovered { job, .. }
        | Event::StageExpanded { job, .. }
        | Event::JobRests { job }
        | Event::StageRefused { job, .. }
        | Event::StageSentBack { job, .. }
        | Event::ResultsLost { job, .. }
        | Event::TasksMoved { job, .. }
        | Event::MayCopy { job, .. }
        | Event::MaySplit { job, .. }
        | Event::JobCancelled { job } => Some(*job),
        Event::TaskAdded { of: attempt, .. }
        | Event::AttemptSucceeded { attempt }
        | Event::AttemptFailed { attempt, .. }
        | Event::AttemptLost { attempt } => Some(attempt.task.job),
        Event::NodeCame { .. }
        | Event::Progress { .. }
        | Event::SlotFree { .. }
        | Event::SlotGone { .. }
        | Event::SlotsGone { .. }
        | Event::PlacesFree { .. }
        | Event::NodeDraining { .. }
        | Event::NodeResumes { .. }
        | Event::NodeLost { .. }
        | Event::Tick => None,
    }
}

/// The progress of a job that is over: complete where it succeeded, else as far as its tasks go.
fn last_progress(job: &Job) -> Vec<StageProgress> {
    let mut stages = Vec::new();
    for (index, name) in job.stage_names.iter().enumerate() {
        let tasks = job.tasks.get(index).map_or(0, |tasks| tasks.len() as u32);
        let won = |attempt: &&mapreduce::AttemptTime| usize::from(attempt.stage.0) == index && attempt.won;
        let done = job.results.attempts.iter().filter(won).count() as u32;
        let expanded = index < job.tasks.len();
        stages.push(StageProgress { name: name.to_string(), expanded, tasks, done, running: 0 });
    }
    stages
}
