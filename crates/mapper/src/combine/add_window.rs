//! The window of folds that add, for sums and counts: most of its pairs never reach text or a general fold.
//!
//! ```text
//!   short key, whole amount  ->  hot keys (what they displace is emitted)
//!   long key, whole amount   ->  a table of keys and amounts, emitted when it is full
//!   any other value          ->  the fold table
//! ```
//! A key may be emitted several times; readers of combined pairs add them anyway.

use crate::combine::fold_table::FoldTable;
use crate::combine::hot_keys::{HotKeys, PackedKey, key_buffer};
use api::TaskFailure;
use functions::fold::Fold;
use functions::{Emitter, KeysInBlock, whole_amount};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64;

/// Fraction of a window's memory for hot keys.
const HOT_SHARE: u64 = 4;
/// Memory counted for each long key beside its bytes: the entry, and its slot in a table filled to one half.
const LONG_KEY_COST_BYTES: u64 = (size_of::<LongKey>() + 2 * (size_of::<u32>() + 1)) as u64;

/// A key that is too long for [`HotKeys`].
struct LongKey {
    hash: u64,
    /// Position in the text.
    offset: u32,
    length: u32,
    amount: u64,
    /// Number of pairs until the amount could overflow.
    pairs_left: u32,
}

/// Sums and counts of a window.
pub(crate) struct AddWindow {
    fold: Fold,
    hot_keys: HotKeys,
    /// Indexes into `long_keys`.
    slots: HashTable<u32>,
    long_keys: Vec<LongKey>,
    /// The bytes of long keys, one after the other.
    text: Vec<u8>,
    kept_bytes_max: u64,
    /// Values that are not plain amounts.
    rest: FoldTable,
}

impl AddWindow {
    /// Makes a window of a fold that adds. It keeps `kept_bytes_max` of long keys, and the same of other values.
    pub(crate) fn new(fold: Fold, record_bytes_max: u64, kept_bytes_max: u64) -> Self {
        Self {
            fold,
            hot_keys: HotKeys::new(kept_bytes_max / HOT_SHARE),
            slots: HashTable::new(),
            long_keys: Vec::new(),
            text: Vec::new(),
            kept_bytes_max,
            rest: FoldTable::new(fold, record_bytes_max, kept_bytes_max),
        }
    }

    /// Returns whether a fold only adds.
    pub(crate) fn serves(fold: Fold) -> bool {
        matches!(fold, Fold::Sum | Fold::Count)
    }

    /// Returns whether a fold only adds, for a job that depends on the order of keys.
    pub(crate) fn into_ordered(self) -> FoldTable {
        self.rest
    }

    /// Adds a pair; displaced pairs go to `output`. Returns the memory of the values that are not amounts.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        output: &mut dyn Emitter,
    ) -> Result<u64, TaskFailure> {
        let amount = if self.fold == Fold::Count { Some(1) } else { whole_amount(value) };
        let Some(amount) = amount else { return self.rest.add(key, value) };
        let Some(packed) = PackedKey::new(key) else { return self.add_long(key, amount, output) };
        if let Some(displaced) = self.hot_keys.add(packed, amount) {
            emit(displaced.key(&mut key_buffer()), displaced.amount, output)?;
        }
        Ok(0)
    }

    /// Adds a pair of each key and the one value. False, without effect, if the value is not a plain amount.
    ///
    /// The sets of several keys are computed first, then the pairs are added: meanwhile the sets are fetched into the
    /// cache.
    pub(crate) fn add_each(
        &mut self,
        keys: KeysInBlock<'_>,
        value: &[u8],
        output: &mut dyn Emitter,
    ) -> Result<bool, TaskFailure> {
        const STEP_KEYS: usize = 32;
        let amount = if self.fold == Fold::Count { Some(1) } else { whole_amount(value) };
        let Some(amount) = amount else { return Ok(false) };
        let mut found = [(0, None); STEP_KEYS];
        for places in keys.places.chunks(STEP_KEYS) {
            for (place, found) in places.iter().zip(&mut found) {
                let packed = PackedKey::in_block(keys.block, place.start as usize, place.length as usize);
                let set = packed.map_or(0, |key| self.hot_keys.set_of(key));
                self.hot_keys.prefetch(set);
                *found = (set, packed);
            }
            for (place, (set, packed)) in places.iter().zip(&found) {
                let Some(packed) = packed else {
                    let key = &keys.block[place.start as usize..][..place.length as usize];
                    self.add_long(key, amount, output)?;
                    continue;
                };
                if let Some(displaced) = self.hot_keys.add_to(*set, *packed, amount) {
                    emit(displaced.key(&mut key_buffer()), displaced.amount, output)?;
                }
            }
        }
        Ok(true)
    }

    fn add_long(&mut self, key: &[u8], amount: u64, output: &mut dyn Emitter) -> Result<u64, TaskFailure> {
        let (long_keys, text) = (&mut self.long_keys, &mut self.text);
        let hash = xxh3_64(key);
        let is_key = |index: &u32| {
            let entry = &long_keys[*index as usize];
            entry.hash == hash && text[entry.offset as usize..][..entry.length as usize] == *key
        };
        match self.slots.entry(hash, is_key, |index| long_keys[*index as usize].hash) {
            Entry::Occupied(slot) => {
                let entry = &mut long_keys[*slot.get() as usize];
                entry.amount += amount;
                entry.pairs_left -= 1;
                if entry.pairs_left == 0 {
                    self.drain_long(output)?;
                }
            }
            Entry::Vacant(slot) => {
                slot.insert(long_keys.len() as u32);
                // The window's limit keeps both numbers within 32 bits.
                let (offset, length) = (text.len() as u32, key.len() as u32);
                long_keys.push(LongKey { hash, offset, length, amount, pairs_left: u32::MAX });
                text.extend_from_slice(key);
                let kept_bytes = text.len() as u64 + long_keys.len() as u64 * LONG_KEY_COST_BYTES;
                if kept_bytes >= self.kept_bytes_max {
                    self.drain_long(output)?;
                }
            }
        }
        Ok(0)
    }

    #[cold]
    fn drain_long(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        for entry in &self.long_keys {
            emit(&self.text[entry.offset as usize..][..entry.length as usize], entry.amount, output)?;
        }
        self.slots.clear();
        self.long_keys.clear();
        self.text.clear();
        self.text.shrink_to(self.kept_bytes_max as usize);
        Ok(())
    }

    /// Emits the values that are not amounts.
    pub(crate) fn drain_rest(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        self.rest.drain(output)
    }

    /// Emits everything.
    pub(crate) fn drain(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        self.drain_long(output)?;
        for displaced in self.hot_keys.drain() {
            emit(displaced.key(&mut key_buffer()), displaced.amount, output)?;
        }
        self.rest.drain(output)
    }
}

#[inline]
fn emit(key: &[u8], amount: u64, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
    output.emit(key, itoa::Buffer::new().format(amount).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::AddWindow;
    use api::TaskFailure;
    use functions::fold::Fold;
    use functions::{Emitter, KeyPlace, KeysInBlock};
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Sums(BTreeMap<Vec<u8>, u64>, u32);

    impl Emitter for Sums {
        fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
            let amount: u64 = std::str::from_utf8(value).unwrap().parse().unwrap();
            *self.0.entry(key.to_vec()).or_default() += amount;
            self.1 += 1;
            Ok(())
        }
    }

    /// Long and short keys, with plain amounts and other whole ones.
    fn check(fold: Fold, kept_bytes_max: u64) -> u32 {
        let mut window = AddWindow::new(fold, 1 << 20, kept_bytes_max);
        let (mut sums, mut expected) = (Sums::default(), BTreeMap::new());
        for number in 0..60_000_u64 {
            let distinct = number * number % 5003;
            let key = if distinct % 3 == 0 {
                format!("a key that is long {distinct}")
            } else {
                distinct.to_string()
            };
            let value = if number % 7 == 0 { format!(" {}.0", number % 5) } else { (number % 5).to_string() };
            if window.add(key.as_bytes(), value.as_bytes(), &mut sums).unwrap() > kept_bytes_max {
                window.drain_rest(&mut sums).unwrap();
            }
            let amount = if fold == Fold::Count { 1 } else { number % 5 };
            *expected.entry(key.into_bytes()).or_insert(0) += amount;
        }
        let block = b"short the rest is a longer key";
        let places = [(0, 5), (6, 3), (10, 20), (6, 3)].map(|(start, length)| KeyPlace { start, length });
        let keys = KeysInBlock { block, places: &places };
        assert!(window.add_each(keys, b"2", &mut sums).unwrap());
        assert_eq!(window.add_each(keys, b"2.0", &mut sums).unwrap(), fold == Fold::Count);
        // Two calls that count one each, or one call that adds two.
        let each = 2;
        keys.iter().for_each(|key| *expected.entry(key.to_vec()).or_insert(0) += each);
        window.drain(&mut sums).unwrap();
        assert_eq!(sums.0, expected);
        sums.1
    }

    #[test]
    fn sums_and_counts_are_kept_whatever_the_room() {
        for fold in [Fold::Sum, Fold::Count] {
            let (tight, roomy) = (check(fold, 1), check(fold, 1 << 20));
            assert!(roomy < tight && roomy < 12_000, "{roomy} pairs, {tight} with little room");
        }
    }
}
