//! Maps over stored files run on the nodes that have the files. The test is the shell: nodes join and poll, and the
//! changes tell which attempt started where.

use api::control::{NodeInfo, NodeOrders, NodePoll, NodeWelcome, PROTOCOL_VERSION};
use api::data_access::{DataKeys, SecretText};
use api::{InputFile, JobSpec, SeenBy, Segment, Split, StoredContent, StoredPart};
use control::membership::Joining;
use control::{Asker, Control, ControlError, JobDirs, JobStart, Moment, NewJob, Now, Outbox, Service};
use ids::{ConcreteId, JobId, NodeId};
use mapreduce::PartNodes;
use rows::Change;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const JOB: JobId = JobId(1);
const PART_BYTES: u64 = 100_000_000;

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

struct World {
    control: Control,
    outbox: Outbox,
    now_ms: u64,
}

fn time(now_ms: u64) -> Now {
    Now { moment: Moment(Duration::from_millis(now_ms)), unix_ns: (1_000_000 + now_ms) * 1_000_000 }
}

impl World {
    fn with_nodes(nodes: u32, slots: u32) -> Self {
        let control = Control::new(Service::Cluster, time(0));
        let mut world = Self { control, outbox: Outbox::default(), now_ms: 0 };
        (1..=nodes).for_each(|node| world.join(node, slots));
        world
    }

    fn join(&mut self, node: u32, slots: u32) {
        self.join_named(node, slots, &format!("n{node}"), Vec::new());
    }

    /// Adds a node of this name that sees these directories.
    fn join_named(&mut self, node: u32, slots: u32, name: &str, sees: Vec<PathBuf>) {
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: String::new(),
            name: name.to_string(),
            rack: "rack".to_string(),
            slots,
            memory_bytes: 1 << 30,
            architecture: String::new(),
            resources: Default::default(),
            data_url: "http://node".to_string(),
            sees,
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
        self.poll(node, (0..slots).collect());
    }

    fn poll(&mut self, node: u32, free_slots: Vec<u32>) {
        let poll = NodePoll { incarnation: node.to_string(), free_slots, ..NodePoll::default() };
        self.control.poll(&mut self.outbox, NodeId(node), poll, Box::new(Nobody));
    }

    /// Lets time pass, and the clock of the scheduler tick.
    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.outbox.set_now(time(self.now_ms));
        self.control.tick(&mut self.outbox);
    }

    /// Submits a job of one map for each part of a stored file.
    fn submit(&mut self, parts: u32, part_nodes: PartNodes) {
        let part = |part| StoredPart { concrete: ConcreteId(i64::from(part)), bytes: PART_BYTES, crc32c: 0 };
        let content = StoredContent { parts: (0..parts).map(part).collect() };
        let input = InputFile {
            path: "files:a@1".into(),
            size_bytes: content.bytes(),
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: Some(content),
            content: None,
            seen: None,
        };
        let segment = |part| Segment {
            file_index: 0,
            offset_bytes: u64::from(part) * PART_BYTES,
            length_bytes: PART_BYTES,
        };
        let splits = (0..parts).map(|part| Split { segments: vec![segment(part)] }).collect();
        let spec = JobSpec { inputs: vec![input], memory_bytes: 1 << 20, ..JobSpec::named("a job") };
        self.begin(spec, splits, part_nodes);
    }

    fn begin(&mut self, spec: JobSpec, splits: Vec<Split>, part_nodes: PartNodes) {
        let new = NewJob {
            job: JOB,
            spec: Arc::new(spec),
            dirs: JobDirs::default(),
            start: JobStart::Splits(splits),
            user: String::new(),
            priority: 0,
            file_hold: None,
            part_nodes: Arc::new(part_nodes),
        };
        self.control.begin_jobs(&mut self.outbox, vec![new]);
    }

    /// Returns the node of each map that has started since the last call.
    fn started(&mut self) -> BTreeMap<u32, u32> {
        self.control.check_invariants();
        let changes = self.outbox.take_changes();
        let start = |change: Change| match change {
            Change::AttemptStarted { attempt, node, .. } => Some((attempt.task.task.0, node.0)),
            _ => None,
        };
        changes.into_iter().filter_map(start).collect()
    }
}

fn places(nodes_of: impl Fn(u32) -> Vec<u32>, parts: u32) -> PartNodes {
    let nodes = |part| nodes_of(part).into_iter().map(NodeId).collect();
    (0..parts).map(|part| (ConcreteId(i64::from(part)), nodes(part))).collect()
}

#[test]
fn maps_start_on_nodes_with_their_parts() {
    let mut world = World::with_nodes(4, 2);
    // Node 1 has every part, and node 4 has none.
    world.submit(6, places(|part| vec![1, 1 + part % 3], 6));
    let started = world.started();
    assert_eq!(started, BTreeMap::from([(0, 1), (1, 2), (2, 3), (3, 1), (4, 2), (5, 3)]));
}

#[test]
fn maps_wait_for_their_nodes_only_a_while() {
    let mut world = World::with_nodes(3, 1);
    // There are two waves: the last part has no room on its node.
    world.submit(4, places(|part| vec![if part == 2 { 2 } else { 1 }], 4));
    let started = world.started();
    assert_eq!((started.get(&0), started.get(&2), started.len()), (Some(&1), Some(&2), 3), "{started:?}");
    let far = started.iter().find(|(_, node)| **node == 3).map(|(task, _)| *task);
    assert_eq!(far, Some(3));
    world.join(4, 1);
    world.pass(500);
    assert_eq!(world.started(), BTreeMap::new());
    world.pass(600);
    assert_eq!(world.started(), BTreeMap::from([(1, 4)]));
}

#[test]
fn news_of_replicas_moves_waiting_maps() {
    let mut world = World::with_nodes(1, 1);
    world.submit(3, places(|_| vec![1], 3));
    assert_eq!(world.started(), BTreeMap::from([(0, 1)]));
    world.join(3, 1);
    assert_eq!(world.started(), BTreeMap::new());
    assert!(world.control.inputs_moved(JOB, places(|part| vec![part + 1], 3)));
    world.pass(1000);
    assert_eq!(world.started(), BTreeMap::from([(2, 3)]));
    world.join(2, 1);
    assert_eq!(world.started(), BTreeMap::from([(1, 2)]));
    assert!(!world.control.inputs_moved(JobId(9), PartNodes::new()));
}

#[test]
fn unknown_places_leave_maps_anywhere() {
    let mut world = World::with_nodes(2, 2);
    world.submit(4, PartNodes::new());
    assert_eq!(world.started().len(), 4);
}

/// Submits a job with a map over a file of each group of nodes.
fn submit_seen(world: &mut World, seen_by: &[(&str, &[&str])]) {
    let by = |(dir, nodes): &(&str, &[&str])| SeenBy {
        dir: dir.into(),
        nodes: nodes.iter().map(ToString::to_string).collect(),
    };
    let seen_by: Vec<SeenBy> = seen_by.iter().map(by).collect();
    let input = |(index, by): (usize, &SeenBy)| InputFile {
        path: by.dir.join("file"),
        size_bytes: PART_BYTES,
        mtime_ns: 0,
        compression: None,
        named: 0,
        object: None,
        stage_file: None,
        stored: None,
        content: None,
        seen: Some(index as u32),
    };
    let inputs: Vec<InputFile> = seen_by.iter().enumerate().map(input).collect();
    let split = |file_index| Split {
        segments: vec![Segment { file_index, offset_bytes: 0, length_bytes: PART_BYTES }],
    };
    let splits = (0..inputs.len() as u32).map(split).collect();
    let spec = JobSpec { inputs, seen_by, memory_bytes: 1 << 20, ..JobSpec::named("a job") };
    world.begin(spec, splits, PartNodes::new());
}

#[test]
fn maps_wait_for_nodes_that_see_their_inputs() {
    let mut world = World::with_nodes(2, 2);
    world.join_named(3, 1, "a", vec!["/data".into()]);
    world.join_named(4, 1, "b", vec!["/other".into(), "/data/logs".into()]);
    let groups: [(&str, &[&str]); 5] = [
        ("/data/logs", &["a", "b"]),
        ("/data/logs", &["b"]),
        ("/data", &["b"]),
        ("/away", &["c"]),
        ("/data", &["n1"]),
    ];
    submit_seen(&mut world, &groups);
    assert_eq!(world.started(), BTreeMap::from([(0, 3), (1, 4)]));
    world.pass(60_000);
    assert_eq!(world.started(), BTreeMap::new());
    let why = world.control.waits_for(JOB).unwrap();
    assert!(why.starts_with("3 of its maps need a node that sees /data, and none is here: start b"), "{why}");
    // The process with the same name is another node, and sees more.
    world.join_named(6, 2, "c", vec!["/away".into(), "/data".into()]);
    world.pass(1000);
    assert_eq!(world.started(), BTreeMap::from([(3, 6)]));
}
