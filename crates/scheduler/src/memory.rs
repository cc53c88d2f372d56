//! The memory of nodes for the buffers of jobs, and the jobs that hold it: a job begins only if its memory fits beside
//! that of the others.
//!
//! The data of a MapReduce job is on all nodes that accept chunks, wherever its tasks ran. So the job holds its memory
//! on all nodes that share such jobs, from its admission until the end of its last attempt. Admissions are in order,
//! and no job passes the first one. A job that needs memory, generic resources, several slots or an architecture only
//! where its attempt runs holds them during the attempt; if such a job has waited long, a node is reserved for it
//! ([`reservation`]).

mod amounts;
mod reservation;

pub use amounts::{Amount, Amounts, RESOURCE_KINDS_MAX};

use crate::claims::{ClaimRank, Claims};
use crate::ready::Queue;
use crate::state::{Phase, State};
use crate::{AGING_NS, Needs, UnixNanos, Wait};
use ids::{JobId, NodeId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Time after which a node is reserved for a job that needs memory or several slots where it runs; and time after which
/// no more jobs with memory where they run start while a job waits for memory on all nodes.
pub const MEMORY_PATIENCE_NS: u64 = 2_000_000_000;

/// Resources of a node.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub memory_bytes: u64,
    pub architecture: u32,
    /// Number of slots.
    pub slots: u32,
    /// Generic resources that it declares, and those that running attempts have taken of them, by kind.
    pub resources: Amounts,
    pub taken: BTreeMap<u32, u64>,
    /// Memory of running attempts that hold it on this node alone.
    pub ran_bytes: u64,
    /// True if it takes part in jobs that hold memory on all nodes. A node that joined when they held more than it has
    /// takes no part until enough of them have ended.
    pub shares: bool,
}

impl Room {
    /// Returns the room of a node without attempts.
    pub fn new(memory_bytes: u64, architecture: u32, slots: u32, resources: Amounts) -> Self {
        Self {
            memory_bytes,
            architecture,
            slots,
            resources,
            taken: BTreeMap::new(),
            ran_bytes: 0,
            shares: true,
        }
    }

    fn take(&mut self, needs: Needs) {
        self.ran_bytes = self.ran_bytes.saturating_add(needs.memory_bytes);
        for Amount { kind, count } in needs.resources.iter() {
            *self.taken.entry(kind).or_default() += u64::from(count);
        }
    }

    fn give_back(&mut self, needs: Needs) {
        self.ran_bytes = self.ran_bytes.saturating_sub(needs.memory_bytes);
        for Amount { kind, count } in needs.resources.iter() {
            let left = self.taken.get(&kind).copied().unwrap_or(0).saturating_sub(u64::from(count));
            match left {
                0 => self.taken.remove(&kind),
                left => self.taken.insert(kind, left),
            };
        }
    }
}

impl State {
    /// Adds the resources of a node. Comes before its slots ask.
    pub(crate) fn add_room(&mut self, node: NodeId, room: Room) {
        let shares = self.held_bytes <= room.memory_bytes;
        self.rooms.insert(node, Room { shares, ..room });
        self.room_changed = true;
    }

    pub(crate) fn remove_room(&mut self, node: NodeId) {
        self.rooms.remove(&node);
        self.keep_for_nobody(|_, kept| kept == node);
        self.room_changed = true;
    }

    /// Puts a job in line if it must get memory on all nodes first. Returns true if it must wait.
    pub(crate) fn must_wait_for_memory(&mut self, id: JobId, now: UnixNanos) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let waits = job.claim.needs.everywhere && !job.has_memory && job.phase == Phase::Running;
        if waits && self.line.insert(id) {
            job.in_line_since = now;
            self.room_changed = true;
        }
        waits
    }

    /// Takes the memory of a job on all nodes.
    pub(crate) fn take_memory(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.claim.needs.everywhere || std::mem::replace(&mut job.has_memory, true) {
            return;
        }
        let bytes = job.claim.needs.memory_bytes;
        self.line.remove(&id);
        self.held_bytes += bytes;
        self.holders.insert(id);
        // These nodes have no data of other jobs.
        let small = self.rooms.values_mut().filter(|room| room.memory_bytes < bytes);
        small.for_each(|room| room.shares = false);
    }

    /// Releases the memory of a job that leaves.
    pub(crate) fn give_memory_back(&mut self, id: JobId) {
        if self.line.remove(&id) {
            (self.room_changed, self.look_everywhere) = (true, true);
        }
        self.keep_for_nobody(|kept, _| kept == id);
        if let Some(job) = self.jobs.get_mut(&id)
            && std::mem::take(&mut job.has_memory)
        {
            self.held_bytes -= job.claim.needs.memory_bytes;
            self.holders.remove(&id);
            (self.room_changed, self.look_everywhere) = (true, true);
        }
    }

    /// Counts the memory and the generic resources of an attempt that begins on a node, and ends the reservation for its
    /// job.
    pub(crate) fn take_attempt_memory(&mut self, id: JobId, node: NodeId) {
        if let Some(needs) = self.attempt_takes(id)
            && let Some(room) = self.rooms.get_mut(&node)
        {
            room.take(needs);
        }
        self.keep_for_nobody(|kept, _| kept == id);
    }

    /// Counts the memory and the generic resources of an attempt that has ended on a node.
    pub(crate) fn give_attempt_memory_back(&mut self, id: JobId, node: NodeId) {
        let Some(needs) = self.attempt_takes(id) else { return };
        if let Some(room) = self.rooms.get_mut(&node) {
            room.give_back(needs);
        }
        self.room_changed = true;
        self.woken.insert(node);
    }

    /// Returns the needs of a job whose attempts take memory or generic resources of their nodes.
    fn attempt_takes(&self, id: JobId) -> Option<Needs> {
        let needs = self.jobs.get(&id)?.claim.needs;
        needs.takes_amounts().then_some(needs)
    }

    /// Admits jobs that fit now, in their order, and nodes that have room again.
    pub(crate) fn admit(&mut self, now: UnixNanos) {
        if !std::mem::take(&mut self.room_changed) {
            return;
        }
        while let Some(id) = self.first_in_line(now) {
            let bytes = self.jobs[&id].claim.needs.memory_bytes;
            if !self.fits_everywhere(id, bytes) {
                break;
            }
            self.take_memory(id);
            self.look_everywhere = true;
            self.claim(id, now);
        }
        let held_bytes = self.held_bytes;
        for (node, room) in self.rooms.iter_mut().filter(|(_, room)| !room.shares) {
            room.shares = held_bytes.saturating_add(room.ran_bytes) <= room.memory_bytes;
            if room.shares {
                self.woken.insert(*node);
            }
        }
    }

    /// Returns the jobs in line, without those for which no working node is large enough: these wait for such a node,
    /// and block no other job.
    fn in_line(&self) -> impl Iterator<Item = &JobId> {
        let working = self.rooms.iter().filter(|(node, _)| !self.draining.contains(node));
        let largest_bytes = working.map(|(_, room)| room.memory_bytes).max().unwrap_or(0);
        self.line.iter().filter(move |id| self.jobs[*id].claim.needs.memory_bytes <= largest_bytes)
    }

    /// Returns the job that is admitted next: first jobs that have waited very long, after that by priority, and among
    /// these of the user with the fewest such jobs.
    fn first_in_line(&self, now: UnixNanos) -> Option<JobId> {
        let rank = |id: &JobId| {
            let job = &self.jobs[id];
            match now.0.saturating_sub(job.in_line_since.0) >= AGING_NS {
                true => (0, Reverse(0), 0, *id),
                false => (1, Reverse(job.claim.priority), self.jobs_with_memory(job.claim.user), *id),
            }
        };
        self.in_line().min_by_key(|id| rank(id)).copied()
    }

    fn jobs_with_memory(&self, user: u64) -> usize {
        self.holders.iter().filter(|id| self.jobs[*id].claim.user == user).count()
    }

    fn fits_everywhere(&self, id: JobId, bytes: u64) -> bool {
        // A node is reserved for an older job that needs memory too.
        let takes_memory = |kept: JobId| self.attempt_takes(kept).is_some_and(|needs| needs.memory_bytes > 0);
        if self.kept.is_some_and(|(kept, _)| kept < id && takes_memory(kept)) {
            return false;
        }
        let works = |(node, room): &(&NodeId, &Room)| room.shares && !self.draining.contains(node);
        let mut any = false;
        for (_, room) in self.rooms.iter().filter(works) {
            match room.memory_bytes < bytes {
                // The job can go without this node, but not while other jobs have data there.
                true if self.held_bytes > 0 => return false,
                true => {}
                false if self.held_bytes + room.ran_bytes + bytes > room.memory_bytes => return false,
                false => any = true,
            }
        }
        any
    }

    /// Returns whether a node takes part in jobs that hold memory everywhere. A node without declared resources does.
    pub(crate) fn shares(&self, node: NodeId) -> bool {
        self.rooms.get(&node).is_none_or(|room| room.shares)
    }

    /// Returns the best claim of a job that needs nothing, or resources of its own node only, and fits there. A node that
    /// drains is offered only tasks near it.
    pub(crate) fn best_needy(&self, node: NodeId, now: UnixNanos) -> Option<(ClaimRank, u64, Queue)> {
        let drains = self.draining.contains(&node);
        let needy = self.needy.iter().filter(|_| !drains);
        let needy = needy.map(|(needs, claims)| (Queue::Needy(*needs), *needs, claims));
        let wide = [Some(Some(node)), (!drains).then_some(None)].into_iter().flatten().flat_map(|near| {
            let kinds = self.wide.get(&near).into_iter().flatten();
            kinds.map(move |(needs, claims)| (Queue::Wide(near, *needs), *needs, claims))
        });
        let best = needy.chain(wide).filter_map(|(queue, needs, claims): (Queue, Needs, &Claims)| {
            let (standing, user) = claims.best(&self.users)?;
            let may_begin = self.fits(needs, node) && self.may_take(needs, standing.2.job, node, now);
            may_begin.then_some((standing, user, queue))
        });
        best.min_by_key(|(standing, _, _)| *standing)
    }

    /// Returns whether an attempt with these needs could begin on a node, where a slot waits for it.
    pub(crate) fn fits(&self, needs: Needs, node: NodeId) -> bool {
        let has_slots = !needs.is_wide() || self.waiting_slots(node) > needs.slots_beside;
        has_slots && self.fits_memory(needs, node)
    }

    fn fits_memory(&self, needs: Needs, node: NodeId) -> bool {
        let Some(room) = self.rooms.get(&node) else { return true };
        let held_bytes = if room.shares { self.held_bytes } else { 0 };
        needs.architecture.is_none_or(|architecture| architecture == room.architecture)
            && room.resources.spare(&room.taken, &needs.resources)
            && (needs.memory_bytes == 0
                || held_bytes + room.ran_bytes + needs.memory_bytes <= room.memory_bytes)
    }

    /// Returns whether no job that has waited long would be passed.
    fn may_take(&self, needs: Needs, id: JobId, node: NodeId, now: UnixNanos) -> bool {
        if !needs.takes_amounts() {
            return true;
        }
        // A node kept for slots refuses jobs in `dispatch`, with and without memory.
        let kept_for_other =
            self.kept.is_some_and(|(kept, on)| on == node && kept != id) && self.kept_for_wide().is_none();
        let waits_long = |other: &JobId| {
            let since = self.jobs[other].in_line_since;
            *other < id && now.0.saturating_sub(since.0) >= MEMORY_PATIENCE_NS
        };
        let would_pass = needs.memory_bytes > 0
            && !self.line.is_empty()
            && self.shares(node)
            && self.in_line().any(waits_long);
        !(kept_for_other || would_pass)
    }
}

/// Returns the reason why a job waits for more than a slot; None for a job that runs, or could.
pub fn wait_of(state: &State, id: JobId) -> Option<Wait> {
    let job = state.jobs.get(&id).filter(|job| job.phase == Phase::Running && job.running.is_empty())?;
    let needs = job.claim.needs;
    let waits = match needs.everywhere {
        true => state.line.contains(&id),
        false => {
            let may_be_offered = |node: &&NodeId| !(needs.is_wide() && state.draining.contains(*node));
            let mut nodes = state.rooms.keys().filter(may_be_offered);
            !needs.is_nothing() && !nodes.any(|node| state.fits(needs, *node))
        }
    };
    if !waits {
        return None;
    }
    let working =
        || state.rooms.iter().filter(|(node, _)| !state.draining.contains(node)).map(|(_, room)| room);
    Some(Wait {
        needs,
        nodes: working().count() as u32,
        nodes_large_enough: working().filter(|room| could_ever(needs, room)).count() as u32,
        held_bytes: state.held_bytes,
        jobs_with_memory: state.holders.len() as u32,
        before: state.line.iter().filter(|other| **other < id).count() as u32,
    })
}

fn could_ever(needs: Needs, room: &Room) -> bool {
    needs.memory_bytes <= room.memory_bytes
        && room.resources.spare(&BTreeMap::new(), &needs.resources)
        && (!needs.is_wide() || needs.slots_beside < room.slots)
        && needs.architecture.is_none_or(|architecture| architecture == room.architecture)
}

/// Returns the nodes on which no chunks of jobs may lie now: jobs hold more memory there than the nodes have.
pub fn left_out(state: &State) -> BTreeSet<NodeId> {
    state.rooms.iter().filter(|(_, room)| !room.shares).map(|(node, _)| *node).collect()
}
