//! Jobs that read stored files: the versions that they read stay until they are over, and their nodes may read the parts.

use crate::asked::path_of;
use crate::error::limited;
use crate::nodes::orders::part_of;
use crate::reading::placed;
use crate::{Asker, Catalog, CatalogError};
use api::stored::cluster::{PartsOfJob, STORED_PAGE_MAX, StoredPage};
use api::{InputFile, JobSpec};
use filetree::{TreeName, sees};
use ids::{ConcreteId, DiskId, FileVersion, JobId, NodeId};
use metastore::{JobState, StoreError};
use rows::{FileItem, FileSpace, ReplicatedFile};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The stored files that a job reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobInputs {
    versions: BTreeSet<FileVersion>,
    pub(crate) parts: BTreeSet<ConcreteId>,
    /// Leases until the job has its number.
    leases: Vec<u64>,
}

/// The stored files of all jobs that are not over.
#[derive(Debug, Default)]
pub(crate) struct ReadingJobs {
    pub jobs: BTreeMap<JobId, JobInputs>,
    /// Jobs of these that have begun all maps.
    pub have_read: BTreeSet<JobId>,
    /// Disks in reach when control was told last where the inputs are.
    pub told: Vec<(DiskId, NodeId)>,
}

impl ReadingJobs {
    /// Finds the jobs of a store that are not over.
    pub fn restored(specs: Vec<(JobId, JobSpec)>) -> Self {
        let mut jobs = BTreeMap::new();
        for (job, spec) in specs {
            let mut inputs = JobInputs::default();
            for input in &spec.inputs {
                // The text was checked at submit.
                let name = TreeName::parse(&input.path.to_string_lossy()).unwrap_or_default();
                inputs.versions.extend(name.version.filter(|_| input.stored.is_some()));
                let parts = input.stored.iter().flat_map(|content| &content.parts);
                inputs.parts.extend(parts.map(|part| part.concrete));
            }
            jobs.insert(job, inputs);
        }
        Self { jobs, ..Self::default() }
    }

    pub fn versions(&self) -> impl Iterator<Item = FileVersion> {
        self.jobs.values().flat_map(|inputs| inputs.versions.iter().copied())
    }
}

fn refused(input: &InputFile, problem: &str) -> CatalogError {
    CatalogError::JobInput { path: input.path.display().to_string(), problem: problem.to_string() }
}

impl Catalog {
    /// Checks the stored files that a job names: each exists at its version with these parts, and the asker may read it.
    /// The versions stay for a while, until [`Self::begins`] keeps them for the job.
    pub async fn check_inputs(&self, asker: &Asker, specs: &[&JobSpec]) -> Result<JobInputs, CatalogError> {
        let mut checked = JobInputs::default();
        let inputs = specs.iter().flat_map(|spec| &spec.inputs).filter(|input| input.stored.is_some());
        for input in inputs {
            self.check_input(asker, input, &mut checked).await?;
        }
        Ok(checked)
    }

    async fn check_input(
        &self,
        asker: &Asker,
        input: &InputFile,
        checked: &mut JobInputs,
    ) -> Result<(), CatalogError> {
        let text = input.path.to_string_lossy();
        let name = TreeName::parse(&text);
        let name = name.map_err(|source| CatalogError::Name { text: text.to_string(), source })?;
        let Some(version) = name.version else { return Err(refused(input, "it names no version")) };
        if !checked.versions.contains(&version) {
            let _alone = self.retiring.lock().await;
            if version > self.store.file_version().await? {
                return Err(CatalogError::NoSuchVersion(version));
            }
            checked.leases.push(self.state().leases.begin(version, Instant::now()));
            checked.versions.insert(version);
        }
        let path = path_of(&name.path.to_string())?;
        let rows = self.store.found_names(FileSpace::Cluster, path.components(), Some(version)).await?.rows;
        let row = rows.last().filter(|_| rows.len() == path.components().len());
        let row = row.ok_or_else(|| CatalogError::Missing(name.clone()))?;
        let may_read = sees(&rows, &self.with_groups(&asker.changer).await?);
        if !may_read && self.hides_from(&asker.changer) {
            return Err(CatalogError::Missing(name));
        }
        let FileItem::File(content) = row.item else {
            return Err(refused(input, "it is a directory"));
        };
        if !may_read {
            return Err(CatalogError::ContentsOfOther { name: text.to_string(), user: row.user.clone() });
        }
        let parts = self.store.concrete_files(content).await?;
        let stated = input.stored.iter().flat_map(|content| &content.parts).copied();
        let is_same = stated.eq(parts.iter().map(part_of));
        match is_same && input.size_bytes == row.bytes {
            true => checked.parts.extend(parts.iter().map(|part| part.concrete)),
            false => return Err(refused(input, "it has other parts or another size at this version")),
        }
        Ok(())
    }

    /// Keeps the versions for a job that was submitted, until it is over.
    pub fn begins(&self, job: JobId, inputs: &JobInputs) {
        let mut state = self.state();
        let kept = JobInputs { leases: Vec::new(), ..inputs.clone() };
        state.jobs.jobs.insert(job, kept);
    }

    /// Ends the leases of a check.
    pub fn end_check(&self, inputs: &JobInputs) {
        let mut state = self.state();
        inputs.leases.iter().for_each(|lease| state.leases.end(*lease));
    }

    /// Returns where parts are that a job reads, with rights for a node that runs it.
    pub async fn places_of_job(&self, job: JobId, question: &PartsOfJob) -> Result<StoredPage, CatalogError> {
        limited("the number of parts", question.parts.len(), STORED_PAGE_MAX as usize)?;
        let parts: BTreeSet<ConcreteId> = {
            let state = self.state();
            let inputs = state.jobs.jobs.get(&job);
            let asked = question.parts.iter().copied();
            asked.filter(|part| inputs.is_some_and(|inputs| inputs.parts.contains(part))).collect()
        };
        let parts: Vec<ConcreteId> = parts.into_iter().collect();
        let mut page = self.page_of(&self.store.replicated_files_of(&parts).await?);
        self.add_makers_for(&mut page, job).await?;
        Ok(page)
    }

    /// Makes a page without entries of concrete files.
    pub(crate) fn page_of(&self, files: &[ReplicatedFile]) -> StoredPage {
        let disks = files.iter().flat_map(|file| file.disks.iter().copied());
        let nodes = self.state().disks.nodes_of(disks, Instant::now());
        let parts = files.iter().map(placed).collect();
        StoredPage { parts, nodes, grants: self.read_grants(files), ..StoredPage::default() }
    }

    /// Forgets jobs that are over.
    pub(crate) async fn end_jobs(&self) -> Result<(), StoreError> {
        let mut jobs: Vec<JobId> = self.state().jobs.jobs.keys().copied().collect();
        jobs.extend(self.state().outputs.jobs());
        for job in jobs {
            let row = self.store.job(job).await?;
            let is_over =
                row.is_none_or(|row| !matches!(row.state, JobState::Running | JobState::Committing));
            if is_over {
                let mut state = self.state();
                state.jobs.jobs.remove(&job);
                state.jobs.have_read.remove(&job);
                state.outputs.end(job);
            }
        }
        Ok(())
    }
}
