//! Stage files copied from node to node: whole and the same, or nothing of them is left.

use crate::auth::status;
use crate::cluster::JOB;
use crate::copying::when_free;
use crate::model;
use crate::stage_files::{Sample, name, read};
use dataport::wire::stage::StageCopyHead;
use dataport::{CopyError, DataError, StageFileRef, StageFileService};
use ids::JobId;
use stagefile::{BLOCK_PAYLOAD_BYTES, Payload};
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCK: usize = BLOCK_PAYLOAD_BYTES as usize;
/// Tries of what must work once, over bad lines or beside others.
const TRIES_MAX: u32 = 100_000;

fn headers() -> [(&'static str, &'static str); 2] {
    [("authorization", "Bearer secret"), ("sailfish-incarnation", "100")]
}

fn path() -> String {
    format!("/data/v1/jobs/{JOB}/stage-copies")
}

/// A request that brings `stored` as `file`.
fn request(file: &StageFileRef, stored: &[u8], crc_xor: u32) -> Vec<u8> {
    let head = StageCopyHead { file: file.clone() }.encode();
    [&head[..], stored, &(model::crc32c(stored) ^ crc_xor).to_le_bytes()].concat()
}

#[test]
fn copy_equals_the_file_and_may_be_repeated() {
    for bytes in [0, 5, BLOCK, 30 * BLOCK + 5] {
        let sample = Sample::start(bytes, &[0, 0, 2]);
        let stored = std::fs::read(sample.path(1)).expect("a file");
        for node in [0, 2] {
            assert!(std::fs::read(sample.path(node)).expect("a file") == stored);
            let files = &sample.cluster.nodes[node].served.stage_files;
            assert_eq!(files.names(), [sample.file.name.as_str()]);
            assert!(files.find(&sample.file.name).is_some_and(|here| !here.is_own));
        }
        assert!(read(&mut sample.open(vec![sample.there(0)])).expect("read") == sample.payload);
        // A copy can be copied on where the file is lost.
        let (client, peer) = (&sample.cluster.client, sample.cluster.peer(2));
        let again = client.copy_stage_file(&peer, JOB, &sample.file, &sample.path(0), &|_| true);
        assert_eq!(again.expect("it is there already"), stored.len() as u64);
    }
}

#[test]
fn damaged_or_truncated_copy_leaves_nothing() {
    let sample = Sample::start(2 * BLOCK + 5, &[]);
    let stored = std::fs::read(sample.path(1)).expect("a file");
    let files = &sample.cluster.nodes[0].served.stage_files;
    let mut flipped = stored.clone();
    flipped[1000] ^= 1;
    let other = |bytes: u64, crc32c: u32| {
        let Payload { bytes: own_bytes, crc32c: own } = sample.file.payload;
        let payload = Payload { bytes: own_bytes + bytes, crc32c: own ^ crc32c };
        StageFileRef { payload, ..sample.file.clone() }
    };
    let whole = request(&sample.file, &stored, 0);
    for (what, body) in [
        ("a wrong checksum", request(&sample.file, &stored, 1)),
        ("a flipped bit", request(&sample.file, &flipped, 0)),
        ("a body that is cut off", whole[..2000].to_vec()),
        ("no checksum", whole[..whole.len() - 4].to_vec()),
        ("no footer", request(&sample.file, &stored[..stored.len() - 40], 0)),
        ("another length", request(&other(1, 0), &stored, 0)),
        ("another payload", request(&other(0, 1), &stored, 0)),
        ("more than the file", [&whole[..], &[0]].concat()),
    ] {
        assert_eq!(status(&sample.cluster, &path(), &headers(), &body), 400, "{what}");
        assert!(files.names().is_empty() && files.find(&sample.file.name).is_none(), "{what}");
    }
    assert_eq!(status(&sample.cluster, &path(), &headers(), &whole), 200);
    // What comes once more must be the same as well.
    assert_eq!(status(&sample.cluster, &path(), &headers(), &request(&sample.file, &flipped, 0)), 400);
    assert_eq!(status(&sample.cluster, &path(), &headers(), &request(&other(0, 1), &stored, 0)), 422);
    assert!(read(&mut sample.open(vec![sample.there(0)])).expect("read") == sample.payload);
    // A copy that was damaged since is made anew.
    std::fs::write(sample.path(0), &stored[1..]).expect("written");
    assert_eq!(status(&sample.cluster, &path(), &headers(), &whole), 200);
    assert!(std::fs::read(sample.path(0)).expect("a file") == stored);
}

#[test]
fn unable_or_unwilling_nodes_take_no_copy() {
    let sample = Sample::start(2 * BLOCK + 5, &[]);
    let copy = |to: usize, job: JobId| {
        let (client, peer) = (&sample.cluster.client, sample.cluster.peer(to));
        client.copy_stage_file(&peer, job, &sample.file, &sample.path(1), &|_| true).expect_err("refused")
    };
    let refused = |to: usize, job: JobId| match copy(to, job) {
        error @ CopyError::Peer(DataError::Refused { status, .. }) if error.is_about_peer() => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(0, JobId(8)), 404);
    assert_eq!(refused(1, JOB), 422);
    let node = &sample.cluster.nodes[0].served;
    node.draining.store(true, Ordering::Relaxed);
    assert_eq!(refused(0, JOB), 507);
    node.draining.store(false, Ordering::Relaxed);
    std::fs::remove_dir(&node.stage_files.directory).expect("a disk goes");
    assert_eq!(refused(0, JOB), 507);
    sample.cluster.stop_line(2);
    let gone = copy(2, JOB);
    assert!(matches!(&gone, CopyError::Peer(DataError::Unreachable { .. })), "{gone:?}");
}

/// A node refuses before it has all of a file. The answer must be heard, and the next request as well, on whatever connection it goes:
/// neither may look like a node that is not there.
#[test]
fn repeated_refusals_are_reported_each_time() {
    for blocks in [17, 20, 30, 100] {
        let sample = Sample::start(blocks * BLOCK, &[]);
        sample.cluster.nodes[0].served.draining.store(true, Ordering::Relaxed);
        for number in 0..200 {
            let (client, peer) = (&sample.cluster.client, sample.cluster.peer(0));
            match client.copy_stage_file(&peer, JOB, &sample.file, &sample.path(1), &|_| true) {
                Err(CopyError::Peer(DataError::Refused { status: 507, .. })) => {}
                other => panic!("{blocks} blocks, try {number}: {other:?}"),
            }
        }
    }
}

#[test]
fn abandoned_or_damaged_copy_leaves_nothing() {
    let sample = Sample::start(30 * BLOCK + 5, &[]);
    let files = &sample.cluster.nodes[0].served.stage_files;
    let copy = |pace: &(dyn Fn(usize) -> bool + Send + Sync)| {
        let (client, peer) = (&sample.cluster.client, sample.cluster.peer(0));
        client.copy_stage_file(&peer, JOB, &sample.file, &sample.path(1), pace)
    };
    let until_nothing_is_left = || {
        let is_so = |_| {
            std::thread::yield_now();
            files.names().is_empty()
        };
        assert!((0..10_000_000).any(is_so));
        assert!(files.find(&sample.file.name).is_none());
    };
    let asked = AtomicUsize::new(0);
    let given_up = copy(&|_| asked.fetch_add(1, Ordering::Relaxed) < 3);
    assert!(matches!(given_up, Err(CopyError::Cancelled)), "{given_up:?}");
    until_nothing_is_left();
    let whole = std::fs::read(sample.path(1)).expect("a file");
    for at in [whole.len() - 200_000, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(sample.path(1), damaged).expect("written");
        match when_free(|| copy(&|_| true)).expect_err("damaged") {
            error @ CopyError::StageFile(_) if !error.is_about_peer() => {}
            other => panic!("{other:?}"),
        }
        until_nothing_is_left();
    }
    std::fs::write(sample.path(1), whole).expect("written");
    when_free(|| copy(&|_| true)).expect("whole");
    assert!(std::fs::read(sample.path(0)).expect("a file") == std::fs::read(sample.path(1)).expect("a file"));
}

/// Lines that are cut again and again: at some time each copy is through, and it is whole.
#[test]
fn copies_over_bad_lines_end_whole() {
    let sample = Sample::start(4 * BLOCK + 5, &[]);
    sample.cluster.nodes[0].line.state.cut_per_mille.store(100, Ordering::Relaxed);
    let stored = std::fs::read(sample.path(1)).expect("a file");
    let (client, peer) = (&sample.cluster.client, sample.cluster.peer(0));
    let mut failures = 0;
    for part in 0..10 {
        let file = StageFileRef { name: name(part), payload: sample.file.payload };
        let copy = |_| match client.copy_stage_file(&peer, JOB, &file, &sample.path(1), &|_| true) {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is_about_peer(), "{error:?}");
                false
            }
        };
        failures += (0..TRIES_MAX).position(copy).expect("once it is through");
        let here = sample.cluster.nodes[0].served.stage_files.find(&file.name).expect("it is there");
        assert!(std::fs::read(here.path).expect("a file") == stored);
    }
    assert!(failures > 0, "no line was cut");
}
