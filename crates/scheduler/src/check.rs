//! Conditions that hold after every event.

use crate::Slot;
use crate::state::{Job, Phase, State, Task};
use ids::{AttemptKey, InputNodes, JobId, Placement, StageIndex, TaskIndex, TaskKey};
use std::collections::BTreeMap;

/// Panics if the state contradicts itself.
pub fn sanity_check(state: &State) {
    let mut user_running: BTreeMap<u64, u32> = BTreeMap::new();
    for (id, job) in &state.jobs {
        check_job(*id, job);
        if !job.running.is_empty() {
            *user_running.entry(job.claim.user).or_default() += job.running.len() as u32;
        }
        let stage = &job.stages[usize::from(job.current.0)];
        let waits = |task: &Task| match &task.placement {
            _ if job.phase != Phase::Running || !task.queued || task.winner.is_some() => false,
            _ if state.line.contains(id) => false,
            _ if task.only.is_some() => {
                task.only.iter().flatten().any(|node| state.free_slots.first_of(*node).is_some())
            }
            // Whether it may have such a slot depends on the other waiting jobs, and on their waiting times.
            Placement::Anywhere if !job.claim.needs.is_nothing() && !job.claim.needs.everywhere => false,
            Placement::Anywhere if !job.claim.needs.everywhere => !state.free_slots.is_empty(),
            Placement::Anywhere => state.free_slots.iter().any(|slot| state.shares(slot.node)),
            Placement::On(node) => {
                state.free_slots.first_of(*node).is_some() || state.draining_slots.first_of(*node).is_some()
            }
            Placement::Near(nodes) | Placement::Planned(InputNodes { nodes, .. }) => {
                nodes.iter().any(|node| state.free_slots.first_of(*node).is_some())
            }
        };
        assert!(!stage.tasks.iter().any(waits), "work of job {id} and a slot for it wait for each other");
        let idle = |task: &Task, index: usize| {
            let key = key(*id, job.current.0, index);
            task.winner.is_none() && !task.queued && job.live(key).next().is_none()
        };
        let is_stuck = stage.tasks.iter().enumerate().any(|(index, task)| idle(task, index));
        assert!(job.phase != Phase::Running || !is_stuck, "job {id} forgot a task");
    }
    let running = state.users.iter().filter(|(_, user)| user.served.running > 0);
    let counted: BTreeMap<u64, u32> = running.map(|(id, user)| (*id, user.served.running)).collect();
    let user_jobs: u32 = state.users.values().map(|user| user.jobs).sum();
    assert_eq!(user_jobs as usize, state.jobs.len(), "jobs of users are miscounted");
    assert_eq!(user_running, counted, "running attempts of users are miscounted");
    check_memory(state);
    let misplaced = |slot: &&crate::Slot| state.draining.contains(&slot.node);
    assert!(!state.free_slots.iter().any(|slot| misplaced(&slot)), "a node that drains is offered work");
    assert!(state.draining_slots.iter().all(|slot| misplaced(&slot)), "a node that works is kept idle");
    assert!(
        !state.places.iter().any(|place| misplaced(&place)),
        "a node that drains is offered waiting work"
    );
    for slot in state.free_slots.iter().chain(state.draining_slots.iter()).chain(state.places.iter()) {
        let busy = state.jobs.values().flat_map(|job| job.running.values()).any(|each| each.slot == *slot);
        assert!(!busy, "{slot:?} waits and runs");
    }
}

fn check_memory(state: &State) {
    let with_memory = state.jobs.values().filter(|job| job.has_memory);
    let held_bytes: u64 = with_memory.map(|job| job.claim.needs.memory_bytes).sum();
    assert_eq!(held_bytes, state.held_bytes, "the memory of jobs on all nodes is miscounted");
    for (node, room) in &state.rooms {
        let there = |job: &Job| {
            let here = job.running.values().filter(|running| running.slot.node == *node).count() as u64;
            if job.claim.needs.everywhere { 0 } else { here * job.claim.needs.memory_bytes }
        };
        let ran_bytes: u64 = state.jobs.values().map(there).sum();
        assert_eq!(ran_bytes, room.ran_bytes, "the memory of attempts on {node} is miscounted");
    }
    let waits = |id: &JobId| state.jobs.get(id).is_some_and(|job| !job.has_memory && job.running.is_empty());
    assert!(state.line.iter().all(waits), "a job in line runs, or is gone");
    assert!(state.kept.is_none_or(|(job, _)| state.jobs.contains_key(&job)), "a node is kept for nobody");
}

fn key(job: JobId, stage: u16, task: usize) -> TaskKey {
    TaskKey { job, stage: StageIndex(stage), task: TaskIndex(task as u32) }
}

fn check_job(id: JobId, job: &Job) {
    assert!(job.phase != Phase::Over || !job.running.is_empty(), "job {id} is over and was kept");
    assert!(job.phase != Phase::Cancelling || !job.running.is_empty(), "job {id} was never cancelled");
    for (index, stage) in job.stages.iter().enumerate() {
        let current = usize::from(job.current.0);
        assert!(index >= current || stage.complete(), "job {id} left {} incomplete", stage.kind);
        assert!(index <= current || !stage.expanded, "job {id} ran ahead to {}", stage.kind);
        let done = stage.tasks.iter().filter(|task| task.winner.is_some()).count();
        assert_eq!(done, stage.done as usize, "job {id} miscounts {}", stage.kind);
        for (task_index, task) in stage.tasks.iter().enumerate() {
            assert!(task.failures <= job.failures_max && task.failures <= task.attempts_started);
            assert!(task.winner.is_none_or(|winner| winner.0 < task.attempts_started));
            let live: Vec<_> = job.live(key(id, index as u16, task_index)).collect();
            assert_eq!(live.len(), task.running as usize, "job {id} miscounts attempts");
            assert!(task.winner.is_none() || live.is_empty(), "job {id} runs what is done: {live:?}");
            let apart = |pair: &[(AttemptKey, Slot)]| pair[0].1.node != pair[1].1.node;
            assert!(live.len() <= 2 && live.windows(2).all(apart), "job {id} copies badly: {live:?}");
        }
    }
    assert!(job.running.values().all(|running| running.started.0 > 0), "job {id} ran before 1970");
    let is_gone = |attempt: &AttemptKey| !job.running.contains_key(attempt);
    assert!(!job.watch.attempts().any(|attempt| is_gone(&attempt)), "job {id} watches what is gone");
}
