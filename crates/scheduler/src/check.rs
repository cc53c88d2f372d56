//! What must hold after every event.

use crate::ATTEMPTS_MAX;
use crate::state::{Job, Phase, State};
use ids::JobId;

/// Panics where the state contradicts itself.
pub fn sanity_check(state: &State) {
    let mut work_waits = false;
    for (id, job) in &state.jobs {
        check_job(*id, job);
        let stage = &job.stages[usize::from(job.current.0)];
        let again_waits = stage.again.iter().any(|task| stage.tasks[task.0 as usize].winner.is_none());
        work_waits |= job.phase == Phase::Running && (again_waits || stage.fresh < stage.task_count());
    }
    assert!(!work_waits || state.free_slots.is_empty(), "work and slots wait for each other");
    for (position, slot) in state.free_slots.iter().enumerate() {
        assert!(
            !state.free_slots.iter().skip(position + 1).any(|other| other == slot),
            "{slot:?} waits twice"
        );
        let busy = state.jobs.values().flat_map(|job| job.running.values()).any(|each| each.slot == *slot);
        assert!(!busy, "{slot:?} waits and runs");
    }
}

fn check_job(id: JobId, job: &Job) {
    assert!(job.phase != Phase::Over || !job.running.is_empty(), "job {id} is over and was kept");
    assert!(job.phase != Phase::Cancelling || !job.running.is_empty(), "job {id} was never cancelled");
    for (index, stage) in job.stages.iter().enumerate() {
        let current = usize::from(job.current.0);
        assert!(index >= current || stage.complete(), "job {id} left {} incomplete", stage.name);
        assert!(index <= current || !stage.expanded, "job {id} ran ahead to {}", stage.name);
        let done = stage.tasks.iter().filter(|task| task.winner.is_some()).count();
        assert_eq!(done, stage.done as usize, "job {id} miscounts {}", stage.name);
        for (task_index, task) in stage.tasks.iter().enumerate() {
            let running = job.running.keys().filter(|key| {
                usize::from(key.task.stage.0) == index && key.task.task.0 as usize == task_index
            });
            assert_eq!(running.count(), task.running as usize, "job {id} miscounts attempts");
            assert!(task.failures <= ATTEMPTS_MAX && task.failures <= task.attempts_started);
            assert!(task.winner.is_none_or(|winner| winner.0 < task.attempts_started));
        }
    }
    assert!(job.running.values().all(|running| running.started.0 > 0), "job {id} ran before 1970");
}
