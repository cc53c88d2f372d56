//! # What it does
//! The files of a cluster for its clients: puts write parts to the data ports of nodes, gets read them from there, and
//! the server has the names. The same commands as those of one machine (`filestore`).
//!
//! # Where it sits
//! cli -> clusterfiles -> filetransfer (cuts, reads and writes), client (the server), dataport (the nodes).
//!
//! # Invariants
//! A part counts as written when the node of a disk has said that it is synced, and is recorded with the disks that have
//! it. Nothing is visible before the server has committed the put. Every byte that is read was verified against the
//! content that the server named, whichever node sent it. A reader holds a lease of its version.
//!
//! # Deliberately absent
//! No choice of disks and no repair of replicas: the server decides both. No state on this machine: the server knows the
//! files of an interrupted put.
//!
//! # How it is tested
//! Batches, numbers, places and reading ahead beside the code; in `tests/`, commands over real data ports with a server
//! in memory, while nodes fail and replicas are damaged.

mod batch;
mod check;
mod connection;
mod inputs;
mod lease;
mod made;
mod numbers;
mod opened;
mod places;
mod put_parts;
mod puts;
mod read_ahead;
mod read_parts;
mod reading;
mod writing;

pub use inputs::ReadableFiles;

use crate::connection::Connection;
use api::stored::MakingJob;
use api::stored::cluster::{ChangeStored, StoredChange, StoredGroup};
use filestore::{
    CheckedFiles, CommittedChange, EntryPage, FileEntry, FilesError, MadeFile, OpenedFile, PartWithReplicas,
    PutOptions, PutSource, RemoteFault, StoredTree, TakeEntry,
};
use filetransfer::{Target, Unsuitable, Watch};
use filetree::{GroupSetting, Parents, Recursion, TreeChange, TreeName, TreePath};
use ids::FileVersion;
use reading::text_of;
use rows::{FileCommitRow, FileNameRow};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use trust::Credentials;

/// The files of a cluster, through its server. Calls block, and must not be made from async code.
pub struct ClusterFiles {
    connection: Arc<Connection>,
}

impl ClusterFiles {
    /// Creates a client of a server; connects to nothing yet. `user` owns everything that is made, unless the token names
    /// another one.
    pub fn connect(url: &str, credentials: &Credentials, user: &str) -> Result<Self, FilesError> {
        Ok(Self { connection: Arc::new(Connection::with(url, credentials, user)?) })
    }

    /// Creates a client that gives the address of the server to `tell` when it has not answered for some seconds and is
    /// asked again; once for each outage.
    pub fn connect_telling(
        url: &str,
        credentials: &Credentials,
        user: &str,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, FilesError> {
        let mut connection = Connection::with(url, credentials, user)?;
        connection.server.tell_outages(tell);
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Creates a client that fails after this time if the server does not answer, or no replica can be reached.
    pub fn connect_waiting(
        url: &str,
        credentials: &Credentials,
        user: &str,
        wait_max: Duration,
    ) -> Result<Self, FilesError> {
        let mut connection = Connection::with(url, credentials, user)?;
        connection.answer_max = Some(wait_max);
        Ok(Self { connection: Arc::new(connection) })
    }
}

fn message_of(change: &TreeChange) -> StoredChange {
    match change {
        TreeChange::MakeDirectory { path, parents } => {
            StoredChange::MakeDirectory { path: text_of(path), parents: *parents == Parents::Made }
        }
        TreeChange::Remove { path, recursive } => {
            StoredChange::Remove { path: text_of(path), recursive: *recursive == Recursion::Yes }
        }
        TreeChange::Rename { from, to } => StoredChange::Rename { from: text_of(from), to: text_of(to) },
        TreeChange::Copy { from, to } => StoredChange::Copy { from: text_of(from), to: text_of(to) },
        TreeChange::SetGroups { path, read, write, recursive } => StoredChange::SetGroups {
            path: text_of(path),
            read: group_message(read),
            write: group_message(write),
            recursive: *recursive == Recursion::Yes,
        },
        TreeChange::SetOwner { path, user, recursive } => StoredChange::SetOwner {
            path: text_of(path),
            user: user.clone(),
            recursive: *recursive == Recursion::Yes,
        },
    }
}

/// Adds to an error of a server that went away that its change may have been made: no request for a change is repeated.
fn perhaps_made(error: FilesError, path: &TreePath) -> FilesError {
    match error {
        FilesError::Remote { fault: RemoteFault::Failed, text } => {
            let advice = format!("the change may have been made: `sailfish files versions {path}` shows it");
            FilesError::Remote { fault: RemoteFault::Failed, text: format!("{text}; {advice}") }
        }
        error => error,
    }
}

fn group_message(setting: &GroupSetting) -> StoredGroup {
    match setting {
        GroupSetting::Kept => StoredGroup::Kept,
        GroupSetting::Inherited => StoredGroup::Inherited,
        GroupSetting::Group(group) => StoredGroup::Group(group.clone()),
    }
}

impl StoredTree for ClusterFiles {
    fn put(
        &self,
        source: PutSource<'_>,
        name: &TreePath,
        options: &PutOptions,
        watch: &Watch,
        left_out: &mut dyn FnMut(&Unsuitable),
    ) -> Result<CommittedChange, FilesError> {
        self.put_source(source, name, options, watch, left_out)
    }

    fn get(
        &self,
        name: &TreeName,
        target: &Target,
        threads: usize,
        watch: &Watch,
    ) -> Result<[u64; 2], FilesError> {
        self.get_below(name, target, threads, watch)
    }

    fn cat(
        &self,
        name: &TreeName,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError> {
        self.cat_range(name, offset, bytes_max, out)
    }

    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        self.opened(name)
    }

    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        self.found_entry(name)
    }

    fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError> {
        self.page_after(name, after)
    }

    fn list(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        self.list_entries(name, take)
    }

    fn walk(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        self.walk_entries(name, take)
    }

    fn parts(&self, row: &FileNameRow, at: Option<FileVersion>) -> Result<Vec<PartWithReplicas>, FilesError> {
        self.parts_of(row, at)
    }

    fn versions(&self, path: &TreePath, limit: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        self.commits(path, limit)
    }

    fn maker(&self, name: &TreeName) -> Result<Option<MakingJob>, FilesError> {
        self.making_job(name)
    }

    fn store_made(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
    ) -> Result<(), FilesError> {
        self.store_files(files, job, watch)
    }

    fn check(&self, name: &TreeName) -> Result<CheckedFiles, FilesError> {
        self.check_below(name)
    }

    fn change(&self, change: &TreeChange) -> Result<Option<FileVersion>, FilesError> {
        let message = ChangeStored { change: message_of(change), user: self.connection.user.clone() };
        let changed = self.connection.ask(async |client| client.change_stored(&message).await);
        Ok(changed.map_err(|error| perhaps_made(error, change.path()))?.version)
    }
}
