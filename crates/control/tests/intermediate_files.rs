//! Intermediate files whose nodes are lost and return. The test is the shell: nodes join, report and leave.

use api::control::{NodeInfo, NodeOrder, NodeOrders, NodePoll, PROTOCOL_VERSION};
use api::data_access::{DataKeys, SecretText};
use api::intermediate::{
    HeldIntermediate, IntermediateNews, IntermediateNote, IntermediateState, IntermediateStatus,
    NewIntermediate,
};
use api::machine::{DiskReport, DiskState, NodeReport};
use control::membership::Joining;
use control::{Asker, Control, ControlError, FileRequest, Moment, NamedFile, Now, Outbox, Service};
use filetree::Changer;
use ids::{IntermediateId, NodeId};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const FILE: IntermediateId = IntermediateId(7);
const KEPT_SECONDS: u64 = 3600;

/// A caller that waits for its answer.
struct Waiting<T>(SyncSender<Result<T, ControlError>>);

impl<T: Send> Asker<T> for Waiting<T> {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<T, ControlError>) {
        let _ = self.0.try_send(answer);
    }
}

fn caller<T: Send + 'static>() -> (Box<Waiting<T>>, Receiver<Result<T, ControlError>>) {
    let (sender, receiver) = sync_channel(1);
    (Box::new(Waiting(sender)), receiver)
}

fn time(now_ms: u64) -> Now {
    Now { moment: Moment(Duration::from_millis(now_ms)), unix_ns: (1_000_000 + now_ms) * 1_000_000 }
}

fn of_ann() -> NamedFile {
    NamedFile { user: "ann".to_string(), name: "edges".to_string(), changer: Changer::Anybody }
}

fn held(file: IntermediateId) -> HeldIntermediate {
    HeldIntermediate { file, bytes: 10, crc32c: 3, stored_bytes: 90 }
}

struct World {
    control: Control,
    outbox: Outbox,
    now_ms: u64,
}

impl World {
    fn with_node() -> Self {
        let control = Control::new(Service::Cluster, time(0));
        let mut world = Self { control, outbox: Outbox::default(), now_ms: 0 };
        world.join(1, &[]);
        world
    }

    /// A node joins on the disks of dead nodes.
    fn join(&mut self, node: u32, predecessors: &[u32]) {
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: String::new(),
            name: format!("n{node}"),
            rack: "rack".to_string(),
            slots: 1,
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
            predecessors: predecessors.iter().copied().map(NodeId).collect(),
            secret_hash: [0; 32],
            join_token: None,
            incarnation: node.to_string(),
            disk_proof: SecretText::default(),
            data_keys: DataKeys::default(),
        };
        self.control.join(&mut self.outbox, NodeId(node), joining, caller().0);
        self.orders(node);
    }

    fn leave(&mut self, node: u32) {
        self.control.leave(&mut self.outbox, NodeId(node), &node.to_string(), caller().0);
    }

    /// Returns the orders of a node so far.
    fn orders(&mut self, node: u32) -> Vec<NodeOrder> {
        let disk = DiskReport {
            path: "/disk".to_string(),
            total_bytes: 1 << 30,
            free_bytes: 1 << 30,
            state: DiskState::Usable,
        };
        let report = NodeReport { disks: vec![disk], ..NodeReport::default() };
        let poll = NodePoll { incarnation: node.to_string(), report, ..NodePoll::default() };
        let (reply, answer) = caller::<NodeOrders>();
        self.control.poll(&mut self.outbox, NodeId(node), poll, reply);
        self.now_ms += 6000;
        self.outbox.set_now(time(self.now_ms));
        self.control.answer_polls(&mut self.outbox);
        self.answered(&answer).expect("a node").orders.into_iter().map(|order| order.order).collect()
    }

    fn answered<T>(&mut self, answer: &Receiver<Result<T, ControlError>>) -> Result<T, ControlError> {
        self.outbox.send_answers();
        answer.try_recv().expect("an answer")
    }

    /// Creates the file on the only node, and closes it.
    fn write(&mut self) {
        let new = NewIntermediate {
            name: of_ann().name,
            keep_seconds: Some(KEPT_SECONDS),
            silence_seconds: 60,
            ..NewIntermediate::default()
        };
        let new = self.control.check_file(of_ann(), new, None).expect("it may be created");
        self.control.create_file(&mut self.outbox, FILE, new, caller().0);
        self.tell(1, IntermediateNote::Closed { file: FILE, bytes: 10, crc32c: 3 });
    }

    /// Sends a note of a node. Returns the files that it must drop.
    fn tell(&mut self, node: u32, note: IntermediateNote) -> Vec<IntermediateId> {
        let (reply, answer) = caller();
        let news = IntermediateNews { incarnation: node.to_string(), notes: vec![note], copies: Vec::new() };
        self.control.file_request(&mut self.outbox, FileRequest::News { node: NodeId(node), news, reply });
        self.answered(&answer).expect("a node").dropped
    }

    fn lists(&mut self, node: u32, files: &[IntermediateId]) -> Vec<IntermediateId> {
        let files = files.iter().copied().map(held).collect();
        self.tell(node, IntermediateNote::Holds { files, writing: Vec::new() })
    }

    fn row(&mut self) -> IntermediateStatus {
        let (reply, answer) = caller();
        self.control.file_request(&mut self.outbox, FileRequest::Open { of: of_ann(), wait: false, reply });
        self.answered(&answer).expect("the file").status
    }

    /// Returns the state of the file, and its nodes.
    fn place(&mut self) -> (IntermediateState, u32, Option<u32>) {
        let row = self.row();
        (row.state, row.node.0, row.replica.map(|node| node.0))
    }
}

#[test]
fn lost_file_is_complete_with_its_node() {
    let mut world = World::with_node();
    world.write();
    let before = world.row();
    world.leave(1);
    let lost = world.row();
    assert_eq!(lost.state, IntermediateState::Lost);
    assert!(lost.problem.is_some_and(|problem| problem.contains("when the node is started on its disk")));
    world.join(2, &[1]);
    let unknown = IntermediateId(99);
    assert_eq!(world.lists(2, &[FILE, unknown]), [unknown]);
    // Also its lifetime is the old one.
    let former = vec![NodeId(1), NodeId(2)];
    assert_eq!(world.row(), IntermediateStatus { node: NodeId(2), former, ..before });
    assert!(world.orders(2).contains(&NodeOrder::AdoptIntermediates { files: vec![FILE] }));
    assert_eq!(world.lists(2, &[FILE]), []);
}

#[test]
fn returned_copy_replaces_one_under_way() {
    let mut world = World::with_node();
    world.write();
    world.join(2, &[]);
    world.tell(1, IntermediateNote::Replicated { file: FILE, to: NodeId(2), bytes: 90, single_ns: 1 });
    world.leave(1);
    assert_eq!(world.place(), (IntermediateState::Complete, 2, None));
    world.join(3, &[1]);
    assert_eq!(world.lists(3, &[FILE]), []);
    assert_eq!(world.place(), (IntermediateState::Complete, 2, Some(3)));
    assert!(world.orders(2).contains(&NodeOrder::CopiedIntermediates { files: vec![FILE], on: NodeId(3) }));
    // The holder had sent it to another node meanwhile.
    world.join(4, &[]);
    world.tell(2, IntermediateNote::Replicated { file: FILE, to: NodeId(4), bytes: 90, single_ns: 1 });
    assert_eq!(world.place(), (IntermediateState::Complete, 2, Some(4)));
    assert!(world.orders(3).contains(&NodeOrder::DropIntermediates { files: vec![FILE] }));
    world.join(5, &[3]);
    assert_eq!(world.lists(5, &[FILE]), [FILE], "two copies are enough");
}

#[test]
fn removed_file_never_returns() {
    let mut world = World::with_node();
    world.write();
    world.leave(1);
    let (reply, answer) = caller();
    world.control.file_request(&mut world.outbox, FileRequest::Remove { of: of_ann(), reply });
    world.answered(&answer).expect("it is removed");
    world.join(2, &[1]);
    assert_eq!(world.lists(2, &[FILE]), [FILE]);
}

#[test]
fn node_claims_only_files_of_its_disks() {
    let mut world = World::with_node();
    world.write();
    world.join(2, &[]);
    // It knows number, size and checksum, and is not asked for its copy.
    assert_eq!(world.lists(2, &[FILE]), []);
    assert_eq!(world.place(), (IntermediateState::Complete, 1, None));
    world.leave(1);
    assert_eq!(world.lists(2, &[FILE]), [FILE]);
    assert_eq!(world.place().0, IntermediateState::Lost);
    // The disks may go from process to process before one of them lists its files.
    world.join(3, &[1]);
    world.leave(3);
    world.join(4, &[2]);
    assert_eq!(world.lists(4, &[FILE]), [FILE]);
    world.join(5, &[3]);
    assert_eq!(world.lists(5, &[FILE]), []);
    assert_eq!(world.place(), (IntermediateState::Complete, 5, None));
}
