//! Appenders and merges over loopback HTTP: several chunkservers, lines that are cut, nodes that start anew. What is
//! read back must be what the model says, or an error.

mod auth;
mod cluster;
mod copying;
mod damage;
mod line;
mod model;
mod reading;
mod resuming;
mod stage_copies;
mod stage_files;
mod stage_reading;
mod stored_files;
mod stored_world;
mod telling;

use cluster::Cluster;
use model::{Case, cases};
use proptest::prelude::*;

fn check(case: &Case) {
    let cluster = Cluster::start(case);
    let outcome = model::run(case, &cluster);
    cluster.seal();
    reading::check_all(case, &cluster, &outcome);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn records_appended_over_network_are_read_back(case in cases()) {
        check(&case);
    }
}

/// Equal keys over many blocks of every run: only the order of sources tells where a block belongs in the stream,
/// and a reader must not have to hold more than the next block of each run.
#[test]
fn key_over_many_blocks_reads_one_block_ahead() {
    for keep in [false, true] {
        let mut case = Case { keep, lines_cut_per_mille: 0, restart_after: None, ..Case::plain() };
        case.tasks = (0..6u8).map(|task| (0..400).map(|_| (vec![task % 2], 90)).collect()).collect();
        check(&case);
    }
}

#[test]
fn a_node_that_is_gone_fails_the_attempt() {
    use iappender::{AppendError, ChunkService};
    let case = Case { lines_cut_per_mille: 0, restart_after: None, ..Case::plain() };
    let cluster = Cluster::start(&case);
    let source = model::source(0, 0);
    let service = cluster.service(0, source, &[1]);
    let chunk = service.bind(ids::IfileIndex(0), source, 100).expect("the node is there");
    assert_eq!(chunk.node(), ids::NodeId(2));
    cluster.stop_line(1);
    let frame = model::frame(source, 0, b"value");
    let sent = service.append(chunk, frame);
    let lost = sent.and_then(|_| service.answers(true).map(|_| ()));
    assert!(matches!(lost, Err(AppendError::Gone(gone)) if gone == chunk), "{lost:?}");
    // No other node is a candidate, so no chunk can be had.
    let unbound = service.bind(ids::IfileIndex(0), source, 100);
    assert!(matches!(unbound, Err(AppendError::GaveUp { .. })), "{unbound:?}");
}
