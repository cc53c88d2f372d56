//! Inputs that only some nodes see: directories of nodes, and the listings of their files.

use crate::{Compression, InputFile};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use utoipa::ToSchema;

/// The beginning of the name of an input that only some nodes see: `seen:/ABSOLUTE/PATH`.
pub const SEEN_PREFIX: &str = "seen:";
/// Maximum number of directories that a node alone sees.
pub const SEES_MAX: usize = 64;
/// Longest path of such a directory, and of a path below it, in bytes.
pub const SEEN_PATH_BYTES_MAX: usize = 4095;
/// Maximum number of files in a listing.
pub const SEEN_FILES_MAX: usize = 100_000;
/// Maximum bytes of all paths in a listing.
pub const SEEN_LISTING_BYTES_MAX: usize = 16 << 20;
/// Maximum number of files in a page of a listing.
pub const SEEN_PAGE_FILES_MAX: usize = 2_000;
/// Bytes of paths after which a page of a listing ends.
pub const SEEN_PAGE_BYTES: usize = 256 << 10;
/// Maximum number of groups of files, by the nodes that see them, in one job.
pub const SEEN_GROUPS_MAX: usize = 1_000;

/// Files of a job that the same nodes see: maps over them run only there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenBy {
    /// The path that the user named, absolute: the files are below it.
    #[schema(value_type = String)]
    pub dir: PathBuf,
    /// Names of the nodes that listed the files, in order.
    pub nodes: Vec<String>,
}

/// Returns whether a path can name files of a node: absolute, without `.` and `..`, of bounded length, below `/`.
pub fn is_seen_path(path: &Path) -> bool {
    let mut parts = path.components();
    let is_text = path.to_str().is_some_and(|text| text.len() <= SEEN_PATH_BYTES_MAX && !text.contains('\0'));
    let is_absolute = parts.next() == Some(Component::RootDir);
    is_text
        && is_absolute
        && parts.clone().count() > 0
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Returns whether a path is one of these directories, or below it.
pub fn is_seen(sees: &[PathBuf], path: &Path) -> bool {
    sees.iter().any(|dir| path.starts_with(dir))
}

/// A file as a node lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenFile {
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub size_bytes: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

impl From<InputFile> for SeenFile {
    fn from(input: InputFile) -> Self {
        let InputFile { path, size_bytes, mtime_ns, compression, .. } = input;
        Self { path, size_bytes, mtime_ns, compression }
    }
}

/// A client's question for the files at a path that only some nodes see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenQuestion {
    /// Absolute path of a directory or a file.
    pub path: String,
    /// Name of the listing, from the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<String>,
    /// Number of the wanted page, from 0. Asking for a page ends the earlier ones.
    #[serde(default)]
    pub page: u32,
}

/// The answer. The server answers after a few seconds even if the nodes have not listed everything: ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenAnswer {
    /// Name of the listing, for the next question.
    pub listing: String,
    /// None while nodes list.
    pub page: Option<SeenPage>,
}

/// A page of a listing, in order of the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenPage {
    /// Each file with the position of its nodes in `nodes`.
    pub files: Vec<ListedFile>,
    /// Names of the nodes that see files, for each group of files.
    pub nodes: Vec<Vec<String>>,
    pub is_last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListedFile {
    pub file: SeenFile,
    /// Position in [`SeenPage::nodes`].
    pub nodes: u32,
}

/// A page of the listing of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenNews {
    pub incarnation: String,
    pub listing: String,
    /// Number of the page, from 0. A page that arrives again is ignored.
    pub page: u32,
    #[serde(default)]
    pub files: Vec<SeenFile>,
    /// Set in the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SeenEnd>,
}

/// The end of the listing of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SeenEnd {
    Complete,
    /// The path does not exist there: other nodes may have it.
    Missing,
    /// It cannot be listed.
    Failed {
        why: String,
    },
}

/// The answer to a page of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenNewsAnswer {
    /// False if nobody waits for the listing any more.
    pub goes_on: bool,
}
