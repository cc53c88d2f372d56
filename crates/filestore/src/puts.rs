//! Puts: a file, a directory or a stream becomes a logical file or a directory of them, as one version.

use crate::changes::CommittedChange;
use crate::error::FilesError;
use crate::{FileStore, Parts, concrete_rows, now_ns};
use api::stored::{HashedFile, MakingJob};
use concretefile::PutLock;
use faults::{CrashPoint, crash_point};
use filetransfer::{
    Cut, DonePart, HashBy, HashedPut, HashedSource, Links, ListedSource, PART_BYTES_OF_ONE_DISK, PutPlan,
    RecordEnds, SourceFile, TransferError, Watch, list_source, put, put_stream,
};
use filetree::{FileSize, FoundPath, Making, TreeDecision, TreeError, TreePath, place, ttl_ns};
use ids::{ConcreteId, ContentId, DirectoryId, PutId};
use metastore::{EndedPut, FileChange, FileFacts, FileQuestion};
use rows::{ConcreteRow, FileCommitRow, FileItem, FileNameRow, FilePutRow, FileSpace};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOptions {
    /// Wished number of parts of each file; None derives it from the size.
    pub parts: Option<u32>,
    pub records: RecordEnds,
    /// Distribution of the records of one file over its parts; `parts` and `records` have no meaning then.
    pub hash_by: Option<HashBy>,
    pub links: Links,
    /// True if entries that cannot be put are left out.
    pub skip_unsuitable: bool,
    /// Number of versions that are kept, with the new one.
    pub keep_versions: u32,
    /// Time from the commit after which the name is removed; None is never.
    pub ttl: Option<Duration>,
    /// Wished number of replicas in a cluster; None leaves it to the server. One machine has one.
    pub replicas: Option<u32>,
    pub threads: usize,
}

impl PutOptions {
    /// Returns how its files are cut, where a part that is not asked for has at most so many bytes.
    pub fn cut(&self, part_bytes_max: u64) -> Cut {
        Cut { parts: self.parts, part_bytes_max, records: self.records }
    }
}

/// The source of a put.
pub enum PutSource<'a> {
    Path(&'a Path),
    /// Bytes without a length, such as standard input.
    Stream(&'a mut dyn Read),
}

/// The source of a put that was looked at.
enum Origin<'a> {
    Files(ListedSource),
    Stream(&'a mut dyn Read),
}

/// Files of a put that are all written.
pub(crate) struct ReadyPut {
    pub put: PutId,
    pub is_directory: bool,
    pub directories: Vec<String>,
    /// Names below the put with their parts.
    pub files: Box<dyn Iterator<Item = (String, ContentId, Vec<DonePart>)>>,
    pub files_count: u64,
    pub bytes: u64,
    /// Set for one file whose records are distributed by their keys.
    pub hashed: Option<HashedFile>,
    /// The job whose output it is.
    pub job: Option<MakingJob>,
    /// All concrete files, to be synced.
    pub parts: Vec<ConcreteId>,
}

impl FileStore {
    /// Puts a source under a name: a new version of a file, or of a directory with everything below it. Entries that
    /// were left out are given to `left_out`.
    ///
    /// Durable when this returns. A put that was interrupted goes on with the files that it has, if source and name are
    /// the same.
    pub fn put(
        &self,
        source: PutSource<'_>,
        name: &TreePath,
        options: &PutOptions,
        watch: &Watch,
        left_out: &mut dyn FnMut(&filetransfer::Unsuitable),
    ) -> Result<CommittedChange, FilesError> {
        if name.is_root() {
            return Err(TreeError::Root.into());
        }
        let ttl_ns = options.ttl.map(ttl_ns).transpose()?;
        self.sweep()?;
        let (origin, path) = match source {
            PutSource::Stream(stream) => (Origin::Stream(stream), None),
            PutSource::Path(path) => (Origin::Files(self.listed(path, name, options, left_out)?), Some(path)),
        };
        let item = match &origin {
            Origin::Files(listed) if listed.is_directory && options.hash_by.is_some() => {
                return Err(FilesError::HashedDirectory);
            }
            Origin::Files(listed) if listed.is_directory => FileItem::Directory(DirectoryId(0)),
            _ => FileItem::File(ContentId(0)),
        };
        self.check_place(name, item)?;
        // Records that are on their way to many parts are not kept: the put begins anew.
        let path = path.filter(|_| options.hash_by.is_none());
        let is_stream = path.is_none();
        let (put, lock) = self.begin(path, name)?;
        crash_point(CrashPoint::FilesBegun);
        let ready = match (origin, &options.hash_by) {
            (Origin::Files(listed), None) => self.write_listed(put, listed, options, watch),
            (Origin::Stream(stream), None) => self.write_stream(put, stream, watch),
            (Origin::Files(listed), Some(by)) => {
                let source = HashedSource::File(single_file(&listed)?);
                self.write_hashed(put, source, by, options.threads, watch)
            }
            (Origin::Stream(stream), Some(by)) => {
                let source = HashedSource::Stream(stream, Path::new("standard input"));
                self.write_hashed(put, source, by, options.threads, watch)
            }
        };
        let committed = ready.and_then(|ready| {
            crash_point(CrashPoint::FilesWritten);
            self.disk.sync(&ready.parts)?;
            crash_point(CrashPoint::FilesSynced);
            self.commit(ready, name, options.keep_versions, ttl_ns)
        });
        if let Err(error) = &committed
            && (is_stream || !goes_on(error))
        {
            // The first error is the one to report.
            let _ = self.abandon(put, &lock);
        }
        let committed = committed?;
        crash_point(CrashPoint::FilesCommitted);
        self.retire()?;
        Ok(committed)
    }

    fn listed(
        &self,
        source: &Path,
        name: &TreePath,
        options: &PutOptions,
        left_out: &mut dyn FnMut(&filetransfer::Unsuitable),
    ) -> Result<ListedSource, FilesError> {
        let listed = list_source(source, options.links, name.to_string().len())?;
        match options.skip_unsuitable || listed.unsuitable.is_empty() {
            true => listed.unsuitable.iter().for_each(left_out),
            false => {
                let (source_path, unsuitable) = (source.to_path_buf(), listed.unsuitable);
                return Err(FilesError::Unsuitable { source_path, unsuitable });
            }
        }
        Ok(listed)
    }

    /// Returns an error before any byte is read if the name cannot be used.
    pub(crate) fn check_place(&self, name: &TreePath, item: FileItem) -> Result<(), FilesError> {
        let rows = self.run(self.store.found_names(FileSpace::Machine, name.components(), None))?;
        let root = FileSpace::Machine.root();
        let found = FoundPath { path: name.clone(), root, rows: rows.rows, has_entries: rows.has_entries };
        place(&found, item, FileSize::default(), &mut self.making(FileFacts::default(), 1))?;
        Ok(())
    }

    /// Begins a put, or goes on with one of the same source that was interrupted. A stream has no source.
    pub(crate) fn begin(
        &self,
        source: Option<&Path>,
        name: &TreePath,
    ) -> Result<(PutId, PutLock), FilesError> {
        let source = source.and_then(|path| std::fs::canonicalize(path).ok());
        let source = source.as_deref().map(Path::to_string_lossy).unwrap_or_default().into_owned();
        let (user, path) = (self.user.clone(), name.to_string());
        for row in self.run(self.store.file_puts())? {
            let is_same = !source.is_empty() && row.source == source && row.path == path && row.user == user;
            if is_same && let Some(lock) = self.lock_interrupted(row.put)? {
                // Files that were being written when it was interrupted.
                self.remove_unknown(row.put)?;
                return Ok((row.put, lock));
            }
        }
        let put = self.run(self.store.reserve_put_id())?;
        let row = FilePutRow { put, user, path, source, created_ns: now_ns() };
        // The lock comes first: a row without a lock is a put that was interrupted.
        let lock = self.disk.lock(put)?.ok_or_else(|| FilesError::Io {
            action: "lock",
            path: PathBuf::from(format!("put {put}")),
            source: std::io::ErrorKind::WouldBlock.into(),
        })?;
        self.run(self.store.begin_put(&row))?;
        Ok((put, lock))
    }

    fn write_listed(
        &self,
        put_id: PutId,
        listed: ListedSource,
        options: &PutOptions,
        watch: &Watch,
    ) -> Result<ReadyPut, FilesError> {
        let (bytes, files_count) = (listed.bytes(), listed.files.len() as u64);
        let ListedSource { files, directories, is_directory, .. } = listed;
        let plan = self.plan(put_id, files, options)?;
        put(&plan, &Parts { files: self, put: put_id }, options.threads, watch)?;
        let written = plan.files.iter().filter(|file| !file.is_done);
        let parts = written.flat_map(|file| plan.done_parts(file)).map(|part| part.concrete).collect();
        let files = (0..plan.files.len()).filter_map(move |index| {
            let file = &plan.files[index];
            let content = ContentId::of(put_id, file.first_number)?;
            Some((file.source.name.clone(), content, plan.done_parts(file)))
        });
        let files = Box::new(files);
        Ok(ReadyPut {
            put: put_id,
            is_directory,
            directories,
            files,
            files_count,
            bytes,
            hashed: None,
            job: None,
            parts,
        })
    }

    /// Cuts the files. Those that an interrupted put has already, with the same size and time, keep their numbers.
    fn plan(&self, put: PutId, files: Vec<SourceFile>, options: &PutOptions) -> Result<PutPlan, FilesError> {
        let mut known = HashMap::new();
        for row in self.run(self.store.put_files(put))? {
            known.insert(row.name.clone(), row);
        }
        let first_number = match known.is_empty() {
            true => 0,
            // Behind all files that the put may have written.
            false => self.disk.files(put)?.into_iter().map(|file| file.number() + 1).max().unwrap_or(0),
        };
        let mut plan = PutPlan::new(put, files, options.cut(PART_BYTES_OF_ONE_DISK))?;
        for index in 0..plan.files.len() {
            let file = &plan.files[index];
            let Some(row) = known.get(&file.source.name) else { continue };
            let is_same = row.bytes == file.source.bytes && row.modified_ns == file.source.modified_ns;
            let parts = self.run(self.store.concrete_files(row.content))?;
            let ends: Vec<u64> = parts
                .iter()
                .scan(0, |end, part| {
                    *end += part.bytes;
                    Some(*end)
                })
                .collect();
            if is_same && ends == file.ends {
                let sums: Vec<u32> = parts.iter().map(|part| part.crc32c).collect();
                plan.is_done_already(index, row.content.number(), &sums);
            }
        }
        plan.number_from(first_number)?;
        Ok(plan)
    }

    pub(crate) fn write_stream(
        &self,
        put: PutId,
        stream: &mut dyn Read,
        watch: &Watch,
    ) -> Result<ReadyPut, FilesError> {
        let (name, store) = (Path::new("standard input"), &Parts { files: self, put });
        let parts = put_stream(put, stream, name, PART_BYTES_OF_ONE_DISK, store, watch)?;
        one_file(put, parts)
    }

    fn write_hashed(
        &self,
        put: PutId,
        source: HashedSource<'_>,
        by: &HashBy,
        threads: usize,
        watch: &Watch,
    ) -> Result<ReadyPut, FilesError> {
        let (store, spool_dir) = (&Parts { files: self, put }, self.root.as_path());
        let done = HashedPut { put, store, spool_dir, threads, watch }.put(source, by)?;
        Ok(ReadyPut { hashed: Some(done.hashed), ..one_file(put, done.parts)? })
    }

    /// Gives everything its names, in one transaction.
    pub(crate) fn commit(
        &self,
        ready: ReadyPut,
        name: &TreePath,
        keep_versions: u32,
        ttl_ns: Option<u64>,
    ) -> Result<CommittedChange, FilesError> {
        let (files, bytes, put, job) = (ready.files_count, ready.bytes, ready.put, ready.job.clone());
        let question = FileQuestion { paths: vec![name.components()], ..FileQuestion::default() };
        let decide = |facts: FileFacts| {
            let mut making = Making { ttl_ns, ..self.making(facts.clone(), keep_versions) };
            let found = crate::changes::found(&facts, 0, name);
            let (decision, more) = decide_put(ready, &found, &mut making)?;
            let commit = FileCommitRow {
                version: facts.version,
                user: self.user.clone(),
                verb: "put".to_string(),
                path: name.to_string(),
                files,
                bytes,
                created_ns: making.now_ns,
                job,
            };
            let TreeDecision { ends, begins, owned } = decision;
            Ok::<_, TreeError>(Some(FileChange {
                commit,
                ends,
                begins,
                owned,
                more,
                ended_put: Some(EndedPut::Machine(put)),
            }))
        };
        let version = self.run(self.store.change_files(&question, decide))??;
        Ok(CommittedChange { version: version.unwrap_or_default(), files, bytes, short_files: 0 })
    }
}

/// Returns the put of one file that was not cut by a plan.
fn one_file(put: PutId, parts: Vec<DonePart>) -> Result<ReadyPut, FilesError> {
    let bytes = parts.iter().map(|part| part.content.bytes).sum();
    let content = ContentId::of(put, 0).ok_or(TransferError::TooMany)?;
    let written = parts.iter().map(|part| part.concrete).collect();
    Ok(ReadyPut {
        put,
        is_directory: false,
        directories: Vec::new(),
        files: Box::new(std::iter::once((String::new(), content, parts))),
        files_count: 1,
        bytes,
        hashed: None,
        job: None,
        parts: written,
    })
}

/// Returns the file of a source whose records are distributed by their keys.
pub fn single_file(listed: &ListedSource) -> Result<&SourceFile, FilesError> {
    match (listed.is_directory, listed.files.first()) {
        (false, Some(file)) => Ok(file),
        _ => Err(FilesError::HashedDirectory),
    }
}

/// Rows that are made one after the other.
type MoreRows = Box<dyn Iterator<Item = (FileNameRow, Vec<ConcreteRow>)>>;

fn decide_put(
    ready: ReadyPut,
    found: &FoundPath,
    making: &mut Making,
) -> Result<(TreeDecision, MoreRows), TreeError> {
    let ReadyPut { is_directory, directories, mut files, bytes, hashed, .. } = ready;
    if !is_directory {
        let Some((_, content, parts)) = files.next() else { return Err(TreeError::TooMany) };
        let item = FileItem::File(content);
        let mut decision = place(found, item, FileSize { bytes, parts: parts.len() as u32 }, making)?;
        let rows = concrete_rows(content, &parts);
        // The last row is that of the file.
        let last = decision.begins.pop().map(|row| (FileNameRow { hashed, ..row }, rows));
        return Ok((decision, Box::new(last.into_iter())));
    }
    let root = making.directory_id()?;
    let mut decision = place(found, FileItem::Directory(root), FileSize::default(), making)?;
    let mut ids: HashMap<String, DirectoryId> = HashMap::from([(String::new(), root)]);
    for name in directories {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", &name));
        let id = making.directory_id()?;
        decision.begins.push(making.row(ids[above], last, FileItem::Directory(id), FileSize::default()));
        ids.insert(name, id);
    }
    let making = making.clone();
    let more = files.map(move |(name, content, parts)| {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", &name));
        let bytes = parts.iter().map(|part| part.content.bytes).sum();
        let row = making.row(
            ids[above],
            last,
            FileItem::File(content),
            FileSize { bytes, parts: parts.len() as u32 },
        );
        (row, concrete_rows(content, &parts))
    });
    Ok((decision, Box::new(more)))
}

/// Returns whether an interrupted put is kept, so that the same command goes on with it.
fn goes_on(error: &FilesError) -> bool {
    match error {
        FilesError::Transfer(error) => {
            matches!(error, TransferError::Interrupted | TransferError::Changed { .. })
        }
        _ => false,
    }
}
