//! Ranges of stage files, read from other nodes: what the model says, from whichever copy can be read, or an error that
//! says why none can.

use crate::auth::status;
use crate::cluster::JOB;
use crate::stage_files::{Sample, draw, name, read};
use dataport::wire::stage::StageReadRequest;
use dataport::{AnyStageFile, CopyProblem, DataError, Peer, StageFileCopy, StageReadError};
use ids::{JobId, NodeId};
use stagefile::{BLOCK_PAYLOAD_BYTES, HEADER_BYTES, STORED_BLOCK_BYTES};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_PAYLOAD_BYTES as usize;

/// Flips a byte of the copy of a node.
fn flip(sample: &Sample, node: usize, offset: usize) {
    let mut bytes = std::fs::read(sample.path(node)).expect("a file");
    bytes[offset] ^= 0x20;
    std::fs::write(sample.path(node), bytes).expect("written");
}

fn in_block(number: usize) -> usize {
    HEADER_BYTES + number * STORED_BLOCK_BYTES + 1000
}

#[test]
fn remote_range_matches_the_model() {
    for bytes in [0, 1, BLOCK, 3 * BLOCK + 77, 40 * BLOCK - 1] {
        let sample = Sample::start(bytes, &[]);
        for count in 0..40 {
            let offset = draw(3 * count, bytes as u64 + 1);
            let length = draw(3 * count + 1, bytes as u64 - offset + 1);
            let mut options = sample.options(vec![sample.there(1)]);
            options.window_bytes = draw(3 * count + 2, 1 << 20) as usize;
            let mut reader = AnyStageFile::open(options, offset, length).expect("within the file");
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("read");
            assert!(all == sample.payload[offset as usize..(offset + length) as usize], "{offset} {length}");
            assert_eq!((reader.node(), reader.failures().count()), (Some(NodeId(2)), 0));
        }
        let beyond = AnyStageFile::open(sample.options(vec![sample.there(1)]), 1, bytes as u64);
        assert!(matches!(beyond.map(drop), Err(StageReadError::OutOfRange(_))));
    }
}

#[test]
fn reader_leaves_a_stopped_node_for_its_replica() {
    let sample = Sample::start(40 * BLOCK + 5, &[2]);
    let mut left_at = Vec::new();
    for bytes in (500..3_000_000).step_by(310_001) {
        sample.cluster.nodes[1].line.state.stop_at.store(bytes, Ordering::Relaxed);
        let mut reader = sample.open(vec![sample.there(1), sample.there(2)]);
        assert!(read(&mut reader).expect("the replica is there") == sample.payload, "stopped behind {bytes}");
        for failure in reader.failures() {
            assert_eq!(failure.node, NodeId(2));
            assert!(failure.problem.is_unreachable() && !failure.problem.is_lost(), "{failure}");
            left_at.push(bytes);
        }
        assert_eq!(reader.node(), Some(if left_at.last() == Some(&bytes) { NodeId(3) } else { NodeId(2) }));
        sample.cluster.mend_line(1);
    }
    assert!(left_at.len() > 6, "{left_at:?}");
    sample.cluster.stop_line(1);
    let error = read(&mut sample.open(vec![sample.there(1)])).expect_err("there is no other copy");
    assert_eq!(error.to_failure().unreachable, Some(NodeId(2)));
    let failure = &error.failures()[0];
    assert!(matches!(failure.problem, CopyProblem::There(DataError::Unreachable { .. })), "{failure}");
}

#[test]
fn a_damaged_block_is_read_at_the_replica() {
    let sample = Sample::start(20 * BLOCK + 5, &[2]);
    let both = || vec![sample.there(1), sample.there(2)];
    flip(&sample, 1, in_block(7));
    let mut reader = sample.open(both());
    assert!(read(&mut reader).expect("the replica is intact") == sample.payload);
    let failures: Vec<_> = reader.failures().collect();
    assert!(failures.len() == 1 && failures[0].node == NodeId(2) && failures[0].problem.is_lost());
    assert!(failures[0].to_string().starts_with("on node-2: its data is damaged: block 7: checksum"));
    // Each copy has a block that the other one lacks.
    flip(&sample, 2, in_block(12));
    assert!(read(&mut sample.open(both())).expect("each block lies somewhere") == sample.payload);
    flip(&sample, 2, in_block(7));
    let error = read(&mut sample.open(both())).expect_err("a block is nowhere");
    let nodes: Vec<NodeId> = error.failures().iter().map(|failure| failure.node).collect();
    assert_eq!((nodes, error.to_failure().unreachable), (vec![NodeId(2), NodeId(3)], None));
    assert!(error.failures().iter().all(|failure| failure.problem.is_lost()), "{error}");
    // The other blocks are given out all the same.
    let (offset, length) = (8 * BLOCK as u64, 12 * BLOCK as u64);
    let mut reader = AnyStageFile::open(sample.options(both()), offset, length).expect("within the file");
    assert!(read(&mut reader).expect("nothing of it is damaged") == sample.payload[8 * BLOCK..20 * BLOCK]);
}

#[test]
fn replaced_or_lost_file_is_read_at_replica() {
    let sample = Sample::start(2 * BLOCK + 5, &[0, 2]);
    let both = || vec![sample.there(1), sample.there(2)];
    let check = |status: u16| {
        let mut reader = sample.open(both());
        assert!(read(&mut reader).expect("the replica is intact") == sample.payload);
        let failure = reader.failures().next().expect("it could not be read at home");
        let CopyProblem::There(DataError::Refused { status: found, .. }) = failure.problem else {
            panic!("{failure}")
        };
        assert!(found == status && failure.problem.is_lost(), "{failure}");
    };
    let whole = std::fs::read(sample.path(1)).expect("a file");
    for damaged in [0, 12, whole.len() - 1, whole.len() - 30] {
        flip(&sample, 1, damaged);
        check(422);
        flip(&sample, 1, damaged);
    }
    std::fs::write(sample.path(1), &whole[..whole.len() - 1]).expect("written");
    check(422);
    std::fs::remove_file(sample.path(1)).expect("removed");
    check(404);
    sample.cluster.nodes[1].served.stage_files.write(&name(3), b"something else");
    check(422);
}

#[test]
fn local_copy_comes_first_and_is_mended() {
    let sample = Sample::start(20 * BLOCK + 5, &[2]);
    let copies = || vec![sample.here(2), sample.there(1)];
    let mut reader = sample.open(copies());
    assert!(read(&mut reader).expect("it is here") == sample.payload);
    assert_eq!((reader.node(), reader.waited().as_nanos()), (Some(NodeId(3)), 0));
    flip(&sample, 2, in_block(7));
    let mut reader = sample.open(copies());
    assert!(read(&mut reader).expect("the other one is intact") == sample.payload);
    assert_eq!(reader.node(), Some(NodeId(2)));
    let failure = reader.failures().next().expect("the one here is damaged");
    assert!(failure.node == NodeId(3) && failure.problem.is_lost(), "{failure}");
    let error = read(&mut sample.open(vec![sample.here(2)])).expect_err("there is no other copy");
    let text = error.to_failure().message;
    assert!(text.contains(&sample.path(2).display().to_string()) && text.contains("block 7"), "{text}");
}

#[test]
fn error_without_copies_says_why() {
    let sample = Sample::start(3 * BLOCK, &[]);
    let problem = |copies: Vec<StageFileCopy>| match read(&mut sample.open(copies)).expect_err("no copy") {
        StageReadError::NoCopy { mut failures, .. } => failures.pop().map(|failure| failure.problem),
        other => panic!("{other:?}"),
    };
    assert!(problem(Vec::new()).is_none());
    let nowhere = problem(vec![StageFileCopy::Nowhere { node: NodeId(9) }]).expect("a problem");
    assert!(matches!(&nowhere, CopyProblem::UnknownNode) && nowhere.is_unreachable());
    let refused = |problem: Option<CopyProblem>| match problem {
        Some(CopyProblem::There(DataError::Refused { status, .. })) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(problem(vec![sample.there(0)])), 404);
    let client = sample.cluster.client.clone();
    let peer = Peer { incarnation: 99, ..sample.cluster.peer(1) };
    assert_eq!(refused(problem(vec![StageFileCopy::There { client, peer }])), 410);
    let mut options = sample.options(vec![sample.there(1)]);
    options.of = JobId(8).into();
    let error = read(&mut AnyStageFile::open(options, 0, 5).expect("within the file")).expect_err("no job");
    assert!(error.to_string().contains("job 8 is not known here"), "{error}");
    // Whatever is read of it, it stays an error, and becomes data when the copy does.
    let mut reader = sample.open(vec![sample.there(1)]);
    sample.cluster.stop_line(1);
    for _ in 0..2 {
        let error = reader.read(&mut [0; 10]).expect_err("the node is away");
        assert!(StageReadError::of(&error).is_some_and(|error| error.failures().len() == 1));
    }
    sample.cluster.mend_line(1);
    assert!(read(&mut reader).expect("it is back") == sample.payload);
}

#[test]
fn a_reader_whose_attempt_is_to_stop_stops() {
    let sample = Sample::start(40 * BLOCK, &[2]);
    let options = sample.options(vec![sample.there(1), sample.there(2)]);
    let cancelled = options.cancelled.clone();
    let mut reader = AnyStageFile::open(options, 0, 40 * BLOCK as u64).expect("within the file");
    assert!(!reader.fill().expect("read").is_empty());
    cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(read(&mut reader), Err(StageReadError::Cancelled)));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let sample = Sample::start(100, &[0]);
    let headers = [("authorization", "Bearer secret"), ("sailfish-incarnation", "100")];
    let path = format!("/data/v1/jobs/{JOB}/stage-blocks");
    let request = StageReadRequest { file: sample.file.clone(), first_block: 0, blocks: 1 }.encode();
    assert_eq!(status(&sample.cluster, &path, &headers, &request), 200);
    let check = |name: &str| {
        let mut altered = request.clone();
        altered[8..72].fill(0);
        altered[8..8 + name.len()].copy_from_slice(name.as_bytes());
        let end = altered.len() - 4;
        let crc32c = crate::model::crc32c(&altered[..end]);
        altered[end..].copy_from_slice(&crc32c.to_le_bytes());
        assert_eq!(status(&sample.cluster, &path, &headers, &altered), 400, "{name:?}");
    };
    let absolute = sample.path(0).display().to_string();
    let up = format!("../stage-0/{}", sample.file.name);
    for name in ["", ".", "..", &up, &absolute[..absolute.len().min(64)], "part-00003.attempt-0.stage/"] {
        check(name);
    }
}

/// Lines that alter what they carry: it comes once more, or there is an error.
#[test]
fn altered_bytes_are_not_given_out() {
    let sample = Sample::start(2 * BLOCK + 5, &[]);
    let mut errors = 0;
    for byte in (0..132_000).step_by(1999) {
        sample.cluster.nodes[1].line.state.flip_at.store(byte, Ordering::Relaxed);
        match read(&mut sample.open(vec![sample.there(1)])) {
            Ok(all) => assert!(all == sample.payload, "byte {byte}"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 2, "{errors} errors, where asking again would have helped");
}

#[test]
fn all_is_read_over_cut_connections() {
    let sample = Sample::start(30 * BLOCK + 5, &[2]);
    for node in [1, 2] {
        sample.cluster.nodes[node].line.state.cut_per_mille.store(3, Ordering::Relaxed);
    }
    for _ in 0..20 {
        let mut reader = sample.open(vec![sample.there(1), sample.there(2)]);
        let mut all = Vec::new();
        while all.len() < sample.payload.len() {
            // It goes on where it was.
            let Ok(some) = reader.fill() else { continue };
            let count = some.len();
            all.extend_from_slice(some);
            reader.consume(count);
        }
        assert!(all == sample.payload);
    }
    let cuts = |node: usize| sample.cluster.nodes[node].line.state.cuts.load(Ordering::Relaxed);
    assert!(cuts(1) + cuts(2) > 0, "no line was cut");
}

/// Flips and cuts anywhere in one copy, with an intact one elsewhere.
#[test]
fn three_thousand_damages_are_repaired_from_the_copy() {
    let samples = [100, BLOCK, 2 * BLOCK + 100].map(|bytes| Sample::start(bytes, &[2]));
    let wholes = samples.each_ref().map(|sample| std::fs::read(sample.path(2)).expect("a file"));
    let mut repaired = 0;
    for count in 0..3000 {
        let (sample, whole) = (&samples[count as usize % 3], &wholes[count as usize % 3]);
        let size = whole.len() as u64;
        let file = File::options().write(true).open(sample.path(1)).expect("opened");
        let (at, bit) = (draw(2 * count, size), draw(2 * count + 1, 8));
        if count % 4 == 3 {
            file.set_len(at).expect("cut");
        } else {
            file.write_all_at(&[whole[at as usize] ^ 1 << bit], at).expect("written");
        }
        let first = if count % 2 == 0 { sample.here(1) } else { sample.there(1) };
        let mut reader = sample.open(vec![first, sample.there(2)]);
        assert!(read(&mut reader).expect("the other copy is intact") == sample.payload, "damage {count}");
        let failures: Vec<_> = reader.failures().collect();
        assert!(failures.len() == 1 && failures[0].problem.is_lost(), "damage {count} at {at} of {size}");
        repaired += 1;
        file.write_all_at(&whole[at as usize..], at).expect("written");
    }
    assert_eq!(repaired, 3000);
    assert!(
        samples
            .iter()
            .zip(&wholes)
            .all(|(sample, whole)| { std::fs::read(sample.path(1)).expect("a file") == *whole })
    );
}
