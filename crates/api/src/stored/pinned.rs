//! Stored files that programs of a job open by a path.

use crate::stored::{STORED_PREFIX, StoredContent};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Maximum number of stored files that the programs of a job, or of jobs that are submitted together, open.
pub const PINNED_FILES_MAX: usize = 1_000;

/// A stored file at a version: a program of a job, or a file for its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinnedFile {
    /// Its name with the version, `files:NAME@VERSION`. A node replaces every equal word, file and link of the job by the
    /// path of its own copy.
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub stored: StoredContent,
    /// True: steps read its partitions one by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_partition: bool,
}

impl PinnedFile {
    /// Returns the contents that programs may open: the file, and each partition that steps read.
    pub fn contents(&self) -> impl Iterator<Item = StoredContent> {
        let parts = self.stored.parts.iter().filter(|_| self.by_partition && self.stored.parts.len() > 1);
        std::iter::once(self.stored.clone()).chain(parts.map(|part| StoredContent { parts: vec![*part] }))
    }
}

/// Returns the name that a file of a job gets in the directory of programs: the last component of its path, for a stored
/// file without the version.
pub fn name_beside(path: &Path) -> Option<&OsStr> {
    let Some(name) = path.to_str().and_then(|text| text.strip_prefix(STORED_PREFIX)) else {
        return path.file_name();
    };
    let is_version = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name =
        name.rsplit_once('@').filter(|(_, version)| is_version(version)).map_or(name, |(name, _)| name);
    Path::new(name).file_name()
}

#[cfg(test)]
mod tests {
    use super::name_beside;
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn stored_files_lose_their_versions() {
        for (path, expected) in [
            ("/a/map.py", Some("map.py")),
            ("/a/map.py@3", Some("map.py@3")),
            ("files:map.py", Some("map.py")),
            ("files:bin/map.py@3", Some("map.py")),
            ("files:bin/na@me@17", Some("na@me")),
            ("files:bin/na@me", Some("na@me")),
            ("files:", None),
            ("files:a/..@3", None),
        ] {
            assert_eq!(name_beside(Path::new(path)), expected.map(OsStr::new), "{path}");
        }
    }
}
