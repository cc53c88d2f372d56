//! Location of an output to read: a directory, or a prefix of objects.

use anyhow::{Context, anyhow, ensure};
use api::is_object_url;
use objects::{ObjectReader, ObjectUrl};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Memory for reading an object ahead.
const OBJECT_BUFFER_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub enum OutputPlace {
    Directory(PathBuf),
    Prefix(ObjectUrl),
}

impl OutputPlace {
    pub fn of(path: &Path) -> anyhow::Result<OutputPlace> {
        if is_object_url(path) {
            return Ok(Self::Prefix(ObjectUrl::from_path(path)?));
        }
        ensure!(path.is_dir(), "{} is not a directory: name the output of a job", path.display());
        Ok(Self::Directory(path.to_path_buf()))
    }

    /// Returns the path or URL of a file or object of the output, for messages.
    pub fn shown(&self, name: &str) -> String {
        match self {
            Self::Directory(dir) => dir.join(name).display().to_string(),
            Self::Prefix(url) => format!("{url}/{name}"),
        }
    }

    /// Opens a file or object, to be read from its start.
    pub fn open(&self, name: &str) -> anyhow::Result<Box<dyn Read>> {
        match self {
            Self::Directory(dir) => Ok(Box::new(File::open(dir.join(name))?)),
            Self::Prefix(url) => {
                let found = objects::pin(vec![url.join(name)?], 1)?;
                let found = found.first().ok_or_else(|| anyhow!("no answer"))?;
                let (size_bytes, pin) = (found.size_bytes, &found.pin);
                let reader =
                    ObjectReader::open(&found.url, size_bytes, pin, 0..size_bytes, OBJECT_BUFFER_BYTES)?;
                Ok(Box::new(reader))
            }
        }
    }

    /// Reads a small file or object completely.
    pub fn read(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Directory(dir) => Ok(std::fs::read(dir.join(name))?),
            Self::Prefix(url) => objects::read_small(&url.join(name)?)?.context("there is no such object"),
        }
    }

    /// Returns the names in the output: of objects only those with data; a name with a slash is in a deeper directory.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Directory(dir) => {
                let entries = std::fs::read_dir(dir)?;
                entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
            }
            Self::Prefix(url) => {
                let listed = objects::listed_below(url)?;
                Ok(listed.iter().filter_map(|each| each.url.below(url)).map(str::to_string).collect())
            }
        }
    }
}
