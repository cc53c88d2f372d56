//! Runs copied from node to node: whole and the same, or nothing of them is left.

use crate::auth::status;
use crate::cluster::{Cluster, JOB};
use crate::model::{self, Case};
use dataport::wire::messages::CopyHead;
use dataport::{CopyError, DataError};
use ids::{NodeId, RunId};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests before a test gives up that waits for other requests to have come or gone.
const TRIES_MAX: u32 = 100_000;
/// The same where it only looks.
const LOOKS_MAX: u32 = 10_000_000;

fn sealed(case: &Case) -> Cluster {
    let cluster = Cluster::start(case);
    model::run(case, &cluster);
    cluster.seal();
    assert!((0..2).all(|node| !cluster.runs(node).is_empty()));
    cluster
}

/// A run of node 1 and its file.
fn run_of_second(cluster: &Cluster) -> (RunId, Vec<u8>) {
    let run = cluster.runs(1)[0].clone();
    (run.id, std::fs::read(run.path().expect("kept runs are on disk")).expect("a run file"))
}

fn headers() -> [(&'static str, &'static str); 2] {
    [("authorization", "Bearer secret"), ("sailfish-incarnation", "100")]
}

fn path() -> String {
    format!("/data/v1/jobs/{JOB}/copies")
}

/// A request that brings `file` as a copy of `run`.
fn request(run: RunId, bytes: u64, file: &[u8], crc_xor: u32) -> Vec<u8> {
    let head = CopyHead { run, bytes }.encode();
    [&head[..], file, &(model::crc32c(file) ^ crc_xor).to_le_bytes()].concat()
}

#[test]
fn copy_equals_the_run_and_may_be_repeated() {
    for keep in [false, true] {
        let cluster = sealed(&Case { keep, ..Case::plain() });
        let server = cluster.nodes[1].served.server();
        for run in cluster.runs(1) {
            for _ in 0..2 {
                let copied = cluster.client.copy_run(&cluster.peer(0), JOB, &server, run.id, &|_| true);
                let copied = copied.expect("copied");
                assert_eq!((copied.ifile, copied.chunks.is_empty()), (run.ifile, false));
                let copy = cluster.nodes[0].served.server().run(run.id).expect("it is there");
                let bytes = std::fs::read(copy.path().expect("on disk")).expect("a file");
                let original = server.run(run.id).expect("it is there");
                assert!(bytes == std::fs::read(original.path().expect("written by now")).expect("a file"));
                assert_eq!(copied.bytes, bytes.len() as u64);
            }
        }
        assert!(cluster.runs(0).iter().all(|run| run.id.node() == cluster.nodes[0].id));
    }
}

#[test]
fn damaged_or_truncated_copy_leaves_nothing() {
    let cluster = sealed(&Case { keep: true, ..Case::plain() });
    let (run, file) = run_of_second(&cluster);
    let files = cluster.files(0);
    let bytes = file.len() as u64;
    let mut flipped = request(run, bytes, &file, 0);
    flipped[1000] ^= 1;
    let other = RunId::on(cluster.nodes[2].id, 77);
    let own = RunId::on(cluster.nodes[0].id, 77);
    for (what, body, expected) in [
        ("a wrong checksum", request(run, bytes, &file, 1), 400),
        ("a flipped bit", flipped, 400),
        ("a body that is cut off", request(run, bytes, &file, 0)[..2000].to_vec(), 400),
        ("no checksum", request(run, bytes, &file, 0)[..28 + file.len()].to_vec(), 400),
        ("a file that is too short", request(run, bytes - 1, &file[..file.len() - 1], 0), 400),
        ("a length that is too short", request(run, bytes - 1, &file, 0), 400),
        ("a length that is too long", request(run, bytes + 1, &file, 0), 400),
        ("no file", request(run, 0, &[], 0), 400),
        ("a file of another run", request(other, bytes, &file, 0), 400),
        ("a run of that node", request(own, bytes, &file, 0), 422),
    ] {
        assert_eq!(status(&cluster, &path(), &headers(), &body), expected, "{what}");
        assert_eq!(cluster.files(0), files, "{what}");
        assert!(cluster.nodes[0].served.server().run(run).is_none(), "{what}");
    }
    assert_eq!(status(&cluster, &path(), &headers(), &request(run, bytes, &file, 0)), 200);
    assert_eq!(cluster.files(0).len(), files.len() + 1);
}

#[test]
fn copies_at_once_are_limited() {
    let cluster = sealed(&Case { keep: true, ..Case::plain() });
    let (run, file) = run_of_second(&cluster);
    let files = cluster.files(0);
    let begun: Vec<std::net::TcpStream> = (0..4)
        .map(|number| {
            let mut stream =
                std::net::TcpStream::connect(cluster.nodes[0].line.address).expect("a connection");
            let body = request(RunId::on(cluster.nodes[2].id, 50 + number), 1000, &[7; 1000], 0);
            let head = format!(
                "POST {} HTTP/1.1\r\nhost: node\r\nauthorization: Bearer secret\r\nsailfish-incarnation: 100\r\ncontent-length: {}\r\n\r\n",
                path(),
                body.len()
            );
            stream.write_all(&[head.as_bytes(), &body[..500]].concat()).expect("sent");
            stream
        })
        .collect();
    let until_files = |count: usize| {
        let is_so = |_| {
            std::thread::yield_now();
            cluster.files(0).len() == count
        };
        assert!((0..LOOKS_MAX).any(is_so), "never {count} files");
    };
    // Each has its file when it has been let in.
    until_files(files.len() + 4);
    let copy = || status(&cluster, &path(), &headers(), &request(run, file.len() as u64, &file, 0));
    assert_eq!(copy(), 503);
    // Those that broke off make room, and leave no file.
    drop(begun);
    assert!((0..TRIES_MAX).any(|_| copy() == 200), "there is no room again");
    until_files(files.len() + 1);
}

#[test]
fn unable_or_unwilling_nodes_take_no_copy() {
    let cluster = sealed(&Case { keep: true, ..Case::plain() });
    let (run, _) = run_of_second(&cluster);
    let server = cluster.nodes[1].served.server();
    let copy = |to: usize, run: RunId| {
        cluster.client.copy_run(&cluster.peer(to), JOB, &server, run, &|_| true).expect_err("refused")
    };
    let refused = |to: usize, run: RunId| match copy(to, run) {
        error @ CopyError::Peer(DataError::Refused { status, .. }) if error.is_about_peer() => status,
        other => panic!("{other:?}"),
    };
    cluster.nodes[0].served.draining.store(true, Ordering::Relaxed);
    assert_eq!(refused(0, run), 507);
    assert_eq!(refused(1, run), 422);
    std::fs::remove_dir_all(cluster.directory(2)).expect("a disk goes");
    assert_eq!(refused(2, run), 507);
    std::fs::create_dir(cluster.directory(2)).expect("it comes back");
    cluster.stop_line(2);
    let gone = copy(2, run);
    assert!(matches!(&gone, CopyError::Peer(DataError::Unreachable { .. })), "{gone:?}");
    assert!(gone.is_about_peer());

    let unknown = copy(0, RunId::on(NodeId(2), 99));
    assert!(matches!(&unknown, CopyError::Source(error) if error.lost_run().is_some()), "{unknown:?}");
    assert!(!unknown.is_about_peer());
}

/// Repeats a copy until the other node is not busy, and returns its result. The copy before it may come to its end, or even begin, only
/// after it was given up here, and until then the other node is busy with it.
pub fn when_free<T>(copy: impl Fn() -> Result<T, CopyError>) -> Result<T, CopyError> {
    let is_busy = |copied: &_| matches!(copied, Err(CopyError::Peer(DataError::Refused { status: 503, .. })));
    (0..TRIES_MAX).map(|_| copy()).find(|copied| !is_busy(copied)).expect("once it is free")
}

#[test]
fn abandoned_or_damaged_copy_leaves_nothing() {
    let case = Case { keep: true, codec: api::Codec::None, ..Case::plain() };
    let case = Case { tasks: vec![(0..40u8).map(|key| (vec![key, 9], 60_000)).collect(); 3], ..case };
    let cluster = sealed(&Case { arena_chunks: 60, ..case });
    let server = cluster.nodes[1].served.server();
    let ifile = cluster.runs(1)[0].ifile;
    let all: Vec<RunId> = cluster.runs(1).iter().filter(|run| run.ifile == ifile).map(|run| run.id).collect();
    let merged = server.merge_runs(ifile, &all, 1 << 20).expect("merged").run;
    let run = merged.run;
    assert!(merged.stored_bytes > 1 << 20, "{} bytes", merged.stored_bytes);
    let files = cluster.files(0);
    let asked = AtomicUsize::new(0);
    let pace = |_: usize| asked.fetch_add(1, Ordering::Relaxed) < 3;
    let given_up = cluster.client.copy_run(&cluster.peer(0), JOB, &server, run, &pace);
    assert!(matches!(given_up, Err(CopyError::Cancelled)), "{given_up:?}");
    let until_nothing_is_left = || {
        let receive = || cluster.nodes[0].served.server().receive_copy(run, 10).is_ok();
        assert!((0..LOOKS_MAX).any(|_| {
            std::thread::yield_now();
            receive() && cluster.files(0) == files
        }));
    };
    until_nothing_is_left();

    let path = server.run(run).and_then(|run| run.path().map(Path::to_path_buf)).expect("on disk");
    let whole = std::fs::read(&path).expect("a file");
    let mut damaged = whole.clone();
    damaged[whole.len() - 200_000] ^= 1;
    std::fs::write(&path, damaged).expect("written");
    let copy = || cluster.client.copy_run(&cluster.peer(0), JOB, &server, run, &|_| true);
    match when_free(copy).expect_err("damaged") {
        CopyError::Source(error) => assert_eq!(error.lost_run(), Some(run)),
        other => panic!("{other:?}"),
    }
    until_nothing_is_left();
    std::fs::write(&path, whole).expect("written");
    when_free(copy).expect("whole again");
    assert_eq!(cluster.files(0).len(), files.len() + 1);
}

/// Lines that are cut again and again: at some time each copy is through, and it is whole.
#[test]
fn copies_over_bad_lines_end_whole() {
    let cluster = sealed(&Case { keep: true, ..Case::plain() });
    let server = cluster.nodes[1].served.server();
    cluster.nodes[0].line.state.cut_per_mille.store(300, Ordering::Relaxed);
    let copy = |run: RunId| match cluster.client.copy_run(&cluster.peer(0), JOB, &server, run, &|_| true) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.is_about_peer(), "{error:?}");
            false
        }
    };
    let mut failures = 0;
    for _ in 0..20 {
        for run in cluster.runs(1) {
            failures += (0..TRIES_MAX).position(|_| copy(run.id)).expect("once it is through");
            let there = cluster.nodes[0].served.server().run(run.id).expect("it is there");
            let file = |path: Option<&Path>| std::fs::read(path.expect("on disk")).expect("a file");
            assert!(file(there.path()) == file(run.path()));
        }
    }
    assert!(failures > 0, "no line was cut");
}
