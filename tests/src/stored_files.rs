//! Stored files of a cluster or of one machine: their verbs, copies of their trees, and the concrete files on the disks
//! of nodes.

use crate::{Cluster, Finished, Running, Sandbox};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with stored files on the disk of a node.
pub const STORED_DIR: &str = "sailfish-files";
/// Suffix of the file with the checksums of a concrete file.
const SUMS_SUFFIX: &str = ".sums";

/// Everything below a directory: the bytes of files, and None for directories.
pub type FileTree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// `sailfish files` on the state of a sandbox or with the server of a cluster.
pub struct StoredFiles<'a> {
    sandbox: &'a Sandbox,
    place: Vec<String>,
}

impl Sandbox {
    /// Returns the files of the state of this sandbox.
    pub fn files(&self) -> StoredFiles<'_> {
        StoredFiles { sandbox: self, place: vec!["--state".to_string(), self.state().display().to_string()] }
    }
}

impl Cluster {
    /// Returns the files of this cluster.
    pub fn files(&self) -> StoredFiles<'_> {
        self.sandbox.files_at(&["--server", &self.url])
    }

    /// Returns the directory of the concrete files of the node that was started as this one, counting from 0.
    pub fn stored_dir(&self, number: u32) -> PathBuf {
        self.node_disk(number).join(STORED_DIR).join("data")
    }

    /// Returns the concrete files of this node and their checksums, by their paths. Others may come and go meanwhile.
    pub fn stored_on(&self, number: u32) -> BTreeMap<PathBuf, Vec<u8>> {
        let all = file_tree(&self.stored_dir(number));
        all.into_iter().filter_map(|(path, bytes)| Some((path, bytes?))).collect()
    }

    /// Counts the concrete files of this node, without those of checksums.
    pub fn count_stored_on(&self, number: u32) -> usize {
        count_files(&self.stored_dir(number))
    }

    /// Returns whether the disk of this node has neither concrete files nor their directories.
    pub fn has_nothing_stored_on(&self, number: u32) -> bool {
        fs::read_dir(self.stored_dir(number)).map_or(0, Iterator::count) == 0
    }
}

impl Sandbox {
    /// Returns files at another place, as arguments name it.
    pub fn files_at(&self, place: &[&str]) -> StoredFiles<'_> {
        StoredFiles { sandbox: self, place: place.iter().map(ToString::to_string).collect() }
    }
}

impl StoredFiles<'_> {
    /// Returns the command of a verb.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.sailfish();
        command.arg("files").args(args).args(&self.place);
        command
    }

    /// Starts a verb.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// Runs a verb to its end.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Finished {
        self.start(args).wait()
    }

    /// Runs a verb that must succeed. Returns standard output.
    #[track_caller]
    pub fn done(&self, args: &[&str]) -> String {
        self.run(args).expect_success().text()
    }

    /// Runs a verb that must succeed. Returns the bytes on standard output.
    #[track_caller]
    pub fn bytes(&self, args: &[&str]) -> Vec<u8> {
        self.run(args).expect_success().stdout
    }

    /// Returns the names below a directory of the store, in order.
    #[track_caller]
    pub fn names(&self, dir: &str) -> Vec<String> {
        let listed = self.done(&["ls", "--json", "--recursive", dir]);
        let name = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            value["name"].as_str().expect("a name").to_string()
        };
        let mut names: Vec<String> = listed.lines().map(name).collect();
        names.sort_unstable();
        names
    }

    /// Returns a stored directory as `get` writes it.
    #[track_caller]
    pub fn got(&self, name: &str) -> FileTree {
        let copy = self.sandbox.path("copy-of-stored-files");
        self.done(&["get", name, "copy-of-stored-files"]);
        let tree = file_tree(&copy);
        fs::remove_dir_all(copy).expect("our own directory is removed");
        tree
    }

    /// Fails the test if a stored directory is not that of a source.
    #[track_caller]
    pub fn assert_stored(&self, source: &Path, name: &str) {
        let (got, put) = (self.got(name), file_tree(source));
        let names = |tree: &FileTree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&got), names(&put), "the names below {name}");
        assert!(got == put, "the files of {name} differ from {}", source.display());
    }

    /// Fails the test if a check of all files finds a problem.
    #[track_caller]
    pub fn assert_sound(&self) {
        let checked = self.run(&["fsck"]);
        assert!(checked.text().contains("; 0 problems"), "{}", checked.story());
        checked.expect_success();
    }

    /// Returns the reachable nodes with replicas of each part of a file.
    #[track_caller]
    pub fn replicas(&self, name: &str) -> Vec<Vec<String>> {
        let stat = self.run(&["stat", "--json", name]).expect_success().json();
        let parts = stat["concrete_files"].as_array().expect("a list of parts").clone();
        let nodes = |part: &serde_json::Value| {
            let replicas = part["replicas"].as_array().expect("a list of replicas").iter();
            replicas.filter_map(|replica| replica["node"].as_str().map(ToString::to_string)).collect()
        };
        parts.iter().map(nodes).collect()
    }
}

/// Returns everything below a directory; nothing if there is no directory. Files may go meanwhile.
pub fn file_tree(dir: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(next) = pending.pop() {
        for path in entries(&next) {
            let below = path.strip_prefix(dir).expect("it lies below").to_path_buf();
            if path.is_dir() {
                tree.insert(below, None);
                pending.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                tree.insert(below, Some(bytes));
            }
        }
    }
    tree
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir).into_iter().flatten();
    listed.flatten().map(|entry| entry.path()).collect()
}

fn count_files(dir: &Path) -> usize {
    let count = |path: PathBuf| match path.is_dir() {
        true => count_files(&path),
        false => usize::from(!path.to_string_lossy().ends_with(SUMS_SUFFIX)),
    };
    entries(dir).into_iter().map(count).sum()
}
