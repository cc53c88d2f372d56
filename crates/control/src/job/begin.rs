//! Beginning of jobs.

use crate::interface::{ControlError, JobStart, NewJob, Outbox};
use crate::job::{Job, Jobs, range_cuts};
use crate::membership::needs_of;
use crate::replication::begin_to_replicate;
use crate::scheduling::speculative_attempts;
use crate::users::JobOwner;
use crate::work::Work;
use api::control::{JobProgress, StageProgress};
use api::{Boundaries, KeyBytes};
use ids::{BoundariesVersion, JobId};
use mapreduce::{AttemptTime, JobResults};
use rows::Change;
use scheduler::{Claim, Event, StageCounts, StepRank};

/// Adds a job. Returns the events that submit it to the scheduler.
pub(crate) fn begin_job(work: &mut Work, new: NewJob, owner: JobOwner, step: Option<StepRank>) -> Vec<Event> {
    let NewJob { job: id, spec, dirs, start, priority, file_hold, part_nodes, .. } = new;
    let results = match start {
        JobStart::Splits(splits) => JobResults::new(id, splits),
        JobStart::Kept(results) => *results,
    };
    let mut job = Job::new(id, spec, dirs, results);
    job.file_hold = file_hold;
    job.part_nodes = part_nodes;
    begin_to_replicate(&mut work.fleet, work.service, &mut job);
    let needs = needs_of(&mut work.scheduling, work.service, &job.spec);
    let claim = Claim { user: owner.number, priority, needs, step };
    job.owner = owner;
    let (stages, failures_max) = (job.stage_kinds.clone(), job.failures_max());
    let (may_copy, may_split) = (speculative_attempts::allowed(&job), range_cuts::allowed(&job));
    work.jobs.insert(job);
    let first = Event::JobSubmitted { job: id, claim, stages, failures_max };
    [Some(first), may_copy, may_split].into_iter().flatten().collect()
}

/// Proposes range boundaries; the first proposal wins.
pub(crate) fn propose(
    jobs: &mut Jobs,
    outbox: &mut Outbox,
    id: JobId,
    keys: Vec<KeyBytes>,
) -> Result<Boundaries, ControlError> {
    let job = jobs.get_mut(&id).ok_or(ControlError::UnknownJob { job: id })?;
    if let Some(boundaries) = &job.boundaries {
        return Ok(boundaries.clone());
    }
    let boundaries = Boundaries { version: BoundariesVersion(1), keys };
    job.boundaries = Some(boundaries.clone());
    outbox.write(Change::Boundaries { job: id, boundaries: boundaries.clone(), now_ns: outbox.now_ns() });
    Ok(boundaries)
}

/// Returns the progress of a job that is not cleaned.
pub(crate) fn progress(work: &Work, id: JobId) -> Option<JobProgress> {
    let job = work.jobs.get(&id)?;
    let counts = work.scheduling.stage_counts(id);
    let over = counts.is_none();
    let stages = match counts {
        Some(counts) => counts.into_iter().map(stage_progress).collect(),
        None => last_progress(job),
    };
    Some(JobProgress { stages, over, parts_ready: job.in_flow.parts_ready })
}

fn stage_progress(stage: StageCounts) -> StageProgress {
    StageProgress {
        kind: stage.kind,
        expanded: stage.expanded,
        tasks: stage.tasks,
        done: stage.done,
        running: stage.running,
        skipped: 0,
    }
}

/// Returns the progress of a job that is over: complete if it succeeded, otherwise as far as its tasks got.
fn last_progress(job: &Job) -> Vec<StageProgress> {
    let mut stages = Vec::new();
    for (index, kind) in job.stage_kinds.iter().copied().enumerate() {
        let tasks = job.tasks.get(index).map_or(0, |tasks| tasks.len() as u32);
        let won = |attempt: &&AttemptTime| usize::from(attempt.stage.0) == index && attempt.won;
        let done = job.results.attempts.iter().filter(won).count() as u32;
        let expanded = index < job.tasks.len();
        stages.push(StageProgress { kind, expanded, tasks, done, running: 0, skipped: 0 });
    }
    stages
}
