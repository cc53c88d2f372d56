//! CPU seconds of appending records to another chunkserver over loopback HTTP, and of reading them back, against the
//! same in process:
//!
//! ```text
//! cargo run --release -p dataport --example speed -- here 1000000000
//! cargo run --release -p dataport --example speed -- there 1000000000
//! ```
//!
//! A third argument `disk` keeps runs on disk. CPU is that of the whole process: appender, port, both ends of the
//! connection, and the sorters.

use api::{Codec, Layout};
use chunkserver::{ChunkServer, Config, RunCursor};
use dataport::{
    AnyRun, Chunkservers, DataClient, Peer, RemoteChunks, RemoteChunksOptions, RemoteScan, ScanOptions,
    SpreadByIfile, Token,
};
use iappender::{ChunkService, IAppender, WorkerSlabs};
use ids::{AttemptNumber, IfileIndex, JobId, NodeId, RunId, Source, TaskIndex};
use ifile::KeyShape;
use imerger::{Merge, SortedRun};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const JOB: JobId = JobId(1);
const IFILES: u32 = 8;
const MIB: u64 = 1 << 20;
/// Linux counts CPU time for `/proc` in hundredths of a second on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

struct OneServer(Arc<ChunkServer>);

impl Chunkservers for OneServer {
    fn chunkserver(&self, _: JobId, _: &str) -> Option<Arc<ChunkServer>> {
        Some(Arc::clone(&self.0))
    }

    fn incarnation(&self) -> u64 {
        1
    }

    fn admits_to_job(&self, _: JobId, _: &str) -> bool {
        true
    }
}

fn start(node: u32, dir: &Path, keep: bool, bytes: u64) -> Result<Arc<ChunkServer>, Box<dyn Error>> {
    let dir = dir.join(format!("node-{node}"));
    std::fs::create_dir(&dir)?;
    let layout = Layout {
        ifile_count: IFILES,
        chunk_bytes: 128 * MIB,
        frame_bytes: MIB / 2,
        block_bytes: MIB / 16,
        record_bytes_max: MIB,
        combine_window_bytes: 0,
        split_bytes: MIB,
        chunk_share_bytes: (2 * bytes + u64::from(IFILES) * 128 * MIB).next_multiple_of(MIB),
        sort_share_bytes: 256 * MIB,
        io_share_bytes: 128 * MIB,
    };
    let config = Config {
        job: JOB,
        node: NodeId(node),
        layout,
        codec: Codec::Lz4,
        key_shape: KeyShape::Whole,
        disk_dirs: vec![dir],
        slots: 2,
        keep,
        elsewhere: true,
        cancelled: Arc::new(AtomicBool::new(false)),
    };
    Ok(Arc::new(ChunkServer::start(config)?))
}

/// CPU seconds of this process so far: of users' code and of the kernel.
fn cpu_seconds() -> Result<(f64, f64), Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    Ok((ticks(11) / TICKS_PER_SECOND, ticks(12) / TICKS_PER_SECOND))
}

struct Phase {
    started: Instant,
    cpu: (f64, f64),
}

impl Phase {
    fn start() -> Result<Self, Box<dyn Error>> {
        Ok(Self { started: Instant::now(), cpu: cpu_seconds()? })
    }

    fn end(self, name: &str) -> Result<(), Box<dyn Error>> {
        let wall = self.started.elapsed().as_secs_f64();
        let (user, system) = cpu_seconds()?;
        let (user, system) = (user - self.cpu.0, system - self.cpu.1);
        println!(
            "{name:8} cpu {:6.2} s  (user {user:.2}, system {system:.2})  wall {wall:.2} s",
            user + system
        );
        Ok(())
    }
}

fn append(service: &dyn ChunkService, source: Source, records: u64) -> Result<(), Box<dyn Error>> {
    let mut slabs = WorkerSlabs::default();
    let mut appender = IAppender::new(service, &mut slabs, source, KeyShape::Whole, IFILES);
    let value = [b'v'; 88];
    let mut state = 1u64;
    for _ in 0..records {
        // An LCG is enough for keys in no order (Knuth's constants).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut key = [b'k'; 10];
        key[..8].copy_from_slice(&state.to_be_bytes());
        appender.append(IfileIndex((state >> 61) as u32), &key, &value, key.len())?;
    }
    appender.finish()?;
    Ok(())
}

/// Runs as a whole, from where they lie.
fn whole(runs: Vec<RunId>, cancelled: Arc<AtomicBool>) -> ScanOptions {
    let (skip_records, copies) = Default::default();
    let (lower, upper, compress, places) = (None, None, None, None);
    ScanOptions {
        job: JOB,
        runs,
        lower,
        upper,
        skip_records,
        copies,
        places,
        compress,
        attempt: None,
        cancelled,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let there = arguments.get(1).is_some_and(|place| place == "there");
    let bytes: u64 = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1_000_000_000);
    let keep = arguments.get(3).is_some_and(|place| place == "disk");
    let place = tempfile::tempdir_in(".")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let here = start(1, place.path(), keep, bytes)?;
    let other = if there { start(2, place.path(), keep, bytes)? } else { Arc::clone(&here) };
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = dataport::router(Arc::new(OneServer(Arc::clone(&other))));
    runtime.spawn(async move { axum::serve(listener, router).await });
    let client = DataClient::new(runtime.handle().clone())?.with_token(Token::new("any".into()));
    let peer = Peer { node: NodeId(2), url, incarnation: 1 };

    let source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
    let cancelled = Arc::new(AtomicBool::new(false));
    let phase = Phase::start()?;
    if there {
        let options = RemoteChunksOptions {
            job: JOB,
            source,
            here: NodeId(1),
            local: Arc::clone(&here),
            is_candidate: false,
            avoided: None,
            peers: vec![peer.clone()],
            slots: 2,
            cancelled: Arc::clone(&cancelled),
        };
        let placement = SpreadByIfile::by_number(0);
        append(&RemoteChunks::new(&client, &placement, options), source, bytes / 100)?;
    } else {
        append(here.service(), source, bytes / 100)?;
    }
    phase.end("append")?;
    let phase = Phase::start()?;
    other.seal(&[]).map_err(|failure| failure.to_string())?;
    phase.end("seal")?;

    let all: Vec<IfileIndex> = (0..IFILES).map(IfileIndex).collect();
    let runs = other.runs_of(&all);
    let phase = Phase::start()?;
    let mut cursors = Vec::new();
    if there {
        let options = whole(runs.iter().map(|run| run.id).collect(), cancelled);
        let scan = RemoteScan::start(&client, &peer, options)?;
        cursors.extend(scan.into_runs()?.into_iter().map(AnyRun::There));
    } else {
        for run in &runs {
            cursors.push(AnyRun::Here(RunCursor::open(run, None, None, 1 << 20)?));
        }
    }
    let mut merge = Merge::new(cursors)?;
    let (mut records, mut key_bytes) = (0u64, 0u64);
    while let Some(run) = merge.advance()? {
        records += 1;
        key_bytes += merge.run(run).record().key.len() as u64;
    }
    phase.end("merge")?;
    println!("{records} records of {} runs, {key_bytes} bytes of keys", runs.len());
    Ok(())
}
