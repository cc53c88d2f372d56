//! The numbers by which the kernel names files and directories. A number means a name with one content: another content
//! under the same name has another number.

use filetree::TreePath;
use ids::FileVersion;
use rows::{FileItem, FileNameRow};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The root of the mount, and the directory of versions.
pub(crate) const ROOT: u64 = 1;
pub(crate) const VERSIONS: u64 = 2;
/// First number of others.
const OTHERS_FROM: u64 = 16;
/// Bits of a number that come from a hash; the rest keeps it positive.
const HASH_BITS: u32 = 62;
/// Numbers that the kernel may hold; beyond them, nothing more is found.
const INODES_MAX: usize = 2_000_000;
/// Beyond this, the kernel is asked to forget files.
pub(crate) const INODES_TRIMMED: usize = 500_000;

/// Reader of the bytes of a file. The kernel does not read some bytes of a number itself and ask for others, so a file has
/// another number when this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReadBy {
    Us,
    /// All bytes were verified: it may read the disk.
    Kernel,
}

/// The thing that a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InodeKind {
    Versions,
    /// A root of the tree: the current one, or that of a version.
    Root(Option<FileVersion>),
    Directory(i64),
    File {
        content: i64,
        bytes: u64,
        reads: ReadBy,
    },
}

impl InodeKind {
    /// Returns the kind of an entry.
    pub fn of(row: &FileNameRow) -> Self {
        match row.item {
            FileItem::Directory(directory) => Self::Directory(directory.0),
            FileItem::File(content) => Self::File { content: content.0, bytes: row.bytes, reads: ReadBy::Us },
        }
    }

    /// Returns whether both have the same content, whoever reads it.
    pub fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::File { content, bytes, .. }, Self::File { content: other, bytes: others, .. }) => {
                (content, bytes) == (other, others)
            }
            _ => self == other,
        }
    }

    pub fn is_directory(self) -> bool {
        !matches!(self, Self::File { .. })
    }
}

/// A file or a directory as programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub inode: u64,
    pub kind: InodeKind,
    pub created_ns: u64,
}

/// A name in the tree of a version; None is the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InodeName {
    pub path: TreePath,
    pub at: Option<FileVersion>,
}

struct Inode {
    parent: u64,
    name: Box<str>,
    kind: InodeKind,
    created_ns: u64,
    /// Number of times that the kernel was told the number and has not forgotten it.
    lookups: u64,
    /// Numbers whose parent this is.
    children: u64,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyInodes;

/// The numbers that the kernel holds.
#[derive(Default)]
pub(crate) struct Inodes {
    table: Mutex<HashMap<u64, Inode>>,
}

fn hash_of(parent: u64, name: &str, kind: InodeKind) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name, kind).hash(&mut hasher);
    (hasher.finish() >> (u64::BITS - HASH_BITS)).max(OTHERS_FROM)
}

/// Returns the number of a name, and whether the table has it.
fn find(table: &HashMap<u64, Inode>, parent: u64, name: &str, kind: InodeKind) -> (u64, bool) {
    let mut number = hash_of(parent, name, kind);
    while let Some(inode) = table.get(&number) {
        if inode.parent == parent && inode.kind == kind && &*inode.name == name {
            return (number, true);
        }
        number += 1;
    }
    (number, false)
}

impl Inodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Inode>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many numbers the kernel holds.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns the number that a name has, or will have.
    pub fn number(&self, parent: u64, name: &str, kind: InodeKind) -> u64 {
        find(&self.lock(), parent, name, kind).0
    }

    /// Returns the number of a name for the kernel, which holds it once more.
    pub fn hold(
        &self,
        parent: u64,
        name: &str,
        kind: InodeKind,
        created_ns: u64,
    ) -> Result<Seen, TooManyInodes> {
        let mut table = self.lock();
        let (inode, is_known) = find(&table, parent, name, kind);
        if !is_known {
            if table.len() >= INODES_MAX {
                return Err(TooManyInodes);
            }
            let new = Inode { parent, name: name.into(), kind, created_ns, lookups: 0, children: 0 };
            table.insert(inode, new);
            if let Some(above) = table.get_mut(&parent) {
                above.children += 1;
            }
        }
        if let Some(held) = table.get_mut(&inode) {
            held.lookups += 1;
        }
        Ok(Seen { inode, kind, created_ns })
    }

    /// Lets go of a number that the kernel has forgotten so many times.
    pub fn forget(&self, number: u64, lookups: u64) {
        let mut table = self.lock();
        if let Some(inode) = table.get_mut(&number) {
            inode.lookups = inode.lookups.saturating_sub(lookups);
        }
        let mut next = number;
        while let Some(inode) = table.get(&next)
            && inode.lookups == 0
            && inode.children == 0
        {
            let parent = inode.parent;
            table.remove(&next);
            let Some(above) = table.get_mut(&parent) else { return };
            above.children = above.children.saturating_sub(1);
            next = parent;
        }
    }

    /// Returns what a number means.
    pub fn seen(&self, number: u64) -> Option<Seen> {
        match number {
            ROOT => Some(Seen { inode: ROOT, kind: InodeKind::Root(None), created_ns: 0 }),
            VERSIONS => Some(Seen { inode: VERSIONS, kind: InodeKind::Versions, created_ns: 0 }),
            _ => {
                let table = self.lock();
                let inode = table.get(&number)?;
                Some(Seen { inode: number, kind: inode.kind, created_ns: inode.created_ns })
            }
        }
    }

    /// Returns the name of a number in the tree; None for the directory of versions and unknown numbers.
    pub fn name(&self, number: u64) -> Option<InodeName> {
        let table = self.lock();
        let mut names = Vec::new();
        let mut next = number;
        let at = loop {
            if next == ROOT {
                break None;
            }
            let inode = table.get(&next)?;
            if let InodeKind::Root(at) = inode.kind {
                break at;
            }
            names.push(&*inode.name);
            next = inode.parent;
        };
        let root = TreePath::default();
        let path = names.iter().rev().try_fold(root, |path, name| path.child(name)).ok()?;
        Some(InodeName { path, at })
    }

    /// Returns the parent of a number; the root is its own.
    pub fn parent(&self, number: u64) -> u64 {
        match number {
            ROOT | VERSIONS => ROOT,
            _ => self.lock().get(&number).map_or(ROOT, |inode| inode.parent),
        }
    }

    /// Returns the directory and the name of a file.
    pub fn entry(&self, number: u64) -> Option<(u64, Box<str>)> {
        self.lock().get(&number).map(|inode| (inode.parent, inode.name.clone()))
    }

    /// Returns files that the kernel may forget, as numbers of directories and names.
    pub fn forgettable(&self, count_max: usize) -> Vec<(u64, Box<str>)> {
        let table = self.lock();
        let files = table.values().filter(|inode| !inode.kind.is_directory());
        files.take(count_max).map(|inode| (inode.parent, inode.name.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{InodeKind, InodeName, Inodes, ROOT, ReadBy, VERSIONS};
    use filetree::TreePath;
    use ids::FileVersion;

    fn file(content: i64) -> InodeKind {
        InodeKind::File { content, bytes: 1, reads: ReadBy::Us }
    }

    #[test]
    fn numbers_live_until_they_are_forgotten() {
        let inodes = Inodes::default();
        let directory = inodes.hold(ROOT, "a", InodeKind::Directory(7), 0).unwrap().inode;
        let one = inodes.hold(directory, "b", file(1), 5).unwrap();
        assert_eq!(inodes.hold(directory, "b", file(1), 5), Ok(one));
        let other = inodes.hold(directory, "b", file(2), 6).unwrap();
        assert_ne!(one.inode, other.inode);
        let path = TreePath::parse("a/b").unwrap();
        assert_eq!(inodes.name(one.inode), Some(InodeName { path, at: None }));
        inodes.forget(directory, 1);
        inodes.forget(one.inode, 1);
        assert_eq!((inodes.count(), inodes.seen(one.inode)), (3, Some(one)));
        inodes.forget(one.inode, 1);
        assert_eq!(inodes.seen(one.inode), None);
        inodes.forget(other.inode, 1);
        assert_eq!(inodes.count(), 0);
        assert_eq!(inodes.number(directory, "b", file(1)), one.inode);
    }

    #[test]
    fn names_below_a_version_have_it() {
        let inodes = Inodes::default();
        let at = Some(FileVersion(12));
        let root = inodes.hold(VERSIONS, "12", InodeKind::Root(at), 0).unwrap().inode;
        let below = inodes.hold(root, "a", file(1), 0).unwrap().inode;
        let path = TreePath::parse("a").unwrap();
        assert_eq!(inodes.name(below), Some(InodeName { path, at }));
        assert_eq!(inodes.name(root), Some(InodeName { path: TreePath::default(), at }));
        assert_eq!((inodes.name(VERSIONS), inodes.parent(root)), (None, VERSIONS));
    }
}
