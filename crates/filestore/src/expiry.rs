//! Removal of names whose time is over.

use crate::changes::found;
use crate::error::FilesError;
use crate::{FileStore, now_ns};
use filetree::{EXPIRE, TreeDecision, TreeError, TreePath, expire};
use metastore::{ExpiredName, FileChange, FileFacts, FileQuestion};
use rows::{FileCommitRow, FileNameRow, FileSpace};

/// Names that are looked up at once.
const NAMES_AT_ONCE: u32 = 1000;

impl FileStore {
    /// Removes names whose time is over, each as a version of its own. Returns whether there were any: their bytes are
    /// there until the next [`retire`](Self::retire).
    pub(crate) fn expire(&self) -> Result<bool, FilesError> {
        let now_ns = now_ns();
        let mut is_any = false;
        loop {
            let names = self.run(self.store.expired_file_names(FileSpace::Machine, now_ns, NAMES_AT_ONCE))?;
            if names.is_empty() {
                return Ok(is_any);
            }
            is_any = true;
            let mut unreachable: Vec<FileNameRow> = Vec::new();
            for ExpiredName { row, path } in names {
                match path.and_then(|path| TreePath::parse(&path.join("/")).ok()) {
                    Some(path) => self.expire_name(&row, &path, now_ns)?,
                    None => unreachable.push(row),
                }
            }
            if !unreachable.is_empty() {
                self.run(self.store.forget_file_expiry(&unreachable))?;
            }
        }
    }

    fn expire_name(&self, row: &FileNameRow, path: &TreePath, now_ns: u64) -> Result<(), FilesError> {
        let question = FileQuestion { paths: vec![path.components()], ..FileQuestion::default() };
        let decide = |facts: FileFacts| {
            let TreeDecision { ends, begins, owned } = expire(&found(&facts, 0, path), now_ns);
            if ends.is_empty() {
                return Ok(None);
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: row.user.clone(),
                verb: EXPIRE.to_string(),
                path: path.to_string(),
                files: 0,
                bytes: 0,
                created_ns: now_ns,
                job: None,
            };
            let more = Box::new(std::iter::empty());
            Ok::<_, TreeError>(Some(FileChange { commit, ends, begins, owned, more, ended_put: None }))
        };
        self.run(self.store.change_files(&question, decide))??;
        Ok(())
    }
}
