//! Jobs with steps: the beginning and the end of the job and of its steps.

use super::{Control, OfBatch};
use crate::interface::{ControlError, Outbox, RunningJob, Service};
use crate::job::{EXIT_CANCELLED, spec_bytes};
use crate::program_jobs::steps::{
    AfterStep, BegunStep, NewJobStep, NewSteppedJob, NewSteps, RecoveredSteps, StepRecord, SteppedJob,
    SteppedJobs, pinned_contents, shipped_contents, step_failed, step_stopped,
};
use crate::program_jobs::window;
use crate::scheduling::{feed, inputs_moved};
use crate::users::{Has, JobOwner};
use api::control::JobOutcome;
use api::history::{EventKind, JobState, StepOf};
use api::task::RunResult;
use api::{Blame, InputFile, JobSpec, PinnedFile, TaskFailure};
use ids::{JobId, NodeId, StepNumber};
use jobkind::{LOOKS_FROM, StepPlan, StepWork};
use mapreduce::PartNodes;
use rows::{Change, Keep, StepRow};
use scheduler::Event;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason for the end of steps whose job does not succeed.
const JOB_ENDS: &str = "stopped with the job of which it is a step";

impl Control {
    /// Begins a job with steps. Its steps follow by [`Control::next_steps`].
    pub fn begin_stepped(&mut self, outbox: &mut Outbox, new: NewSteppedJob) {
        let NewSteppedJob { job, spec, plan, recorded, user, priority, quota, server, file_hold, part_nodes } =
            new;
        let owner = self.users.job_begins(user.clone(), spec_bytes(&spec));
        let mut stepped = SteppedJob::new(owner, priority, Some(plan));
        (stepped.file_hold, stepped.quota) = (file_hold, quota);
        (stepped.shipped, stepped.pinned) = (shipped_contents(&spec), pinned_contents(&spec));
        stepped.learn_places(&part_nodes);
        stepped.remembers(recorded);
        outbox.write(Change::JobSubmitted {
            job,
            owner: server,
            spec,
            stages: Vec::new(),
            staging: PathBuf::new(),
            disk_dirs: Vec::new(),
            user: Some(user).filter(|user| !user.is_empty()),
            priority,
            waits: false,
            step_of: None,
            now_ns: outbox.now_ns(),
        });
        self.stepped.insert(job, stepped);
        self.work.jobs.one_came();
        let size = self.work.fleet.largest_node();
        let after = self.stepped.change(job, |job| job.plan(size));
        self.follow(outbox, job, after);
        self.settle(outbox);
    }

    /// Returns a file of a plan that an open job of the user writes, with that job.
    pub fn other_writer(&self, user: &str, plan: &dyn StepPlan) -> Option<(PathBuf, JobId)> {
        self.stepped.other_writer(user, plan)
    }

    /// Cancels a job, with its steps if it has any. Does nothing if the job is over.
    pub fn cancel(&mut self, outbox: &mut Outbox, job: JobId, reason: String) {
        if !self.cancel_stepped(outbox, job, &reason) {
            self.cancel_one(outbox, job, reason);
        }
        self.settle(outbox);
    }

    /// Takes the nodes that have the stored inputs of a job now. Returns whether later changes matter.
    pub fn inputs_moved(&mut self, job: JobId, places: PartNodes) -> bool {
        match self.stepped.inputs_moved(job, &places) {
            Some(goes_on) => goes_on,
            None => inputs_moved(&mut self.work, job, places),
        }
    }

    /// Returns a job of which a node runs an attempt.
    pub fn running_on(&self, node: NodeId, job: JobId) -> Result<RunningJob, ControlError> {
        let known = self.work.jobs.get(&job).ok_or(ControlError::UnknownJob { job })?;
        if !self.work.fleet.runs(node, job) {
            return Err(ControlError::NotOfNode { node, job });
        }
        let pinned_by = self.stepped.place_of(job).map_or(job, |of| of.job);
        let pinned = match known.spec().kind.program() {
            Some(task) => task.pinned.clone(),
            None => known.spec().inputs.iter().filter_map(pinned_input).collect(),
        };
        Ok(RunningJob { user: known.owner().name.to_string(), pinned_by, pinned })
    }

    /// Takes steps that may begin now, of one job. The caller must begin or refuse them.
    pub fn next_steps(&mut self) -> Option<NewSteps> {
        self.stepped.next_steps(&self.users, self.work.fleet.largest_node())
    }

    /// Begins steps under numbers from `first` on. `server` is the owner in their rows. Returns those that are MapReduce
    /// jobs, with those of a flow in one list: they have numbers, and the caller must store them and make their directories
    /// before they begin.
    pub fn begin_steps(
        &mut self,
        outbox: &mut Outbox,
        new: NewSteps,
        first: JobId,
        server: &str,
    ) -> Vec<Vec<NewJobStep>> {
        // The step that writes may have ended while the reader was checked.
        let early = new.early.filter(|writer| {
            self.stepped.get(new.job).is_some_and(|job| !job.is_stopping() && !job.has_finished(writer.step))
        });
        if early.is_some_and(|writer| !self.may_begin_early(&new, writer)) {
            self.stepped.drop_early(&new);
            return Vec::new();
        }
        if !self.stepped.begun(&new, first) {
            // The job was stopped while its steps were checked.
            let after = self.stepped.change(new.job, |job| job.after());
            self.follow(outbox, new.job, after);
            self.settle(outbox);
            return Vec::new();
        }
        let Some(job) = self.stepped.get(new.job) else { return Vec::new() };
        let (priority, file_hold) = (job.priority, job.file_hold.clone());
        let NewSteps { job: of, user, steps, .. } = new;
        let (mut programs, mut jobs) = (Vec::with_capacity(steps.len()), Vec::new());
        let mut job = first;
        for step in steps {
            let next = JobId(job.0 + step.work.jobs() as i64);
            let step_of = StepOf { job: of, step: step.number, beside: step.beside };
            let new = |job, step_of, spec, reads| {
                let (user, file_hold) = (user.to_string(), file_hold.clone());
                NewJobStep { job, step_of, spec, reads, user, priority, file_hold }
            };
            match step.work {
                StepWork::Program(task) => {
                    let spec = JobSpec::of_one_task(step.name.to_string(), task.as_ref().clone());
                    programs.push((job, step_of, Arc::new(spec)));
                }
                StepWork::MapReduce(spec) => jobs.push(vec![new(job, step_of, spec, Vec::new())]),
                StepWork::Flow(flow) => {
                    let of_flow = flow.into_iter().zip(job.0..).map(|(step, job)| {
                        let step_of = StepOf { job: of, step: step.number, beside: Vec::new() };
                        new(JobId(job), step_of, step.spec, step.reads)
                    });
                    jobs.push(of_flow.collect());
                }
            }
            job = next;
        }
        let spec_bytes = programs.iter().map(|(.., spec)| spec_bytes(spec)).sum();
        let more = Has { jobs: programs.len() as u32, spec_bytes };
        if let Some(writer) = early {
            self.work.scheduling.early_mut().insert(first, of, writer);
        }
        let number = self.users.jobs_begin(user.to_string(), more);
        let user_in_row = Some(user.to_string()).filter(|user| !user.is_empty());
        let (server, window, name_of_all) = (server.to_string(), window(&self.work.fleet), None);
        let batch = OfBatch { server, user_in_row, number, priority, file_hold, window, name_of_all };
        for (job, step_of, spec) in programs {
            self.begin_single(outbox, &batch, job, spec, None, Some(step_of));
        }
        if early.is_some() {
            feed(&mut self.work, outbox, Event::JobHeld { job: first });
        }
        outbox.touch(of);
        self.settle(outbox);
        jobs
    }

    /// Returns whether a job with steps ends: none of its steps may begin.
    pub fn ends_steps(&self, job: JobId) -> bool {
        self.stepped.get(job).is_none_or(SteppedJob::is_stopping)
    }

    /// Ends a step that is a MapReduce job and could not begin, and with it the job of which it is a step.
    pub fn job_step_failed(&mut self, outbox: &mut Outbox, job: JobId, reason: String) {
        let failure = TaskFailure::new(Blame::UserData, reason);
        let exit_code = crate::job::exit_code(&failure);
        let outcome = JobOutcome::Failed { failure, attempt: None, exit_code };
        self.ends.has_finished(outbox, job, outcome.clone());
        self.step_over(outbox, job, &outcome);
        self.settle(outbox);
    }

    /// Ends the job of steps that cannot begin.
    pub fn refuse_steps(&mut self, outbox: &mut Outbox, job: JobId, reason: String) {
        let after = self.stepped.change(job, |job| job.refuse(reason));
        self.follow(outbox, job, after);
        self.settle(outbox);
    }

    /// Restores jobs with steps. Must come before their steps are restored.
    pub fn recover_stepped(&mut self, jobs: Vec<RecoveredSteps>) {
        for recovered in jobs {
            let RecoveredSteps { job, spec, plan, recorded, user, priority, cancel_asked, steps, file_hold } =
                recovered;
            let owner = self.users.job_begins(user, spec_bytes(&spec));
            let mut stepped = SteppedJob::new(owner, priority, plan.clone().ok());
            stepped.file_hold = file_hold;
            (stepped.shipped, stepped.pinned) = (shipped_contents(&spec), pinned_contents(&spec));
            stepped.remembers(recorded);
            self.stepped.insert(job, stepped);
            restore_steps(&mut self.stepped, job, &steps);
            let own = |step: &&StepRow| step.step.0 < LOOKS_FROM;
            // A step that failed because its input was lost runs again after it.
            let mut last: BTreeMap<StepNumber, JobId> = BTreeMap::new();
            for step in &steps {
                let last = last.entry(step.step).or_insert(step.job);
                *last = (*last).max(step.job);
            }
            let is_last = |step: &&StepRow| last.get(&step.step) == Some(&step.job);
            let with =
                |state: JobState| steps.iter().filter(own).filter(is_last).find(|step| step.state == state);
            let failed = with(JobState::Failed).or_else(|| with(JobState::Cancelled));
            let ends = match (plan.err(), cancel_asked, failed) {
                (_, Some(reason), _) => Some(JobOutcome::Cancelled { reason }),
                (Some(reason), ..) => Some(failure(reason, None)),
                (_, _, Some(StepRow { job, name, state: JobState::Failed, exit_code, .. })) => {
                    Some(failure(step_failed(name, *job), *exit_code))
                }
                (_, _, Some(StepRow { job, name, .. })) => {
                    Some(JobOutcome::Cancelled { reason: step_stopped(name, *job) })
                }
                (None, None, None) => None,
            };
            self.recovering.push((job, ends));
        }
    }

    /// Lets the restored jobs with steps go on, or end.
    pub(super) fn stepped_go_on(&mut self, outbox: &mut Outbox) {
        for (job, ends) in std::mem::take(&mut self.recovering) {
            self.hold_early_readers(outbox, job);
            for step in self.stepped.open_steps(job) {
                if !self.work.jobs.contains_key(&step) && !self.backlog.has(step) {
                    self.stepped.not_begun(step);
                    write_interrupted(outbox, step, "the server died before the step began");
                    continue;
                }
                let stages = self.work.scheduling.stage_counts(step).unwrap_or_default();
                if stages.iter().any(|stage| stage.running > 0) {
                    self.stepped.step_goes_on(step);
                }
            }
            let size = self.work.fleet.largest_node();
            let after = self.stepped.change(job, |job| match ends {
                Some(outcome) => job.stop(outcome),
                None => job.plan(size),
            });
            self.follow(outbox, job, after);
            // Steps that were restored after the reason of the end are not stopped yet.
            if self.stepped.get(job).is_some_and(SteppedJob::is_stopping) {
                self.follow(outbox, job, Some(AfterStep::Stop(self.stepped.open_steps(job))));
            }
        }
    }

    /// Cancels a job with steps. Returns false for any other job.
    pub(super) fn cancel_stepped(&mut self, outbox: &mut Outbox, job: JobId, reason: &str) -> bool {
        if !self.stepped.has(job) {
            return false;
        }
        outbox.note(job, EventKind::JobCancelAsked, reason.to_string());
        let outcome = JobOutcome::Cancelled { reason: reason.to_string() };
        let after = self.stepped.change(job, |job| job.stop(outcome));
        self.follow(outbox, job, after);
        true
    }

    /// Records an attempt of a job, if it is a step.
    pub(super) fn step_runs(&mut self, outbox: &mut Outbox, job: JobId, node: NodeId) {
        let Some(spec) = self.work.jobs.get(&job).map(|job| Arc::clone(job.spec())) else { return };
        self.stepped.step_runs(job, spec.kind.program(), node).into_iter().for_each(|job| outbox.touch(job));
    }

    /// Remembers the runs of the programs of a job, if it is a step.
    pub(super) fn step_ran(&mut self, outbox: &mut Outbox, job: JobId, result: RunResult) {
        let is_look = !result.looked.is_empty();
        let Some((user, runs)) = self.stepped.ran(job, result) else { return };
        for StepRecord { job, run } in runs {
            let Some(path) = run.run.key_path().map(Path::to_path_buf) else { continue };
            let (user, now_ns) = (user.to_string(), outbox.now_ns());
            let job = Some(job).filter(|_| !is_look);
            outbox.write(Change::RunFinished { user, path, job, run, now_ns });
        }
    }

    /// Handles the end of a job, which may be a step of another one.
    pub(super) fn step_over(&mut self, outbox: &mut Outbox, job: JobId, outcome: &JobOutcome) {
        if let Some((of, after)) = self.stepped.step_over(job, outcome, self.work.fleet.largest_node()) {
            outbox.touch(of);
            self.follow(outbox, of, Some(after));
        }
    }

    fn follow(&mut self, outbox: &mut Outbox, job: JobId, after: Option<AfterStep>) {
        for (kind, detail) in self.stepped.take_notes(job) {
            outbox.note(job, kind, detail);
        }
        match after {
            None | Some(AfterStep::GoesOn) => {}
            Some(AfterStep::Stop(steps)) => {
                steps.into_iter().for_each(|step| self.cancel_one(outbox, step, JOB_ENDS.to_string()));
            }
            Some(AfterStep::Over(outcome)) => self.stepped_over(outbox, job, outcome),
        }
    }

    fn stepped_over(&mut self, outbox: &mut Outbox, id: JobId, outcome: JobOutcome) {
        let Some(job) = self.stepped.remove(id) else { return };
        let JobOwner { number, spec_bytes, .. } = job.owner;
        self.users.job_over(number, spec_bytes);
        let now_ns = outbox.now_ns();
        let (state, exit_code, error) = match &outcome {
            JobOutcome::Succeeded(_) | JobOutcome::Done => (JobState::Succeeded, 0, None),
            JobOutcome::Failed { failure, exit_code, .. } => {
                (JobState::Failed, *exit_code, Some(failure.message.clone()))
            }
            JobOutcome::Cancelled { reason } => (JobState::Cancelled, EXIT_CANCELLED, Some(reason.clone())),
        };
        outbox.write(Change::JobEnded { job: id, state, exit_code: Some(exit_code), error, now_ns });
        outbox.write(Change::JobCleaned { job: id, kept: Keep::Nothing, now_ns });
        self.ends.has_finished(outbox, id, outcome);
    }

    /// Marks the jobs with steps as interrupted, because the process ends.
    pub fn interrupt_stepped(&mut self, outbox: &mut Outbox) {
        debug_assert!(self.work.service == Service::Embedded, "the jobs of a cluster go on");
        self.stepped.ids().for_each(|job| write_interrupted(outbox, job, "the server was shut down"));
    }
}

/// Returns a stored input of a MapReduce job as a pinned file.
fn pinned_input(input: &InputFile) -> Option<PinnedFile> {
    let (path, stored) = (input.path.clone(), input.stored.clone()?);
    Some(PinnedFile { path, stored, ..PinnedFile::default() })
}

fn write_interrupted(outbox: &mut Outbox, job: JobId, why: &str) {
    let (state, now_ns, error) = (JobState::Interrupted, outbox.now_ns(), Some(why.to_string()));
    outbox.write(Change::JobEnded { job, state, exit_code: None, error, now_ns });
    outbox.write(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
}

/// Restores the steps that had begun. An interrupted one was lost before it began; it gets another job.
fn restore_steps(jobs: &mut SteppedJobs, job: JobId, steps: &[StepRow]) {
    // Files are compared again with finished runs.
    let begun = |step: &&StepRow| step.state != JobState::Interrupted && step.step.0 < LOOKS_FROM;
    for step in steps.iter().filter(begun) {
        let of = StepOf { job, step: step.step, beside: step.beside.clone() };
        match step.state {
            JobState::Running | JobState::Committing => {
                jobs.restore(of, &step.name, step.job, BegunStep::Open);
            }
            JobState::Succeeded => jobs.restore(of, &step.name, step.job, BegunStep::Finished),
            // They end their job.
            JobState::Failed | JobState::Cancelled | JobState::Interrupted => {}
        }
    }
}

fn failure(reason: String, exit_code: Option<i32>) -> JobOutcome {
    let failure = TaskFailure::new(Blame::UserProgram, reason);
    JobOutcome::Failed { failure, attempt: None, exit_code: exit_code.unwrap_or(1) }
}
