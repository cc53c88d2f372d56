//! `sailfish mount`: stored files as a directory of this machine.

use crate::commands::files::{check_stored, failure};
use crate::engine::file_views::watcher_of;
use crate::exit::{FAILED, Failure, REFUSED};
use crate::options::connect::StateArgs;
use crate::show::terminal::tell;
use anyhow::Context;
use clap::Args;
use clusterfiles::ClusterFiles;
use filemount::{Audience, MountError, MountPoint};
use filestore::{FileStore, StoredTree};
use filetree::TreeName;
use jobspec::state_dir::state_dir;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// How long open files may keep the process after it has unmounted the directory.
const CLOSE_MAX: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Files of older versions lie below DIR/.versions/VERSION.
The directory is unmounted with Ctrl-C, with `umount DIR`, or when the process ends in any other way.

Examples:
  sailfish mount /mnt/files
  sailfish mount --server http://127.0.0.1:7070 /mnt/files";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MountArgs {
    /// An empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    state: StateArgs,
    /// Let all users of this machine read the files that this user may read; only root may say so
    #[arg(long)]
    allow_other: bool,
    /// Seconds after which a read fails if the server or the nodes do not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, hide = true)]
    wait_max: u64,
}

#[derive(Debug, Args)]
pub struct WatcherArgs {
    dir: PathBuf,
}

impl MountArgs {
    fn open(&self) -> Result<Arc<dyn StoredTree>, Failure> {
        let user = std::env::var("USER").unwrap_or_default();
        if let Some(url) = &self.state.server {
            let credentials = self.state.credentials.read(url)?;
            let wait_max = Duration::from_secs(self.wait_max);
            let files = ClusterFiles::connect_waiting(url, &credentials, &user, wait_max).map_err(failure)?;
            return Ok(Arc::new(files));
        }
        let dir = state_dir(self.state.state.as_deref()).map_err(Failure::refused)?;
        check_stored(&dir)?;
        Ok(Arc::new(FileStore::open(&dir, &user).map_err(failure)?))
    }
}

/// Mounts the files, and waits for the end of the mount.
pub fn run(args: &MountArgs) -> Result<(), Failure> {
    let point = MountPoint::check(&args.dir).map_err(refused)?;
    let tree = args.open()?;
    // A server that refuses this user, or is not there, is told before anything is mounted.
    tree.entry_page(&TreeName::default(), "").map_err(failure)?;
    let (ended, end) = sync_channel(2);
    unmount_at_signals(point.clone(), ended.clone())?;
    let watcher = watcher_of(&point).map_err(refused)?;
    let audience = if args.allow_other { Audience::Everybody } else { Audience::Owner };
    filemount::mount(tree, &point, audience, ended).map_err(refused)?;
    tell(&format!("sailfish: the stored files are mounted at {}", point.path().display()));
    let outcome = end.recv().unwrap_or(Ok(()));
    watcher.finish();
    outcome.map_err(refused)
}

fn refused(error: MountError) -> Failure {
    let code = if error.is_refusal() { REFUSED } else { FAILED };
    Failure { code, error: Some(error.into()) }
}

/// Starts a thread that unmounts at the first signal, and then tells the end. Files that are still open do not delay it
/// for long.
fn unmount_at_signals(point: MountPoint, ended: SyncSender<Result<(), MountError>>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let unmount = move || {
        if signals.forever().next().is_none() {
            return;
        }
        let unmounted = point.unmount();
        if unmounted.is_ok() {
            std::thread::sleep(CLOSE_MAX);
        }
        // The main thread may have ended already.
        let _ = ended.send(unmounted);
    };
    let thread = std::thread::Builder::new().name("signals".to_string()).spawn(unmount);
    thread.map(drop).context("starting a thread").map_err(Failure::from)
}

/// Runs a watcher.
pub fn watch(args: &WatcherArgs) -> Result<(), Failure> {
    filemount::watch(&MountPoint::checked(args.dir.clone()))
        .context("watching a mount")
        .map_err(Failure::from)
}
