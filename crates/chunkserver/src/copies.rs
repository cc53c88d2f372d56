//! Copies of other nodes' runs: received piece by piece, stored under the number of the run on its node.

use crate::disks::{DiskFile, NewFile, run_of_file};
use crate::error::ChunkServerError;
use crate::run::Run;
use crate::sorting::disk_run;
use crate::{ChunkServer, Shared};
use api::orphaned::LeftRun;
use api::task::RunSummary;
use ids::{ChunkId, DiskIndex, JobId, RunId};
use ifile::{FormatError, Problem, ReadAt, RunFile};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of each buffer of a copy that is received: several copies arrive at once, beside the sorters.
const WRITE_BUFFER_BYTES_MAX: usize = 256 << 10;

/// A copy that is being received. If it is dropped unfinished, nothing of it remains.
pub struct CopyWriter {
    shared: Arc<Shared>,
    run: RunId,
    bytes: u64,
    present_bytes: u64,
    target: Target,
}

enum Target {
    New {
        /// None after it is finished.
        file: Option<NewFile>,
        path: PathBuf,
        disk: DiskIndex,
    },
    /// Set if the copy exists because its sender got no answer. The new bytes must be the same.
    Present { file: DiskFile, path: PathBuf },
}

impl ChunkServer {
    /// Begins to receive a copy of another node's run, a file of `bytes` bytes. An existing copy may be sent again;
    /// while a copy is being received, no second one is accepted.
    pub fn receive_copy(&self, run: RunId, bytes: u64) -> Result<CopyWriter, ChunkServerError> {
        let shared = &self.shared;
        {
            let mut table = shared.lock();
            if run.node() == shared.config.node || table.runs.contains_key(&run) {
                return Err(ChunkServerError::OwnRun(run));
            }
            if !table.receiving.insert(run) {
                return Err(ChunkServerError::BeingReceived(run));
            }
        }
        let target = shared.copy_target(run, bytes);
        let target = target.inspect_err(|_| {
            shared.lock().receiving.remove(&run);
        })?;
        Ok(CopyWriter { shared: Arc::clone(shared), run, bytes, present_bytes: 0, target })
    }
}

impl Shared {
    fn copy_target(&self, run: RunId, bytes: u64) -> Result<Target, ChunkServerError> {
        let present = self.lock().copies.get(&run).and_then(|(run, _)| run.path().map(Path::to_path_buf));
        if let Some(path) = present {
            let opened = DiskFile::open(&path).ok().filter(|file| RunFile::open(file).is_ok());
            if let Some(file) = opened {
                return Ok(Target::Present { file, path });
            }
            // It is not a copy any more, and may be received again.
            self.lock().copies.remove(&run);
            let _ = std::fs::remove_file(path);
        }
        let buffer_bytes = self.write_buffer_bytes.min(WRITE_BUFFER_BYTES_MAX);
        let preferred = DiskIndex((run.number() % self.config.disk_dirs.len() as u64) as u16);
        let mut first_error = None;
        for disk in self.disks.starting_with(preferred) {
            let path = self.disks.run_path(disk, run);
            match NewFile::create(path.clone(), bytes, buffer_bytes) {
                Ok(file) => return Ok(Target::New { file: Some(file), path, disk }),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.expect("there is at least one disk"))
    }

    /// Checks a received file except for its blocks, which are checked when they are read.
    fn open_copy(
        &self,
        id: RunId,
        path: &Path,
        disk: DiskIndex,
    ) -> Result<(Run, RunSummary), ChunkServerError> {
        let damaged = |source| ChunkServerError::Damaged { path: path.to_path_buf(), source };
        let file = DiskFile::open(path).map_err(|source| ChunkServerError::Disk {
            action: "open",
            path: path.to_path_buf(),
            source,
        })?;
        let opened = RunFile::open(&file).map_err(damaged)?;
        let (identity, config) = (&opened.identity, &self.config);
        for (what, here, there) in [
            ("the job's number", identity.job.0 as u64, config.job.0 as u64),
            ("the run's number", identity.run.0, id.0),
            ("the shape of keys", identity.key_shape as u64, config.key_shape as u64),
        ] {
            if here != there {
                return Err(damaged(FormatError::at(0, Problem::Disagreement { what, here, there })));
            }
        }
        if identity.ifile.0 >= config.layout.ifile_count {
            let problem = Problem::Field { what: "the I-file's number", value: identity.ifile.0.into() };
            return Err(damaged(FormatError::at(0, problem)));
        }
        Ok(disk_run(path.to_path_buf(), disk, opened, Arc::clone(&self.reads)))
    }
}

impl Shared {
    /// Adds the runs of other nodes in the directories of the job when this server begins: a previous process on these
    /// disks made or received them, and they count as copies. Incomplete files are left alone.
    pub(crate) fn take_in_found(&self) {
        for (index, dir) in self.config.disk_dirs.iter().enumerate() {
            // An unreadable disk has no usable copies.
            for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let Some(id) = run_of_file(&path).filter(|id| id.node() != self.config.node) else {
                    continue;
                };
                if let Ok((run, summary)) = self.open_copy(id, &path, DiskIndex(index as u16)) {
                    self.lock().copies.insert(id, (Arc::new(run), summary));
                }
            }
        }
    }
}

/// Describes a run file of another process. Checks it except for the blocks, which are verified when they are read. The
/// run must be of `job`, and its file must have the name for its number.
pub fn left_run(path: &Path, job: JobId) -> Result<LeftRun, ChunkServerError> {
    let damaged = |source| ChunkServerError::Damaged { path: path.to_path_buf(), source };
    let disk = |source| ChunkServerError::Disk { action: "open", path: path.to_path_buf(), source };
    let opened = RunFile::open(&DiskFile::open(path).map_err(disk)?).map_err(damaged)?;
    let named = run_of_file(path).map_or(u64::MAX, |run| run.0);
    for (what, here, there) in [
        ("the job's number", opened.identity.job.0 as u64, job.0 as u64),
        ("the run's number", opened.identity.run.0, named),
    ] {
        if here != there {
            return Err(damaged(FormatError::at(0, Problem::Disagreement { what, here, there })));
        }
    }
    let mut chunks: Vec<ChunkId> = opened.sources.iter().map(|row| row.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    Ok(LeftRun {
        run: opened.identity.run,
        chunks,
        records: opened.footer.sum.records,
        record_bytes: opened.footer.sum.bytes,
        stored_bytes: opened.file_bytes(),
    })
}

impl CopyWriter {
    /// Receives the next bytes of the file.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ChunkServerError> {
        let offset = self.present_bytes;
        self.present_bytes += piece.len() as u64;
        if self.present_bytes > self.bytes {
            return Err(self.length_error());
        }
        match &mut self.target {
            Target::New { file, path, .. } => {
                let write = |out: &mut NewFile| out.write_all(piece);
                let written = file.as_mut().map_or(Err(std::io::ErrorKind::BrokenPipe.into()), write);
                written.map_err(|source| ChunkServerError::Disk {
                    action: "write",
                    path: path.clone(),
                    source,
                })
            }
            Target::Present { file, path } => {
                let mut present = vec![0; piece.len()];
                let disk = |source| ChunkServerError::Disk { action: "read", path: path.clone(), source };
                let file_bytes = file.size_bytes().map_err(disk)?;
                if offset + piece.len() as u64 > file_bytes {
                    return Err(ChunkServerError::OtherCopy(self.run));
                }
                file.read_at(offset, &mut present).map_err(disk)?;
                if present == piece { Ok(()) } else { Err(ChunkServerError::OtherCopy(self.run)) }
            }
        }
    }

    /// Verifies that the file is complete and is the announced run; after that the copy is available.
    pub fn finish(mut self) -> Result<(), ChunkServerError> {
        if self.present_bytes != self.bytes {
            return Err(self.length_error());
        }
        match &mut self.target {
            Target::Present { file, path } => {
                let disk = |source| ChunkServerError::Disk { action: "read", path: path.clone(), source };
                match file.size_bytes().map_err(disk)? == self.bytes {
                    true => Ok(()),
                    false => Err(ChunkServerError::OtherCopy(self.run)),
                }
            }
            Target::New { file, path, disk } => {
                file.take().map_or(Ok(()), NewFile::finish)?;
                let opened = self.shared.open_copy(self.run, path, *disk);
                let (run, summary) = opened.inspect_err(|_| {
                    let _ = std::fs::remove_file(&*path);
                })?;
                self.shared.lock().copies.insert(self.run, (Arc::new(run), summary));
                Ok(())
            }
        }
    }

    fn length_error(&self) -> ChunkServerError {
        let (run, bytes, present_bytes) = (self.run, self.bytes, self.present_bytes);
        ChunkServerError::CopyLength { run, bytes, present_bytes }
    }
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        if let Target::New { file, .. } = &mut self.target {
            // Before the next copy may arrive, which would have the same name.
            *file = None;
        }
        self.shared.lock().receiving.remove(&self.run);
    }
}
