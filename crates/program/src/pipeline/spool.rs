//! The bytes of a stream that not all readers have taken yet: the latest ones in memory, the others in a file.

use rustix::fs::{FallocateFlags, fallocate};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes kept in memory, and bytes of each piece of them.
pub(super) const WINDOW_BYTES: u64 = 8 << 20;
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes read from the file at once.
const READ_BYTES: u64 = 256 << 10;
/// Bytes whose disk is given back at once.
const FORGET_BYTES: u64 = 16 << 20;

/// Opens the file when it is first needed.
pub(super) type OpenFile = Box<dyn FnMut() -> std::io::Result<File> + Send>;

/// A stream that grows at its end and is read from any place.
pub(super) struct Spool {
    /// Each but the last has `chunk_bytes`.
    chunks: VecDeque<Vec<u8>>,
    chunk_bytes: usize,
    /// Position of the first byte in memory.
    start: u64,
    /// Position after the last byte.
    end: u64,
    window_bytes: u64,
    open: OpenFile,
    file: Option<File>,
    keeping: Keeping,
    /// Position before which the file has no bytes any more.
    forgotten: u64,
}

/// Bytes that go to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Those that leave memory before each reader has taken them.
    Unread,
    All,
}

impl Spool {
    pub fn new(window_bytes: u64, chunk_bytes: usize, keeping: Keeping, open: OpenFile) -> Self {
        let chunks = VecDeque::new();
        Self { chunks, chunk_bytes, start: 0, end: 0, window_bytes, open, file: None, keeping, forgotten: 0 }
    }

    /// Returns the position after the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds bytes at the end. The reader that has taken least stands at `slowest`.
    pub fn push(&mut self, bytes: &[u8], slowest: u64) -> std::io::Result<()> {
        if self.keeping == Keeping::All {
            let end = self.end;
            self.file()?.write_all_at(bytes, end)?;
        }
        self.add(bytes);
        while self.end - self.start > self.window_bytes
            && let Some(chunk) = self.chunks.pop_front()
        {
            let after = self.start + chunk.len() as u64;
            if self.keeping == Keeping::Unread && slowest < after {
                let start = self.start;
                self.file()?.write_all_at(&chunk, start)?;
            }
            self.start = after;
        }
        Ok(())
    }

    fn add(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        while !bytes.is_empty() {
            let last = match self.chunks.back_mut().filter(|last| last.len() < self.chunk_bytes) {
                Some(last) => last,
                None => self.chunks.push_back_mut(Vec::with_capacity(self.chunk_bytes)),
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(self.chunk_bytes - last.len()));
            last.extend_from_slice(taken);
            bytes = rest;
        }
    }

    /// Returns bytes from a position on: none at the end.
    pub fn read(&mut self, position: u64) -> std::io::Result<Cow<'_, [u8]>> {
        if position < self.start {
            let bytes = READ_BYTES.min(self.start - position) as usize;
            let mut buffer = vec![0; bytes];
            self.file()?.read_exact_at(&mut buffer, position)?;
            return Ok(buffer.into());
        }
        let place = (position - self.start) as usize;
        let chunk = self.chunks.get(place / self.chunk_bytes).map_or(&[][..], Vec::as_slice);
        Ok(chunk.get(place % self.chunk_bytes..).unwrap_or_default().into())
    }

    /// Gives back the disk of bytes that all readers have taken, in large pieces. Where the file system cannot, the file
    /// grows.
    pub fn forget_before(&mut self, position: u64) {
        let position = position.min(self.start);
        if self.keeping == Keeping::All || position < self.forgotten + FORGET_BYTES {
            return;
        }
        if let Some(file) = &self.file {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, flags, self.forgotten, position - self.forgotten);
        }
        self.forgotten = position;
    }

    fn file(&mut self) -> std::io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert((self.open)()?)),
        }
    }

    /// Ends the stream. A file of all bytes exists then, even if there are none.
    pub fn finish(&mut self) -> std::io::Result<()> {
        if self.keeping == Keeping::All { self.file().map(drop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keeping, Spool};
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        /// A reader takes at most this many bytes.
        Take(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..40).prop_map(Step::Push),
            (0..3_usize, 1..60_usize).prop_map(|(reader, bytes)| Step::Take(reader, bytes)),
        ]
    }

    proptest! {
        #[test]
        fn each_reader_gets_all_bytes_in_order(
            steps in prop::collection::vec(step(), 0..200),
            keeping in prop_oneof![Just(Keeping::Unread), Just(Keeping::All)],
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let opened = file.reopen().unwrap();
            let mut spool = Spool::new(64, 16, keeping, Box::new(move || opened.try_clone()));
            let mut model: Vec<u8> = Vec::new();
            let mut readers = [0_u64; 3];
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        spool.push(&bytes, readers.into_iter().min().unwrap()).unwrap();
                        model.extend(bytes);
                    }
                    Step::Take(reader, bytes) => {
                        let position = readers[reader] as usize;
                        let read = spool.read(position as u64).unwrap();
                        let read = &read[..read.len().min(bytes)];
                        prop_assert_eq!(read, &model[position..position + read.len()]);
                        prop_assert_eq!(read.is_empty(), position == model.len());
                        readers[reader] += read.len() as u64;
                    }
                }
            }
            spool.finish().unwrap();
            prop_assert_eq!(spool.end(), model.len() as u64);
            if keeping == Keeping::All {
                prop_assert_eq!(std::fs::read(file.path()).unwrap(), model);
            }
        }
    }
}
