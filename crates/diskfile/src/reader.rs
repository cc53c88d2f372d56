//! Reads of a stretch of a file in large windows; the next window is read while one is used.

use crate::{ALIGNMENT_BYTES, AlignedBuffer};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Smaller windows are read on demand: a request to another thread would cost as much.
const AHEAD_FROM_BYTES: usize = 256 << 10;
/// Maximum number of requests that wait for a thread of the pool. Each reader has one, so further readers wait for
/// their turn.
const REQUESTS_MAX: usize = 256;

/// A stretch of a file to read.
struct Request {
    file: Arc<File>,
    buffer: AlignedBuffer,
    wanted: Range<u64>,
    /// Set after the read if it was the last of the stretch.
    all_read: Option<Arc<AtomicBool>>,
    reply: Sender<std::io::Result<Window>>,
}

/// A stretch of a file that was read.
struct Window {
    buffer: AlignedBuffer,
    /// Positions in the buffer of the untaken bytes.
    unused: Range<usize>,
}

/// Threads that read ahead for any number of readers.
pub struct ReadPool {
    requests: Option<Sender<Request>>,
    threads: Vec<JoinHandle<()>>,
}

impl ReadPool {
    /// Starts the threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let (requests, to_read) = bounded::<Request>(REQUESTS_MAX);
        let mut pool = Self { requests: Some(requests), threads: Vec::new() };
        for index in 0..threads.max(1) {
            let to_read = to_read.clone();
            let read = move || {
                for request in to_read {
                    let read = read_window(&request.file, request.buffer, &request.wanted);
                    if let (Ok(_), Some(all_read)) = (&read, &request.all_read) {
                        all_read.store(true, Ordering::Release);
                    }
                    // A dropped reader wants no answer.
                    let _ = request.reply.send(read);
                }
            };
            pool.threads.push(std::thread::Builder::new().name(format!("reader-{index}")).spawn(read)?);
        }
        Ok(pool)
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Opens a file for windows, past the page cache if the file system can.
pub fn open_direct(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
        Err(rustix::io::Errno::INVAL) => Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?)),
        opened => Ok(File::from(opened?)),
    }
}

/// Reader of one stretch of a file, front to back.
pub struct WindowReader {
    file: Arc<File>,
    pool: Arc<ReadPool>,
    /// Part of the stretch that was not requested yet.
    unread: Range<u64>,
    window_bytes: usize,
    current: Option<Window>,
    under_way: Option<Receiver<std::io::Result<Window>>>,
    spare: Option<AlignedBuffer>,
    /// Set once all of the stretch is in memory, or not wanted any more.
    all_read: Arc<AtomicBool>,
    /// A piece that spans two windows.
    joined: Vec<u8>,
    reads: u64,
    read_bytes: u64,
}

impl WindowReader {
    /// Makes a reader of `stretch`, whose two windows have about `bytes` together.
    pub fn new(file: Arc<File>, pool: Arc<ReadPool>, stretch: Range<u64>, bytes: usize) -> Self {
        let window_bytes = (bytes / 2).next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES);
        let all_read = Arc::new(AtomicBool::new(stretch.is_empty()));
        Self {
            file,
            pool,
            all_read,
            unread: stretch,
            window_bytes,
            current: None,
            under_way: None,
            spare: None,
            joined: Vec::new(),
            reads: 0,
            read_bytes: 0,
        }
    }

    /// Returns the number of reads so far, and their bytes.
    pub fn report(&self) -> (u64, u64) {
        (self.reads, self.read_bytes)
    }

    /// Returns a flag that is set after the last read of the file: from then on the reader does not need the file.
    pub fn all_read(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.all_read)
    }

    /// Returns whether everything was taken.
    pub fn is_at_end(&self) -> bool {
        let used_up = self.current.as_ref().is_none_or(|window| window.unused.is_empty());
        used_up && self.under_way.is_none() && self.unread.is_empty()
    }

    /// Returns the next `count` bytes. Error: [`ErrorKind::UnexpectedEof`] if the stretch has fewer.
    pub fn take(&mut self, count: usize) -> std::io::Result<&[u8]> {
        if self.current.as_ref().is_none_or(|window| window.unused.is_empty()) {
            self.next_window()?;
        }
        let present = self.current.as_ref().map_or(0, |window| window.unused.len());
        if present >= count {
            let window = self.current.as_mut().ok_or(ErrorKind::UnexpectedEof)?;
            let start = window.unused.start;
            window.unused.start += count;
            return Ok(&window.buffer[start..start + count]);
        }
        self.joined.clear();
        while self.joined.len() < count {
            if let Some(window) = &mut self.current {
                let piece = window.unused.len().min(count - self.joined.len());
                let start = window.unused.start;
                self.joined.extend_from_slice(&window.buffer[start..start + piece]);
                window.unused.start += piece;
            }
            if self.joined.len() < count {
                self.next_window()?;
            }
        }
        Ok(&self.joined)
    }

    /// Gives up the rest.
    pub fn skip_rest(&mut self) {
        self.unread.start = self.unread.end;
        self.under_way = None;
        self.current = None;
        self.joined = Vec::new();
        self.all_read.store(true, Ordering::Release);
    }

    /// Moves to the next window, and requests the one after it.
    fn next_window(&mut self) -> std::io::Result<()> {
        self.spare = self.current.take().map(|window| window.buffer).or_else(|| self.spare.take());
        let window = match self.under_way.take() {
            Some(reply) => reply.recv().map_err(|_| Error::other("a read-ahead thread has ended"))??,
            None => {
                let wanted = self.next_range()?;
                let buffer = self.buffer();
                let read = read_window(&self.file, buffer, &wanted)?;
                self.all_read.store(self.unread.is_empty(), Ordering::Release);
                read
            }
        };
        self.reads += 1;
        self.read_bytes += window.unused.len() as u64;
        self.current = Some(window);
        if self.window_bytes >= AHEAD_FROM_BYTES && !self.unread.is_empty() {
            let wanted = self.next_range()?;
            let buffer = self.buffer();
            let (reply, answer) = bounded(1);
            let all_read = self.unread.is_empty().then(|| Arc::clone(&self.all_read));
            let request = Request { file: Arc::clone(&self.file), buffer, wanted, all_read, reply };
            let requests = self.pool.requests.as_ref().ok_or(ErrorKind::BrokenPipe)?;
            requests.send(request).map_err(|_| Error::from(ErrorKind::BrokenPipe))?;
            self.under_way = Some(answer);
        }
        Ok(())
    }

    fn buffer(&mut self) -> AlignedBuffer {
        // A stretch that begins within a block needs one more block.
        self.spare.take().unwrap_or_else(|| AlignedBuffer::new(self.window_bytes + ALIGNMENT_BYTES))
    }

    /// Returns the next stretch to read. Windows end at a multiple of the alignment, so that no block is read twice.
    fn next_range(&mut self) -> std::io::Result<Range<u64>> {
        if self.unread.is_empty() {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        let start = self.unread.start;
        let aligned = start - start % ALIGNMENT_BYTES as u64;
        let end = (aligned + self.window_bytes as u64).min(self.unread.end);
        self.unread.start = end;
        Ok(start..end)
    }
}

/// Reads the blocks around a stretch.
fn read_window(file: &File, mut buffer: AlignedBuffer, wanted: &Range<u64>) -> std::io::Result<Window> {
    let alignment = ALIGNMENT_BYTES as u64;
    let offset = wanted.start - wanted.start % alignment;
    let unused = (wanted.start - offset) as usize..(wanted.end - offset) as usize;
    let asked = unused.end.next_multiple_of(ALIGNMENT_BYTES).min(buffer.len());
    let mut present = 0;
    // Short reads before the end are rare; after one, reading continues at a block boundary.
    while present < unused.end {
        let from = present - present % ALIGNMENT_BYTES;
        match file.read_at(&mut buffer[from..asked], offset + from as u64) {
            Ok(count) if from + count <= present => return Err(Error::from(ErrorKind::UnexpectedEof)),
            Ok(count) => present = from + count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Window { buffer, unused })
}

#[cfg(test)]
mod tests {
    use super::{ReadPool, WindowReader, open_direct};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_stretch_in_any_pieces(
            bytes in 0..3_000_000_usize,
            start in 0..3_000_000_usize,
            pieces in proptest::collection::vec(0..400_000_usize, 1..30),
            window_bytes in prop_oneof![1..20_000_usize, 500_000..1_200_000_usize],
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let content = content(bytes);
            std::fs::write(&path, &content).unwrap();
            let start = start.min(bytes);
            let file = Arc::new(open_direct(&path).unwrap());
            let pool = Arc::new(ReadPool::new(2).unwrap());
            let mut reader = WindowReader::new(file, pool, start as u64..bytes as u64, window_bytes);
            let mut at = start;
            for piece in pieces {
                prop_assert_eq!(reader.is_at_end(), at == bytes);
                if at + piece > bytes {
                    prop_assert!(reader.take(piece).is_err());
                    return Ok(());
                }
                if piece > 0 {
                    prop_assert_eq!(reader.take(piece).unwrap(), &content[at..at + piece]);
                    at += piece;
                }
            }
            reader.skip_rest();
            prop_assert!(reader.is_at_end() && reader.take(1).is_err());
        }
    }

    #[test]
    fn truncated_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, content(10_000)).unwrap();
        let pool = Arc::new(ReadPool::new(1).unwrap());
        let mut reader = WindowReader::new(Arc::new(open_direct(&path).unwrap()), pool, 0..20_000, 8192);
        assert_eq!(reader.take(4096).unwrap(), &content(4096)[..]);
        assert!(reader.take(10_000).is_err());
    }
}
