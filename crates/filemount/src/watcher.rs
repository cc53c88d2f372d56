//! The watcher: a process that unmounts when the process of the mount is gone, however that ended. Otherwise each
//! access to the mount point would fail until somebody unmounts it.

use crate::error::MountError;
use crate::place::{MountPoint, MountState};
use rustix::process::setsid;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take to end a mount whose process is gone.
const END_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A watcher. It looks after the mount when this process ends.
#[derive(Debug)]
pub struct Watcher {
    /// The process waits for the end of its standard input, which this keeps open.
    child: Child,
}

impl Watcher {
    /// Starts a watcher with a command that calls [`watch`]. Returns when it is ready.
    pub fn start(command: &mut Command) -> Result<Self, MountError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        let mut child = command.spawn().map_err(MountError::Watcher)?;
        let mut ready = [0];
        let told = match child.stdout.take() {
            Some(mut output) => output.read_exact(&mut ready),
            None => Ok(()),
        };
        told.map_err(MountError::Watcher)?;
        Ok(Self { child })
    }

    /// Waits for its end, after the mount has ended.
    pub fn finish(mut self) {
        drop(self.child.stdin.take());
        // Its end says nothing.
        let _ = self.child.wait();
    }
}

/// Watches a mount: waits until standard input ends, with the process that started this one, and unmounts the directory
/// if nobody serves it.
pub fn watch(point: &MountPoint) -> Result<(), MountError> {
    // Ctrl-C and the end of a terminal are for the mount.
    setsid().map_err(|error| MountError::Watcher(error.into()))?;
    let mut output = std::io::stdout();
    output.write_all(b"r").and_then(|()| output.flush()).map_err(MountError::Watcher)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).map_err(MountError::Watcher)?;
    let since = Instant::now();
    while since.elapsed() < END_MAX {
        match point.state() {
            MountState::Absent => return Ok(()),
            MountState::Dead => return point.unmount(),
            MountState::Served => std::thread::sleep(LOOK_EVERY),
        }
    }
    Ok(())
}
