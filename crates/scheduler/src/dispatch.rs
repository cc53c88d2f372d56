//! Assignment of tasks to slots: slots in the order in which they asked, each to the job with the best claim that has a
//! task for its node. The cost of an event depends on the number of starts, not on the number of waiting jobs or slots.

use crate::ready::{NextClaim, Queue};
use crate::state::{Phase, Running, State};
use crate::{AGING_NS, Action, LOCALITY_DELAY_NS, Outbox, Slot, UnixNanos, Why, WhyHere};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, TaskIndex, TaskKey};

/// Gives work to every waiting slot as long as there is work.
pub(crate) fn dispatch(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos) {
    state.let_far_tasks_go(now);
    state.raise_those_who_wait(now);
    // A job on a higher level may have come, or risen; the loop over all slots leaves this node out.
    state.woken.extend(state.node_kept_for_wide());
    while state.has_tasks_for_any_node() {
        let Some(slot) = state.free_slots.first_outside(state.node_kept_for_wide()) else { break };
        match choose(state, slot.node, now) {
            Some((job, task)) => start(state, outbox, job, task, slot, now),
            // If nodes do not differ, nothing for this node means nothing for any: only tasks bound to other nodes are
            // left.
            None => {
                if std::mem::take(&mut state.look_everywhere) || !state.shares(slot.node) {
                    state.woken.extend(state.free_slots.nodes());
                }
                break;
            }
        }
    }
    // A start may wake a further node, because it ends the reservation there.
    while let Some(node) = state.woken.pop_first() {
        let drains = state.draining.contains(&node);
        let waiting = |state: &State| match drains {
            true => state.draining_slots.first_of(node),
            false => state.free_slots.first_of(node),
        };
        while let Some(slot) = waiting(state) {
            let Some((job, task)) = choose(state, node, now) else { break };
            start(state, outbox, job, task, slot, now);
        }
    }
    // Slots come first: a task that waits for a place of one node could run at once in a slot of another. The slots and
    // places of a reserved node do not count.
    let reserved = state.node_kept_for_wide();
    while state.free_slots.first_outside(reserved).is_none()
        && let Some(place) = state.places.first_outside(reserved)
        && let Some((job, task)) = choose(state, place.node, now)
        && state.jobs[&job].is_one_task()
    {
        start(state, outbox, job, task, place, now);
    }
}

/// Returns the job with the best claim that has a task for the node, and this task.
pub(crate) fn choose(state: &mut State, node: NodeId, now: UnixNanos) -> Option<(JobId, TaskIndex)> {
    let drains = state.draining.contains(&node);
    loop {
        let Some(NextClaim { rank, user, queue }) = best_claim(state, node, drains, now) else {
            return state.stranded_on_reserved(node);
        };
        let (level, _, order) = rank;
        let id = order.job;
        let job = state.jobs.get_mut(&id).filter(|job| job.phase == Phase::Running && !job.is_held);
        let is_current = job.as_ref().is_some_and(|job| job.level == level.0);
        let found = job.and_then(|job| {
            let current = job.current;
            if queue.is_far() && job.far_due.is_some() && !job.stage(current).is_planned {
                return None;
            }
            let first = match drains {
                true => job.stage(current).first_bound(node),
                false => job.stage(current).first_waiting(queue),
            };
            Some((first?, job.level))
        });
        match found {
            Some((task, _)) if is_current => return Some((id, task)),
            // It has no task in this queue any more, or is on another level now.
            _ => {
                state.claims_mut(queue).remove(level.0, user, order);
                state.forget_if_empty(queue);
                if let Some((_, level)) = found {
                    state.claims_mut(queue).insert(level, user, order);
                }
            }
        }
    }
}

/// Returns the best claim over all kinds of queues; among equals a task near its data goes first. A node that drains,
/// or that takes no part in jobs with data everywhere, is not offered the shared queues.
fn best_claim(state: &State, node: NodeId, drains: bool, now: UnixNanos) -> Option<NextClaim> {
    // If a node takes no part in jobs with data everywhere, these jobs keep to the other nodes.
    let is_left_out = drains || !state.shares(node);
    let near = state.near.get(&node).map(|claims| (claims, Queue::Of(node)));
    let others = [(&state.anywhere, Queue::Anywhere), (&state.far, Queue::Far)];
    let all = near.into_iter().chain(others.into_iter().filter(|_| !is_left_out));
    let best = all.filter_map(|(claims, queue)| {
        claims.best(&state.users).map(|(standing, user)| (standing, user, queue))
    });
    let best = best.chain(state.best_needy(node, now)).min_by_key(|(standing, _, _)| *standing);
    let best = best.map(|(rank, user, queue)| NextClaim { rank, user, queue });
    state.allowed_on(node, best, now)
}

/// Starts the task that was chosen for the slot, or a copy of a running one.
pub(crate) fn start(
    state: &mut State,
    outbox: &mut impl Outbox,
    id: JobId,
    index: TaskIndex,
    slot: Slot,
    now: UnixNanos,
) {
    let slots_free = state.free_slots.count() + state.draining_slots.count();
    state.free_slots.remove(slot);
    state.draining_slots.remove(slot);
    state.places.remove(slot);
    let job = state.jobs.get_mut(&id).expect("the job was chosen a moment ago");
    let waited_ns = job.waits_since.map_or(0, |since| now.0.saturating_sub(since.0));
    let levels_risen = u32::try_from(job.level - i64::from(job.claim.priority)).unwrap_or(0);
    let stage_index = job.current;
    let stage = job.stage(stage_index);
    let place = stage.take(index, slot.node);
    let (is_only_one, is_planned) = (stage.tasks.len() == 1, stage.is_planned);
    let task = &mut stage.tasks[index.0 as usize];
    let attempt = AttemptNumber(task.attempts_started);
    task.attempts_started += 1;
    task.running += 1;
    let attempt = AttemptKey { task: TaskKey { job: id, stage: stage_index, task: index }, attempt };
    job.running.insert(attempt, Running::new(slot, now));
    let slots = job.claim.needs.slots();
    state.starts += 1;
    let served = &mut state.users.entry(job.claim.user).or_default().served;
    let user_running = served.running;
    (served.running, served.last_start) = (served.running + slots, state.starts);
    state.take_slots_beside(attempt, slot.node);
    state.take_attempt_memory(id, slot.node);
    if place != WhyHere::BesideSlow {
        state.begin_wait(id, now);
    }
    if place == WhyHere::NearData || is_planned {
        state.keep_far_tasks(id, now);
    }
    if !is_only_one || place != WhyHere::Any {
        let why = Why { place, waited_ns, slots_free, user_running, levels_risen };
        outbox.push(Action::Placed { attempt, why });
    }
    outbox.push(Action::StartAttempt { attempt, slot });
}

impl State {
    /// Enters the claims of a job with waiting tasks in the current stage.
    pub(crate) fn claim(&mut self, id: JobId, now: UnixNanos) {
        if self.must_wait_for_memory(id, now) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_held) else { return };
        let (level, user, current) = (job.level, job.claim.user, job.current);
        let (needs, order) = (job.claim.needs, job.order(id));
        let opened = std::mem::take(&mut job.stage(current).ready.opened);
        for queue in opened {
            match queue {
                Queue::Far => self.keep_far_tasks(id, now),
                Queue::Of(node) => {
                    self.claims_mut(queue.for_needs(needs)).insert(level, user, order);
                    self.woken.insert(node);
                }
                Queue::Anywhere | Queue::Needy(_) | Queue::Wide(..) => {
                    let queue = queue.for_needs(needs);
                    self.look_everywhere |= !needs.everywhere && !needs.is_nothing();
                    self.claims_mut(queue).insert(level, user, order);
                }
            }
        }
        let job = &self.jobs[&id];
        if job.waits_since.is_none() && job.phase == Phase::Running {
            self.begin_wait(id, now);
        }
    }

    pub(crate) fn claims_mut(&mut self, queue: Queue) -> &mut crate::claims::Claims {
        match queue {
            Queue::Anywhere => &mut self.anywhere,
            Queue::Far => &mut self.far,
            Queue::Of(node) => self.near.entry(node).or_default(),
            Queue::Needy(needs) => self.needy.entry(needs).or_default(),
            Queue::Wide(near, needs) => self.wide.entry(near).or_default().entry(needs).or_default(),
        }
    }

    /// Returns the claims to a queue; None if there are none.
    pub(crate) fn claims_of(&self, queue: Queue) -> Option<&crate::claims::Claims> {
        match queue {
            Queue::Anywhere => Some(&self.anywhere),
            Queue::Far => Some(&self.far),
            Queue::Of(node) => self.near.get(&node),
            Queue::Needy(needs) => self.needy.get(&needs),
            Queue::Wide(near, needs) => self.wide.get(&near)?.get(&needs),
        }
    }

    /// Returns whether jobs claim slots regardless of their node.
    fn has_tasks_for_any_node(&self) -> bool {
        let only_near = self.anywhere.is_empty() && self.far.is_empty() && self.needy.is_empty();
        !only_near || self.wide.contains_key(&None)
    }

    pub(crate) fn forget_if_empty(&mut self, queue: Queue) {
        if let Queue::Of(node) = queue
            && self.near.get(&node).is_some_and(crate::claims::Claims::is_empty)
        {
            self.near.remove(&node);
        }
        if let Queue::Needy(needs) = queue
            && self.needy.get(&needs).is_some_and(crate::claims::Claims::is_empty)
        {
            self.needy.remove(&needs);
        }
        if let Queue::Wide(near, needs) = queue
            && let Some(kinds) = self.wide.get_mut(&near)
        {
            if kinds.get(&needs).is_some_and(crate::claims::Claims::is_empty) {
                kinds.remove(&needs);
            }
            if kinds.is_empty() {
                self.wide.remove(&near);
            }
        }
    }

    /// Makes the far tasks of a job wait for a slot nearer to their data.
    fn keep_far_tasks(&mut self, id: JobId, now: UnixNanos) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let current = job.current;
        if job.stage(current).is_planned {
            return self.let_planned_tasks_go(id, now);
        }
        let due = UnixNanos(now.0 + LOCALITY_DELAY_NS);
        if let Some(before) = job.far_due.replace(due) {
            self.far_due.remove(&(before, id));
        }
        self.far_due.insert((due, id));
        let (level, user, queue) = (job.level, job.claim.user, Queue::Far.for_needs(job.claim.needs));
        let order = job.order(id);
        self.claims_mut(queue).remove(level, user, order);
        self.forget_if_empty(queue);
    }

    /// Enters the claim of a job whose far tasks have waited long enough.
    fn claim_far(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (level, user, needs, order) = (job.level, job.claim.user, job.claim.needs, job.order(id));
        self.look_everywhere |= needs.picks_nodes();
        self.claims_mut(Queue::Far.for_needs(needs)).insert(level, user, order);
    }

    /// Releases the far tasks that have waited long enough.
    fn let_far_tasks_go(&mut self, now: UnixNanos) {
        while let Some((due, id)) = self.far_due.first().copied().filter(|(due, _)| *due <= now) {
            self.far_due.remove(&(due, id));
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.far_due = None;
            let current = job.current;
            match job.stage(current).is_planned {
                true => self.let_planned_tasks_go(id, now),
                false => self.claim_far(id),
            }
        }
    }

    /// Releases the far tasks of a planned stage that have waited long enough, and notes the time of the next one.
    fn let_planned_tasks_go(&mut self, id: JobId, now: UnixNanos) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let current = job.current;
        let due = job.stage(current).let_far_tasks_go(now);
        if let Some(before) = std::mem::replace(&mut job.far_due, due) {
            self.far_due.remove(&(before, id));
        }
        self.far_due.extend(due.map(|due| (due, id)));
        if job.stage(current).first_waiting(Queue::Far).is_some() {
            self.claim_far(id);
        }
    }

    /// Restarts the wait of a job that was just served or submitted: it is on its own level again.
    fn begin_wait(&mut self, id: JobId, now: UnixNanos) {
        self.leave_waiting(id);
        let Some(job) = self.jobs.get(&id) else { return };
        self.move_to(id, i64::from(job.claim.priority));
        self.wait_on(id, now);
    }

    fn wait_on(&mut self, id: JobId, now: UnixNanos) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.waits_since = Some(now);
        self.waits_since.insert((now, id));
        *self.levels.entry(job.level).or_default() += 1;
    }

    /// Removes a job from the list of waiting jobs.
    pub(crate) fn leave_waiting(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(since) = job.waits_since.take() else { return };
        self.waits_since.remove(&(since, id));
        if let Some(count) = self.levels.get_mut(&job.level) {
            *count -= 1;
            if *count == 0 {
                self.levels.remove(&job.level);
            }
        }
    }

    /// Raises jobs that were not served for [`AGING_NS`] by a level, as long as a higher one exists, so that no
    /// priority starves another forever. On one level users share, and the oldest job of a user goes first.
    fn raise_those_who_wait(&mut self, now: UnixNanos) {
        while let Some((since, id)) = self.waits_since.first().copied() {
            if now.0.saturating_sub(since.0) < AGING_NS {
                return;
            }
            let highest = self.levels.last_key_value().map_or(i64::MIN, |(level, _)| *level);
            self.leave_waiting(id);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let current = job.current;
            if job.phase != Phase::Running || job.is_held || !job.stage(current).has_waiting() {
                continue;
            }
            let level = job.level;
            self.move_to(id, (level + 1).min(highest));
            self.wait_on(id, now);
        }
    }

    /// Changes the level of a job. Claims on the old level are dropped when they are found.
    fn move_to(&mut self, id: JobId, level: i64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.level == level {
            return;
        }
        job.level = level;
        let (user, current, needs) = (job.claim.user, job.current, job.claim.needs);
        let order = job.order(id);
        let far_may_go = job.far_due.is_none() || job.stage(current).is_planned;
        for queue in job.stage(current).queues_with_waiting() {
            if queue != Queue::Far || far_may_go {
                self.claims_mut(queue.for_needs(needs)).insert(level, user, order);
            }
        }
    }
}
