//! The list of a source: its files, and everything that cannot be put.

use crate::error::TransferError;
use filetree::{NameError, PATH_BYTES_MAX, check_component};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Refused,
    /// The file or directory that a link means is put under the link's name.
    Followed,
}

/// A file of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Name below the source; empty if the source is this file.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// A name that cannot be put, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsuitable {
    pub path: PathBuf,
    pub reason: String,
}

/// All files of a source, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedSource {
    pub files: Vec<SourceFile>,
    /// Names of directories below the source, each after the directory that it lies in.
    pub directories: Vec<String>,
    /// True if the source is a directory.
    pub is_directory: bool,
    pub unsuitable: Vec<Unsuitable>,
}

pub(crate) fn modified_ns(data: &Metadata) -> u64 {
    let ns = i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec());
    u64::try_from(ns).unwrap_or(0)
}

/// Lists a file or a directory with everything below it. `name_bytes`: the bytes of the name under which it is put.
pub fn list_source(source: &Path, links: Links, name_bytes: usize) -> Result<ListedSource, TransferError> {
    let data = std::fs::metadata(source).map_err(TransferError::io("read", source))?;
    let mut listed = ListedSource { is_directory: data.is_dir(), ..ListedSource::default() };
    match data.is_dir() {
        false => listed.add(source, String::new(), &data),
        true => {
            let names_max = PATH_BYTES_MAX.saturating_sub(name_bytes + 1);
            let mut above = vec![(data.dev(), data.ino())];
            listed.walk(source, "", links, names_max, &mut above)?;
        }
    }
    Ok(listed)
}

impl ListedSource {
    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn add(&mut self, path: &Path, name: String, data: &Metadata) {
        let kind = data.file_type();
        let other = match kind {
            _ if kind.is_file() => None,
            _ if kind.is_socket() => Some("a socket"),
            _ if kind.is_fifo() => Some("a named pipe"),
            _ => Some("a device"),
        };
        match other {
            None => {
                let (bytes, modified_ns) = (data.len(), modified_ns(data));
                self.files.push(SourceFile { name, path: path.to_path_buf(), bytes, modified_ns });
            }
            Some(other) => self.refuse(path, format!("it is {other}, not a file")),
        }
    }

    fn refuse(&mut self, path: &Path, reason: impl Into<String>) {
        self.unsuitable.push(Unsuitable { path: path.to_path_buf(), reason: reason.into() });
    }

    /// Lists the entries of a directory. `above`: the directories that are being listed, so that no link leads back.
    fn walk(
        &mut self,
        dir: &Path,
        prefix: &str,
        links: Links,
        names_max: usize,
        above: &mut Vec<(u64, u64)>,
    ) -> Result<(), TransferError> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(TransferError::io("list", dir))? {
            entries.push(entry.map_err(TransferError::io("list", dir))?);
        }
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = match entry.file_name().to_str().ok_or(NameError::NotText) {
                Ok(name) => check_component(name).map(|()| format!("{prefix}{name}")),
                Err(error) => Err(error),
            };
            let name = match name {
                Ok(name) if name.len() > names_max => Err(NameError::LongPath { bytes: name.len() }),
                name => name,
            };
            let name = match name {
                Ok(name) => name,
                Err(error) => {
                    self.refuse(&path, format!("its name cannot be used: {error}"));
                    continue;
                }
            };
            let data = entry.metadata().map_err(TransferError::io("read", &path))?;
            let data = match (data.is_symlink(), links) {
                (false, _) => data,
                (true, Links::Refused) => {
                    self.refuse(&path, "it is a symbolic link (see --follow-links)");
                    continue;
                }
                (true, Links::Followed) => match std::fs::metadata(&path) {
                    Ok(data) => data,
                    Err(error) => {
                        self.refuse(&path, format!("the link leads nowhere: {error}"));
                        continue;
                    }
                },
            };
            if !data.is_dir() {
                self.add(&path, name, &data);
                continue;
            }
            let identity = (data.dev(), data.ino());
            if above.contains(&identity) {
                self.refuse(&path, "the link leads to a directory above it");
                continue;
            }
            self.directories.push(name.clone());
            above.push(identity);
            self.walk(&path, &format!("{name}/"), links, names_max, above)?;
            above.pop();
        }
        Ok(())
    }
}
