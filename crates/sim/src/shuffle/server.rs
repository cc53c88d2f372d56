//! A process of the server: the shell of the real `control`. Its store writes instantly or not at all, and its answers
//! leave when the simulation decides.

use super::plan::{COMMIT, JobPlan, MAP, MERGE, REDUCE};
use super::store::Rows;
use super::world::{Planted, Situation, Sometimes};
use api::TaskResult;
use api::control::{
    AttemptOutcome, NodeInfo, NodeOrders, NodePoll, NodeWelcome, NumberedOrder, PROTOCOL_VERSION,
};
use api::data_access::{DataKeys, SecretText};
use api::history::{AttemptState, EventKind, JobState};
use control::membership::Joining;
use control::{
    Asker, Control, ControlError, JobDirs, JobStart, Moment, NewJob, Now, Outbox, RecoveredWork, Service,
};
use ids::{JobId, NodeId};
use rows::{Change, Keep, NodeState, ReplicaState, WinningCommits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Memory of a node for jobs.
const NODE_MEMORY_BYTES: u64 = 1 << 40;
/// Reason of the end of a stage that was stopped with its flow.
const WITH_ITS_FLOW: &str = "stopped with its flow";

/// A message to the server.
#[derive(Clone)]
pub(crate) enum Message {
    /// A job, or the two jobs of a flow.
    HandIn {
        plan: Box<JobPlan>,
        then: Option<Box<JobPlan>>,
    },
    Ask {
        index: u32,
        question: u64,
        job: JobId,
    },
    Join {
        process: u64,
        address: u32,
        slots: u32,
    },
    Poll {
        node: NodeId,
        process: u64,
        number: u64,
        poll: Box<NodePoll>,
    },
}

/// An answer of the server.
#[derive(Clone)]
pub(crate) enum Reply {
    Submitted {
        index: u32,
        job: JobId,
    },
    /// None if the job is unknown.
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
        orders: Vec<NumberedOrder>,
        peers: Vec<NodeId>,
    },
    UnknownNode {
        process: u64,
    },
}

/// The server's view of its connections.
#[derive(Default)]
pub(crate) struct Connections {
    /// Number of the poll for which each process waits.
    waits_for: BTreeMap<u64, u64>,
    /// Processes whose packets are all lost, including the end of the connection.
    silent: BTreeSet<u64>,
}

impl Connections {
    pub fn polls(&mut self, process: u64, number: u64) {
        self.waits_for.insert(process, number);
    }

    /// Records the end of a process, which closes its connection.
    pub fn ends(&mut self, process: u64) {
        self.waits_for.remove(&process);
    }

    /// Records the end of a process together with its machine: no connection is closed.
    pub fn ends_with_machine(&mut self, process: u64) {
        self.silent.insert(process);
    }

    pub fn cut_off(&mut self, process: u64) {
        self.silent.insert(process);
    }

    pub fn heals(&mut self, process: u64) {
        self.silent.remove(&process);
    }

    fn is_gone(&self, process: u64, number: u64) -> bool {
        !self.silent.contains(&process) && self.waits_for.get(&process) != Some(&number)
    }
}

type Shared<T> = Arc<Mutex<T>>;

pub(crate) fn locked<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process of a node that waits for an answer.
struct Caller {
    process: u64,
    poll: u64,
    connections: Shared<Connections>,
    sent: Shared<Vec<Reply>>,
}

impl Asker<NodeOrders> for Caller {
    fn is_gone(&self) -> bool {
        locked(&self.connections).is_gone(self.process, self.poll)
    }

    fn answer(self: Box<Self>, answer: Result<NodeOrders, ControlError>) {
        let process = self.process;
        let reply = match answer {
            Ok(NodeOrders { orders, peers }) => {
                let peers = peers.into_iter().map(|peer| peer.node).collect();
                Reply::Orders { process, number: self.poll, orders, peers }
            }
            Err(_) => Reply::UnknownNode { process },
        };
        locked(&self.sent).push(reply);
    }
}

impl Asker<NodeWelcome> for Caller {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<NodeWelcome, ControlError>) {
        // A refused process asks again.
        if let Ok(NodeWelcome { node, .. }) = answer {
            locked(&self.sent).push(Reply::Welcome { process: self.process, node });
        }
    }
}

/// Numbers that the store assigns, each once.
#[derive(Default)]
pub(crate) struct Numbers {
    pub jobs: i64,
    pub nodes: u32,
}

/// A server. Its memory is lost with it; its rows stay as far as they were written.
pub(crate) struct Server {
    control: Control,
    outbox: Outbox,
    pub rows: Rows,
    connections: Shared<Connections>,
    /// Answers that have left.
    sent: Shared<Vec<Reply>>,
    /// Answers of the store, which leave with those of control.
    told: Vec<Reply>,
    planted: Option<Planted>,
    pub sometimes: Sometimes,
    pub attempts: u64,
    /// Reasons of failed jobs.
    pub failures: Vec<String>,
    /// Violations of invariants.
    pub broken: Vec<String>,
}

impl Server {
    /// Starts a server that continues from the rows of the store.
    pub fn start(
        now_ns: u64,
        rows: Rows,
        planted: Option<Planted>,
        connections: Shared<Connections>,
    ) -> Self {
        let mut server = Self {
            control: Control::new(Service::Cluster, time(now_ns)),
            outbox: Outbox::default(),
            rows,
            connections,
            sent: Shared::default(),
            told: Vec::new(),
            planted,
            sometimes: Sometimes::default(),
            attempts: 0,
            failures: Vec::new(),
            broken: Vec::new(),
        };
        server.set_now(now_ns);
        server.recover();
        server
    }

    pub fn set_now(&mut self, now_ns: u64) {
        self.outbox.set_now(time(now_ns));
    }

    fn recover(&mut self) {
        let mut recovered = self.rows.recovered();
        if self.planted == Some(Planted::RestsForNobody) {
            for job in recovered.jobs.values_mut().filter(|job| job.spec.feeds()) {
                // The planted error: the job waits for its readers, but the store has it as finished.
                let is_proved = job.stages.last().is_some_and(|commit| commit.task_count.is_none());
                let is_reduced = job.stages.iter().rev().nth(1).is_some_and(|last| last.task_count.is_some());
                if is_proved && is_reduced {
                    job.row.state = JobState::Succeeded;
                }
            }
        }
        let work = |job| RecoveredWork { job, commits: WinningCommits::new(), file_hold: None };
        let jobs = recovered.jobs.into_values().map(work).collect();
        let keys = DataKeys::default();
        let mut recovering = self.control.recover(&mut self.outbox, recovered.nodes, jobs, &keys);
        for leftover in recovering.take_leftovers() {
            self.outbox.write(Change::JobCleaned { job: leftover.job, kept: Keep::Nothing, now_ns: 0 });
        }
        self.control.recovered(&mut self.outbox, recovering, Vec::new());
    }

    pub fn take(&mut self, message: Message, numbers: &mut Numbers) {
        match message {
            Message::HandIn { plan, then } => self.submit(*plan, then.map(|then| *then), numbers),
            Message::Ask { index, question, job } => {
                let rows = self.rows.jobs.get(&job);
                let over = rows.filter(|rows| rows.state.over());
                let succeeded = over.map(|rows| rows.state == JobState::Succeeded);
                self.told.push(Reply::Outcome { index, question, known: rows.is_some(), succeeded });
            }
            Message::Join { process, address, slots } => self.join(process, address, slots, numbers),
            Message::Poll { node, process, number, poll } => self.poll(node, process, number, *poll),
        }
        self.control.check_invariants();
    }

    fn submit(&mut self, plan: JobPlan, then: Option<JobPlan>, numbers: &mut Numbers) {
        let index = plan.index;
        let mut jobs = Vec::new();
        for plan in std::iter::once(plan).chain(then) {
            numbers.jobs += 1;
            let job = JobId(numbers.jobs);
            let spec = Arc::new(plan.spec(job));
            self.outbox.write(Change::JobSubmitted {
                job,
                owner: rows::CLUSTER_OWNER.to_string(),
                spec: Arc::clone(&spec),
                stages: mapreduce::stages(&spec),
                staging: spec.output.clone(),
                disk_dirs: Vec::new(),
                user: None,
                priority: 0,
                waits: false,
                step_of: None,
                now_ns: 0,
            });
            let (dirs, start) = (JobDirs::default(), JobStart::Splits(plan.splits()));
            let (user, part_nodes) = (String::new(), Arc::default());
            jobs.push(NewJob { job, spec, dirs, start, user, priority: 0, file_hold: None, part_nodes });
        }
        self.control.begin_jobs(&mut self.outbox, jobs);
        // A client that submits a flow waits for the end of its last job.
        self.told.push(Reply::Submitted { index, job: JobId(numbers.jobs) });
    }

    fn caller(&self, process: u64, poll: u64) -> Box<Caller> {
        let (connections, sent) = (Arc::clone(&self.connections), Arc::clone(&self.sent));
        Box::new(Caller { process, poll, connections, sent })
    }

    fn join(&mut self, process: u64, address: u32, slots: u32, numbers: &mut Numbers) {
        numbers.nodes += 1;
        let joining = Joining {
            info: NodeInfo {
                protocol: PROTOCOL_VERSION,
                version: String::new(),
                // Some processes join under the name of their predecessor, which ends the wait for that one.
                name: if process.is_multiple_of(2) {
                    format!("address-{address}")
                } else {
                    format!("process-{process}")
                },
                rack: "rack".to_string(),
                slots,
                memory_bytes: NODE_MEMORY_BYTES,
                architecture: String::new(),
                resources: Default::default(),
                data_url: "http://node".to_string(),
                sees: Vec::new(),
                left: Vec::new(),
                predecessors: Vec::new(),
            },
            predecessors: Vec::new(),
            secret_hash: [0; 32],
            join_token: None,
            incarnation: process.to_string(),
            disk_proof: SecretText::default(),
            data_keys: DataKeys::default(),
        };
        let reply = self.caller(process, 0);
        self.control.join(&mut self.outbox, NodeId(numbers.nodes), joining, reply);
    }

    fn poll(&mut self, node: NodeId, process: u64, number: u64, mut poll: NodePoll) {
        for end in &mut poll.finished {
            let AttemptOutcome::Succeeded(result) = &mut end.outcome else { continue };
            let rows = self.rows.jobs.get(&end.attempt.task.job);
            let known = rows.and_then(|rows| rows.attempts.get(&end.attempt));
            if known.is_some_and(|row| row.state != AttemptState::Running) {
                self.sometimes.saw(Situation::LateResultDiscarded);
            }
            let counts_twice = self.planted == Some(Planted::DoubleCommit) && end.attempt.attempt.0 > 0;
            if let (true, TaskResult::Map(map)) = (counts_twice, result) {
                map.commits.iter_mut().for_each(|commit| commit.sum.add(&commit.sum.clone()));
            }
        }
        let reply = self.caller(process, number);
        self.control.poll(&mut self.outbox, node, poll, reply);
    }

    /// Handles the passing of time.
    pub fn tick(&mut self) {
        self.control.tick(&mut self.outbox);
        self.control.check_invariants();
    }

    /// Applies the changes since the last transaction to the rows. Returns specifications with newly known inputs.
    pub fn commit(&mut self) -> Vec<(JobId, Arc<api::JobSpec>)> {
        let mut whole = Vec::new();
        for change in self.outbox.take_changes() {
            self.look_at(&change);
            if let Change::JobInputs { job, spec } = &change {
                whole.push((*job, Arc::clone(spec)));
            }
            self.rows.apply(&change);
        }
        whole
    }

    /// Completes a transaction. Returns the answers that leave now.
    pub fn written(&mut self) -> Vec<Reply> {
        self.control.answer_polls(&mut self.outbox);
        self.outbox.send_answers();
        for job in self.outbox.take_to_clean() {
            self.control.cleaned(&mut self.outbox, job, None);
        }
        drop((self.outbox.take_log(), self.outbox.take_stopped(), self.outbox.take_touched()));
        drop(self.outbox.take_forgotten());
        let mut replies = std::mem::take(&mut *locked(&self.sent));
        replies.append(&mut self.told);
        replies
    }

    /// Returns whether an answer waits for the transaction.
    pub fn owes_answers(&self) -> bool {
        !self.told.is_empty()
    }

    /// Counts the situations that a change shows, and the violations. The change is not in the rows yet.
    fn look_at(&mut self, change: &Change) {
        match change {
            Change::AttemptStarted { .. } => self.attempts += 1,
            Change::AttemptEnded { state: AttemptState::Discarded, .. } => {
                self.sometimes.saw(Situation::AttemptLostTheRace);
            }
            Change::Result { result, .. } => {
                if let TaskResult::Map(map) = result.as_ref()
                    && !map.withheld.is_empty()
                {
                    self.sometimes.saw(Situation::StoodInForLost);
                }
            }
            Change::Runs { replaced, .. } if !replaced.is_empty() => {
                self.sometimes.saw(Situation::RunsMerged);
            }
            Change::Note { job: Some(job), kind, detail, .. } => self.look_at_note(*job, *kind, detail),
            Change::StageReopened { job, stage: MAP, tasks, retained, .. } => {
                self.look_at_loss(*job, tasks.len(), retained.is_some());
            }
            Change::Replicas { job, replicas } => {
                for row in replicas {
                    self.look_at_replica(*job, row);
                }
            }
            Change::NodeStateChanged { state: NodeState::Dead, .. } => {
                let reads = self.rows.jobs.values().any(|job| job.has_inputs && !job.state.over());
                if reads {
                    self.sometimes.saw(Situation::NodeLostUnderReader);
                }
            }
            Change::JobEnded { job, state, error, .. } => self.look_at_end(*job, *state, error.as_deref()),
            _ => {}
        }
    }

    fn look_at_note(&mut self, job: JobId, kind: EventKind, detail: &str) {
        match kind {
            EventKind::StandInRefused if detail.contains("other data") => {
                self.sometimes.saw(Situation::StandInDiffers);
                let may_differ = self.rows.jobs.get(&job).is_none_or(|rows| rows.gives_other_data());
                if !may_differ && self.planted.is_none() {
                    self.broken
                        .push(format!("job {job} gives the same each time, and is said to differ: {detail}"));
                }
            }
            EventKind::StandInRefused => self.sometimes.saw(Situation::StandInStale),
            EventKind::DataLost if detail.contains("the proof found wrong") => {
                self.broken.push(format!("job {job}: {detail}"));
            }
            EventKind::DataLost if detail.contains("parts that later stages") => {
                self.sometimes.saw(Situation::PartMadeAgain);
            }
            // No byte is ever altered here, so there must be nothing to repair.
            EventKind::ReadAgain => self.broken.push(format!("job {job}: {detail}")),
            _ => {}
        }
    }

    fn look_at_loss(&mut self, job: JobId, tasks: usize, reduces_stand: bool) {
        let Some(rows) = self.rows.jobs.get(&job) else { return };
        if tasks > 0 {
            let is_sealed = rows.expanded > usize::from(MERGE.0);
            self.sometimes.saw(if is_sealed { Situation::LostAfterSeal } else { Situation::LostBeforeSeal });
        }
        if reduces_stand && rows.any_done(REDUCE) {
            self.sometimes.saw(Situation::ReduceStoodThroughLoss);
        }
    }

    fn look_at_replica(&mut self, job: JobId, row: &rows::ReplicaRow) {
        let Some(rows) = self.rows.jobs.get(&job) else { return };
        let stands_elsewhere = |known: &rows::ReplicaRow| {
            known.run == row.run && known.node != row.node && known.state == ReplicaState::Promoted
        };
        match row.state {
            ReplicaState::Promoted => self.sometimes.saw(Situation::ReplicaStands),
            ReplicaState::Complete if rows.replicas.values().any(stands_elsewhere) => {
                self.sometimes.saw(Situation::OnTwoAgain);
            }
            ReplicaState::Complete | ReplicaState::Lost => {}
        }
    }

    fn look_at_end(&mut self, job: JobId, state: JobState, error: Option<&str>) {
        let error = error.unwrap_or_default();
        if self.rows.jobs.get(&job).is_some_and(|rows| rows.state.over()) {
            self.broken.push(format!("job {job} ends twice"));
        }
        match state {
            JobState::Failed => self.failures.push(format!("job {job}: {error}")),
            JobState::Cancelled if error.starts_with(WITH_ITS_FLOW) => {}
            JobState::Cancelled => self.broken.push(format!("nobody cancelled job {job}: {error}")),
            _ => {}
        }
    }
}

fn time(now_ns: u64) -> Now {
    Now { unix_ns: now_ns, moment: Moment(Duration::from_nanos(now_ns)) }
}

const _: () = assert!(COMMIT.0 == REDUCE.0 + 1);
