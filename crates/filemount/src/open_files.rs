//! The files that programs have open, and the threads that read ahead for them.

use crate::inodes::ReadBy;
use crate::open_file::{AheadRoom, Filling, OpenFile, Room};
use crate::whole_files::{FileState, OpenBacking, WholeFiles};
use filestore::FileReader;
use fuser::{BackingId, Errno};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that read ahead, and work that waits for them.
const THREADS: usize = 4;
const WAITING_MAX: usize = 64;
/// Open files; each has a lease of its version.
const OPEN_FILES_MAX: usize = 4096;

/// The open files by their numbers.
pub(crate) struct OpenFiles {
    files: Mutex<OpenTable>,
    room: Arc<AheadRoom>,
    fillings: SyncSender<Filling>,
    whole: WholeFiles,
    /// Takes numbers of files that another reader has from now on.
    renamed: SyncSender<u64>,
}

/// A file that a program opens.
pub(crate) struct Opening {
    /// Its number at the kernel.
    pub inode: u64,
    pub content: i64,
    pub reads: ReadBy,
    /// For the log.
    pub name: String,
    pub bytes: u64,
}

#[derive(Clone)]
struct Opened {
    inode: u64,
    content: i64,
    reads: ReadBy,
    /// The file of this machine when it was opened.
    state: Option<FileState>,
    file: Arc<OpenFile>,
}

#[derive(Default)]
struct OpenTable {
    next: u64,
    by_number: HashMap<u64, Opened>,
}

impl OpenFiles {
    /// Starts the threads. They end with the value. `renamed` gets the numbers of files that the kernel shall look up again.
    pub fn start(renamed: SyncSender<u64>) -> std::io::Result<Self> {
        let (fillings, received) = sync_channel(WAITING_MAX);
        let (received, room) = (Arc::new(Mutex::new(received)), Arc::<AheadRoom>::default());
        for _ in 0..THREADS {
            let (received, room) = (Arc::clone(&received), Arc::clone(&room));
            let fill = move || {
                while let Some(filling) = next(&received) {
                    room.queued.fetch_sub(1, Ordering::Relaxed);
                    filling.run();
                }
            };
            std::thread::Builder::new().name("read-ahead".to_string()).spawn(fill)?;
        }
        Ok(Self { files: Mutex::default(), room, fillings, whole: WholeFiles::default(), renamed })
    }

    fn lock(&self) -> MutexGuard<'_, OpenTable> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no more files can be opened.
    pub fn is_full(&self) -> bool {
        self.lock().by_number.len() >= OPEN_FILES_MAX
    }

    /// Lets the kernel read verified files of this machine by itself.
    pub fn let_kernel_read(&self) {
        self.whole.enable();
    }

    /// Returns whether the kernel reads a content by itself from now on.
    pub fn is_whole(&self, content: i64) -> bool {
        self.whole.is_whole(content)
    }

    /// Adds a file. Returns its number.
    pub fn add(&self, opening: Opening, reader: Box<dyn FileReader>) -> u64 {
        let Opening { inode, content, reads, name, bytes } = opening;
        let state = self.whole.begun(content, bytes, &*reader);
        let file = Arc::new(OpenFile::new(reader, name, bytes, Arc::clone(&self.room)));
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.by_number.insert(number, Opened { inode, content, reads, state, file });
        number
    }

    /// Returns the file that the kernel reads by itself for an open one; None if it asks for the bytes.
    pub fn backing(&self, number: u64, open: OpenBacking<'_>) -> Option<Arc<BackingId>> {
        let opened = self.lock().by_number.get(&number).cloned()?;
        match opened.reads {
            ReadBy::Us => None,
            ReadBy::Kernel => self.whole.opened(opened.inode, opened.content, opened.file.backing(), open),
        }
    }

    /// Reads a range of a file, and gives it to `answer` once, or returns an error.
    pub fn read(
        &self,
        number: u64,
        offset: u64,
        bytes_max: u32,
        answer: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let Opened { content, state, file, .. } =
            self.lock().by_number.get(&number).cloned().ok_or(Errno::EBADF)?;
        if file.is_near() {
            let mut verified = |bytes: &[u8]| {
                answer(bytes);
                state
                    .iter()
                    .for_each(|state| self.whole.verified(content, state, offset, bytes.len() as u64));
            };
            return file.read_near(offset, bytes_max, &mut verified);
        }
        let fill = |filling| {
            self.room.queued.fetch_add(1, Ordering::Relaxed);
            let is_sent = self.fillings.try_send(filling).is_ok();
            if !is_sent {
                self.room.queued.fetch_sub(1, Ordering::Relaxed);
            }
            is_sent
        };
        let (bytes, room) = file.read(offset, bytes_max, &fill)?;
        answer(bytes.as_slice());
        if room == Room::Missing {
            let all: Vec<Opened> = self.lock().by_number.values().cloned().collect();
            all.iter().for_each(|opened| opened.file.drop_if_idle());
        }
        Ok(())
    }

    /// Closes a file. Its lease may take a moment to end.
    pub fn close(&self, number: u64) {
        let closed = self.lock().by_number.remove(&number);
        let Some(opened) = closed else { return };
        match opened.reads {
            ReadBy::Kernel => self.whole.closed(opened.inode),
            // Its pages go with its number, and the kernel reads the file by itself under the next one.
            ReadBy::Us if self.whole.is_whole(opened.content) => {
                let _ = self.renamed.try_send(opened.inode);
            }
            ReadBy::Us => {}
        }
    }
}

fn next(received: &Mutex<Receiver<Filling>>) -> Option<Filling> {
    received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
