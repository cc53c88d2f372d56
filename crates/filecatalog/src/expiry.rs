//! Removal of names whose time is over.

use crate::asked::{found_paths, now_ns};
use crate::{Catalog, CatalogError};
use filetree::{EXPIRE, TreeDecision, TreeError, TreePath, expire};
use metastore::{ExpiredName, FileChange, FileFacts, FileQuestion};
use rows::{FileCommitRow, FileNameRow, FileSpace};

/// Names of a round, each of which is a transaction: other requests get their turn.
const NAMES_AT_ONCE: u32 = 100;

impl Catalog {
    /// Removes some names whose time is over, each as a version of its own. Returns whether there are more.
    pub(crate) async fn expire(&self) -> Result<bool, CatalogError> {
        let now_ns = now_ns();
        let names = self.store.expired_file_names(FileSpace::Cluster, now_ns, NAMES_AT_ONCE).await?;
        let more = names.len() == NAMES_AT_ONCE as usize;
        let mut unreachable: Vec<FileNameRow> = Vec::new();
        for ExpiredName { row, path } in names {
            match path.and_then(|path| TreePath::parse(&path.join("/")).ok()) {
                Some(path) => self.expire_name(&row, &path, now_ns).await?,
                None => unreachable.push(row),
            }
        }
        if !unreachable.is_empty() {
            self.store.forget_file_expiry(&unreachable).await?;
        }
        Ok(more)
    }

    async fn expire_name(&self, row: &FileNameRow, path: &TreePath, now_ns: u64) -> Result<(), CatalogError> {
        let question = FileQuestion {
            space: FileSpace::Cluster,
            paths: vec![path.components()],
            ..FileQuestion::default()
        };
        let decide = |facts: FileFacts| {
            let found = found_paths(&facts, &[path]);
            let TreeDecision { ends, begins, owned } =
                expire(&found.into_iter().next().unwrap_or_default(), now_ns);
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
        self.store.change_files(&question, decide).await??;
        Ok(())
    }
}
