//! Recovery of the jobs and nodes of a cluster after a restart: the store is read, and control restores everything.

use crate::directories::Directories;
use crate::event_loop::EventLoop;
use crate::{ServerError, clock};
use control::{DiskDirs, JobDirs, Leftover, RecoveredSteps, RecoveredWork};
use metastore::{Change, Keep, RecoveredJob, StepRow, WinningCommits};
use std::collections::BTreeMap;

impl EventLoop {
    /// Restores the state of the previous server of this cluster.
    pub async fn recover(&mut self) -> Result<(), ServerError> {
        self.begin_to_sign().await?;
        let recovered = self.store.recover().await?;
        let (mut jobs, mut stepped) = (Vec::with_capacity(recovered.jobs.len()), Vec::new());
        let mut steps = recovered.steps;
        for job in recovered.jobs.into_values() {
            if job.spec.kind.steps().is_some() {
                let of_job = steps.remove(&job.row.job).unwrap_or_default();
                stepped.push(self.recovered_steps(job, of_job).await?);
                continue;
            }
            let commits = match job.spec.kind.source() {
                Some(source) => self.store.winning_commits(source).await?,
                None => WinningCommits::new(),
            };
            let file_hold = self.files.hold_what_is_here(&job.spec);
            jobs.push(RecoveredWork { job, commits, file_hold });
        }
        self.tell_time();
        self.control.recover_stepped(stepped);
        let keys = self.signing.told();
        let mut recovering = self.control.recover(&mut self.outbox, recovered.nodes, jobs, &keys);
        for leftover in recovering.take_leftovers() {
            self.remove(leftover);
        }
        self.recover_waiting().await?;
        let files = self.store.intermediate_files().await?;
        self.tell_time();
        self.control.recovered(&mut self.outbox, recovering, files);
        self.begin_steps().await?;
        self.write_and_reply().await?;
        Ok(())
    }

    async fn recovered_steps(
        &self,
        job: RecoveredJob,
        steps: Vec<StepRow>,
    ) -> Result<RecoveredSteps, ServerError> {
        let RecoveredJob { row, spec, cancel_asked, .. } = job;
        let plan = spec.kind.steps().map(|steps| self.kinds.read(&steps.kind, &steps.spec));
        let plan =
            plan.unwrap_or_else(|| unreachable!("{} has steps", row.job)).map_err(|error| error.to_string());
        let (user, priority) = (row.user.unwrap_or_default(), row.priority);
        let recorded = match &plan {
            Ok(plan) => self.recorded_runs(&user, plan.as_ref()).await?,
            Err(_) => BTreeMap::new(),
        };
        let file_hold = self.files.hold_what_is_here(&spec);
        let job = row.job;
        Ok(RecoveredSteps { job, spec, plan, recorded, user, priority, cancel_asked, steps, file_hold })
    }

    fn remove(&mut self, leftover: Leftover) {
        let Leftover { job, staging } = leftover;
        let directories = Directories::from(JobDirs { staging, disk_dirs: Vec::new() });
        match directories.remove(&self.files.paths, DiskDirs::Remove) {
            Ok(()) => {
                let now_ns = clock::now_ns();
                self.outbox.write(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
            }
            Err(error) => tracing::warn!(%job, %error, "cannot remove the files of a job"),
        }
    }
}
