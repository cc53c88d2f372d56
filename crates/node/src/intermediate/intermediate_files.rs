//! Intermediate files of users on this node: files that are being written, complete files, and copies of other nodes'
//! files. The bytes are stage files in a directory of this process on each disk; the server has the list of files. Files
//! of an earlier process on these disks are here from the beginning, and the server says which of them are wanted.

use crate::shuffle::stage_files::StageFiles;
use api::intermediate::{HeldIntermediate, INTERMEDIATES_LISTED_MAX, IntermediateAnswer, IntermediateNote};
use dataport::{IntermediateFileError, StageFileHere, StageFileName, StatedContent};
use ids::{IntermediateId, NodeId};
use stagefile::{BlockLayout, Payload, StageFileError, StageFileSummary, StageFileWriter, Syncing};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of files that are written here at once, each with a quarter of a megabyte.
const WRITERS_MAX: usize = 256;
/// Longest reason for abandoning a file that is passed on, in bytes.
const REASON_BYTES_MAX: usize = 1000;
/// Maximum number of abandoned files that are not reported yet; the server abandons the files of lost nodes by itself.
const UNTOLD_MAX: usize = 4096;

type Tell = dyn Fn(Vec<IntermediateNote>) -> Result<IntermediateAnswer, String> + Send + Sync;

/// The files of users on this node.
pub struct IntermediateFiles {
    /// A directory on each disk, created for the first file.
    dirs: Vec<PathBuf>,
    complete: StageFiles,
    writers: Mutex<BTreeMap<IntermediateId, Arc<Mutex<Writing>>>>,
    /// Copies of this node's files on other nodes.
    sent: Mutex<BTreeMap<IntermediateId, SentFile>>,
    /// Abandoned files that the server does not know of yet.
    untold: Mutex<Vec<IntermediateNote>>,
    /// True if the server could not be told which files are here.
    is_unlisted: AtomicBool,
    draining: AtomicBool,
    /// True if the process ends, or rejoins as another node: nothing new begins.
    ended: AtomicBool,
    tell: Box<Tell>,
}

/// A copy that another node accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentFile {
    pub to: NodeId,
    pub bytes: u64,
    pub single_ns: u64,
}

/// A file that is being written.
struct Writing {
    /// None before the first byte, and after the end.
    writer: Option<(StageFileWriter, PathBuf)>,
    heard: Instant,
    silence: Duration,
    is_over: bool,
}

impl Writing {
    fn new(silence: Duration) -> Self {
        Self { writer: None, heard: Instant::now(), silence, is_over: false }
    }

    fn written(&self) -> u64 {
        self.writer.as_ref().map_or(0, |(writer, _)| writer.written_bytes())
    }
}

/// The position of a write in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    /// It continues at the end of the file.
    Appends,
    /// It may repeat existing bytes.
    Repeats,
}

/// Classifies a write. A file is written front to back: a write continues at the end of the file, or lies within the
/// written bytes, and must equal them.
fn place(
    file: IntermediateId,
    written: u64,
    offset: u64,
    bytes: usize,
) -> Result<Placed, IntermediateFileError> {
    match offset.checked_add(bytes as u64) {
        _ if offset == written => Ok(Placed::Appends),
        _ if offset > written => Err(IntermediateFileError::Gap { file, offset, written }),
        Some(end) if end <= written => Ok(Placed::Repeats),
        _ => Err(IntermediateFileError::Overlap { file, offset, written }),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IntermediateFiles {
    /// Opens the files in these directories, which may not exist yet. `tell` reports to the server and returns its
    /// answer, or the error.
    pub(crate) fn new(
        dirs: Vec<PathBuf>,
        tell: impl Fn(Vec<IntermediateNote>) -> Result<IntermediateAnswer, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            complete: StageFiles::new(dirs.clone()),
            dirs,
            writers: Mutex::default(),
            sent: Mutex::default(),
            untold: Mutex::default(),
            is_unlisted: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            tell: Box::new(tell),
        }
    }

    /// Begins a drain: current files are still written to their end.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Ends all writes, and begins no new ones.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        lock(&self.writers).clear();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Expects a writer; it is abandoned after this silence. An active writer is not affected.
    pub(crate) fn begin(&self, file: IntermediateId, silence: Duration) {
        if self.complete.find(&StageFileName::of_user_file(file)).is_none() && !self.has_ended() {
            lock(&self.writers).entry(file).or_insert_with(|| Arc::new(Mutex::new(Writing::new(silence))));
        }
    }

    /// Returns a file that is being written. The writer's first bytes begin it, since they may arrive before the order
    /// of the server.
    fn writing(
        &self,
        file: IntermediateId,
        may_begin: bool,
        silence: Duration,
    ) -> Result<Arc<Mutex<Writing>>, IntermediateFileError> {
        let mut writers = lock(&self.writers);
        if let Some(writing) = writers.get(&file) {
            return Ok(Arc::clone(writing));
        }
        if self.complete.find(&StageFileName::of_user_file(file)).is_some() {
            return Err(IntermediateFileError::Complete(file));
        }
        if !may_begin || self.has_ended() {
            return Err(IntermediateFileError::NotWriting(file));
        }
        if self.draining.load(Ordering::Relaxed) {
            return Err(IntermediateFileError::Draining);
        }
        if writers.len() >= WRITERS_MAX {
            return Err(IntermediateFileError::TooMany);
        }
        let writing = Arc::new(Mutex::new(Writing::new(silence)));
        writers.insert(file, Arc::clone(&writing));
        Ok(writing)
    }

    /// Creates the file on the first disk that accepts it.
    fn create(&self, file: IntermediateId) -> Result<(StageFileWriter, PathBuf), IntermediateFileError> {
        for dir in &self.dirs {
            // If this fails, the creation of the file fails too, with a reason.
            let _ = std::fs::create_dir(dir);
        }
        let mut first_error = None;
        for path in self.complete.places(&StageFileName::of_user_file(file)) {
            match StageFileWriter::create(&path) {
                Ok(writer) => return Ok((writer, path)),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        let source = first_error.unwrap_or_else(|| StageFileError::Io {
            action: "create",
            path: PathBuf::new(),
            source: std::io::ErrorKind::NotFound.into(),
        });
        Err(IntermediateFileError::Disk { file, source })
    }

    fn write_here(
        &self,
        file: IntermediateId,
        writing: &mut Writing,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, IntermediateFileError> {
        match place(file, writing.written(), offset, bytes.len())? {
            Placed::Repeats => {
                let held = match &writing.writer {
                    Some((writer, _)) => writer.holds(offset, bytes),
                    None => Ok(bytes.is_empty()),
                };
                match held.map_err(|source| IntermediateFileError::Disk { file, source })? {
                    true => Ok(writing.written()),
                    false => Err(IntermediateFileError::Differs { file, offset }),
                }
            }
            Placed::Appends => {
                let (mut writer, path) = match writing.writer.take() {
                    Some(open) => open,
                    None => self.create(file)?,
                };
                // Dropped after an error: some of the bytes may be written.
                writer.write_all(bytes).map_err(|source| {
                    let source = StageFileError::Io { action: "write", path: path.clone(), source };
                    IntermediateFileError::Disk { file, source }
                })?;
                writing.writer = Some((writer, path));
                Ok(writing.written())
            }
        }
    }

    /// Abandons a file that is being written: its bytes are removed, and the reason is reported to the server.
    fn give_up(&self, file: IntermediateId, reason: &str) -> bool {
        let Some(writing) = lock(&self.writers).remove(&file) else { return false };
        let mut writing = lock(&writing);
        if writing.is_over {
            return false;
        }
        (writing.writer, writing.is_over) = (None, true);
        let mut reason = reason.to_string();
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        let mut untold = lock(&self.untold);
        if untold.len() < UNTOLD_MAX {
            untold.push(IntermediateNote::Abandoned { file, reason });
        }
        true
    }

    /// Abandons files of writers that have been silent for too long, and reports all abandoned files to the server.
    pub(crate) fn look_after_writers(&self) {
        if self.is_unlisted.swap(false, Ordering::Relaxed) {
            self.tell_all();
        }
        let writers: Vec<_> =
            lock(&self.writers).iter().map(|(file, writing)| (*file, Arc::clone(writing))).collect();
        for (file, writing) in writers {
            // A locked file is being written.
            let silent = writing.try_lock().ok().and_then(|writing| {
                (writing.heard.elapsed() > writing.silence).then_some(writing.silence.as_secs())
            });
            if let Some(seconds) = silent {
                self.give_up(file, &format!("nothing was heard of its writer for {seconds} seconds"));
            }
        }
        let notes = std::mem::take(&mut *lock(&self.untold));
        if notes.is_empty() {
            return;
        }
        match (self.tell)(notes.clone()) {
            Ok(answer) => self.drop_files(&answer.dropped),
            Err(error) => {
                tracing::warn!(error, "cannot report abandoned files to the server");
                lock(&self.untold).extend(notes);
            }
        }
    }

    /// Removes files that nobody needs any more.
    pub(crate) fn drop_files(&self, files: &[IntermediateId]) {
        for file in files {
            if let Some(writing) = lock(&self.writers).remove(file) {
                let mut writing = lock(&writing);
                (writing.writer, writing.is_over) = (None, true);
            }
            if let Some(here) = self.complete.forget(&StageFileName::of_user_file(*file))
                && let Err(error) = std::fs::remove_file(&here.path)
            {
                tracing::warn!(path = %here.path.display(), %error, "cannot remove an intermediate file");
            }
            lock(&self.sent).remove(file);
        }
    }

    /// Promotes the copies of these files here to first copies.
    pub(crate) fn adopt(&self, files: &[IntermediateId]) {
        for file in files {
            if !self.complete.adopt(&StageFileName::of_user_file(*file)) {
                tracing::warn!(%file, "an intermediate file is missing on this node");
            }
        }
    }

    /// Records that a node that came back has copies of these files.
    pub(crate) fn were_copied(&self, files: &[IntermediateId], on: NodeId) {
        for file in files {
            if let Some(here) = self.complete.find(&StageFileName::of_user_file(*file)) {
                let bytes = stored_bytes(here.payload);
                lock(&self.sent).insert(*file, SentFile { to: on, bytes, single_ns: 0 });
            }
        }
    }

    /// Reports all files here, and their replicas, to a server that restarted or that this process has joined. If this
    /// fails, it is repeated.
    pub(crate) fn tell_all(&self) {
        for notes in self.pages() {
            match (self.tell)(notes) {
                Ok(answer) => self.drop_files(&answer.dropped),
                Err(error) => {
                    tracing::warn!(error, "cannot report the intermediate files here to the server");
                    return self.is_unlisted.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn pages(&self) -> Vec<Vec<IntermediateNote>> {
        let held = |(name, here): (StageFileName, StageFileHere)| {
            let Payload { bytes, crc32c } = here.payload;
            let stored_bytes = stored_bytes(here.payload);
            Some(HeldIntermediate { file: name.user_file()?, bytes, crc32c, stored_bytes })
        };
        let complete: Vec<HeldIntermediate> = self.complete.all().into_iter().filter_map(held).collect();
        let mut writing: Vec<IntermediateId> = lock(&self.writers).keys().copied().collect();
        let mut pages = Vec::new();
        if complete.is_empty() && !writing.is_empty() {
            pages.push(vec![IntermediateNote::Holds {
                files: Vec::new(),
                writing: std::mem::take(&mut writing),
            }]);
        }
        for files in complete.chunks(INTERMEDIATES_LISTED_MAX) {
            let (files, writing) = (files.to_vec(), std::mem::take(&mut writing));
            pages.push(vec![IntermediateNote::Holds { files, writing }]);
        }
        let sent: Vec<IntermediateNote> = lock(&self.sent)
            .iter()
            .map(|(file, sent)| {
                let SentFile { to, bytes, single_ns } = *sent;
                IntermediateNote::Replicated { file: *file, to, bytes, single_ns }
            })
            .collect();
        pages.extend(sent.chunks(INTERMEDIATES_LISTED_MAX).map(<[IntermediateNote]>::to_vec));
        pages
    }

    /// Returns the complete files of this node without a copy on a live node.
    pub(crate) fn single(&self, lives: impl Fn(NodeId) -> bool) -> Vec<(IntermediateId, StageFileHere)> {
        let mut sent = lock(&self.sent);
        sent.retain(|_, sent| lives(sent.to));
        let own = self.complete.own().into_iter();
        let own = own.filter_map(|(name, here)| Some((name.user_file()?, here)));
        own.filter(|(file, _)| !sent.contains_key(file)).collect()
    }

    pub(crate) fn knows(&self, file: IntermediateId) -> bool {
        self.complete.find(&StageFileName::of_user_file(file)).is_some()
    }

    /// Records that another node has a copy of a file, and reports it.
    pub(crate) fn was_sent(&self, file: IntermediateId, sent: SentFile) {
        lock(&self.sent).insert(file, sent);
        let SentFile { to, bytes, single_ns } = sent;
        // A lost report is repeated when the server asks for all files.
        match (self.tell)(vec![IntermediateNote::Replicated { file, to, bytes, single_ns }]) {
            Ok(answer) => self.drop_files(&answer.dropped),
            Err(error) => tracing::warn!(%file, error, "cannot report a replica to the server"),
        }
    }

    fn tell_closed(&self, file: IntermediateId, payload: Payload) -> Result<Payload, IntermediateFileError> {
        let note = IntermediateNote::Closed { file, bytes: payload.bytes, crc32c: payload.crc32c };
        let answer =
            (self.tell)(vec![note]).map_err(|reason| IntermediateFileError::Untold { file, reason })?;
        self.drop_files(&answer.dropped);
        match answer.dropped.contains(&file) {
            true => Err(IntermediateFileError::Forgotten(file)),
            false => Ok(payload),
        }
    }

    /// Completes the file, if its content equals the writer's statement.
    fn finish(
        &self,
        file: IntermediateId,
        writing: &mut Writing,
        stated: StatedContent,
    ) -> Result<StageFileSummary, IntermediateFileError> {
        if writing.writer.is_none() {
            writing.writer = Some(self.create(file)?);
        }
        let payload = writing.writer.as_ref().map(|(writer, _)| writer.payload()).unwrap_or_default();
        check_stated(file, payload, stated)?;
        let Some((writer, path)) = writing.writer.take() else {
            return Err(IntermediateFileError::NotWriting(file));
        };
        writing.is_over = true;
        let summary =
            writer.finish(Syncing::Synced).map_err(|source| IntermediateFileError::Disk { file, source })?;
        self.complete.register(StageFileName::of_user_file(file), path, summary);
        Ok(summary)
    }
}

fn check_stated(
    file: IntermediateId,
    payload: Payload,
    stated: StatedContent,
) -> Result<(), IntermediateFileError> {
    let is_right = stated.bytes.is_none_or(|bytes| bytes == payload.bytes)
        && stated.crc32c.is_none_or(|crc32c| crc32c == payload.crc32c);
    let (written, crc32c) = (payload.bytes, payload.crc32c);
    if is_right { Ok(()) } else { Err(IntermediateFileError::NotAsTold { file, written, crc32c }) }
}

impl dataport::StageFileService for IntermediateFiles {
    fn find(&self, name: &StageFileName) -> Option<StageFileHere> {
        self.complete.find(name)
    }

    fn places(&self, name: &StageFileName) -> Vec<PathBuf> {
        for dir in &self.dirs {
            // As in `create`.
            let _ = std::fs::create_dir(dir);
        }
        self.complete.places(name)
    }

    fn received(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary) {
        dataport::StageFileService::received(&self.complete, name, path, summary);
    }
}

impl dataport::IntermediateFileService for IntermediateFiles {
    fn write(
        &self,
        file: IntermediateId,
        offset: u64,
        bytes: &[u8],
        silence: Duration,
    ) -> Result<u64, IntermediateFileError> {
        // A keep-alive begins nothing: its file may have been removed.
        let may_begin = offset == 0 && !bytes.is_empty();
        let writing = self.writing(file, may_begin, silence)?;
        let mut writing = lock(&writing);
        if writing.is_over {
            return Err(IntermediateFileError::NotWriting(file));
        }
        let written = self.write_here(file, &mut writing, offset, bytes);
        writing.heard = Instant::now();
        drop(writing);
        if let Err(error @ IntermediateFileError::Disk { .. }) = &written {
            self.give_up(file, &format!("its bytes could not be written: {}", dataport::with_causes(error)));
        }
        written
    }

    fn close(&self, file: IntermediateId, stated: StatedContent) -> Result<Payload, IntermediateFileError> {
        if let Some(here) = self.complete.find(&StageFileName::of_user_file(file)) {
            // The answer was lost, or the server was not available.
            check_stated(file, here.payload, stated)?;
            return self.tell_closed(file, here.payload);
        }
        // An empty file may be closed as the first request about it.
        let may_begin = stated.bytes == Some(0);
        let writing = self.writing(file, may_begin, Duration::from_secs(1))?;
        let mut writing = lock(&writing);
        if writing.is_over {
            return Err(IntermediateFileError::NotWriting(file));
        }
        match self.finish(file, &mut writing, stated) {
            Ok(summary) => {
                drop(writing);
                lock(&self.writers).remove(&file);
                self.tell_closed(file, summary.payload())
            }
            Err(error) => {
                drop(writing);
                if let IntermediateFileError::Disk { .. } = &error {
                    self.give_up(
                        file,
                        &format!("its bytes could not be written: {}", dataport::with_causes(&error)),
                    );
                }
                Err(error)
            }
        }
    }

    fn abandon(&self, file: IntermediateId, reason: &str) -> Result<(), IntermediateFileError> {
        match self.give_up(file, reason) {
            true => Ok(()),
            false if self.knows(file) => Err(IntermediateFileError::Complete(file)),
            false => Err(IntermediateFileError::NotWriting(file)),
        }
    }
}

/// Returns the stored bytes of a file with this payload.
pub(crate) fn stored_bytes(payload: Payload) -> u64 {
    BlockLayout::of(payload.bytes).stored_bytes()
}

#[cfg(test)]
mod tests;
