//! Removal of kept data from the disks of nodes: after its expiry, or on request.

use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use crate::kept::gc::{check_jobs, selected};
use crate::{Collected, GcOptions, GcOutcome, GcSelection, ServerError};
use api::kept::GcAnswer;
use faults::{CrashPoint, crash_point};
use metastore::{CLUSTER_OWNER, Change, JobRow, StoreError};
use std::time::{Duration, Instant};

/// Interval between two searches for expired files.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl EventLoop {
    /// Removes expired kept data if it is time for a search.
    pub async fn collect_in_time(&mut self) -> Result<(), StoreError> {
        if self.timing.collected.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        self.timing.collected = Some(Instant::now());
        let expired = GcOptions { selection: GcSelection::Expired, dry_run: false };
        match self.collect_kept(&expired, None).await {
            // A removal that has begun is completed by the next search.
            Err(error) if error.retryable() => {
                tracing::info!(%error, "cannot search for expired files, retrying");
                Ok(())
            }
            looked => looked.map(drop),
        }
    }

    /// Removes the selected data of a user or of all users, and reports each job.
    pub async fn collect(
        &mut self,
        options: GcOptions,
        user: Option<String>,
        reply: Reply<GcAnswer>,
    ) -> Result<(), StoreError> {
        // The store is read below: earlier decisions must be written first.
        self.write_and_reply().await?;
        let answer = match check_jobs(&self.store, &options.selection).await {
            Ok(()) => self.collect_kept(&options, user.as_deref()).await.map_err(ServerError::from),
            Err(error) => Err(error),
        };
        let answer = match answer {
            Err(ServerError::Store(error)) if !error.retryable() => return Err(error),
            answer => answer.map(|collected| GcAnswer { collected }),
        };
        self.answer(reply, answer);
        Ok(())
    }

    async fn collect_kept(
        &mut self,
        options: &GcOptions,
        user: Option<&str>,
    ) -> Result<Vec<Collected>, StoreError> {
        let mut collected = Vec::new();
        for row in self.store.jobs_with_kept_files().await? {
            let is_theirs = user.is_none() || row.user.as_deref() == user;
            if row.owner != CLUSTER_OWNER || !is_theirs || !selected(&row, &options.selection) {
                continue;
            }
            let bytes = row.kept_bytes.unwrap_or(0);
            let mut away = Vec::new();
            let outcome = match self.store.reader_of(row.job).await? {
                Some(reader) => GcOutcome::ReadBy(reader),
                None if options.dry_run => GcOutcome::WouldBeRemoved,
                None => self.remove_kept(&row, bytes, &mut away).await?,
            };
            collected.push(Collected { job: row.job, name: row.name, bytes, outcome, away });
        }
        Ok(collected)
    }

    /// Forgets the kept data of a job. Nodes in the cluster remove it now; the others announce it when they come back,
    /// and are ordered to remove it then.
    async fn remove_kept(
        &mut self,
        row: &JobRow,
        bytes: u64,
        away: &mut Vec<String>,
    ) -> Result<GcOutcome, StoreError> {
        crash_point(CrashPoint::GcBeforeMark);
        if !self.store.begin_to_remove_kept_files(row.job).await? {
            // A reader has started in between.
            let reader = self.store.reader_of(row.job).await?;
            return Ok(reader.map_or(GcOutcome::Removed, GcOutcome::ReadBy));
        }
        crash_point(CrashPoint::GcAfterMark);
        let places = self.store.kept_places(row.job).await?;
        let removed = Change::KeptFilesRemoved { job: row.job, bytes, now_ns: now_ns() };
        self.store.apply(&[removed]).await?;
        crash_point(CrashPoint::GcAfterRemove);
        away.extend(self.control.drop_kept(row.job, places));
        Ok(GcOutcome::Removed)
    }
}
