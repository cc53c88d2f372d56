//! Changes of the tree without bytes: mkdir, rm, mv, cp.

use crate::error::FilesError;
use crate::{FileStore, now_ns};
use filetree::{
    FoundPath, Making, Parents, Recursion, TreeDecision, TreeError, TreePath, copy, make_directory, remove,
    rename,
};
use ids::FileVersion;
use metastore::{FileChange, FileFacts, FileQuestion};
use rows::FileCommitRow;

/// A change of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    MakeDirectory { path: TreePath, parents: Parents },
    Remove { path: TreePath, recursive: Recursion },
    Rename { from: TreePath, to: TreePath },
    Copy { from: TreePath, to: TreePath },
}

/// A change that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommittedChange {
    /// The version of the tree that has it.
    pub version: FileVersion,
    pub files: u64,
    pub bytes: u64,
}

impl TreeChange {
    fn verb(&self) -> &'static str {
        match self {
            Self::MakeDirectory { .. } => "mkdir",
            Self::Remove { .. } => "rm",
            Self::Rename { .. } => "mv",
            Self::Copy { .. } => "cp",
        }
    }

    /// Returns the paths that the decision needs, and the one that is stored with the change.
    fn paths(&self) -> (Vec<&TreePath>, &TreePath) {
        match self {
            Self::MakeDirectory { path, .. } | Self::Remove { path, .. } => (vec![path], path),
            Self::Rename { from, to } | Self::Copy { from, to } => (vec![from, to], to),
        }
    }

    fn decide(&self, facts: &FileFacts, making: &mut Making) -> Result<TreeDecision, TreeError> {
        let (paths, _) = self.paths();
        let found = |index: usize| found(facts, index, paths[index]);
        match self {
            Self::MakeDirectory { parents, .. } => make_directory(&found(0), *parents, making),
            Self::Remove { recursive, .. } => remove(&found(0), *recursive),
            Self::Rename { .. } => rename(&found(0), &found(1), making),
            Self::Copy { .. } => copy(&found(0), &found(1), &facts.subtree, making),
        }
    }
}

/// Returns the rows of a path of a question.
pub(crate) fn found(facts: &FileFacts, index: usize, path: &TreePath) -> FoundPath {
    let rows = facts.found.get(index).cloned().unwrap_or_default();
    FoundPath { path: path.clone(), rows: rows.rows, has_entries: rows.has_entries }
}

impl FileStore {
    /// Changes the tree; durable when this returns. None if there was nothing to change.
    pub fn change(&self, change: &TreeChange) -> Result<Option<FileVersion>, FilesError> {
        let (paths, path) = change.paths();
        let question = FileQuestion {
            paths: paths.iter().map(|path| path.components()).collect(),
            subtree: matches!(change, TreeChange::Copy { .. }),
        };
        let decide = |facts: FileFacts| {
            // A copy keeps as many versions as its source.
            let keep =
                facts.found.first().and_then(|found| found.rows.last()).map_or(1, |row| row.keep_versions);
            let mut making = self.making(facts.clone(), keep);
            let TreeDecision { ends, begins } = change.decide(&facts, &mut making)?;
            if ends.is_empty() && begins.is_empty() {
                return Ok(None);
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: self.user.clone(),
                verb: change.verb().to_string(),
                path: path.to_string(),
                files: begins.iter().filter(|row| row.parts > 0).count() as u64,
                bytes: begins.iter().map(|row| row.bytes).sum(),
                created_ns: making.now_ns,
            };
            Ok::<_, TreeError>(Some(FileChange {
                commit,
                ends,
                begins,
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
        }
    }
}
