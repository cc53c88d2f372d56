//! Writing a file front to back: one buffer is filled while another is on its way to the disk.

use crate::{ALIGNMENT_BYTES, AlignedBuffer, BUFFERS};
use crossbeam_channel::{Receiver, Sender, bounded};
use faults::{IoCall, io_call};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Through the page cache: for files that are read again soon, or that nobody waits for.
    PageCache,
    /// Past it, where the file system can.
    Direct,
}

/// The state of a finished file on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// The file survives a power cut: everything is on the disk.
    Synced,
    /// The kernel writes the file when it likes.
    NotSynced,
}

/// A buffer with so many bytes of a file at an offset.
struct Filled {
    buffer: AlignedBuffer,
    bytes: usize,
    offset: u64,
}

/// The thread that writes, from the second full buffer on.
struct Background {
    filled: Sender<Filled>,
    /// Buffers come back here, or the first error.
    emptied: Receiver<Result<AlignedBuffer, Error>>,
    thread: JoinHandle<()>,
}

/// A file with its name, by which planted faults know it.
struct Named {
    file: File,
    path: PathBuf,
}

/// A new file, written front to back. Small files never start a thread.
pub struct SequentialWriter {
    file: Arc<Named>,
    buffer: AlignedBuffer,
    filled: usize,
    /// Offset of the front of the buffer.
    offset: u64,
    /// Buffers made so far.
    buffers: usize,
    background: Option<Background>,
    failed: bool,
}

impl SequentialWriter {
    /// Creates the file; an older one of that name is emptied, but no link followed. Buffers have about `buffer_bytes` each.
    pub fn create(path: &Path, through: Through, buffer_bytes: usize) -> std::io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o666);
        io_call(IoCall::Create, path)?;
        let file = match through {
            Through::Direct => match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
                Err(rustix::io::Errno::INVAL) => rustix::fs::open(path, flags, mode)?,
                opened => opened?,
            },
            Through::PageCache => rustix::fs::open(path, flags, mode)?,
        };
        Ok(Self {
            file: Arc::new(Named { file: File::from(file), path: path.to_path_buf() }),
            buffer: AlignedBuffer::new(buffer_bytes),
            filled: 0,
            offset: 0,
            buffers: 1,
            background: None,
            failed: false,
        })
    }

    /// The file, for hints.
    pub fn file(&self) -> &File {
        &self.file.file
    }

    /// Bytes taken so far.
    pub fn written_bytes(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Writes what is left, waits for what is under way, cuts the file to its length and syncs it if asked to.
    pub fn finish(mut self, syncing: Syncing) -> std::io::Result<u64> {
        if self.failed {
            return Err(after_failure());
        }
        let written_bytes = self.written_bytes();
        let last = std::mem::replace(&mut self.buffer, AlignedBuffer::new(1));
        let last = Filled { buffer: last, bytes: self.filled, offset: self.offset };
        if let Some(background) = self.background.take() {
            drop(background.filled);
            let mut outcome = Ok(());
            for emptied in background.emptied.iter() {
                outcome = outcome.and(emptied.map(drop));
            }
            background.thread.join().map_err(|_| Error::other("the thread that writes a file panicked"))?;
            outcome?;
        }
        write_out(&self.file, &last)?;
        let Named { file, path } = &*self.file;
        io_call(IoCall::Write, path)?;
        file.set_len(written_bytes)?;
        if syncing == Syncing::Synced {
            io_call(IoCall::Sync, path)?;
            file.sync_all()?;
        }
        Ok(written_bytes)
    }

    /// Sends the full buffer on and takes an empty one.
    fn pass_on(&mut self) -> std::io::Result<()> {
        if self.failed {
            return Err(after_failure());
        }
        let next = self.next_buffer();
        let next = next.inspect_err(|_| self.failed = true)?;
        let buffer = std::mem::replace(&mut self.buffer, next);
        let full = Filled { buffer, bytes: self.filled, offset: self.offset };
        self.offset += self.filled as u64;
        self.filled = 0;
        if self.background.is_none() {
            self.background = Some(Background::start(Arc::clone(&self.file))?);
        }
        let background = self.background.as_ref().ok_or(ErrorKind::BrokenPipe)?;
        if background.filled.send(full).is_ok() {
            return Ok(());
        }
        // The thread ended with an error, which stands behind the buffers it gave back before.
        self.failed = true;
        Err(background.emptied.try_iter().find_map(Result::err).unwrap_or(ErrorKind::BrokenPipe.into()))
    }

    fn next_buffer(&mut self) -> std::io::Result<AlignedBuffer> {
        if let Some(background) = &self.background
            && self.buffers == BUFFERS
        {
            return background.emptied.recv().map_err(|_| Error::from(ErrorKind::BrokenPipe))?;
        }
        self.buffers += 1;
        Ok(AlignedBuffer::new(self.buffer.len()))
    }
}

impl Background {
    fn start(file: Arc<Named>) -> std::io::Result<Self> {
        let (filled, to_write) = bounded::<Filled>(BUFFERS);
        let (give_back, emptied) = bounded(BUFFERS);
        let write = move || {
            for full in to_write {
                let outcome = write_out(&file, &full).map(|()| full.buffer);
                let failed = outcome.is_err();
                // Whoever filled it may be gone.
                if give_back.send(outcome).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("file-writer".to_string()).spawn(write)?;
        Ok(Self { filled, emptied, thread })
    }
}

impl Write for SequentialWriter {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.filled == self.buffer.len() {
            self.pass_on()?;
        }
        let count = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        Ok(count)
    }

    /// Does nothing: only [`SequentialWriter::finish`] knows that no more comes.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn after_failure() -> Error {
    Error::new(ErrorKind::BrokenPipe, "an earlier write of this file failed")
}

/// Writes a buffer. Its last bytes may be no whole block; then zeros follow, which the end of the file cuts off.
fn write_out(Named { file, path }: &Named, filled: &Filled) -> std::io::Result<()> {
    io_call(IoCall::Write, path)?;
    let padded = filled.bytes.next_multiple_of(ALIGNMENT_BYTES);
    match file.write_all_at(&filled.buffer[..padded], filled.offset) {
        // Some file systems take the flag and refuse the write.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            let flags = rustix::fs::fcntl_getfl(file)?;
            if !flags.contains(OFlags::DIRECT) {
                return Err(error);
            }
            rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?;
            file.write_all_at(&filled.buffer[..padded], filled.offset)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::{SequentialWriter, Syncing, Through};
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn file_holds_the_written_bytes(
            pieces in proptest::collection::vec(0..20_000_usize, 0..40),
            buffer_bytes in 1..30_000_usize,
            direct: bool,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let through = if direct { Through::Direct } else { Through::PageCache };
            let mut writer = SequentialWriter::create(&path, through, buffer_bytes).unwrap();
            let mut expected = Vec::new();
            for (index, piece) in pieces.into_iter().enumerate() {
                let bytes = vec![index as u8; piece];
                writer.write_all(&bytes).unwrap();
                expected.extend_from_slice(&bytes);
            }
            prop_assert_eq!(writer.written_bytes(), expected.len() as u64);
            let syncing = if direct { Syncing::Synced } else { Syncing::NotSynced };
            prop_assert_eq!(writer.finish(syncing).unwrap(), expected.len() as u64);
            prop_assert_eq!(std::fs::read(&path).unwrap(), expected);
        }
    }

    #[test]
    fn an_error_is_the_one_of_the_disk() {
        for buffers in 1..8 {
            let mut writer =
                SequentialWriter::create("/dev/full".as_ref(), Through::PageCache, 4096).unwrap();
            let mut outcome = Ok(());
            for _ in 0..buffers {
                outcome = outcome.and_then(|()| writer.write_all(&[1; 4096]));
            }
            let error = outcome.and_then(|()| writer.finish(Syncing::NotSynced)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "after {buffers} buffers: {error}");
        }
    }

    #[test]
    fn errors_are_reported_at_the_end_at_latest() {
        let mut writer = SequentialWriter::create("/dev/full".as_ref(), Through::PageCache, 4096).unwrap();
        let written = writer.write_all(&[1; 100_000]);
        assert!(written.and_then(|()| writer.finish(Syncing::NotSynced).map(drop)).is_err());
        let mut writer = SequentialWriter::create("/dev/full".as_ref(), Through::PageCache, 4096).unwrap();
        writer.write_all(b"short").unwrap();
        assert!(writer.finish(Syncing::NotSynced).is_err());
    }
}
