//! The root of control: its parts, and one entry point for each kind of event.

mod early;
mod steps;

use crate::drills::{Drills, NewStrike};
use crate::interface::{
    ControlError, DiskDirs, Fact, JobDirs, NewJob, Now, Outbox, PullRequest, Reply, RoomWanted, Service,
    SlotOrder,
};
use crate::intermediate_files::{
    FileRequest, IntermediateFiles, NamedFile, NewFile, check_create, create, disks_taken, end_files,
    files_gone, handle, recover_files,
};
use crate::job::{Job, JobEnds, Jobs, begin_job, spec_bytes, task_bytes};
use crate::membership::{
    Fleet, Joining, check_fits, departure, draining, end_drains, give_up_away, joining, local_slots,
    lose_node, miss, needs_of, polling, write_telemetry,
};
use crate::program_jobs::steps::SteppedJobs;
use crate::program_jobs::{
    Backlog, FileHold, QueueKey, Queued, Turn, Waiting, WaitingSpec, Window, end_before_begin, window,
};
use crate::recovery::{
    Drains, GoesOn, Leftover, RecoveredWork, clean_up, drain_again, goes_on, keep_again,
    mend_recovered_flows, recover_nodes, take_up, unanswered_flows, wait_again,
};
use crate::retention::{CheckBegin, Checks, DirInStore, FoundDirs, KeptCheck, checks};
use crate::scheduling::seen_listings::{self, SeenListings, SeenRequest};
use crate::scheduling::{Scheduling, feed, plan_again, waits_to_see};
use crate::users::{Has, JobOwner, Users};
use crate::work::Work;
use crate::{drills, job, membership, program_jobs, replication, retention};
use api::control::{
    ClusterStatus, JobBatch, JobBrief, JobLogs, JobOutcome, JobProgress, NodeInfo, NodeOrder, NodeOrders,
    NodePoll, NodeStatus, NodeWelcome, PlacesAnswer, PlacesQuestion,
};
use api::data_access::{DataKeys, SecretText};
use api::drill::{DrillNews, DrillOutcome};
use api::fsck::{CheckAnswer, CheckNews, FsckAnswer};
use api::history::{JobState, StepOf};
use api::intermediate::{CreatedIntermediate, IntermediateStatus, NewIntermediate};
use api::job::resources::GenericResources;
use api::kept::{KeptAnnouncement, KeptPlace};
use api::seen::{SeenAnswer, SeenNews, SeenNewsAnswer};
use api::stored::need::{DrainingNode, NodeNeed};
use api::{Blame, Boundaries, JobSpec, KeyBytes, TaskFailure};
use ids::{IntermediateId, JobId, NodeId};
use rows::{Change, Keep, NodeRow, NodeState};
use scheduler::{Claim, Event};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The decisions of a server. Each entry point takes an event and an outbox; when it returns, the outbox holds the
/// consequences.
pub struct Control {
    work: Work,
    users: Users,
    backlog: Backlog,
    files: IntermediateFiles,
    checks: Checks,
    drills: Drills,
    seen: SeenListings,
    ends: JobEnds,
    stepped: SteppedJobs,
    /// Jobs with steps that go on once everything is restored, or end with an outcome.
    recovering: Vec<(JobId, Option<JobOutcome>)>,
}

impl Control {
    /// Creates the control of a server that begins now, without jobs and nodes.
    pub fn new(service: Service, now: Now) -> Self {
        let (jobs, fleet, scheduling) = (Jobs::default(), Fleet::new(now), Scheduling::default());
        Self {
            work: Work { service, jobs, fleet, scheduling },
            users: Users::default(),
            backlog: Backlog::default(),
            files: IntermediateFiles::default(),
            checks: Checks::default(),
            drills: Drills::default(),
            seen: SeenListings::default(),
            ends: JobEnds::default(),
            stepped: SteppedJobs::default(),
            recovering: Vec::new(),
        }
    }

    /// Passes facts between the parts until none is left.
    fn settle(&mut self, outbox: &mut Outbox) {
        while let Some(fact) = outbox.next_fact() {
            match fact {
                Fact::NodeLost { node, name } => {
                    self.checks.node_lost(node, &name);
                    files_gone(&mut self.files, &mut self.work.fleet, outbox, node, &name);
                    self.drills.node_lost(node, outbox);
                    seen_listings::node_lost(&mut self.seen, node, outbox);
                }
                Fact::JobCleaned { job } => self.job_cleaned(outbox, job, None),
                Fact::StepRuns { job, node } => self.step_runs(outbox, job, node),
                Fact::StepRan { job, result } => self.step_ran(outbox, job, *result),
            }
        }
    }

    fn job_cleaned(&mut self, outbox: &mut Outbox, id: JobId, problem: Option<String>) {
        let Some(job) = self.work.jobs.remove(id) else { return };
        self.users.job_over(job.owner().number, job.owner().spec_bytes);
        if let Some(seat) = job.seat() {
            self.backlog.is_over(seat);
        }
        let of_step = self.stepped.place_of(id).and(job.outcome().cloned());
        self.ends.job_cleaned(outbox, job, self.work.service, problem);
        if let Some(outcome) = of_step {
            self.step_over(outbox, id, &outcome);
        }
    }

    /// Handles the passing of time: lost nodes, timeouts, expired files, finished drains, and the scheduler's clock.
    pub fn tick(&mut self, outbox: &mut Outbox) {
        let moment = outbox.moment();
        self.work.fleet.ticked(moment);
        for (node, why) in self.work.fleet.silent(moment) {
            miss(&mut self.work, outbox, node, why);
        }
        give_up_away(&mut self.work, outbox);
        self.drills.tick(outbox);
        seen_listings::tick(&mut self.seen, outbox);
        end_files(&mut self.files, &mut self.work.fleet, &self.work.jobs, outbox);
        end_drains(&mut self.work, &self.files, outbox);
        write_telemetry(&mut self.work.fleet, outbox);
        plan_again(&mut self.work, outbox);
        feed(&mut self.work, outbox, Event::Tick);
        self.settle(outbox);
    }

    /// Returns how long a shell may wait for the next event before it must call [`Control::tick`].
    pub fn until_tick(&self, now: Now) -> Duration {
        self.work.fleet.until_tick(now.moment)
    }

    pub fn runs_at_least(&self, attempts: usize) -> bool {
        self.work.fleet.runs_at_least(attempts)
    }
}

/// Slots and nodes.
impl Control {
    /// Sets the generic resources of the node in this process. Comes before its slots.
    pub fn local_node_declares(&mut self, resources: GenericResources) {
        self.work.fleet.declare_local(resources);
    }

    /// Records the number of slots of this process, before they ask.
    pub fn local_node_has(&mut self, outbox: &mut Outbox, slots: u32) {
        local_slots::local_node_has(&mut self.work, outbox, slots);
    }

    /// Handles a request for work by a slot of this process.
    pub fn pull(&mut self, outbox: &mut Outbox, request: PullRequest, reply: Reply<SlotOrder>) {
        local_slots::pull(&mut self.work, outbox, request, reply);
        self.settle(outbox);
    }

    /// Stops the waiting slots of this process if every job is over.
    pub fn stop_idle_slots(&mut self, outbox: &mut Outbox) {
        let work = &mut self.work;
        let waits = !self.backlog.is_empty() || !self.stepped.is_empty();
        let is_idle = work.jobs.any_yet() && !work.scheduling.has_jobs() && !waits;
        if work.service == Service::Cluster || !is_idle {
            return;
        }
        local_slots::stop(work, outbox);
        self.settle(outbox);
    }

    /// Stops all waiting slots of this process, because the server ends.
    pub fn stop_slots(&mut self, outbox: &mut Outbox) {
        for reply in self.work.fleet.take_pulls() {
            outbox.answer(reply, Ok(SlotOrder::Stop));
        }
    }

    /// Returns an error for a node that this server cannot admit.
    pub fn check_joining(&self, info: &NodeInfo) -> Result<(), ControlError> {
        joining::check(info)
    }

    /// Admits a node under a number that the store assigned.
    pub fn join(&mut self, outbox: &mut Outbox, node: NodeId, joining: Joining, reply: Reply<NodeWelcome>) {
        let predecessors = joining.predecessors.clone();
        joining::join(&mut self.work, outbox, node, joining, reply);
        self.settle(outbox);
        if self.work.fleet.has(node) {
            disks_taken(&mut self.files, outbox, node, &predecessors);
        }
    }

    pub fn poll(&mut self, outbox: &mut Outbox, node: NodeId, mut poll: NodePoll, reply: Reply<NodeOrders>) {
        self.stepped.keep_lost(&mut poll.finished);
        polling::poll(&mut self.work, outbox, node, poll, reply);
        self.settle(outbox);
    }

    /// Answers the polls that have news, and those that have waited for their maximum time.
    pub fn answer_polls(&mut self, outbox: &mut Outbox) {
        let left_out = self.work.scheduling.left_out();
        self.work.fleet.answer_polls(left_out, outbox);
    }

    /// Handles the graceful shutdown of a node.
    pub fn leave(&mut self, outbox: &mut Outbox, node: NodeId, incarnation: &str, reply: Reply<()>) {
        departure::leave(&mut self.work, outbox, node, incarnation, reply);
        self.settle(outbox);
    }

    /// Begins to drain a node, given by its name or number.
    pub fn drain(&mut self, outbox: &mut Outbox, name: &str, reply: Reply<NodeStatus>) {
        draining::drain(&mut self.work, outbox, name, reply);
        self.settle(outbox);
    }

    /// Lets drained nodes stay until [`Control::stored_needs`] says that no stored file needs them.
    pub fn expect_stored_needs(&mut self) {
        self.work.fleet.expect_stored_needs();
    }

    /// Takes the needs of stored files for nodes, and returns the nodes that are being drained.
    pub fn stored_needs(&mut self, outbox: &mut Outbox, needs: Vec<NodeNeed>) -> Vec<DrainingNode> {
        draining::stored_needs(&mut self.work, outbox, needs)
    }

    /// Sends the current signing keys of data ports to all nodes.
    pub fn tell_keys(&mut self, keys: &DataKeys) {
        let order = || NodeOrder::DataKeys { keys: Box::new(keys.clone()) };
        self.work.fleet.all_mut().for_each(|node| node.order(order()));
    }

    /// Removes the nodes that joined with a token that has been revoked.
    pub fn shut_out(&mut self, outbox: &mut Outbox, token: &str) {
        for node in self.work.fleet.joined_by(token) {
            lose_node(&mut self.work, outbox, node, NodeState::Left, "its token has been revoked");
        }
        self.settle(outbox);
    }

    pub fn status(&self, now: Now) -> ClusterStatus {
        self.work.fleet.status(now.moment)
    }

    /// Returns whether a node is in the cluster and has not been told to leave.
    pub fn stays(&self, node: NodeId) -> bool {
        self.work.fleet.stays(node)
    }

    /// Records that a node was heard from. Fails if the node is unknown, or if its process is another one.
    pub fn hear(&mut self, node: NodeId, incarnation: &str, now: Now) -> Result<(), ControlError> {
        self.work.fleet.heard(node, incarnation, now.moment).map(drop)
    }

    /// Returns whether a node runs an attempt of a job, or holds data of the job that no writer sent to it.
    pub fn has_to_do_with(&self, node: NodeId, job: JobId) -> bool {
        self.work.fleet.has_to_do_with(node, job) || self.reads_output_of(node, job)
    }
}

/// Jobs.
impl Control {
    /// Returns an error if jobs that are submitted together exceed a quota of their user, or if no node could run one
    /// of them.
    pub fn check_room(&self, user: &str, wanted: RoomWanted, specs: &[&JobSpec]) -> Result<(), ControlError> {
        let RoomWanted { jobs, spec_bytes, quota } = wanted;
        let has_room = self.users.check_room(user, Has { jobs, spec_bytes }, quota);
        has_room.map_err(|error| ControlError::of_quota(user, error))?;
        specs.iter().try_for_each(|spec| check_fits(&self.work, spec))
    }

    /// Begins jobs whose rows and directories exist. All of them are known before the scheduler learns of the first: a
    /// stage without tasks ends at once, and its readers must be known by then.
    pub fn begin_jobs(&mut self, outbox: &mut Outbox, jobs: Vec<NewJob>) {
        let mut events = Vec::new();
        for new in jobs {
            let owner = self.users.job_begins(new.user.clone(), spec_bytes(&new.spec));
            let step = self.stepped.rank_of(new.job);
            events.extend(begin_job(&mut self.work, new, owner, step));
        }
        events.into_iter().for_each(|event| feed(&mut self.work, outbox, event));
        self.settle(outbox);
    }

    /// Begins jobs of one task each, numbered from `first`. `server` is the owner in their rows.
    pub fn begin_batch(&mut self, outbox: &mut Outbox, batch: NewBatch) {
        let NewBatch { first, batch, server, file_hold } = batch;
        let JobBatch { tasks, name, user, priority, .. } = batch;
        let spec_bytes_of_all = tasks.iter().map(task_bytes).sum();
        let more = Has { jobs: tasks.len() as u32, spec_bytes: spec_bytes_of_all };
        let user_in_row = Some(user.clone()).filter(|user| !user.is_empty());
        let number = self.users.jobs_begin(user, more);
        let (window, name_of_all) = (window(&self.work.fleet), Some(name.as_str().into()));
        let of_batch = OfBatch { server, user_in_row, number, priority, file_hold, window, name_of_all };
        let mut before: Option<Arc<JobSpec>> = None;
        for (index, task) in tasks.into_iter().enumerate() {
            let job = JobId(first.0 + index as i64);
            // Equal jobs share one specification in memory.
            let same = before.take().filter(|spec| spec.kind.program() == Some(&task));
            let shared = same.clone().map(WaitingSpec::Shared);
            let spec = same.unwrap_or_else(|| Arc::new(JobSpec::of_one_task(name.clone(), task)));
            before = Some(Arc::clone(&spec));
            self.begin_single(outbox, &of_batch, job, spec, shared, None);
        }
        self.work.jobs.one_came();
        self.settle(outbox);
    }

    /// Stores a job of one task, and admits it or lets it wait. `shared`: its specification in the backlog, if other
    /// jobs share it.
    fn begin_single(
        &mut self,
        outbox: &mut Outbox,
        batch: &OfBatch,
        job: JobId,
        spec: Arc<JobSpec>,
        shared: Option<WaitingSpec>,
        step_of: Option<StepOf>,
    ) {
        let window = batch.window;
        let needs = needs_of(&mut self.work.scheduling, self.work.service, &spec);
        let key = QueueKey::of(&Claim { user: batch.number, priority: batch.priority, needs, step: None });
        let spec_bytes = spec_bytes(&spec);
        let waits = self.backlog.must_wait(&key, spec_bytes, window);
        outbox.write(Change::JobSubmitted {
            job,
            owner: batch.server.clone(),
            spec: Arc::clone(&spec),
            stages: mapreduce::stages(&spec),
            staging: PathBuf::new(),
            disk_dirs: Vec::new(),
            user: batch.user_in_row.clone(),
            priority: batch.priority,
            waits,
            step_of,
            now_ns: outbox.now_ns(),
        });
        let file_hold = batch.file_hold.clone();
        if waits {
            let name = batch.name_of_all.clone().unwrap_or_else(|| spec.name.as_str().into());
            // The store has no questions about finished runs.
            let is_look = spec.kind.program().is_some_and(|task| !task.looks.is_empty());
            let shared = shared.or_else(|| is_look.then(|| WaitingSpec::Shared(Arc::clone(&spec))));
            let spec = shared.unwrap_or_else(|| WaitingSpec::of(&spec));
            self.backlog.waits(job, key, Waiting { name, spec, spec_bytes, file_hold });
        } else {
            self.admit(outbox, job, spec, key, (spec_bytes, file_hold), window);
        }
    }

    fn admit(
        &mut self,
        outbox: &mut Outbox,
        job: JobId,
        spec: Arc<JobSpec>,
        key: QueueKey,
        (spec_bytes, file_hold): (u64, Option<FileHold>),
        window: Window,
    ) {
        let owner = JobOwner { number: key.user, name: self.users.name(key.user), spec_bytes };
        let seat = self.backlog.admit(key, spec_bytes, window);
        let step = self.stepped.rank_of(job);
        let near = spec.kind.program().and_then(|task| self.stepped.near(job, task));
        program_jobs::admit(
            &mut self.work,
            outbox,
            Turn { job, spec, key, step, owner, seat, file_hold, near },
        );
    }

    pub fn any_waits(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Takes the next waiting job of one task whose turn has come. The caller must admit the job or end it.
    pub fn next_waiting(&mut self) -> Option<Queued> {
        let window = window(&self.work.fleet);
        let (job, key, waiting) = self.backlog.next(window)?;
        Some(Queued { job, key, waiting })
    }

    /// Admits a job that was taken out of its queue. A `spec` of None means that its row is gone: the job fails.
    pub fn admit_waiting(&mut self, outbox: &mut Outbox, queued: Queued, spec: Option<Arc<JobSpec>>) {
        let window = window(&self.work.fleet);
        match spec {
            Some(spec) => {
                let Queued { job, key, waiting } = queued;
                self.admit(outbox, job, spec, key, (waiting.spec_bytes, waiting.file_hold), window);
            }
            None => {
                let failure = TaskFailure::new(Blame::Environment, "its row is gone");
                self.end_waiting(
                    outbox,
                    &queued,
                    JobOutcome::Failed { failure, attempt: None, exit_code: 1 },
                );
            }
        }
        self.settle(outbox);
    }

    /// Restores the wait of a job of one task that waited when the previous server ended.
    pub fn waits_again(
        &mut self,
        job: JobId,
        user: String,
        priority: i32,
        spec: JobSpec,
        hold: Option<FileHold>,
    ) {
        let spec_bytes = spec_bytes(&spec);
        let needs = needs_of(&mut self.work.scheduling, self.work.service, &spec);
        let user = self.users.jobs_begin(user, Has { jobs: 1, spec_bytes });
        let key = QueueKey::of(&Claim { user, priority, needs, step: None });
        let name = spec.name.as_str().into();
        let spec = WaitingSpec::of(&spec);
        self.backlog.waits(job, key, Waiting { name, spec, spec_bytes, file_hold: hold });
        self.work.jobs.one_came();
    }

    /// Ends the waiting jobs, because the process ends.
    pub fn interrupt_waiting(&mut self, outbox: &mut Outbox) {
        for job in self.backlog.jobs() {
            let error = Some("the server was shut down".to_string());
            let (state, now_ns) = (JobState::Interrupted, outbox.now_ns());
            outbox.write(Change::JobEnded { job, state, exit_code: None, error, now_ns });
            outbox.write(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        }
    }

    fn cancel_one(&mut self, outbox: &mut Outbox, job: JobId, reason: String) {
        match self.backlog.take(job) {
            Some((key, waiting)) => {
                let queued = Queued { job, key, waiting };
                self.end_waiting(outbox, &queued, JobOutcome::Cancelled { reason });
            }
            None => job::cancel(&mut self.work, outbox, job, reason),
        }
    }

    fn end_waiting(&mut self, outbox: &mut Outbox, queued: &Queued, outcome: JobOutcome) {
        let (state, reason) = match &outcome {
            JobOutcome::Failed { failure, .. } => (JobState::Failed, failure.message.as_str()),
            JobOutcome::Cancelled { reason } => (JobState::Cancelled, reason.as_str()),
            JobOutcome::Succeeded(_) | JobOutcome::Done => unreachable!("a job that waits has done nothing"),
        };
        end_before_begin(&mut self.users, outbox, queued, state, reason);
        self.ends.has_finished(outbox, queued.job, outcome.clone());
        self.step_over(outbox, queued.job, &outcome);
    }

    /// Records that the shell has removed the directories of a finished job. `problem`: the reason why it could not.
    pub fn cleaned(&mut self, outbox: &mut Outbox, job: JobId, problem: Option<String>) {
        self.job_cleaned(outbox, job, problem);
        self.settle(outbox);
    }

    /// Registers a caller that waits for the end of a job.
    pub fn wait(&mut self, job: JobId, reply: Reply<JobOutcome>) {
        self.ends.wait(job, reply);
    }

    /// Answers the callers that wait for jobs which are over.
    pub fn answer_waiters(&mut self, outbox: &mut Outbox) {
        let (jobs, backlog) = (&self.work.jobs, &self.backlog);
        let stepped = &self.stepped;
        let is_known = |job| jobs.contains_key(&job) || backlog.has(job) || stepped.has(job);
        self.ends.answer_waiters(outbox, is_known);
    }

    /// Proposes range boundaries; the first proposal wins.
    pub fn propose(
        &mut self,
        outbox: &mut Outbox,
        job: JobId,
        keys: Vec<KeyBytes>,
        reply: Reply<Boundaries>,
    ) {
        let proposed = job::propose(&mut self.work.jobs, outbox, job, keys);
        outbox.answer(reply, proposed);
    }

    pub fn places(
        &self,
        outbox: &mut Outbox,
        job: JobId,
        question: &PlacesQuestion,
        reply: Reply<PlacesAnswer>,
    ) {
        outbox.answer(reply, replication::places(&self.work.jobs, job, question));
    }

    /// Returns a sentence about what a job waits for besides a slot.
    pub fn waits_for(&self, job: JobId) -> Option<String> {
        membership::waits_for(&self.work.scheduling, job).or_else(|| waits_to_see(&self.work, job))
    }

    /// Returns the output so far of the program of a job; None if no program runs or its node has reported nothing.
    pub fn output_so_far(&self, job: JobId) -> Option<JobLogs> {
        membership::output_so_far(&self.work.fleet, job)
    }

    /// Returns the progress of a job that is not cleaned.
    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        let stepped = || Some(self.stepped.get(job)?.progress());
        job::progress(&self.work, job).or_else(stepped)
    }

    /// Returns whether a job is known and not yet cleaned.
    pub fn has_job(&self, job: JobId) -> bool {
        self.work.jobs.contains_key(&job)
    }

    /// Returns the facts of a job that a node needs, without signatures. From now on the node may hold data of this job
    /// and of the jobs that it reads.
    pub fn brief(&mut self, node: NodeId, job: JobId) -> Result<JobBrief, ControlError> {
        let known = self.work.jobs.get(&job).ok_or(ControlError::UnknownJob { job })?;
        let reads = known.spec().reads();
        // A job of one task has no data on nodes, only an output that another attempt reads.
        if known.is_single() {
            return Ok(brief_of(job, known));
        }
        self.work.fleet.may_hold(node, std::iter::once(job).chain(reads.iter().copied()));
        Ok(brief_of(job, known))
    }

    /// Returns the jobs that are not cleaned, in order.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.work.jobs.keys().copied()
    }

    /// Returns the directories of a job, and the fate of its data in them; None if the job is cleaned.
    pub fn dirs_of(&self, job: JobId) -> Option<(JobDirs, DiskDirs)> {
        let job = self.work.jobs.get(&job)?;
        let disk_dirs = if job.keeps_ifiles() { DiskDirs::Keep } else { DiskDirs::Remove };
        Some((job.dirs().clone(), disk_dirs))
    }

    /// Marks a job that is not over as interrupted, because the process ends. Returns how long its data is kept after
    /// its directories are removed.
    pub fn interrupt(&mut self, outbox: &mut Outbox, job: JobId) -> Keep {
        let Some(known) = self.work.jobs.get_mut(&job) else { return Keep::Nothing };
        if known.outcome().is_none() {
            let error = Some("the server was shut down".to_string());
            let (state, now_ns) = (JobState::Interrupted, outbox.now_ns());
            outbox.write(Change::JobEnded { job, state, exit_code: None, error, now_ns });
        }
        known.keep(outbox.now_ns())
    }
}

/// Kept data, checks, drills and intermediate files.
impl Control {
    /// Handles a node's announcement of the directories on its disks. The caller must ask the store about the returned
    /// ones.
    pub fn announced(
        &mut self,
        outbox: &mut Outbox,
        node: NodeId,
        announcement: KeptAnnouncement,
    ) -> FoundDirs {
        let found = retention::announced(&mut self.work, outbox, node, announcement);
        self.settle(outbox);
        found
    }

    /// Handles the answer of the store about directories that a node found.
    pub fn found(&mut self, outbox: &mut Outbox, found: FoundDirs, in_store: Vec<DirInStore>) {
        retention::found(&mut self.work.fleet, outbox, found, in_store);
    }

    /// Orders nodes to remove their kept data of a job. Returns the names of the nodes that are not in the cluster.
    pub fn drop_kept(&mut self, job: JobId, places: Vec<KeptPlace>) -> BTreeSet<String> {
        retention::drop_kept(&mut self.work.fleet, job, places)
    }

    /// Returns whether a check of a job's kept I-files may begin, or is already under way.
    pub fn begin_check(&mut self, source: JobId, now: Now) -> Result<CheckBegin, ControlError> {
        checks::begin(&mut self.checks, source, now.moment)
    }

    /// Orders the nodes that have the files to read them. `name` must be unique among the checks.
    pub fn start_check(
        &mut self,
        name: String,
        kept: KeptCheck,
        now: Now,
    ) -> Result<FsckAnswer, ControlError> {
        checks::start(&mut self.checks, &mut self.work.fleet, name, kept, now.moment)
    }

    pub fn knows_check(&mut self, name: &str, now: Now) -> bool {
        self.checks.knows(name, now.moment)
    }

    /// Returns the progress of a check. `source`: the job that kept the files, according to the store now.
    pub fn look_at_check(&mut self, name: &str, source: JobId, now: Now) -> Result<FsckAnswer, ControlError> {
        checks::look_at(&mut self.checks, name, source, now.moment)
    }

    /// Handles a node's findings for a check.
    pub fn check_news(
        &mut self,
        outbox: &mut Outbox,
        node: NodeId,
        news: CheckNews,
        reply: Reply<CheckAnswer>,
    ) {
        let heard = self.work.fleet.heard(node, &news.incarnation, outbox.moment()).map(drop);
        let answer = heard.map(|()| CheckAnswer { goes_on: self.checks.take(node, news, outbox.moment()) });
        outbox.answer(reply, answer);
    }

    /// Orders a node to execute a fault of a drill.
    pub fn strike(&mut self, outbox: &mut Outbox, new: NewStrike, reply: Reply<DrillOutcome>) {
        drills::strike(&mut self.drills, &mut self.work.fleet, &self.work.jobs, outbox, new, reply);
    }

    /// Handles a node's report on the outcome of a fault.
    pub fn struck(&mut self, outbox: &mut Outbox, node: NodeId, news: DrillNews, reply: Reply<()>) {
        let heard = self.work.fleet.heard(node, &news.incarnation, outbox.moment()).map(drop);
        if heard.is_ok() {
            drills::struck(&mut self.drills, outbox, node, news);
        }
        outbox.answer(reply, heard);
    }

    /// Lists files that only some nodes see. The caller is answered when they have listed them, or should ask again.
    pub fn list_seen(&mut self, outbox: &mut Outbox, request: SeenRequest, reply: Reply<SeenAnswer>) {
        seen_listings::ask(&mut self.seen, &mut self.work.fleet, outbox, request, reply);
    }

    /// Handles a page of a node's listing.
    pub fn seen_listed(
        &mut self,
        outbox: &mut Outbox,
        node: NodeId,
        news: SeenNews,
        reply: Reply<SeenNewsAnswer>,
    ) {
        let heard = self.work.fleet.heard(node, &news.incarnation, outbox.moment()).map(drop);
        let answer = heard.map(|()| seen_listings::listed(&mut self.seen, outbox, node, news));
        outbox.answer(reply, answer);
    }

    /// Returns an error for an intermediate file that may not be created.
    pub fn check_file(
        &self,
        of: NamedFile,
        new: NewIntermediate,
        bytes_max: Option<u64>,
    ) -> Result<NewFile, ControlError> {
        check_create(&self.files, &self.work.fleet, &self.work.jobs, of, new, bytes_max)
    }

    /// Creates an intermediate file under a number that the store assigned.
    pub fn create_file(
        &mut self,
        outbox: &mut Outbox,
        file: IntermediateId,
        new: NewFile,
        reply: Reply<CreatedIntermediate>,
    ) {
        create(&mut self.files, &mut self.work.fleet, outbox, file, new, reply);
    }

    /// Handles a request about intermediate files.
    pub fn file_request(&mut self, outbox: &mut Outbox, request: FileRequest) {
        handle(&mut self.files, &mut self.work.fleet, outbox, request);
    }
}

/// A restart.
impl Control {
    /// Restores the nodes and jobs of the previous server. Returns the jobs that have only directories left. The caller
    /// must have restored the jobs with steps, must restore the waiting jobs next, and call [`Control::recovered`] last.
    pub fn recover(
        &mut self,
        outbox: &mut Outbox,
        nodes: Vec<NodeRow>,
        jobs: Vec<RecoveredWork>,
        keys: &DataKeys,
    ) -> Recovering {
        let work = &mut self.work;
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job.row.job).collect();
        let drains = recover_nodes(work, outbox, nodes, &ids);
        self.tell_keys(keys);
        // Orders about kept files may not have arrived.
        let work = &mut self.work;
        work.fleet.all_mut().for_each(|node| node.order(NodeOrder::TellKept));
        let unanswered = unanswered_flows(jobs.iter().map(|job| &job.job));
        work.jobs.begin_recovery();
        let mut leftovers = Vec::new();
        for recovered in jobs {
            let way = goes_on(&recovered.job, &unanswered);
            if matches!(way, GoesOn::Nothing) {
                leftovers.extend(clean_up(&mut self.work.fleet, outbox, &recovered.job));
                continue;
            }
            let user = recovered.job.row.user.clone().unwrap_or_default();
            let owner = self.users.job_begins(user, spec_bytes(&recovered.job.spec));
            match way {
                GoesOn::Waits => wait_again(&mut self.work, outbox, recovered, owner),
                GoesOn::Runs => {
                    let step = self.stepped.rank_of(recovered.job.row.job);
                    take_up(&mut self.work, outbox, recovered, owner, step);
                }
                GoesOn::Keeps => keep_again(&mut self.work, outbox, recovered.job, owner),
                GoesOn::Nothing => {}
            }
        }
        self.settle(outbox);
        Recovering { drains, leftovers }
    }

    /// Completes a restart, once all jobs are restored: repairs flows, and resumes intermediate files and drains.
    pub fn recovered(&mut self, outbox: &mut Outbox, recovering: Recovering, files: Vec<IntermediateStatus>) {
        self.work.jobs.end_recovery();
        mend_recovered_flows(&mut self.work, outbox);
        recover_files(&mut self.files, &mut self.work.fleet, outbox, files);
        drain_again(&mut self.work, outbox, recovering.drains);
        self.stepped_go_on(outbox);
        self.settle(outbox);
    }

    /// Checks invariants. Panics if one is broken.
    pub fn check_invariants(&self) {
        self.work.scheduling.check();
    }
}

/// Returns the facts of a job that a node needs, without signatures.
fn brief_of(job: JobId, known: &Job) -> JobBrief {
    JobBrief {
        job,
        spec: known.spec().as_ref().clone(),
        staging: known.dirs().staging.clone(),
        replicates: known.replicating().is_on,
        token: SecretText::default(),
        tokens: Vec::new(),
        user: known.owner().name.to_string(),
    }
}

/// A restart that is not complete.
pub struct Recovering {
    drains: Drains,
    leftovers: Vec<Leftover>,
}

impl Recovering {
    /// Takes the jobs that have only directories left.
    pub fn take_leftovers(&mut self) -> Vec<Leftover> {
        std::mem::take(&mut self.leftovers)
    }
}

/// Properties that jobs of one task share.
struct OfBatch {
    /// Owner in the rows of the jobs.
    server: String,
    user_in_row: Option<String>,
    /// Number of the user.
    number: u64,
    priority: i32,
    file_hold: Option<FileHold>,
    window: Window,
    /// Their name, in one allocation for all that wait; None if each has its own.
    name_of_all: Option<Arc<str>>,
}

/// Jobs of one task each whose numbers are assigned.
pub struct NewBatch {
    /// Number of the first job; the others follow.
    pub first: JobId,
    pub batch: JobBatch,
    /// Owner in the rows of the jobs.
    pub server: String,
    pub file_hold: Option<FileHold>,
}
