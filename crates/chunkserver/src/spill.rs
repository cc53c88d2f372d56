//! Freeing of memory for frames: runs that are only in memory are written; if there are none, the largest unsorted
//! chunk is spilled raw and sorted later.

use crate::Shared;
use crate::chunk_table::{ChunkState, RawFile};
use crate::error::ChunkServerError;
use crate::run::{Place, Run};
use crate::sorting::copy_sorted;
use faults::{CrashPoint, IoCall, crash_point, io_call};
use iappender::AppendFrame;
use ids::{ChunkId, DiskIndex, RunId};
use ifile::raw_chunk::{RawChunkIdentity, encode_trailer};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

impl Shared {
    /// Frees some memory; false if there is nothing to free.
    pub(crate) fn make_room(&self) -> Result<bool, ChunkServerError> {
        let run = {
            let mut table = self.lock();
            table.memory_runs.pop_front().and_then(|id| table.runs.get(&id).cloned())
        };
        if let Some(run) = run {
            self.evict(&run).or_else(|error| self.give_up_run(&run, error))?;
            self.changed.notify_all();
            return Ok(true);
        }
        let Some(chunk) = self.lock().largest_unsorted_chunk() else { return Ok(false) };
        self.spill_raw(chunk).or_else(|error| self.give_up(&[chunk], error))?;
        self.changed.notify_all();
        Ok(true)
    }

    /// Writes a run that is only in memory to disk, under the same number. Only for the thread that took it from
    /// `memory_runs`: two writers of one file would damage it.
    pub(crate) fn evict(&self, run: &Arc<Run>) -> Result<(), ChunkServerError> {
        let Place::Memory(memory) = &run.place else { return Ok(()) };
        let disk = self.lock().summaries.get(&run.id).map_or(DiskIndex(0), |summary| summary.disk);
        let bytes: u64 = run.sources.iter().map(|row| row.sum.bytes).sum();
        let (written, summary) = self.write_run(run.id, run.ifile, disk, &run.sources, bytes, |writer| {
            copy_sorted(&memory.order, memory.views(), &memory.row_of_frame, writer)
        })?;
        self.replace_run(run.id, written, summary);
        Ok(())
    }

    fn replace_run(&self, id: RunId, written: Run, summary: api::task::RunSummary) {
        let mut table = self.lock();
        // A run that was merged meanwhile must not come back.
        if table.runs.contains_key(&id) {
            table.summaries.insert(id, summary);
            table.runs.insert(id, Arc::new(written));
            return;
        }
        drop(table);
        if let Some(path) = written.path() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Appends the frames of a chunk in memory to its raw file. The chunk keeps its state, open or stable, with the
    /// same sources; no sorter takes it before the write ends.
    fn spill_raw(&self, id: ChunkId) -> Result<(), ChunkServerError> {
        let (frames, identity, disk, earlier) = {
            let mut table = self.lock();
            let Some(chunk) = table.chunks.get_mut(&id) else { return Ok(()) };
            // Meanwhile another sorter may have taken it, or begun to spill it.
            if chunk.spilling || !matches!(chunk.state, ChunkState::Open | ChunkState::Stable) {
                return Ok(());
            }
            chunk.spilling = true;
            chunk.memory_bytes = 0;
            let identity = RawChunkIdentity {
                job: self.config.job,
                chunk: id,
                ifile: chunk.ifile,
                key_shape: self.config.key_shape,
            };
            (std::mem::take(&mut chunk.frames), identity, chunk.disk, chunk.raw.clone())
        };
        crash_point(CrashPoint::RawSpillBeforeWrite);
        let written = self.write_raw(identity, disk, earlier, &frames);
        crash_point(CrashPoint::RawSpillAfterWrite);
        let spilled_bytes: u64 = frames.iter().map(|frame| frame.header.sum.bytes).sum();
        drop(frames);
        let mut table = self.lock();
        table.figures.raw_spills += 1;
        table.figures.raw_spill_bytes += spilled_bytes;
        if let Some(chunk) = table.chunks.get_mut(&id) {
            chunk.spilling = false;
            chunk.raw = Some(written?);
        }
        drop(table);
        self.work.notify_all();
        Ok(())
    }

    fn write_raw(
        &self,
        identity: RawChunkIdentity,
        preferred: DiskIndex,
        earlier: Option<RawFile>,
        frames: &[AppendFrame],
    ) -> Result<RawFile, ChunkServerError> {
        if let Some(raw) = earlier {
            let opened = io_call(IoCall::Create, &raw.path)
                .and_then(|()| OpenOptions::new().append(true).open(&raw.path));
            return write_frames(raw.path.clone(), opened, None, Some(&raw), frames);
        }
        let mut first_error = None;
        for disk in self.disks.each_twice(preferred) {
            let path = self.disks.raw_path(disk, identity.chunk);
            let created = io_call(IoCall::Create, &path)
                .and_then(|()| OpenOptions::new().write(true).create(true).truncate(true).open(&path));
            match write_frames(path.clone(), created, Some(identity), None, frames) {
                Ok(raw) => return Ok(raw),
                Err(error) => {
                    let _ = std::fs::remove_file(&path);
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.expect("there is at least one disk"))
    }
}

fn write_frames(
    path: PathBuf,
    file: std::io::Result<File>,
    new: Option<RawChunkIdentity>,
    earlier: Option<&RawFile>,
    frames: &[AppendFrame],
) -> Result<RawFile, ChunkServerError> {
    let write = || -> std::io::Result<u64> {
        let mut out = BufWriter::with_capacity(1 << 20, file?);
        if let Some(identity) = new {
            out.write_all(&identity.encode_header())?;
        }
        let mut bytes = 0;
        io_call(IoCall::Write, &path)?;
        for frame in frames {
            out.write_all(&frame.header.encode())?;
            out.write_all(&frame.payload)?;
            bytes += frame.payload.len() as u64;
        }
        out.flush()?;
        Ok(bytes)
    };
    let bytes =
        write().map_err(|source| ChunkServerError::Disk { action: "write", path: path.clone(), source })?;
    Ok(RawFile {
        path,
        frames: earlier.map_or(0, |raw| raw.frames) + frames.len() as u64,
        bytes: earlier.map_or(0, |raw| raw.bytes) + bytes,
    })
}

/// Writes the trailer after the last frame of a complete raw file.
pub(crate) fn finish_raw_file(chunk: ChunkId, raw: &RawFile) -> Result<(), ChunkServerError> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&raw.path)?;
        io_call(IoCall::Write, &raw.path)?;
        file.write_all(&encode_trailer(chunk, raw.frames))
    };
    write().map_err(|source| ChunkServerError::Disk { action: "write", path: raw.path.clone(), source })
}
