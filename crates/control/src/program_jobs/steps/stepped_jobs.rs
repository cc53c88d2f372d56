//! All jobs with steps.

use crate::program_jobs::steps::writers::Writers;
use crate::program_jobs::steps::{AfterStep, BegunStep, NearStep, StepRecord, SteppedJob};
use crate::scheduling::EarlyWriter;
use crate::users::Users;
use api::control::{AttemptEnd, AttemptOutcome, JobOutcome};
use api::history::{EventKind, StepOf};
use api::task::{RunResult, RunTask};
use api::{ContentHash, StoredContent};
use ids::{JobId, NodeId};
use jobkind::{NodeSize, Step, StepPlan, StepWork};
use mapreduce::PartNodes;
use scheduler::StepRank;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of steps that begin together.
const STEPS_AT_ONCE: usize = 1_000;

/// The jobs with steps that are not over.
#[derive(Default)]
pub(crate) struct SteppedJobs {
    jobs: BTreeMap<JobId, SteppedJob>,
    /// The open steps, by their jobs.
    steps: BTreeMap<JobId, OpenStep>,
    /// Jobs with steps that may begin.
    ready: BTreeSet<JobId>,
    /// Jobs in which something changed since no step of theirs could begin early.
    changed: BTreeSet<JobId>,
    writers: Writers,
}

struct OpenStep {
    of: StepOf,
    name: Arc<str>,
}

/// Steps of a job that begin next. The server checks them and assigns numbers, and then begins or refuses them.
pub struct NewSteps {
    pub job: JobId,
    pub user: Arc<str>,
    /// Contents of the shipped files that they may use.
    pub shipped: Arc<BTreeSet<ContentHash>>,
    /// Stored files that they may read, by the identities of their bytes.
    pub pinned: Arc<BTreeMap<ContentHash, StoredContent>>,
    pub steps: Vec<Step>,
    /// Set for a single step that begins before this one has ended.
    pub early: Option<EarlyWriter>,
}

impl SteppedJobs {
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn has(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    pub fn get(&self, job: JobId) -> Option<&SteppedJob> {
        self.jobs.get(&job)
    }

    /// Returns the numbers of all jobs with steps.
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    pub fn insert(&mut self, id: JobId, job: SteppedJob) {
        if let Some(plan) = job.plan.as_deref() {
            self.writers.add(&job.owner.name, plan, id);
        }
        self.jobs.insert(id, job);
    }

    /// Returns a file of a plan that an open job of the user writes, with that job.
    pub fn other_writer(&self, user: &str, plan: &dyn StepPlan) -> Option<(PathBuf, JobId)> {
        self.writers.other_writer(user, plan)
    }

    pub fn remove(&mut self, id: JobId) -> Option<SteppedJob> {
        self.ready.remove(&id);
        self.changed.remove(&id);
        let job = self.jobs.remove(&id)?;
        if let Some(plan) = job.plan.as_deref() {
            self.writers.remove(&job.owner.name, plan, id);
        }
        Some(job)
    }

    /// Returns the place of a job among the steps of another; None for a job that is no open step.
    pub fn place_of(&self, job: JobId) -> Option<StepOf> {
        self.steps.get(&job).map(|step| step.of.clone())
    }

    /// Returns the place of a job among the steps of its job; None for a job that is no open step.
    pub fn rank_of(&self, job: JobId) -> Option<StepRank> {
        let of = &self.steps.get(&job)?.of;
        let numbers = std::iter::once(of.step).chain(of.beside.iter().copied());
        let rank = self.jobs.get(&of.job).map_or(0, |stepped| stepped.rank(numbers));
        Some(StepRank { of: of.job, rank })
    }

    /// Changes a job with steps. Returns the consequence; None for an unknown job.
    pub fn change(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut SteppedJob) -> AfterStep,
    ) -> Option<AfterStep> {
        let job = self.jobs.get_mut(&id)?;
        let after = change(job);
        self.changed.insert(id);
        match job.has_ready() {
            true => self.ready.insert(id),
            false => self.ready.remove(&id),
        };
        Some(after)
    }

    /// Restores a step that had begun.
    pub fn restore(&mut self, of: StepOf, name: &str, step: JobId, state: BegunStep) {
        let Some(job) = self.jobs.get_mut(&of.job) else { return };
        job.restore(of.step, &of.beside, step, state);
        if state == BegunStep::Open {
            self.steps.insert(step, OpenStep { of, name: name.into() });
        }
    }

    /// Removes an open step whose job did not outlive its server: it is planned again.
    pub fn not_begun(&mut self, step: JobId) {
        let Some(OpenStep { of, .. }) = self.steps.remove(&step) else { return };
        self.jobs.get_mut(&of.job).into_iter().for_each(|job| job.not_begun(of.step));
    }

    /// Takes the next steps of a job for which its user has room.
    pub fn next_steps(&mut self, users: &Users, size: NodeSize<'_>) -> Option<NewSteps> {
        let (id, steps) = self.ready.iter().find_map(|id| {
            let job = self.jobs.get_mut(id)?;
            job.fit(size);
            let left = job.quota.map_or(u32::MAX, |quota| users.jobs_left(job.owner.number, quota));
            let steps = job.take_steps(STEPS_AT_ONCE.min(left as usize));
            (!steps.is_empty()).then_some((*id, steps))
        })?;
        self.ready.remove(&id);
        let job = self.jobs.get(&id)?;
        let (shipped, pinned) = (Arc::clone(&job.shipped), Arc::clone(&job.pinned));
        Some(NewSteps { job: id, user: Arc::clone(&job.owner.name), shipped, pinned, steps, early: None })
    }

    /// Returns whether a step may perhaps begin early: something changed, and none waits that may begin.
    pub fn may_begin_early(&self) -> bool {
        !self.changed.is_empty() && self.ready.is_empty()
    }

    /// Takes a step that may begin early, of a job for which its user has room. `writes` tells whether the job of a step has
    /// a running attempt.
    pub fn next_early(
        &mut self,
        users: &Users,
        size: NodeSize,
        writes: impl Fn(JobId) -> bool,
    ) -> Option<NewSteps> {
        while let Some(id) = self.changed.first().copied() {
            let job = self.jobs.get_mut(&id);
            let has_room = |job: &&mut SteppedJob| {
                job.quota.is_none_or(|quota| users.jobs_left(job.owner.number, quota) > 0)
            };
            let taken = job.filter(has_room).and_then(|job| Some((job.take_early(size, &writes)?, job)));
            if let Some(((step, writer), job)) = taken {
                let (shipped, pinned) = (Arc::clone(&job.shipped), Arc::clone(&job.pinned));
                let (user, steps, early) = (Arc::clone(&job.owner.name), vec![step], Some(writer));
                return Some(NewSteps { job: id, user, shipped, pinned, steps, early });
            }
            self.changed.remove(&id);
        }
        None
    }

    /// Forgets a step that was taken to begin early and does not.
    pub fn drop_early(&mut self, new: &NewSteps) {
        if let Some(job) = self.jobs.get_mut(&new.job) {
            job.drop_early(&new.steps);
            if job.has_ready() {
                self.ready.insert(new.job);
            }
            self.changed.insert(new.job);
        }
    }

    /// Returns the steps of a job that began early, by their jobs, with those that write for them.
    pub fn restored_early(&mut self, job: JobId, size: NodeSize) -> Vec<(JobId, EarlyWriter)> {
        self.jobs.get_mut(&job).map(|job| job.restore_early(size)).unwrap_or_default()
    }

    /// Records that steps have jobs, numbered from `first`. Returns whether they may begin; if not, the consequence is
    /// as after any other change.
    pub fn begun(&mut self, new: &NewSteps, first: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&new.job) else { return false };
        let mut begun = Vec::with_capacity(new.steps.len());
        let mut next = first;
        for step in &new.steps {
            begun.push((step, next));
            next.0 += step.work.jobs() as i64;
        }
        if !job.begun(&begun) {
            return false;
        }
        for (step, first) in begun {
            let of = |step, beside| StepOf { job: new.job, step, beside };
            let StepWork::Flow(flow) = &step.work else {
                let (of, name) = (of(step.number, step.beside.clone()), Arc::clone(&step.name));
                self.steps.insert(first, OpenStep { of, name });
                continue;
            };
            for (step, id) in flow.iter().zip(first.0..) {
                let (of, name) = (of(step.number, Vec::new()), Arc::clone(&step.name));
                self.steps.insert(JobId(id), OpenStep { of, name });
            }
        }
        if job.has_ready() {
            self.ready.insert(new.job);
        }
        true
    }

    /// Leaves lost stored files only in failures of steps whose job can make the file again.
    pub fn keep_lost(&self, ends: &mut [AttemptEnd]) {
        for AttemptEnd { attempt, outcome, .. } in ends {
            let AttemptOutcome::Failed(failure) = outcome else { continue };
            let of = self.steps.get(&attempt.task.job).and_then(|step| self.jobs.get(&step.of.job));
            let makes = failure.lost_stored().is_some_and(|path| of.is_some_and(|of| of.has_made(path)));
            if failure.lost_stored().is_some() && !makes {
                failure.lost_file = None;
            }
        }
    }

    /// Records an attempt of a job, if it is a step. Returns the job of which it is one.
    pub fn step_runs(&mut self, job: JobId, task: Option<&RunTask>, node: NodeId) -> Option<JobId> {
        let StepOf { job: of, step, .. } = self.place_of(job)?;
        self.jobs.get_mut(&of)?.step_runs(step, task, node);
        self.changed.insert(of);
        Some(of)
    }

    /// Records that a job has a running attempt of a previous server, if it is a step.
    pub fn step_goes_on(&mut self, job: JobId) {
        let Some(StepOf { job: of, step, .. }) = self.place_of(job) else { return };
        self.jobs.get_mut(&of).into_iter().for_each(|job| job.step_goes_on(step));
    }

    /// Returns the nodes near the inputs of a job, if it is a step and they matter.
    pub fn near(&self, job: JobId, task: &RunTask) -> Option<NearStep> {
        self.jobs.get(&self.steps.get(&job)?.of.job)?.near(task)
    }

    /// Takes the nodes with the stored inputs of a job. Returns whether later changes matter; None for another job.
    pub fn inputs_moved(&mut self, job: JobId, parts: &PartNodes) -> Option<bool> {
        let job = self.jobs.get_mut(&job)?;
        job.learn_places(parts);
        Some(!job.is_stopping())
    }

    /// Takes the results of the programs of a job, if it is a step. Returns the user and the runs to be remembered.
    pub fn ran(&mut self, job: JobId, result: RunResult) -> Option<(Arc<str>, Vec<StepRecord>)> {
        let of = &self.steps.get(&job)?.of;
        let stepped = self.jobs.get_mut(&of.job)?;
        let runs = stepped.ran(of.step, job, result);
        Some((Arc::clone(&stepped.owner.name), runs))
    }

    /// Takes the notes for the history of a job.
    pub fn take_notes(&mut self, job: JobId) -> Vec<(EventKind, String)> {
        self.jobs.get_mut(&job).map(SteppedJob::take_notes).unwrap_or_default()
    }

    /// Records the end of a job, if it is a step. Returns the job of which it is one, and the consequence for it.
    pub fn step_over(
        &mut self,
        job: JobId,
        outcome: &JobOutcome,
        size: NodeSize<'_>,
    ) -> Option<(JobId, AfterStep)> {
        let OpenStep { of, name } = self.steps.remove(&job)?;
        let after = self.change(of.job, |job| job.step_over(of.step, &name, outcome, size))?;
        Some((of.job, after))
    }

    /// Returns the jobs of the open steps of a job.
    pub fn open_steps(&self, job: JobId) -> Vec<JobId> {
        self.jobs.get(&job).map(|job| job.open_steps().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{NewSteps, STEPS_AT_ONCE, SteppedJobs};
    use crate::program_jobs::steps::{AfterStep, BegunStep, SteppedJob};
    use crate::users::{Has, JobOwner, JobQuota, Users};
    use api::control::JobOutcome;
    use api::history::StepOf;
    use ids::{JobId, StepNumber};
    use jobkind::{FinishedSteps, NodeSize, Step, StepPlan, StepWork};
    use std::sync::Arc;

    /// Steps that need nothing, and one after all of them.
    struct Wide(u32);

    fn step(number: u32) -> Step {
        let work = StepWork::Program(Arc::default());
        Step { number: StepNumber(number), name: "step".into(), work, beside: Vec::new() }
    }

    impl StepPlan for Wide {
        fn first(&self, _: NodeSize) -> Vec<Step> {
            (0..self.0).map(step).collect()
        }

        fn next(&self, finished: &FinishedSteps<'_>, _: NodeSize) -> Vec<Step> {
            if finished.all.len() as u32 == self.0 { vec![step(self.0)] } else { Vec::new() }
        }
    }

    const JOB: JobId = JobId(1);

    fn wide(count: u32) -> SteppedJobs {
        let mut jobs = SteppedJobs::default();
        jobs.insert(JOB, SteppedJob::new(JobOwner::default(), 0, Some(Arc::new(Wide(count)))));
        assert_eq!(jobs.change(JOB, |job| job.plan(NodeSize::default())), Some(AfterStep::GoesOn));
        jobs
    }

    /// Begins all steps that may begin. Returns their number.
    fn begin(jobs: &mut SteppedJobs, next: &mut i64) -> usize {
        let mut count = 0;
        while let Some(new) = jobs.next_steps(&Users::default(), NodeSize::default()) {
            assert!(new.steps.len() <= STEPS_AT_ONCE);
            assert!(
                jobs.next_steps(&Users::default(), NodeSize::default()).is_none(),
                "others are begun while some are checked"
            );
            assert!(jobs.begun(&new, JobId(*next)));
            *next += new.steps.len() as i64;
            count += new.steps.len();
        }
        count
    }

    #[test]
    fn open_steps_are_bounded() {
        let (mut jobs, mut next) = (wide(10_500), 2);
        assert_eq!(begin(&mut jobs, &mut next), 10_000);
        assert_eq!(
            jobs.step_over(JobId(2), &JobOutcome::Done, NodeSize::default()),
            Some((JOB, AfterStep::GoesOn))
        );
        assert_eq!(begin(&mut jobs, &mut next), 1);
        assert_eq!(
            jobs.step_over(JobId(2), &JobOutcome::Done, NodeSize::default()),
            None,
            "it is over already"
        );
    }

    #[test]
    fn quota_limits_the_open_steps() {
        let mut users = Users::default();
        let mut job = SteppedJob::new(users.job_begins("ann".to_string(), 0), 0, Some(Arc::new(Wide(9))));
        job.quota = Some(JobQuota { jobs_max: 4, spec_bytes_max: 1 });
        let mut jobs = SteppedJobs::default();
        jobs.insert(JOB, job);
        jobs.change(JOB, |job| job.plan(NodeSize::default()));
        let new = jobs.next_steps(&users, NodeSize::default()).expect("there is room for three");
        assert_eq!(new.steps.len(), 3);
        assert!(jobs.begun(&new, JobId(2)));
        users.jobs_begin("ann".to_string(), Has { jobs: 3, spec_bytes: 0 });
        assert!(jobs.next_steps(&users, NodeSize::default()).is_none());
        jobs.step_over(JobId(2), &JobOutcome::Done, NodeSize::default());
        users.job_over(0, 0);
        assert_eq!(jobs.next_steps(&users, NodeSize::default()).map(|new| new.steps.len()), Some(1));
        // A job goes on even if other jobs of its user take all room.
        let mut alone = wide(2);
        alone.change(JOB, |job| {
            job.quota = Some(JobQuota { jobs_max: 0, spec_bytes_max: 1 });
            AfterStep::GoesOn
        });
        assert_eq!(alone.next_steps(&users, NodeSize::default()).map(|new| new.steps.len()), Some(1));
    }

    #[test]
    fn job_ends_with_its_last_step() {
        let (mut jobs, mut next) = (wide(2), 2);
        begin(&mut jobs, &mut next);
        assert_eq!(
            jobs.step_over(JobId(3), &JobOutcome::Done, NodeSize::default()),
            Some((JOB, AfterStep::GoesOn))
        );
        assert_eq!(begin(&mut jobs, &mut next), 0);
        assert_eq!(
            jobs.step_over(JobId(2), &JobOutcome::Done, NodeSize::default()),
            Some((JOB, AfterStep::GoesOn))
        );
        assert_eq!(begin(&mut jobs, &mut next), 1);
        let over = AfterStep::Over(JobOutcome::Done);
        assert_eq!(jobs.step_over(JobId(4), &JobOutcome::Done, NodeSize::default()), Some((JOB, over)));
    }

    /// The steps that are checked when a job is stopped never begin, and the job ends after them.
    #[test]
    fn stop_while_steps_are_checked() {
        let mut jobs = wide(2);
        let new: NewSteps = jobs.next_steps(&Users::default(), NodeSize::default()).expect("two may begin");
        let stopped = JobOutcome::Cancelled { reason: "stopped".to_string() };
        assert_eq!(jobs.change(JOB, |job| job.stop(stopped.clone())), Some(AfterStep::GoesOn));
        assert!(!jobs.begun(&new, JobId(2)));
        assert_eq!(jobs.place_of(JobId(2)), None);
        assert_eq!(jobs.change(JOB, |job| job.after()), Some(AfterStep::Over(stopped)));
    }

    #[test]
    fn finished_steps_stay_so_after_a_restart() {
        let mut jobs = SteppedJobs::default();
        jobs.insert(JOB, SteppedJob::new(JobOwner::default(), 0, Some(Arc::new(Wide(3)))));
        let of = |number| StepOf { job: JOB, step: StepNumber(number), beside: Vec::new() };
        jobs.restore(of(0), "step", JobId(2), BegunStep::Finished);
        jobs.restore(of(2), "step", JobId(4), BegunStep::Open);
        assert_eq!(jobs.change(JOB, |job| job.plan(NodeSize::default())), Some(AfterStep::GoesOn));
        let new = jobs.next_steps(&Users::default(), NodeSize::default()).expect("one has not begun");
        assert_eq!(new.steps, [step(1)]);
        assert!(jobs.begun(&new, JobId(5)));
        for job in [4, 5] {
            assert_eq!(
                jobs.step_over(JobId(job), &JobOutcome::Done, NodeSize::default()),
                Some((JOB, AfterStep::GoesOn))
            );
        }
        assert_eq!(
            jobs.next_steps(&Users::default(), NodeSize::default()).expect("the last").steps,
            [step(3)]
        );
    }
}
