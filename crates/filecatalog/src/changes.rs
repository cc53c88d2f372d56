//! Changes of the tree without bytes.

use crate::asked::{found_paths, making, path_of};
use crate::{Asker, Catalog, CatalogError};
use api::stored::cluster::{
    ChangedStored, CommitsOfStored, STORED_COMMITS_MAX, StoredChange, StoredCommit, StoredCommits,
};
use filetree::{Parents, Recursion, TreeChange, TreeDecision, TreeError, may_change};
use metastore::{FileChange, FileFacts, FileQuestion};
use rows::{FileCommitRow, FileSpace};

fn parsed(change: &StoredChange) -> Result<TreeChange, CatalogError> {
    Ok(match change {
        StoredChange::MakeDirectory { path, parents } => TreeChange::MakeDirectory {
            path: path_of(path)?,
            parents: if *parents { Parents::Made } else { Parents::Required },
        },
        StoredChange::Remove { path, recursive } => TreeChange::Remove {
            path: path_of(path)?,
            recursive: if *recursive { Recursion::Yes } else { Recursion::No },
        },
        StoredChange::Rename { from, to } => TreeChange::Rename { from: path_of(from)?, to: path_of(to)? },
        StoredChange::Copy { from, to } => TreeChange::Copy { from: path_of(from)?, to: path_of(to)? },
    })
}

impl Catalog {
    /// Changes the tree; durable when this returns.
    pub async fn change(&self, asker: &Asker, change: &StoredChange) -> Result<ChangedStored, CatalogError> {
        let change = parsed(change)?;
        let (paths, path) = (change.paths(), change.path());
        let question = FileQuestion {
            space: FileSpace::Cluster,
            paths: paths.iter().map(|path| path.components()).collect(),
            subtree: change.needs_subtree(),
            put: None,
        };
        let decide = |facts: FileFacts| {
            let found = found_paths(&facts, &paths);
            // A copy keeps as many versions as its source.
            let keep = found.first().and_then(|found| found.rows.last()).map_or(1, |row| row.keep_versions);
            let mut making = making(&facts, &asker.user, keep);
            let TreeDecision { ends, begins } = change.decide(&found, &facts.subtree, &mut making)?;
            may_change(&change, &found, &facts.subtree, &asker.changer)?;
            if ends.is_empty() && begins.is_empty() {
                return Ok(None);
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: asker.user.clone(),
                verb: change.verb().to_string(),
                path: path.to_string(),
                files: begins.iter().filter(|row| row.parts > 0).count() as u64,
                bytes: begins.iter().map(|row| row.bytes).sum(),
                created_ns: making.now_ns,
            };
            let more = Box::new(std::iter::empty());
            Ok::<_, TreeError>(Some(FileChange { commit, ends, begins, more, ended_put: None }))
        };
        let version = self.store.change_files(&question, decide).await??;
        Ok(ChangedStored { version })
    }

    /// Returns the changes of a name and of everything below it, newest first.
    pub async fn commits(&self, of: &CommitsOfStored) -> Result<StoredCommits, CatalogError> {
        let path = path_of(&of.path)?;
        let limit = of.limit.min(STORED_COMMITS_MAX);
        let rows = self.store.file_commits(FileSpace::Cluster, &path.to_string(), limit).await?;
        let commit = |row: FileCommitRow| StoredCommit {
            version: row.version,
            user: row.user,
            verb: row.verb,
            path: row.path,
            files: row.files,
            bytes: row.bytes,
            created_ns: row.created_ns,
        };
        Ok(StoredCommits { commits: rows.into_iter().map(commit).collect() })
    }
}
