//! The kernel is asked to forget files when it holds too many: it would keep all that were ever listed.

use crate::inodes::{INODES_TRIMMED, Inodes};
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
