//! The clock: the order of events, and the checks at the end.

mod failing;
mod working;

use super::data_plane::DataPlane;
use super::disk::Disk;
use super::lane::Port;
use super::plan::{JobPlan, RecordName};
use super::process::Process;
use super::server::{Connections, Message, Numbers, Reply, Server, locked};
use super::store::Rows;
use super::world::{FaultRates, Planted, ShuffleOutcome, ShuffleWorld, Situation, Violation};
use crate::future::{Future, until_death_ns};
use api::InputFile;
use arena::Arena;
use fastrand::Rng;
use iappender::WorkerSlabs;
use ids::{AttemptKey, JobId, NodeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MILLISECOND_NS: u64 = 1_000_000;
const TICK_NS: u64 = 200 * MILLISECOND_NS;
/// Timeout of a poll, after which another one is sent.
const POLL_WITHIN_NS: u64 = 400 * MILLISECOND_NS;
const POLL_AGAIN_NS: u64 = 60 * MILLISECOND_NS;
const ASK_AGAIN_NS: u64 = 400 * MILLISECOND_NS;
/// Number of further requests after a client has learned the end of its job: the answer must not change.
const ASKS_AFTER_END: u32 = 4;
/// Maximum number of map attempts in a world.
const APPENDERS_MAX: usize = 4096;
/// Memory for frames; unwritten pages cost nothing.
const ARENA_BYTES: u64 = 1 << 30;
const SLAB_BYTES: u64 = 4 << 10;
/// Number of the server's machine; a node's machine has the number of its process.
const SERVER_MACHINE: u64 = u64::MAX;
/// Longest time of a transaction.
const WRITE_NS_MAX: u64 = 80 * MILLISECOND_NS;
const STORE: &str = "store";

enum Happening {
    HandsIn(usize),
    Asks(usize),
    Arrives { server: u64, message: Message },
    Answers(Reply),
    ServerWritten { server: u64 },
    ServerTick { server: u64 },
    ServerDies,
    ServerStarts,
    Polls { process: u64 },
    Works { process: u64, attempt: AttemptKey },
    Sorts { process: u64 },
    Replicates { process: u64 },
    NodeDies,
    NodeStarts { address: u32 },
    CutOff,
    Heals(NodeId),
    DiskLoses,
    FaultsEnd,
}

/// A client that submits a job or a flow.
struct Client {
    plan: JobPlan,
    /// Second stage of a flow; None for a single job.
    then: Option<JobPlan>,
    job: Option<JobId>,
    /// Number of the last question; answers to earlier ones are late.
    question: u64,
    told: Option<bool>,
    asks_left: u32,
}

pub(crate) struct Simulation<'a> {
    world: ShuffleWorld,
    random: Rng,
    now_ns: u64,
    future: Future<Happening>,
    faults: FaultRates,
    plane: &'a Mutex<DataPlane>,
    ports: std::slice::Iter<'a, Port<'a>>,
    slabs: std::slice::IterMut<'a, WorkerSlabs>,
    senders: u64,
    /// None while the server is down.
    server: Option<Server>,
    server_number: u64,
    inbox: Vec<Message>,
    /// True during a transaction: replies leave at its end.
    writing: bool,
    /// True if the server must handle a tick as soon as it is free.
    is_tick_due: bool,
    connections: Arc<Mutex<Connections>>,
    /// Inputs of jobs that read parts of another job.
    inputs: BTreeMap<JobId, Arc<[InputFile]>>,
    numbers: Numbers,
    store: Disk<Rows>,
    parts: Disk<Vec<RecordName>>,
    outputs: Disk<Vec<RecordName>>,
    processes: BTreeMap<u64, Process<'a>>,
    next_process: u64,
    clients: Vec<Client>,
    plans: BTreeMap<JobId, JobPlan>,
    broken: Option<Violation>,
    outcome: ShuffleOutcome,
}

/// Runs a world to its end. The error is the first violation.
pub fn shuffle(world: ShuffleWorld) -> Result<ShuffleOutcome, Violation> {
    let arena = Arena::new(ARENA_BYTES, SLAB_BYTES).expect("memory for frames");
    let plane = Mutex::new(DataPlane::new(world.seed, world.faults, world.planted));
    let ports: Vec<Port<'_>> = (0..APPENDERS_MAX).map(|_| Port::new(&plane, &arena)).collect();
    let mut slabs: Vec<WorkerSlabs> = (0..APPENDERS_MAX).map(|_| WorkerSlabs::default()).collect();
    let mut random = Rng::with_seed(world.seed);
    let client =
        |(plan, then)| Client { plan, then, job: None, question: 0, told: None, asks_left: ASKS_AFTER_END };
    let jobs = JobPlan::all(&world, &mut random).into_iter().map(|plan| (plan, None));
    let mut handed_in: Vec<(JobPlan, Option<JobPlan>)> = jobs.collect();
    handed_in.extend(JobPlan::flows(&world, &mut random).into_iter().map(|(plan, then)| (plan, Some(then))));
    let clients = handed_in.into_iter().map(client).collect();
    let mut simulation = Simulation {
        world,
        random,
        now_ns: 1,
        future: Future::default(),
        faults: world.faults,
        plane: &plane,
        ports: ports.iter(),
        slabs: slabs.iter_mut(),
        senders: 0,
        server: None,
        server_number: 0,
        inbox: Vec::new(),
        writing: false,
        is_tick_due: false,
        connections: Arc::default(),
        inputs: BTreeMap::new(),
        numbers: Numbers::default(),
        store: Disk::default(),
        parts: Disk::default(),
        outputs: Disk::default(),
        processes: BTreeMap::new(),
        next_process: 0,
        clients,
        plans: BTreeMap::new(),
        broken: None,
        outcome: ShuffleOutcome::default(),
    };
    simulation.run();
    simulation.judge()
}

impl<'a> Simulation<'a> {
    fn plane(&self) -> MutexGuard<'a, DataPlane> {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&mut self, wait_ns: u64, happening: Happening) {
        self.future.foresee(self.now_ns + wait_ns, happening);
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(Violation { at_ns: self.now_ns, what });
    }

    fn saw(&mut self, situation: Situation) {
        self.outcome.sometimes.saw(situation);
    }

    fn run(&mut self) {
        self.start_server();
        (0..self.world.nodes).for_each(|address| self.start_node(address));
        for index in 0..self.clients.len() {
            self.after(self.clients[index].plan.hands_in_at_ns, Happening::HandsIn(index));
        }
        self.foresee_faults();
        if let Some(end_ns) = self.world.faults_end_ns {
            self.future.foresee(end_ns, Happening::FaultsEnd);
        }
        while self.broken.is_none() && self.clients.iter().any(|client| client.asks_left > 0) {
            let packet_ns = self.plane().next_packet_ns().unwrap_or(u64::MAX);
            let happening_ns = self.future.next_ns().unwrap_or(u64::MAX);
            self.now_ns = self.now_ns.max(packet_ns.min(happening_ns));
            if self.now_ns >= self.world.end_ns {
                break;
            }
            let mut plane = self.plane();
            plane.now_ns = self.now_ns;
            if packet_ns <= happening_ns {
                plane.step();
                continue;
            }
            drop(plane);
            if let Some((_, happening)) = self.future.pop() {
                self.happen(happening);
            }
            self.now_ns = self.now_ns.max(self.plane().now_ns);
        }
    }

    /// Checks the invariants at the end of a world.
    fn judge(mut self) -> Result<ShuffleOutcome, Violation> {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            let (told, job, plan) = (client.told, client.job, client.plan.clone());
            match (told, job) {
                (Some(true), Some(job)) => {
                    self.outcome.succeeded += 1;
                    let name = job.to_string();
                    match self.outputs.after_power_cut(&name) {
                        None => self.breaks(format!("job {job} is done and has no output after a power cut")),
                        Some(output) => {
                            self.outcome.records += output.len() as u64;
                            let problem = plan.problem_of(output);
                            problem.into_iter().for_each(|what| self.breaks(format!("job {job}: {what}")));
                        }
                    }
                }
                (Some(_), _) => self.outcome.failed += 1,
                (None, _) if self.world.faults_end_ns.is_some() => {
                    self.breaks(format!("job {job:?} has not ended, though nothing failed any more"));
                }
                (None, _) => self.outcome.unfinished += 1,
            }
        }
        self.collect_server();
        self.outcome.sometimes.add(&self.plane().sometimes);
        self.outcome.ended_ns = self.now_ns;
        match self.broken {
            Some(violation) => Err(violation),
            None => Ok(self.outcome),
        }
    }

    fn foresee_faults(&mut self) {
        let faults = self.faults;
        for (rate, happening) in [
            (faults.node_deaths_per_minute, Happening::NodeDies),
            (faults.server_crashes_per_minute, Happening::ServerDies),
            (faults.partitions_per_minute, Happening::CutOff),
            (faults.losses_per_minute, Happening::DiskLoses),
        ] {
            self.foresee_fault(rate, happening);
        }
    }

    fn foresee_fault(&mut self, per_minute: f64, happening: Happening) {
        if let Some(wait_ns) = until_death_ns(&mut self.random, per_minute) {
            self.after(wait_ns, happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::HandsIn(index) => self.hand_in(index),
            Happening::Asks(index) => self.ask(index),
            Happening::Arrives { server, message } => {
                if server == self.server_number && self.server.is_some() {
                    self.inbox.push(message);
                    self.serve();
                }
            }
            Happening::Answers(reply) => self.answered(reply),
            Happening::ServerWritten { server } if server == self.server_number => self.written(),
            Happening::ServerTick { server } if server == self.server_number => self.tick(),
            Happening::ServerWritten { .. } | Happening::ServerTick { .. } => {}
            Happening::ServerDies => self.server_dies(),
            Happening::ServerStarts => self.start_server(),
            Happening::Polls { process } => self.poll(process),
            Happening::Works { process, attempt } => self.work(process, attempt),
            Happening::Sorts { process } => self.sort(process),
            Happening::Replicates { process } => self.replicate(process),
            Happening::NodeDies => self.node_dies(),
            Happening::NodeStarts { address } => self.start_node(address),
            Happening::CutOff => self.cut_off(),
            Happening::Heals(node) => {
                self.plane().cut_off.remove(&node);
                let process = self.processes.values().find(|process| process.node == Some(node));
                process.into_iter().for_each(|process| locked(&self.connections).heals(process.number));
            }
            Happening::DiskLoses => self.disk_loses(),
            Happening::FaultsEnd => {
                self.faults = FaultRates::NONE;
                let mut plane = self.plane.lock().unwrap_or_else(PoisonError::into_inner);
                plane.faults = self.faults;
                plane.cut_off.clear();
                drop(plane);
                let numbers = self.processes.keys();
                numbers.for_each(|number| locked(&self.connections).heals(*number));
            }
        }
    }

    /// Sends a message to the current server; it is lost with that server.
    fn send(&mut self, message: Message) {
        let mut plane = self.plane();
        if plane.chance(self.faults.message_lost) {
            return;
        }
        let delay_ns = plane.delay_ns();
        let again = plane.chance(self.faults.message_repeated).then(|| plane.slow_ns());
        drop(plane);
        let server = self.server_number;
        if let Some(again_ns) = again {
            self.after(again_ns, Happening::Arrives { server, message: message.clone() });
        }
        self.after(delay_ns, Happening::Arrives { server, message });
    }

    fn hand_in(&mut self, index: usize) {
        let client = &self.clients[index];
        if client.job.is_some() {
            return;
        }
        // The network does not repeat this: a job submitted twice is two jobs.
        let message =
            Message::HandIn { plan: Box::new(client.plan.clone()), then: client.then.clone().map(Box::new) };
        let server = self.server_number;
        self.after(MILLISECOND_NS, Happening::Arrives { server, message });
        self.after(3 * ASK_AGAIN_NS, Happening::HandsIn(index));
    }

    fn ask(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(job) = client.job.filter(|_| client.asks_left > 0) {
            client.question += 1;
            let (index_there, question) = (client.plan.index, client.question);
            self.send(Message::Ask { index: index_there, question, job });
            self.after(ASK_AGAIN_NS, Happening::Asks(index));
        }
    }

    /// Lets the server handle its messages, unless it is in a transaction.
    fn serve(&mut self) {
        let Some(server) = self.server.as_mut().filter(|_| !self.writing) else { return };
        server.set_now(self.now_ns);
        if std::mem::take(&mut self.is_tick_due) {
            server.tick();
        }
        for mut message in std::mem::take(&mut self.inbox) {
            if let Message::HandIn { plan, then } = &mut message {
                let first = JobId(self.numbers.jobs + 1);
                then.iter_mut().for_each(|then| then.reads = Some(first));
                let mut plane = self.plane.lock().unwrap_or_else(PoisonError::into_inner);
                for (id, plan) in (first.0..).zip(std::iter::once(&**plan).chain(then.as_deref())) {
                    self.plans.insert(JobId(id), plan.clone());
                    plane.layouts.insert(JobId(id), plan.layout());
                }
            }
            server.take(message, &mut self.numbers);
        }
        self.begin_write();
    }

    fn begin_write(&mut self) {
        let Some(server) = self.server.as_mut() else { return };
        for (job, spec) in server.commit() {
            // The number of I-files follows from the inputs; all other sizes stay small here.
            self.plans.get_mut(&job).into_iter().for_each(|plan| plan.ifiles = spec.layout.ifile_count);
            self.inputs.insert(job, spec.inputs.clone().into());
        }
        let broken = std::mem::take(&mut server.broken);
        self.store.write(SERVER_MACHINE, STORE, server.rows.clone());
        broken.into_iter().for_each(|what| self.breaks(what));
        self.writing = true;
        if self.world.planted == Some(Planted::ReplyBeforeDurable) {
            self.reply();
        }
        let takes_ns = self.random.u64(MILLISECOND_NS..WRITE_NS_MAX);
        let server = self.server_number;
        self.after(takes_ns, Happening::ServerWritten { server });
    }

    /// Completes a transaction, so that the answers may leave.
    fn written(&mut self) {
        if !std::mem::take(&mut self.writing) {
            return;
        }
        self.store.sync(STORE);
        self.reply();
        if !self.inbox.is_empty() || self.is_tick_due {
            self.serve();
        }
    }

    /// Sends the answers that wait for the transaction.
    fn reply(&mut self) {
        let now_ns = self.now_ns;
        let Some(server) = &mut self.server else { return };
        server.set_now(now_ns);
        for reply in server.written() {
            let mut plane = self.plane();
            if plane.chance(self.faults.message_lost) && !matches!(reply, Reply::Submitted { .. }) {
                if let Reply::Orders { orders, .. } = &reply
                    && !orders.is_empty()
                {
                    // They are sent again with the answer to the next poll.
                    plane.sometimes.saw(Situation::OrderRepeated);
                }
                continue;
            }
            let delay_ns = plane.delay_ns();
            drop(plane);
            self.after(delay_ns, Happening::Answers(reply));
        }
    }

    fn tick(&mut self) {
        self.dies_in_turn();
        let server = self.server_number;
        self.after(TICK_NS, Happening::ServerTick { server });
        self.is_tick_due = true;
        self.serve();
    }

    fn start_server(&mut self) {
        if self.server.is_some() {
            return;
        }
        self.server_number += 1;
        let rows = self.store.read(STORE).cloned().unwrap_or_default();
        let connections = Arc::clone(&self.connections);
        let server = Server::start(self.now_ns, rows, self.world.planted, connections);
        self.server = Some(server);
        let server = self.server_number;
        self.begin_write();
        self.after(TICK_NS, Happening::ServerTick { server });
    }

    fn server_dies(&mut self) {
        self.foresee_fault(self.faults.server_crashes_per_minute, Happening::ServerDies);
        if self.server.is_none() || self.faults.server_crashes_per_minute == 0.0 {
            return;
        }
        let lost = self.store.crash(SERVER_MACHINE, &mut self.random);
        let owes = self.server.as_ref().is_some_and(Server::owes_answers);
        if std::mem::take(&mut self.writing) && owes {
            self.saw(match lost {
                0 => Situation::ServerDiedBetweenWriteAndReply,
                _ => Situation::ServerDiedBeforeItsWrite,
            });
        }
        self.collect_server();
        self.inbox.clear();
        // Messages in flight to it are lost with its connections.
        self.server_number += 1;
        let down_ns = self.random.u64(50 * MILLISECOND_NS..2_000 * MILLISECOND_NS);
        self.after(down_ns, Happening::ServerStarts);
    }

    fn collect_server(&mut self) {
        if let Some(server) = self.server.take() {
            self.outcome.sometimes.add(&server.sometimes);
            self.outcome.attempts += server.attempts;
            self.outcome.failures.extend(server.failures);
        }
    }

    fn answered(&mut self, reply: Reply) {
        match reply {
            Reply::Submitted { index, job } => {
                let index = index as usize;
                if self.clients[index].job.is_none() {
                    self.clients[index].job = Some(job);
                    self.after(ASK_AGAIN_NS, Happening::Asks(index));
                }
            }
            Reply::Outcome { index, question, known, succeeded } => {
                if self.clients[index as usize].question == question {
                    self.told(index as usize, known, succeeded);
                }
            }
            Reply::Welcome { process, node } => self.welcome(process, node),
            Reply::Orders { process, number, orders, peers } => self.orders(process, number, orders, peers),
            Reply::UnknownNode { process } => {
                if let Some(process) = self.processes.get(&process) {
                    let (number, address) = (process.number, process.address);
                    self.saw(Situation::NodeTakenForDeadLived);
                    self.end_process(number);
                    self.start_node(address);
                }
            }
        }
    }

    fn told(&mut self, index: usize, known: bool, succeeded: Option<bool>) {
        let client = &mut self.clients[index];
        if !known {
            let what = format!("job {:?} was handed in, and nobody knows it", client.job);
            return self.breaks(what);
        }
        match (client.told, succeeded) {
            (None, None) => {}
            (None, Some(ended)) => client.told = Some(ended),
            (Some(before), now) if now == Some(before) => {
                client.asks_left = client.asks_left.saturating_sub(1);
            }
            (Some(before), now) => {
                let what = format!("job {:?} had ended ({before}), and now has not ({now:?})", client.job);
                self.breaks(what);
            }
        }
    }
}
