//! Submission of jobs: their rows are stored, their directories created, and control gets them. All stages of a flow
//! are submitted together.

use crate::clock::now_ns;
use crate::directories::Directories;
use crate::event_loop::{EventLoop, Reply, Submission};
use crate::messages::job_quota;
use crate::{ServerError, kept::runs};
use api::control::SubmittedJob;
use api::flow::SubmittedFlow;
use control::{DiskDirs, JobDirs, JobStart, NewJob, RoomWanted, Service, spec_bytes};
use faults::{CrashPoint, crash_point};
use ids::JobId;
use metastore::{Change, JobState, Keep, StoreError};
use std::sync::Arc;

/// A job that is being submitted.
pub(super) struct Incoming {
    pub job: JobId,
    pub submission: Submission,
    pub directories: Directories,
}

/// The reason why jobs are not submitted: an error for the caller, or one that ends the server.
pub(super) enum Refused {
    Answer(ServerError),
    Store(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Store(error) => Self::Store(error),
            error => Self::Answer(error),
        }
    }
}

impl EventLoop {
    /// Submits a job. An error of the store ends the server; all other errors go to the caller.
    pub async fn submit(
        &mut self,
        mut submission: Submission,
        reply: Reply<SubmittedJob>,
    ) -> Result<(), StoreError> {
        if let Some(plan) = submission.plan.take() {
            return self.submit_stepped(submission, plan, reply).await;
        }
        let answer = match self.take_in(vec![submission]).await {
            Ok(mut jobs) => jobs.pop().ok_or(ServerError::ShutDown),
            Err(Refused::Answer(error)) => Err(error),
            Err(Refused::Store(error)) => return Err(error),
        };
        self.answer(reply, answer);
        Ok(())
    }

    /// Does the same for the stages of a flow: all or none.
    pub async fn submit_flow(
        &mut self,
        stages: Vec<Submission>,
        reply: Reply<SubmittedFlow>,
    ) -> Result<(), StoreError> {
        let answer = match self.take_in(stages).await {
            Ok(jobs) => Ok(SubmittedFlow { jobs }),
            Err(Refused::Answer(error)) => Err(error),
            Err(Refused::Store(error)) => return Err(error),
        };
        self.answer(reply, answer);
        Ok(())
    }

    /// Stores jobs in one transaction, creates their directories, and gives them to control.
    async fn take_in(&mut self, submissions: Vec<Submission>) -> Result<Vec<SubmittedJob>, Refused> {
        self.check(&submissions).await?;
        let mut incoming: Vec<Incoming> = Vec::with_capacity(submissions.len());
        for mut submission in submissions {
            // From the same range as jobs of one task, so that the numbers follow the order of submits.
            let job = self.numbers.take(&self.store, self.service, 1).await?;
            let before: Vec<JobId> = incoming.iter().map(|before| before.job).collect();
            submission.name_stages(job, &before);
            let directories = Directories::choose(&submission.spec, job, &self.lock.uuid, self.service)?;
            incoming.push(Incoming { job, submission, directories });
        }
        self.store_and_begin(incoming).await
    }

    /// Does the same for jobs that have numbers.
    pub(super) async fn store_and_begin(
        &mut self,
        incoming: Vec<Incoming>,
    ) -> Result<Vec<SubmittedJob>, Refused> {
        let submitted: Vec<Change> = incoming.iter().map(|each| self.submitted(each)).collect();
        crash_point(CrashPoint::SubmitBeforeTransaction);
        match self.store.apply(&submitted).await {
            Ok(()) => {}
            Err(error @ (StoreError::PathNotText { .. } | StoreError::Json(_))) => {
                return Err(Refused::Answer(error.into()));
            }
            Err(error) => return Err(error.into()),
        }
        crash_point(CrashPoint::SubmitAfterTransaction);
        match self.make_room(&incoming).await {
            Ok(starts) => Ok(self.begin(incoming, starts)),
            Err(Refused::Answer(error)) => {
                self.withdraw(&incoming, &error).await?;
                Err(Refused::Answer(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns an error for jobs that exceed the quota of their user, or that no node could run.
    async fn check(&self, submissions: &[Submission]) -> Result<(), Refused> {
        let spec_bytes = submissions.iter().map(|submission| spec_bytes(&submission.spec)).sum();
        let jobs = submissions.len() as u32;
        for submission in submissions {
            let quota = submission.quota.map(job_quota);
            let wanted = RoomWanted { jobs, spec_bytes, quota };
            let room = self.control.check_room(&submission.user, wanted, &[&submission.spec]);
            room.map_err(ServerError::from)?;
            self.check_kept(submission).await?;
        }
        Ok(())
    }

    /// Returns an error for a job that keeps I-files if its user keeps too much already.
    async fn check_kept(&self, submission: &Submission) -> Result<(), Refused> {
        let Some(quota) = submission.quota.filter(|_| submission.spec.keep_ifiles) else { return Ok(()) };
        let (user, bytes_max) = (submission.user.clone(), quota.kept_bytes_max);
        let kept_bytes = self.store.kept_bytes_of(&user).await?;
        match kept_bytes > bytes_max {
            true => Err(Refused::Answer(ServerError::TooMuchKept { user, kept_bytes, bytes_max })),
            false => Ok(()),
        }
    }

    fn submitted(&self, incoming: &Incoming) -> Change {
        let Incoming { job, submission, directories } = incoming;
        Change::JobSubmitted {
            job: *job,
            owner: self.owner(),
            spec: Arc::clone(&submission.spec),
            stages: mapreduce::stages(&submission.spec),
            staging: directories.staging.clone(),
            disk_dirs: directories.disk_dirs.clone(),
            user: Some(submission.user.clone()).filter(|user| !user.is_empty()),
            priority: submission.priority,
            waits: false,
            step_of: submission.step_of.clone(),
            now_ns: now_ns(),
        }
    }

    /// Finds the data with which stored jobs begin, and creates their directories.
    async fn make_room(&mut self, incoming: &[Incoming]) -> Result<Vec<JobStart>, Refused> {
        let mut all = Vec::with_capacity(incoming.len());
        for Incoming { job, submission, directories } in incoming {
            // This comes after the rows are stored: from here on no removal of the job's inputs can begin.
            let control = (self.service == Service::Cluster).then_some(&self.control);
            let splits = submission.splits.clone();
            all.push(runs::start(&self.store, &submission.spec, *job, splits, control).await?);
            directories.create(&self.files.paths.for_user(&submission.user))?;
        }
        Ok(all)
    }

    fn begin(&mut self, incoming: Vec<Incoming>, starts: Vec<JobStart>) -> Vec<SubmittedJob> {
        let (mut begun, mut submitted) = (Vec::new(), Vec::new());
        for (Incoming { job, submission, directories }, start) in incoming.into_iter().zip(starts) {
            let Directories { staging, disk_dirs } = directories;
            let dirs = JobDirs { staging: staging.clone(), disk_dirs: disk_dirs.clone() };
            if self.service == Service::Embedded {
                self.progress_board.add_job(job, &submission.spec, &dirs);
            }
            let Submission { spec, user, priority, hold: file_hold, part_nodes, .. } = submission;
            begun.push(NewJob { job, spec, dirs, start, user, priority, file_hold, part_nodes });
            submitted.push(SubmittedJob { job, staging, disk_dirs });
        }
        self.tell_time();
        self.control.begin_jobs(&mut self.outbox, begun);
        submitted
    }

    /// Marks stored jobs as failed because their directories cannot be created.
    async fn withdraw(&mut self, incoming: &[Incoming], error: &ServerError) -> Result<(), StoreError> {
        let mut changes = Vec::new();
        for Incoming { job, directories, .. } in incoming {
            changes.push(Change::JobEnded {
                job: *job,
                state: JobState::Failed,
                exit_code: None,
                error: Some(error.to_string()),
                now_ns: now_ns(),
            });
            if directories.remove(&self.files.paths, DiskDirs::Remove).is_ok() {
                changes.push(Change::JobCleaned { job: *job, kept: Keep::Nothing, now_ns: now_ns() });
            }
        }
        self.store.apply(&changes).await
    }
}

impl Submission {
    /// Replaces positions of stages by numbers of jobs.
    pub(super) fn name_stages(&mut self, job: JobId, before: &[JobId]) {
        let Some(stage) = &mut Arc::make_mut(&mut self.spec).stage else { return };
        stage.flow = before.first().copied().unwrap_or(job);
        stage.reads = self.reads.iter().filter_map(|index| before.get(*index as usize)).copied().collect();
    }
}
