//! Reservation of a node for a job that needs memory or several slots where it runs, and has waited long. Small jobs would
//! fill each gap on every node, for ever.
//!
//! One node is reserved at a time, for the oldest such job. For memory, the other jobs leave the memory of the node alone.
//! For slots, they leave the node alone: its attempts end, and no other begins, until enough slots wait. Only jobs on a
//! higher level go on there.

use super::{MEMORY_PATIENCE_NS, could_ever};
use crate::claims::ClaimRank;
use crate::ready::Queue;
use crate::state::{Phase, State};
use crate::{Needs, UnixNanos};
use ids::{JobId, NodeId};
use std::cmp::Reverse;

impl State {
    /// Ends the reservation of a node if `is_it` holds for it.
    pub(crate) fn keep_for_nobody(&mut self, is_it: impl Fn(JobId, NodeId) -> bool) {
        if let Some((_, node)) = self.kept.take_if(|(job, node)| is_it(*job, *node)) {
            (self.room_changed, self.look_everywhere) = (true, true);
            self.woken.insert(node);
        }
    }

    /// Returns the reserved node and its job, if the job needs several slots.
    pub(crate) fn kept_for_wide(&self) -> Option<(JobId, NodeId)> {
        self.kept.filter(|(id, _)| self.jobs.get(id).is_some_and(|job| job.claim.needs.is_wide()))
    }

    /// Returns the node that is reserved for a job with several slots.
    pub(crate) fn node_kept_for_wide(&self) -> Option<NodeId> {
        self.kept_for_wide().map(|(_, node)| node)
    }

    /// Returns the claim that may start on a node, given its best claim. On a node that is reserved for a job with several
    /// slots, this is the claim of that job, or one on a higher level.
    pub(crate) fn allowed_on(
        &self,
        node: NodeId,
        best: Option<(ClaimRank, u64, Queue)>,
        now: UnixNanos,
    ) -> Option<(ClaimRank, u64, Queue)> {
        let Some((id, _)) = self.kept_for_wide().filter(|(_, kept)| *kept == node) else { return best };
        let job = &self.jobs[&id];
        let (level, user, needs) = (job.level, job.claim.user, job.claim.needs);
        if best.is_some_and(|((Reverse(other), _, _), _, _)| other > level) {
            return best;
        }
        if !self.fits(needs, node) || !self.may_take(needs, id, node, now) {
            return None;
        }
        let queues = [Queue::Needy(needs), Queue::Wide(Some(node), needs), Queue::Wide(None, needs)];
        let has_claim =
            |queue: &Queue| self.claims_of(*queue).is_some_and(|claims| claims.contains(level, user, id));
        let queue = queues.into_iter().find(has_claim)?;
        let served = self.users.get(&user).map(|user| user.served).unwrap_or_default();
        Some(((Reverse(level), served, id), user, queue))
    }

    /// Reserves a node for the oldest job that has waited long and fits nowhere now. One at a time.
    pub(crate) fn keep_a_node(&mut self, now: UnixNanos) {
        self.end_idle_reservation();
        if self.kept.is_some() {
            return;
        }
        let needy = self.needy.keys().filter(|needs| needs.memory_bytes > 0 || needs.is_wide());
        let needy = needy.map(|needs| (Queue::Needy(*needs), None, *needs));
        let wide = self
            .wide
            .iter()
            .flat_map(|(near, kinds)| kinds.keys().map(|needs| (Queue::Wide(*near, *needs), *near, *needs)));
        let queues: Vec<(Queue, Option<NodeId>, Needs)> = needy.chain(wide).collect();
        let mut oldest: Option<(JobId, NodeId)> = None;
        for (queue, near, needs) in queues {
            let Some(id) = self.first_of(queue) else { continue };
            let since = self.jobs.get(&id).and_then(|job| job.waits_since);
            let long = since.is_some_and(|since| now.0.saturating_sub(since.0) >= MEMORY_PATIENCE_NS);
            if long
                && oldest.is_none_or(|(older, _)| id < older)
                && let Some(node) = self.node_to_keep(needs, near)
            {
                oldest = Some((id, node));
            }
        }
        self.kept = oldest;
    }

    /// Ends the reservation of a whole node if its job waits no longer, or cannot run there any more: a lost attempt may
    /// have succeeded after all, or the node came again with fewer slots.
    fn end_idle_reservation(&mut self) {
        let Some((id, node)) = self.kept_for_wide() else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (current, needs) = (job.current, job.claim.needs);
        let waits = job.phase == Phase::Running && job.stage(current).has_waiting();
        let could = self.rooms.get(&node).is_some_and(|room| could_ever(needs, room));
        if !(waits && could) {
            self.keep_for_nobody(|_, _| true);
        }
    }

    /// Returns the job with the best claim in a queue among those with a waiting task.
    fn first_of(&mut self, queue: Queue) -> Option<JobId> {
        loop {
            let ((level, _, id), user) = self.claims_of(queue)?.best(&self.users)?;
            let waiting = self.jobs.get_mut(&id).filter(|job| job.phase == Phase::Running).and_then(|job| {
                let current = job.current;
                job.stage(current).first_waiting(queue)
            });
            if waiting.is_some() {
                return Some(id);
            }
            self.claims_mut(queue).remove(level.0, user, id);
            self.forget_if_empty(queue);
        }
    }

    /// Returns the node to reserve among the working nodes that could ever run it, or `near` alone if given. For several
    /// slots, nodes that have the memory now go first, and the node with the most waiting slots among them; after that
    /// the node with the most memory. Returns None if a node fits now, so that the job waits only for a slot.
    fn node_to_keep(&self, needs: Needs, near: Option<NodeId>) -> Option<NodeId> {
        let may_run = |node: NodeId| !self.draining.contains(&node) && near.is_none_or(|near| near == node);
        let working = || self.rooms.iter().filter(|(node, _)| may_run(**node));
        if working().any(|(node, _)| self.fits(needs, *node)) {
            return None;
        }
        let could = working().filter(|(_, room)| could_ever(needs, room));
        let slots_first = |node: NodeId| match needs.is_wide() {
            true => (self.fits_memory(needs, node), self.free_slots.count_of(node)),
            false => (false, 0),
        };
        could
            .max_by_key(|(node, room)| {
                (slots_first(**node), room.memory_bytes.saturating_sub(room.ran_bytes), **node)
            })
            .map(|(node, _)| *node)
    }
}
