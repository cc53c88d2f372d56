//! Which task goes to which slot: first come, first served by (job, stage, task), retries first.

use crate::state::{Phase, Running, State};
use crate::{Action, Outbox, UnixNanos};
use ids::{AttemptKey, AttemptNumber, TaskKey};

/// Gives every waiting slot work as long as there is some.
pub(crate) fn dispatch(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos) {
    while !state.free_slots.is_empty() {
        let Some(attempt) = take_next(state) else { return };
        let slot = state.free_slots.pop_front().expect("the loop ends when no slot waits");
        let job = state.jobs.get_mut(&attempt.task.job).expect("the attempt was made from this job");
        job.running.insert(attempt, Running { slot, started: now });
        outbox.push(Action::StartAttempt { attempt, slot });
    }
}

fn take_next(state: &mut State) -> Option<AttemptKey> {
    for (id, job) in &mut state.jobs {
        if job.phase != Phase::Running {
            continue;
        }
        let stage_index = job.current;
        let stage = job.stage(stage_index);
        let Some(index) = stage.take_ready() else { continue };
        let task = &mut stage.tasks[index.0 as usize];
        let attempt = AttemptNumber(task.attempts_started);
        task.attempts_started += 1;
        task.running += 1;
        return Some(AttemptKey { task: TaskKey { job: *id, stage: stage_index, task: index }, attempt });
    }
    None
}
