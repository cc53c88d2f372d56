//! Jobs that read stored files, or whose programs do: the versions stay until they are over, and their nodes may read the
//! parts.

mod fetches;
pub(crate) mod made;
mod shared;

use crate::asked::path_of;
use crate::error::limited;
use crate::jobs::fetches::PartFetches;
use crate::jobs::shared::{SharedFiles, SharingJob};
use crate::nodes::orders::part_of;
use crate::reading::placed;
use crate::{Asker, Catalog, CatalogError, State};
use api::stored::PINNED_FILES_MAX;
use api::stored::cluster::{FAILED_SOURCES_MAX, PartsOfJob, STORED_PAGE_MAX, StoredPage};
use api::{InputFile, JobSpec, PinnedFile, StoredContent};
use filetree::{TreeName, sees};
use ids::{ConcreteId, DiskId, FileVersion, JobId, NodeId};
use metastore::{JobState, StoreError};
use rows::{FileItem, FileSpace, ReplicatedFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Jobs that are looked up in one round.
const JOBS_AT_ONCE: usize = 1000;

/// The stored files that a job reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobInputs {
    versions: BTreeSet<FileVersion>,
    pub(crate) parts: BTreeSet<ConcreteId>,
    /// Parts of files that programs open. The places of maps do not depend on them.
    pub(crate) of_programs: BTreeSet<ConcreteId>,
    sharing: Arc<SharingJob>,
    /// Leases until the job has its number.
    leases: Vec<u64>,
}

/// The stored files of all jobs that are not over.
#[derive(Debug, Default)]
pub(crate) struct ReadingJobs {
    pub jobs: BTreeMap<JobId, JobInputs>,
    /// Jobs of these that have begun all maps.
    pub have_read: BTreeSet<JobId>,
    /// The last job that was looked up.
    last_seen: Option<JobId>,
    /// Disks in reach when control was told last where the inputs are.
    pub told: Vec<(DiskId, NodeId)>,
    /// The local copies that nodes make of the inputs.
    pub fetches: PartFetches,
    /// Files that nodes copy before their programs run.
    pub shared: SharedFiles,
}

impl ReadingJobs {
    /// Finds the jobs of a store that are not over.
    pub fn restored(specs: Vec<(JobId, JobSpec)>) -> Self {
        let mut jobs = BTreeMap::new();
        for (job, spec) in specs {
            let mut inputs = JobInputs::default();
            for file in named_by(&spec) {
                // The text was checked at submit.
                let name = TreeName::parse(&file.path.to_string_lossy()).unwrap_or_default();
                inputs.versions.extend(name.version);
                inputs.add(&file);
            }
            jobs.insert(job, inputs);
        }
        Self { jobs, ..Self::default() }
    }

    pub fn versions(&self) -> impl Iterator<Item = FileVersion> {
        self.jobs.values().flat_map(|inputs| inputs.versions.iter().copied())
    }
}

/// A stored file that a job names.
struct Named<'a> {
    path: &'a Path,
    content: &'a StoredContent,
    /// Size of an input.
    size_bytes: Option<u64>,
}

impl<'a> Named<'a> {
    fn input(input: &'a InputFile) -> Option<Self> {
        let content = input.stored.as_ref()?;
        Some(Self { path: &input.path, content, size_bytes: Some(input.size_bytes) })
    }

    fn for_programs(file: &'a PinnedFile) -> Self {
        Self { path: &file.path, content: &file.stored, size_bytes: None }
    }
}

/// Returns the files that the programs of a job open.
fn pinned_by(spec: &JobSpec) -> impl Iterator<Item = &PinnedFile> {
    spec.pinned.iter().chain(spec.kind.program().into_iter().flat_map(|task| &task.pinned))
}

/// Returns all stored files that a job reads.
fn named_by(spec: &JobSpec) -> impl Iterator<Item = Named<'_>> {
    spec.inputs.iter().filter_map(Named::input).chain(pinned_by(spec).map(Named::for_programs))
}

impl JobInputs {
    /// Returns whether maps or programs read stored files.
    pub(crate) fn reads_any(&self) -> bool {
        !self.parts.is_empty() || !self.of_programs.is_empty()
    }

    fn add(&mut self, file: &Named<'_>) {
        let parts = file.content.parts.iter().map(|part| part.concrete);
        match file.size_bytes {
            Some(_) => self.parts.extend(parts),
            None => self.of_programs.extend(parts),
        }
    }
}

fn refused(file: &Named<'_>, problem: &str) -> CatalogError {
    CatalogError::JobInput { path: file.path.display().to_string(), problem: problem.to_string() }
}

impl Catalog {
    /// Checks the stored files that a job names: each exists at its version with these parts, and the asker may read it.
    /// The versions stay for a while, until [`Self::begins`] keeps them for the job.
    pub async fn check_inputs(&self, asker: &Asker, specs: &[&JobSpec]) -> Result<JobInputs, CatalogError> {
        let mut checked = JobInputs::default();
        let mut sharing = SharingJob::of(&asker.user);
        for spec in specs {
            limited("the number of stored files for programs", pinned_by(spec).count(), PINNED_FILES_MAX)?;
            pinned_by(spec).for_each(|file| sharing.add(spec, file));
        }
        // Without files the inputs are those of a job that reads none, which is not remembered.
        if sharing.has_files() {
            checked.sharing = Arc::new(sharing);
        }
        let named: Vec<Named<'_>> = specs.iter().flat_map(|spec| named_by(spec)).collect();
        for file in &named {
            self.check_named(asker, file, &mut checked).await?;
        }
        Ok(checked)
    }

    async fn check_named(
        &self,
        asker: &Asker,
        file: &Named<'_>,
        checked: &mut JobInputs,
    ) -> Result<(), CatalogError> {
        let text = file.path.to_string_lossy();
        let name = TreeName::parse(&text);
        let name = name.map_err(|source| CatalogError::Name { text: text.to_string(), source })?;
        let Some(version) = name.version else { return Err(refused(file, "it names no version")) };
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
            return Err(refused(file, "it is a directory"));
        };
        if !may_read {
            return Err(CatalogError::ContentsOfOther { name: text.to_string(), user: row.user.clone() });
        }
        let parts = self.store.concrete_files(content).await?;
        let stated = file.content.parts.iter().copied();
        let is_same = stated.eq(parts.iter().map(part_of));
        if !is_same || file.size_bytes.is_some_and(|bytes| bytes != row.bytes) {
            return Err(refused(file, "it has other parts or another size at this version"));
        }
        checked.add(file);
        Ok(())
    }

    /// Keeps the versions for a job that was submitted, until it is over.
    pub fn begins(&self, job: JobId, inputs: &JobInputs) {
        let mut state = self.state();
        let kept = JobInputs { leases: Vec::new(), ..inputs.clone() };
        state.jobs.jobs.insert(job, kept);
        state.jobs.shared.begins(job, Arc::clone(&inputs.sharing));
    }

    /// Ends the leases of a check.
    pub fn end_check(&self, inputs: &JobInputs) {
        let mut state = self.state();
        inputs.leases.iter().for_each(|lease| state.leases.end(*lease));
    }

    /// Returns whether a node that may run no task of a job yet was told to copy these parts for it.
    pub fn copies_early(&self, job: JobId, node: NodeId, question: &PartsOfJob) -> bool {
        self.state().jobs.shared.was_told(node, job, &question.parts)
    }

    /// Returns where parts are that a job reads, with rights for a node that runs it. If the node makes copies of them,
    /// it becomes a source for others, and is told its own.
    pub async fn places_of_job(
        &self,
        job: JobId,
        node: NodeId,
        question: &PartsOfJob,
    ) -> Result<StoredPage, CatalogError> {
        limited("the number of parts", question.parts.len(), STORED_PAGE_MAX as usize)?;
        limited("the number of failed sources", question.failed.len(), FAILED_SOURCES_MAX)?;
        let parts: BTreeSet<ConcreteId> = {
            let state = self.state();
            let inputs = state.jobs.jobs.get(&job);
            let asked = question.parts.iter().copied();
            let is_read = |inputs: &JobInputs, part: &ConcreteId| {
                inputs.parts.contains(part) || inputs.of_programs.contains(part)
            };
            asked.filter(|part| inputs.is_some_and(|inputs| is_read(inputs, part))).collect()
        };
        let parts: Vec<ConcreteId> = parts.into_iter().collect();
        let mut page = self.page_of(&self.store.replicated_files_of(&parts).await?);
        if question.copies {
            let mut state = self.state();
            let State { jobs, disks, .. } = &mut *state;
            page.sources = jobs.fetches.sources(disks, node, &page.parts, &question.failed, Instant::now());
        }
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

    /// Returns the jobs to look up in this round.
    fn next_reading(&self) -> Vec<JobId> {
        let mut state = self.state();
        let jobs = &mut state.jobs;
        let begin = jobs.last_seen.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = jobs.jobs.range((begin, Bound::Unbounded)).map(|(job, _)| *job);
        let next: Vec<JobId> = behind.take(JOBS_AT_ONCE).collect();
        jobs.last_seen = next.last().copied().filter(|_| next.len() == JOBS_AT_ONCE);
        next
    }

    /// Forgets jobs that are over, of those that read files some in each round.
    pub(crate) async fn end_jobs(&self) -> Result<(), StoreError> {
        let mut jobs = self.next_reading();
        jobs.extend(self.state().outputs.jobs());
        for job in jobs {
            let row = self.store.job(job).await?;
            let is_over =
                row.is_none_or(|row| !matches!(row.state, JobState::Running | JobState::Committing));
            if is_over {
                let mut state = self.state();
                state.jobs.jobs.remove(&job);
                state.jobs.have_read.remove(&job);
                state.jobs.shared.ends(job);
                state.outputs.end(job);
            }
        }
        Ok(())
    }
}
