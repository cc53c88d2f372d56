//! Puts into a cluster: a source becomes parts on nodes, which get their names in one version at the end.

use crate::ClusterFiles;
use crate::numbers::Numbers;
use crate::put_parts::PutParts;
use crate::reading::text_of;
use api::stored::cluster::{
    BeginStored, BegunStored, CommitStored, CommittedStored, KnownFile, KnownOfPut, STORED_PAGE_MAX,
    StoredPut,
};
use filestore::{CommittedChange, FilesError, PutOptions, PutSource, RemoteFault, single_file};
use filetransfer::{
    HashBy, HashedPut, HashedSource, ListedSource, PART_BYTES, PutPlan, SourceFile, TransferError,
    Unsuitable, Watch, list_source, put, put_stream,
};
use filetree::{TreeError, TreePath, TtlError, ttl_ns};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Pause between two questions whether a put is committed, which grows.
const COMMIT_PAUSE: Duration = Duration::from_millis(20);
const COMMIT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The source of a put that was looked at.
enum Origin<'a> {
    Files(ListedSource),
    Stream(&'a mut dyn Read),
}

/// Returns a time to live in seconds, rounded up.
fn whole_seconds(ttl: Duration) -> Result<u64, TtlError> {
    Ok(ttl_ns(ttl)?.div_ceil(1_000_000_000))
}

impl ClusterFiles {
    /// Puts a source under a name: see [`filestore::StoredTree::put`].
    pub(crate) fn put_source(
        &self,
        source: PutSource<'_>,
        name: &TreePath,
        options: &PutOptions,
        watch: &Watch,
        left_out: &mut dyn FnMut(&Unsuitable),
    ) -> Result<CommittedChange, FilesError> {
        if name.is_root() {
            return Err(TreeError::Root.into());
        }
        let ttl_seconds = options.ttl.map(whole_seconds).transpose()?;
        let (origin, path) = match source {
            PutSource::Stream(stream) => (Origin::Stream(stream), None),
            PutSource::Path(path) => (Origin::Files(listed(path, name, options, left_out)?), Some(path)),
        };
        let is_directory = matches!(&origin, Origin::Files(listed) if listed.is_directory);
        if is_directory && options.hash_by.is_some() {
            return Err(FilesError::HashedDirectory);
        }
        // Records that are on their way to many parts are not kept: the put begins anew.
        let path = path.filter(|_| options.hash_by.is_none());
        let begin = BeginStored {
            path: text_of(name),
            source: path.map(source_name).unwrap_or_default(),
            is_directory,
            replicas: options.replicas,
            keep_versions: options.keep_versions,
            ttl_seconds,
            user: self.connection.user.clone(),
        };
        let begun = self.connection.ask(async |client| client.begin_stored(&begin).await)?;
        let written = match (origin, &options.hash_by) {
            (Origin::Files(listed), None) => self.write_listed(&begun, listed, options, watch),
            (Origin::Stream(stream), None) => self.write_stream(&begun, stream, watch),
            (Origin::Files(listed), Some(by)) => single_file(&listed).and_then(|file| {
                self.write_hashed(&begun, HashedSource::File(file), by, options.threads, watch)
            }),
            (Origin::Stream(stream), Some(by)) => {
                let source = HashedSource::Stream(stream, Path::new("standard input"));
                self.write_hashed(&begun, source, by, options.threads, watch)
            }
        };
        let committed = written.and_then(|empty| self.commit(begun.of, empty, watch));
        if let Err(error) = &committed
            && (path.is_none() || !goes_on(error))
        {
            // The first error is the one to report.
            let _ = self.connection.ask(async |client| client.abandon_stored(&begun.of).await);
        }
        let CommittedStored { version, files, bytes, short_files } = committed?;
        Ok(CommittedChange { version: version.unwrap_or_default(), files, bytes, short_files })
    }

    /// Writes the files of a source that no earlier session has stored. Returns the directories without files.
    fn write_listed(
        &self,
        begun: &BegunStored,
        listed: ListedSource,
        options: &PutOptions,
        watch: &Watch,
    ) -> Result<Vec<String>, FilesError> {
        let ListedSource { files, directories, .. } = listed;
        let known = if begun.goes_on { self.known(begun.of)? } else { HashMap::new() };
        let forgotten = forgotten(&known, &files);
        let empty = empty_directories(directories, &files);
        let mut plan = PutPlan::new(begun.of.put, files, options.cut(PART_BYTES))?;
        skip_known(&mut plan, &known);
        plan.number_from(0)?;
        let bytes = plan.files.iter().filter(|file| !file.is_done).map(|file| file.source.bytes).sum();
        let numbers = Numbers::of_plan(begun.of, plan.numbers(), bytes);
        let parts = PutParts::new(&self.connection, begun.of, begun.replicas, numbers);
        for names in forgotten.chunks(STORED_PAGE_MAX as usize) {
            parts.record(Vec::new(), names.to_vec())?;
        }
        put(&plan, &parts, options.threads, watch).map_err(|error| parts.cause_of(error))?;
        Ok(empty)
    }

    pub(crate) fn write_stream(
        &self,
        begun: &BegunStored,
        stream: &mut dyn Read,
        watch: &Watch,
    ) -> Result<Vec<String>, FilesError> {
        let numbers = Numbers::of_stream(begun.of);
        let parts = PutParts::new(&self.connection, begun.of, begun.replicas, numbers);
        let name = Path::new("standard input");
        let done = put_stream(begun.of.put, stream, name, PART_BYTES, &parts, watch);
        let done = done.map_err(|error| parts.cause_of(error))?;
        parts.keep_stream(&done, None)?;
        Ok(Vec::new())
    }

    /// Writes one file whose records are distributed by their keys.
    fn write_hashed(
        &self,
        begun: &BegunStored,
        source: HashedSource<'_>,
        by: &HashBy,
        threads: usize,
        watch: &Watch,
    ) -> Result<Vec<String>, FilesError> {
        let numbers = Numbers::of_stream(begun.of);
        let parts = PutParts::new(&self.connection, begun.of, begun.replicas, numbers);
        let spool_dir = std::env::temp_dir();
        let put = HashedPut { put: begun.of.put, store: &parts, spool_dir: &spool_dir, threads, watch };
        let done = put.put(source, by).map_err(|error| parts.cause_of(error))?;
        parts.keep_stream(&done.parts, Some(done.hashed))?;
        Ok(Vec::new())
    }

    /// Returns the files that an earlier session has stored, by their names.
    pub(crate) fn known(&self, of: StoredPut) -> Result<HashMap<String, KnownFile>, FilesError> {
        let mut known = HashMap::new();
        let mut question = KnownOfPut { of, after: None };
        loop {
            let page = self.connection.ask(async |client| client.known_stored(&question).await)?;
            let last = page.files.last().map(|file| file.name.clone());
            known.extend(page.files.into_iter().map(|file| (file.name.clone(), file)));
            match last.filter(|_| page.more) {
                Some(last) => question.after = Some(last),
                None => return Ok(known),
            }
        }
    }

    /// Makes the put visible. The server names many files in steps.
    pub(crate) fn commit(
        &self,
        of: StoredPut,
        empty_directories: Vec<String>,
        watch: &Watch,
    ) -> Result<CommittedStored, FilesError> {
        let commit = CommitStored { of, empty_directories };
        let mut pause = COMMIT_PAUSE;
        loop {
            let committed = self.connection.ask(async |client| client.commit_stored(&commit).await)?;
            if committed.version.is_some() {
                return Ok(committed);
            }
            if watch.is_stopped() {
                return Err(TransferError::Interrupted.into());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(COMMIT_PAUSE_MAX);
        }
    }
}

fn listed(
    source: &Path,
    name: &TreePath,
    options: &PutOptions,
    left_out: &mut dyn FnMut(&Unsuitable),
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

/// Returns the name of a source by which a put goes on: equal paths of two machines are two sources.
fn source_name(path: &Path) -> String {
    let Ok(path) = std::fs::canonicalize(path) else { return String::new() };
    let host = rustix::system::uname();
    format!("{}:{}", host.nodename().to_string_lossy(), path.to_string_lossy())
}

/// Lets a plan leave out files that are stored already: size, time and parts are the same.
fn skip_known(plan: &mut PutPlan, known: &HashMap<String, KnownFile>) {
    for index in 0..plan.files.len() {
        let file = &plan.files[index];
        let Some(stored) = known.get(&file.source.name) else { continue };
        let ends = stored.parts.iter().scan(0, |end, part| {
            *end += part.bytes;
            Some(*end)
        });
        let is_same = stored.bytes == file.source.bytes && stored.modified_ns == file.source.modified_ns;
        if is_same && ends.eq(file.ends.iter().copied()) {
            let sums: Vec<u32> = stored.parts.iter().map(|part| part.crc32c).collect();
            plan.is_done_already(index, stored.content.number(), &sums);
        }
    }
}

/// Returns the known files that the source does not have any more.
fn forgotten(known: &HashMap<String, KnownFile>, files: &[SourceFile]) -> Vec<String> {
    let names: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let mut gone: Vec<String> = known.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
    gone.sort();
    gone
}

/// Returns the directories without any file below them.
fn empty_directories(directories: Vec<String>, files: &[SourceFile]) -> Vec<String> {
    let mut full: HashSet<&str> = HashSet::new();
    for file in files {
        let mut name = file.name.as_str();
        while let Some((above, _)) = name.rsplit_once('/') {
            // Those above it are full too.
            if !full.insert(above) {
                break;
            }
            name = above;
        }
    }
    directories.into_iter().filter(|name| !full.contains(name.as_str())).collect()
}

/// Returns whether an interrupted put is kept, so that the same command goes on with it.
fn goes_on(error: &FilesError) -> bool {
    match error {
        FilesError::Remote { fault, .. } => *fault == RemoteFault::Failed,
        FilesError::Transfer(error) => matches!(
            error,
            TransferError::Interrupted
                | TransferError::Changed { .. }
                | TransferError::Node { .. }
                | TransferError::Store(_)
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{empty_directories, forgotten, skip_known};
    use api::StoredPart;
    use api::stored::cluster::KnownFile;
    use filetransfer::{Cut, PutPlan, RecordEnds, SourceFile};
    use ids::{ConcreteId, ContentId, PutId};
    use std::collections::HashMap;

    fn source(name: &str, bytes: u64) -> SourceFile {
        SourceFile { name: name.to_string(), path: name.into(), bytes, modified_ns: 5 }
    }

    fn known(name: &str, parts: &[u64], modified_ns: u64) -> (String, KnownFile) {
        let part = |(number, bytes): (i64, &u64)| StoredPart {
            concrete: ConcreteId(number),
            bytes: *bytes,
            crc32c: 9,
        };
        let file = KnownFile {
            name: name.to_string(),
            content: ContentId::of(PutId(3), 40).unwrap(),
            bytes: parts.iter().sum(),
            modified_ns,
            parts: (40..).zip(parts).map(part).collect(),
        };
        (name.to_string(), file)
    }

    #[test]
    fn directories_without_files_are_named() {
        let directories = ["a", "a/b", "a/b/c", "a/bb", "d", "d/e"].map(String::from).to_vec();
        let check = |files: &[&str], expected: &[&str]| {
            let files: Vec<SourceFile> = files.iter().map(|name| source(name, 1)).collect();
            assert_eq!(empty_directories(directories.clone(), &files), expected);
        };
        check(&["x", "a/b/y", "a/b/z"], &["a/b/c", "a/bb", "d", "d/e"]);
        check(&["a/b/c/y", "d/e/z"], &["a/bb"]);
        check(&["x"], &["a", "a/b", "a/b/c", "a/bb", "d", "d/e"]);
    }

    #[test]
    fn unchanged_files_are_not_put_again() {
        let stored: HashMap<String, KnownFile> = [
            known("same", &[10, 10], 5),
            known("touched", &[20], 6),
            known("cut", &[20], 5),
            known("empty", &[], 5),
            known("gone", &[1], 5),
        ]
        .into();
        let files = vec![source("cut", 20), source("empty", 0), source("new", 8), source("same", 20)];
        assert_eq!(forgotten(&stored, &files), ["gone", "touched"]);
        let cut = Cut { parts: Some(2), part_bytes_max: 1, records: RecordEnds::Bytes };
        let mut plan = PutPlan::new(PutId(3), files, cut).unwrap();
        skip_known(&mut plan, &stored);
        let done: Vec<bool> = plan.files.iter().map(|file| file.is_done).collect();
        assert_eq!(done, [false, true, false, true]);
        assert_eq!(plan.numbers(), 4);
        plan.number_from(0).unwrap();
        let numbers: Vec<u32> = plan.files.iter().map(|file| file.first_number).collect();
        assert_eq!(numbers, [0, 40, 2, 40]);
        let parts = plan.done_parts(&plan.files[3]);
        assert_eq!(parts.iter().map(|part| part.content.crc32c).collect::<Vec<_>>(), [9, 9]);
    }
}
