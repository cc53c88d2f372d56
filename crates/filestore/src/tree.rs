//! Commands on a tree of files, wherever its bytes are.

use crate::FileStore;
use crate::changes::{CommittedChange, TreeChange};
use crate::check::CheckedFiles;
use crate::error::FilesError;
use crate::outputs::MadeFile;
use crate::puts::{PutOptions, PutSource};
use crate::reading::FileEntry;
use api::stored::MakingJob;
use filetransfer::{RecordSum, Target, Unsuitable, Watch, check_records};
use filetree::{TreeName, TreePath};
use ids::{DiskId, FileVersion};
use rows::{ConcreteRow, FileCommitRow, FileNameRow};
use std::fs::File;
use std::io::Write;

/// A receiver of entries; an error ends the list.
pub type TakeEntry<'a> = &'a mut dyn FnMut(FileEntry) -> Result<(), FilesError>;

/// A disk of a cluster that has a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOfPart {
    pub disk: DiskId,
    /// Name of its node; None if the node cannot be reached.
    pub node: Option<String>,
}

/// A part of a file, with its replicas in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartWithReplicas {
    pub row: ConcreteRow,
    /// Wished number of replicas; 0 on one machine, which has no replicas.
    pub wanted: u32,
    pub replicas: Vec<ReplicaOfPart>,
}

/// Entries of a directory, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPage {
    pub entries: Vec<FileEntry>,
    /// True if others follow the last one.
    pub more: bool,
}

/// An open file. Its version stays readable while this lives. Several threads may read at once.
pub trait FileReader: Send + Sync {
    /// Writes verified bytes from `offset` on, in order, at most `bytes_max`; fewer only at the end of the file.
    fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError>;

    /// Returns whether the bytes lie on this machine: a short read then costs no more for each byte than a long one.
    fn is_near(&self) -> bool;

    /// Opens the file of this machine that has these bytes and no others, if there is one. They are not verified.
    fn backing(&self) -> Option<File>;
}

/// A file that was opened, with the entry that its name had.
pub struct OpenedFile {
    pub row: FileNameRow,
    pub reader: Box<dyn FileReader>,
}

impl OpenedFile {
    /// Writes verified bytes from `offset` on, at most `bytes_max`. If that is all of a file whose records are distributed
    /// by their keys, their sum is compared as well.
    pub fn read(
        &self,
        name: &str,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError> {
        let is_whole = offset == 0 && bytes_max >= self.row.bytes;
        let Some(hashed) = self.row.hashed.as_ref().filter(|_| is_whole) else {
            return self.reader.read(offset, bytes_max, out);
        };
        let mut summed = Summed { out, sum: RecordSum::new(hashed) };
        self.reader.read(offset, bytes_max, &mut summed)?;
        Ok(check_records(name, hashed, &summed.sum.finish())?)
    }
}

/// A writer that adds up the records that pass.
struct Summed<'a> {
    out: &'a mut dyn Write,
    sum: RecordSum,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// A tree of files, of one machine or of a cluster. The methods block.
pub trait StoredTree: Send + Sync {
    /// Puts a source under a name, as one version. Entries that were left out are given to `left_out`. Durable when this
    /// returns.
    fn put(
        &self,
        source: PutSource<'_>,
        name: &TreePath,
        options: &PutOptions,
        watch: &Watch,
        left_out: &mut dyn FnMut(&Unsuitable),
    ) -> Result<CommittedChange, FilesError>;

    /// Gets a file or a directory into the file system of this machine. Returns the files and bytes.
    fn get(
        &self,
        name: &TreeName,
        target: &Target,
        threads: usize,
        watch: &Watch,
    ) -> Result<[u64; 2], FilesError>;

    /// Writes the bytes of a file from `offset` on, at most `bytes_max`, verified.
    fn cat(
        &self,
        name: &TreeName,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError>;

    /// Opens a file for reads of its ranges.
    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError>;

    /// Returns the entry of a name.
    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError>;

    /// Returns entries of a directory whose names follow `after`, a bounded number.
    fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError>;

    /// Gives the entries of a directory to `take`, in the order of their names; those of a file are the file itself.
    fn list(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError>;

    /// Gives everything below a directory to `take`, under names relative to it, each directory before its entries.
    fn walk(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError>;

    /// Returns the parts of a file, in their order. `at`: the version whose entry it is; None is the current one.
    fn parts(&self, row: &FileNameRow, at: Option<FileVersion>) -> Result<Vec<PartWithReplicas>, FilesError>;

    /// Returns the changes of a name and of everything below it, newest first.
    fn versions(&self, path: &TreePath, limit: u32) -> Result<Vec<FileCommitRow>, FilesError>;

    /// Returns the job that made a file, or the directory of its output; None if no job made it, or one that the user does
    /// not see.
    fn maker(&self, name: &TreeName) -> Result<Option<MakingJob>, FilesError>;

    /// Stores files that a job made as new versions of their names, all written before the first is visible. A version that
    /// the same job has stored before stays.
    fn store_made(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
    ) -> Result<(), FilesError>;

    /// Reads and verifies everything below a name.
    fn check(&self, name: &TreeName) -> Result<CheckedFiles, FilesError>;

    /// Changes the tree; durable when this returns. None if there was nothing to change.
    fn change(&self, change: &TreeChange) -> Result<Option<FileVersion>, FilesError>;
}

impl StoredTree for FileStore {
    fn put(
        &self,
        source: PutSource<'_>,
        name: &TreePath,
        options: &PutOptions,
        watch: &Watch,
        left_out: &mut dyn FnMut(&Unsuitable),
    ) -> Result<CommittedChange, FilesError> {
        self.put(source, name, options, watch, left_out)
    }

    fn get(
        &self,
        name: &TreeName,
        target: &Target,
        threads: usize,
        watch: &Watch,
    ) -> Result<[u64; 2], FilesError> {
        self.get(name, target, threads, watch)
    }

    fn cat(
        &self,
        name: &TreeName,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError> {
        self.cat(name, offset, bytes_max, out)
    }

    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        self.open_file(name)
    }

    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        self.entry(name)
    }

    fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError> {
        self.entry_page(name, after)
    }

    fn list(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        self.list(name, take)
    }

    fn walk(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        self.walk(name, take)
    }

    fn parts(
        &self,
        row: &FileNameRow,
        _at: Option<FileVersion>,
    ) -> Result<Vec<PartWithReplicas>, FilesError> {
        let part = |row| PartWithReplicas { row, wanted: 0, replicas: Vec::new() };
        Ok(self.parts(row)?.into_iter().map(part).collect())
    }

    fn versions(&self, path: &TreePath, limit: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        self.versions(path, limit)
    }

    fn maker(&self, name: &TreeName) -> Result<Option<MakingJob>, FilesError> {
        self.maker(name)
    }

    fn store_made(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
    ) -> Result<(), FilesError> {
        self.store_made(files, job, watch)
    }

    fn check(&self, name: &TreeName) -> Result<CheckedFiles, FilesError> {
        self.check(name)
    }

    fn change(&self, change: &TreeChange) -> Result<Option<FileVersion>, FilesError> {
        self.change(change)
    }
}
