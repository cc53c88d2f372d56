//! Stage files of the nodes of a test, and what they are to hold.

use crate::cluster::{Cluster, JOB};
use crate::model::Case;
use dataport::{
    AnyStageFile, StageFileCopy, StageFileHere, StageFileName, StageFileOptions, StageFileRef,
    StageFileService, StageReadError,
};
use ids::AttemptNumber;
use stagefile::{StageFileSummary, StageFileWriter, Syncing};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Those of one node: a directory, and what of it is complete.
pub struct Files {
    pub directory: PathBuf,
    known: Mutex<BTreeMap<StageFileName, StageFileHere>>,
}

impl Files {
    pub fn start(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).expect("a directory");
        Self { directory, known: Mutex::default() }
    }

    /// Writes a file as a task of this node would.
    pub fn write(&self, name: &StageFileName, payload: &[u8]) -> StageFileRef {
        let path = self.directory.join(name.as_str());
        let mut writer = StageFileWriter::create(&path).expect("created");
        writer.write_all(payload).expect("written");
        let payload = writer.finish(Syncing::NotSynced).expect("finished").payload();
        let here = StageFileHere { path, payload, is_own: true };
        self.known.lock().unwrap().insert(name.clone(), here);
        StageFileRef { name: name.clone(), payload }
    }

    /// Returns the names of the files in the directory, whoever knows of them.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.directory).expect("a directory");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl StageFileService for Files {
    fn find(&self, name: &StageFileName) -> Option<StageFileHere> {
        self.known.lock().unwrap().get(name).cloned()
    }

    fn places(&self, name: &StageFileName) -> Vec<PathBuf> {
        vec![self.directory.join("gone").join(name.as_str()), self.directory.join(name.as_str())]
    }

    fn received(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary) {
        let here = StageFileHere { path, payload: summary.payload(), is_own: false };
        self.known.lock().unwrap().insert(name, here);
    }
}

/// A number below `end` (splitmix64 over a counter).
pub fn draw(count: u64, end: u64) -> u64 {
    let mut mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % end
}

pub fn name(part: u32) -> StageFileName {
    StageFileName::of_part(part, AttemptNumber(0))
}

/// A cluster whose node 1 has a file that nodes in `copies` have as well.
pub struct Sample {
    pub cluster: Cluster,
    pub payload: Vec<u8>,
    pub file: StageFileRef,
}

impl Sample {
    pub fn start(bytes: usize, copies: &[usize]) -> Self {
        let cluster = Cluster::start(&Case::plain());
        let payload: Vec<u8> = (0..bytes as u64).map(|at| draw(at, 256) as u8).collect();
        let file = cluster.nodes[1].served.stage_files.write(&name(3), &payload);
        let sample = Self { cluster, payload, file };
        copies.iter().for_each(|to| sample.copy(*to));
        sample
    }

    /// Copies the file from node 1.
    pub fn copy(&self, to: usize) {
        let (peer, path) = (self.cluster.peer(to), self.path(1));
        self.cluster.client.copy_stage_file(&peer, JOB, &self.file, &path, &|_| true).expect("copied");
    }

    /// The file of a node.
    pub fn path(&self, node: usize) -> PathBuf {
        self.cluster.nodes[node].served.stage_files.find(&self.file.name).expect("it is there").path
    }

    pub fn there(&self, node: usize) -> StageFileCopy {
        StageFileCopy::There { client: self.cluster.client.clone(), peer: self.cluster.peer(node) }
    }

    /// The copy of a node, as a task of that node reads it.
    pub fn here(&self, node: usize) -> StageFileCopy {
        StageFileCopy::Here { node: self.cluster.nodes[node].id, path: self.path(node) }
    }

    pub fn options(&self, copies: Vec<StageFileCopy>) -> StageFileOptions {
        StageFileOptions {
            of: JOB.into(),
            file: self.file.clone(),
            copies,
            window_bytes: 1 << 20,
            cancelled: Arc::new(AtomicBool::new(false)),
        }
    }

    pub fn open(&self, copies: Vec<StageFileCopy>) -> AnyStageFile {
        AnyStageFile::open(self.options(copies), 0, self.payload.len() as u64).expect("within the file")
    }
}

/// Reads to the end.
pub fn read(reader: &mut AnyStageFile) -> Result<Vec<u8>, StageReadError> {
    let mut all = Vec::new();
    loop {
        let some = reader.fill()?;
        let count = some.len();
        all.extend_from_slice(some);
        reader.consume(count);
        if count == 0 {
            return Ok(all);
        }
    }
}
