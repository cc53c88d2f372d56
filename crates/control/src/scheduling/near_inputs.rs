//! Plans of map tasks over stored files, and over files that only some nodes see: which node runs which task, by the
//! nodes that have the inputs.

use crate::flows::near_stage_files;
use crate::interface::Outbox;
use crate::job::Job;
use crate::membership::Node;
use crate::program_jobs::steps::NearStep;
use crate::scheduling::feed;
use crate::scheduling::seen_inputs::{Seeing, bound};
use crate::work::Work;
use api::Task;
use api::task::RunTask;
use ids::{InputNodes, JobId, Placement, StageIndex, StageKind, TaskIndex};
use mapreduce::{PartNodes, near_splits, placement};
use scheduler::{Event, UnixNanos};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Assumed rate at which a node fetches an input from another one: about that of a link of 1 Gbit/s.
const FETCH_BYTES_PER_SECOND: u64 = 100_000_000;
/// Assumed time until its first byte comes.
const FETCH_BEGINS_NS: u64 = 20_000_000;
/// Longest wait of a task for its nodes: a large file that is one task shall not keep slots idle.
const WAIT_NS_MAX: u64 = 5_000_000_000;
/// Shortest time between two plans of the same tasks.
const PLAN_AGAIN_NS: u64 = 1_000_000_000;

/// The state of the plans.
#[derive(Default)]
pub(crate) struct Planning {
    /// True if places of inputs have changed since the last plan.
    are_moved: bool,
    /// Number of changes of nodes at the last plan.
    fleet_changes: u64,
    planned_at: UnixNanos,
}

/// Returns the time in which a node fetches these bytes.
fn fetch_ns(bytes: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(FETCH_BYTES_PER_SECOND);
    u64::try_from(ns).unwrap_or(u64::MAX).saturating_add(FETCH_BEGINS_NS).min(WAIT_NS_MAX)
}

/// Plans the tasks of a first stage that could run anywhere and have stored inputs, and those that only some nodes can
/// run. The others keep their placements.
pub(crate) fn plan_maps(work: &Work, id: JobId, tasks: &[(TaskIndex, &Task)], placements: &mut [Placement]) {
    let Some(job) = work.jobs.get(&id).filter(|job| job.is_planned()) else { return };
    let split = |(_, task): &(TaskIndex, &'_ Task)| match task {
        Task::Map(map) => Some(map.split.clone()),
        _ => None,
    };
    let Some(splits) = tasks.iter().map(split).collect::<Option<Vec<_>>>() else { return };
    let rooms = work.fleet.rooms(job.spec().memory_bytes, &work.scheduling.left_out());
    let usable: BTreeSet<_> = rooms.iter().map(|room| room.node).collect();
    let near = near_splits(&job.spec().inputs, splits.iter(), job.part_nodes());
    let seeing = Seeing::of(&work.fleet, job.spec());
    let (mut places, mut inputs) = (Vec::new(), Vec::new());
    for ((near, placement), (_, task)) in near.into_iter().zip(placements).zip(tasks) {
        if let Some(input) = seeing.nodes_of(job.spec(), task) {
            match input.planned {
                Some(_) => *placement = Placement::Planned(input),
                None => {
                    inputs.push(input);
                    places.push(placement);
                }
            }
        } else if *placement == Placement::Anywhere {
            let nodes = near.nodes.into_iter().filter(|node| usable.contains(node)).collect();
            let wait_ns = fetch_ns(near.stored_bytes);
            inputs.push(InputNodes { nodes, planned: None, wait_ns, only_there: false });
            places.push(placement);
        }
    }
    for (place, planned) in places.into_iter().zip(scheduler::plan(inputs, &rooms)) {
        *place = planned;
    }
}

/// Plans the program of a step near its inputs. It waits for a node that has them only if one has room for it now.
fn plan_step(work: &Work, task: &RunTask, near: &NearStep, placements: &mut [Placement]) {
    let slots = task.slots().max(1);
    let resources = task.resources_of_all();
    let mut rooms = work.fleet.rooms(task.memory_bytes, &BTreeSet::new());
    rooms.retain(|room| {
        let info = work.fleet.get(room.node).map(Node::info);
        info.is_some_and(|info| info.resources.has(&resources))
    });
    // A plan counts tasks of one slot.
    for room in &mut rooms {
        (room.free_slots, room.slots) = (room.free_slots / slots, room.slots / slots);
    }
    let usable: BTreeSet<_> = rooms.iter().filter(|room| room.slots > 0).map(|room| room.node).collect();
    let nodes: Vec<_> = near.nodes.iter().copied().filter(|node| usable.contains(node)).collect();
    let [placement] = placements else { return };
    if *placement != Placement::Anywhere || nodes.is_empty() || nodes.len() >= usable.len() {
        return;
    }
    let input = InputNodes { nodes, planned: None, wait_ns: fetch_ns(near.bytes), only_there: false };
    scheduler::plan(vec![input], &rooms).into_iter().for_each(|planned| *placement = planned);
}

/// Returns the placements of all tasks of a first stage.
pub(crate) fn near_inputs(work: &Work, id: JobId, placements: &mut [Placement]) {
    let job = work.jobs.get(&id);
    let step = job.and_then(|job| Some((job.spec().kind.program()?, job.near()?)));
    if let Some((task, near)) = step {
        return plan_step(work, task, near, placements);
    }
    near_stage_files(work, id, placements);
    let tasks = work.jobs.get(&id).and_then(|job| job.tasks().first());
    let tasks: Vec<_> = (0..).map(TaskIndex).zip(tasks.into_iter().flatten()).collect();
    plan_maps(work, id, &tasks, placements);
}

/// Takes the current places of a job's stored inputs; its waiting maps are planned again soon. Returns whether later
/// places matter.
pub(crate) fn inputs_moved(work: &mut Work, id: JobId, places: PartNodes) -> bool {
    let Some(job) = work.jobs.get_mut(&id) else { return false };
    let goes_on = job.has_maps_to_start();
    if goes_on && *job.part_nodes() != places {
        job.learn_places(Arc::new(places));
        work.scheduling.planning().are_moved = true;
    }
    goes_on
}

/// Plans all waiting maps again if nodes or replicas have come or gone.
pub(crate) fn plan_again(work: &mut Work, outbox: &mut Outbox) {
    let (now, changes) = (outbox.unix_nanos(), work.fleet.changes());
    let planning = work.scheduling.planning();
    let is_stale = planning.are_moved || planning.fleet_changes != changes;
    if !is_stale || now.0.saturating_sub(planning.planned_at.0) < PLAN_AGAIN_NS {
        return;
    }
    *planning = Planning { are_moved: false, fleet_changes: changes, planned_at: now };
    let reads = |job: &&Job| {
        let may_lose = !job.spec().seen_by.is_empty() && job.outcome().is_none();
        job.is_planned() && !job.tasks().is_empty() && (may_lose || job.has_maps_to_start())
    };
    let jobs: Vec<JobId> = work.jobs.values().filter(reads).map(Job::id).collect();
    for id in jobs {
        let tasks = placed_again(work, id);
        feed(work, outbox, Event::TasksPlaced { job: id, stage: StageIndex(0), tasks });
    }
}

/// Returns new placements of the maps of a job that neither run nor are done, and of those that only some nodes can run:
/// they may run again after their data is lost.
fn placed_again(work: &Work, id: JobId) -> Vec<(TaskIndex, Placement)> {
    let Some(job) = work.jobs.get(&id) else { return Vec::new() };
    let mut placed = bound(&work.fleet, job);
    if !job.has_maps_to_start() {
        return placed.into_iter().collect();
    }
    let running = work.fleet.all().flat_map(|node| node.running().keys());
    let running: BTreeSet<TaskIndex> =
        running.filter(|attempt| attempt.task.job == id).map(|attempt| attempt.task.task).collect();
    let maps: Vec<(TaskIndex, &Task)> = (0..).map(TaskIndex).zip(&job.tasks()[0]).collect();
    let mut placements: Vec<Placement> = maps.iter().map(|(_, task)| placement(task)).collect();
    near_stage_files(work, id, &mut placements);
    let waits =
        |(task, _): &(TaskIndex, &Task)| !running.contains(task) && !job.results().maps.contains_key(task);
    let (waiting, mut placements): (Vec<_>, Vec<_>) =
        maps.into_iter().zip(placements).filter(|(map, _)| waits(map)).unzip();
    plan_maps(work, id, &waiting, &mut placements);
    placed.extend(waiting.into_iter().map(|(task, _)| task).zip(placements));
    placed.into_iter().collect()
}

impl Job {
    /// Returns whether the places of its inputs decide which node runs which map.
    fn is_planned(&self) -> bool {
        !self.part_nodes().is_empty() || !self.spec().seen_by.is_empty()
    }

    /// Returns whether maps are in their first run and some have no result, or are not known yet.
    fn has_maps_to_start(&self) -> bool {
        let is_first = self.tasks().len() <= 1 && self.stage_kinds().first() == Some(&StageKind::Map);
        let maps = self.tasks().first().map(Vec::len);
        self.outcome().is_none() && is_first && maps.is_none_or(|maps| self.results().maps.len() < maps)
    }
}
