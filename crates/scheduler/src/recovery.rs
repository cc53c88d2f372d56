//! Recovery of a job of a previous server.

use crate::reactor::advance;
use crate::state::{Job, Phase, Running, Stage, State};
use crate::{Claim, Outbox, RecoveredTask, Slot, UnixNanos};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, TaskIndex, TaskKey};
use std::collections::{BTreeMap, BTreeSet};

/// The parts of [`crate::Event::JobRecovered`].
pub(crate) struct Recovered {
    pub job: JobId,
    pub claim: Claim,
    pub stages: Vec<StageKind>,
    pub failures_max: u32,
    pub tasks: Vec<Vec<RecoveredTask>>,
    pub running: Vec<(AttemptKey, Slot)>,
    pub attempts_used: Vec<(StageIndex, u32)>,
    pub standing: Vec<(StageIndex, TaskIndex, AttemptNumber)>,
}

pub(crate) fn on_job_recovered(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    recovered: Recovered,
) {
    let id = recovered.job;
    let current = recovered.tasks.len().checked_sub(1).expect("a recovered job has its first stage");
    let mut stages: Vec<Stage> =
        recovered.stages.iter().map(|kind| Stage { kind: *kind, ..Stage::default() }).collect();
    for (stage, used) in recovered.attempts_used {
        let index = usize::from(stage.0);
        stages[index].attempts_used = used;
        if index > current {
            stages[index].attempts_base = used;
        }
    }
    for (stage, task, winner) in recovered.standing {
        stages[usize::from(stage.0)].stand_done(task, winner);
    }
    let running: BTreeMap<AttemptKey, Running> = recovered
        .running
        .into_iter()
        .map(|(attempt, slot)| (attempt, Running { is_taken_over: true, ..Running::new(slot, now) }))
        .collect();
    for (index, (stage, tasks)) in stages.iter_mut().zip(recovered.tasks).enumerate() {
        stage.restore(tasks);
        let own = running.keys().filter(|attempt| usize::from(attempt.task.stage.0) == index);
        own.for_each(|attempt| stage.tasks[attempt.task.task.0 as usize].running += 1);
        stage.queue_idle();
    }
    let mut job = Job::new(recovered.claim, stages, recovered.failures_max, Phase::Running);
    (job.current, job.running) = (StageIndex(current as u16), running);
    // Attempts that were told to stop may not know it.
    let done: BTreeSet<TaskKey> = job.running.keys().map(|attempt| attempt.task).collect();
    for task in done {
        match job.task(task).is_some_and(|task| task.winner.is_some()) {
            true => job.stop_others(outbox, task, None),
            false => job.stop_surplus(outbox, task),
        }
    }
    let (user, slots) = (job.claim.user, job.running.len() as u32 * job.claim.needs.slots());
    // No check of the memory: a job that has begun has its memory already.
    let has_begun = current > 0 || job.stages[0].tasks.iter().any(|task| task.attempts_started > 0);
    let placed = |(attempt, running): (&AttemptKey, &Running)| (*attempt, running.slot.node);
    let placed: Vec<(AttemptKey, NodeId)> = job.running.iter().map(placed).collect();
    state.add_job(id, job);
    if has_begun {
        state.take_memory(id);
    }
    for (attempt, node) in placed {
        state.take_attempt_memory(id, node);
        // The previous server chose the slots beside. They do the same as any others of the node.
        state.take_slots_beside(attempt, node);
    }
    state.users.entry(user).or_default().served.running += slots;
    advance(state, outbox, id);
    state.claim(id, now);
}
