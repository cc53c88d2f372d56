//! Jobs come in: their rows, then their directories, then the scheduler has them. The stages of a flow come in together.

use crate::arguments;
use crate::clock::now_ns;
use crate::directories::Directories;
use crate::event_loop::{EventLoop, Reply, Submission};
use crate::job::Job;
use crate::messages::{JobRun, Service, job_quota};
use crate::{ServerError, elastic, kept_runs, speculation};
use api::control::SubmittedJob;
use api::flow::SubmittedFlow;
use control::program_jobs::FileHold;
use control::users::Has;
use faults::{CrashPoint, crash_point};
use ids::JobId;
use mapreduce::JobResults;
use metastore::{Change, JobState, Keep, StoreError};
use scheduler::{Claim, Event};
use std::sync::Arc;

/// A job on its way in.
struct Incoming {
    job: JobId,
    submission: Submission,
    directories: Directories,
}

/// Why jobs do not come in: the server goes on, or ends.
enum Refused {
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

/// A job that is known, and what the scheduler is to hear of it.
struct Begun {
    job: SubmittedJob,
    events: Vec<Event>,
}

impl EventLoop {
    /// Takes in one job. An error of the store ends the server; all others go to whoever submitted.
    pub async fn submit(
        &mut self,
        submission: Submission,
        reply: Reply<SubmittedJob>,
    ) -> Result<(), StoreError> {
        let answer = match self.take_in(vec![submission]).await {
            Ok(mut jobs) => jobs.pop().ok_or(ServerError::ShutDown),
            Err(Refused::Answer(error)) => Err(error),
            Err(Refused::Store(error)) => return Err(error),
        };
        self.replies.push(Box::new(move || drop(reply.send(answer))));
        Ok(())
    }

    /// The same of the stages of a flow: all or none.
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
        self.replies.push(Box::new(move || drop(reply.send(answer))));
        Ok(())
    }

    /// Stores jobs in one transaction, then makes their directories, then lets the scheduler have them.
    async fn take_in(&mut self, submissions: Vec<Submission>) -> Result<Vec<SubmittedJob>, Refused> {
        let spec_bytes = submissions.iter().map(|submission| arguments::spec_bytes(&submission.spec)).sum();
        let more = Has { jobs: submissions.len() as u32, spec_bytes };
        let mut incoming: Vec<Incoming> = Vec::with_capacity(submissions.len());
        for mut submission in submissions {
            let has_room = self.users.check_room(&submission.user, more, submission.quota.map(job_quota));
            has_room.map_err(|error| ServerError::of_quota(&submission.user, error))?;
            self.check_kept(&submission).await?;
            self.check_fits(&submission.spec)?;
            // From where jobs of one task have theirs, so that numbers are in the order in which jobs came.
            let job = self.take_job_ids(1).await?;
            let before: Vec<JobId> = incoming.iter().map(|before| before.job).collect();
            submission.name_stages(job, &before);
            let directories = Directories::choose(&submission.spec, job, &self.lock.uuid, self.service)?;
            incoming.push(Incoming { job, submission, directories });
        }
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
        let results = match self.make_room(&incoming).await {
            Ok(results) => results,
            Err(Refused::Answer(error)) => {
                self.withdraw(&incoming, &error).await?;
                return Err(Refused::Answer(error));
            }
            Err(error) => return Err(error),
        };
        let begin = |(incoming, results)| self.begin(incoming, results);
        // A stage without tasks is over at once: those that read it must be known by then.
        let begun: Vec<Begun> = incoming.into_iter().zip(results).map(begin).collect();
        let mut submitted = Vec::with_capacity(begun.len());
        for Begun { job, events } in begun {
            events.into_iter().for_each(|event| self.feed(event));
            submitted.push(job);
        }
        Ok(submitted)
    }

    /// Refuses a job that keeps I-files where its user keeps too much.
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
            now_ns: now_ns(),
        }
    }

    /// Finds what jobs that are stored begin with, and makes their directories.
    async fn make_room(&mut self, incoming: &[Incoming]) -> Result<Vec<JobResults>, Refused> {
        let mut all = Vec::with_capacity(incoming.len());
        for Incoming { job, submission, directories } in incoming {
            // Only now: from here on nobody begins to remove what this job reads.
            let fleet = (self.service == Service::Cluster).then_some(&self.fleet);
            let splits = submission.splits.clone();
            all.push(kept_runs::results(&self.store, &submission.spec, *job, splits, fleet).await?);
            directories.create(&self.paths.for_user(&submission.user))?;
        }
        Ok(all)
    }

    fn begin(&mut self, incoming: Incoming, results: JobResults) -> Begun {
        let Incoming { job, submission, directories } = incoming;
        let run = Arc::new(JobRun {
            staging: directories.staging.clone(),
            disk_dirs: directories.disk_dirs.clone(),
            cancelled: self.shared.add_job(job),
            ..JobRun::new(submission.spec)
        });
        let mut new = Job::new(job, run, results);
        new.file_hold = submission.hold.map(|hold| hold as FileHold);
        self.begins_to_replicate(&mut new);
        let needs = self.needs_of(&new.run.spec);
        let (stages, failures_max) = (new.stage_names.clone(), new.failures_max());
        let (may_copy, may_split) = (speculation::allowed(&new), elastic::allowed(&new));
        let more = Has { jobs: 1, spec_bytes: arguments::spec_bytes(&new.run.spec) };
        let user = self.users.jobs_begin(submission.user, more);
        (new.user, new.spec_bytes) = (user, more.spec_bytes);
        self.joins_flow(&new);
        self.jobs.insert(job, new);
        self.any_job_yet = true;
        let claim = Claim { user, priority: submission.priority, needs };
        let first = Event::JobSubmitted { job, claim, stages, failures_max };
        let events = [Some(first), may_copy, may_split].into_iter().flatten().collect();
        let job = SubmittedJob { job, staging: directories.staging, disk_dirs: directories.disk_dirs };
        Begun { job, events }
    }

    /// The directories of stored jobs cannot be made: they have failed before they began.
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
            if directories.remove(&self.paths, false).is_ok() {
                changes.push(Change::JobCleaned { job: *job, kept: Keep::Nothing, now_ns: now_ns() });
            }
        }
        self.store.apply(&changes).await
    }
}

impl Submission {
    /// Puts the numbers of jobs where positions of stages stood.
    fn name_stages(&mut self, job: JobId, before: &[JobId]) {
        let Some(stage) = &mut Arc::make_mut(&mut self.spec).stage else { return };
        stage.flow = before.first().copied().unwrap_or(job);
        stage.reads = self.reads.iter().filter_map(|index| before.get(*index as usize)).copied().collect();
    }
}
