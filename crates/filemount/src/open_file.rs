//! An open file, read ahead: windows that double while a program reads on, so that one request brings many bytes.

use crate::error::errno_of;
use crate::near::read_whole;
use filestore::FileReader;
use fuser::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read ahead at first, and at most.
const WINDOW_BYTES_MIN: u64 = 256 << 10;
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Bytes that reach their readers together. Chunks end at multiples of this, as the longest requests of the kernel do: a
/// request that needs one chunk is answered without a copy.
const CHUNK_BYTES: u64 = 1 << 20;
/// Distance of reads that still count as one after another: the kernel asks for several ranges at once, in any order.
const SLACK_BYTES: u64 = 4 << 20;
/// Bytes that are kept behind the last read, for requests that were overtaken.
const KEPT_BYTES: u64 = 4 << 20;
/// Bytes that are read ahead of all programs.
pub(crate) const AHEAD_BYTES_MAX: u64 = 256 << 20;
const SPARE_CHUNKS_MAX: usize = 32;
/// A reader that goes on within this time gets the rest of the same request.
const GOES_ON_WITHIN: Duration = Duration::from_millis(200);
/// A file that was not read for so long gives up its bytes if others need the room.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// The room for bytes that are read ahead.
#[derive(Debug, Default)]
pub(crate) struct AheadRoom {
    taken: AtomicU64,
    /// Streams that wait for a thread.
    pub queued: AtomicUsize,
    /// Memory of chunks that are gone: new memory costs more than the bytes that are copied to it.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl AheadRoom {
    /// Takes room if there is enough.
    fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| (taken + bytes <= AHEAD_BYTES_MAX).then_some(taken + bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns memory for a chunk.
    fn memory(&self) -> Vec<u8> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES as usize))
    }

    fn keep(&self, mut memory: Vec<u8>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_CHUNKS_MAX && memory.capacity() as u64 == CHUNK_BYTES {
            memory.clear();
            spare.push(memory);
        }
    }
}

/// Bytes of a file that were read.
#[derive(Debug)]
pub(crate) struct Chunk {
    offset: u64,
    bytes: Vec<u8>,
    room: Arc<AheadRoom>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.room.keep(std::mem::take(&mut self.bytes));
    }
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The answer to a read.
#[derive(Debug)]
pub(crate) enum ReadBytes {
    Shared(Arc<Chunk>, Range<usize>),
    Own(Vec<u8>),
}

impl ReadBytes {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Shared(chunk, range) => &chunk.bytes[range.clone()],
            Self::Own(bytes) => bytes,
        }
    }
}

/// Whether reading ahead found room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    Missing,
}

struct Stream {
    /// One behind the other, up to `filled`.
    chunks: VecDeque<Arc<Chunk>>,
    begin: u64,
    filled: u64,
    /// The end of what is being read; room for everything from `begin` up to it is taken.
    target: u64,
    is_filling: bool,
    /// Behind the furthest read.
    position: u64,
    /// Offsets of the reads that wait: their bytes stay.
    waiting: Vec<u64>,
    window: u64,
    /// Changes when the bytes are dropped: threads that read for an earlier stream end.
    era: u64,
    /// The failure of the last filling.
    failure: Option<Errno>,
    read_at: Instant,
    has_begun: bool,
}

/// A file that programs have open.
pub(crate) struct OpenFile {
    reader: Box<dyn FileReader>,
    name: String,
    bytes: u64,
    room: Arc<AheadRoom>,
    stream: Mutex<Stream>,
    changed: Condvar,
}

/// A stream that is to be filled.
pub(crate) struct Filling {
    file: Arc<OpenFile>,
    era: u64,
}

impl OpenFile {
    /// `name`: for the log.
    pub fn new(reader: Box<dyn FileReader>, name: String, bytes: u64, room: Arc<AheadRoom>) -> Self {
        let stream = Stream {
            chunks: VecDeque::new(),
            begin: 0,
            filled: 0,
            target: 0,
            is_filling: false,
            position: 0,
            waiting: Vec::new(),
            window: WINDOW_BYTES_MIN,
            era: 0,
            failure: None,
            read_at: Instant::now(),
            has_begun: false,
        };
        Self { reader, name, bytes, room, stream: Mutex::new(stream), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether reading ahead gains nothing: the kernel asks for the next ranges while a program has these.
    pub fn is_near(&self) -> bool {
        self.reader.is_near()
    }

    /// Opens the file of this machine that has all bytes and no others, if there is one.
    pub fn backing(&self) -> Option<File> {
        self.reader.backing()
    }

    /// Gives the bytes of a range of a file on this machine to `answer`.
    pub fn read_near(&self, offset: u64, bytes_max: u32, answer: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let end = offset.saturating_add(bytes_max.into()).min(self.bytes);
        read_whole(&*self.reader, offset..end.max(offset), answer)
            .map_err(|error| error.map_or(Errno::EIO, |error| errno_of(&error, &self.name)))
    }

    /// Returns the bytes of a range; fewer at the end of the file. `fill` takes work for another thread, and returns
    /// whether it has room for it.
    pub fn read(
        self: &Arc<Self>,
        offset: u64,
        bytes_max: u32,
        fill: &dyn Fn(Filling) -> bool,
    ) -> Result<(ReadBytes, Room), Errno> {
        let end = offset.saturating_add(bytes_max.into()).min(self.bytes);
        if offset >= end {
            return Ok((ReadBytes::Own(Vec::new()), Room::Enough));
        }
        let mut stream = self.lock();
        stream.read_at = Instant::now();
        let is_whole = !stream.has_begun && offset == 0 && end == self.bytes;
        let is_next =
            offset <= stream.position + SLACK_BYTES && offset + SLACK_BYTES >= stream.position && !is_whole;
        stream.has_begun = true;
        if !is_next {
            self.drop_stream(&mut stream, end);
            drop(stream);
            return Ok((ReadBytes::Own(self.read_now(offset, end)?), Room::Enough));
        }
        stream.waiting.push(offset);
        let room = self.plan(&mut stream, offset, end);
        if stream.filled < stream.target && !stream.is_filling {
            stream.is_filling = fill(Filling { file: Arc::clone(self), era: stream.era });
            if !stream.is_filling {
                self.room.give_back(stream.target - stream.filled);
                stream.target = stream.filled;
            }
        }
        let (era, mut failure) = (stream.era, None);
        while stream.era == era && stream.is_filling && (stream.begin..stream.target).contains(&offset) {
            if end.min(stream.target) <= stream.filled {
                break;
            }
            stream = self.changed.wait(stream).unwrap_or_else(PoisonError::into_inner);
            failure = stream.failure.filter(|_| stream.era == era);
            if failure.is_some() {
                break;
            }
        }
        let found = taken(&stream, offset, end);
        if let Some(index) = stream.waiting.iter().position(|each| *each == offset) {
            stream.waiting.swap_remove(index);
        }
        drop(stream);
        if let Some(errno) = failure {
            return Err(errno);
        }
        let bytes = match found {
            Some(ReadBytes::Own(mut begun)) => {
                let rest = offset + begun.len() as u64;
                if rest < end {
                    begun.extend_from_slice(&self.read_now(rest, end)?);
                }
                ReadBytes::Own(begun)
            }
            Some(shared) => shared,
            None => ReadBytes::Own(self.read_now(offset, end)?),
        };
        Ok((bytes, room))
    }

    /// Moves the stream on to a read, and widens it.
    fn plan(&self, stream: &mut Stream, offset: u64, end: u64) -> Room {
        stream.position = stream.position.max(end);
        let needed = stream.waiting.iter().copied().min().unwrap_or(offset);
        while let Some(first) = stream.chunks.front()
            && first.end() + KEPT_BYTES <= stream.position
            && first.end() <= needed
        {
            self.room.give_back(first.end() - stream.begin);
            stream.begin = first.end();
            stream.chunks.pop_front();
        }
        if stream.begin == stream.target && stream.target < stream.position {
            (stream.begin, stream.filled, stream.target) = (offset, offset, offset);
        }
        let wanted = stream.position + stream.window;
        let wanted = wanted.next_multiple_of(stream.window.min(CHUNK_BYTES)).min(self.bytes);
        let is_low = stream.target < end || stream.target - end < stream.window / 2;
        if wanted <= stream.target || !is_low {
            return Room::Enough;
        }
        stream.failure = None;
        if !self.room.take(wanted - stream.target) {
            return Room::Missing;
        }
        stream.target = wanted;
        stream.window = (stream.window * 2).min(WINDOW_BYTES_MAX);
        self.changed.notify_all();
        Room::Enough
    }

    /// Forgets what was read ahead: the next read in order begins at `position`.
    fn drop_stream(&self, stream: &mut Stream, position: u64) {
        self.room.give_back(stream.target - stream.begin);
        stream.chunks.clear();
        (stream.begin, stream.filled, stream.target) = (position, position, position);
        stream.position = position;
        stream.window = WINDOW_BYTES_MIN;
        stream.is_filling = false;
        stream.failure = None;
        stream.era += 1;
        self.changed.notify_all();
    }

    /// Gives up bytes that nobody has read for some time.
    pub fn drop_if_idle(&self) {
        let mut stream = self.lock();
        if stream.read_at.elapsed() >= IDLE_AFTER && stream.target > stream.begin {
            let position = stream.position;
            self.drop_stream(&mut stream, position);
        }
    }

    fn read_now(&self, offset: u64, end: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity((end - offset) as usize);
        let read = self.reader.read(offset, end - offset, &mut bytes);
        read.map_err(|error| errno_of(&error, &self.name))?;
        match bytes.len() as u64 == end - offset {
            true => Ok(bytes),
            false => Err(Errno::EIO),
        }
    }
}

/// Returns the bytes of a range that are there, perhaps not all; None if its first byte is not.
fn taken(stream: &Stream, offset: u64, end: u64) -> Option<ReadBytes> {
    if !(stream.begin..stream.filled).contains(&offset) {
        return None;
    }
    let first = stream.chunks.partition_point(|chunk| chunk.end() <= offset);
    let mut bytes = Vec::new();
    for chunk in stream.chunks.range(first..) {
        let within = (offset.max(chunk.offset) - chunk.offset) as usize;
        let until = (end.min(chunk.end()) - chunk.offset) as usize;
        if bytes.is_empty() && end <= chunk.end() {
            return Some(ReadBytes::Shared(Arc::clone(chunk), within..until));
        }
        bytes.extend_from_slice(&chunk.bytes[within..until]);
        if end <= chunk.end() {
            break;
        }
    }
    Some(ReadBytes::Own(bytes))
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.room.give_back(stream.target - stream.begin);
    }
}

impl Filling {
    /// Fills the stream up to its target, also if that moves on meanwhile.
    pub fn run(self) {
        loop {
            let (range, limit) = {
                let mut stream = self.file.lock();
                if stream.era != self.era {
                    return;
                }
                if stream.filled == stream.target {
                    stream.is_filling = false;
                    self.file.changed.notify_all();
                    return;
                }
                // One request for all that follows, of which as much is taken as its reader needs.
                let is_long = stream.window == WINDOW_BYTES_MAX;
                let end = if is_long { self.file.bytes } else { stream.target };
                (stream.filled..end, stream.target)
            };
            let offset = range.start;
            let mut sink = ChunkSink { filling: &self, offset, limit, bytes: Vec::new(), has_stopped: false };
            let read = self.file.reader.read(range.start, range.end - range.start, &mut sink);
            if sink.push().is_err() {
                return;
            }
            if sink.has_stopped {
                continue;
            }
            let failure = read.err().map(|error| errno_of(&error, &self.file.name));
            let mut stream = self.file.lock();
            if stream.era != self.era {
                return;
            }
            if failure.is_some() || stream.filled < range.end {
                self.file.room.give_back(stream.target - stream.filled);
                stream.target = stream.filled;
                stream.is_filling = false;
                stream.failure = Some(failure.unwrap_or(Errno::EIO));
                self.file.changed.notify_all();
                return;
            }
        }
    }
}

/// A receiver of the bytes of a stream.
struct ChunkSink<'a> {
    filling: &'a Filling,
    /// The begin of `bytes`.
    offset: u64,
    /// The end of the room that is taken.
    limit: u64,
    bytes: Vec<u8>,
    /// True if the reader did not come to need more.
    has_stopped: bool,
}

impl ChunkSink<'_> {
    /// Gives the bytes to the readers. Fails if the stream is another one.
    fn push(&mut self) -> std::io::Result<()> {
        let file = &self.filling.file;
        let mut stream = file.lock();
        if stream.era != self.filling.era {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if !self.bytes.is_empty() {
            let chunk = Chunk {
                offset: self.offset,
                bytes: std::mem::take(&mut self.bytes),
                room: Arc::clone(&file.room),
            };
            self.offset = chunk.end();
            stream.filled = chunk.end();
            stream.chunks.push_back(Arc::new(chunk));
            file.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until the reader has come so far that there is room for more.
    fn go_on(&mut self) -> std::io::Result<()> {
        let file = &self.filling.file;
        let deadline = Instant::now() + GOES_ON_WITHIN;
        let mut stream = file.lock();
        loop {
            if stream.era != self.filling.era {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if stream.target > self.limit {
                self.limit = stream.target;
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || file.room.queued.load(Ordering::Relaxed) > 0 {
                self.has_stopped = true;
                return Err(ErrorKind::TimedOut.into());
            }
            stream = file.changed.wait_timeout(stream, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Write for ChunkSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.offset == self.limit {
            self.go_on()?;
        }
        let wanted = ((self.offset + 1).next_multiple_of(CHUNK_BYTES).min(self.limit) - self.offset) as usize;
        if self.bytes.capacity() == 0 {
            self.bytes = self.filling.file.room.memory();
        }
        let count = bytes.len().min(wanted - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..count]);
        if self.bytes.len() == wanted {
            self.push()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AheadRoom, Filling, OpenFile, Room, WINDOW_BYTES_MAX};
    use filestore::{FileReader, FilesError};
    use fuser::Errno;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{SyncSender, sync_channel};

    const BYTES: u64 = 64 << 20;

    #[derive(Default)]
    struct Counted {
        reads: AtomicUsize,
        fails: AtomicBool,
    }

    /// A file of numbers of its blocks of eight bytes.
    struct Numbers(Arc<Counted>);

    impl FileReader for Numbers {
        fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
            self.0.reads.fetch_add(1, Ordering::Relaxed);
            if self.0.fails.load(Ordering::Relaxed) {
                return Err(FilesError::Thread(std::io::ErrorKind::Other.into()));
            }
            let end = (offset + bytes_max).min(BYTES);
            let bytes: Vec<u8> = (offset..end).map(|at| (at / 8).to_le_bytes()[(at % 8) as usize]).collect();
            let path = "test".into();
            bytes
                .chunks(100_000)
                .try_for_each(|piece| out.write_all(piece))
                .map_err(|source| FilesError::Io { action: "write", path, source })
        }

        fn is_near(&self) -> bool {
            false
        }

        fn backing(&self) -> Option<std::fs::File> {
            None
        }
    }

    struct World {
        counted: Arc<Counted>,
        room: Arc<AheadRoom>,
        file: Arc<OpenFile>,
        jobs: SyncSender<Filling>,
    }

    impl World {
        fn new() -> Self {
            let (counted, room) = (Arc::<Counted>::default(), Arc::<AheadRoom>::default());
            let reader = Box::new(Numbers(Arc::clone(&counted)));
            let file = Arc::new(OpenFile::new(reader, "numbers".to_string(), BYTES, Arc::clone(&room)));
            let (jobs, received) = sync_channel::<Filling>(4);
            std::thread::spawn(move || received.into_iter().for_each(Filling::run));
            Self { counted, room, file, jobs }
        }

        fn read(&self, offset: u64, bytes: u32) -> Result<Room, Errno> {
            let (read, room) = self.file.read(offset, bytes, &|job| self.jobs.try_send(job).is_ok())?;
            let end = (offset + u64::from(bytes)).min(BYTES);
            let expected: Vec<u8> =
                (offset..end).map(|at| (at / 8).to_le_bytes()[(at % 8) as usize]).collect();
            assert!(read.as_slice() == expected, "{bytes} bytes at {offset}");
            Ok(room)
        }
    }

    #[test]
    fn reads_in_order_are_few_and_bounded() {
        let world = World::new();
        for offset in (0..BYTES + 100_000).step_by(100_000) {
            assert_eq!(world.read(offset, 100_000), Ok(Room::Enough));
            assert!(world.room.taken.load(Ordering::Relaxed) <= 3 * WINDOW_BYTES_MAX);
        }
        let reads = world.counted.reads.load(Ordering::Relaxed);
        assert!(reads < 30, "{reads} reads of 64 MiB");
        let World { room, file, jobs, .. } = world;
        drop((file, jobs));
        // The thread may hold the file a moment longer.
        while room.taken.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn overtaken_and_distant_reads_are_right() {
        let world = World::new();
        for offset in [0, 300_000, 100_000, 200_000, 500_000, 400_000, 40 << 20, 40_000_000, 8, BYTES - 5] {
            assert_eq!(world.read(offset, 100_000), Ok(Room::Enough));
        }
        assert_eq!(world.read(BYTES, 10), Ok(Room::Enough));
        world.file.drop_if_idle();
    }

    #[test]
    fn failures_reach_readers_and_pass() {
        let world = World::new();
        world.read(0, 100_000).unwrap();
        world.counted.fails.store(true, Ordering::Relaxed);
        assert!((1..200).any(|step| world.read(step * 100_000, 100_000) == Err(Errno::EIO)));
        world.counted.fails.store(false, Ordering::Relaxed);
        for step in 0..100 {
            world.read(step * 100_000, 100_000).unwrap();
        }
    }
}
