//! Conditions that hold after every event.

use crate::Slot;
use crate::memory::{Amount, Room};
use crate::state::{Job, Phase, State, Task};
use ids::{AttemptKey, InputNodes, JobId, NodeId, Placement, StageIndex, TaskIndex, TaskKey};
use std::collections::BTreeMap;

/// Panics if the state contradicts itself.
pub fn sanity_check(state: &State) {
    let mut user_running: BTreeMap<u64, u32> = BTreeMap::new();
    for (id, job) in &state.jobs {
        check_job(*id, job);
        if !job.running.is_empty() {
            let slots = job.running.len() as u32 * job.claim.needs.slots();
            *user_running.entry(job.claim.user).or_default() += slots;
        }
        let stage = &job.stages[usize::from(job.current.0)];
        let waits = |task: &Task| has_slot_waiting(state, *id, job, task);
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
    assert_eq!(user_running, counted, "slots in use by users are miscounted");
    check_memory(state);
    check_slots_beside(state);
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

/// Returns whether a task waits while a slot waits for it.
fn has_slot_waiting(state: &State, id: JobId, job: &Job, task: &Task) -> bool {
    let needs = job.claim.needs;
    let is_queued = job.phase == Phase::Running && !job.is_held && task.queued && task.winner.is_none();
    if !is_queued || state.line.contains(&id) {
        return false;
    }
    let reserved = state.node_kept_for_wide();
    // Whether a task with memory fits depends on the other waiting jobs too.
    let may_run = |node: NodeId| {
        let may_pass = !needs.picks_nodes() || (!needs.takes_amounts() && state.fits(needs, node));
        reserved != Some(node) && may_pass
    };
    let is_free = |node: NodeId| state.free_slots.first_of(node).is_some() && may_run(node);
    let is_draining = |node: NodeId| state.draining_slots.first_of(node).is_some() && may_run(node);
    match &task.placement {
        _ if task.only.is_some() => task.only.iter().flatten().any(|node| is_free(*node)),
        // Whether it may have such a slot depends on the other waiting jobs, and on their waiting times.
        Placement::Anywhere if needs.takes_amounts() => false,
        Placement::Anywhere if needs.architecture.is_some() && !needs.everywhere => false,
        Placement::Anywhere if !needs.everywhere => state.free_slots.nodes().any(is_free),
        Placement::Anywhere => state.free_slots.nodes().any(|node| state.shares(node) && is_free(node)),
        Placement::On(node) => is_free(*node) || is_draining(*node),
        Placement::Near(nodes) | Placement::Planned(InputNodes { nodes, .. }) => {
            nodes.iter().any(|node| is_free(*node))
        }
    }
}

/// Checks the slots that attempts have taken besides their own.
fn check_slots_beside(state: &State) {
    let mut taken: BTreeMap<(AttemptKey, NodeId), u32> = BTreeMap::new();
    let running = || state.jobs.values().flat_map(|job| job.running.values());
    for (slot, attempt) in state.occupied.iter() {
        *taken.entry((attempt, slot.node)).or_default() += 1;
        let waits = state.free_slots.iter().chain(state.draining_slots.iter()).any(|each| *each == slot);
        assert!(!waits, "{slot:?} waits, and {attempt} has taken it");
        assert!(!running().any(|each| each.slot == slot), "{slot:?} runs, and {attempt} has taken it");
    }
    for (attempt, node, owed) in state.occupied.owed() {
        assert!(owed > 0, "{attempt} gets slots that it has already");
        *taken.entry((attempt, node)).or_default() += owed;
    }
    let occupied = |place: &Slot| state.occupied.has_any_of(place.node);
    assert!(!state.places.iter().any(occupied), "an attempt shares its slots with the places of its node");
    let wide = state.jobs.values().filter(|job| job.claim.needs.is_wide());
    let expected = wide.flat_map(|job| {
        let beside = job.claim.needs.slots_beside;
        job.running.iter().map(move |(attempt, running)| ((*attempt, running.slot.node), beside))
    });
    assert_eq!(taken, expected.collect(), "slots beside those of attempts are miscounted");
    let excluded = |job: &Job| job.claim.needs.everywhere && job.claim.needs.is_wide();
    assert!(!state.jobs.values().any(excluded), "a job with memory on all nodes takes several slots");
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
        check_resources(state, *node, room);
    }
    let waits = |id: &JobId| state.jobs.get(id).is_some_and(|job| !job.has_memory && job.running.is_empty());
    assert!(state.line.iter().all(waits), "a job in line runs, or is gone");
    assert!(state.kept.is_none_or(|(job, _)| state.jobs.contains_key(&job)), "a node is kept for nobody");
    assert!(state.kept.is_some() || state.holders_when_kept.is_none(), "a whole node is kept for nobody");
}

/// Checks the generic resources that attempts have taken on a node.
fn check_resources(state: &State, node: NodeId, room: &Room) {
    let mut taken: BTreeMap<u32, u64> = BTreeMap::new();
    for job in state.jobs.values() {
        let here = job.running.values().filter(|running| running.slot.node == node).count() as u64;
        for Amount { kind, count } in job.claim.needs.resources.iter().filter(|_| here > 0) {
            *taken.entry(kind).or_default() += here * u64::from(count);
        }
    }
    assert_eq!(taken, room.taken, "the generic resources of attempts on {node} are miscounted");
    assert!(
        !state.jobs.values().any(|job| job.claim.needs.everywhere && !job.claim.needs.resources.is_none())
    );
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
