//! The slots that running attempts have taken besides their own. No order goes to such a slot, so it goes on asking.

use crate::Slot;
use crate::state::State;
use ids::{AttemptKey, NodeId};
use std::collections::BTreeMap;

/// Occupied slots by node. A slot is occupied by one attempt, until the end of this attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct OccupiedSlots {
    by_node: BTreeMap<NodeId, OfNode>,
}

#[derive(Clone, Debug, Default)]
struct OfNode {
    taken: BTreeMap<u32, Taken>,
    /// Attempts of a previous server, with the number of slots that they have taken and that have not asked yet.
    owed: BTreeMap<AttemptKey, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    by: AttemptKey,
    /// True if the slot has asked for work, and has not stopped since.
    asks: bool,
}

impl OccupiedSlots {
    fn take(&mut self, slot: Slot, by: AttemptKey) {
        let before =
            self.by_node.entry(slot.node).or_default().taken.insert(slot.slot, Taken { by, asks: true });
        assert!(before.is_none(), "{slot:?} is taken by two attempts");
    }

    fn owe(&mut self, node: NodeId, to: AttemptKey, count: u32) {
        self.by_node.entry(node).or_default().owed.insert(to, count);
    }

    /// Notes that a slot asks for work. Returns true if it is occupied, perhaps from now on because slots of its node
    /// are owed to an attempt.
    fn hears(&mut self, slot: Slot) -> bool {
        let Some(of_node) = self.by_node.get_mut(&slot.node) else { return false };
        if let Some(taken) = of_node.taken.get_mut(&slot.slot) {
            taken.asks = true;
            return true;
        }
        let Some(mut owed) = of_node.owed.first_entry() else { return false };
        let by = *owed.key();
        *owed.get_mut() -= 1;
        if *owed.get() == 0 {
            owed.remove();
        }
        of_node.taken.insert(slot.slot, Taken { by, asks: true });
        true
    }

    /// Notes that a slot does not ask any more.
    pub fn slot_gone(&mut self, slot: Slot) {
        let of_node = self.by_node.get_mut(&slot.node);
        if let Some(taken) = of_node.and_then(|of_node| of_node.taken.get_mut(&slot.slot)) {
            taken.asks = false;
        }
    }

    /// Notes that no slot of a node asks any more.
    pub fn slots_gone(&mut self, node: NodeId) {
        let taken = self.by_node.get_mut(&node).into_iter().flat_map(|of_node| of_node.taken.values_mut());
        taken.for_each(|taken| taken.asks = false);
    }

    /// Ends the occupation by an attempt. Returns the slots that still ask.
    fn release(&mut self, node: NodeId, by: AttemptKey) -> Vec<Slot> {
        let Some(of_node) = self.by_node.get_mut(&node) else { return Vec::new() };
        of_node.owed.remove(&by);
        let own = of_node.taken.extract_if(.., |_, taken| taken.by == by);
        let asking = own.filter(|(_, taken)| taken.asks).map(|(slot, _)| Slot { node, slot }).collect();
        if of_node.taken.is_empty() && of_node.owed.is_empty() {
            self.by_node.remove(&node);
        }
        asking
    }

    /// Returns whether attempts have taken slots of a node besides their own, or will take them when they ask.
    pub fn has_any_of(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    /// Returns all occupied slots, each with its attempt.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, AttemptKey)> {
        self.by_node.iter().flat_map(|(node, of_node)| {
            of_node.taken.iter().map(|(slot, taken)| (Slot { node: *node, slot: *slot }, taken.by))
        })
    }

    /// Returns the attempts to which slots are owed, with the node and the number of slots.
    pub fn owed(&self) -> impl Iterator<Item = (AttemptKey, NodeId, u32)> {
        let each = |(node, of_node): (&NodeId, _)| (*node, of_node);
        self.by_node.iter().map(each).flat_map(|(node, of_node): (NodeId, &OfNode)| {
            of_node.owed.iter().map(move |(attempt, count)| (*attempt, node, *count))
        })
    }
}

impl State {
    /// Returns the number of slots of a node that wait for work.
    pub(crate) fn waiting_slots(&self, node: NodeId) -> u32 {
        self.free_slots.count_of(node) + self.draining_slots.count_of(node)
    }

    /// Takes slots for an attempt besides its own: the waiting ones of its node that have waited longest. If too few
    /// wait, because a previous server gave them to the attempt, the next ones that ask are taken too. The node loses its
    /// places: it gives an order in a place to any idle slot, and an occupied slot is idle there.
    pub(crate) fn take_slots_beside(&mut self, attempt: AttemptKey, node: NodeId) {
        let Some(job) = self.jobs.get(&attempt.task.job) else { return };
        if job.claim.needs.is_wide() {
            self.places.remove_node(node);
        }
        for taken in 0..job.claim.needs.slots_beside {
            let waiting = self.free_slots.first_of(node).or_else(|| self.draining_slots.first_of(node));
            let Some(slot) = waiting else {
                return self.occupied.owe(node, attempt, job.claim.needs.slots_beside - taken);
            };
            self.free_slots.remove(slot);
            self.draining_slots.remove(slot);
            self.occupied.take(slot, attempt);
        }
    }

    /// Lets the slots that an ended attempt had taken besides its own wait for work again, if they still ask.
    pub(crate) fn give_slots_beside_back(&mut self, attempt: AttemptKey, node: NodeId) {
        for slot in self.occupied.release(node, attempt) {
            self.add_waiting_slot(slot);
        }
    }

    /// Handles the request of a slot, which waits from now on unless it is occupied.
    pub(crate) fn slot_asks(&mut self, slot: Slot) {
        if self.occupied.hears(slot) {
            self.free_slots.remove(slot);
            self.draining_slots.remove(slot);
        } else {
            self.add_waiting_slot(slot);
        }
    }

    fn add_waiting_slot(&mut self, slot: Slot) {
        match self.draining.contains(&slot.node) {
            true => self.draining_slots.insert(slot),
            false => self.free_slots.insert(slot),
        }
        self.woken.insert(slot.node);
    }
}
