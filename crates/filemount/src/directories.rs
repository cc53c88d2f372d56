//! Open directories: their entries come in pages, so that a large directory takes little memory.

use crate::inodes::{InodeKind, InodeName};
use crate::tree::MountedTree;
use filestore::{EntryPage, FileEntry, FilesError};
use filetree::TreeName;
use ids::FileVersion;

/// The directory of versions, at the root.
pub(crate) const VERSIONS_NAME: &str = ".versions";

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: String,
    pub kind: InodeKind,
    pub created_ns: u64,
}

/// The origin of the entries behind `first`.
enum Source {
    /// A directory of the tree.
    Tree(TreeName),
    /// Everything stands in `first`.
    Nothing,
}

/// An open directory. Its entries are counted from 0; `.` and `..` are not among them.
pub(crate) struct Listing {
    source: Source,
    first: Vec<Listed>,
    /// The begin of each page that was read: its first entry, and the name before it.
    begins: Vec<(usize, String)>,
    /// The page that was read last.
    page: Option<(usize, EntryPage)>,
}

/// Returns the newest version of a tree, 0 if nothing was ever stored.
pub(crate) fn newest_version(tree: &dyn MountedTree) -> Result<FileVersion, FilesError> {
    let commits = tree.versions(1)?;
    Ok(commits.first().map_or(FileVersion(0), |commit| commit.version))
}

fn listed(entry: FileEntry) -> Option<Listed> {
    let row = entry.row?;
    Some(Listed { name: entry.name, kind: InodeKind::of(&row), created_ns: row.created_ns })
}

impl Listing {
    /// Lists a directory of the tree.
    pub fn of_tree(name: InodeName) -> Self {
        let is_root = name.path.is_root() && name.at.is_none();
        let versions = Listed { name: VERSIONS_NAME.to_string(), kind: InodeKind::Versions, created_ns: 0 };
        Self {
            source: Source::Tree(TreeName { path: name.path, version: name.at }),
            first: is_root.then_some(versions).into_iter().collect(),
            begins: vec![(0, String::new())],
            page: None,
        }
    }

    /// Lists the directory of versions, the oldest first.
    pub fn of_versions(tree: &dyn MountedTree, count_max: u32) -> Result<Self, FilesError> {
        let mut commits = tree.versions(count_max)?;
        commits.sort_by_key(|commit| commit.version);
        let entry = |commit: rows::FileCommitRow| Listed {
            name: commit.version.to_string(),
            kind: InodeKind::Root(Some(commit.version)),
            created_ns: commit.created_ns,
        };
        let first = commits.into_iter().map(entry).collect();
        Ok(Self { source: Source::Nothing, first, begins: Vec::new(), page: None })
    }

    /// Returns an entry by its number; None behind the last one, and a second None for one that is not shown.
    pub fn entry(
        &mut self,
        tree: &dyn MountedTree,
        number: usize,
    ) -> Result<Option<Option<Listed>>, FilesError> {
        if let Some(first) = self.first.get(number) {
            return Ok(Some(Some(first.clone())));
        }
        let number = number - self.first.len();
        let Source::Tree(name) = &self.source else { return Ok(None) };
        let hidden = !self.first.is_empty();
        loop {
            if let Some((begin, page)) = &self.page
                && let Some(within) = number.checked_sub(*begin)
            {
                if let Some(entry) = page.entries.get(within) {
                    let shown = !(hidden && entry.name == VERSIONS_NAME);
                    return Ok(Some(listed(entry.clone()).filter(|_| shown)));
                }
                if !page.more {
                    return Ok(None);
                }
            }
            let found = self.begins.partition_point(|(begin, _)| *begin <= number);
            let Some((begin, after)) = self.begins.get(found.saturating_sub(1)).cloned() else {
                return Ok(None);
            };
            let page = tree.entry_page(name, &after)?;
            let end = begin + page.entries.len();
            let is_last_known = found == self.begins.len();
            if page.more
                && is_last_known
                && let Some(last) = page.entries.last()
            {
                self.begins.push((end, last.name.clone()));
            }
            // Entries that went meanwhile make a page shorter: its reader has come to its end.
            let is_short = number >= end && !(page.more && is_last_known);
            self.page = Some((begin, page));
            if is_short {
                return Ok(None);
            }
        }
    }
}
