//! Stored files that steps of workflows write: those of this machine, or on a node those of its cluster, through the socket
//! for programs of the job. So a step has the rights of its user, and no others.

use crate::options::connect::SOCKET_URL;
use api::stored::MakingJob;
use api::{Blame, StoredContent, StoredPart, TaskFailure};
use clusterfiles::ClusterFiles;
use filestore::{FileStore, FilesError, MadeFile, PartWithReplicas, RemoteFault, StoredTree};
use filetransfer::Watch;
use filetree::{Recursion, TreeChange, TreeError, TreeName, TreePath};
use node::{NewVersion, StepFiles, StoringJob};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use trust::Credentials;

/// Longest path of a socket, in bytes.
const SOCKET_BYTES_MAX: usize = 107;

/// Access of steps to stored files.
#[derive(Debug)]
pub struct OutputsOfSteps {
    /// None on a node of a cluster.
    state_dir: Option<PathBuf>,
}

/// The files, and the open directory of the socket that leads to them.
struct Opened {
    tree: Box<dyn StoredTree>,
    _dir: Option<OwnedFd>,
}

impl OutputsOfSteps {
    pub fn on_machine(state_dir: &Path) -> Self {
        Self { state_dir: Some(state_dir.to_path_buf()) }
    }

    pub fn in_cluster() -> Self {
        Self { state_dir: None }
    }

    fn open(&self, of: &StoringJob<'_>) -> Result<Opened, TaskFailure> {
        if let Some(dir) = &self.state_dir {
            let store = FileStore::open(dir, &std::env::var("USER").unwrap_or_default());
            let store = store.map_err(|error| failure("open the stored files", &error))?;
            return Ok(Opened { tree: Box::new(store), _dir: None });
        }
        let missing = || TaskFailure::new(Blame::Engine, "the node has no socket for programs of the job");
        let (socket, dir) = short(of.socket.ok_or_else(missing)?).map_err(|error| {
            TaskFailure::new(Blame::Environment, format!("cannot open the socket: {error}"))
        })?;
        let files = ClusterFiles::connect(SOCKET_URL, &Credentials::through_socket(socket), of.user);
        let files = files.map_err(|error| failure("reach the stored files", &error))?;
        Ok(Opened { tree: Box::new(files), _dir: dir })
    }
}

/// Returns a path of a socket that is short enough for the kernel, and the directory that must stay open for it.
fn short(socket: &Path) -> Result<(PathBuf, Option<OwnedFd>), Error> {
    match (socket.parent(), socket.file_name()) {
        (Some(dir), Some(name)) if socket.as_os_str().len() > SOCKET_BYTES_MAX => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let held = rustix::fs::open(dir, flags, Mode::empty())?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(name);
            Ok((path, Some(held)))
        }
        _ => Ok((socket.to_path_buf(), None)),
    }
}

fn failure(action: &str, error: &FilesError) -> TaskFailure {
    let blame = match error {
        error if error.is_interruption() => Blame::Cancelled,
        error if error.is_of_the_user() => Blame::UserData,
        _ => Blame::Environment,
    };
    let mut text = format!("cannot {action}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    TaskFailure::new(blame, text)
}

fn name_of(path: &Path) -> Result<TreePath, TaskFailure> {
    let text = path.to_string_lossy();
    let name = TreeName::parse(&text).map_err(|source| FilesError::Name { text: text.to_string(), source });
    name.map(|name| name.path).map_err(|error| failure("use the name", &error))
}

/// Returns whether an error says that there is no file of the name.
pub fn is_missing(error: &FilesError) -> bool {
    let is_remote = matches!(error, FilesError::Remote { fault: RemoteFault::Missing, .. });
    is_remote || matches!(error, FilesError::Missing(_) | FilesError::Tree(TreeError::Missing(_)))
}

/// Returns the bytes of a name; None if it is no file, or one of which no replica is in reach.
pub fn content_of(tree: &dyn StoredTree, path: TreePath) -> Result<Option<StoredContent>, FilesError> {
    let row = match tree.entry(&TreeName { path, version: None }) {
        Ok(entry) => entry.row,
        Err(error) if error.is_of_the_user() => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(row) = row.filter(|row| matches!(row.item, rows::FileItem::File(_))) else { return Ok(None) };
    let parts = tree.parts(&row, None)?;
    let is_lost = |part: &PartWithReplicas| {
        part.wanted > 0 && part.replicas.iter().all(|replica| replica.node.is_none())
    };
    if parts.iter().any(is_lost) {
        return Ok(None);
    }
    let part = |part: &PartWithReplicas| {
        let row = &part.row;
        StoredPart { concrete: row.concrete, bytes: row.bytes, crc32c: row.crc32c }
    };
    Ok(Some(StoredContent { parts: parts.iter().map(part).collect() }))
}

/// A file that is read until its job is stopped.
struct Stoppable<'a> {
    file: File,
    cancelled: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(Error::other("the job was stopped")),
            false => self.file.read(buffer),
        }
    }
}

impl StepFiles for OutputsOfSteps {
    fn store(
        &self,
        of: &StoringJob<'_>,
        versions: Vec<NewVersion>,
    ) -> Result<Vec<StoredContent>, TaskFailure> {
        let opened = self.open(of)?;
        let (mut names, mut files) = (Vec::new(), Vec::new());
        for version in versions {
            names.push(name_of(&version.path)?);
            files.push(Stoppable { file: version.file, cancelled: of.cancelled });
        }
        let made = names.iter().zip(&mut files);
        let mut made: Vec<MadeFile<'_>> =
            made.map(|(name, bytes)| MadeFile { name: name.clone(), bytes }).collect();
        let job = MakingJob { job: of.job, name: of.name.to_string() };
        let stored = opened.tree.store_made(&mut made, &job, &Watch::default());
        stored.map_err(|error| match of.cancelled.load(Ordering::Relaxed) {
            true => {
                TaskFailure::new(Blame::Cancelled, "the job was stopped before its outputs were published")
            }
            false => failure(&format!("store the output {}", shown(&names)), &error),
        })?;
        let content = |name: TreePath| {
            let found = content_of(&*opened.tree, name.clone());
            let found = found.map_err(|error| failure(&format!("find the output files:{name}"), &error))?;
            let gone = || {
                let message = format!(
                    "the output files:{name} was removed, or its node was lost, as soon as it was stored"
                );
                TaskFailure::new(Blame::Environment, message)
            };
            found.ok_or_else(gone)
        };
        names.into_iter().map(content).collect()
    }

    fn contents(
        &self,
        of: &StoringJob<'_>,
        names: &[&Path],
    ) -> Result<Vec<Option<StoredContent>>, TaskFailure> {
        let opened = self.open(of)?;
        let content = |path: &&Path| {
            let found = content_of(&*opened.tree, name_of(path)?);
            found.map_err(|error| failure(&format!("look at {}", path.display()), &error))
        };
        names.iter().map(content).collect()
    }

    fn remove(&self, of: &StoringJob<'_>, names: &[&Path]) -> Result<(), TaskFailure> {
        let opened = self.open(of)?;
        for path in names {
            let change = TreeChange::Remove { path: name_of(path)?, recursive: Recursion::No };
            match opened.tree.change(&change) {
                Err(error) if !is_missing(&error) => {
                    return Err(failure(&format!("remove {}", path.display()), &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the name of an output, or the first of several.
fn shown(names: &[TreePath]) -> String {
    let first = names.first().map(TreePath::to_string).unwrap_or_default();
    match names.len() {
        1 => format!("files:{first}"),
        count => format!("files:{first} or one of the {} others", count - 1),
    }
}
