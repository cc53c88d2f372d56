//! Retries on other nodes: a task that failed because of its node goes to another one. A node with a full disk fails an
//! attempt within milliseconds and asks again: it would get the same task until the job fails, while other nodes are
//! busy.

use crate::UnixNanos;
use crate::state::{State, Task};
use ids::{JobId, NodeId, Placement, TaskKey};

impl State {
    /// Excludes a node for a task that failed because of it. While there are nodes on which the task has not failed, it
    /// waits only for these; each of its failures is on another node then. Call it before the task is put into a queue.
    pub(crate) fn keep_away(&mut self, key: TaskKey, node: NodeId) {
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let needs = job.claim.needs;
        // If the node must have a resource, the search happens when nodes ask.
        let picks_nodes = needs.picks_nodes();
        let Some(task) = job.task(key).filter(|task| !matches!(task.placement, Placement::On(_))) else {
            return;
        };
        if picks_nodes || task.queued {
            return;
        }
        task.failed_on.push(node);
        let failed_on = task.failed_on.clone();
        let bound = Some(&task.placement).filter(|placement| placement.is_bound());
        let can_run = bound.map(|placement| placement.near().to_vec());
        let others = self.rooms.iter().filter(|(other, room)| {
            let can_run = can_run.as_ref().is_none_or(|nodes| nodes.contains(other));
            let works = (room.shares || !needs.everywhere) && !self.draining.contains(other);
            can_run && works && !failed_on.contains(other)
        });
        let others: Vec<NodeId> = others.map(|(other, _)| *other).collect();
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        job.keeps_away |= !others.is_empty();
        job.stage(key.stage).keep_to(key.task, Some(others).filter(|others| !others.is_empty()));
    }

    /// Lifts exclusions after a node has left or begun to drain: tasks that waited only for such nodes may run anywhere
    /// again.
    pub(crate) fn free_those_kept_away(&mut self, now: UnixNanos) {
        let Self { jobs, rooms, draining, .. } = self;
        let works = |node: &NodeId| rooms.contains_key(node) && !draining.contains(node);
        let is_left = |task: &Task| task.only.as_ref().is_some_and(|only| !only.iter().any(works));
        let mut freed: Vec<JobId> = Vec::new();
        for (id, job) in jobs.iter_mut().filter(|(_, job)| job.keeps_away) {
            for stage in &mut job.stages {
                let left: Vec<_> = (0..stage.task_count()).map(ids::TaskIndex).collect();
                let left = left.into_iter().filter(|index| is_left(&stage.tasks[index.0 as usize]));
                for index in left.collect::<Vec<_>>() {
                    stage.go_anywhere(index);
                    freed.push(*id);
                }
            }
        }
        freed.dedup();
        freed.into_iter().for_each(|id| self.claim(id, now));
    }
}
