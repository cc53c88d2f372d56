//! Nodes for map tasks over inputs that only some nodes see.

use crate::job::Job;
use crate::membership::Fleet;
use crate::work::Work;
use api::seen::{SeenBy, is_seen};
use api::task::MapTask;
use api::{JobSpec, Task};
use ids::{InputNodes, JobId, NodeId, Placement, TaskIndex};
use std::collections::BTreeMap;

impl Fleet {
    /// Returns the nodes of these names that see the directory today.
    fn seeing(&self, by: &SeenBy) -> Vec<NodeId> {
        let sees =
            |info: &api::control::NodeInfo| by.nodes.contains(&info.name) && is_seen(&info.sees, &by.dir);
        self.each().filter(|(_, node)| sees(node.info())).map(|(id, _)| id).collect()
    }
}

/// Nodes that see the inputs of a job, for each group of files with the same nodes.
pub(crate) struct Seeing(Vec<Vec<NodeId>>);

impl Seeing {
    pub fn of(fleet: &Fleet, spec: &JobSpec) -> Self {
        Self(spec.seen_by.iter().map(|by| fleet.seeing(by)).collect())
    }

    /// Returns the nodes for a task over inputs that only some nodes see; None for any other task. Data is sent again
    /// from the node of its spool, if possible.
    pub fn nodes_of(&self, spec: &JobSpec, task: &Task) -> Option<InputNodes> {
        let nodes = self.0.get(group_of(spec, task)?)?.clone();
        let spool = match task {
            Task::Map(MapTask { again: Some(again), .. }) => {
                again.resend.as_ref().map(|resend| resend.spool.node)
            }
            _ => None,
        };
        let planned = spool.filter(|node| nodes.contains(node));
        Some(InputNodes { nodes, planned, wait_ns: 0, only_there: true })
    }
}

/// Returns the group of the files of a map task; None if every node sees them. A split has files of one group.
fn group_of(spec: &JobSpec, task: &Task) -> Option<usize> {
    let Task::Map(map) = task else { return None };
    let first = map.split.segments.first()?;
    spec.inputs.get(first.file_index as usize)?.seen.map(|group| group as usize)
}

/// Returns placements of the tasks of the first stage of a job that only some nodes can run.
pub(crate) fn bound(fleet: &Fleet, job: &Job) -> BTreeMap<TaskIndex, Placement> {
    if job.spec().seen_by.is_empty() {
        return BTreeMap::new();
    }
    let seeing = Seeing::of(fleet, job.spec());
    let maps = (0..).map(TaskIndex).zip(job.tasks().first().into_iter().flatten());
    let place = |(index, task): (TaskIndex, &Task)| {
        Some((index, Placement::Planned(seeing.nodes_of(job.spec(), task)?)))
    };
    maps.filter_map(place).collect()
}

/// Returns a sentence about the nodes that a job waits for because only they see its inputs; None if there are enough.
pub(crate) fn waits_to_see(work: &Work, id: JobId) -> Option<String> {
    let job = work.jobs.get(&id).filter(|job| job.outcome().is_none() && !job.spec().seen_by.is_empty())?;
    let spec = job.spec();
    let is_here = |node: &NodeId| work.fleet.get(*node).is_some_and(|node| !node.is_away());
    let is_open = |by: &SeenBy| !work.fleet.seeing(by).iter().any(is_here);
    let blocked: Vec<bool> = spec.seen_by.iter().map(is_open).collect();
    let maps = (0..).map(TaskIndex).zip(job.tasks().first()?);
    let waiting = maps.filter(|(index, _)| !job.results().maps.contains_key(index));
    let groups: Vec<usize> = waiting.filter_map(|(_, task)| group_of(spec, task)).collect();
    let group = groups.iter().copied().find(|group| blocked.get(*group).copied().unwrap_or(false))?;
    let count = groups.iter().filter(|group| blocked.get(**group).copied().unwrap_or(false)).count();
    let SeenBy { dir, nodes } = &spec.seen_by[group];
    Some(format!(
        "{count} of its maps need a node that sees {}, and none is here: start {} again with --sees",
        dir.display(),
        nodes.join(" or ")
    ))
}
