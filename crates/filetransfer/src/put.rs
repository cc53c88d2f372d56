//! Writing of the parts of files, by several threads.

use crate::cut::{PART_BYTES, RecordEnds, ends_of_parts};
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

/// A file of a put, with the numbers of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToPut {
    pub source: SourceFile,
    /// Number of its first part, which is also that of its content.
    pub first_number: u32,
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
    /// Checksums of parts, by their numbers.
    sums: Vec<AtomicU32>,
    /// Parts of each file that are missing.
    missing: Vec<AtomicU32>,
}

impl PutPlan {
    /// Cuts the files, and numbers their parts from `first_number` on. `parts`: the wished number for each file.
    pub fn new(
        put: PutId,
        files: Vec<SourceFile>,
        parts: Option<u32>,
        records: RecordEnds,
        first_number: u32,
    ) -> Result<Self, TransferError> {
        let mut plan = Self { put, ..Self::default() };
        let mut next = u64::from(first_number);
        for source in files {
            let ends = ends_of_parts(&source, parts, records)?;
            let first_number = u32::try_from(next).map_err(|_| TransferError::TooMany)?;
            next += ends.len().max(1) as u64;
            if next > u64::from(ITEMS_MAX) {
                return Err(TransferError::TooMany);
            }
            plan.missing.push(AtomicU32::new(ends.len() as u32));
            plan.files.push(FileToPut { source, first_number, ends, is_done: false });
        }
        plan.sums.resize_with(next as usize, AtomicU32::default);
        Ok(plan)
    }

    /// Records that a file is on disk already: the number of its first part, and the checksums of its parts.
    pub fn is_done_already(&mut self, file: usize, first_number: u32, sums: &[u32]) {
        self.files[file].first_number = first_number;
        let first = first_number as usize;
        for (sum, place) in sums.iter().zip(&self.sums[first..]) {
            place.store(*sum, Ordering::Relaxed);
        }
        self.files[file].is_done = true;
    }

    /// Returns the parts of a file, all of which are on disk.
    pub fn done_parts(&self, file: &FileToPut) -> Vec<DonePart> {
        let begins = std::iter::once(0).chain(file.ends.iter().copied());
        let numbers = file.first_number..;
        let part = |((begin, end), number): ((u64, &u64), u32)| {
            let crc32c = self.sums[number as usize].load(Ordering::Relaxed);
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

/// Puts the files of a plan with so many threads. All bytes are written when this returns; the caller syncs them.
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
        self.running.fetch_sub(1, Ordering::AcqRel);
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
            self.plan.sums[number as usize].store(crc32c, Ordering::Relaxed);
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

    /// Writes a range of a source file as a part. Returns its checksum.
    fn write_part(
        &self,
        source: &SourceFile,
        [begin, end]: [u64; 2],
        id: ConcreteId,
        buffer: &mut [u8],
    ) -> Result<u32, TransferError> {
        let path = &source.path;
        let file = File::open(path).map_err(TransferError::io("open", path))?;
        check_unchanged(&file, source)?;
        let mut writer = self.store.create(id)?;
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
            self.watch.add_bytes(read as u64);
        }
        check_unchanged(&file, source)?;
        Ok(writer.finish()?.crc32c)
    }
}

fn check_unchanged(file: &File, source: &SourceFile) -> Result<(), TransferError> {
    let data = file.metadata().map_err(TransferError::io("read", &source.path))?;
    match data.is_file() && data.len() == source.bytes && modified_ns(&data) == source.modified_ns {
        true => Ok(()),
        false => Err(TransferError::Changed { path: source.path.clone() }),
    }
}

/// Puts the bytes of a stream as the parts of one file, front to back. `name` stands for it in errors.
pub fn put_stream(
    put: PutId,
    stream: &mut dyn Read,
    name: &Path,
    store: &dyn PartStore,
    watch: &Watch,
) -> Result<Vec<DonePart>, TransferError> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut parts = Vec::new();
    let mut is_over = false;
    while !is_over {
        let concrete = ConcreteId::of(put, parts.len() as u32).ok_or(TransferError::TooMany)?;
        let mut writer = store.create(concrete)?;
        let mut left = PART_BYTES;
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
            writer.write(&buffer[..read])?;
            left -= read as u64;
            watch.add_bytes(read as u64);
        }
        if left < PART_BYTES {
            parts.push(DonePart { concrete, content: writer.finish()? });
        }
    }
    watch.add_files(1);
    Ok(parts)
}
