//! Which nodes do not answer is told, and how that showed.

use api::machine::Unreached;
use dataport::{DataClient, Peer, RemoteScan, ScanOptions};
use ids::{JobId, NodeId, RunId};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, atomic::AtomicBool};

const NODE: NodeId = NodeId(3);
/// More than is told in any test.
const TOLD_MAX: usize = 1024;

struct Asked {
    told: Receiver<(NodeId, Unreached)>,
    _scan: RemoteScan,
    _runtime: tokio::runtime::Runtime,
}

/// Asks whoever listens there for a run.
fn ask(listener: &TcpListener) -> Asked {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (sender, told) = sync_channel(TOLD_MAX);
    let client = DataClient::new(runtime.handle().clone()).expect("a client");
    let client = client.telling(Arc::new(move |node, how| {
        // The test has heard what it wanted.
        let _ = sender.send((node, how));
    }));
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let options = ScanOptions {
        job: JobId(1),
        runs: vec![RunId::on(NODE, 1)],
        lower: None,
        upper: None,
        skip_records: Vec::new(),
        copies: Default::default(),
        places: None,
        compress: None,
        cancelled: Arc::new(AtomicBool::new(false)),
        attempt: None,
    };
    let scan = RemoteScan::start(&client, &Peer { node: NODE, url, incarnation: 1 }, options);
    Asked { told, _scan: scan.expect("it starts"), _runtime: runtime }
}

#[test]
fn slow_unreachable_and_lost_nodes_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let asked = ask(&listener);
    let (connection, _) = listener.accept().expect("somebody asks");
    let told = || asked.told.recv().expect("something is told");
    assert_eq!(told(), (NODE, Unreached::Silent));
    // Nobody listens any more, and what was asked gets no answer.
    drop((listener, connection));
    let next = std::iter::repeat_with(told).find(|(_, how)| *how != Unreached::Silent);
    assert_eq!(next, Some((NODE, Unreached::CutOff)));
    assert_eq!(told(), (NODE, Unreached::Refused));
}
