//! The jobs that made stored files: users are told which job to run again when such a file is lost.

use crate::{Catalog, CatalogError};
use api::stored::MakingJob;
use api::stored::cluster::{MakerOfParts, StoredPage};
use filetree::Changer;
use ids::{DiskId, JobId, PutId};
use std::collections::{BTreeSet, HashSet};

/// Returns the puts of the parts of a page that have no replica in reach.
fn lost_puts(page: &StoredPage) -> BTreeSet<PutId> {
    let reached: HashSet<DiskId> = page.nodes.iter().map(|node| node.disk).collect();
    let lost = page.parts.iter().filter(|part| part.disks.iter().all(|disk| !reached.contains(disk)));
    lost.map(|part| part.file.concrete.put()).collect()
}

impl Catalog {
    /// Returns the job whose output a put was. On a private server users are told only of their own jobs.
    pub(crate) async fn maker_of(
        &self,
        put: PutId,
        reader: &Changer,
    ) -> Result<Option<MakingJob>, CatalogError> {
        let commit = self.store.commit_of_job_put(put).await?;
        let seen = commit.filter(|commit| !self.is_private || reader.has(&commit.user));
        Ok(seen.and_then(|commit| commit.job))
    }

    /// Adds the jobs that made the lost parts of a page.
    pub(crate) async fn add_makers(
        &self,
        page: &mut StoredPage,
        reader: &Changer,
    ) -> Result<(), CatalogError> {
        for put in lost_puts(page) {
            let made = self.maker_of(put, reader).await?;
            page.makers.extend(made.map(|job| MakerOfParts { put, job }));
        }
        Ok(())
    }

    /// Adds the same to a page that a job gets: its failure is shown to the user of the job.
    pub(crate) async fn add_makers_for(&self, page: &mut StoredPage, job: JobId) -> Result<(), CatalogError> {
        if lost_puts(page).is_empty() {
            return Ok(());
        }
        let user = self.store.job(job).await?.and_then(|row| row.user);
        self.add_makers(page, &Changer::User(user.unwrap_or_default())).await
    }
}
