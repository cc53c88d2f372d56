//! Small files with secrets and certificates.

use crate::TrustError;
use faults::{IoCall, io_call};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Maximum size of a file with a token or a certificate.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads a small file; None if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, TrustError> {
    let unreadable = |source| TrustError::Unreadable { path: path.to_path_buf(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    match read as u64 > FILE_BYTES_MAX {
        true => Err(TrustError::TooLarge { path: path.to_path_buf(), bytes_max: FILE_BYTES_MAX }),
        false => Ok(Some(text)),
    }
}

/// Writes a file that only its owner may read, and replaces a file of that name. It appears whole and is on disk on
/// return.
pub fn write_private(path: &Path, text: &str) -> Result<(), TrustError> {
    write(path, text, 0o600).map_err(|source| TrustError::Unwritable { path: path.to_path_buf(), source })
}

/// Does the same only if no file has the name yet; an existing one stays unchanged.
pub fn write_new_private(path: &Path, text: &str) -> Result<(), TrustError> {
    let written = || {
        io_call(IoCall::Create, path)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        io_call(IoCall::Write, path)?;
        file.write_all(text.as_bytes())?;
        io_call(IoCall::Sync, path)?;
        file.sync_all()
    };
    written().map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => TrustError::Exists { path: path.to_path_buf() },
        _ => TrustError::Unwritable { path: path.to_path_buf(), source },
    })
}

/// Does the same for a file that everybody may read.
pub(crate) fn write_public(path: &Path, text: &str) -> Result<(), TrustError> {
    write(path, text, 0o644).map_err(|source| TrustError::Unwritable { path: path.to_path_buf(), source })
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = path.with_file_name(name);
    // A crashed process may have left the file, with any mode.
    if let Err(error) = std::fs::remove_file(&new)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    io_call(IoCall::Create, &new)?;
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
    io_call(IoCall::Write, &new)?;
    file.write_all(text.as_bytes())?;
    io_call(IoCall::Sync, &new)?;
    file.sync_all()?;
    io_call(IoCall::Rename, &new)?;
    std::fs::rename(&new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    io_call(IoCall::Sync, parent)?;
    File::open(parent)?.sync_all()
}

/// Creates a directory that only its owner may enter, if it does not exist.
pub fn private_directory(dir: &Path) -> Result<(), TrustError> {
    let made = io_call(IoCall::Create, dir)
        .and_then(|()| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir));
    made.map_err(|source| TrustError::Unwritable { path: dir.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::{read, write_new_private, write_private};
    use crate::TrustError;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_file_is_private_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        for text in ["long, the first", "short"] {
            std::fs::write(dir.path().join("secret.new"), "left by a crash, and longer than all").unwrap();
            write_private(&path, text).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(text));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(read(&dir.path().join("other")).unwrap(), None);
    }

    #[test]
    fn a_new_private_file_takes_no_others_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write_new_private(&path, "first").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(write_new_private(&path, "second"), Err(TrustError::Exists { .. })));
        std::os::unix::fs::symlink(dir.path().join("nothing"), dir.path().join("link")).unwrap();
        assert!(write_new_private(&dir.path().join("link"), "second").is_err());
        assert_eq!(read(&path).unwrap().as_deref(), Some("first"));
    }
}
