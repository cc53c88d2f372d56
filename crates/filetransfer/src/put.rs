//! Writing of the parts of files, by several threads.

use crate::cut::{Cut, ends_of_parts};
use crate::error::TransferError;
use crate::source::{SourceFile, modified_ns};
use crate::watch::Watch;
use crate::{PIECE_BYTES, PartStore};
use concretefile::Content;
use ids::{ConcreteId, ITEMS_MAX, PutId};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval after which the finished files are kept, so that an interrupted put goes on behind them.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of times that a part is written, if nodes fail while it travels.
pub(crate) const PART_TRIES_MAX: u32 = 4;

/// A file of a put, with the numbers of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToPut {
    pub source: SourceFile,
    /// Number of its first part, which is also that of its content.
    pub first_number: u32,
    /// The place of the checksum of its first part.
    first_sum: usize,
    /// The ends of its parts.
    pub ends: Vec<u64>,
    /// True if all its parts are on disk.
    pub is_done: bool,
}

/// A part that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DonePart {
    pub concrete: ConcreteId,
    pub content: Content,
}

/// The files of a put.
#[derive(Debug, Default)]
pub struct PutPlan {
    pub put: PutId,
    pub files: Vec<FileToPut>,
    /// Checksums of the parts of all files, one file after the other.
    sums: Vec<AtomicU32>,
    /// Parts of each file that are missing.
    missing: Vec<AtomicU32>,
}

impl PutPlan {
    /// Cuts the files. Files that are stored already are named after this with
    /// [`Self::is_done_already`]; the parts of the others get their numbers last, with [`Self::number_from`].
    pub fn new(put: PutId, files: Vec<SourceFile>, cut: Cut) -> Result<Self, TransferError> {
        let mut plan = Self { put, ..Self::default() };
        let mut first_sum = 0;
        for source in files {
            let ends = ends_of_parts(&source, cut)?;
            let next = first_sum + ends.len().max(1);
            if next > ITEMS_MAX as usize {
                return Err(TransferError::TooMany);
            }
            plan.missing.push(AtomicU32::new(ends.len() as u32));
            plan.files.push(FileToPut { source, first_number: 0, first_sum, ends, is_done: false });
            first_sum = next;
        }
        plan.sums.resize_with(first_sum, AtomicU32::default);
        Ok(plan)
    }

    /// Records that a file is on disk already: the number of its first part, and the checksums of its parts.
    pub fn is_done_already(&mut self, file: usize, first_number: u32, sums: &[u32]) {
        let done = &mut self.files[file];
        (done.first_number, done.is_done) = (first_number, true);
        for (sum, place) in sums.iter().zip(&self.sums[done.first_sum..]) {
            place.store(*sum, Ordering::Relaxed);
        }
    }

    /// Returns the count of numbers that files which are not done need: one for each part, and one for an empty file.
    pub fn numbers(&self) -> u32 {
        // All numbers together are at most `ITEMS_MAX`.
        self.files.iter().filter(|file| !file.is_done).map(|file| file.ends.len().max(1) as u32).sum()
    }

    /// Numbers the parts of files that are not done, from `first` on.
    pub fn number_from(&mut self, first: u32) -> Result<(), TransferError> {
        let mut next = first;
        for file in self.files.iter_mut().filter(|file| !file.is_done) {
            file.first_number = next;
            next = next.saturating_add(file.ends.len().max(1) as u32);
        }
        if next > ITEMS_MAX { Err(TransferError::TooMany) } else { Ok(()) }
    }

    /// Returns the parts of a file, all of which are on disk.
    pub fn done_parts(&self, file: &FileToPut) -> Vec<DonePart> {
        let begins = std::iter::once(0).chain(file.ends.iter().copied());
        let numbers = file.first_number..;
        let part = |((begin, end), number): ((u64, &u64), u32)| {
            let place = file.first_sum + (number - file.first_number) as usize;
            let crc32c = self.sums[place].load(Ordering::Relaxed);
            let content = Content { bytes: end - begin, crc32c };
            Some(DonePart { concrete: ConcreteId::of(self.put, number)?, content })
        };
        begins.zip(&file.ends).zip(numbers).filter_map(part).collect()
    }
}

/// The parts that threads take, and the complete files that they hand over.
struct Work<'a> {
    plan: &'a PutPlan,
    store: &'a dyn PartStore,
    watch: &'a Watch,
    /// The next part: file and part within it.
    next: Mutex<(usize, usize)>,
    complete: Mutex<Complete>,
    changed: Condvar,
    running: AtomicUsize,
}

#[derive(Default)]
struct Complete {
    files: VecDeque<usize>,
    /// Number of complete files, with those that were there before.
    count: usize,
    failure: Option<TransferError>,
}

/// Puts the files of a plan with so many threads. All bytes are written when this returns; the caller syncs them, unless
/// the store keeps all files.
/// Completes the files that are under way when it is stopped or fails, and keeps them.
pub fn put(
    plan: &PutPlan,
    store: &dyn PartStore,
    threads: usize,
    watch: &Watch,
) -> Result<(), TransferError> {
    let pending = plan.files.iter().filter(|file| !file.is_done);
    watch.expect(plan.files.len() as u64, plan.files.iter().map(|file| file.source.bytes).sum());
    for file in plan.files.iter().filter(|file| file.is_done) {
        watch.add_bytes(file.source.bytes);
        watch.add_files(1);
    }
    let parts: usize = pending.map(|file| file.ends.len()).sum();
    let threads = threads.clamp(1, parts.max(1));
    let there =
        Complete { count: plan.files.iter().filter(|file| file.is_done).count(), ..Complete::default() };
    let work = Work {
        plan,
        store,
        watch,
        next: Mutex::default(),
        complete: Mutex::new(there),
        changed: Condvar::new(),
        running: AtomicUsize::new(threads),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let done = work.run();
                work.end(done);
            });
        }
        work.keep_complete_files()
    })
}

impl Work<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Complete> {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, done: Result<(), TransferError>) {
        if let Err(error) = done {
            // The others end too.
            self.watch.stop();
            let mut complete = self.lock();
            let is_first = matches!(complete.failure, None | Some(TransferError::Interrupted));
            if is_first {
                complete.failure = Some(error);
            }
        }
        // Under the lock: the keeper looks at the count before it waits, and must not miss this.
        let complete = self.lock();
        self.running.fetch_sub(1, Ordering::AcqRel);
        drop(complete);
        self.changed.notify_all();
    }

    /// Keeps complete files from time to time until all threads have ended.
    fn keep_complete_files(&self) -> Result<(), TransferError> {
        let mut last = Instant::now();
        loop {
            let mut complete = self.lock();
            let is_over = self.running.load(Ordering::Acquire) == 0;
            if is_over {
                let failure = complete.failure.take();
                // Threads that were stopped between two parts have no error.
                let is_whole = complete.count == self.plan.files.len();
                let failure = failure.or((!is_whole).then_some(TransferError::Interrupted));
                let files = std::mem::take(&mut complete.files);
                drop(complete);
                return match failure {
                    None if self.store.keeps_all() => self.keep(files),
                    None => Ok(()),
                    // A full disk gets nothing more.
                    Some(failure) if failure.is_full() => Err(failure),
                    Some(failure) => self.keep(files).and(Err(failure)),
                };
            }
            if last.elapsed() >= KEEP_EVERY && !complete.files.is_empty() {
                let files = std::mem::take(&mut complete.files);
                drop(complete);
                if let Err(error) = self.keep(files) {
                    self.watch.stop();
                    self.lock().failure = Some(error);
                }
                last = Instant::now();
                continue;
            }
            let waited = self.changed.wait_timeout(complete, KEEP_EVERY);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn keep(&self, files: VecDeque<usize>) -> Result<(), TransferError> {
        let file = |index: usize| {
            let file = &self.plan.files[index];
            (file.clone(), self.plan.done_parts(file))
        };
        match files.is_empty() {
            true => Ok(()),
            false => self.store.keep(&files.into_iter().map(file).collect::<Vec<_>>()),
        }
    }

    /// Writes parts until there are no more.
    fn run(&self) -> Result<(), TransferError> {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Some((file, part)) = self.take() {
            let to_put = &self.plan.files[file];
            let begin = part.checked_sub(1).map_or(0, |before| to_put.ends[before]);
            if to_put.ends.is_empty() {
                self.complete_file(file);
                continue;
            }
            let number = to_put.first_number + part as u32;
            let id = ConcreteId::of(self.plan.put, number).ok_or(TransferError::TooMany)?;
            let crc32c = self.write_part(&to_put.source, [begin, to_put.ends[part]], id, &mut buffer)?;
            self.plan.sums[to_put.first_sum + part].store(crc32c, Ordering::Relaxed);
            if self.plan.missing[file].fetch_sub(1, Ordering::AcqRel) == 1 {
                self.complete_file(file);
            }
        }
        Ok(())
    }

    fn complete_file(&self, file: usize) {
        self.watch.add_files(1);
        let mut complete = self.lock();
        complete.count += 1;
        complete.files.push_back(file);
    }

    /// Returns the next part; a file without parts has one turn.
    fn take(&self) -> Option<(usize, usize)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if self.watch.is_stopped() {
            return None;
        }
        while self.plan.files.get(next.0)?.is_done {
            *next = (next.0 + 1, 0);
        }
        let taken = *next;
        let parts = self.plan.files[taken.0].ends.len();
        *next = if taken.1 + 1 < parts { (taken.0, taken.1 + 1) } else { (taken.0 + 1, 0) };
        Some(taken)
    }

    /// Writes a range of a source file as a part, again if a node fails. Returns its checksum.
    fn write_part(
        &self,
        source: &SourceFile,
        range: [u64; 2],
        id: ConcreteId,
        buffer: &mut [u8],
    ) -> Result<u32, TransferError> {
        let file = File::open(&source.path).map_err(TransferError::io("open", &source.path))?;
        check_unchanged(&file, source)?;
        let mut tries = 0;
        loop {
            let mut counted = 0;
            tries += 1;
            match self.write_once(&file, source, range, id, buffer, &mut counted) {
                Err(TransferError::Node { .. }) if tries < PART_TRIES_MAX && !self.watch.is_stopped() => {
                    self.watch.take_back_bytes(counted);
                }
                written => return written,
            }
        }
    }

    /// Tries to write a part once. Counts the bytes that it adds to the progress.
    fn write_once(
        &self,
        file: &File,
        source: &SourceFile,
        [begin, end]: [u64; 2],
        id: ConcreteId,
        buffer: &mut [u8],
        counted: &mut u64,
    ) -> Result<u32, TransferError> {
        let path = &source.path;
        let mut writer = self.store.create(id, Some(end - begin))?;
        let mut at = begin;
        while at < end {
            if self.watch.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            let wanted = buffer.len().min((end - at) as usize);
            let read = file.read_at(&mut buffer[..wanted], at).map_err(TransferError::io("read", path))?;
            if read == 0 {
                return Err(TransferError::Changed { path: path.clone() });
            }
            writer.write(&buffer[..read])?;
            at += read as u64;
            *counted += read as u64;
            self.watch.add_bytes(read as u64);
        }
        check_unchanged(file, source)?;
        Ok(writer.finish()?.crc32c)
    }
}

pub(crate) fn check_unchanged(file: &File, source: &SourceFile) -> Result<(), TransferError> {
    let data = file.metadata().map_err(TransferError::io("read", &source.path))?;
    match data.is_file() && data.len() == source.bytes && modified_ns(&data) == source.modified_ns {
        true => Ok(()),
        false => Err(TransferError::Changed { path: source.path.clone() }),
    }
}

/// Puts the bytes of a stream as the parts of one file, front to back, each of at most so many bytes. `name` stands for it
/// in errors.
pub fn put_stream(
    put: PutId,
    stream: &mut dyn Read,
    name: &Path,
    part_bytes_max: u64,
    store: &dyn PartStore,
    watch: &Watch,
) -> Result<Vec<DonePart>, TransferError> {
    // The bytes that were read are gone from the stream.
    let broken = |error: TransferError| match error {
        TransferError::Node { reason } => TransferError::StreamBroken { path: name.to_path_buf(), reason },
        error => error,
    };
    let mut buffer = vec![0; PIECE_BYTES];
    let mut parts = Vec::new();
    let mut is_over = false;
    while !is_over {
        let concrete = ConcreteId::of(put, parts.len() as u32).ok_or(TransferError::TooMany)?;
        let mut writer = store.create(concrete, None)?;
        let mut left = part_bytes_max;
        while left > 0 {
            if watch.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            let wanted = buffer.len().min(left as usize);
            let read = match stream.read(&mut buffer[..wanted]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(TransferError::io("read", name))?,
            };
            if read == 0 {
                is_over = true;
                break;
            }
            writer.write(&buffer[..read]).map_err(broken)?;
            left -= read as u64;
            watch.add_bytes(read as u64);
        }
        if left < part_bytes_max {
            parts.push(DonePart { concrete, content: writer.finish().map_err(broken)? });
        }
    }
    watch.add_files(1);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::{PutPlan, put, put_stream};
    use crate::source::{Links, list_source};
    use crate::{
        Cut, DonePart, FileToPut, PartSink, PartSource, PartStore, RecordEnds, TransferError, Watch,
    };
    use concretefile::Content;
    use ids::{ConcreteId, PutId};
    use rows::ConcreteRow;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Mutex;

    /// A store in memory, whose nodes fail so many times.
    #[derive(Default)]
    struct Failing {
        failures: Mutex<u32>,
        parts: Mutex<BTreeMap<u32, Vec<u8>>>,
        kept: Mutex<usize>,
    }

    struct Sink<'a> {
        store: &'a Failing,
        number: u32,
        bytes: Vec<u8>,
    }

    impl PartSink for Sink<'_> {
        fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
            self.bytes.extend_from_slice(bytes);
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<Content, TransferError> {
            let mut failures = self.store.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(TransferError::Node { reason: "node-1 is gone".to_string() });
            }
            let content = Content { bytes: self.bytes.len() as u64, crc32c: crc32c::crc32c(&self.bytes) };
            self.store.parts.lock().unwrap().insert(self.number, self.bytes);
            Ok(content)
        }
    }

    impl PartStore for Failing {
        fn create(
            &self,
            part: ConcreteId,
            _bytes: Option<u64>,
        ) -> Result<Box<dyn PartSink + '_>, TransferError> {
            Ok(Box::new(Sink { store: self, number: part.number(), bytes: Vec::new() }))
        }

        fn open(&self, _part: &ConcreteRow) -> Result<Box<dyn PartSource + '_>, TransferError> {
            Err(TransferError::Interrupted)
        }

        fn keep(&self, files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError> {
            *self.kept.lock().unwrap() += files.len();
            Ok(())
        }

        fn keeps_all(&self) -> bool {
            true
        }
    }

    #[test]
    fn part_is_written_again_after_failures() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"0123456789").unwrap();
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        let run = |failures: u32| {
            let store = Failing { failures: Mutex::new(failures), ..Failing::default() };
            let watch = Watch::default();
            let files = list_source(dir.path(), Links::Refused, 1).unwrap().files;
            let cut = Cut { parts: Some(2), part_bytes_max: 1, records: RecordEnds::Bytes };
            let mut plan = PutPlan::new(PutId(1), files, cut).unwrap();
            assert_eq!(plan.numbers(), 3);
            plan.number_from(7).unwrap();
            let done = put(&plan, &store, 1, &watch);
            (done, watch.bytes(), store)
        };
        let (done, bytes, store) = run(3);
        done.unwrap();
        assert_eq!(bytes, [10, 10]);
        assert_eq!(*store.kept.lock().unwrap(), 2);
        let parts = store.parts.into_inner().unwrap();
        assert_eq!(parts, BTreeMap::from([(7, b"01234".to_vec()), (8, b"56789".to_vec())]));
        assert!(matches!(run(4).0, Err(TransferError::Node { .. })));
    }

    #[test]
    fn stream_cannot_be_read_again() {
        let store = Failing { failures: Mutex::new(1), ..Failing::default() };
        let mut stream: &[u8] = b"abc";
        let name = Path::new("standard input");
        let done = put_stream(PutId(1), &mut stream, name, 2, &store, &Watch::default());
        let error = done.unwrap_err().to_string();
        assert_eq!(
            error,
            "standard input cannot be read again after a node failed (node-1 is gone); put it again"
        );
    }
}
