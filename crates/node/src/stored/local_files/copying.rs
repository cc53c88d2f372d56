//! A local copy: made as a clone of a replica if its file system can, else from verified bytes.

use crate::failure::file_failure;
use crate::stored::local_files::{CopyUse, WantedFile, is_cancelled, last_component};
use crate::stored::passed_on::{PassedCopies, Passing};
use crate::stored::step_files::NO_REPLICA;
use crate::tasks::map::stored_input::PartOpener;
use api::{Blame, LostFile, StoredContent, StoredPart, TaskFailure};
use faults::{IoCall, io_call};
use std::fs::{File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const BUFFER_BYTES: usize = 1 << 20;
const READ_ONLY: u32 = 0o444;
const EXECUTABLE: u32 = 0o555;

/// A file as it was left; every write, also one of a program with all rights, changes the time of its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    file: (u64, u64),
    bytes: u64,
    mode: u32,
    changed: (i64, i64),
}

impl FileState {
    fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            bytes: found.len(),
            mode: found.mode(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub number: u64,
    pub path: PathBuf,
    pub bytes: u64,
    /// Time at which all of it was verified.
    pub verified: Instant,
    state: FileState,
    /// Lets other nodes read the parts, until the last user of the copy has gone.
    _passed_on: Arc<Vec<Passing>>,
}

impl Copy {
    /// Returns whether nothing has touched the file since it was made.
    pub fn is_unchanged(&self) -> bool {
        self.path.symlink_metadata().is_ok_and(|found| FileState::of(&found) == self.state)
    }

    pub fn exists(&self) -> bool {
        self.path.symlink_metadata().is_ok()
    }

    pub fn verified_now(self) -> Self {
        Self { verified: Instant::now(), ..self }
    }

    /// Returns whether the file has these bytes.
    pub fn has_content(&self, content: &StoredContent) -> bool {
        // A program may have put anything in its place.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = File::options().read(true).custom_flags(flags).open(&self.path);
        opened.is_ok_and(|mut file| has_content(&mut file, content).unwrap_or(false))
    }

    /// Removes the file and its directory; what cannot be removed goes with the directory of all copies.
    pub fn remove(&self) {
        if let Some(home) = self.path.parent()
            && let Err(error) = std::fs::remove_dir_all(home)
        {
            tracing::debug!(path = %home.display(), %error, "cannot remove a copy of a stored file");
        }
    }
}

fn has_content(file: &mut File, content: &StoredContent) -> std::io::Result<bool> {
    let mut buffer = vec![0; BUFFER_BYTES];
    for part in &content.parts {
        let (mut left, mut sum) = (part.bytes, 0);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read(&mut buffer[..wanted])?;
            if count == 0 {
                return Ok(false);
            }
            sum = crc32c::crc32c_append(sum, &buffer[..count]);
            left -= count as u64;
        }
        if sum != part.crc32c {
            return Ok(false);
        }
    }
    Ok(file.read(&mut buffer[..1])? == 0)
}

/// Returns the bytes that may be written on the disk of a directory.
pub(crate) fn free_bytes(dir: &Path, reserve_percent: u8) -> std::io::Result<u64> {
    let told = rustix::fs::statvfs(dir)?;
    let reserved = u128::from(told.f_blocks) * u128::from(told.f_frsize) * u128::from(reserve_percent) / 100;
    let free = u128::from(told.f_bavail) * u128::from(told.f_frsize);
    Ok(u64::try_from(free.saturating_sub(reserved)).unwrap_or(u64::MAX))
}

/// A copy that is being made.
pub(super) struct Making<'a> {
    pub wanted: &'a WantedFile<'a>,
    pub opener: &'a dyn PartOpener,
    pub cancelled: &'a AtomicBool,
    pub dir: &'a Path,
    pub number: u64,
    /// Takes the parts that other nodes may read.
    pub passed_on: Option<&'a Arc<PassedCopies>>,
}

impl Making<'_> {
    pub fn run(&self) -> Result<Copy, TaskFailure> {
        // A directory of its own: the file keeps its name.
        let home = self.dir.join(self.number.to_string());
        let made = io_call(IoCall::Create, &home).and_then(|()| std::fs::create_dir(&home));
        made.map_err(|error| file_failure("create", &home, error))?;
        let path = home.join(last_component(self.wanted.path));
        let made = self.write(&path).and_then(|passed_on| self.finish(&path, passed_on));
        if made.is_err() {
            // Also a full disk gives the room back.
            let _ = std::fs::remove_dir_all(&home);
        }
        made
    }

    fn finish(&self, path: &Path, passed_on: Vec<Passing>) -> Result<Copy, TaskFailure> {
        let mode = match self.wanted.of {
            CopyUse::Input => READ_ONLY,
            CopyUse::Program => EXECUTABLE,
        };
        let limited = std::fs::set_permissions(path, Permissions::from_mode(mode));
        let state = limited.and_then(|()| path.symlink_metadata()).map(|found| FileState::of(&found));
        let state = state.map_err(|error| file_failure("limit who may write", path, error))?;
        let (number, path, bytes) = (self.number, path.to_path_buf(), self.wanted.content.bytes());
        let (verified, _passed_on) = (Instant::now(), Arc::new(passed_on));
        Ok(Copy { number, path, bytes, verified, state, _passed_on })
    }

    /// Writes the file. Returns the parts that are passed on.
    fn write(&self, path: &Path) -> Result<Vec<Passing>, TaskFailure> {
        let failed = |error: std::io::Error| file_failure("write", path, error);
        let create = || {
            io_call(IoCall::Create, path)?;
            File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
        };
        if let [part] = self.wanted.content.parts.as_slice()
            && let Some(replica) = self.opener.replica_here(*part)
        {
            let mut clone = create().map_err(failed)?;
            let is_cloned = rustix::fs::ioctl_ficlone(&clone, &replica).is_ok();
            if is_cloned && has_content(&mut clone, self.wanted.content).map_err(failed)? {
                return Ok(Vec::new());
            }
            std::fs::remove_file(path).map_err(failed)?;
        }
        let mut file = create().map_err(failed)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut passed_on, mut begins_at) = (Vec::new(), 0);
        for part in &self.wanted.content.parts {
            // Before the source is asked for: another node may be sent here at once.
            let passing = self.passed_on.and_then(|copies| copies.begin(*part, path, begins_at));
            self.copy_part(*part, &mut file, &mut buffer, path, passing.as_ref())?;
            passed_on.extend(passing);
            begins_at += part.bytes;
        }
        Ok(passed_on)
    }

    fn copy_part(
        &self,
        part: StoredPart,
        file: &mut File,
        buffer: &mut [u8],
        path: &Path,
        passing: Option<&Passing>,
    ) -> Result<(), TaskFailure> {
        let unreadable = |error: std::io::Error| {
            let shown = self.wanted.path.display();
            let lost = || Box::new(LostFile::Stored(self.wanted.path.to_path_buf()));
            let lost_file = (error.kind() == NO_REPLICA).then(lost);
            let message = format!("cannot copy {shown} for a program: {error}");
            TaskFailure { lost_file, ..TaskFailure::new(Blame::Environment, message) }
        };
        let opened = match passing {
            Some(passing) => self.opener.open_for_copy(part, passing.copy()),
            None => self.opener.open_part(part, 0),
        };
        let mut reader = opened.map_err(unreadable)?;
        let (mut bytes, mut sum) = (0, 0);
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(is_cancelled());
            }
            let count = reader.read(buffer).map_err(unreadable)?;
            if count == 0 {
                break;
            }
            (bytes, sum) = (bytes + count as u64, crc32c::crc32c_append(sum, &buffer[..count]));
            let written = io_call(IoCall::Write, path).and_then(|()| file.write_all(&buffer[..count]));
            written.map_err(|error| file_failure("write", path, error))?;
            passing.inspect(|passing| passing.copy().has_written(count));
        }
        match (bytes, sum) == (part.bytes, part.crc32c) {
            true => Ok(()),
            // Each block was verified, so this is no damage of a disk.
            false => Err(unreadable(std::io::Error::other(format!("{} has other bytes", part.concrete)))),
        }
    }
}
