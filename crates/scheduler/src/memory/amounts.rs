//! Amounts of generic resources, by the numbers of their kinds.

use std::collections::BTreeMap;

/// Maximum number of kinds of resources of a node, and of a job.
pub const RESOURCE_KINDS_MAX: usize = 8;

/// An amount of a generic resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// Number of its kind.
    pub kind: u32,
    pub count: u32,
}

/// Amounts of different kinds, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amounts {
    /// The used ones come first; the count of the others is 0.
    amounts: [Amount; RESOURCE_KINDS_MAX],
}

impl Amounts {
    /// Returns these amounts, of at most [`RESOURCE_KINDS_MAX`] kinds. Kinds beyond that are left out.
    pub fn of(amounts: impl IntoIterator<Item = Amount>) -> Self {
        let mut by_kind: BTreeMap<u32, u32> = BTreeMap::new();
        for Amount { kind, count } in amounts.into_iter().filter(|amount| amount.count > 0) {
            let sum = by_kind.entry(kind).or_default();
            *sum = sum.saturating_add(count);
        }
        let mut all = Self::default();
        for (place, (kind, count)) in all.amounts.iter_mut().zip(by_kind) {
            *place = Amount { kind, count };
        }
        all
    }

    pub fn is_none(&self) -> bool {
        self.amounts[0].count == 0
    }

    /// Returns the amounts, by kind.
    pub fn iter(&self) -> impl Iterator<Item = Amount> {
        self.amounts.into_iter().take_while(|amount| amount.count > 0)
    }

    /// Returns the count of a kind.
    pub fn count_of(&self, kind: u32) -> u32 {
        self.iter().find(|amount| amount.kind == kind).map_or(0, |amount| amount.count)
    }

    /// Returns whether a node with these amounts, of which attempts have taken some, has others left.
    pub(crate) fn spare(&self, taken: &BTreeMap<u32, u64>, needs: &Self) -> bool {
        needs.iter().all(|Amount { kind, count }| {
            let taken = taken.get(&kind).copied().unwrap_or(0);
            taken.saturating_add(u64::from(count)) <= u64::from(self.count_of(kind))
        })
    }
}
