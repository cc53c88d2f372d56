//! The decisions, as pure functions over the rows of a path.

use crate::{TreeError, TreePath};
use ids::{DirectoryId, FileVersion, PutId};
use rows::{FileGroups, FileItem, FileNameRow, OwnedNameRow};
use std::collections::BTreeMap;

/// The rows of a path, from the root down, as far as it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPath {
    pub path: TreePath,
    /// The root of its tree.
    pub root: DirectoryId,
    pub rows: Vec<FileNameRow>,
    /// True if the path is a directory with entries.
    pub has_entries: bool,
}

/// Numbers, time and owner of everything that a change makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Making {
    pub version: FileVersion,
    /// Directories get numbers of this put, from `next_number` on.
    pub put: PutId,
    pub next_number: u32,
    pub user: String,
    pub now_ns: u64,
    pub keep_versions: u32,
    /// Time after which a placed name is removed, from `now_ns` on; None is never. Nothing else that is made has one.
    pub ttl_ns: Option<u64>,
}

/// The changes of rows that a decision makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeDecision {
    /// Names that end with the version of the change.
    pub ends: Vec<(DirectoryId, String)>,
    pub begins: Vec<FileNameRow>,
    /// Names that get another owner or other groups.
    pub owned: Vec<OwnedNameRow>,
}

impl FoundPath {
    fn is_complete(&self) -> bool {
        self.rows.len() == self.path.components().len()
    }

    /// Returns the row of the whole path; None if it does not exist, and for the root.
    pub fn row(&self) -> Option<&FileNameRow> {
        self.rows.last().filter(|_| self.is_complete())
    }

    /// Returns the thing that the path means. The root is a directory without a row.
    pub fn item(&self) -> Option<FileItem> {
        match self.path.is_root() {
            true => Some(FileItem::Directory(self.root)),
            false => self.row().map(|row| row.item),
        }
    }

    /// Returns the first `count` components as a path.
    pub(crate) fn ancestor(&self, count: usize) -> TreePath {
        let text = self.path.components()[..count].join("/");
        // Components of a valid path are valid.
        TreePath::parse(&text).unwrap_or_default()
    }

    /// Returns the directory in which the path has its last component, if it exists.
    fn directory(&self) -> Result<DirectoryId, TreeError> {
        let above = self.path.components().len().saturating_sub(1);
        match self.existing_above() {
            (depth, Ok(directory)) if depth == above => Ok(directory),
            (depth, Ok(_)) => Err(TreeError::Missing(self.ancestor(depth + 1))),
            (_, Err(error)) => Err(error),
        }
    }

    /// Returns the number of existing directories above the path, and the last of them.
    fn existing_above(&self) -> (usize, Result<DirectoryId, TreeError>) {
        let above = self.path.components().len().saturating_sub(1);
        let mut last = self.root;
        for (depth, row) in self.rows.iter().take(above).enumerate() {
            match row.item {
                FileItem::Directory(directory) => last = directory,
                FileItem::File(_) => return (depth, Err(TreeError::NotADirectory(self.ancestor(depth + 1)))),
            }
        }
        (self.rows.len().min(above), Ok(last))
    }
}

impl Making {
    /// Returns the number of a new directory.
    pub fn directory_id(&mut self) -> Result<DirectoryId, TreeError> {
        let id = DirectoryId::of(self.put, self.next_number).ok_or(TreeError::TooMany)?;
        self.next_number += 1;
        Ok(id)
    }

    /// Returns the row of a new name.
    pub fn row(&self, directory: DirectoryId, name: &str, item: FileItem, size: FileSize) -> FileNameRow {
        FileNameRow {
            directory,
            name: name.to_string(),
            since: self.version,
            until: None,
            item,
            user: self.user.clone(),
            bytes: size.bytes,
            parts: size.parts,
            created_ns: self.now_ns,
            keep_versions: self.keep_versions,
            expires_ns: None,
            groups: FileGroups::default(),
            hashed: None,
        }
    }
}

/// Makes the missing directories above a path. Returns the last one.
fn directories_above(
    found: &FoundPath,
    making: &mut Making,
    decision: &mut TreeDecision,
) -> Result<DirectoryId, TreeError> {
    let (depth, existing) = found.existing_above();
    let mut last = existing?;
    let above = found.path.components().len().saturating_sub(1);
    for name in &found.path.components()[depth..above] {
        let new = making.directory_id()?;
        decision.begins.push(making.row(last, name, FileItem::Directory(new), FileSize::default()));
        last = new;
    }
    Ok(last)
}

/// Decides `mkdir`; with `parents` missing directories above are made too, and an existing directory is no error.
pub fn make_directory(
    found: &FoundPath,
    parents: Parents,
    making: &mut Making,
) -> Result<TreeDecision, TreeError> {
    let mut decision = TreeDecision::default();
    match (found.item(), parents) {
        (Some(FileItem::Directory(_)), Parents::Made) => return Ok(decision),
        (Some(_), _) => return Err(TreeError::Exists(found.path.clone())),
        (None, Parents::Made) => {}
        (None, Parents::Required) => drop(found.directory()?),
    }
    let above = directories_above(found, making, &mut decision)?;
    let id = making.directory_id()?;
    let name = found.path.last().unwrap_or_default();
    decision.begins.push(making.row(above, name, FileItem::Directory(id), FileSize::default()));
    Ok(decision)
}

/// Whether the directories above a new one must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    Required,
    Made,
}

/// Size of a file; nothing for a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSize {
    pub bytes: u64,
    pub parts: u32,
}

/// Decides where a new file or directory is placed: it replaces one of its kind, and missing directories above it are
/// made. `row` makes its row from the directory and its name.
pub fn place(
    found: &FoundPath,
    item: FileItem,
    size: FileSize,
    making: &mut Making,
) -> Result<TreeDecision, TreeError> {
    let Some(name) = found.path.last() else { return Err(TreeError::Root) };
    let mut decision = TreeDecision::default();
    let above = directories_above(found, making, &mut decision)?;
    let mut new = making.row(above, name, item, size);
    if let Some(row) = found.row() {
        match (row.item, item) {
            (FileItem::Directory(_), FileItem::File(_)) => {
                return Err(TreeError::FileOverDirectory(found.path.clone()));
            }
            (FileItem::File(_), FileItem::Directory(_)) => {
                return Err(TreeError::DirectoryOverFile(found.path.clone()));
            }
            _ => decision.ends.push((row.directory, row.name.clone())),
        }
        // A new version of a name has the groups that its owner gave to the name.
        new.groups = row.groups.clone();
    }
    new.expires_ns = making.ttl_ns.map(|ttl_ns| making.now_ns.saturating_add(ttl_ns));
    decision.begins.push(new);
    Ok(decision)
}

/// Decides the end of a name whose time is over: it is removed with everything below it. Nothing changes if the name is
/// gone meanwhile, or has another time.
pub fn expire(found: &FoundPath, now_ns: u64) -> TreeDecision {
    let is_over = |row: &&FileNameRow| row.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns);
    let over = found.row().filter(is_over);
    TreeDecision {
        ends: over.map(|row| (row.directory, row.name.clone())).into_iter().collect(),
        ..TreeDecision::default()
    }
}

/// Decides `rm`.
pub fn remove(found: &FoundPath, recursive: Recursion) -> Result<TreeDecision, TreeError> {
    if found.path.is_root() {
        return Err(TreeError::Root);
    }
    let Some(row) = found.row() else { return Err(TreeError::Missing(found.path.clone())) };
    let is_directory = matches!(row.item, FileItem::Directory(_));
    if is_directory && found.has_entries && recursive == Recursion::No {
        return Err(TreeError::IsADirectory(found.path.clone()));
    }
    Ok(TreeDecision { ends: vec![(row.directory, row.name.clone())], ..TreeDecision::default() })
}

/// Whether a directory is meant with everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recursion {
    No,
    Yes,
}

/// Decides `mv`: the target must not exist, or both are files. The directory above the target must exist.
pub fn rename(from: &FoundPath, to: &FoundPath, making: &mut Making) -> Result<TreeDecision, TreeError> {
    check_target(from, to)?;
    let Some(row) = from.row() else { return Err(TreeError::Missing(from.path.clone())) };
    if from.path == to.path {
        return Ok(TreeDecision::default());
    }
    let above = to.directory()?;
    let mut decision =
        TreeDecision { ends: vec![(row.directory, row.name.clone())], ..TreeDecision::default() };
    if let Some(old) = to.row() {
        match (row.item, old.item) {
            (FileItem::File(_), FileItem::File(_)) => decision.ends.push((old.directory, old.name.clone())),
            _ => return Err(TreeError::Exists(to.path.clone())),
        }
    }
    let name = to.path.last().unwrap_or_default().to_string();
    let since = making.version;
    decision.begins.push(FileNameRow { directory: above, name, since, until: None, ..row.clone() });
    Ok(decision)
}

/// Returns an error if the source or the target of a move or a copy cannot be.
fn check_target(from: &FoundPath, to: &FoundPath) -> Result<(), TreeError> {
    if from.path.is_root() || to.path.is_root() {
        return Err(TreeError::Root);
    }
    if from.path != to.path && to.path.is_within(&from.path) {
        return Err(TreeError::IntoItself { from: from.path.clone(), to: to.path.clone() });
    }
    Ok(())
}

/// Decides `cp`: files share their contents with the copies, directories are made anew. A file replaces a file; the
/// target of a directory must not exist. `subtree`: everything below the source, each directory before its entries.
pub fn copy(
    from: &FoundPath,
    to: &FoundPath,
    subtree: &[FileNameRow],
    making: &mut Making,
) -> Result<TreeDecision, TreeError> {
    check_target(from, to)?;
    let Some(row) = from.row() else { return Err(TreeError::Missing(from.path.clone())) };
    to.directory()?;
    let FileItem::Directory(old) = row.item else {
        let mut decision = place(to, row.item, size_of(row), making)?;
        // The last row is that of the file.
        if let Some(copy) = decision.begins.last_mut() {
            copy.hashed.clone_from(&row.hashed);
        }
        return Ok(decision);
    };
    if to.row().is_some() {
        return Err(TreeError::Exists(to.path.clone()));
    }
    if subtree.len() >= ids::ITEMS_MAX as usize {
        return Err(TreeError::TooMany);
    }
    let new = making.directory_id()?;
    let mut decision = place(to, FileItem::Directory(new), FileSize::default(), making)?;
    let mut copies = BTreeMap::from([(old, new)]);
    for row in subtree {
        // A directory comes before its entries.
        let Some(above) = copies.get(&row.directory).copied() else { continue };
        let item = match row.item {
            FileItem::File(content) => FileItem::File(content),
            FileItem::Directory(old) => {
                let new = making.directory_id()?;
                copies.insert(old, new);
                FileItem::Directory(new)
            }
        };
        let copy = making.row(above, &row.name, item, size_of(row));
        decision.begins.push(FileNameRow { hashed: row.hashed.clone(), ..copy });
    }
    Ok(decision)
}

fn size_of(row: &FileNameRow) -> FileSize {
    FileSize { bytes: row.bytes, parts: row.parts }
}
