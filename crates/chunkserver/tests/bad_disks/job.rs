//! A chunkserver with something in it, and how it is read.

use api::{Codec, DataSum, Layout};
use chunkserver::{ChunkServer, ChunkServerError, Config, Run, RunCursor};
use iappender::{AppendError, IAppender, WorkerSlabs};
use ids::{AttemptNumber, IfileIndex, JobId, Source, TaskIndex};
use ifile::{KeyShape, record_hash};
use imerger::{Merge, SortedRun};
use std::path::Path;
use std::sync::Arc;

pub const JOB: JobId = JobId(1);
const READ_AHEAD_BYTES: usize = 4096;

/// All that a reader got: its records in their order, and their sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    pub records: Vec<(Vec<u8>, u32)>,
    pub sum: DataSum,
}

impl Content {
    pub fn add(&mut self, encoded: &[u8], row: u32) {
        self.sum.add_record(encoded.len() as u64, record_hash(encoded));
        self.records.push((encoded.to_vec(), row));
    }
}

pub fn layout(ifile_count: u32, chunk_bytes: u64, chunks: u64) -> Layout {
    Layout {
        ifile_count,
        chunk_bytes,
        frame_bytes: 4 << 10,
        block_bytes: 1 << 10,
        record_bytes_max: chunk_bytes,
        combine_window_bytes: 0,
        split_bytes: 1 << 20,
        chunk_share_bytes: chunks * chunk_bytes,
        sort_share_bytes: chunk_bytes,
        io_share_bytes: chunk_bytes,
    }
}

/// In memory where that can be: a read past the page cache waits until what was just written is on the disk.
pub fn temporary_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

pub fn server(layout: Layout, codec: Codec, dir: &Path, keep: bool) -> ChunkServer {
    server_on(ids::NodeId(0), layout, codec, dir, keep)
}

pub fn server_on(node: ids::NodeId, layout: Layout, codec: Codec, dir: &Path, keep: bool) -> ChunkServer {
    let config = Config {
        job: JOB,
        node,
        layout,
        codec,
        key_shape: KeyShape::Whole,
        disk_dirs: vec![dir.to_path_buf()],
        slots: 1,
        keep,
        elsewhere: false,
        cancelled: Arc::default(),
    };
    ChunkServer::start(config).expect("a chunkserver starts")
}

/// Appends records as one finished attempt, to the I-files in turn. An error is one of the disks.
pub fn append(server: &ChunkServer, map_task: u32, records: u32) -> Result<(), AppendError> {
    let mut slabs = WorkerSlabs::default();
    let source = Source { map_task: TaskIndex(map_task), attempt: AttemptNumber(0) };
    let ifiles = server.layout().ifile_count;
    let mut appender = IAppender::new(server.service(), &mut slabs, source, KeyShape::Whole, ifiles);
    for number in 0..records {
        let key = format!("key-{:08x}", number.wrapping_mul(2_654_435_761) ^ map_task);
        let value = format!("value {number} of {map_task}, which is as long as others");
        appender.append(IfileIndex(number % ifiles), key.as_bytes(), value.as_bytes(), key.len())?;
    }
    appender.finish().map(drop)
}

pub fn merged(
    runs: &[&Arc<Run>],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Result<Content, ChunkServerError> {
    let cursors = runs.iter().map(|run| RunCursor::open(run, lower, upper, READ_AHEAD_BYTES));
    let mut merge = Merge::new(cursors.collect::<Result<Vec<_>, _>>()?)?;
    let mut content = Content::default();
    while let Some(index) = merge.advance()? {
        let cursor = merge.run(index);
        content.add(cursor.record().encoded, cursor.source_row());
    }
    Ok(content)
}
