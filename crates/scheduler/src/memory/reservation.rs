//! Reservation of a node for a job that needs memory, generic resources or several slots where it runs, and has waited
//! long. Small jobs would fill each gap on every node, for ever.
//!
//! One node is reserved at a time, for the oldest such job. For memory and generic resources, the other jobs leave those of
//! the node alone.
//! For slots, they leave the whole node alone: its attempts end, and no other begins, until enough slots wait. Only jobs
//! on a higher level go on there.
//!
//! A whole node is reserved only if the end of its attempts is enough. A job that needs several slots, and memory that
//! jobs on all nodes hold, gets the memory first: these jobs must go on to their ends, on this node too, and no younger
//! job takes the memory after them. For the same reason, the jobs that held memory on all nodes at the reservation of a
//! whole node go on there with tasks that no other node can run. These tasks are finite, so the node becomes idle.

use super::{MEMORY_PATIENCE_NS, Room, could_ever};
use crate::claims::ClaimRank;
use crate::ready::{NextClaim, Queue};
use crate::state::{Job, Phase, State};
use crate::{Needs, UnixNanos};
use ids::{JobId, NodeId, TaskIndex};
use std::cmp::Reverse;

impl State {
    /// Ends the reservation of a node if `is_it` holds for it.
    pub(crate) fn keep_for_nobody(&mut self, is_it: impl Fn(JobId, NodeId) -> bool) {
        if let Some((_, node)) = self.kept.take_if(|(job, node)| is_it(*job, *node)) {
            self.holders_when_kept = None;
            (self.room_changed, self.look_everywhere) = (true, true);
            self.woken.insert(node);
        }
    }

    /// Returns the reserved node and its job, if the whole node is reserved because the job needs several slots.
    pub(crate) fn kept_for_wide(&self) -> Option<(JobId, NodeId)> {
        self.kept.filter(|_| self.holders_when_kept.is_some())
    }

    /// Returns the node that is reserved as a whole for a job with several slots.
    pub(crate) fn node_kept_for_wide(&self) -> Option<NodeId> {
        self.kept_for_wide().map(|(_, node)| node)
    }

    /// Returns the claim that may start on a node, given its best claim. On a node that is reserved for a job with several
    /// slots, this is the claim of that job, or one on a higher level.
    pub(crate) fn allowed_on(
        &self,
        node: NodeId,
        best: Option<NextClaim>,
        now: UnixNanos,
    ) -> Option<NextClaim> {
        let Some((id, _)) = self.kept_for_wide().filter(|(_, kept)| *kept == node) else { return best };
        let job = &self.jobs[&id];
        let (level, user, needs, order) = (job.level, job.claim.user, job.claim.needs, job.order(id));
        if best.is_some_and(|best| best.rank.0.0 > level) {
            return best;
        }
        if !self.fits(needs, node) || !self.may_take(needs, id, node, now) {
            return None;
        }
        let queues = [Queue::Needy(needs), Queue::Wide(Some(node), needs), Queue::Wide(None, needs)];
        let has_claim =
            |queue: &Queue| self.claims_of(*queue).is_some_and(|claims| claims.contains(level, user, order));
        let queue = queues.into_iter().find(has_claim)?;
        let served = self.users.get(&user).map(|user| user.served).unwrap_or_default();
        Some(NextClaim { rank: (Reverse(level), served, order), user, queue })
    }

    /// Returns the task that goes on although its node is reserved as a whole: of a job that has held memory on all nodes
    /// since before the reservation, and that no other working node can run. Call it if no claim may start there.
    pub(crate) fn stranded_on_reserved(&mut self, node: NodeId) -> Option<(JobId, TaskIndex)> {
        self.kept_for_wide().filter(|(_, kept)| *kept == node)?;
        let Self { jobs, rooms, draining, users, holders_when_kept, .. } = self;
        let works = |other: NodeId| rooms.contains_key(&other) && !draining.contains(&other);
        let mut best: Option<(ClaimRank, TaskIndex)> = None;
        for id in holders_when_kept.iter().flatten() {
            let holds = |job: &&mut Job| job.has_memory && job.phase == Phase::Running;
            let Some(job) = jobs.get_mut(id).filter(holds) else { continue };
            let current = job.current;
            let Some(task) = job.stage(current).first_stranded(node, works) else { continue };
            let served = users.get(&job.claim.user).map(|user| user.served).unwrap_or_default();
            let rank = (Reverse(job.level), served, job.order(*id));
            if best.is_none_or(|(other, _)| rank < other) {
                best = Some((rank, task));
            }
        }
        best.map(|((_, _, order), task)| (order.job, task))
    }

    /// Reserves a node for the oldest job that has waited long and fits nowhere now. One at a time. A step with a higher
    /// rank may come to the front of a queue and begin the wait there anew; a job has a limited number of steps.
    pub(crate) fn keep_a_node(&mut self, now: UnixNanos) {
        self.renew_reservation(now);
        if self.kept.is_some() {
            return;
        }
        let needy = self.needy.keys().filter(|needs| needs.takes_amounts() || needs.is_wide());
        let needy = needy.map(|needs| (Queue::Needy(*needs), None, *needs));
        let wide = self
            .wide
            .iter()
            .flat_map(|(near, kinds)| kinds.keys().map(|needs| (Queue::Wide(*near, *needs), *near, *needs)));
        let queues: Vec<(Queue, Option<NodeId>, Needs)> = needy.chain(wide).collect();
        let mut oldest: Option<(JobId, NodeId, Needs)> = None;
        for (queue, near, needs) in queues {
            let Some(id) = self.first_of(queue) else { continue };
            let since = self.jobs.get(&id).and_then(|job| job.waits_since);
            let long = since.is_some_and(|since| now.0.saturating_sub(since.0) >= MEMORY_PATIENCE_NS);
            if long
                && oldest.is_none_or(|(older, _, _)| id < older)
                && let Some(node) = self.node_to_keep(id, needs, near, now)
            {
                oldest = Some((id, node, needs));
            }
        }
        let Some((id, node, needs)) = oldest else { return };
        self.kept = Some((id, node));
        let is_whole = needs.is_wide() && self.rooms.get(&node).is_some_and(|room| self.spares(needs, room));
        self.holders_when_kept = is_whole.then(|| self.holders.clone());
    }

    /// Ends the reservation for a job with several slots if the job waits no longer, or would not start at the end of the
    /// attempts on the node: a lost attempt may have succeeded after all, the node may have come again with fewer slots,
    /// or older jobs may have taken memory on all nodes. Extends a reservation of memory to the whole node if the memory
    /// is there now.
    fn renew_reservation(&mut self, now: UnixNanos) {
        let Some((id, node)) = self.kept else { return };
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.claim.needs.is_wide()) else { return };
        let (current, needs) = (job.current, job.claim.needs);
        let waits = job.phase == Phase::Running && job.stage(current).has_waiting();
        let room = self.rooms.get(&node).filter(|room| could_ever(needs, room));
        let spares = room.is_some_and(|room| self.spares(needs, room));
        let could = room.is_some() && self.may_take(needs, id, node, now);
        let is_whole = self.holders_when_kept.is_some();
        if !(waits && could) || (is_whole && !spares) {
            self.keep_for_nobody(|_, _| true);
        } else if spares && !is_whole {
            self.holders_when_kept = Some(self.holders.clone());
        }
    }

    /// Returns whether the jobs with memory on all nodes leave enough of it on a node.
    fn spares(&self, needs: Needs, room: &Room) -> bool {
        let held_bytes = if room.shares { self.held_bytes } else { 0 };
        needs.memory_bytes == 0 || held_bytes.saturating_add(needs.memory_bytes) <= room.memory_bytes
    }

    /// Returns the job with the best claim in a queue among those with a waiting task.
    fn first_of(&mut self, queue: Queue) -> Option<JobId> {
        loop {
            let ((level, _, order), user) = self.claims_of(queue)?.best(&self.users)?;
            let id = order.job;
            let waiting = self.jobs.get_mut(&id).filter(|job| job.phase == Phase::Running).and_then(|job| {
                let current = job.current;
                job.stage(current).first_waiting(queue)
            });
            if waiting.is_some() {
                return Some(id);
            }
            self.claims_mut(queue).remove(level.0, user, order);
            self.forget_if_empty(queue);
        }
    }

    /// Returns the node to reserve among the working nodes that could ever run it, or `near` alone if given. For several
    /// slots, nodes that have the memory now go first, after them nodes that have it at the end of their attempts, and
    /// among these the node with the most waiting slots; after that the node with the most memory. Returns None if a node
    /// fits now, so that the job waits only for a slot, or if a job with several slots would pass an older one.
    fn node_to_keep(&self, id: JobId, needs: Needs, near: Option<NodeId>, now: UnixNanos) -> Option<NodeId> {
        let may_run = |node: NodeId| !self.draining.contains(&node) && near.is_none_or(|near| near == node);
        let working = || self.rooms.iter().filter(|(node, _)| may_run(**node));
        if working().any(|(node, _)| self.fits(needs, *node)) {
            return None;
        }
        let may_take = |node: NodeId| !needs.is_wide() || self.may_take(needs, id, node, now);
        let could = working().filter(|(node, room)| could_ever(needs, room) && may_take(**node));
        let slots_first = |node: NodeId, room: &Room| match needs.is_wide() {
            true => (self.fits_memory(needs, node), self.spares(needs, room), self.free_slots.count_of(node)),
            false => (false, false, 0),
        };
        could
            .max_by_key(|(node, room)| {
                (slots_first(**node, room), room.memory_bytes.saturating_sub(room.ran_bytes), **node)
            })
            .map(|(node, _)| *node)
    }
}
