//! A workflow from its submission to its end: the real kind `workflow` plans the steps, the real `control` begins them
//! as jobs and lets its scheduler give them to slots. A node has a poll open all the time.
//!
//! Messages take no time. No step waits in a place of its node: only programs of milliseconds do.

use super::Machines;
use api::TaskResult;
use api::control::{
    AttemptEnd, AttemptOutcome, NodeInfo, NodeOrder, NodeOrders, NodePoll, NodeWelcome, NumberedOrder,
    PROTOCOL_VERSION,
};
use api::data_access::{DataKeys, SecretText};
use api::history::{JobState, StepOf};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{AttemptUsage, CACHING_RULES, FinishedRun, RecordedRun, RunResult, RunTask, TaskFile};
use api::{ContentHash, JobSpec, JsonText, SteppedKind};
use control::membership::Joining;
use control::{Asker, Control, ControlError, Moment, NewSteppedJob, Now, Outbox, Service};
use ids::{AttemptKey, JobId, NodeId, StepNumber};
use jobkind::{Kinds, StepPlan};
use rows::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use workflow::Workflow;

const JOB: JobId = JobId(1);
/// Time between two looks of the server at its clock.
const TICK_NS: u64 = 1_000_000_000;
const SECOND_NS: f64 = 1e9;
/// Memory of a node for jobs.
const NODE_MEMORY_BYTES: u64 = 1 << 40;
const MESSAGES_MAX: usize = 1_000_000;

/// A step of a simulated workflow. It takes one slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DagStep {
    /// Duration on any node, with the transfers of its own files.
    pub seconds: f64,
    /// Positions of the steps that must succeed before it begins.
    pub after: Vec<u32>,
    /// Position of the step whose standard output is its standard input.
    pub stream: Option<u32>,
    /// True if it reads the shared input.
    pub is_reader: bool,
}

impl DagStep {
    /// Returns the positions of all steps before it.
    pub(super) fn before(&self) -> impl Iterator<Item = usize> {
        self.after.iter().chain(&self.stream).map(|before| *before as usize)
    }
}

/// The order of reading the shared input and of working.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputReading {
    /// A step ends when it has worked and its node has the whole input.
    #[default]
    WhileItWorks,
    /// A step works when its node has the whole input.
    BeforeItWorks,
}

/// A workflow on machines without other work.
#[derive(Clone, Copy, Debug)]
pub struct DagWorld<'a> {
    pub machines: Machines,
    /// Number of nodes that work: the first ones of the machines.
    pub nodes: u32,
    pub steps: &'a [DagStep],
    /// Times of the steps in an earlier run, which the server knows, in seconds by position. Steps without a time are new to
    /// it.
    pub known_s: &'a [f64],
    /// Time at which each node has the shared input, by its number: see [`super::arrivals`]. Nodes without a time have it.
    pub shared_s: &'a [f64],
    pub reading: InputReading,
}

/// A run of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRun {
    /// Position of the step.
    pub step: u32,
    pub node: u32,
    pub slot: u32,
    pub begin_s: f64,
    pub end_s: f64,
}

/// Outcome of a [`DagWorld`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DagTimes {
    /// Time of the end of the workflow.
    pub job_s: f64,
    /// The runs, in the order of their ends. Those of a pipeline are together.
    pub runs: Vec<StepRun>,
}

/// Runs a workflow to its end. Panics if it is refused, or never ends.
pub fn run_dag(world: DagWorld<'_>) -> DagTimes {
    let mut model = Model::new(world);
    model.submit();
    while !model.is_over {
        let next_end_ns = model.ends.first().map(|(end_ns, ..)| *end_ns);
        assert!(next_end_ns.is_some(), "steps wait, and nothing runs");
        let next_tick_ns = (model.now_ns / TICK_NS + 1) * TICK_NS;
        model.passes(next_end_ns.unwrap_or(u64::MAX).min(next_tick_ns));
    }
    model.outcome.job_s = model.now_ns as f64 / SECOND_NS;
    model.outcome
}

/// Answers of the server to polls: the node, the number of the poll, and the orders.
type Answers = Arc<Mutex<Vec<(NodeId, u64, Vec<NumberedOrder>)>>>;

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node that waits for an answer.
struct Caller {
    node: NodeId,
    poll: u64,
    answers: Answers,
}

impl Asker<NodeOrders> for Caller {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<NodeOrders, ControlError>) {
        let orders = answer.expect("the node has joined").orders;
        locked(&self.answers).push((self.node, self.poll, orders));
    }
}

impl Asker<NodeWelcome> for Caller {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<NodeWelcome, ControlError>) {
        answer.expect("the node may join");
    }
}

/// An attempt that runs.
struct Running {
    slot: u32,
    began_ns: u64,
}

#[derive(Default)]
struct Node {
    running: BTreeMap<AttemptKey, Running>,
    /// Number of the last order that arrived.
    received: u64,
    /// Number of the last poll, and whether it has no answer.
    poll: u64,
    is_open: bool,
}

struct Model<'a> {
    world: DagWorld<'a>,
    control: Control,
    outbox: Outbox,
    answers: Answers,
    nodes: BTreeMap<NodeId, Node>,
    /// The steps of each job.
    steps_of: BTreeMap<JobId, StepOf>,
    next_job: i64,
    /// Ends of running attempts.
    ends: BTreeSet<(u64, NodeId, AttemptKey)>,
    now_ns: u64,
    is_over: bool,
    outcome: DagTimes,
}

impl<'a> Model<'a> {
    fn new(world: DagWorld<'a>) -> Self {
        let mut model = Self {
            world,
            control: Control::new(Service::Cluster, time(0)),
            outbox: Outbox::default(),
            answers: Answers::default(),
            nodes: BTreeMap::new(),
            steps_of: BTreeMap::new(),
            next_job: JOB.0 + 1,
            ends: BTreeSet::new(),
            now_ns: 0,
            is_over: false,
            outcome: DagTimes::default(),
        };
        model.outbox.set_now(time(0));
        for number in 0..world.nodes {
            let node = NodeId(number);
            let reply = model.caller(node, 0);
            model.control.join(&mut model.outbox, node, joining(&world.machines, number), reply);
            model.nodes.insert(node, Node::default());
        }
        model.settle();
        model
    }

    fn caller(&self, node: NodeId, poll: u64) -> Box<Caller> {
        Box::new(Caller { node, poll, answers: Arc::clone(&self.answers) })
    }

    fn submit(&mut self) {
        let (spec, plan) = planned(self.world.steps);
        let new = NewSteppedJob {
            job: JOB,
            spec: Arc::new(JobSpec::of_steps("workflow".to_string(), spec)),
            plan,
            recorded: recorded(self.world.known_s),
            user: String::new(),
            priority: 0,
            quota: None,
            server: rows::CLUSTER_OWNER.to_string(),
            file_hold: None,
            part_nodes: Arc::default(),
        };
        self.control.begin_stepped(&mut self.outbox, new);
        self.settle();
    }

    /// Lets the time pass until `now_ns`, when attempts end or the server looks at its clock.
    fn passes(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.outbox.set_now(time(now_ns));
        while let Some((end_ns, node, attempt)) =
            self.ends.first().copied().filter(|(end, ..)| *end <= now_ns)
        {
            self.ends.remove(&(end_ns, node, attempt));
            self.end(node, attempt);
            self.settle();
        }
        if now_ns.is_multiple_of(TICK_NS) {
            self.control.tick(&mut self.outbox);
            self.settle();
        }
    }

    fn end(&mut self, node: NodeId, attempt: AttemptKey) {
        let running = self.nodes.get_mut(&node).and_then(|known| known.running.remove(&attempt));
        let Running { slot, began_ns } = running.expect("an attempt ends once");
        let of = &self.steps_of[&attempt.task.job];
        for number in std::iter::once(of.step).chain(of.beside.iter().copied()) {
            self.outcome.runs.push(StepRun {
                step: number.0,
                node: node.0,
                slot,
                begin_s: began_ns as f64 / SECOND_NS,
                end_s: self.now_ns as f64 / SECOND_NS,
            });
        }
        let outcome = AttemptOutcome::Succeeded(TaskResult::Run(RunResult::default()));
        let end = AttemptEnd {
            attempt,
            outcome,
            started_ns: began_ns,
            ended_ns: self.now_ns,
            usage: AttemptUsage::default(),
        };
        self.poll(node, vec![end]);
    }

    fn poll(&mut self, node: NodeId, finished: Vec<AttemptEnd>) {
        let slots = self.world.machines.slots_per_node;
        let known = self.nodes.get_mut(&node).expect("the node has joined");
        known.poll += 1;
        known.is_open = true;
        let is_free = |slot: &u32| !known.running.values().any(|running| running.slot == *slot);
        let poll = NodePoll {
            incarnation: incarnation(node.0),
            received: known.received,
            free_slots: (0..slots).filter(is_free).collect(),
            held: known.running.keys().chain(finished.iter().map(|end| &end.attempt)).copied().collect(),
            finished,
            ..NodePoll::default()
        };
        let reply = self.caller(node, self.nodes[&node].poll);
        self.control.poll(&mut self.outbox, node, poll, reply);
    }

    /// Exchanges messages at this moment until none is left, as the shell of the server does.
    fn settle(&mut self) {
        for _ in 0..MESSAGES_MAX {
            while let Some(new) = self.control.next_steps() {
                let first = JobId(self.next_job);
                self.next_job += new.steps.len() as i64;
                self.control.begin_steps(&mut self.outbox, new, first, rows::CLUSTER_OWNER);
            }
            self.take_changes();
            self.control.answer_polls(&mut self.outbox);
            self.outbox.send_answers();
            self.clean();
            let answers = std::mem::take(&mut *locked(&self.answers));
            answers.into_iter().for_each(|(node, poll, orders)| self.answered(node, poll, orders));
            let silent = self.nodes.iter().find(|(_, known)| !known.is_open).map(|(node, _)| *node);
            let Some(silent) = silent.filter(|_| !self.is_over) else { return };
            self.poll(silent, Vec::new());
        }
        panic!("the server and the nodes never come to rest");
    }

    fn take_changes(&mut self) {
        for change in self.outbox.take_changes() {
            match change {
                Change::JobSubmitted { job, step_of: Some(of), .. } => drop(self.steps_of.insert(job, of)),
                Change::JobEnded { job: JOB, state, error, .. } => {
                    assert_eq!(state, JobState::Succeeded, "{error:?}");
                    self.is_over = true;
                }
                Change::AttemptEnded { attempt, state, .. } => {
                    assert_eq!(state, api::history::AttemptState::Succeeded, "{attempt}");
                }
                _ => {}
            }
        }
    }

    /// Drops the messages to other parts of the server.
    fn clean(&mut self) {
        for job in self.outbox.take_to_clean() {
            self.control.cleaned(&mut self.outbox, job, None);
        }
        drop((self.outbox.take_log(), self.outbox.take_stopped(), self.outbox.take_touched()));
        drop(self.outbox.take_forgotten());
    }

    fn answered(&mut self, node: NodeId, poll: u64, orders: Vec<NumberedOrder>) {
        let known = self.nodes.get_mut(&node).expect("the node has joined");
        known.is_open &= known.poll != poll;
        for NumberedOrder { number, order } in orders {
            // Orders that have not been confirmed come again.
            if number <= known.received {
                continue;
            }
            known.received = number;
            if let NodeOrder::Start { attempt, slot, .. } = order {
                let (began_ns, is_free) =
                    (self.now_ns, known.running.values().all(|running| running.slot != slot));
                assert!(is_free, "two attempts run in a slot");
                known.running.insert(attempt, Running { slot, began_ns });
                let of = &self.steps_of[&attempt.task.job];
                let end_ns = ends_ns(&self.world, of, node, began_ns);
                self.ends.insert((end_ns, node, attempt));
            }
        }
    }
}

/// Returns the end of an attempt that begins now: that of the last of its steps, which run at the same time.
fn ends_ns(world: &DagWorld<'_>, of: &StepOf, node: NodeId, began_ns: u64) -> u64 {
    let began_s = began_ns as f64 / SECOND_NS;
    let shared_s = world.shared_s.get(node.0 as usize).copied().unwrap_or(0.0);
    let end_s = |number: u32| {
        let step = &world.steps[number as usize];
        match world.reading {
            _ if !step.is_reader => began_s + step.seconds,
            InputReading::WhileItWorks => (began_s + step.seconds).max(shared_s),
            InputReading::BeforeItWorks => began_s.max(shared_s) + step.seconds,
        }
    };
    let numbers = of.beside.iter().chain([&of.step]).map(|number| number.0);
    (numbers.map(end_s).fold(began_s, f64::max) * SECOND_NS).round() as u64
}

/// Returns the specification of the workflow, and its plan as a server reads it.
fn planned(steps: &[DagStep]) -> (SteppedKind, Arc<dyn StepPlan>) {
    let spec =
        WorkflowSpec { steps: steps.iter().enumerate().map(workflow_step).collect(), only_judges: false };
    let spec = JsonText::of(&spec).expect("a specification can be written");
    let plan = Kinds::default().with::<Workflow>().read("workflow", &spec);
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    (SteppedKind { kind: "workflow".to_string(), spec }, plan)
}

/// Returns the records of an earlier run. Their steps were declared in other words, so all of them run again.
fn recorded(known_s: &[f64]) -> BTreeMap<StepNumber, Arc<RecordedRun>> {
    let other = ContentHash([0; 32]);
    let record = |(index, seconds): (usize, &f64)| {
        let run = FinishedRun { ran_ms: (seconds * 1e3).round() as u64, ..FinishedRun::default() };
        let (rules, step) = (CACHING_RULES, index.to_string());
        let recorded =
            RecordedRun { rules, step, words: other, env: other, identity: other, waits: None, run };
        (StepNumber(index as u32), Arc::new(recorded))
    };
    known_s.iter().enumerate().map(record).collect()
}

fn workflow_step((index, step): (usize, &DagStep)) -> WorkflowStep {
    let file = |index: usize| TaskFile {
        name: index.to_string().into(),
        path: format!("/steps/{index}").into(),
        ..TaskFile::default()
    };
    let input = step.stream.map(|stream| file(stream as usize));
    let program = RunTask {
        words: vec!["step".to_string()],
        stdin: input.as_ref().map(|input| input.name.clone()),
        inputs: input.into_iter().collect(),
        stdout: Some(file(index).name),
        outputs: vec![file(index)],
        ..RunTask::default()
    };
    WorkflowStep { name: index.to_string(), program, after: step.after.clone(), job: None }
}

fn incarnation(node: u32) -> String {
    format!("process {node}")
}

fn joining(machines: &Machines, node: u32) -> Joining {
    Joining {
        info: NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: String::new(),
            name: format!("node {node}"),
            rack: format!("rack {}", machines.rack(node)),
            slots: machines.slots_per_node,
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
        incarnation: incarnation(node),
        disk_proof: SecretText::default(),
        data_keys: DataKeys::default(),
    }
}

fn time(now_ns: u64) -> Now {
    Now { unix_ns: now_ns, moment: Moment(Duration::from_nanos(now_ns)) }
}
