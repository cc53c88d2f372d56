//! Stored files without copies: the mount of a node, or of a run on this machine, in which programs find them.

use crate::show::terminal::tell;
use filemount::{MountError, MountPoint, OpenShown, ShownFiles, Watcher, mount_shown};
use filestore::{FileReader, FilesError};
use node::{FileViews, ShownView, ViewedFile};
use program::{Programs, TemporaryDir};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the subcommand of watchers, which no help lists.
const WATCHER: &str = "mount-watcher";

/// Starts the process that unmounts a directory when this process is gone.
pub fn watcher_of(point: &MountPoint) -> Result<Watcher, MountError> {
    let mut watcher = Command::new("/proc/self/exe");
    Watcher::start(watcher.arg(WATCHER).arg(point.path()))
}

/// The mount of this process for its programs; the first view makes it.
#[derive(Debug)]
pub struct MountedViews {
    programs: Arc<Programs>,
    state: Mutex<MountState>,
}

#[derive(Default)]
enum MountState {
    #[default]
    NotYet,
    Mounted(Box<ViewMount>),
    /// This machine does not let us.
    Impossible,
}

struct ViewMount {
    files: ShownFiles,
    point: MountPoint,
    watcher: Watcher,
    /// Removed after the mount.
    _dir: TemporaryDir,
}

impl std::fmt::Debug for MountState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotYet => "NotYet",
            Self::Mounted(_) => "Mounted",
            Self::Impossible => "Impossible",
        })
    }
}

impl MountedViews {
    pub fn new(programs: Arc<Programs>) -> Self {
        Self { programs, state: Mutex::default() }
    }

    /// Returns the programs to which it shows files.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the mount; None if there can be none. The log says the reason once.
    fn files(&self) -> Option<ShownFiles> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let MountState::NotYet = &*state {
            *state = match self.mount() {
                Ok(mount) => MountState::Mounted(Box::new(mount)),
                Err(error) => {
                    tell(&format!(
                        "sailfish: views of stored files are copies, as nothing can be mounted: {error}"
                    ));
                    MountState::Impossible
                }
            };
        }
        match &*state {
            MountState::Mounted(mount) => Some(mount.files.clone()),
            _ => None,
        }
    }

    fn mount(&self) -> Result<ViewMount, MountError> {
        let dir = self.programs.private_directory().map_err(MountError::Directory)?;
        let point = MountPoint::check(dir.path())?;
        let watcher = watcher_of(&point)?;
        // Its end says nothing: a mount that others have ended shows no more files.
        let (ended, _) = sync_channel(1);
        match mount_shown(&point, ended) {
            Ok(files) => {
                self.programs.see_mounts();
                Ok(ViewMount { files, point, watcher, _dir: dir })
            }
            Err(error) => {
                watcher.finish();
                Err(error)
            }
        }
    }

    /// Unmounts. A later view would mount again.
    pub fn end(&self) {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        let MountState::Mounted(mount) = state else { return };
        if let Err(error) = mount.point.unmount() {
            tell(&format!("sailfish: the mount for programs is left to its watcher: {error}"));
            return;
        }
        mount.watcher.finish();
    }
}

impl FileViews for MountedViews {
    fn show(&self, file: &Arc<ViewedFile>) -> Option<ShownView> {
        let files = self.files()?;
        let viewed = Arc::clone(file);
        let open: OpenShown =
            Box::new(move || Box::new(ViewReader { is_near: viewed.is_near(), file: Arc::clone(&viewed) }));
        match files.show(file.name(), file.bytes(), open) {
            Ok(shown) => Some(ShownView { path: shown.path().to_path_buf(), shown: Box::new(shown) }),
            Err(error) => {
                tell(&format!("sailfish: a stored file is copied, as it cannot be shown: {error}"));
                None
            }
        }
    }
}

/// A shown file that a program has open.
struct ViewReader {
    file: Arc<ViewedFile>,
    is_near: bool,
}

impl FileReader for ViewReader {
    fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
        self.file.read(offset, bytes_max, out).map_err(|source| FilesError::Io {
            action: "read",
            path: self.file.name().into(),
            source,
        })
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn backing(&self) -> Option<File> {
        None
    }
}
