//! Access to the data ports: every route asks for the token, and for the process that is meant.

use crate::cluster::{Cluster, JOB};
use crate::model::{self, Case};
use chunkserver::ChunkServerError;
use dataport::{DataError, RemoteScan, ScanError, ScanOptions};
use ids::{JobId, RunId};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn status(cluster: &Cluster, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    let mut stream = std::net::TcpStream::connect(cluster.nodes[0].line.address).expect("a connection");
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(&[request.as_bytes(), body].concat()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn every_route_refuses_strangers_and_the_past() {
    let cluster = Cluster::start(&Case::plain());
    for route in ["bind", "frames", "release", "scan", "copies", "stage-blocks", "stage-copies"] {
        let check = |job: i64, headers: &[(&str, &str)], body: &[u8], expected: u16| {
            let path = format!("/data/v1/jobs/{job}/{route}");
            assert_eq!(status(&cluster, &path, headers, body), expected, "{route} {headers:?}");
        };
        let (right, wrong) = (("authorization", "Bearer secret"), ("authorization", "Bearer secrets"));
        let (this, other) = (("sailfish-incarnation", "100"), ("sailfish-incarnation", "99"));
        check(JOB.0, &[this], b"", 401);
        check(JOB.0, &[wrong, this], b"", 403);
        check(JOB.0, &[right], b"", 410);
        check(JOB.0, &[right, other], b"", 410);
        check(JOB.0 + 1, &[right, this], b"", 404);
        check(JOB.0, &[right, this], b"", 400);
        check(JOB.0, &[right, this], &[7; 5000], 400);
    }
    // No more than the port reads before it gives up: what is left unread would take the answer with it.
    let oversize = vec![0; dataport::wire::messages::MESSAGE_BYTES_MAX + 1];
    let path = format!("/data/v1/jobs/{JOB}/scan");
    let headers = [("authorization", "Bearer secret"), ("sailfish-incarnation", "100")];
    assert_eq!(status(&cluster, &path, &headers, &oversize), 413);
    // The client of this crate brings the token.
    let outcome = model::run(&Case::plain(), &cluster);
    assert_eq!(outcome.winners.len(), 3);
}

#[test]
fn unknown_run_is_an_error() {
    let cluster = Cluster::start(&Case::plain());
    let asked = |job: JobId, incarnation: u64| {
        let mut peer = cluster.peer(0);
        peer.incarnation = incarnation;
        let options = ScanOptions {
            job,
            runs: vec![RunId::on(peer.node, 55)],
            lower: None,
            upper: None,
            skip_records: Vec::new(),
            copies: Default::default(),
            places: None,
            compress: None,
            attempt: None,
            cancelled: Arc::new(AtomicBool::new(false)),
        };
        let scan = RemoteScan::start(&cluster.client, &peer, options).expect("started");
        scan.into_runs().map(|runs| runs.len())
    };
    let refused = |job: JobId, incarnation: u64| match asked(job, incarnation) {
        Err(ScanError::There(DataError::Refused { status, .. })) => status,
        other => panic!("{other:?}"),
    };
    let unknown = RunId::on(cluster.nodes[0].id, 55);
    match asked(JOB, 100) {
        Err(error @ ScanError::Lost { .. }) => {
            let failure = error.to_failure();
            assert_eq!(failure.lost_runs, [unknown]);
            assert!(failure.message.contains(&ChunkServerError::UnknownRun(unknown).to_string()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(refused(JobId(8), 100), 404);
    assert_eq!(refused(JOB, 101), 410);
}
