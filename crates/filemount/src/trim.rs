//! The kernel is asked to forget files when it holds too many, since it would keep all that were ever listed, and files
//! that have another number.

use crate::inodes::{INODES_TRIMMED, InodeName, Inodes};
use fuser::{INodeNo, Notifier};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Files that are forgotten together.
const FORGOTTEN_AT_ONCE: usize = INODES_TRIMMED / 4;

/// Starts the thread that does so. It ends with the mount.
pub(crate) fn start(inodes: Arc<Inodes>, notifier: Notifier) -> std::io::Result<()> {
    let inodes = Arc::downgrade(&inodes);
    let trim = move || while trim_once(&inodes, &notifier) {};
    std::thread::Builder::new().name("trim".to_string()).spawn(trim).map(drop)
}

/// Returns whether the mount still exists.
fn trim_once(inodes: &Weak<Inodes>, notifier: &Notifier) -> bool {
    std::thread::sleep(LOOK_EVERY);
    let Some(inodes) = inodes.upgrade() else { return false };
    if inodes.count() <= INODES_TRIMMED {
        return true;
    }
    let files = inodes.forgettable(FORGOTTEN_AT_ONCE);
    drop(inodes);
    // An open file keeps its number; an error means that the mount has ended.
    files.iter().all(|(parent, name)| notifier.inval_entry(INodeNo(*parent), OsStr::new(&**name)).is_ok())
}

/// How long, and for how many files, old numbers are held while the kernel gets new ones. Their pages go with their last
/// user, and programs that open the same file would wait for that. `umount` says busy meanwhile, so it is short.
const HELD_FOR: Duration = Duration::from_millis(100);
const HELD_MAX: usize = 64;

/// Starts the thread by which the kernel looks up names again: those of files that have another number from now on.
/// It ends with the mount.
pub(crate) fn start_renaming(
    inodes: Arc<Inodes>,
    point: PathBuf,
    renamed: Receiver<u64>,
    notifier: Notifier,
) -> std::io::Result<()> {
    let rename = move || {
        let (mut held, mut held_since) = (Vec::new(), Instant::now());
        loop {
            let number = match renamed.recv_timeout(HELD_FOR.saturating_sub(held_since.elapsed())) {
                Ok(number) => number,
                Err(RecvTimeoutError::Timeout) => {
                    held.clear();
                    held_since = Instant::now();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some((parent, name)) = inodes.entry(number) else { continue };
            if held.len() == HELD_MAX {
                held.clear();
            }
            if held.is_empty() {
                held_since = Instant::now();
            }
            if let Some(InodeName { path, at: None }) = inodes.name(number) {
                let path = point.join(path.to_string());
                held.push(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
            }
            // An error means that the kernel has forgotten it, or that the mount has ended.
            let _ = notifier.inval_entry(INodeNo(parent), OsStr::new(&*name));
        }
    };
    std::thread::Builder::new().name("rename".to_string()).spawn(rename).map(drop)
}
