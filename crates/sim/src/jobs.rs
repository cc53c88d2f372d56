//! The jobs of a world.

use crate::World;
use crate::run::units;
use fastrand::Rng;
use ids::{JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex};
use scheduler::{Claim, Needs};
use std::collections::BTreeMap;

/// The stages of every job, like those of a real one.
pub(crate) const STAGES: [StageKind; 3] = [StageKind::Map, StageKind::Reduce, StageKind::Commit];

/// A job and its history.
pub(crate) struct Job {
    pub claim: Claim,
    pub arrives_ns: u64,
    map_tasks: u32,
    /// True after the start of its first attempt.
    pub has_begun: bool,
    /// True if its map tasks have data on nodes.
    has_places: bool,
    /// Nodes with the results of its map tasks.
    pub results: BTreeMap<TaskIndex, NodeId>,
    /// Number of tasks of the current stage that wait for a slot.
    pub waiting: u32,
    pub succeeded: bool,
    pub failed: bool,
}

impl Job {
    /// Creates the jobs of all users, in the order of their arrival.
    pub fn all(world: &World, random: &mut Rng) -> BTreeMap<JobId, Job> {
        let mut jobs: Vec<Job> = Vec::new();
        for user in 0..world.users {
            for _ in 0..world.jobs_per_user {
                let priority = user as i32 % (world.priority_max + 1);
                let needs = needs(world, random);
                jobs.push(Job {
                    claim: Claim { user: user.into(), priority, needs, step: None },
                    has_begun: false,
                    arrives_ns: 1 + random.u64(0..=world.arrivals_ns),
                    map_tasks: random.u32(1..=world.tasks_max),
                    has_places: random.bool() && (needs.everywhere || needs.is_nothing()),
                    results: BTreeMap::new(),
                    waiting: 0,
                    succeeded: false,
                    failed: false,
                });
            }
        }
        jobs.sort_by_key(|job| job.arrives_ns);
        jobs.into_iter().enumerate().map(|(index, job)| (JobId(index as i64 + 1), job)).collect()
    }

    /// Returns the placements of the tasks of a stage; `pick` returns a live node.
    pub fn placements(&self, stage: StageIndex, mut pick: impl FnMut() -> Option<NodeId>) -> Vec<Placement> {
        let count = match stage.0 {
            0 => self.map_tasks,
            1 => self.map_tasks.div_ceil(4),
            _ => 1,
        };
        let mut place = || match (stage.0, pick(), pick()) {
            (0, Some(first), Some(second)) if self.has_places => Placement::Near(vec![first, second]),
            _ => Placement::Anywhere,
        };
        (0..count).map(|_| place()).collect()
    }

    pub fn is_over(&self) -> bool {
        self.succeeded || self.failed
    }
}

fn needs(world: &World, random: &mut Rng) -> Needs {
    if world.memory_bytes == 0 {
        return Needs::default();
    }
    let most_bytes = [0, world.memory_bytes * 2 / 3, world.memory_bytes];
    let kind = random.usize(0..3);
    let memory_bytes = if kind == 0 { 0 } else { random.u64(1..=most_bytes[kind]) };
    // Some jobs that hold memory where they run need a generic resource too.
    let resources = units(if kind == 2 { (memory_bytes % 3) as u32 } else { 0 });
    Needs { memory_bytes, everywhere: kind == 1, resources, ..Needs::default() }
}
