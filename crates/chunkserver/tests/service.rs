//! Promises that appenders and readers may rely on, one at a time: fill, the limit of appenders, fences, memory,
//! broken disks.

use api::{Codec, Layout};
use arena::FrameBytes;
use chunkserver::{APPENDERS_PER_CHUNK_MAX, ChunkServer, ChunkServerError, Config, RunCursor};
use iappender::{AppendError, AppendFrame, AppendReply, IAppender, WorkerSlabs};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, Source, TaskIndex};
use ifile::record::{encode, record_hash};
use ifile::{FrameHeader, KeyShape};
use imerger::SortedRun;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KIB: u64 = 1 << 10;
const IFILE: IfileIndex = IfileIndex(0);

/// A layout with chunks of `frames` frames and memory for `chunks` chunks.
fn layout(ifile_count: u32, frames: u64, chunks: u64) -> Layout {
    let chunk_bytes = frames * 4 * KIB;
    Layout {
        ifile_count,
        chunk_bytes,
        frame_bytes: 4 * KIB,
        block_bytes: 16 * KIB,
        record_bytes_max: chunk_bytes,
        combine_window_bytes: 0,
        split_bytes: 1024 * KIB,
        chunk_share_bytes: chunks * chunk_bytes,
        sort_share_bytes: chunk_bytes,
        io_share_bytes: chunk_bytes,
    }
}

fn config(layout: Layout, disk_dirs: Vec<PathBuf>) -> Config {
    Config {
        job: JobId(1),
        node: ids::NodeId(0),
        layout,
        codec: Codec::Lz4,
        key_shape: KeyShape::Whole,
        disk_dirs,
        slots: 2,
        keep: false,
        elsewhere: false,
        cancelled: Arc::new(AtomicBool::new(false)),
    }
}

fn source(map_task: u32, attempt: u32) -> Source {
    Source { map_task: TaskIndex(map_task), attempt: AttemptNumber(attempt) }
}

/// A frame of one record.
fn frame(source: Source, sequence: u64, value: &[u8]) -> AppendFrame {
    let mut payload = Vec::new();
    encode(KeyShape::Whole, b"key", value, 3, &mut payload);
    let mut sum = api::DataSum::default();
    sum.add_record(payload.len() as u64, record_hash(&payload));
    let header = FrameHeader {
        ifile: IFILE,
        source,
        sequence,
        key_shape: KeyShape::Whole,
        sum,
        payload_crc32c: crc32c::crc32c(&payload),
    };
    AppendFrame { header, payload: FrameBytes::on_heap(payload, None) }
}

/// Appends `records` records of about 100 bytes under even keys, as one finished attempt.
fn append_records(server: &ChunkServer, slabs: &mut WorkerSlabs, source: Source, ifiles: u32, records: u32) {
    let mut appender = IAppender::new(server.service(), slabs, source, KeyShape::Whole, ifiles);
    for number in 0..records {
        let key = format!("{:08}", number.wrapping_mul(2_654_435_761) ^ source.map_task.0);
        let value = [b'v'; 90];
        appender.append(IfileIndex(number % ifiles), key.as_bytes(), &value, key.len()).unwrap();
    }
    appender.finish().unwrap();
}

#[test]
fn all_chunks_but_the_last_are_full() {
    const IFILES: u32 = 3;
    const TASKS: u32 = 24;
    let place = tempfile::tempdir().unwrap();
    // 256 frames a chunk, as `mapreduce::layout` chooses.
    let layout = layout(IFILES, 256, 5);
    let server = ChunkServer::start(config(layout, vec![place.path().to_path_buf()])).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut slabs = WorkerSlabs::default();
                for task in (0..TASKS).filter(|task| task % 4 == worker) {
                    append_records(server, &mut slabs, source(task, 0), IFILES, 6_000 + 300 * task);
                }
            });
        }
    });
    let sealed = server.seal(&[]).unwrap();
    for ifile in (0..IFILES).map(IfileIndex) {
        let mut chunks: Vec<_> = sealed.chunks.iter().filter(|chunk| chunk.ifile == ifile).collect();
        let bytes: u64 = chunks.iter().map(|chunk| chunk.appended_bytes).sum();
        assert_eq!(chunks.len() as u64, bytes.div_ceil(layout.chunk_bytes), "{ifile}");
        assert!(chunks.len() > 4, "{ifile} has too few chunks to say anything");
        chunks.pop();
        for chunk in chunks {
            let fill = chunk.appended_bytes as f64 / chunk.capacity_bytes as f64;
            assert!(fill >= 0.99, "{} of {ifile} is {fill} full", chunk.chunk);
        }
    }
    assert!(server.peak_bytes() <= layout.chunk_share_bytes);
}

#[test]
fn oversized_record_leaves_the_open_chunk_open() {
    let place = tempfile::tempdir().unwrap();
    let layout = layout(1, 16, 8);
    let server = ChunkServer::start(config(layout, vec![place.path().to_path_buf()])).unwrap();
    let mut slabs = WorkerSlabs::default();
    let mut appender = IAppender::new(server.service(), &mut slabs, source(0, 0), KeyShape::Whole, 1);
    let large = vec![b'l'; layout.chunk_bytes as usize + 1];
    for number in 0..40u32 {
        let value = if number % 20 == 10 { &large[..] } else { &large[..1000] };
        appender.append(IFILE, b"key", value, 3).unwrap();
    }
    appender.finish().unwrap();
    let sealed = server.seal(&[]).unwrap();
    let (oversize, plain): (Vec<_>, Vec<_>) = sealed.chunks.iter().partition(|chunk| chunk.oversize);
    assert_eq!((oversize.len(), plain.len()), (2, 1), "{:?}", sealed.chunks);
}

#[test]
fn second_chunk_opens_beyond_the_appender_limit() {
    let place = tempfile::tempdir().unwrap();
    let server = ChunkServer::start(config(layout(1, 256, 4), vec![place.path().to_path_buf()])).unwrap();
    let service = server.service();
    let most = APPENDERS_PER_CHUNK_MAX as u32;
    let bound: Vec<ChunkId> =
        (0..most + 2).map(|task| service.bind(IFILE, source(task, 0), 100).unwrap()).collect();
    assert!(bound[..most as usize].iter().all(|chunk| *chunk == bound[0]));
    assert!(bound[most as usize..].iter().all(|chunk| *chunk == bound[most as usize] && *chunk != bound[0]));
    // Binding again after a lost answer counts once.
    assert_eq!(service.bind(IFILE, source(most, 0), 100).unwrap(), bound[most as usize]);
    service.release(bound[0], source(5, 0));
    assert_eq!(service.bind(IFILE, source(1000, 0), 100).unwrap(), bound[0]);
}

#[test]
fn frames_count_once_and_closing_reports_them() {
    let place = tempfile::tempdir().unwrap();
    let server = ChunkServer::start(config(layout(1, 16, 4), vec![place.path().to_path_buf()])).unwrap();
    let service = server.service();
    let (first, second) = (source(0, 0), source(1, 0));
    let chunk = service.bind(IFILE, first, 100).unwrap();
    assert_eq!(service.bind(IFILE, second, 100).unwrap(), chunk);
    assert_eq!(service.append(chunk, frame(first, 0, b"value")).unwrap(), AppendReply::Acked);
    assert_eq!(service.append(chunk, frame(first, 0, b"value")).unwrap(), AppendReply::Acked);
    assert_eq!(service.append(chunk, frame(second, 0, b"other")).unwrap(), AppendReply::Acked);
    // One that fits no chunk is told so and closes nothing; the first that does not fit any more closes it.
    let large = service.append(chunk, frame(second, 1, &[b'l'; 64 << 10])).unwrap();
    assert_eq!(large, AppendReply::Closed { standing_end: 1 });
    assert_eq!(service.append(chunk, frame(first, 1, &[b'l'; 40 << 10])).unwrap(), AppendReply::Acked);
    let late = service.append(chunk, frame(second, 1, &[b'l'; 40 << 10])).unwrap();
    assert_eq!(late, AppendReply::Closed { standing_end: 1 });
    assert_eq!(
        service.append(chunk, frame(first, 2, b"late")).unwrap(),
        AppendReply::Closed { standing_end: 2 }
    );
    assert_eq!(service.append(chunk, frame(second, 0, b"other")).unwrap(), AppendReply::Acked);
    let sealed = server.seal(&[]).unwrap();
    let [chunk] = &sealed.chunks[..] else { panic!("{:?}", sealed.chunks) };
    assert_eq!(chunk.sources.iter().map(|(_, sum)| sum.records).collect::<Vec<_>>(), [2, 1]);
    let unknown = service.append(ChunkId(77), frame(first, 1, b"value"));
    assert!(matches!(unknown, Err(AppendError::Gone(ChunkId(77)))), "{unknown:?}");
}

#[test]
fn waiting_for_memory_ends_when_job_stops() {
    let place = tempfile::tempdir().unwrap();
    let config = config(layout(1, 16, 4), vec![place.path().to_path_buf()]);
    let cancelled = Arc::clone(&config.cancelled);
    let server = ChunkServer::start(config).unwrap();
    let service = server.service();
    let too_large = service.oversize(256 * KIB + 1).err();
    assert!(matches!(too_large, Some(AppendError::TooLarge { .. })), "{too_large:?}");
    let whole = service.oversize(256 * KIB).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| service.slab().err());
        cancelled.store(true, Ordering::Relaxed);
        assert!(matches!(waiting.join().unwrap(), Some(AppendError::Cancelled)));
    });
    drop(whole);
}

/// Appends more than fits memory, seals, and reads everything back in order.
fn spill_and_read(disk_dirs: Vec<PathBuf>) -> Result<u64, Arc<ChunkServerError>> {
    let server = ChunkServer::start(config(layout(1, 16, 3), disk_dirs)).unwrap();
    let mut slabs = WorkerSlabs::default();
    let mut appender = IAppender::new(server.service(), &mut slabs, source(0, 0), KeyShape::Whole, 1);
    for number in 0..8_000u32 {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        if let Err(error) = appender.append(IFILE, &key, &[7; 90], key.len()) {
            assert!(matches!(error, AppendError::Spill { .. }), "{error}");
            break;
        }
    }
    // Where the disks are gone the appender may learn it at its end, the seal at any time.
    let _ = appender.finish();
    server.seal(&[])?;
    let mut records = 0;
    for run in server.runs_of(&[IFILE]) {
        let mut cursor = RunCursor::open(&run, None, None, 4096).map_err(Arc::new)?;
        let mut last = Vec::new();
        while cursor.advance().map_err(Arc::new)? {
            assert!(last.as_slice() <= cursor.record().key);
            last = cursor.record().key.to_vec();
            records += 1;
        }
    }
    Ok(records)
}

#[test]
fn broken_disk_is_skipped_while_another_works() {
    let place = tempfile::tempdir().unwrap();
    let (good, gone) = (place.path().join("good"), place.path().join("gone"));
    std::fs::create_dir(&good).unwrap();
    assert_eq!(spill_and_read(vec![gone.clone(), good.clone()]).unwrap(), 8_000);
    assert_eq!(spill_and_read(vec![good, gone.clone()]).unwrap(), 8_000);
    let failure = spill_and_read(vec![gone]).unwrap_err();
    assert!(matches!(*failure, ChunkServerError::Disk { .. }), "{failure}");
}

#[test]
fn a_damaged_run_is_named_with_its_offset() {
    let place = tempfile::tempdir().unwrap();
    let mut config = config(layout(1, 16, 8), vec![place.path().to_path_buf()]);
    config.keep = true;
    let server = ChunkServer::start(config).unwrap();
    append_records(&server, &mut WorkerSlabs::default(), source(0, 0), 1, 400);
    server.seal(&[]).unwrap();
    let runs = server.runs_of(&[IFILE]);
    let path = runs[0].path().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[300] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let mut cursor = RunCursor::open(&runs[0], None, None, 4096).unwrap();
    let failure = loop {
        match cursor.advance() {
            Ok(more) => assert!(more, "the damage was not noticed"),
            Err(failure) => break failure,
        }
    };
    let said = failure.to_failure().message;
    assert!(said.contains("is damaged") && said.contains("byte"), "{said}");
}
