//! The waiting slots, in the order in which they asked.

pub(crate) mod held;
pub(crate) mod occupied;

use crate::Slot;
use ids::NodeId;
use std::collections::BTreeMap;

/// Waiting slots. No call visits more of them than it returns.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSlots {
    by_ticket: BTreeMap<u64, Slot>,
    /// Ticket by slot number, by node.
    by_node: BTreeMap<NodeId, BTreeMap<u32, u64>>,
    next_ticket: u64,
}

impl FreeSlots {
    /// Adds a slot. A slot that waits already keeps its position.
    pub fn insert(&mut self, slot: Slot) {
        let tickets = self.by_node.entry(slot.node).or_default();
        if tickets.contains_key(&slot.slot) {
            return;
        }
        tickets.insert(slot.slot, self.next_ticket);
        self.by_ticket.insert(self.next_ticket, slot);
        self.next_ticket += 1;
    }

    pub fn remove(&mut self, slot: Slot) {
        let Some(tickets) = self.by_node.get_mut(&slot.node) else { return };
        if let Some(ticket) = tickets.remove(&slot.slot) {
            self.by_ticket.remove(&ticket);
        }
        if tickets.is_empty() {
            self.by_node.remove(&slot.node);
        }
    }

    pub fn remove_node(&mut self, node: NodeId) {
        for ticket in self.by_node.remove(&node).into_iter().flatten().map(|(_, ticket)| ticket) {
            self.by_ticket.remove(&ticket);
        }
    }

    pub fn count(&self) -> u32 {
        self.by_ticket.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    pub fn count_of(&self, node: NodeId) -> u32 {
        self.by_node.get(&node).map_or(0, |tickets| tickets.len() as u32)
    }

    /// Returns the slot that has waited longest, among those of other nodes than this one. Visits the slots of this
    /// node besides.
    pub fn first_outside(&self, node: Option<NodeId>) -> Option<Slot> {
        self.by_ticket.values().find(|slot| Some(slot.node) != node).copied()
    }

    /// Returns the slot of a node that has waited longest.
    pub fn first_of(&self, node: NodeId) -> Option<Slot> {
        let (slot, _) = self.by_node.get(&node)?.iter().min_by_key(|(_, ticket)| **ticket)?;
        Some(Slot { node, slot: *slot })
    }

    /// Returns the nodes with waiting slots.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.by_node.keys().copied()
    }

    /// Returns all slots, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.by_ticket.values()
    }
}
