//! The stage files of a job on this node: files that its tasks wrote, and copies of other nodes' files. The inputs of a
//! task of a later stage are found here, or on the nodes of its location.

use crate::disks::left_behind::left_part;
use crate::shuffle::remote::OtherNodes;
use api::{Blame, TaskFailure};
use dataport::{AnyStageFile, StageFileCopy, StageFileHere, StageFileName, StageFileOptions, StageFileRef};
use ids::{JobId, NodeId};
use stagefile::{Payload, StageFileSummary};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Complete stage files, by their names: at most as many as the job has parts, and copies of some.
pub struct StageFiles {
    /// The directories of the job, one per disk.
    disk_dirs: Vec<PathBuf>,
    known: Mutex<BTreeMap<StageFileName, StageFileHere>>,
}

/// Locations and payload of a stage file: a file of that name with another payload is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFileAt {
    /// Name, such as `part-00003.attempt-0.stage`.
    pub name: String,
    pub payload: Payload,
    /// Node to read it from first.
    pub home: NodeId,
    /// Other node that has a copy.
    pub replica: Option<NodeId>,
}

/// The range of a stage file, and its reader.
pub struct StageRead<'a> {
    pub job: JobId,
    pub here: NodeId,
    /// None if all data of the job is here.
    pub others: Option<&'a OtherNodes>,
    pub offset: u64,
    pub length: u64,
    /// Bytes read at once, see [`StageFileOptions::window_bytes`].
    pub window_bytes: usize,
    pub cancelled: &'a Arc<AtomicBool>,
}

impl StageFiles {
    /// Finds the existing files: an earlier process on these disks made or received them.
    pub fn new(disk_dirs: Vec<PathBuf>) -> Self {
        let mut known = BTreeMap::new();
        let entries = disk_dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let Some(part) = left_part(&path) else { continue };
            let payload = Payload { bytes: part.bytes, crc32c: part.crc32c };
            let name = StageFileName::new(part.name);
            known.extend(name.map(|name| (name, StageFileHere { path, payload, is_own: false })));
        }
        Self { disk_dirs, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<StageFileName, StageFileHere>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the paths for a file of that name, the preferred one first. Disks get even shares; if one fails, the
    /// next is tried.
    pub fn places(&self, name: &StageFileName) -> Vec<PathBuf> {
        let count = self.disk_dirs.len();
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let first = hasher.finish() as usize;
        let in_turn = (0..count).map(|step| first.wrapping_add(step) % count);
        in_turn.map(|disk| self.disk_dirs[disk].join(name.as_str())).collect()
    }

    /// Returns the directory in which a task of this node writes a file of that name.
    pub(crate) fn disk_of(&self, name: &str) -> Option<&Path> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let count = (self.disk_dirs.len() as u64).max(1);
        self.disk_dirs.get((hasher.finish() % count) as usize).map(PathBuf::as_path)
    }

    /// Registers a file that a task of this node has completed: from now on it is found, here and by other nodes.
    pub fn register(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary) {
        let here = StageFileHere { path, payload: summary.payload(), is_own: true };
        self.known().insert(name, here);
    }

    /// Removes a file from the list, and returns it.
    pub(crate) fn forget(&self, name: &StageFileName) -> Option<StageFileHere> {
        self.known().remove(name)
    }

    /// Promotes a copy to the first copy. Returns whether there is one.
    pub(crate) fn adopt(&self, name: &StageFileName) -> bool {
        let mut known = self.known();
        let here = known.get_mut(name);
        here.map(|here| here.is_own = true).is_some()
    }

    /// Returns all files here, by name.
    pub(crate) fn all(&self) -> Vec<(StageFileName, StageFileHere)> {
        self.known().iter().map(|(name, here)| (name.clone(), here.clone())).collect()
    }

    /// Returns the complete file of that name.
    pub fn find(&self, name: &StageFileName) -> Option<StageFileHere> {
        self.known().get(name).cloned()
    }

    /// Returns the files that tasks of this node made.
    pub fn own(&self) -> Vec<(StageFileName, StageFileHere)> {
        let known = self.known();
        let own = known.iter().filter(|(_, here)| here.is_own);
        own.map(|(name, here)| (name.clone(), here.clone())).collect()
    }

    /// Reads bytes [offset, offset + length) of a file: here if this node has it, otherwise or after a failure from the
    /// nodes that have it. Nothing is opened before the first byte is requested.
    pub fn open(&self, place: &StageFileAt, read: &StageRead<'_>) -> Result<AnyStageFile, TaskFailure> {
        let wrong = |message: String| TaskFailure::new(Blame::Engine, message);
        let name = StageFileName::new(place.name.as_str());
        let name = name.ok_or_else(|| wrong(format!("{:?} is no name of a stage file", place.name)))?;
        let payload = place.payload;
        // Another file of that name would look like a damaged copy, but no copy is damaged.
        let here = self.find(&name).filter(|here| here.payload == payload);
        let copies = copies(place, here.as_ref().map(|here| here.path.as_path()), read);
        let options = StageFileOptions {
            of: read.job.into(),
            file: StageFileRef { name, payload },
            copies,
            window_bytes: read.window_bytes,
            cancelled: Arc::clone(read.cancelled),
        };
        AnyStageFile::open(options, read.offset, read.length).map_err(|error| error.to_failure())
    }
}

/// Returns the copies of a file, in the order in which to try them.
fn copies(place: &StageFileAt, here: Option<&Path>, read: &StageRead<'_>) -> Vec<StageFileCopy> {
    let nodes = [Some(place.home), place.replica].into_iter().flatten();
    let elsewhere = nodes.filter(|node| *node != read.here).map(|node| {
        let peer = read.others.and_then(|others| others.peers.iter().find(|peer| peer.node == node));
        match (read.others, peer) {
            (Some(others), Some(peer)) => {
                StageFileCopy::There { client: others.client.clone(), peer: peer.clone() }
            }
            _ => StageFileCopy::Nowhere { node },
        }
    });
    // A file that should be here and is unknown fails under its name, unless another copy is found.
    let is_meant_here = place.home == read.here || place.replica == Some(read.here);
    let local = match here {
        Some(path) => Some(StageFileCopy::Here { node: read.here, path: path.to_path_buf() }),
        None => is_meant_here.then_some(StageFileCopy::Missing { node: read.here }),
    };
    local.into_iter().chain(elsewhere).collect()
}

impl dataport::StageFileService for StageFiles {
    fn find(&self, name: &StageFileName) -> Option<StageFileHere> {
        Self::find(self, name)
    }

    fn places(&self, name: &StageFileName) -> Vec<PathBuf> {
        Self::places(self, name)
    }

    fn received(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary) {
        let here = StageFileHere { path, payload: summary.payload(), is_own: false };
        self.known().insert(name, here);
    }
}

#[cfg(test)]
mod tests {
    use super::{StageFileAt, StageFiles, StageRead};
    use api::Blame;
    use dataport::StageFileName;
    use ids::{AttemptNumber, JobId, NodeId};
    use stagefile::{Payload, StageFileWriter, Syncing};
    use std::io::{Read, Write};
    use std::sync::Arc;

    const HERE: NodeId = NodeId(1);

    fn files() -> (tempfile::TempDir, StageFiles) {
        let dir = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = ["a", "b", "c"].iter().map(|disk| dir.path().join(disk)).collect();
        dirs.iter().for_each(|disk| std::fs::create_dir(disk).unwrap());
        (dir, StageFiles::new(dirs))
    }

    fn read(files: &StageFiles, place: &StageFileAt, offset: u64, length: u64) -> Result<Vec<u8>, String> {
        let cancelled = Arc::default();
        let read = StageRead {
            job: JobId(1),
            here: HERE,
            others: None,
            offset,
            length,
            window_bytes: 1 << 20,
            cancelled: &cancelled,
        };
        let mut reader = files.open(place, &read).map_err(|failure| failure.message)?;
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map_err(|error| error.to_string())?;
        Ok(all)
    }

    #[test]
    fn a_file_that_was_registered_is_read_here() {
        let (_dir, files) = files();
        let name = StageFileName::of_part(3, AttemptNumber(0));
        let path = files.places(&name).remove(0);
        let mut writer = StageFileWriter::create(&path).unwrap();
        writer.write_all(b"some lines").unwrap();
        let summary = writer.finish(Syncing::NotSynced).unwrap();
        let payload = summary.payload();
        let name_text = name.to_string();
        let place = StageFileAt { name: name_text, payload, home: HERE, replica: Some(NodeId(2)) };
        let error = read(&files, &place, 5, 5).unwrap_err();
        assert!(
            error.contains("on node-1: not known there") && error.contains("on node-2: its address"),
            "{error}"
        );
        files.register(name, path, summary);
        assert_eq!(read(&files, &place, 5, 5).unwrap(), b"lines");
        // A copy on this node is equivalent.
        let away = StageFileAt { home: NodeId(2), replica: None, ..place.clone() };
        assert_eq!(read(&files, &away, 0, 4).unwrap(), b"some");
        let payload = Payload { crc32c: 1, ..payload };
        let other = StageFileAt { payload, replica: None, ..place.clone() };
        assert!(read(&files, &other, 0, 4).is_err());
        assert!(read(&files, &place, 5, 6).is_err());
        let wrong = StageFileAt { name: "../part-1.stage".to_string(), ..place };
        assert!(read(&files, &wrong, 0, 1).unwrap_err().contains("no name of a stage file"));
    }

    #[test]
    fn each_disk_has_its_turn() {
        let (dir, files) = files();
        let mut firsts = std::collections::BTreeSet::new();
        for part in 0..50 {
            let places = files.places(&StageFileName::of_part(part, AttemptNumber(0)));
            firsts.insert(places[0].parent().unwrap().to_path_buf());
            assert_eq!(places.len(), 3);
            assert!(places.iter().all(|place| place.starts_with(dir.path())));
        }
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn a_wrong_name_is_a_mistake_of_ours() {
        let (_dir, files) = files();
        let place = StageFileAt { name: "x".into(), payload: Payload::default(), home: HERE, replica: None };
        let cancelled = Arc::default();
        let (job, others) = (JobId(1), None);
        let read = StageRead {
            job,
            here: HERE,
            others,
            offset: 0,
            length: 0,
            window_bytes: 0,
            cancelled: &cancelled,
        };
        assert!(files.open(&place, &read).is_err_and(|failure| failure.blame == Blame::Engine));
    }
}
