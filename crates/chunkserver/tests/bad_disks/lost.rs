//! A disk that gives nothing back: what lay there is told, and who has read all of it is known.

use crate::job::{JOB, append, layout, temporary_directory};
use api::Codec;
use chunkserver::{ChunkServer, Config, LostOnDisk, Run, RunCursor};
use ids::{AttemptKey, AttemptNumber, DiskIndex, IfileIndex, NodeId, StageIndex, TaskIndex, TaskKey};
use ifile::KeyShape;
use imerger::SortedRun;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const IFILE: IfileIndex = IfileIndex(0);
const CHUNK_BYTES: u64 = 64 << 10;

/// Some runs on each of two disks.
fn server_on_two_disks(dirs: [&Path; 2]) -> ChunkServer {
    let config = Config {
        job: JOB,
        node: NodeId(0),
        layout: layout(1, CHUNK_BYTES, 8),
        codec: Codec::None,
        key_shape: KeyShape::Whole,
        disk_dirs: dirs.map(Path::to_path_buf).to_vec(),
        slots: 1,
        keep: true,
        elsewhere: true,
        cancelled: Arc::default(),
    };
    let server = ChunkServer::start(config).expect("a chunkserver starts");
    (0..4).for_each(|task| append(&server, task, 2000).expect("the disks take all"));
    server
}

fn attempt(task: u32) -> AttemptKey {
    let task = TaskKey { job: JOB, stage: StageIndex(3), task: TaskIndex(task) };
    AttemptKey { task, attempt: AttemptNumber(0) }
}

#[test]
fn sealed_job_reports_lost_runs_and_their_readers() {
    let (first, second) = (temporary_directory(), temporary_directory());
    let server = server_on_two_disks([first.path(), second.path()]);
    let sealed = server.seal(&[]).expect("all is sorted");
    let on_second: BTreeSet<_> =
        sealed.runs.iter().filter(|run| run.disk == DiskIndex(1)).map(|run| run.run).collect();
    assert!(!on_second.is_empty() && on_second.len() < sealed.runs.len());
    assert_eq!(server.look_for_losses(DiskIndex(1)), LostOnDisk::default());
    let runs: Vec<Arc<Run>> = server.runs_of(&[IFILE]);
    // Small windows: one has read its beginning only.
    let open = |run| RunCursor::open(run, None, None, 8 << 10).expect("a run opens");
    let mut patient: Vec<RunCursor<'_>> = runs.iter().map(|run| open(run)).collect();
    let mut quick: Vec<RunCursor<'_>> = runs.iter().map(|run| open(run)).collect();
    patient.iter_mut().for_each(|cursor| assert!(cursor.advance().expect("a record")));
    for cursor in &mut quick {
        while cursor.advance().expect("a record") {}
    }
    let marks = |cursors: &[RunCursor<'_>]| cursors.iter().filter_map(RunCursor::read_mark).collect();
    let _patient = server.begin_reading(attempt(0), marks(&patient));
    let _quick = server.begin_reading(attempt(1), marks(&quick));
    std::fs::remove_dir_all(second.path()).expect("a disk goes");
    let lost = server.look_for_losses(DiskIndex(1));
    assert_eq!(lost.runs, on_second);
    let read = server.have_read(&lost.runs);
    assert_eq!(read.into_iter().collect::<Vec<_>>(), [(attempt(1), on_second)]);
    // What is sealed stays as it was told.
    assert_eq!(server.seal(&[]).expect("all is sorted").runs.len(), sealed.runs.len());
    assert_eq!(server.look_for_losses(DiskIndex(0)), LostOnDisk::default());
}

#[test]
fn seal_reports_data_lost_before_it() {
    let (first, second) = (temporary_directory(), temporary_directory());
    let server = server_on_two_disks([first.path(), second.path()]);
    // Chunks that were full were written in the background.
    let is_there = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|extension| extension == "ifile"))
    };
    while !std::fs::read_dir(second.path()).expect("a directory").any(is_there) {
        std::thread::yield_now();
    }
    std::fs::remove_dir_all(second.path()).expect("a disk goes");
    let mut lost = LostOnDisk::default();
    while lost.runs.is_empty() {
        lost = server.look_for_losses(DiskIndex(1));
    }
    let sealed = server.seal(&[]).expect("the rest is sorted");
    let told: BTreeSet<_> = sealed.lost.iter().copied().collect();
    assert!(!lost.chunks.is_empty() && lost.chunks.is_subset(&told), "{lost:?} {told:?}");
    assert!(sealed.lost_because.is_some());
    let left: BTreeSet<_> = sealed.runs.iter().map(|run| run.run).collect();
    assert!(left.is_disjoint(&lost.runs));
}
