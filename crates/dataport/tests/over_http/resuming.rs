//! Reads that break and go on at a copy give what they would have given.

use crate::cluster::{Cluster, JOB};
use crate::model::{self, Case, Outcome};
use crate::reading::{Range, read, read_with};
use dataport::{DataError, Peer, RemoteRun, RemoteScan, ScanError, ScanOptions};
use ids::{NodeId, RunId};
use imerger::SortedRun;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Rows = Vec<(Vec<u8>, u32)>;

fn options(runs: Vec<RunId>, (lower, upper): Range<'_>, skip_records: Vec<u64>) -> ScanOptions {
    ScanOptions {
        job: JOB,
        runs,
        lower: lower.map(<[u8]>::to_vec),
        upper: upper.map(<[u8]>::to_vec),
        skip_records,
        copies: BTreeMap::new(),
        places: None,
        compress: None,
        attempt: None,
        cancelled: Arc::new(AtomicBool::new(false)),
    }
}

fn rows(run: &mut RemoteRun) -> Result<Rows, ScanError> {
    let mut rows = Vec::new();
    while run.advance()? {
        rows.push((run.record().encoded.to_vec(), run.source_row()));
    }
    Ok(rows)
}

fn sealed(case: &Case) -> (Cluster, Outcome) {
    let cluster = Cluster::start(case);
    let outcome = model::run(case, &cluster);
    cluster.seal();
    (cluster, outcome)
}

#[test]
fn a_scan_goes_on_behind_any_record() {
    for keep in [false, true] {
        let mut case = Case { keep, ifile_count: 6, ..Case::plain() };
        case.tasks = vec![(0..60u32).map(|number| (number.to_be_bytes().to_vec(), 90)).collect(); 3];
        let (cluster, _) = sealed(&case);
        let peer = cluster.peer(1);
        let runs: Vec<RunId> = cluster.runs(1).iter().map(|run| run.id).collect();
        assert!(runs.len() > 1);
        let scan = |range: Range<'_>, skip: Vec<u64>| -> Result<Vec<Rows>, ScanError> {
            let scan = RemoteScan::start(&cluster.client, &peer, options(runs.clone(), range, skip))?;
            let mut opened = scan.into_runs()?;
            let read: Result<Vec<Rows>, ScanError> = opened.iter_mut().map(rows).collect();
            assert!(opened.iter().all(|run| !run.resumed()));
            read
        };
        for range in [(None, None), (Some(&[0, 0, 0, 11][..]), Some(&[0, 0, 0, 47][..]))] {
            let whole = scan(range, Vec::new()).expect("read");
            let most = whole.iter().map(Vec::len).max().unwrap_or(0);
            assert!(most > 10, "{most} records");
            for records in 0..=most {
                let skip: Vec<u64> = whole.iter().map(|run| records.min(run.len()) as u64).collect();
                let rest = scan(range, skip.clone()).expect("read");
                for ((rest, run), skip) in rest.iter().zip(&whole).zip(skip) {
                    assert!(*rest == run[skip as usize..], "behind {skip} records");
                }
            }
            let beyond: Vec<u64> = whole.iter().map(|run| run.len() as u64 + 1).collect();
            assert!(matches!(scan(range, beyond), Err(ScanError::Unexpected { .. })));
        }
        let too_few = scan((None, None), vec![0; runs.len() - 1]);
        assert!(matches!(too_few, Err(ScanError::Unexpected { .. })));
    }
}

/// Copies of all runs of nodes 1 and 2, each on the other.
fn copies(cluster: &Cluster) -> BTreeMap<RunId, Peer> {
    let mut copies = cluster.copy_all(1, 2);
    copies.extend(cluster.copy_all(2, 1));
    copies.extend(cluster.copy_all(0, 2));
    copies
}

#[test]
fn reader_leaves_a_dying_node_for_copies() {
    for keep in [false, true] {
        let case = Case { keep, ..Case::plain() };
        let (cluster, outcome) = sealed(&case);
        let copies = copies(&cluster);
        let mut resumed_at = Vec::new();
        for range in [(None, None), (Some(&[0, 0, 0, 20][..]), Some(&[0, 0, 1, 2][..]))] {
            let expected = case.expected(&outcome, range);
            for bytes in (400..14_000).step_by(977) {
                cluster.nodes[1].line.state.stop_at.store(bytes, Ordering::Relaxed);
                let read = read_with(&cluster, &outcome, 0, range, &copies);
                let ((records, _), resumed) = read.expect("all that node 1 has is on node 2");
                assert!(records == expected, "cut behind {bytes} bytes");
                resumed_at.extend((resumed > 0).then_some(bytes));
                cluster.mend_line(1);
            }
        }
        assert!(resumed_at.len() > 3, "only at {resumed_at:?} a run went on elsewhere");
    }
}

#[test]
fn altered_answer_is_read_again_from_copies() {
    let case = Case { keep: true, ..Case::plain() };
    let (cluster, outcome) = sealed(&case);
    let copies = copies(&cluster);
    let range = (Some(&[0, 0, 0, 20][..]), Some(&[0, 0, 0, 90][..]));
    let expected = case.expected(&outcome, range);
    let mut resumed_runs = 0;
    for byte in (200..6000).step_by(191) {
        cluster.nodes[1].line.state.flip_at.store(byte, Ordering::Relaxed);
        let read = read_with(&cluster, &outcome, 0, range, &copies);
        let ((records, _), resumed) = read.expect("the copies are whole");
        assert!(records == expected, "byte {byte} made a change");
        resumed_runs += resumed;
    }
    assert!(resumed_runs > 0);
}

#[test]
fn absent_node_is_read_at_its_copies() {
    let case = Case { keep: true, ..Case::plain() };
    let (cluster, outcome) = sealed(&case);
    let copies = copies(&cluster);
    let expected = case.expected(&outcome, (None, None));
    cluster.stop_line(1);
    let ((records, _), _) = read_with(&cluster, &outcome, 0, (None, None), &copies).expect("read");
    assert!(records == expected);
    // Without copies, or with those of some of its runs only, it is what it was.
    let without = read(&cluster, &outcome, 0, (None, None)).expect_err("node 1 is gone");
    assert!(matches!(without, ScanError::There(DataError::Unreachable { .. })), "{without:?}");
    let mut some = copies.clone();
    some.remove(&cluster.runs(1)[0].id);
    let partly = read_with(&cluster, &outcome, 0, (None, None), &some).expect_err("node 1 is gone");
    assert!(matches!(partly, ScanError::There(DataError::Unreachable { .. })), "{partly:?}");
    // Of a node whose address nobody knows.
    let runs: Vec<RunId> = cluster.runs(1).iter().map(|run| run.id).collect();
    let mut asked = options(runs.clone(), (None, None), Vec::new());
    let unknown = RemoteScan::open_at_copies(&cluster.client, NodeId(2), &asked).err().expect("no copies");
    assert!(matches!(unknown, ScanError::UnknownNode { node } if node == NodeId(2)), "{unknown:?}");
    asked.copies = copies;
    let opened = RemoteScan::open_at_copies(&cluster.client, NodeId(2), &asked).expect("opened");
    assert_eq!(opened.iter().map(RemoteRun::id).collect::<Vec<_>>(), runs);
}

#[test]
fn broken_stream_without_copies_is_its_error() {
    let case = Case { keep: true, ..Case::plain() };
    let (cluster, outcome) = sealed(&case);
    cluster.nodes[1].line.state.stop_at.store(5000, Ordering::Relaxed);
    let error = read(&cluster, &outcome, 0, (None, None)).expect_err("cut");
    assert!(matches!(&error, ScanError::CutOff { node, .. } if *node == NodeId(2)), "{error:?}");
}

/// Damage here, on another node, and both.
#[test]
fn damaged_and_missing_files_are_read_from_copies() {
    let case = Case { keep: true, ..Case::plain() };
    let (cluster, outcome) = sealed(&case);
    let copies = copies(&cluster);
    let expected = case.expected(&outcome, (None, None));
    let all_is_read = |what: &str| {
        let ((records, _), resumed) =
            read_with(&cluster, &outcome, 0, (None, None), &copies).expect("the copies are whole");
        assert!(records == expected, "{what}");
        resumed
    };
    assert_eq!(all_is_read("nothing is damaged"), 0);
    for node in [0, 1] {
        let run = cluster.runs(node).swap_remove(0);
        let path = run.path().expect("kept runs are on disk");
        let whole = std::fs::read(path).expect("a file");
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(path, damaged).expect("written");
        assert!(all_is_read("a damaged block") > 0, "of node {node}");
        std::fs::remove_file(path).expect("removed");
        assert!(all_is_read("no file") > 0, "of node {node}");
        std::fs::write(path, whole).expect("written");
    }
    // Where the copy is no better, it is told what is lost.
    let run = cluster.runs(1).swap_remove(0);
    std::fs::remove_file(run.path().expect("on disk")).expect("removed");
    let copy = cluster.nodes[2].served.server().run(run.id).expect("there");
    std::fs::remove_file(copy.path().expect("on disk")).expect("removed");
    let lost = read_with(&cluster, &outcome, 0, (None, None), &copies).expect_err("both are gone");
    assert_eq!(lost.to_failure().lost_runs, [run.id]);
}

/// Runs of node 1 of so many blocks that they lie beside each other in a stream; how full chunks get is chance.
fn long_runs(cluster: &Cluster) -> Vec<Arc<chunkserver::Run>> {
    let is_long = |run: &Arc<chunkserver::Run>| run.records() > 300;
    let runs: Vec<_> = cluster.runs(1).into_iter().filter(is_long).collect();
    assert!(!runs.is_empty() && cluster.runs(1).len() > 1);
    runs
}

/// A run that leaves the stream in the middle does not stand in the way of the others, which have no copies.
#[test]
fn one_run_moves_and_the_others_stay() {
    let mut case = Case { keep: true, ifile_count: 6, ..Case::plain() };
    case.tasks = vec![(0..1200u32).map(|number| (number.to_be_bytes().to_vec(), 50)).collect(); 3];
    let (cluster, outcome) = sealed(&case);
    let expected = case.expected(&outcome, (None, None));
    let copies = copies(&cluster);
    for run in long_runs(&cluster) {
        let path = run.path().expect("kept runs are on disk");
        let whole = std::fs::read(path).expect("a file");
        // Behind a block's header, which the other node looks at.
        let blocks = ifile::RunFile::open(&whole[..]).expect("a run file").index.entries;
        let mut damaged = whole.clone();
        damaged[blocks[blocks.len() / 3].offset_bytes as usize + ifile::BLOCK_HEADER_BYTES + 9] ^= 1;
        std::fs::write(path, damaged).expect("written");
        let only = BTreeMap::from([(run.id, copies[&run.id].clone())]);
        let read = read_with(&cluster, &outcome, 0, (None, None), &only);
        let ((records, _), resumed) = read.expect("of this run there is a copy");
        assert!(records == expected && resumed == 1);
        std::fs::write(path, whole).expect("written");
    }
}

/// The other node cannot read a block at all and breaks the stream off: runs without copies fail, and what they are told is
/// the run that is lost.
#[test]
fn reader_without_copies_names_the_lost_data() {
    let mut case = Case { keep: true, ifile_count: 6, ..Case::plain() };
    case.tasks = vec![(0..1200u32).map(|number| (number.to_be_bytes().to_vec(), 50)).collect(); 3];
    let (cluster, outcome) = sealed(&case);
    let expected = case.expected(&outcome, (None, None));
    let (copies, mut told) = (copies(&cluster), 0);
    for run in long_runs(&cluster) {
        let path = run.path().expect("kept runs are on disk");
        let whole = std::fs::read(path).expect("a file");
        let blocks = ifile::RunFile::open(&whole[..]).expect("a run file").index.entries;
        let mut damaged = whole.clone();
        damaged[blocks[blocks.len() / 2].offset_bytes as usize + 8] ^= 1;
        std::fs::write(path, damaged).expect("written");
        let only = BTreeMap::from([(run.id, copies[&run.id].clone())]);
        match read_with(&cluster, &outcome, 0, (None, None), &only) {
            // The others had ended by then.
            Ok(((records, _), _)) => assert!(records == expected),
            Err(lost) => {
                assert_eq!(lost.to_failure().lost_runs, [run.id], "{lost:?}");
                told += 1;
            }
        }
        std::fs::write(path, whole).expect("written");
    }
    assert!(told > 0);
}

#[test]
fn a_cancelled_read_does_not_go_on_elsewhere() {
    let case = Case { keep: true, ..Case::plain() };
    let (cluster, _) = sealed(&case);
    let runs: Vec<RunId> = cluster.runs(1).iter().map(|run| run.id).collect();
    let asked = ScanOptions { copies: copies(&cluster), ..options(runs, (None, None), Vec::new()) };
    asked.cancelled.store(true, Ordering::Relaxed);
    // A port that takes connections and answers nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let silent = Peer { url, ..cluster.peer(1) };
    let scan = RemoteScan::start(&cluster.client, &silent, asked).expect("started");
    let error = scan.into_runs().err().expect("it was cancelled");
    assert!(matches!(error, ScanError::There(DataError::Cancelled)), "{error:?}");
}
