//! Steps run on the nodes that have their inputs: stored files, and large outputs of finished steps (Clustera, section 3.4).
//! The test is the shell: nodes join and poll, and the changes tell which attempt started where.

use api::control::{AttemptEnd, NodeInfo, NodeOrders, NodePoll, NodeWelcome, PROTOCOL_VERSION};
use api::data_access::{DataKeys, SecretText};
use api::history::StepOf;
use api::task::{AttemptUsage, FileContent, FinishedRun, RunResult, RunTask, StepCaching, TaskFile};
use api::{ContentHash, JobSpec, JsonText, PinnedFile, SteppedKind, StoredContent, StoredPart, TaskResult};
use control::membership::Joining;
use control::{Asker, Control, ControlError, Moment, NewSteppedJob, Now, Outbox, Service};
use ids::{AttemptKey, ConcreteId, JobId, NodeId, StepNumber};
use jobkind::{FinishedSteps, NodeSize, Step, StepPlan, StepWork};
use mapreduce::PartNodes;
use rows::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const JOB: JobId = JobId(1);
const MIB: u64 = 1 << 20;

/// A caller whose answers do not matter.
struct Nobody;

impl Asker<NodeWelcome> for Nobody {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, _answer: Result<NodeWelcome, ControlError>) {}
}

impl Asker<NodeOrders> for Nobody {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, _answer: Result<NodeOrders, ControlError>) {}
}

/// Programs, each after those at these positions.
struct Steps(Vec<(RunTask, Vec<u32>)>);

impl StepPlan for Steps {
    fn first(&self, size: NodeSize<'_>) -> Vec<Step> {
        let none = BTreeSet::new();
        self.next(&FinishedSteps { all: &none, last: &[], begun: &none }, size)
    }

    fn next(&self, finished: &FinishedSteps<'_>, _: NodeSize<'_>) -> Vec<Step> {
        let step = |(number, (task, after)): (u32, &(RunTask, Vec<u32>))| {
            let number = StepNumber(number);
            let may_begin = after.iter().all(|before| finished.has(StepNumber(*before)));
            let work = StepWork::Program(Arc::new(task.clone()));
            let step = Step { number, name: format!("s{}", number.0).into(), work, beside: Vec::new() };
            (may_begin && !finished.begun.contains(&number)).then_some(step)
        };
        (0..).zip(&self.0).filter_map(step).collect()
    }
}

fn time(now_ms: u64) -> Now {
    Now { moment: Moment(Duration::from_millis(now_ms)), unix_ns: (1_000_000 + now_ms) * 1_000_000 }
}

struct World {
    control: Control,
    outbox: Outbox,
    now_ms: u64,
    next_job: i64,
    /// Step, node and slot of each running attempt.
    running: BTreeMap<u32, (AttemptKey, u32, u32)>,
    steps: BTreeMap<JobId, u32>,
    /// Number of orders that each node has received.
    orders: BTreeMap<u32, u64>,
    /// Paths of the inputs of each step.
    inputs: Vec<Vec<String>>,
}

impl World {
    fn with_nodes(slots: &[u32]) -> Self {
        let control = Control::new(Service::Cluster, time(0));
        let (running, steps, orders) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut world = Self {
            control,
            outbox: Outbox::default(),
            now_ms: 0,
            next_job: 2,
            running,
            steps,
            orders,
            inputs: Vec::new(),
        };
        slots.iter().zip(1..).for_each(|(slots, node)| world.join(node, *slots));
        world
    }

    fn join(&mut self, node: u32, slots: u32) {
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: String::new(),
            name: format!("n{node}"),
            rack: "rack".to_string(),
            slots,
            memory_bytes: 1 << 30,
            architecture: String::new(),
            resources: Default::default(),
            data_url: "http://node".to_string(),
            sees: Vec::new(),
            left: Vec::new(),
            predecessors: Vec::new(),
        };
        let joining = Joining {
            info,
            predecessors: Vec::new(),
            secret_hash: [0; 32],
            join_token: None,
            incarnation: node.to_string(),
            disk_proof: SecretText::default(),
            data_keys: DataKeys::default(),
        };
        self.pass(0);
        self.control.join(&mut self.outbox, NodeId(node), joining, Box::new(Nobody));
        self.poll(node, (0..slots).collect(), Vec::new());
    }

    fn poll(&mut self, node: u32, free_slots: Vec<u32>, finished: Vec<AttemptEnd>) {
        let received = self.orders.get(&node).copied().unwrap_or(0);
        let incarnation = node.to_string();
        let poll = NodePoll { incarnation, received, free_slots, finished, ..NodePoll::default() };
        self.control.poll(&mut self.outbox, NodeId(node), poll, Box::new(Nobody));
        self.begin_steps();
    }

    fn begin_steps(&mut self) {
        while let Some(new) = self.control.next_steps() {
            let first = JobId(self.next_job);
            self.next_job += new.steps.len() as i64;
            self.control.begin_steps(&mut self.outbox, new, first, "me");
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.outbox.set_now(time(self.now_ms));
        self.control.tick(&mut self.outbox);
    }

    fn submit(&mut self, pinned: &[&StoredContent], part_nodes: PartNodes, steps: Steps) {
        let pinned = pinned.iter().map(|stored| PinnedFile {
            path: "files:a".into(),
            stored: (*stored).clone(),
            ..PinnedFile::default()
        });
        let paths = |(task, _): &(RunTask, Vec<u32>)| {
            task.inputs.iter().map(|input| input.path.display().to_string()).collect()
        };
        self.inputs = steps.0.iter().map(paths).collect();
        let kind = SteppedKind { kind: "steps".to_string(), spec: JsonText::hidden() };
        let spec = JobSpec { pinned: pinned.collect(), ..JobSpec::of_steps("a job".to_string(), kind) };
        let new = NewSteppedJob {
            job: JOB,
            spec: Arc::new(spec),
            plan: Arc::new(steps),
            recorded: BTreeMap::new(),
            user: String::new(),
            priority: 0,
            quota: None,
            server: "me".to_string(),
            file_hold: None,
            part_nodes: Arc::new(part_nodes),
        };
        self.control.begin_stepped(&mut self.outbox, new);
        self.begin_steps();
    }

    /// Returns step and node of each attempt that has started since the last call.
    fn started(&mut self) -> Vec<(u32, u32)> {
        self.control.check_invariants();
        let mut started = Vec::new();
        for change in self.outbox.take_changes() {
            match change {
                Change::JobSubmitted { job, step_of: Some(StepOf { step, .. }), .. } => {
                    self.steps.insert(job, step.0);
                }
                Change::AttemptStarted { attempt, node, slot, .. } => {
                    let step = self.steps[&attempt.task.job];
                    self.running.insert(step, (attempt, node.0, slot));
                    *self.orders.entry(node.0).or_default() += 1;
                    started.push((step, node.0));
                }
                _ => {}
            }
        }
        started
    }

    /// Ends a step that wrote these bytes.
    fn end(&mut self, step: u32, bytes: u64) {
        let (attempt, node, slot) = self.running.remove(&step).expect("it runs");
        let content = |path: String, bytes| FileContent {
            path: path.into(),
            real_path: None,
            sha256: Some(ContentHash([1; 32])),
            bytes,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        };
        let run = FinishedRun {
            executables: vec![content("/bin/true".to_string(), 1)],
            inputs: self.inputs[step as usize].iter().map(|path| content(path.clone(), 1)).collect(),
            outputs: vec![content(format!("/w/f{step}"), bytes)],
            ..FinishedRun::default()
        };
        let result = RunResult { runs: vec![Some(run)], ..RunResult::default() };
        let outcome = Ok(TaskResult::Run(result)).into();
        let usage = AttemptUsage::default();
        self.poll(node, vec![slot], vec![AttemptEnd { attempt, outcome, started_ns: 1, ended_ns: 2, usage }]);
    }
}

/// Returns a stored file of one part.
fn stored(number: i64, bytes: u64) -> StoredContent {
    StoredContent { parts: vec![StoredPart { concrete: ConcreteId(number), bytes, crc32c: 0 }] }
}

fn on(places: &[(i64, u32)]) -> PartNodes {
    places.iter().map(|(part, node)| (ConcreteId(*part), vec![NodeId(*node)])).collect()
}

fn writes(step: u32) -> RunTask {
    let output = TaskFile { name: "f".into(), path: format!("/w/f{step}").into(), ..TaskFile::default() };
    let caching = Some(Box::new(StepCaching::default()));
    RunTask { words: vec!["true".to_string()], outputs: vec![output], caching, ..RunTask::default() }
}

/// Returns a program that reads a stored file.
fn reads_stored(step: u32, stored: &StoredContent) -> RunTask {
    let content = Some(stored.identity());
    let inputs = vec![TaskFile { name: "a".into(), path: "files:a".into(), content, ..TaskFile::default() }];
    RunTask { inputs, ..writes(step) }
}

/// Returns a program that reads the outputs of others.
fn reads(step: u32, of: &[u32]) -> RunTask {
    let input = |of: &u32| TaskFile {
        name: format!("in{of}").into(),
        path: format!("/w/f{of}").into(),
        ..TaskFile::default()
    };
    RunTask { inputs: of.iter().map(input).collect(), ..writes(step) }
}

#[test]
fn figure_7_places_the_third_by_size() {
    for (sizes, node) in [([10, 20], 3), ([20, 10], 2)] {
        let (one, two) = (stored(1, 100 * MIB), stored(2, 80 * MIB));
        let mut world = World::with_nodes(&[2, 2, 2]);
        let steps = vec![
            (reads_stored(0, &one), vec![]),
            (reads_stored(1, &two), vec![]),
            (reads(2, &[0, 1]), vec![0, 1]),
        ];
        world.submit(&[&one, &two], on(&[(1, 2), (2, 3)]), Steps(steps));
        assert_eq!(world.started(), [(0, 2), (1, 3)]);
        world.end(1, sizes[1] * MIB);
        assert_eq!(world.started(), []);
        world.end(0, sizes[0] * MIB);
        assert_eq!(world.started(), [(2, node)], "{sizes:?}");
    }
}

#[test]
fn full_nodes_do_not_keep_steps_waiting() {
    let one = stored(1, 100 * MIB);
    let mut world = World::with_nodes(&[1, 1, 1]);
    let steps = (0..3).map(|step| (reads_stored(step, &one), vec![])).collect();
    world.submit(&[&one], on(&[(1, 2)]), Steps(steps));
    let mut started = world.started();
    assert_eq!(started.remove(0), (0, 2));
    started.sort_unstable();
    let nodes: BTreeSet<u32> = started.iter().map(|(_, node)| *node).collect();
    assert_eq!((started.len(), nodes), (2, BTreeSet::from([1, 3])));
}

#[test]
fn copies_of_finished_steps_count_as_places() {
    let one = stored(1, 100 * MIB);
    let mut world = World::with_nodes(&[1, 1, 1]);
    let mut steps: Vec<_> = (0..2).map(|step| (reads_stored(step, &one), vec![])).collect();
    steps.push((reads_stored(2, &one), vec![0, 1]));
    world.submit(&[&one], on(&[(1, 3)]), Steps(steps));
    let first = world.started();
    assert_eq!((first[0], first[1].0), ((0, 3), 1));
    let other = first[1].1;
    world.end(0, 1);
    world.end(1, 1);
    let third = world.started();
    assert!(third == [(2, 3)] || third == [(2, other)], "{third:?} is on a node without a copy");
}

#[test]
fn moved_replicas_are_learned() {
    let one = stored(1, 100 * MIB);
    let mut world = World::with_nodes(&[1, 1, 1]);
    let steps = vec![(writes(0), vec![]), (reads_stored(1, &one), vec![0])];
    world.submit(&[&one], PartNodes::new(), Steps(steps));
    let first = world.started();
    let node = if first[0].1 == 3 { 2 } else { 3 };
    assert!(world.control.inputs_moved(JOB, on(&[(1, node)])));
    world.end(0, 1);
    assert_eq!(world.started(), [(1, node)]);
}
