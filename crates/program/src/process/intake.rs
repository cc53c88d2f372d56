//! Amount of its input that the program of an attempt has read.

use std::io::{ErrorKind, Write};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Maximum bytes written at once: while a larger piece waits for room, its written part would be unknown.
const PIECE_BYTES: usize = 64 << 10;

/// Counts for the first program of an attempt; its combiners read other input.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    is_taken: AtomicBool,
    fed_bytes: AtomicU64,
    /// This must not keep the pipe open: its end is the end of the input.
    pipe: Mutex<Weak<ChildStdin>>,
}

impl Intake {
    /// Records the start of a program. Returns true for the first one.
    pub fn begin(&self, stdin: &Arc<ChildStdin>) -> bool {
        let is_first = !self.is_taken.swap(true, Ordering::Relaxed);
        if is_first {
            *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(stdin);
        }
        is_first
    }

    /// Records that the program has finished the attempt: later bytes in its pipe belong to another.
    pub fn end(&self) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
    }

    /// Counts more bytes that were written, or skipped.
    pub fn fed(&self, bytes: usize) {
        self.fed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes written to the program, without those that are still in its pipe; None if no program was
    /// started.
    pub fn bytes(&self) -> Option<u64> {
        if !self.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let waiting = pipe.and_then(|pipe| rustix::io::ioctl_fionread(&*pipe).ok()).unwrap_or(0);
        Some(self.fed_bytes.load(Ordering::Relaxed).saturating_sub(waiting))
    }
}

/// Writes the beginning of some bytes; returns how many.
pub(crate) fn write_piece(mut stdin: &ChildStdin, bytes: &[u8]) -> std::io::Result<usize> {
    loop {
        match stdin.write(&bytes[..bytes.len().min(PIECE_BYTES)]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
