//! The sorter threads: they sort stable chunks into runs, and free memory when appenders wait.

use crate::Shared;
use crate::chunk_table::RawFile;
use crate::disks::{DiskFile, NewFile};
use crate::error::ChunkServerError;
use crate::run::{DiskRun, MemoryRun, Place, Run, summarize_disk, summarize_memory};
use api::task::RunSummary;
use arena::{FrameBytes, Scratch};
use chunksorter::{
    BATCH_RECORDS, FrameView, SortedOrder, order_bytes_max, order_frames, sort_frames, source_rows,
};
use faults::{CrashPoint, PlantedFault, crash_point, planted};
use iappender::AppendFrame;
use ids::{ChunkId, DiskIndex, IfileIndex, RunId};
use ifile::run_file::RunIdentity;
use ifile::{RunFile, RunWriter, SourceRow, raw_chunk};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Pause of a sorter that could free no memory.
const NOTHING_TO_DO: Duration = Duration::from_millis(10);

enum Work {
    Sort(Vec<ChunkId>),
    MakeRoom,
    Stop,
}

/// Sorts and frees memory until the chunkserver stops.
pub(crate) fn sorter_loop(shared: &Shared) {
    let mut scratch = None;
    loop {
        let work = next_work(shared, &mut scratch);
        let done = catch_unwind(AssertUnwindSafe(|| match &work {
            Work::Sort(chunks) => {
                sort_chunks(shared, chunks, &mut scratch).or_else(|error| shared.give_up(chunks, error))
            }
            Work::MakeRoom => shared.make_room().map(|made| {
                if !made {
                    std::thread::sleep(NOTHING_TO_DO);
                }
            }),
            Work::Stop => Ok(()),
        }));
        if matches!(work, Work::Stop) {
            return;
        }
        match done {
            Ok(Ok(())) => {}
            Ok(Err(error)) => shared.fail(error),
            Err(_) => shared.fail(ChunkServerError::SorterPanicked),
        }
        // After the failure: waiters for idle sorters must not take a failed sort for a finished one.
        shared.lock().busy_sorters -= 1;
        shared.changed.notify_all();
        shared.work.notify_all();
    }
}

fn next_work(shared: &Shared, scratch: &mut Option<Scratch>) -> Work {
    let mut table = shared.lock();
    loop {
        if table.stopping {
            return Work::Stop;
        }
        if table.failure.is_none() {
            if let Some(chunks) = table.take_sort_work() {
                table.busy_sorters += 1;
                return Work::Sort(chunks);
            }
            // A working sorter will free memory by itself; only if none works must memory be freed here.
            if table.memory_waiters > 0 && table.busy_sorters == 0 {
                table.busy_sorters += 1;
                return Work::MakeRoom;
            }
        }
        if table.sealing {
            // The last chunk is being sorted: the following merges share this memory.
            *scratch = None;
        }
        table = shared.work.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Makes the scratch of a sorter: at least `entries_min` entries and, beside an order of `records`, within its share.
fn sort_scratch<'a>(
    shared: &Shared,
    kept: &'a mut Option<Scratch>,
    records: u64,
    entries_min: u64,
) -> Result<&'a mut [u128], ChunkServerError> {
    let entry_bytes = size_of::<u128>() as u64;
    let all = (shared.sort_scratch_bytes / entry_bytes).max(entries_min) as usize;
    if kept.as_mut().is_none_or(|scratch| scratch.entries().len() < all) {
        *kept = None;
        *kept = Some(Scratch::new(all).map_err(ChunkServerError::Memory)?);
    }
    let entries = kept.as_mut().map(Scratch::entries).unwrap_or_default();
    let left_bytes = shared.sort_scratch_bytes.saturating_sub(order_bytes_max(records));
    let usable = (left_bytes / entry_bytes).max(entries_min) as usize;
    let usable = usable.min(entries.len());
    Ok(&mut entries[..usable])
}

/// A frame with the chunk it came from.
struct ChunkFrame {
    chunk: ChunkId,
    frame: AppendFrame,
}

fn sort_chunks(
    shared: &Shared,
    chunks: &[ChunkId],
    scratch: &mut Option<Scratch>,
) -> Result<(), ChunkServerError> {
    let mut frames = Vec::new();
    let mut raw_files = Vec::new();
    let (ifile, disk) = {
        let mut table = shared.lock();
        let (ifile, disk, taken) = table.take_frames(chunks);
        frames.extend(taken.into_iter().map(|(chunk, frame)| ChunkFrame { chunk, frame }));
        for id in chunks {
            let raw = table.chunks.get(id).and_then(|chunk| chunk.raw.clone());
            raw_files.extend(raw.map(|raw| (*id, raw)));
        }
        (ifile, disk)
    };
    for (id, raw) in &raw_files {
        read_raw_chunk(shared, *id, raw, &mut frames)?;
    }
    order_frames(&mut frames, |each| &each.frame.header);
    let started = Instant::now();
    let views: Vec<FrameView<'_>> = frames
        .iter()
        .map(|each| FrameView { chunk: each.chunk, header: &each.frame.header, payload: &each.frame.payload })
        .collect();
    let (sources, row_of_frame) = source_rows(&views);
    let payloads: Vec<&[u8]> = views.iter().map(|view| view.payload).collect();
    let counts: Vec<u64> = views.iter().map(|view| view.header.sum.records).collect();
    let (records, most) = (counts.iter().sum(), counts.iter().copied().max().unwrap_or(0));
    let entries = sort_scratch(shared, scratch, records, most)?;
    let order = sort_frames(shared.config.key_shape, &payloads, &counts, entries).map_err(|error| {
        ChunkServerError::NoRecord { chunk: frames[error.frame].chunk, offset_bytes: error.offset_bytes }
    })?;
    let bytes: u64 = views.iter().map(|view| view.header.sum.bytes).sum();
    shared.lock().figures.sort_seconds += started.elapsed().as_secs_f64();
    shared.progress.sorted_bytes.fetch_add(bytes, Ordering::Relaxed);
    let sorted = Sorted {
        ifile,
        disk,
        sources,
        row_of_frame,
        order,
        frames: frames.into_iter().map(|each| each.frame).collect(),
    };
    place_run(shared, sorted)?;
    shared.lock().sorted(chunks);
    for (_, raw) in raw_files {
        let _ = std::fs::remove_file(&raw.path);
    }
    Ok(())
}

/// Reads the frames of a spilled chunk back into memory, once there is room for them.
fn read_raw_chunk(
    shared: &Shared,
    chunk: ChunkId,
    raw: &RawFile,
    frames: &mut Vec<ChunkFrame>,
) -> Result<(), ChunkServerError> {
    let disk = |source| ChunkServerError::Disk { action: "read", path: raw.path.clone(), source };
    crate::spill::finish_raw_file(chunk, raw)?;
    let mut charge = loop {
        if let Some(charge) = shared.arena.try_charge(raw.bytes) {
            break Some(charge);
        }
        let given_up = {
            let table = shared.lock();
            table.stopping || table.failure.is_some()
        };
        if given_up || shared.is_cancelled() {
            return Err(ChunkServerError::Cancelled);
        }
        if !shared.make_room()? {
            std::thread::sleep(NOTHING_TO_DO);
        }
    };
    let file = DiskFile::open(&raw.path).map_err(disk)?;
    let read = raw_chunk::read_frames(&file, |header, payload| {
        // The whole chunk is charged once; its first frame carries the charge, and all are dropped together.
        let payload = FrameBytes::on_heap(payload, charge.take());
        frames.push(ChunkFrame { chunk, frame: AppendFrame { header, payload } });
    });
    let damaged = |source| ChunkServerError::Damaged { path: raw.path.clone(), source };
    let (_, count) = read.map_err(damaged)?;
    if count != raw.frames {
        let problem =
            ifile::Problem::Disagreement { what: "the number of frames", here: count, there: raw.frames };
        return Err(damaged(ifile::FormatError::at(0, problem)));
    }
    Ok(())
}

/// Sorted frames that become a run.
struct Sorted {
    ifile: IfileIndex,
    disk: DiskIndex,
    sources: Vec<SourceRow>,
    row_of_frame: Vec<u32>,
    order: SortedOrder,
    frames: Vec<AppendFrame>,
}

/// Keeps the run in memory if the open chunks can still fill up beside it; writes it otherwise.
fn place_run(shared: &Shared, sorted: Sorted) -> Result<(), ChunkServerError> {
    let id = shared.lock().take_run_id();
    if planted(PlantedFault::ChunkForgotten) {
        return Ok(());
    }
    let order_bytes = sorted.order.bytes();
    let open_room_bytes = shared.lock().open_room_bytes();
    let fits = shared.arena.used_bytes() + order_bytes + open_room_bytes <= shared.arena.budget_bytes();
    let charge = if fits && !shared.config.keep { shared.arena.try_charge(order_bytes) } else { None };
    let Some(charge) = charge else {
        let (run, summary) = write_sorted(shared, id, &sorted)?;
        // The frames are dropped before the table changes, so that woken threads find the memory.
        drop(sorted);
        register(shared, run, summary);
        return Ok(());
    };
    let Sorted { ifile, disk, sources, row_of_frame, order, frames } = sorted;
    let memory = MemoryRun::new(frames, row_of_frame, order, charge);
    let run = Run { id, ifile, key_shape: shared.config.key_shape, sources, place: Place::Memory(memory) };
    let Place::Memory(memory) = &run.place else { unreachable!("made in memory above") };
    let summary = summarize_memory(&run, memory, &shared.config.layout, disk);
    register(shared, run, summary);
    Ok(())
}

fn register(shared: &Shared, run: Run, summary: RunSummary) {
    shared.lock().register(run, summary);
    shared.to_copy.notify_all();
}

fn write_sorted(shared: &Shared, id: RunId, sorted: &Sorted) -> Result<(Run, RunSummary), ChunkServerError> {
    let payloads: Vec<&[u8]> = sorted.frames.iter().map(|frame| &frame.payload[..]).collect();
    let bytes: u64 = sorted.sources.iter().map(|row| row.sum.bytes).sum();
    shared.write_run(id, sorted.ifile, sorted.disk, &sorted.sources, bytes, |writer| {
        copy_sorted(&sorted.order, &payloads, &sorted.row_of_frame, writer)
    })
}

/// Writes the records of frames in their sorted order.
pub(crate) fn copy_sorted(
    order: &SortedOrder,
    payloads: &[&[u8]],
    row_of_frame: &[u32],
    writer: &mut RunWriter<NewFile>,
) -> std::io::Result<()> {
    let mut cursor = order.cursor(payloads, None, None);
    let mut batch = Vec::with_capacity(BATCH_RECORDS);
    loop {
        cursor.take_batch(order, payloads, |position, record| batch.push((position, record)));
        if batch.is_empty() {
            return Ok(());
        }
        for (position, record) in batch.drain(..) {
            writer.push(row_of_frame[position.frame as usize], &record)?;
        }
    }
}

impl Shared {
    /// Writes a run file, on the preferred disk or, if that fails, on another.
    pub(crate) fn write_run(
        &self,
        id: RunId,
        ifile: IfileIndex,
        preferred: DiskIndex,
        sources: &[SourceRow],
        expected_bytes: u64,
        fill: impl Fn(&mut RunWriter<NewFile>) -> std::io::Result<()>,
    ) -> Result<(Run, RunSummary), ChunkServerError> {
        let started = Instant::now();
        let identity = RunIdentity { job: self.config.job, run: id, ifile, key_shape: self.config.key_shape };
        let mut first_error = None;
        for disk in self.disks.each_twice(preferred) {
            crash_point(CrashPoint::RunBeforeWrite);
            match self.try_write_run(identity, disk, sources, expected_bytes, &fill) {
                Ok(written) => {
                    crash_point(CrashPoint::RunAfterWrite);
                    self.lock().figures.write_seconds += started.elapsed().as_secs_f64();
                    return Ok(written);
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.expect("there is at least one disk"))
    }

    fn try_write_run(
        &self,
        identity: RunIdentity,
        disk: DiskIndex,
        sources: &[SourceRow],
        expected_bytes: u64,
        fill: impl Fn(&mut RunWriter<NewFile>) -> std::io::Result<()>,
    ) -> Result<(Run, RunSummary), ChunkServerError> {
        let path = self.disks.run_path(disk, identity.run);
        let failed = |source| ChunkServerError::Disk { action: "write", path: path.clone(), source };
        let out = NewFile::create(path.clone(), expected_bytes, self.write_buffer_bytes)?;
        let record_bytes = sources.iter().map(|row| row.sum.bytes).sum();
        let block_bytes = self.config.layout.block_bytes_of(record_bytes);
        let mut writer = RunWriter::new(out, identity, self.config.codec, block_bytes, sources.to_vec())
            .map_err(failed)?;
        fill(&mut writer).map_err(failed)?;
        let (out, file) = writer.finish().map_err(failed)?;
        out.finish()?;
        Ok(disk_run(path, disk, file, Arc::clone(&self.reads)))
    }
}

pub(crate) fn disk_run(
    path: std::path::PathBuf,
    disk: DiskIndex,
    file: RunFile,
    reads: Arc<diskfile::ReadPool>,
) -> (Run, RunSummary) {
    let place = Place::Disk(DiskRun::new(path, &file, reads));
    let run = Run {
        id: file.identity.run,
        ifile: file.identity.ifile,
        key_shape: file.identity.key_shape,
        sources: file.sources.clone(),
        place,
    };
    let summary = summarize_disk(&run, &file, disk);
    (run, summary)
}
