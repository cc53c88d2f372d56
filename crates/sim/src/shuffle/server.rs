//! The server: the real scheduler over jobs, and the work of `crates/server/src/{cluster,fleet,event_loop}.rs` around it: nodes with
//! their leases, numbered orders, and no answer before its transaction.

use super::job::{COMMIT, Job, Loss, RunAgain};
use super::plan::JobPlan;
use super::rows::{AttemptRow, JobRows, Rows};
use super::world::{Planted, Situation, Sometimes};
use api::machine::ReplicatedPart;
use api::{Blame, InputFile, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, JobId, NodeId, RunId, StageIndex};
use mapreduce::{Gone, Replica};
use scheduler::{Action, Event, Slot, State, UnixNanos, handle, sanity_check};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Silence after which a node is dead. Shorter than the real one, so that more happens in a world.
pub(crate) const LEASE_NS: u64 = 2_000_000_000;
/// Silence after which a node is suspect.
const SUSPECT_AFTER_NS: u64 = 300_000_000;

/// A message to the server.
#[derive(Clone)]
pub(crate) enum Message {
    /// One job, or the two of a flow.
    HandIn {
        plan: JobPlan,
        then: Option<JobPlan>,
    },
    Ask {
        index: u32,
        question: u64,
        job: JobId,
    },
    Join {
        process: u64,
    },
    Poll {
        node: NodeId,
        poll: Poll,
    },
}

#[derive(Clone)]
pub(crate) struct Poll {
    pub process: u64,
    pub number: u64,
    /// Orders up to this one have arrived.
    pub received: u64,
    pub held: BTreeSet<AttemptKey>,
    pub finished: Vec<(AttemptKey, Result<TaskResult, TaskFailure>)>,
    pub free_slots: Vec<u32>,
    /// Replicas that were made since.
    pub replicated: Vec<(JobId, RunId, NodeId, Vec<ChunkId>)>,
    pub parts_replicated: Vec<ReplicatedPart>,
    /// Progress of running attempts: done, and total.
    pub progress: Vec<(AttemptKey, u64, u64)>,
}

/// An answer of the server.
#[derive(Clone)]
pub(crate) enum Reply {
    Submitted {
        index: u32,
        job: JobId,
    },
    /// None: nobody knows that job.
    Outcome {
        index: u32,
        question: u64,
        known: bool,
        succeeded: Option<bool>,
    },
    Welcome {
        process: u64,
        node: NodeId,
    },
    Orders {
        process: u64,
        number: u64,
        orders: Vec<(u64, Order)>,
        peers: Vec<NodeId>,
    },
    UnknownNode {
        process: u64,
    },
}

#[derive(Clone)]
pub(crate) enum Order {
    /// Starts an attempt, with those inputs of the job that are parts of another one.
    Start {
        attempt: AttemptKey,
        slot: u32,
        task: Box<Task>,
        inputs: Arc<[InputFile]>,
    },
    StopAttempt {
        attempt: AttemptKey,
    },
    Replicate {
        job: JobId,
    },
    /// Sends these replicas to one more node, and no others. They stand there for runs of other nodes.
    ReplicateAgain {
        job: JobId,
        runs: Vec<RunId>,
    },
    Forget {
        job: JobId,
    },
}

pub(crate) struct Member {
    process: u64,
    heard_ns: u64,
    orders: VecDeque<(u64, Order)>,
    last_number: u64,
    running: BTreeMap<AttemptKey, (u32, u64)>,
    /// Known to the server before this one, and has not polled yet.
    restored: bool,
}

impl Member {
    fn new(process: u64, heard_ns: u64) -> Self {
        let (orders, running) = (VecDeque::new(), BTreeMap::new());
        Self { process, heard_ns, orders, last_number: 0, running, restored: false }
    }

    fn order(&mut self, order: Order) {
        self.last_number += 1;
        self.orders.push_back((self.last_number, order));
    }

    /// Adapts to a node after a restart of the server: order numbers go on. Returns the attempts that the node never heard of.
    fn met_again(&mut self, received: u64, held: &BTreeSet<AttemptKey>) -> Vec<AttemptKey> {
        if !std::mem::take(&mut self.restored) {
            return Vec::new();
        }
        self.last_number += received;
        self.orders.iter_mut().for_each(|(number, _)| *number += received);
        let unheard = self.running.keys().filter(|attempt| !held.contains(attempt)).copied().collect();
        self.running.retain(|attempt, _| held.contains(attempt));
        unheard
    }
}

/// Numbers that the store gives out, each once.
#[derive(Default)]
pub(crate) struct Numbers {
    pub jobs: i64,
    pub nodes: u32,
}

/// One process of the server. Its knowledge dies with it; its rows stay as far as they were written.
pub(crate) struct Server {
    pub now_ns: u64,
    pub state: State,
    outbox: VecDeque<Action>,
    pub jobs: BTreeMap<JobId, Job>,
    pub members: BTreeMap<NodeId, Member>,
    slots_per_node: u32,
    lost_ns: u64,
    pub rows: Rows,
    /// Replies that leave when the rows are written.
    pub replies: Vec<Reply>,
    in_hand: Option<TaskResult>,
    pub planted: Option<Planted>,
    pub sometimes: Sometimes,
    pub attempts: u64,
    /// Why jobs failed.
    pub failures: Vec<String>,
    /// Violations of invariants.
    pub broken: Vec<String>,
    /// Parts may be gone that somebody has yet to read.
    pub flows_hurt: bool,
    /// Not all jobs of the store are there yet.
    pub is_recovering: bool,
}

impl Server {
    /// A server that goes on from what the store has.
    pub fn start(now_ns: u64, slots_per_node: u32, rows: Rows, planted: Option<Planted>) -> Self {
        let mut server = Self {
            now_ns,
            state: State::default(),
            outbox: VecDeque::new(),
            jobs: BTreeMap::new(),
            members: BTreeMap::new(),
            slots_per_node,
            lost_ns: now_ns,
            rows: rows.clone(),
            replies: Vec::new(),
            in_hand: None,
            planted,
            sometimes: Sometimes::default(),
            attempts: 0,
            failures: Vec::new(),
            broken: Vec::new(),
            flows_hurt: false,
            is_recovering: false,
        };
        for (node, process) in &rows.nodes {
            let mut member = Member::new(*process, now_ns);
            member.restored = true;
            server.members.insert(*node, member);
        }
        server.take_up_all(rows);
        server
    }

    pub fn take_up(&mut self, id: JobId, rows: &JobRows) {
        let members = &self.members;
        let (job, in_hand, event) = Job::rebuilt(id, rows, |node| members.contains_key(&node));
        let running: BTreeSet<AttemptKey> = in_hand.iter().map(|(attempt, _, _)| *attempt).collect();
        for (attempt, slot, assigned_ns) in in_hand {
            if let Some(member) = self.members.get_mut(&slot.node) {
                member.running.insert(attempt, (slot.slot, assigned_ns));
            }
        }
        if let Some(rows) = self.rows.jobs.get_mut(&id) {
            let over = rows.attempts.iter_mut().filter(|(attempt, _)| !running.contains(attempt));
            over.for_each(|(_, row)| row.runs = false);
        }
        let replicates = job.plan.replicates;
        self.jobs.insert(id, job);
        if replicates {
            self.order_all(&Order::Replicate { job: id });
        }
        self.replicate_again(id);
        self.feed(event);
        self.feed(Event::MayCopy { job: id, stages: vec![StageIndex(0), StageIndex(3)] });
    }

    pub fn order_all(&mut self, order: &Order) {
        self.members.values_mut().for_each(|member| member.order(order.clone()));
    }

    pub fn take(&mut self, message: Message, numbers: &mut Numbers) {
        match message {
            Message::HandIn { plan, then } => self.submit(plan, then, numbers),
            Message::Ask { index, question, job } => {
                let rows = self.rows.jobs.get(&job);
                let succeeded = rows.and_then(|rows| rows.succeeded);
                self.replies.push(Reply::Outcome { index, question, known: rows.is_some(), succeeded });
            }
            Message::Join { process } => self.join(process, numbers),
            Message::Poll { node, poll } => self.poll(node, poll),
        }
    }

    fn submit(&mut self, plan: JobPlan, then: Option<JobPlan>, numbers: &mut Numbers) {
        let index = plan.index;
        for plan in std::iter::once(plan).chain(then) {
            numbers.jobs += 1;
            let id = JobId(numbers.jobs);
            self.rows.jobs.insert(id, JobRows::new(plan.clone()));
            self.begin(id, plan);
        }
        // Who hands in a flow asks for its end.
        self.replies.push(Reply::Submitted { index, job: JobId(numbers.jobs) });
    }

    /// A job that has nothing yet.
    pub fn begin(&mut self, id: JobId, plan: JobPlan) {
        let replicates = plan.replicates;
        let job = Job::new(id, plan);
        let stages = job.names.clone();
        self.jobs.insert(id, job);
        if replicates {
            self.order_all(&Order::Replicate { job: id });
        }
        let claim = scheduler::Claim::default();
        self.feed(Event::JobSubmitted { job: id, claim, stages, failures_max: scheduler::FAILURES_MAX });
        self.feed(Event::MayCopy { job: id, stages: vec![StageIndex(0), StageIndex(3)] });
    }

    fn join(&mut self, process: u64, numbers: &mut Numbers) {
        if let Some((node, _)) = self.members.iter().find(|(_, member)| member.process == process) {
            // It asks again, because it had no answer. The real server takes it for one that died and came again.
            let node = *node;
            self.lose_node(node);
        }
        numbers.nodes += 1;
        let node = NodeId(numbers.nodes);
        self.rows.nodes.insert(node, process);
        let mut member = Member::new(process, self.now_ns);
        for job in self.jobs.values().filter(|job| job.plan.replicates && job.succeeded.is_none()) {
            member.order(Order::Replicate { job: job.id });
        }
        self.members.insert(node, member);
        self.replies.push(Reply::Welcome { process, node });
    }

    fn poll(&mut self, node: NodeId, poll: Poll) {
        let (process, number) = (poll.process, poll.number);
        let Some(member) = self.members.get_mut(&node).filter(|member| member.process == process) else {
            return self.replies.push(Reply::UnknownNode { process });
        };
        member.heard_ns = self.now_ns;
        let unheard = member.met_again(poll.received, &poll.held);
        while member.orders.front().is_some_and(|(number, _)| *number <= poll.received) {
            member.orders.pop_front();
        }
        for attempt in unheard {
            self.attempt_over(attempt, false);
            self.feed(Event::AttemptLost { attempt });
        }
        for (job, run, to, chunks) in poll.replicated {
            self.replicated(node, job, run, to, chunks);
        }
        for part in poll.parts_replicated {
            self.part_replicated(node, part);
        }
        for (attempt, done, total) in poll.progress {
            let runs = self.members.get(&node).is_some_and(|member| member.running.contains_key(&attempt));
            if runs {
                self.feed(Event::Progress { attempt, done, total, waits: None });
            }
        }
        for (attempt, outcome) in poll.finished {
            let known = self.members.get_mut(&node).and_then(|member| member.running.remove(&attempt));
            match known {
                Some((_, assigned_ns)) => self.finished(attempt, outcome, assigned_ns),
                None => {
                    if let Ok(result) = &outcome {
                        self.sometimes.saw(Situation::LateResultDiscarded);
                        self.count_twice(attempt, result);
                    }
                }
            }
        }
        for slot in poll.free_slots {
            let busy = |member: &Member| member.running.values().any(|(busy, _)| *busy == slot);
            if self.members.get(&node).is_some_and(|member| !busy(member)) {
                self.feed(Event::SlotFree { slot: Slot { node, slot } });
            }
        }
        self.replies.push(Reply::Orders { process, number, orders: Vec::new(), peers: Vec::new() });
    }

    /// The orders for a node as they stand when its answer leaves.
    pub fn fill(&self, reply: &mut Reply) {
        let Reply::Orders { process, orders, peers, .. } = reply else { return };
        *peers = self.members.keys().copied().collect();
        let member = self.members.values().find(|member| member.process == *process);
        *orders = member.into_iter().flat_map(|member| member.orders.iter().cloned()).collect();
    }

    fn replicated(&mut self, from: NodeId, id: JobId, run: RunId, to: NodeId, chunks: Vec<ChunkId>) {
        let lives = self.members.contains_key(&to);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.succeeded.is_some() || to == from || !lives {
            return;
        }
        let copy = Replica { node: to, chunks, single_ns: 0, stands: false, second: None };
        if job.results.add_copy(from, run, copy)
            && let Some(rows) = self.rows.jobs.get_mut(&id)
        {
            if job.results.replicas.get(run).is_some_and(|replica| replica.second.is_some()) {
                self.sometimes.saw(Situation::OnTwoAgain);
            }
            job.note_replica(run, rows);
        }
    }

    /// Runs that lost a home get another, where the job asks for that.
    fn replicate_again(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.plan.replicates || job.succeeded.is_some() {
            return;
        }
        for (node, runs) in job.results.copy_again(job.is_sealed()) {
            if let Some(member) = self.members.get_mut(&node) {
                member.order(Order::ReplicateAgain { job: id, runs });
            }
        }
    }

    /// An attempt has ended, by what its node says.
    fn finished(&mut self, attempt: AttemptKey, outcome: Result<TaskResult, TaskFailure>, assigned_ns: u64) {
        let id = attempt.task.job;
        let Some(job) = self.jobs.get(&id) else { return };
        if job.task(attempt).is_none() {
            return;
        }
        let replicas = &job.results.replicas;
        let is_away = |chunk: ChunkId| !self.members.contains_key(&replicas.chunk_home(chunk));
        let outcome = match outcome {
            // A chunkserver that died in between took what was appended with it.
            Ok(TaskResult::Map(map)) if map.commits.iter().any(|commit| is_away(commit.chunk)) => {
                Err(TaskFailure::new(Blame::Environment, "a node that held some of the output is gone"))
            }
            other => other,
        };
        if let Some(gone) = Job::evidence(&outcome)
            && self.data_gone(id, &gone)
        {
            self.attempt_over(attempt, false);
            // First its task is let go again, where it was not; then nothing more is expected of it.
            self.feed(Event::AttemptLost { attempt });
            return self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
        }
        if let Ok(result) = &outcome {
            self.check_same_part(attempt, result);
        }
        if let Some(lost) = outcome.as_ref().err().and_then(|failure| failure.lost_input.clone()) {
            return self.input_lost(attempt, &lost);
        }
        self.ended(attempt, outcome, assigned_ns);
    }

    fn ended(&mut self, attempt: AttemptKey, outcome: Result<TaskResult, TaskFailure>, assigned_ns: u64) {
        let id = attempt.task.job;
        let may_excuse = assigned_ns <= self.lost_ns || self.any_suspect();
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return };
        match outcome {
            Ok(result) => {
                match job.refuse_stand_in(attempt, &result, rows, self.planted, &mut self.sometimes) {
                    None => {
                        self.in_hand = Some(result);
                        self.feed(Event::AttemptSucceeded { attempt });
                        self.in_hand = None;
                    }
                    Some(again) => {
                        self.attempt_over(attempt, false);
                        self.feed(Event::AttemptLost { attempt });
                        self.run_again(id, again);
                    }
                }
            }
            Err(failure) => {
                job.last_failure = failure.message.clone();
                let alone = failure.blame == Blame::Cancelled && job.succeeded.is_none();
                let excused = alone || failure.blame == Blame::Environment;
                if excused && (job.may_lack_data(attempt) || may_excuse) {
                    self.attempt_over(attempt, false);
                    return self.feed(Event::AttemptLost { attempt });
                }
                self.attempt_over(attempt, true);
                let of_node = failure.blame == Blame::Environment;
                let retryable = failure.retryable() || alone;
                self.feed(Event::AttemptFailed { attempt, retryable, of_node });
            }
        }
    }

    fn any_suspect(&self) -> bool {
        let silent = |member: &Member| self.now_ns > member.heard_ns + SUSPECT_AFTER_NS;
        self.members.values().any(|member| member.restored || silent(member))
    }

    pub fn attempt_over(&mut self, attempt: AttemptKey, failed: bool) {
        if let Some(rows) = self.rows.jobs.get_mut(&attempt.task.job) {
            rows.attempt_ended(attempt, failed);
        }
    }

    /// Data of a job is gone; whether the job needed it.
    fn data_gone(&mut self, id: JobId, gone: &Gone) -> bool {
        let (members, sometimes) = (&self.members, &mut self.sometimes);
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return false };
        let loss = job.lose(gone, |node| !members.contains_key(&node), rows, sometimes);
        let is_needed = loss.is_some();
        if let Some(Loss::Again(again)) = loss {
            self.run_again(id, again);
        }
        self.replicate_again(id);
        is_needed
    }

    pub fn run_again(&mut self, id: JobId, again: RunAgain) {
        let mut stale: Vec<AttemptKey> = Vec::new();
        for member in self.members.values_mut() {
            let own = member.running.keys().filter(|attempt| attempt.task.job == id && again.ends(**attempt));
            let own: Vec<AttemptKey> = own.copied().collect();
            for attempt in &own {
                member.running.remove(attempt);
                member.order(Order::StopAttempt { attempt: *attempt });
            }
            stale.extend(own);
        }
        let RunAgain { stage, tasks, stands } = again;
        self.feed(Event::ResultsLost { job: id, stage, tasks, stands });
        stale.into_iter().for_each(|attempt| self.attempt_over(attempt, false));
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        let silent = self.members.iter().filter(|(_, member)| self.now_ns > member.heard_ns + LEASE_NS);
        let silent: Vec<NodeId> = silent.map(|(node, _)| *node).collect();
        silent.into_iter().for_each(|node| self.lose_node(node));
        self.feed(Event::Tick);
    }

    fn lose_node(&mut self, node: NodeId) {
        let Some(gone) = self.members.remove(&node) else { return };
        match self.planted {
            // A task that need not wait any more for a node near its data is given to the last of them.
            Some(Planted::NodeGoneBeforeItsSlots) => {
                for slot in 0..self.slots_per_node {
                    self.feed(Event::SlotGone { slot: Slot { node, slot } });
                }
            }
            _ => self.feed(Event::SlotsGone { node }),
        }
        self.lost_ns = self.now_ns;
        self.rows.nodes.remove(&node);
        for attempt in gone.running.keys() {
            self.attempt_over(*attempt, false);
        }
        // Then the data, so that no task of a stage that goes starts once more; then the attempts.
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            self.data_gone(id, &Gone::node(node));
        }
        self.feed(Event::NodeLost { node });
        self.parts_gone(node);
        self.mend_flows();
    }

    pub fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            handle(&mut self.state, &mut self.outbox, UnixNanos(self.now_ns), event);
            sanity_check(&self.state);
            while let Some(action) = self.outbox.pop_front() {
                events.extend(self.execute(action));
            }
        }
        if std::mem::take(&mut self.flows_hurt) {
            self.mend_flows();
        }
    }

    fn execute(&mut self, action: Action) -> Vec<Event> {
        match action {
            Action::ExpandStage { job, stage } => return self.expand(job, stage),
            Action::StartAttempt { attempt, slot } => self.start_attempt(attempt, slot),
            Action::TaskDone { attempt } => self.task_done(attempt),
            Action::AttemptDiscarded { attempt } => self.discarded(attempt),
            Action::StopAttempt { attempt, slot } => {
                if let Some(member) = self.members.get_mut(&slot.node) {
                    member.order(Order::StopAttempt { attempt });
                }
            }
            Action::JobSucceeded { job } => {
                self.over(job, true);
                return self.flow_goes_on(job);
            }
            Action::JobFailed { job: id, because } => {
                if let Some(job) = self.jobs.get(&id) {
                    self.failures.push(format!("job {id}, by {because:?}: {}", job.last_failure));
                }
                self.over(id, false);
                return self.flow_goes_on(id);
            }
            Action::JobCancelled { job } if self.jobs.get(&job).is_some_and(|job| job.plan.is_stage()) => {
                self.over(job, false);
                return self.flow_goes_on(job);
            }
            Action::JobCancelled { job } => self.broken.push(format!("nobody cancelled job {job}")),
            Action::JobDrained { job } => {
                self.order_all(&Order::Forget { job });
                self.jobs.remove(&job);
            }
            Action::Placed { .. } | Action::Speculated { .. } => {}
            Action::SlowTask { .. } | Action::TaskRetried { .. } => {}
            Action::SplitTask { attempt, .. } => {
                self.broken.push(format!("nobody allowed that {attempt} is split"))
            }
        }
        Vec::new()
    }

    pub fn expand(&mut self, id: JobId, stage: StageIndex) -> Vec<Event> {
        if self.waits_for_inputs(id) {
            self.jobs.get_mut(&id).into_iter().for_each(|job| job.in_flow.is_asked = true);
            return Vec::new();
        }
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else {
            return Vec::new();
        };
        let is_to_rest = job.plan.feeds && stage == COMMIT;
        let expanded = match is_to_rest {
            true => job.prove_parts().map(|()| None),
            false => job.expand_stage(stage, rows).map(Some),
        };
        match expanded {
            Ok(None) => self.rests(id),
            Ok(Some(mut tasks)) => {
                if stage == StageIndex(0) {
                    self.near_stage_files(id, &mut tasks);
                }
                vec![Event::StageExpanded { job: id, stage, tasks }]
            }
            Err(error) => {
                // The real server would mend it. Here no byte is ever altered, so there must be nothing to mend.
                self.broken.push(format!("job {id}: {error}"));
                vec![Event::StageRefused { job: id, stage }]
            }
        }
    }

    fn start_attempt(&mut self, attempt: AttemptKey, slot: Slot) {
        self.attempts += 1;
        let Some(job) = self.jobs.get(&attempt.task.job) else { return };
        let task = job.task(attempt).expect("the scheduler starts tasks of expanded stages").clone();
        let (task, inputs) = (job.results.placed_now(task), Arc::from(job.spec.inputs.clone()));
        let task = Box::new(self.with_stage_files(attempt.task.job, task));
        let Some(rows) = self.rows.jobs.get_mut(&attempt.task.job) else { return };
        let row = AttemptRow { slot, assigned_ns: self.now_ns, runs: true, failed: false };
        rows.attempts.insert(attempt, row);
        let Some(member) = self.members.get_mut(&slot.node) else {
            return self.broken.push(format!("{attempt} is given to {}, which is gone", slot.node));
        };
        member.running.insert(attempt, (slot.slot, self.now_ns));
        member.order(Order::Start { attempt, slot: slot.slot, task, inputs });
    }

    fn task_done(&mut self, attempt: AttemptKey) {
        self.attempt_over(attempt, false);
        let id = attempt.task.job;
        let Some(result) = self.in_hand.take() else {
            return self.broken.push(format!("{attempt} wins while nobody hands it in"));
        };
        if let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) {
            job.task_done(attempt, result, rows, &mut self.sometimes);
        }
        self.part_is_there(attempt);
        self.replicate_again(id);
    }

    fn discarded(&mut self, attempt: AttemptKey) {
        self.attempt_over(attempt, false);
        let Some(result) = self.in_hand.take() else { return };
        self.sometimes.saw(Situation::AttemptLostTheRace);
        self.count_twice(attempt, &result);
    }

    /// Adds the commits of an attempt to those of the winner if [`Planted::DoubleCommit`] is planted.
    fn count_twice(&mut self, attempt: AttemptKey, result: &TaskResult) {
        let job = self.jobs.get_mut(&attempt.task.job);
        if let (Some(Planted::DoubleCommit), Some(job), TaskResult::Map(map)) = (self.planted, job, result)
            && let Some((_, winner)) = job.results.maps.get_mut(&attempt.task.task)
        {
            winner.commits.extend(&map.commits);
        }
    }

    fn over(&mut self, id: JobId, succeeded: bool) {
        if let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) {
            job.succeeded = Some(succeeded);
            if rows.succeeded.replace(succeeded).is_some() {
                self.broken.push(format!("job {id} ends twice"));
            }
        }
    }
}
