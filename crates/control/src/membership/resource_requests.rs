//! Resource needs of jobs: slots and memory of a node, and an architecture on request. The scheduler gets them as
//! numbers, users as sentences.

use crate::interface::{ControlError, Outbox, Service};
use crate::membership::Fleet;
use crate::membership::node::Node;
use crate::scheduling::{Architectures, Scheduling, feed};
use crate::work::Work;
use api::JobSpec;
use api::control::NodeInfo;
use ids::{JobId, NodeId};
use jobkind::NodeSize;
use scheduler::{Event, Needs, NodeRoom, Wait};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// Returns the needs of a job. In the embedded engine it already has its memory.
pub(crate) fn needs_of(scheduling: &mut Scheduling, service: Service, spec: &JobSpec) -> Needs {
    let slots_beside = spec.kind.program().map_or(0, |task| task.slots().saturating_sub(1));
    if service == Service::Embedded {
        return Needs { slots_beside, ..Needs::default() };
    }
    match spec.kind.program() {
        Some(task) => Needs {
            slots_beside,
            memory_bytes: task.memory_bytes,
            architecture: task.architecture.as_deref().map(|name| scheduling.architectures().number(name)),
            everywhere: false,
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
    if let Some(largest_slots) = work.fleet.largest_slots(architecture).filter(|slots| *slots < needs_slots) {
        return Err(ControlError::FewSlots { needs_slots, largest_slots });
    }
    if work.service == Service::Embedded || (memory_bytes == 0 && architecture.is_none()) {
        return Ok(());
    }
    let working: Vec<&NodeInfo> = work.fleet.working().collect();
    let is_right = |node: &&&NodeInfo| architecture.is_none_or(|name| node.architecture == name);
    let has_slots = |node: &&&NodeInfo| node.slots >= needs_slots;
    let largest = working.iter().filter(is_right).filter(has_slots).map(|node| node.memory_bytes).max();
    match (architecture, largest) {
        _ if working.is_empty() => Ok(()),
        (Some(name), None) => {
            let mut there: Vec<&str> = working.iter().map(|node| node.architecture.as_str()).collect();
            there.sort_unstable();
            there.dedup();
            Err(ControlError::NoSuchArchitecture { name: name.to_string(), there: there.join(", ") })
        }
        (_, Some(largest)) if largest < memory_bytes => {
            Err(ControlError::FitsNowhere { needs_bytes: memory_bytes, largest_bytes: largest })
        }
        _ => Ok(()),
    }
}

/// Tells the scheduler the resources of a node.
pub(crate) fn node_came(work: &mut Work, outbox: &mut Outbox, node: NodeId, info: &NodeInfo) {
    let architecture = work.scheduling.architectures().number(&info.architecture);
    let (memory_bytes, slots) = (info.memory_bytes, info.slots);
    feed(work, outbox, Event::NodeCame { node, memory_bytes, architecture, slots });
}

/// Tells the scheduler the slots of the node in this process, whose jobs have their memory already.
pub(crate) fn local_node_has(work: &mut Work, outbox: &mut Outbox, slots: u32) {
    work.fleet.has_local_slots(slots);
    let event = Event::NodeCame { node: NodeId(0), memory_bytes: u64::MAX, architecture: 0, slots };
    feed(work, outbox, event);
}

/// Returns a sentence about what a job waits for besides a slot.
pub(crate) fn waits_for(scheduling: &Scheduling, job: JobId) -> Option<String> {
    let wait = scheduling.wait_of(job)?;
    Some(sentence(&wait, scheduling.known_architectures()))
}

impl Fleet {
    /// Returns the nodes that get work.
    fn working(&self) -> impl Iterator<Item = &NodeInfo> {
        self.all().filter(|node| node.drain.is_none()).map(|node| &node.info)
    }

    /// Returns the size of the working node with the most slots. The jobs of the node in this process have their memory.
    pub fn largest_node(&self) -> NodeSize {
        let size = |node: &NodeInfo| NodeSize { slots: node.slots, memory_bytes: node.memory_bytes };
        let largest = self.working().map(size).max_by_key(|size| (size.slots, size.memory_bytes));
        let local = || Some(NodeSize { slots: self.local_slots()?, memory_bytes: u64::MAX });
        largest.or_else(local).unwrap_or_default()
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

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}

fn sentence(wait: &Wait, architectures: &Architectures) -> String {
    let architecture = wait.needs.architecture.map(|number| format!(" of {}", architectures.name(number)));
    let slots = (wait.needs.slots_beside > 0)
        .then(|| format!("{} slots at once", wait.needs.slots_beside.saturating_add(1)));
    let needs_memory = wait.needs.memory_bytes > 0 || slots.is_none();
    let memory = needs_memory.then(|| format!("{} of memory", mib(wait.needs.memory_bytes)));
    let both: Vec<String> = slots.into_iter().chain(memory).collect();
    let what = format!("{} on a node{}", both.join(" and "), architecture.unwrap_or_default());
    if wait.nodes == 0 {
        return format!("it needs {what}, and no node is working yet");
    }
    if wait.nodes_large_enough == 0 {
        let nodes = wait.nodes;
        return format!("it needs {what}, which none of the {nodes} working nodes has: add a larger one");
    }
    let others = match wait.jobs_with_memory {
        _ if wait.needs.slots_beside > 0 => "running tasks have too many of its slots".to_string(),
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
    use super::{Architectures, sentence};
    use scheduler::{Needs, Wait};

    #[test]
    fn waiting_jobs_say_the_missing_resource() {
        let mut architectures = Architectures::default();
        let arm = architectures.number("aarch64");
        assert_eq!((architectures.number("x86_64"), architectures.number("aarch64")), (1, arm));
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
            let text = sentence(&wait, &architectures);
            parts.iter().for_each(|part| assert!(text.contains(part), "{text}"));
        };
        check(wait, &["256 MiB", "3 jobs hold 1024 MiB", "1 older jobs"]);
        check(Wait { nodes: 0, ..wait }, &["no node is working yet"]);
        check(Wait { nodes_large_enough: 0, ..wait }, &["none of the 2 working nodes", "larger"]);
        let needs = Needs { architecture: Some(arm), everywhere: false, ..needs };
        check(Wait { needs, jobs_with_memory: 0, ..wait }, &["of aarch64", "running tasks on the nodes"]);
        let needs = Needs { slots_beside: 3, memory_bytes: 0, architecture: None, ..needs };
        check(Wait { needs, ..wait }, &["4 slots at once", "too many of its slots"]);
    }
}
