//! Files that are shown one by one: each stands in a directory of its own, until it is hidden. Nobody can list these
//! directories, and their names cannot be guessed: a program finds the files whose paths it was given, and no others.

use crate::tree::MountedTree;
use filestore::{EntryPage, FileEntry, FileReader, FilesError, OpenedFile};
use filetree::{TreeName, TreePath};
use ids::{ContentId, DirectoryId, FileVersion};
use rows::{FileCommitRow, FileGroups, FileItem, FileNameRow};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Opens a shown file for a program.
pub type OpenShown = Box<dyn Fn() -> Box<dyn FileReader> + Send + Sync>;

/// A mount of files that are shown one by one.
#[derive(Clone)]
pub struct ShownFiles {
    table: Arc<ShownTable>,
    point: PathBuf,
}

/// A file that is shown as long as this exists. Programs that have it open read on.
pub struct ShownFile {
    table: Arc<ShownTable>,
    directory: String,
    path: PathBuf,
}

#[derive(Default)]
pub(crate) struct ShownTable {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last_number: i64,
    /// The files by the names of their directories.
    shown: HashMap<String, Arc<Shown>>,
}

struct Shown {
    number: i64,
    name: String,
    bytes: u64,
    open: OpenShown,
}

impl ShownFiles {
    pub(crate) fn new(table: Arc<ShownTable>, point: PathBuf) -> Self {
        Self { table, point }
    }

    /// Shows a file of so many bytes under a path that ends with this name.
    ///
    /// Errors: a name that no stored file has; the kernel gives no random numbers.
    pub fn show(&self, name: &str, bytes: u64, open: OpenShown) -> std::io::Result<ShownFile> {
        TreePath::default().child(name).map_err(std::io::Error::other)?;
        let random = || getrandom::u64().map_err(std::io::Error::other);
        let directory = format!("{:016x}{:016x}", random()?, random()?);
        let path = self.point.join(&directory).join(name);
        let mut inner = self.table.lock();
        inner.last_number += 1;
        let (number, name) = (inner.last_number, name.to_string());
        inner.shown.insert(directory.clone(), Arc::new(Shown { number, name, bytes, open }));
        Ok(ShownFile { table: Arc::clone(&self.table), directory, path })
    }
}

impl ShownFile {
    /// Returns its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ShownFile {
    fn drop(&mut self) {
        self.table.lock().shown.remove(&self.directory);
    }
}

impl ShownTable {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file in or at a name; None for the root, and for everything that is not shown.
    fn shown(&self, path: &TreePath) -> Option<Arc<Shown>> {
        let shown = self.lock().shown.get(path.components().first()?).cloned()?;
        match path.components() {
            [_] => Some(shown),
            [_, name] => Some(shown).filter(|shown| shown.name == *name),
            _ => None,
        }
    }

    /// Returns the file at a name.
    fn file(&self, name: &TreeName) -> Result<Arc<Shown>, FilesError> {
        let is_file = name.version.is_none() && name.path.components().len() == 2;
        let shown = self.shown(&name.path).filter(|_| is_file);
        shown.ok_or_else(|| FilesError::Missing(name.clone()))
    }
}

impl Shown {
    fn row(&self, name: &str, item: FileItem) -> FileNameRow {
        FileNameRow {
            directory: DirectoryId(0),
            name: name.to_string(),
            since: FileVersion(0),
            until: None,
            item,
            user: String::new(),
            bytes: self.bytes,
            parts: 0,
            created_ns: 0,
            keep_versions: 0,
            expires_ns: None,
            groups: FileGroups::default(),
            hashed: None,
        }
    }

    fn file_row(&self) -> FileNameRow {
        self.row(&self.name, FileItem::File(ContentId(self.number)))
    }
}

impl MountedTree for Arc<ShownTable> {
    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        let entry = |row: FileNameRow| FileEntry { name: row.name.clone(), row: Some(row) };
        match name.path.components() {
            [] => Ok(FileEntry { name: String::new(), row: None }),
            [directory] if name.version.is_none() => {
                let shown = self.shown(&name.path).ok_or_else(|| FilesError::Missing(name.clone()))?;
                Ok(entry(shown.row(directory, FileItem::Directory(DirectoryId(shown.number)))))
            }
            _ => self.file(name).map(|shown| entry(shown.file_row())),
        }
    }

    fn entry_page(&self, _name: &TreeName, _after: &str) -> Result<EntryPage, FilesError> {
        Ok(EntryPage::default())
    }

    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        let shown = self.file(name)?;
        Ok(OpenedFile { row: shown.file_row(), reader: (shown.open)() })
    }

    fn versions(&self, _count_max: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::{ShownFiles, ShownTable};
    use crate::tree::MountedTree;
    use filestore::{FileReader, FilesError};
    use filetree::{TreeName, TreePath};
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    struct Nothing;

    impl FileReader for Nothing {
        fn read(&self, _offset: u64, _bytes_max: u64, _out: &mut dyn Write) -> Result<(), FilesError> {
            Ok(())
        }

        fn is_near(&self) -> bool {
            true
        }

        fn backing(&self) -> Option<std::fs::File> {
            None
        }
    }

    #[test]
    fn only_shown_files_are_found_by_path() {
        let table = Arc::new(ShownTable::default());
        let files = ShownFiles::new(Arc::clone(&table), "/at".into());
        let named = |path: &Path| {
            let text = path.strip_prefix("/at").unwrap().to_str().unwrap().to_string();
            TreeName { path: TreePath::parse(&text).unwrap(), version: None }
        };
        let show = |bytes| files.show("genes.db", bytes, Box::new(|| Box::new(Nothing))).unwrap();
        let (one, two) = (show(7), show(8));
        assert!(one.path() != two.path() && one.path().ends_with("genes.db"));
        assert_eq!(table.open_file(&named(one.path())).unwrap().row.bytes, 7);
        assert_eq!(table.entry(&named(two.path())).unwrap().row.unwrap().bytes, 8);
        assert!(table.entry(&named(one.path().parent().unwrap())).is_ok());
        for other in [one.path().with_file_name("other"), one.path().join("below"), "/at/none".into()] {
            assert!(table.entry(&named(&other)).is_err(), "{}", other.display());
        }
        assert!(table.open_file(&named(one.path().parent().unwrap())).is_err());
        assert!(table.entry_page(&TreeName::default(), "").unwrap().entries.is_empty());
        let path = one.path().to_path_buf();
        drop(one);
        assert!(table.entry(&named(&path)).is_err());
        assert!(files.show("..", 1, Box::new(|| Box::new(Nothing))).is_err());
    }
}
