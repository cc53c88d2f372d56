//! The scheduler, and the execution of its orders on jobs and nodes.

mod architectures;
mod early_readers;
mod feed;
mod finished;
mod near_inputs;
mod orders;
mod placements;
mod progress;
mod resource_kinds;
mod run_again;
mod seen_inputs;
pub(crate) mod seen_listings;
pub(crate) mod speculative_attempts;

pub(crate) use architectures::Architectures;
pub use early_readers::EarlyWriter;
pub(crate) use early_readers::{EarlyReader, EarlyReaders, TRIES_MAX};
pub(crate) use feed::feed;
pub(crate) use finished::{attempt_finished, ended};
pub(crate) use near_inputs::{inputs_moved, plan_again};
pub(crate) use progress::{all_done, progressed};
pub(crate) use resource_kinds::ResourceKinds;
pub(crate) use run_again::{attempt_lost, attempt_unrun, run_again};
pub(crate) use seen_inputs::{bound, waits_to_see};

use ids::{AttemptKey, JobId, NodeId};
use near_inputs::Planning;
use scheduler::{Action, Event, Needs, StageCounts, State, UnixNanos, Wait};
use std::collections::{BTreeSet, VecDeque};

/// The scheduler, with its orders that are not executed yet.
#[derive(Default)]
pub(crate) struct Scheduling {
    state: State,
    actions: VecDeque<Action>,
    /// Architectures of nodes, by their numbers in the scheduler.
    architectures: Architectures,
    resource_kinds: ResourceKinds,
    planning: Planning,
    early: EarlyReaders,
}

impl Scheduling {
    fn handle(&mut self, now: UnixNanos, event: Event) {
        scheduler::handle(&mut self.state, &mut self.actions, now, event);
    }

    fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub fn architectures(&mut self) -> &mut Architectures {
        &mut self.architectures
    }

    pub fn known_architectures(&self) -> &Architectures {
        &self.architectures
    }

    pub fn resource_kinds(&mut self) -> &mut ResourceKinds {
        &mut self.resource_kinds
    }

    pub fn known_resource_kinds(&self) -> &ResourceKinds {
        &self.resource_kinds
    }

    fn planning(&mut self) -> &mut Planning {
        &mut self.planning
    }

    pub fn has_jobs(&self) -> bool {
        scheduler::has_jobs(&self.state)
    }

    /// Returns the counts of each stage; None for a job that is over.
    pub fn stage_counts(&self, job: JobId) -> Option<Vec<StageCounts>> {
        scheduler::stage_counts(&self.state, job)
    }

    pub fn wait_of(&self, job: JobId) -> Option<Wait> {
        scheduler::wait_of(&self.state, job)
    }

    /// Returns the nodes that may not receive data of jobs now.
    pub fn left_out(&self) -> BTreeSet<NodeId> {
        scheduler::left_out(&self.state)
    }

    /// Returns the steps that read the output of running ones.
    pub fn early(&self) -> &EarlyReaders {
        &self.early
    }

    pub fn early_mut(&mut self) -> &mut EarlyReaders {
        &mut self.early
    }

    /// Returns the running attempt of a job of one task, with its node.
    pub fn live_attempt(&self, job: JobId) -> Option<(AttemptKey, NodeId)> {
        scheduler::live_attempt(&self.state, job)
    }

    /// Returns whether a task waits for a slot, or for memory.
    pub fn wants_slots(&mut self) -> bool {
        scheduler::wants_slots(&mut self.state)
    }

    /// Returns whether an attempt could start at once on a slot that nothing else wants.
    pub fn has_idle_room(&mut self, needs: Needs) -> bool {
        scheduler::has_idle_room(&mut self.state, needs)
    }

    /// Checks the invariants of the scheduler. Panics where one is broken.
    pub fn check(&self) {
        scheduler::sanity_check(&self.state);
    }
}
