//! Stored files that steps of a job write: their puts, and the versions that later steps of the job read.

use crate::asked::path_of;
use crate::nodes::orders::part_of;
use crate::outputs::open::OpenOutput;
use crate::{Asker, Catalog, CatalogError};
use api::stored::STEP_SOURCE;
use api::stored::cluster::{BeginStored, BegunStored, CommitStored, CommittedStored, PartsOfJob};
use api::{PinnedFile, StoredOutput};
use filetree::{Changer, TreeName, sees};
use ids::{FileVersion, JobId};
use rows::{FileItem, FileSpace};
use std::collections::BTreeSet;
use std::time::Instant;

/// The stored files that a running step reads, as a node claims that other steps have written them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadeInputs {
    /// User of the job.
    pub user: String,
    pub pinned: Vec<PinnedFile>,
}

impl Catalog {
    /// Begins a put. That of an output of a step gets the job of the step as the maker of its version, by which a later
    /// attempt of the job finds it. `program_of`: the job whose program asks; an administrator may name any job.
    pub async fn begin_for(
        &self,
        asker: &Asker,
        begin: &BeginStored,
        program_of: Option<JobId>,
    ) -> Result<BegunStored, CatalogError> {
        let begun = self.begin(asker, begin).await?;
        let is_theirs = |job: &JobId| match program_of {
            Some(of) => of == *job,
            None => asker.changer == Changer::Anybody,
        };
        if let Some(job) = step_of_source(&begin.source).filter(is_theirs) {
            let name = self.store.job(job).await?.map(|row| row.name).unwrap_or_default();
            let output = StoredOutput { of: begun.of, replicas: begun.replicas, ..StoredOutput::default() };
            let open = OpenOutput { job: Some(job), name, output, begun: Instant::now() };
            self.state().outputs.puts.insert(begun.of.put, open);
        }
        Ok(begun)
    }

    /// Commits a put. The version of an output of a step stays until the job with the step is over.
    pub async fn commit_for(
        &self,
        asker: &Asker,
        commit: &CommitStored,
    ) -> Result<CommittedStored, CatalogError> {
        let committed = self.commit(asker, commit).await?;
        let Some(version) = committed.version else { return Ok(committed) };
        let step = self.state().outputs.puts.get(&commit.of.put).and_then(|open| open.job);
        let Some(row) = (match step {
            Some(job) => self.store.job(job).await?,
            None => None,
        }) else {
            return Ok(committed);
        };
        let keeper = row.step_of.map_or(row.job, |of| of.job);
        self.state().jobs.jobs.entry(keeper).or_default().versions.insert(version);
        Ok(committed)
    }

    /// Admits the files among the asked ones that other steps of the job have written: the present version of the name
    /// has these bytes, or one that is kept for the job, and the user may read it. A node's word alone gives no right.
    pub async fn keep_made_inputs(
        &self,
        job: JobId,
        question: &PartsOfJob,
        made: &MadeInputs,
    ) -> Result<(), CatalogError> {
        let asked: BTreeSet<_> = question.parts.iter().copied().collect();
        let missing: Vec<&PinnedFile> = {
            let state = self.state();
            let known = state.jobs.jobs.get(&job);
            let is_known = |part: &api::StoredPart| {
                known.is_some_and(|known| known.of_programs.contains(&part.concrete))
            };
            let is_missing = |file: &&PinnedFile| {
                file.stored.parts.iter().any(|part| asked.contains(&part.concrete) && !is_known(part))
            };
            made.pinned.iter().filter(is_missing).collect()
        };
        for file in missing {
            let kept: Vec<FileVersion> = {
                let state = self.state();
                state
                    .jobs
                    .jobs
                    .get(&job)
                    .map(|inputs| inputs.versions.iter().rev().copied().collect())
                    .unwrap_or_default()
            };
            for version in std::iter::once(None).chain(kept.into_iter().map(Some)) {
                if self.keep_if_same(job, file, version, &made.user).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Keeps a file for a job if the name has these bytes at a version. Returns whether it has.
    async fn keep_if_same(
        &self,
        job: JobId,
        file: &PinnedFile,
        at: Option<FileVersion>,
        user: &str,
    ) -> Result<bool, CatalogError> {
        let Ok(TreeName { path, version: None }) = TreeName::parse(&file.path.to_string_lossy()) else {
            return Ok(false);
        };
        let path = path_of(&path.to_string())?;
        let _alone = self.retiring.lock().await;
        let version = match at {
            Some(version) => version,
            None => self.store.file_version().await?,
        };
        let rows = self.store.found_names(FileSpace::Cluster, path.components(), Some(version)).await?.rows;
        let row = rows.last().filter(|_| rows.len() == path.components().len());
        let Some(FileItem::File(content)) = row.map(|row| row.item) else { return Ok(false) };
        if !sees(&rows, &self.with_groups(&Changer::User(user.to_string())).await?) {
            return Ok(false);
        }
        let parts = self.store.concrete_files(content).await?;
        if !parts.iter().map(part_of).eq(file.stored.parts.iter().copied()) {
            return Ok(false);
        }
        let mut state = self.state();
        let inputs = state.jobs.jobs.entry(job).or_default();
        inputs.versions.insert(version);
        inputs.of_programs.extend(file.stored.parts.iter().map(|part| part.concrete));
        Ok(true)
    }
}

/// Returns the job of the step whose output a put with this source is.
fn step_of_source(source: &str) -> Option<JobId> {
    source.strip_prefix(STEP_SOURCE)?.parse().ok().map(JobId)
}
