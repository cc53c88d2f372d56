//! Changes of the tree without bytes.

use crate::asked::{found_paths, making, path_of};
use crate::{Asker, Catalog, CatalogError};
use api::people::is_user_name;
use api::stored::cluster::{
    ChangedStored, CommitsOfStored, STORED_COMMITS_MAX, StoredChange, StoredCommit, StoredCommits,
};
use filetree::{Parents, Recursion, TreeChange, TreeDecision, TreeError, check_seen, may_change};
use metastore::{FileChange, FileFacts, FileQuestion};
use rows::{FileCommitRow, FileSpace};

fn parsed(change: &StoredChange) -> Result<TreeChange, CatalogError> {
    Ok(match change {
        StoredChange::MakeDirectory { path, parents } => TreeChange::MakeDirectory {
            path: path_of(path)?,
            parents: if *parents { Parents::Made } else { Parents::Required },
        },
        StoredChange::Remove { path, recursive } => {
            TreeChange::Remove { path: path_of(path)?, recursive: recursion(*recursive) }
        }
        StoredChange::Rename { from, to } => TreeChange::Rename { from: path_of(from)?, to: path_of(to)? },
        StoredChange::Copy { from, to } => TreeChange::Copy { from: path_of(from)?, to: path_of(to)? },
        StoredChange::SetGroups { path, read, write, recursive } => TreeChange::SetGroups {
            path: path_of(path)?,
            read: read.into(),
            write: write.into(),
            recursive: recursion(*recursive),
        },
        StoredChange::SetOwner { user, .. } if !is_user_name(user) => {
            return Err(CatalogError::UserName(user.clone()));
        }
        StoredChange::SetOwner { path, user, recursive } => TreeChange::SetOwner {
            path: path_of(path)?,
            user: user.clone(),
            recursive: recursion(*recursive),
        },
    })
}

fn recursion(recursive: bool) -> Recursion {
    if recursive { Recursion::Yes } else { Recursion::No }
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
            user: asker.changer.user(),
            groups: change.groups(),
        };
        let decide = |facts: FileFacts| {
            let found = found_paths(&facts, &paths);
            let changer = asker.changer.in_groups(facts.groups.clone());
            if self.hides_from(&changer) {
                check_seen(&change, &found, &changer)?;
            }
            // A copy keeps as many versions as its source.
            let keep = found.first().and_then(|found| found.rows.last()).map_or(1, |row| row.keep_versions);
            let mut making = making(&facts, &asker.user, keep);
            let TreeDecision { ends, begins, owned } = change.decide(&found, &facts.subtree, &mut making)?;
            may_change(&change, &found, &facts.subtree, &changer)?;
            if let Some(group) = facts.missing_groups.first() {
                return Err(TreeError::NoSuchGroup(group.clone()));
            }
            if ends.is_empty() && begins.is_empty() && owned.is_empty() {
                return Ok(None);
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: asker.user.clone(),
                verb: change.verb().to_string(),
                path: path.to_string(),
                files: (begins.iter().filter(|row| row.parts > 0).count() + owned.len()) as u64,
                bytes: begins.iter().map(|row| row.bytes).sum(),
                created_ns: making.now_ns,
                job: None,
            };
            let more = Box::new(std::iter::empty());
            Ok::<_, TreeError>(Some(FileChange { commit, ends, begins, owned, more, ended_put: None }))
        };
        let version = self.store.change_files(&question, decide).await??;
        Ok(ChangedStored { version })
    }

    /// Returns the changes of a name and of everything below it, newest first; only those of the user if names of others
    /// are hidden.
    pub async fn commits(&self, asker: &Asker, of: &CommitsOfStored) -> Result<StoredCommits, CatalogError> {
        let path = path_of(&of.path)?;
        let limit = of.limit.min(STORED_COMMITS_MAX);
        let only_of = asker.changer.user().filter(|_| self.is_private);
        let rows = self.store.file_commits_by(FileSpace::Cluster, &path.to_string(), only_of, limit).await?;
        let commit = |row: FileCommitRow| StoredCommit {
            version: row.version,
            user: row.user,
            verb: row.verb,
            path: row.path,
            files: row.files,
            bytes: row.bytes,
            created_ns: row.created_ns,
            job: row.job,
        };
        Ok(StoredCommits { commits: rows.into_iter().map(commit).collect() })
    }
}
