//! The files that programs have open, and the threads that read ahead for them.

use crate::open_file::{AheadRoom, Filling, OpenFile, Room};
use filestore::FileReader;
use fuser::Errno;
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
}

#[derive(Default)]
struct OpenTable {
    next: u64,
    by_number: HashMap<u64, Arc<OpenFile>>,
}

impl OpenFiles {
    /// Starts the threads. They end with the value.
    pub fn start() -> std::io::Result<Self> {
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
        Ok(Self { files: Mutex::default(), room, fillings })
    }

    fn lock(&self) -> MutexGuard<'_, OpenTable> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no more files can be opened.
    pub fn is_full(&self) -> bool {
        self.lock().by_number.len() >= OPEN_FILES_MAX
    }

    /// Adds a file. Returns its number.
    pub fn add(&self, reader: Box<dyn FileReader>, name: String, bytes: u64) -> u64 {
        let file = Arc::new(OpenFile::new(reader, name, bytes, Arc::clone(&self.room)));
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.by_number.insert(number, file);
        number
    }

    /// Reads a range of a file, and gives it to `answer` once, or returns an error.
    pub fn read(
        &self,
        number: u64,
        offset: u64,
        bytes_max: u32,
        answer: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let file = self.lock().by_number.get(&number).cloned().ok_or(Errno::EBADF)?;
        if file.is_near() {
            return file.read_near(offset, bytes_max, answer);
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
            let all: Vec<Arc<OpenFile>> = self.lock().by_number.values().cloned().collect();
            all.iter().for_each(|file| file.drop_if_idle());
        }
        Ok(())
    }

    /// Closes a file. Its lease may take a moment to end.
    pub fn close(&self, number: u64) {
        let file = self.lock().by_number.remove(&number);
        drop(file);
    }
}

fn next(received: &Mutex<Receiver<Filling>>) -> Option<Filling> {
    received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
