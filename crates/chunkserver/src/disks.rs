//! The directories of a job, one a disk, and the files in them.

use crate::error::ChunkServerError;
use diskfile::{SequentialWriter, Syncing, Through};
use ids::{ChunkId, DiskIndex, RunId};
use ifile::ReadAt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Disks {
    dirs: Vec<PathBuf>,
    /// Whether each is known to take nothing (full, read-only), as far as anybody has looked.
    avoided: Vec<AtomicBool>,
}

impl Disks {
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        assert!(!dirs.is_empty(), "a chunkserver needs at least one disk directory");
        let avoided = dirs.iter().map(|_| AtomicBool::new(false)).collect();
        Self { dirs, avoided }
    }

    /// Says which disks can take anything; those not named stay as they are.
    pub fn set_usable(&self, usable: &[bool]) {
        for (avoided, usable) in self.avoided.iter().zip(usable) {
            avoided.store(!usable, Ordering::Relaxed);
        }
    }

    /// All disks, the preferred one first: where it fails (full, broken), the others are tried. Those that are known
    /// to take nothing come last.
    pub fn starting_with(&self, preferred: DiskIndex) -> impl Iterator<Item = DiskIndex> + use<> {
        let count = self.dirs.len();
        let mut order: Vec<usize> = (0..count).map(|step| (preferred.0 as usize + step) % count).collect();
        order.sort_by_key(|disk| self.avoided[*disk].load(Ordering::Relaxed));
        order.into_iter().map(|disk| DiskIndex(disk as u16))
    }

    /// The same, and once more where all have failed: an error that does not come again costs the job nothing.
    pub fn each_twice(&self, preferred: DiskIndex) -> impl Iterator<Item = DiskIndex> + use<> {
        self.starting_with(preferred).chain(self.starting_with(preferred))
    }

    pub fn run_path(&self, disk: DiskIndex, run: RunId) -> PathBuf {
        self.dirs[disk.0 as usize].join(run_file_name(run))
    }

    pub fn raw_path(&self, disk: DiskIndex, chunk: ChunkId) -> PathBuf {
        self.dirs[disk.0 as usize].join(format!("chunk-{:06}.raw", chunk.0))
    }
}

/// The name of a run's file within the directory of its job.
pub fn run_file_name(run: RunId) -> String {
    format!("run-{:06}.ifile", run.0)
}

/// The run whose file this is by its name.
pub fn run_of_file(path: &Path) -> Option<RunId> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("run-")?.strip_suffix(".ifile")?;
    let run = RunId(number.parse().ok()?);
    (run_file_name(run) == name).then_some(run)
}

/// A file of ours, read at offsets.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
}

impl DiskFile {
    /// Opens for reading.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }
}

impl ReadAt for DiskFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn size_bytes(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// A new run file, written front to back past the page cache, with its space asked for in one piece where the file
/// system can.
pub(crate) struct NewFile {
    path: PathBuf,
    out: Option<SequentialWriter>,
}

impl NewFile {
    /// Creates the file; an older one of that name (left by a failed try) is replaced.
    pub fn create(path: PathBuf, expected_bytes: u64, buffer_bytes: usize) -> Result<Self, ChunkServerError> {
        let disk = |source| ChunkServerError::Disk { action: "create", path: path.clone(), source };
        let out = SequentialWriter::create(&path, Through::Direct, buffer_bytes).map_err(disk)?;
        // A hint for contiguous space: file systems that cannot, or are nearly full, do without.
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        if expected_bytes > 0 {
            let _ = rustix::fs::fallocate(out.file(), flags, 0, expected_bytes);
        }
        Ok(Self { path, out: Some(out) })
    }

    /// Waits until everything is written and gives back what was reserved beyond the end.
    pub fn finish(mut self) -> Result<(), ChunkServerError> {
        let disk = |source| ChunkServerError::Disk { action: "write", path: self.path.clone(), source };
        let finished = self.out.take().map_or(Ok(0), |out| out.finish(Syncing::NotSynced));
        let outcome = finished.map(drop).map_err(disk);
        if outcome.is_err() {
            let _ = std::fs::remove_file(&self.path);
        }
        outcome
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    /// A file that was not finished is removed: half a run must not be found by anybody.
    fn drop(&mut self) {
        if self.out.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Disks, run_file_name, run_of_file};
    use ids::{DiskIndex, NodeId, RunId};
    use std::path::Path;

    #[test]
    fn run_is_known_by_its_file_name() {
        let run = RunId::on(NodeId(3), 7);
        assert_eq!(run_of_file(&Path::new("d").join(run_file_name(run))), Some(run));
        for other in ["run-7.ifile", "run-000007.raw", "chunk-000007.ifile", "run-+00007.ifile", ".."] {
            assert_eq!(run_of_file(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn disks_that_take_nothing_come_last() {
        let disks = Disks::new(["a", "b", "c"].map(Into::into).to_vec());
        let check = |usable: &[bool], preferred, expected: [u16; 3]| {
            disks.set_usable(usable);
            let order: Vec<u16> = disks.starting_with(DiskIndex(preferred)).map(|disk| disk.0).collect();
            assert_eq!(order, expected, "{usable:?}");
        };
        check(&[], 1, [1, 2, 0]);
        check(&[true, false, true], 1, [2, 0, 1]);
        check(&[false, false], 2, [2, 0, 1]);
        check(&[false, false, false], 0, [0, 1, 2]);
        check(&[true, true, true], 0, [0, 1, 2]);
    }
}
