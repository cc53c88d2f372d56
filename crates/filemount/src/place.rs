//! The mount point: an empty directory, and the tables of the kernel about it.

use crate::SOURCE;
use crate::error::MountError;
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs that mount for users who are not root.
const HELPERS: &[&str] = &["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3"];
const DEVICE: &str = "/dev/fuse";
/// Bytes that the kernel reads ahead of a program, in KiB: several of its longest requests, so that the disk, this process
/// and the program work at once.
const READAHEAD_KIB: u32 = 8192;

/// An empty directory for a mount, by its absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    path: PathBuf,
}

/// The state of a mount of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountState {
    /// Nothing of ours is mounted there.
    Absent,
    Served,
    /// Its process is gone.
    Dead,
}

/// Returns an error if this machine has no FUSE.
pub(crate) fn check_device() -> Result<(), MountError> {
    match Path::new(DEVICE).exists() {
        true => Ok(()),
        false => Err(MountError::NoDevice),
    }
}

impl MountPoint {
    /// Checks a directory.
    pub fn check(path: &Path) -> Result<Self, MountError> {
        let given = || path.to_path_buf();
        let failed = |source: std::io::Error| match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => MountError::Missing { path: given() },
            Some(Errno::NOTDIR) => MountError::NotADirectory { path: given() },
            Some(Errno::NOTCONN | Errno::CONNABORTED) => MountError::Dead { path: given() },
            _ => MountError::Unreadable { path: given(), source },
        };
        let path = std::path::absolute(path).map_err(failed)?;
        if statfs(&path).err() == Some(Errno::NOTCONN) {
            return Err(MountError::Dead { path: given() });
        }
        let path = path.canonicalize().map_err(failed)?;
        let metadata = path.metadata().map_err(failed)?;
        if !metadata.is_dir() {
            return Err(MountError::NotADirectory { path: given() });
        }
        let above = path.parent().map(Path::metadata).transpose().map_err(failed)?;
        let is_other_device = above.is_none_or(|above| above.dev() != metadata.dev());
        if is_other_device || mounts().iter().any(|mount| mount.point == path) {
            return Err(MountError::Busy { path: given() });
        }
        if path.read_dir().map_err(failed)?.next().is_some() {
            return Err(MountError::NotEmpty { path: given() });
        }
        Ok(Self { path })
    }

    /// Returns a directory that was checked by another process.
    pub fn checked(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Converts an error of mounting.
    pub(crate) fn not_mounted(&self, source: std::io::Error) -> MountError {
        match source.kind() {
            // The kernel does not let this user mount, and the program that may do so is missing.
            ErrorKind::NotFound => MountError::NotPermitted { reason: "it is not installed".to_string() },
            ErrorKind::PermissionDenied => {
                MountError::NotPermitted { reason: format!("{DEVICE}: {source}").trim_end().to_string() }
            }
            _ => MountError::Mount { path: self.path.clone(), source },
        }
    }

    /// Lets the kernel ask for more at once. Only root may: others read as well, with more requests.
    pub(crate) fn widen_readahead(&self) {
        if let Some(mount) = mounts().into_iter().rev().find(|mount| mount.point == self.path) {
            let setting = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
            let _ = std::fs::write(setting, READAHEAD_KIB.to_string());
        }
    }

    /// Returns whether something of ours is mounted there.
    pub(crate) fn state(&self) -> MountState {
        // The last one covers the others.
        let last = mounts().into_iter().rfind(|mount| mount.point == self.path);
        match last.is_some_and(|mount| mount.source == SOURCE) {
            false => MountState::Absent,
            true => match statfs(&self.path) {
                Err(Errno::NOTCONN | Errno::CONNABORTED) => MountState::Dead,
                _ => MountState::Served,
            },
        }
    }

    /// Unmounts it, also while it is in use: open files end with the process that serves them.
    pub fn unmount(&self) -> Result<(), MountError> {
        let failed = |source| MountError::Unmount { path: self.path.clone(), source };
        match unmount(&self.path, UnmountFlags::DETACH) {
            Err(Errno::PERM) => self.unmount_by_helper().map_err(failed),
            // It was unmounted by others.
            Err(Errno::INVAL) | Ok(()) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn unmount_by_helper(&self) -> std::io::Result<()> {
        let mut error = ErrorKind::NotFound.into();
        for helper in HELPERS {
            let mut command = Command::new(helper);
            command.args(["-u", "-z", "-q", "--"]).arg(&self.path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            match command.status() {
                Ok(status) if status.success() => return Ok(()),
                Ok(status) => return Err(std::io::Error::other(format!("{helper}: {status}"))),
                Err(source) => error = source,
            }
        }
        Err(error)
    }
}

/// A row of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MountRow {
    /// `MAJOR:MINOR`.
    device: String,
    point: PathBuf,
    source: String,
}

fn mounts() -> Vec<MountRow> {
    // A machine without the table has only the checks that need none.
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(row).collect()
}

/// Parses a line: number, parent, device, root, mount point, options, optional fields, `-`, type, source, options.
fn row(line: &[u8]) -> Option<MountRow> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| fields.get(index).map(|field| String::from_utf8_lossy(field).into_owned());
    let point = PathBuf::from(std::ffi::OsString::from_vec(unescaped(fields.get(4)?)));
    Some(MountRow { device: text(2)?, point, source: text(dash + 2)? })
}

/// Replaces `\040` and its like.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{MountPoint, MountRow, row};
    use crate::error::MountError;
    use std::path::{Path, PathBuf};

    #[test]
    fn rows_of_the_table_are_parsed() {
        let line = br"85 29 0:52 / /tmp/a\040b\134 rw,nosuid shared:1 - fuse.sailfish sailfish ro,user_id=0";
        let expected = MountRow {
            device: "0:52".to_string(),
            point: PathBuf::from(r"/tmp/a b\"),
            source: "sailfish".to_string(),
        };
        assert_eq!(row(line), Some(expected));
        assert_eq!((row(b""), row(b"1 2 3")), (None, None));
    }

    #[test]
    fn unfit_mount_points_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let check = |path: &Path| MountPoint::check(path).unwrap_err();
        assert!(matches!(check(&dir.path().join("none")), MountError::Missing { .. }));
        assert!(matches!(check(&file), MountError::NotADirectory { .. }));
        assert!(matches!(check(&file.join("below")), MountError::NotADirectory { .. }));
        assert!(matches!(check(dir.path()), MountError::NotEmpty { .. }));
        assert!(matches!(check(Path::new("/")), MountError::Busy { .. }));
        assert!(matches!(check(Path::new("/proc")), MountError::Busy { .. }));
        std::fs::remove_file(file).unwrap();
        assert!(MountPoint::check(dir.path()).is_ok());
    }
}
