//! Resource needs of jobs: slots, memory and generic resources of a node, and an architecture on request. The scheduler gets them as
//! numbers, users as sentences.

use crate::interface::{ControlError, Outbox, Service};
use crate::membership::Fleet;
use crate::membership::node::Node;
use crate::scheduling::{Architectures, ResourceKinds, Scheduling, feed};
use crate::work::Work;
use api::JobSpec;
use api::control::NodeInfo;
use api::job::resources::GenericResources;
use api::task::RunTask;
use ids::{JobId, NodeId};
use jobkind::{NodeSize, PipelineNeeds, WorkingNodes};
use scheduler::{Event, Needs, NodeRoom, Wait};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// Returns the needs of a job. In the embedded engine it already has its memory.
pub(crate) fn needs_of(scheduling: &mut Scheduling, service: Service, spec: &JobSpec) -> Needs {
    let slots_beside = spec.kind.program().map_or(0, |task| task.slots().saturating_sub(1));
    let resources = spec.kind.program().map(RunTask::resources_of_all).unwrap_or_default();
    let resources = scheduling.resource_kinds().amounts(&resources);
    if service == Service::Embedded {
        return Needs { slots_beside, resources, ..Needs::default() };
    }
    match spec.kind.program() {
        Some(task) => Needs {
            slots_beside,
            memory_bytes: task.memory_bytes,
            architecture: task.architecture.as_deref().map(|name| scheduling.architectures().number(name)),
            everywhere: false,
            resources,
        },
        None => Needs { memory_bytes: spec.memory_bytes, everywhere: true, ..Needs::default() },
    }
}

/// Returns an error for a job that none of the working nodes could ever run. Accepts every job while there is no node.
pub(crate) fn check_fits(work: &Work, spec: &JobSpec) -> Result<(), ControlError> {
    // A refused name gets no number.
    let (memory_bytes, architecture, needs_slots) = match spec.kind.program() {
        Some(task) => (task.memory_bytes, task.architecture.as_deref(), task.slots()),
        None => (spec.memory_bytes, None, 1),
    };
    let resources = spec.kind.program().map(RunTask::resources_of_all).unwrap_or_default();
    if let Some(largest_slots) = work.fleet.largest_slots(architecture).filter(|slots| *slots < needs_slots) {
        return Err(ControlError::FewSlots { needs_slots, largest_slots });
    }
    if work.service == Service::Embedded {
        return check_resources(&resources, &mut vec![work.fleet.local_resources()]);
    }
    if memory_bytes == 0 && architecture.is_none() && resources.is_none() {
        return Ok(());
    }
    let working: Vec<&NodeInfo> = work.fleet.working().collect();
    if working.is_empty() {
        return Ok(());
    }
    let is_right = |node: &&&NodeInfo| architecture.is_none_or(|name| node.architecture == name);
    let has_slots = |node: &&&NodeInfo| node.slots >= needs_slots;
    let right: Vec<&NodeInfo> = working.iter().filter(is_right).filter(has_slots).copied().collect();
    if let Some(name) = architecture.filter(|_| right.is_empty()) {
        let mut there: Vec<&str> = working.iter().map(|node| node.architecture.as_str()).collect();
        there.sort_unstable();
        there.dedup();
        return Err(ControlError::NoSuchArchitecture { name: name.to_string(), there: there.join(", ") });
    }
    check_resources(&resources, &mut right.iter().map(|node| &node.resources).collect())?;
    let with_resources = right.iter().filter(|node| node.resources.has(&resources));
    match with_resources.map(|node| node.memory_bytes).max() {
        Some(largest) if largest < memory_bytes => {
            Err(ControlError::FitsNowhere { needs_bytes: memory_bytes, largest_bytes: largest })
        }
        _ => Ok(()),
    }
}

/// Returns an error for generic resources that no node has together. Of the nodes, those that have them are left.
fn check_resources(
    resources: &GenericResources,
    nodes: &mut Vec<&GenericResources>,
) -> Result<(), ControlError> {
    for (name, needs) in resources.iter() {
        let largest = nodes.iter().map(|node| node.amount(name)).max().unwrap_or(0);
        if largest < needs {
            return Err(ControlError::FewResources { name: name.to_string(), needs, largest });
        }
        nodes.retain(|node| node.amount(name) >= needs);
    }
    Ok(())
}

/// Tells the scheduler the resources of a node.
pub(crate) fn node_came(work: &mut Work, outbox: &mut Outbox, node: NodeId, info: &NodeInfo) {
    let architecture = work.scheduling.architectures().number(&info.architecture);
    let resources = work.scheduling.resource_kinds().amounts(&info.resources);
    let (memory_bytes, slots) = (info.memory_bytes, info.slots);
    feed(work, outbox, Event::NodeCame { node, memory_bytes, architecture, slots, resources });
}

/// Returns a sentence about what a job waits for besides a slot.
pub(crate) fn waits_for(scheduling: &Scheduling, job: JobId) -> Option<String> {
    let wait = scheduling.wait_of(job)?;
    Some(sentence(&wait, scheduling.known_architectures(), scheduling.known_resource_kinds()))
}

impl Fleet {
    /// Returns the nodes that get work.
    fn working(&self) -> impl Iterator<Item = &NodeInfo> {
        self.all().filter(|node| node.drain.is_none()).map(|node| &node.info)
    }

    /// Returns the size of the working node with the most slots. The jobs of the node in this process have their memory.
    pub fn largest_node(&self) -> NodeSize<'_> {
        let size = |node: &NodeInfo| (node.slots, node.memory_bytes);
        let largest = self.working().map(size).max();
        let local = || Some((self.local_slots()?, u64::MAX));
        let known = largest.or_else(local);
        known.map_or_else(NodeSize::default, |(slots, memory_bytes)| NodeSize {
            slots,
            memory_bytes,
            nodes: Some(self),
            places: None,
        })
    }

    /// Returns the slots of the largest working node, of an architecture if one is named; None without such a node.
    pub fn largest_slots(&self, architecture: Option<&str>) -> Option<u32> {
        let is_right = |node: &&NodeInfo| architecture.is_none_or(|name| node.architecture == name);
        self.working().filter(is_right).map(|node| node.slots).max().or(self.local_slots())
    }
}

impl Fleet {
    /// Returns the slots of the nodes that may run the maps of a job with this memory.
    pub fn rooms(&self, memory_bytes: u64, left_out: &BTreeSet<NodeId>) -> Vec<NodeRoom> {
        let mut racks: BTreeMap<&str, u32> = BTreeMap::new();
        let may_run = |(id, node): &(NodeId, &Node)| {
            let works = node.drain.is_none() && node.away.is_none() && !node.is_cordoned;
            works && node.info.memory_bytes >= memory_bytes && !left_out.contains(id)
        };
        let mut rooms = Vec::new();
        for (id, node) in self.each().filter(may_run) {
            let next = racks.len() as u32;
            let slots = node.info.slots;
            rooms.push(NodeRoom {
                node: id,
                rack: *racks.entry(node.info.rack.as_str()).or_insert(next),
                free_slots: slots.saturating_sub(node.running.len() as u32),
                slots,
            });
        }
        rooms
    }
}

impl WorkingNodes for Fleet {
    fn could_run(&self, needs: &PipelineNeeds, on: Option<NodeId>) -> bool {
        if let Some(slots) = self.local_slots() {
            return needs.slots <= slots && self.local_resources().has(&needs.resources);
        }
        let has = |node: &NodeInfo| {
            let is_large = needs.slots <= node.slots && needs.memory_bytes <= node.memory_bytes;
            is_large && node.resources.has(&needs.resources)
        };
        match on {
            Some(node) => self.get(node).is_some_and(|node| node.drain.is_none() && has(&node.info)),
            None => self.working().any(has),
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}

fn sentence(wait: &Wait, architectures: &Architectures, kinds: &ResourceKinds) -> String {
    let architecture = wait.needs.architecture.map(|number| format!(" of {}", architectures.name(number)));
    let slots = (wait.needs.slots_beside > 0)
        .then(|| format!("{} slots at once", wait.needs.slots_beside.saturating_add(1)));
    let resources = Some(kinds.named(wait.needs.resources)).filter(|resources| !resources.is_none());
    let needs_memory = wait.needs.memory_bytes > 0 || (slots.is_none() && resources.is_none());
    let memory = needs_memory.then(|| format!("{} of memory", mib(wait.needs.memory_bytes)));
    let has_resources = resources.is_some();
    let resources = resources.map(|resources| resources.to_string());
    let all: Vec<String> = slots.into_iter().chain(memory).chain(resources).collect();
    let what = format!("{} on a node{}", all.join(" and "), architecture.unwrap_or_default());
    if wait.nodes == 0 {
        return format!("it needs {what}, and no node is working yet");
    }
    if wait.nodes_large_enough == 0 {
        let nodes = wait.nodes;
        return format!("it needs {what}, which none of the {nodes} working nodes has: add a larger one");
    }
    let others = match wait.jobs_with_memory {
        _ if wait.needs.slots_beside > 0 => "running tasks have too many of its slots".to_string(),
        _ if has_resources => "running tasks on the nodes have too much of these".to_string(),
        0 => "running tasks on the nodes hold too much of it".to_string(),
        jobs => format!("{jobs} jobs hold {} of each node", mib(wait.held_bytes)),
    };
    match (wait.needs.everywhere, wait.before) {
        (true, 0) => format!("it needs {what}, on all of them at once; {others}"),
        (true, before) => {
            format!(
                "it needs {what}, on all of them at once; {others}, and {before} older jobs wait for the same"
            )
        }
        (false, _) => format!("it needs {what}; {others}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Architectures, ResourceKinds, sentence};
    use api::job::resources::GenericResources;
    use scheduler::{Needs, Wait};

    #[test]
    fn waiting_jobs_say_the_missing_resource() {
        let (mut architectures, mut kinds) = (Architectures::default(), ResourceKinds::default());
        let arm = architectures.number("aarch64");
        assert_eq!((architectures.number("x86_64"), architectures.number("aarch64")), (1, arm));
        let gpus = kinds.amounts(&GenericResources::parse(["gpu=2"]).unwrap());
        let needs = Needs { memory_bytes: 256 << 20, everywhere: true, ..Needs::default() };
        let wait = Wait {
            needs,
            nodes: 2,
            nodes_large_enough: 2,
            held_bytes: 1 << 30,
            jobs_with_memory: 3,
            before: 1,
        };
        let check = |wait: Wait, parts: &[&str]| {
            let text = sentence(&wait, &architectures, &kinds);
            parts.iter().for_each(|part| assert!(text.contains(part), "{text}"));
        };
        check(wait, &["256 MiB", "3 jobs hold 1024 MiB", "1 older jobs"]);
        check(Wait { nodes: 0, ..wait }, &["no node is working yet"]);
        check(Wait { nodes_large_enough: 0, ..wait }, &["none of the 2 working nodes", "larger"]);
        let needs = Needs { architecture: Some(arm), everywhere: false, ..needs };
        check(Wait { needs, jobs_with_memory: 0, ..wait }, &["of aarch64", "running tasks on the nodes"]);
        let needs = Needs { slots_beside: 3, memory_bytes: 0, architecture: None, ..needs };
        check(Wait { needs, ..wait }, &["4 slots at once", "too many of its slots"]);
        let needs = Needs { slots_beside: 0, everywhere: false, resources: gpus, ..needs };
        check(Wait { needs, ..wait }, &["needs gpu=2 on a node", "too much of these"]);
    }
}
