//! Copies of runs: byte for byte the run's file, read like it, and of no account until they stand for it.

#[path = "bad_disks/job.rs"]
mod job;

use api::Codec;
use api::task::SealResult;
use chunkserver::{ChunkServer, ChunkServerError, CopyWriter, RunToCopy, run_file_name};
use ids::{IfileIndex, NodeId, RunId};
use job::{Content, append, layout, merged, server, server_on, temporary_directory};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CHUNK_BYTES: u64 = 16 << 10;
const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);
/// Long enough for anything that is to happen at all.
const LONG: Duration = Duration::from_secs(60);

fn pieces(server: &ChunkServer, run: RunId) -> Result<Vec<Vec<u8>>, ChunkServerError> {
    let mut source = server.copy_source(run)?;
    let mut pieces = Vec::new();
    while let Some(piece) = source.next_piece()? {
        pieces.push(piece);
    }
    assert_eq!(pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), source.bytes());
    assert!(source.run() == run && !source.chunks().is_empty());
    Ok(pieces)
}

fn write_all(mut writer: CopyWriter, bytes: &[u8], piece_bytes: usize) -> Result<(), ChunkServerError> {
    for piece in bytes.chunks(piece_bytes) {
        writer.write(piece)?;
    }
    writer.finish()
}

fn receive(there: &ChunkServer, run: RunId, bytes: &[u8]) -> Result<(), ChunkServerError> {
    write_all(there.receive_copy(run, bytes.len() as u64)?, bytes, 1000)
}

/// The runs that want copies, oldest first.
fn all_to_copy(server: &ChunkServer) -> Vec<RunToCopy> {
    std::iter::from_fn(|| server.next_to_copy(Duration::ZERO)).collect()
}

fn run_ids(server: &ChunkServer) -> Vec<RunId> {
    let all: Vec<IfileIndex> = (0..8).map(IfileIndex).collect();
    server.runs_of(&all).iter().map(|run| run.id).collect()
}

/// All of a run, by a cursor.
fn content(server: &ChunkServer, run: RunId) -> Result<Content, ChunkServerError> {
    let run = server.run(run).ok_or(ChunkServerError::UnknownRun(run))?;
    merged(&[&run], None, None)
}

/// A range of a run, by a scan that leaves out records.
fn scanned(server: &ChunkServer, run: RunId, skip_records: u64) -> (u64, u64, Vec<u8>) {
    let mut scan = server.scan(run, Some(b"key-3"), Some(b"key-c"), 4096).expect("opened").uncompressed();
    let skipped = scan.skip_records(skip_records).expect("skipped");
    let (mut records, mut raw) = (0, Vec::new());
    let mut encoded = Vec::new();
    while let Some(block) = scan.next_block(&mut encoded).expect("read") {
        records += u64::from(block.records);
        let header = ifile::BlockHeader::decode(&encoded).expect("a header");
        let mut block = Vec::new();
        ifile::block::decode_into(&header, &encoded[ifile::BLOCK_HEADER_BYTES..], &mut block)
            .expect("a block");
        raw.extend_from_slice(&block);
        encoded.clear();
    }
    (skipped, records, raw)
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("a directory").next().is_none()
}

/// Books are the same but for the order of chunks, and sources that appended nothing.
fn check_books(mut here: SealResult, there: SealResult) {
    for chunk in &mut here.chunks {
        chunk.sources.retain(|(_, sum)| sum.records > 0);
    }
    assert_eq!(here.chunks, there.chunks);
    assert_eq!(here.runs, there.runs);
}

#[derive(Clone, Debug)]
struct Case {
    codec: Codec,
    keep: bool,
    ifile_count: u32,
    arena_chunks: u64,
    records: Vec<u32>,
    begin_first: bool,
    piece_bytes: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)];
    let records = prop::collection::vec(1u32..600, 1..5);
    (codec, any::<bool>(), 1u32..4, 4u64..20, records, any::<bool>(), 1usize..40_000).prop_map(
        |(codec, keep, ifile_count, spare, records, begin_first, piece_bytes)| Case {
            codec,
            keep,
            ifile_count,
            arena_chunks: u64::from(ifile_count) + spare,
            records,
            begin_first,
            piece_bytes,
        },
    )
}

fn check(case: &Case) {
    let (place_here, place_there) = (temporary_directory(), temporary_directory());
    let layout = layout(case.ifile_count, CHUNK_BYTES, case.arena_chunks);
    let here = server(layout, case.codec, place_here.path(), case.keep);
    let there = server_on(THERE, layout, case.codec, place_there.path(), false);
    if case.begin_first {
        here.begin_copying();
    }
    for (task, records) in case.records.iter().enumerate() {
        append(&here, task as u32, *records).expect("memory and disk take it");
    }
    here.seal(&[]).expect("sorted");
    assert!(case.begin_first || here.next_to_copy(Duration::ZERO).is_none());
    here.begin_copying();
    let ids = run_ids(&here);
    assert_eq!(here.uncopied_count(), ids.len());
    let before: Vec<Content> = ids.iter().map(|run| content(&here, *run).expect("read")).collect();
    let before_scans: Vec<_> = ids.iter().map(|run| scanned(&here, *run, 7)).collect();
    let mut to_copy: Vec<RunId> = all_to_copy(&here).iter().map(|each| each.run).collect();
    to_copy.sort();
    assert_eq!(to_copy, ids);
    for run in &ids {
        let bytes = pieces(&here, *run).expect("whole").concat();
        let path = here.run(*run).and_then(|run| run.path().map(Path::to_path_buf)).expect("it is on disk");
        assert!(std::fs::read(path).expect("a file") == bytes, "{run} is another file");
        let writer = there.receive_copy(*run, bytes.len() as u64).expect("taken");
        write_all(writer, &bytes, case.piece_bytes).expect("a copy");
        assert!(std::fs::read(place_there.path().join(run_file_name(*run))).expect("a file") == bytes);
        receive(&there, *run, &bytes).expect("it may come twice");
        here.copied(*run);
    }
    assert_eq!((here.uncopied_count(), there.uncopied_count()), (0, 0));
    for ((run, content_before), scan_before) in ids.iter().zip(before).zip(before_scans) {
        for server in [&here, &there] {
            assert!(content(server, *run).expect("read") == content_before, "{run} is read differently");
            let (skipped, records, raw) = scanned(server, *run, 0);
            assert_eq!((skipped, records), (0, scan_before.0 + scan_before.1));
            // What stands behind the blocks that were left out.
            assert!(raw.ends_with(&scan_before.2));
        }
    }
    check_standing(case, &here, &there, &ids);
}

/// Copies are in no inventory but where they stand, and then they are merged like runs of their own.
fn check_standing(case: &Case, here: &ChunkServer, there: &ChunkServer, ids: &[RunId]) {
    let nothing = there.seal(&[]).expect("sealed");
    assert!(nothing.runs.is_empty() && nothing.chunks.is_empty() && run_ids(there).is_empty());
    let sealed = there.seal(ids).expect("all are there");
    assert_eq!(there.seal(ids).expect("again"), sealed);
    check_books(here.seal(&[]).expect("sealed"), sealed.clone());
    let missing = RunId::on(NodeId(5), 3);
    let error = there.seal(&[ids[0], missing]).expect_err("one is not there");
    assert_eq!(error.lost_run(), Some(missing));
    there.begin_copying();
    for ifile in (0..case.ifile_count).map(IfileIndex) {
        let of_ifile: Vec<RunId> =
            sealed.runs.iter().filter(|run| run.ifile == ifile).map(|run| run.run).collect();
        if of_ifile.is_empty() {
            continue;
        }
        let runs: Vec<_> = of_ifile.iter().map(|run| here.run(*run).expect("there")).collect();
        let expected = merged(&runs.iter().collect::<Vec<_>>(), None, None).expect("read");
        let result = there.merge_runs(ifile, &of_ifile, 4096).expect("merged");
        let read = content(there, result.run.run).expect("read");
        assert_eq!((read.sum, read.records.len()), (expected.sum, expected.records.len()));
        let keys = |content: &Content| content.records.iter().map(|each| each.0.clone()).collect::<Vec<_>>();
        assert!(keys(&read) == keys(&expected), "the merged run of {ifile} differs");
        assert!(of_ifile.iter().all(|run| there.run(*run).is_none()));
        assert!(there.seal(&of_ifile).is_err());
        assert_eq!(all_to_copy(there).iter().map(|each| each.run).collect::<Vec<_>>(), [result.run.run]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn copies_are_the_runs_and_stand_for_them(case in cases()) {
        check(&case);
    }
}

/// Two runs of one I-file on disk.
fn two_runs(dir: &Path) -> (ChunkServer, Vec<RunId>) {
    let here = server(layout(1, CHUNK_BYTES, 8), Codec::Lz4, dir, true);
    (0..2).for_each(|map_task| append(&here, map_task, 300).expect("memory and disk take it"));
    here.seal(&[]).expect("sorted");
    let ids = run_ids(&here);
    assert!(ids.len() > 1);
    (here, ids)
}

#[test]
fn scans_leave_out_only_the_whole_blocks_asked() {
    for keep in [false, true] {
        let place = temporary_directory();
        let here = server(layout(1, CHUNK_BYTES, 8), Codec::Lz4, place.path(), keep);
        append(&here, 0, 140).expect("memory takes it");
        here.seal(&[]).expect("sorted");
        for run in run_ids(&here) {
            let (_, all, raw) = scanned(&here, run, 0);
            let mut seen = 0;
            for records in 0..=all + 3 {
                let (skipped, left, rest) = scanned(&here, run, records);
                assert!(skipped <= records && skipped >= seen && skipped + left == all);
                assert!(raw.ends_with(&rest) && (left > 0 || skipped == all));
                seen = skipped;
            }
            assert_eq!(seen, all);
        }
    }
}

#[test]
fn damaged_run_is_found_before_its_copy() {
    let place = temporary_directory();
    let (here, ids) = two_runs(place.path());
    let path = place.path().join(run_file_name(ids[0]));
    let bytes = std::fs::read(&path).expect("a file");
    let expect_lost = |what: &str| {
        let error = pieces(&here, ids[0]).expect_err(what);
        assert_eq!(error.lost_run(), Some(ids[0]), "{what}: {error:?}");
    };
    for at in (0..bytes.len()).step_by(11).chain(bytes.len() - 128..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, damaged).expect("written");
        expect_lost(&format!("a bit of byte {at}"));
    }
    for length in [0, 8, 64, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).expect("written");
        expect_lost(&format!("cut at {length}"));
    }
    std::fs::remove_file(&path).expect("removed");
    expect_lost("gone");
    std::fs::write(&path, &bytes).expect("written");
    assert!(pieces(&here, ids[0]).expect("whole again").concat() == bytes);
    assert_eq!(
        pieces(&here, RunId::on(HERE, 99)).expect_err("unknown").lost_run(),
        Some(RunId::on(HERE, 99))
    );
}

#[test]
fn damaged_copy_is_never_accepted() {
    let place = temporary_directory();
    let (here, ids) = two_runs(place.path());
    let bytes = pieces(&here, ids[0]).expect("whole").concat();
    let check = |what: String, damaged: &[u8]| {
        let place = temporary_directory();
        let there = server_on(THERE, layout(1, CHUNK_BYTES, 2), Codec::Lz4, place.path(), false);
        match receive(&there, ids[0], damaged) {
            Err(_) => {
                assert!(there.run(ids[0]).is_none() && is_empty(place.path()), "{what}");
                assert!(there.seal(&[ids[0]]).is_err());
                receive(&there, ids[0], &bytes).expect("it may come again");
            }
            // A block: whoever carries it has a checksum over all of it, and so has the block.
            Ok(()) => {
                let error = content(&there, ids[0]).expect_err(&what);
                assert_eq!(error.lost_run(), Some(ids[0]), "{what}");
                let other = receive(&there, ids[0], &bytes).expect_err("it is not what is here");
                assert!(matches!(other, ChunkServerError::OtherCopy(run) if run == ids[0]), "{other:?}");
            }
        }
    };
    for at in (0..bytes.len()).step_by(97).chain((bytes.len() - 128..bytes.len()).step_by(5)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        check(format!("a bit of byte {at}"), &damaged);
    }
    for length in [0, 63, 200, bytes.len() / 2, bytes.len() - 1] {
        check(format!("cut at {length}"), &bytes[..length]);
    }
    // A whole file of another run.
    check("another run".to_string(), &pieces(&here, ids[1]).expect("whole").concat());
}

#[test]
fn copies_are_received_only_when_permitted() {
    let place = temporary_directory();
    let (here, ids) = two_runs(place.path());
    let bytes = pieces(&here, ids[0]).expect("whole").concat();
    let own = here.receive_copy(ids[0], bytes.len() as u64).err().expect("it was made here");
    assert!(matches!(own, ChunkServerError::OwnRun(run) if run == ids[0]), "{own:?}");

    let place = temporary_directory();
    let there = server_on(THERE, layout(1, CHUNK_BYTES, 2), Codec::Lz4, place.path(), false);
    let mut first = there.receive_copy(ids[0], bytes.len() as u64).expect("nobody else does");
    first.write(&bytes[..100]).expect("written");
    let second = there.receive_copy(ids[0], bytes.len() as u64).err().expect("one at a time");
    assert!(matches!(second, ChunkServerError::BeingReceived(run) if run == ids[0]), "{second:?}");
    drop(first);
    assert!(is_empty(place.path()), "half a copy is left");
    let mut short = there.receive_copy(ids[0], bytes.len() as u64).expect("the first one is gone");
    short.write(&bytes[..100]).expect("written");
    assert!(matches!(short.finish(), Err(ChunkServerError::CopyLength { present_bytes: 100, .. })));
    let mut long = there.receive_copy(ids[0], 100).expect("the next one");
    assert!(matches!(long.write(&bytes), Err(ChunkServerError::CopyLength { .. })));
    drop(long);
    assert!(is_empty(place.path()) && there.run(ids[0]).is_none());
    receive(&there, ids[0], &bytes).expect("a copy");
    // One that went with its disk is made anew.
    let path = place.path().join(run_file_name(ids[0]));
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(there.unreadable_runs(), []);
    receive(&there, ids[0], &bytes).expect("a copy");
    assert!(std::fs::read(&path).expect("a file") == bytes);
}

#[test]
fn copy_goes_to_a_disk_that_takes_it() {
    let place = temporary_directory();
    let (here, ids) = two_runs(place.path());
    let disks = [temporary_directory(), temporary_directory()];
    let layout = layout(1, CHUNK_BYTES, 2);
    let config = chunkserver::Config {
        job: job::JOB,
        node: THERE,
        layout,
        codec: Codec::Lz4,
        key_shape: ifile::KeyShape::Whole,
        disk_dirs: disks.iter().map(|disk| disk.path().to_path_buf()).collect(),
        slots: 1,
        keep: false,
        elsewhere: false,
        cancelled: Arc::default(),
    };
    let there = ChunkServer::start(config).expect("started");
    let there_on = |run: RunId, disk: usize| disks[disk].path().join(run_file_name(run)).exists();
    let preferred = |run: RunId| (run.number() % 2) as usize;
    there.use_disks(&[preferred(ids[0]) != 0, preferred(ids[0]) != 1]);
    receive(&there, ids[0], &pieces(&here, ids[0]).expect("whole").concat()).expect("a copy");
    assert!(there_on(ids[0], 1 - preferred(ids[0])), "an avoided disk was used");
    let sealed = there.seal(&ids[..1]).expect("there");
    assert_eq!(usize::from(sealed.runs[0].disk.0), 1 - preferred(ids[0]));
    assert_eq!(sealed.chunks[0].disk, sealed.runs[0].disk);
    there.use_disks(&[true, true]);
    std::fs::remove_dir_all(disks[preferred(ids[1])].path()).expect("a disk goes");
    receive(&there, ids[1], &pieces(&here, ids[1]).expect("whole").concat()).expect("a copy");
    assert!(there_on(ids[1], 1 - preferred(ids[1])));
    std::fs::create_dir(disks[preferred(ids[1])].path()).expect("for the end of the test");
}

#[test]
fn runs_are_copied_in_order_of_age() {
    let place = temporary_directory();
    let (here, ids) = two_runs(place.path());
    assert_eq!((here.uncopied_count(), here.next_to_copy(Duration::ZERO)), (0, None));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| here.next_to_copy(LONG));
        here.begin_copying();
        let first = waiting.join().expect("no panic").expect("there are some");
        assert_eq!(here.uncopied_count(), ids.len());
        here.copy_again(first);
        let order = all_to_copy(&here);
        assert_eq!(order.last(), Some(&first), "what comes back goes behind all others");
        let ages: Vec<_> = order[..order.len() - 1].iter().map(|each| each.sorted_at).collect();
        assert!(ages.is_sorted() && ages.iter().all(|age| *age >= first.sorted_at));
        order.into_iter().for_each(|each| here.copy_again(each));
    });
    // What is merged away wants no copy, whether it waits for one or has begun; what it was merged into does.
    let begun = here.next_to_copy(Duration::ZERO).expect("there are some");
    let result = here.merge_runs(IfileIndex(0), &ids, 4096).expect("merged");
    here.copy_again(begun);
    assert_eq!(here.uncopied_count(), 1);
    assert_eq!(here.next_to_copy(LONG).map(|each| each.run), Some(result.run.run));
    here.copied(result.run.run);
    assert_eq!((here.uncopied_count(), here.next_to_copy(Duration::ZERO)), (0, None));
}

/// A chunk that is not full is sorted and copied all the same, and appenders go on with another chunk.
#[test]
fn waiting_chunk_is_closed_for_its_copy() {
    let place = temporary_directory();
    let here = server(layout(1, CHUNK_BYTES, 8), Codec::Lz4, place.path(), false);
    here.begin_copying();
    assert_eq!(here.begun_chunks(), []);
    append(&here, 0, 20).expect("memory takes it");
    let begun = here.begun_chunks();
    assert_eq!((begun.len(), here.next_to_copy(Duration::ZERO)), (1, None));
    here.close_chunks(&begun);
    let first = here.next_to_copy(LONG).expect("it is sorted");
    assert_eq!(here.begun_chunks(), []);
    append(&here, 1, 20).expect("another chunk takes it");
    // One that is closed already stays so.
    here.close_chunks(&begun);
    assert_eq!(here.begun_chunks().len(), 1);
    let sealed = here.seal(&[]).expect("sorted");
    assert_eq!((sealed.runs.len(), sealed.runs.iter().map(|run| run.records).sum::<u64>()), (2, 40));
    assert!(sealed.runs.iter().any(|run| run.run == first.run && run.chunks == begun));
}

/// Several copies of a run that is only in memory, while appenders want its memory.
#[test]
fn a_run_in_memory_is_written_once() {
    let place = temporary_directory();
    let here = server(layout(1, CHUNK_BYTES, 6), Codec::Lz4, place.path(), false);
    here.begin_copying();
    std::thread::scope(|scope| {
        let copier = || {
            let mut copied = 0;
            while let Some(next) = here.next_to_copy(LONG) {
                let both: Vec<Vec<u8>> = std::thread::scope(|scope| {
                    let threads = [(); 2].map(|()| scope.spawn(|| pieces(&here, next.run)));
                    threads.map(|thread| thread.join().expect("no panic").expect("whole").concat()).into()
                });
                assert!(both[0] == both[1]);
                here.copied(next.run);
                copied += 1;
                if copied == 20 {
                    break;
                }
            }
            copied
        };
        let copier = scope.spawn(copier);
        (0..8).for_each(|map_task| append(&here, map_task, 1000).expect("memory and disk take it"));
        here.seal(&[]).expect("sorted");
        assert_eq!(copier.join().expect("no panic"), 20);
    });
    let records: usize =
        run_ids(&here).iter().map(|run| content(&here, *run).expect("read").records.len()).sum();
    assert_eq!(records, 8000);
}
