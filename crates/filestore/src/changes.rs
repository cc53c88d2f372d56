//! Changes of the tree without bytes: mkdir, rm, mv, cp.

use crate::error::FilesError;
use crate::{FileStore, now_ns};
use filetree::{FoundPath, Making, TreeDecision, TreeError, TreePath};
use ids::FileVersion;
use metastore::{FileChange, FileFacts, FileQuestion};
use rows::{FileCommitRow, FileSpace};

pub use filetree::TreeChange;

/// A change that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommittedChange {
    /// The version of the tree that has it.
    pub version: FileVersion,
    pub files: u64,
    pub bytes: u64,
    /// Files with fewer replicas than wished, in a cluster: the server adds them when it can.
    pub short_files: u64,
}

/// Returns the rows of a path of a question.
pub(crate) fn found(facts: &FileFacts, index: usize, path: &TreePath) -> FoundPath {
    let rows = facts.found.get(index).cloned().unwrap_or_default();
    FoundPath {
        path: path.clone(),
        root: FileSpace::Machine.root(),
        rows: rows.rows,
        has_entries: rows.has_entries,
    }
}

impl FileStore {
    /// Changes the tree; durable when this returns. None if there was nothing to change.
    pub fn change(&self, change: &TreeChange) -> Result<Option<FileVersion>, FilesError> {
        if matches!(change, TreeChange::SetGroups { .. } | TreeChange::SetOwner { .. }) {
            return Err(FilesError::OneUser);
        }
        self.expire()?;
        let paths = change.paths();
        let question = FileQuestion {
            space: FileSpace::Machine,
            paths: paths.iter().map(|path| path.components()).collect(),
            subtree: change.needs_subtree(),
            ..FileQuestion::default()
        };
        let decide = |facts: FileFacts| {
            // A copy keeps as many versions as its source.
            let keep =
                facts.found.first().and_then(|found| found.rows.last()).map_or(1, |row| row.keep_versions);
            let mut making = self.making(facts.clone(), keep);
            let found: Vec<FoundPath> =
                (0..).zip(&paths).map(|(index, path)| found(&facts, index, path)).collect();
            let TreeDecision { ends, begins, owned } = change.decide(&found, &facts.subtree, &mut making)?;
            if ends.is_empty() && begins.is_empty() {
                return Ok(None);
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: self.user.clone(),
                verb: change.verb().to_string(),
                path: change.path().to_string(),
                files: begins.iter().filter(|row| row.parts > 0).count() as u64,
                bytes: begins.iter().map(|row| row.bytes).sum(),
                created_ns: making.now_ns,
                job: None,
            };
            Ok::<_, TreeError>(Some(FileChange {
                commit,
                ends,
                begins,
                owned,
                more: Box::new(std::iter::empty()),
                ended_put: None,
            }))
        };
        let version = self.run(self.store.change_files(&question, decide))??;
        self.sweep()?;
        self.retire()?;
        Ok(version)
    }

    pub(crate) fn making(&self, facts: FileFacts, keep_versions: u32) -> Making {
        Making {
            version: facts.version,
            put: facts.put,
            next_number: 0,
            user: self.user.clone(),
            now_ns: now_ns(),
            keep_versions,
            ttl_ns: None,
        }
    }
}
