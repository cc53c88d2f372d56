//! # What it does
//! Stored files as a read-only directory of this machine, through the FUSE of the kernel: the tree at its current
//! version, and older versions below `.versions`. Or a directory in which single files are shown (`views`).
//!
//! # Where it sits
//! cli -> filemount -> filestore (any `StoredTree`: of a machine or of a cluster), fuser (the kernel).
//!
//! # Invariants
//! An open file has the content that its name had when it was opened, until it is closed. An inode has one content for
//! ever, so that the kernel may keep its pages. Only verified bytes reach the kernel:
//! a file that it reads by itself was verified as a whole within the last day. Memory for reading ahead and for
//! inodes is bounded. A watcher unmounts the directory if the process of the mount is killed.
//!
//! # Deliberately absent
//! No writes. No permissions beyond those of the server: modes only say that everything is read-only.
//!
//! # How it is tested
//! Inodes, reading ahead and mount points beside the code; whole mounts in `tests/`, where FUSE can be used.

mod directories;
mod error;
mod filesystem;
mod inodes;
mod near;
mod open_file;
mod open_files;
mod place;
mod tree;
mod trim;
mod views;
mod watcher;
mod whole_files;

pub use error::MountError;
pub use place::MountPoint;
pub use views::{OpenShown, ShownFile, ShownFiles};
pub use watcher::{Watcher, watch};

use filestore::StoredTree;
use filesystem::StoredFilesystem;
use fuser::{Config, MountOption, Session, SessionACL};
use inodes::Inodes;
use open_files::OpenFiles;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use tree::MountedTree;
use views::ShownTable;

/// Name of the source of a mount in the tables of the kernel.
pub(crate) const SOURCE: &str = "sailfish";
/// Threads that answer requests of the kernel; one waits for the server or for bytes at a time.
const THREADS: usize = 8;
/// Files that wait for another number; others get it when the kernel asks for their names again.
const RENAMED_MAX: usize = 64;

/// The users who may see a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The user who mounts, and nobody else, not even root.
    Owner,
    /// All users of the machine.
    Everybody,
}

/// The bytes that the kernel reads ahead of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadAhead {
    /// Several of its longest requests.
    Wide,
    /// Its default, so that programs that seek bring little more than they read.
    AsUsual,
}

/// Mounts a tree, and serves it from threads of its own. Sends to `ended` when it is unmounted, by whoever did that.
pub fn mount(
    tree: Arc<dyn StoredTree>,
    point: &MountPoint,
    audience: Audience,
    ended: SyncSender<Result<(), MountError>>,
) -> Result<(), MountError> {
    mount_tree(Arc::new(tree), point, audience, ReadAhead::Wide, ended)
}

/// Mounts an empty directory in the same way, in which files are shown one by one to the user of this process.
pub fn mount_shown(
    point: &MountPoint,
    ended: SyncSender<Result<(), MountError>>,
) -> Result<ShownFiles, MountError> {
    let table = Arc::<ShownTable>::default();
    let tree = Arc::new(Arc::clone(&table));
    mount_tree(tree, point, Audience::Owner, ReadAhead::AsUsual, ended)?;
    Ok(ShownFiles::new(table, point.path().to_path_buf()))
}

fn mount_tree(
    tree: Arc<dyn MountedTree>,
    point: &MountPoint,
    audience: Audience,
    read_ahead: ReadAhead,
    ended: SyncSender<Result<(), MountError>>,
) -> Result<(), MountError> {
    place::check_device()?;
    if audience == Audience::Everybody && !rustix::process::geteuid().is_root() {
        return Err(MountError::OthersNeedRoot);
    }
    let inodes = Arc::new(Inodes::default());
    let (renamed, received) = sync_channel(RENAMED_MAX);
    let files = OpenFiles::start(renamed).map_err(MountError::Thread)?;
    let system = StoredFilesystem::new(tree, Arc::clone(&inodes), files, ended);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.to_string()),
        MountOption::Subtype(SOURCE.to_string()),
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.acl = match audience {
        Audience::Owner => SessionACL::Owner,
        Audience::Everybody => SessionACL::All,
    };
    config.n_threads = Some(THREADS);
    let session = Session::new(system, point.path(), &config).map_err(|source| point.not_mounted(source))?;
    if read_ahead == ReadAhead::Wide {
        point.widen_readahead();
    }
    trim::start(Arc::clone(&inodes), session.notifier()).map_err(MountError::Thread)?;
    trim::start_renaming(inodes, point.path().to_path_buf(), received, session.notifier())
        .map_err(MountError::Thread)?;
    let background = session.spawn().map_err(MountError::Thread)?;
    // It would unmount whatever lies there when it ends, which may be another mount by then: [`MountPoint::unmount`] and
    // the watcher do that.
    std::mem::forget(background);
    Ok(())
}
