//! The hash table of a combine window: one entry per key, folded as pairs arrive.
//!
//! ```text
//!   slots (hash tag, entry index)  ->  entries (head of key, place of key, fold state)  ->  arena (key, text, ...)
//! ```
//! Short keys are compared by their head alone. Nothing is allocated for a pair.

use api::TaskFailure;
use functions::Emitter;
use functions::fold::{Fold, FoldState, NotANumber};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum length of a key that is its own head.
const HEAD_BYTES: usize = 8;
/// Memory counted for each key beside its bytes: the entry, and its slot in a table filled to one half.
const KEY_COST_BYTES: u64 = (size_of::<Entry>() + 2 * (size_of::<(u32, u32)>() + 1)) as u64;

/// Exactly a cache line, the cost of a lookup beyond its slot.
#[repr(align(64))]
struct Entry {
    /// The key itself if it is short, otherwise its hash.
    head: u64,
    key_offset: u32,
    key_length: u32,
    state: FoldState,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The pairs of a window, folded.
pub(crate) struct FoldTable {
    fold: Fold,
    record_bytes_max: u64,
    /// (low half of the head's hash, index into `entries`).
    slots: HashTable<(u32, u32)>,
    /// In order of the keys' arrival.
    entries: Vec<Entry>,
    arena: Vec<u8>,
    /// Capacity to which the arena returns after a long record.
    arena_bytes: usize,
    result: Vec<u8>,
}

impl FoldTable {
    /// Makes a table that is drained when it keeps `kept_bytes_max`. Capacity for all of them is reserved at once: it
    /// costs address space until it is used, and neither copies nor twice the memory afterwards.
    pub(crate) fn new(fold: Fold, record_bytes_max: u64, kept_bytes_max: u64) -> Self {
        let arena_bytes = kept_bytes_max as usize;
        Self {
            fold,
            record_bytes_max,
            slots: HashTable::new(),
            entries: Vec::with_capacity(arena_bytes / KEY_COST_BYTES as usize + 1),
            arena: Vec::with_capacity(arena_bytes),
            arena_bytes,
            result: Vec::new(),
        }
    }

    /// Folds a pair in; returns the memory in use.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<u64, TaskFailure> {
        let head = head_of(key);
        let tag = tag_of(head, key.len());
        let (entries, arena) = (&mut self.entries, &mut self.arena);
        let is_key = |slot: &(u32, u32)| {
            let entry = &entries[slot.1 as usize];
            slot.0 == tag
                && entry.head == head
                && entry.key_length as usize == key.len()
                && (key.len() <= HEAD_BYTES || &arena[entry.key_offset as usize..][..key.len()] == key)
        };
        let outcome = match self.slots.entry(spread(tag), is_key, |slot| spread(slot.0)) {
            Slot::Occupied(slot) => {
                let entry = &mut entries[slot.get().1 as usize];
                self.fold.add(&mut entry.state, value, arena)
            }
            Slot::Vacant(slot) => {
                // The window's limit keeps both numbers within 32 bits.
                slot.insert((tag, entries.len() as u32));
                let key_offset = arena.len() as u32;
                arena.extend_from_slice(key);
                self.fold.start(value, arena).map(|state| {
                    entries.push(Entry { head, key_offset, key_length: key.len() as u32, state });
                })
            }
        };
        outcome.map_err(|error: NotANumber| error.failure(self.fold, key, value))?;
        Ok(self.arena.len() as u64 + self.entries.len() as u64 * KEY_COST_BYTES)
    }

    /// Emits a pair for each key and empties the table.
    pub(crate) fn drain(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        for entry in &self.entries {
            let key = &self.arena[entry.key_offset as usize..][..entry.key_length as usize];
            let result_bytes_max = (self.record_bytes_max as usize).saturating_sub(key.len());
            let emit = |result: &[u8]| output.emit(key, result);
            entry.state.finish(&self.arena, result_bytes_max, &mut self.result, emit)?;
        }
        self.slots.clear();
        self.entries.clear();
        self.arena.clear();
        self.arena.shrink_to(self.arena_bytes);
        self.result.shrink_to(self.arena_bytes);
        Ok(())
    }
}

/// Returns a number that, with its length, identifies a short key; for a long one its hash.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    let word = |at: usize| u64::from(u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]));
    match key.len() {
        0 => 0,
        length @ 1..=3 => {
            u64::from(key[0]) | u64::from(key[length / 2]) << 8 | u64::from(key[length - 1]) << 16
        }
        length @ 4..=HEAD_BYTES => word(0) | word(length - 4) << 32,
        _ => xxh3_64(key),
    }
}

/// Mixes a head into 32 bits, by the two halves of a wide product as wyhash does.
#[inline]
fn tag_of(head: u64, key_length: usize) -> u32 {
    let product =
        u128::from(head ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xa076_1d64_78bd_642f ^ key_length as u64);
    let folded = (product as u64) ^ (product >> 64) as u64;
    (folded ^ folded >> 32) as u32
}

/// Returns a tag as the 64-bit hash for the table: its top bits choose within a group, its low bits the group.
#[inline]
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
