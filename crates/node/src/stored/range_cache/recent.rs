//! Values by segment, in the order of their last uses.

use super::SegmentKey;
use std::collections::BTreeMap;

/// Values by segment; the least recently used one is known.
pub(super) struct Recent<V> {
    values: BTreeMap<SegmentKey, (u64, V)>,
    /// Segments by the numbers of their last uses.
    order: BTreeMap<u64, SegmentKey>,
    uses: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }
}

impl<V> Recent<V> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there is a value. This is no use.
    pub fn has(&self, key: &SegmentKey) -> bool {
        self.values.contains_key(key)
    }

    /// Uses a value.
    pub fn get(&mut self, key: &SegmentKey) -> Option<&V> {
        let (used, value) = self.values.get_mut(key)?;
        self.uses += 1;
        self.order.remove(used);
        self.order.insert(self.uses, *key);
        *used = self.uses;
        Some(value)
    }

    /// Uses a value that replaces the one before, which is returned.
    pub fn insert(&mut self, key: SegmentKey, value: V) -> Option<V> {
        let before = self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.values.insert(key, (self.uses, value));
        before
    }

    pub fn remove(&mut self, key: &SegmentKey) -> Option<V> {
        let (used, value) = self.values.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Removes the least recently used value.
    pub fn remove_oldest(&mut self) -> Option<V> {
        let (_, key) = self.order.pop_first()?;
        self.values.remove(&key).map(|(_, value)| value)
    }
}
