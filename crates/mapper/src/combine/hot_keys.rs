//! The most frequent keys, in a table small enough for a core's cache.
//!
//! Words, user names and hosts follow Zipf's law: a few thousand of them make up most of a text. Each key belongs to
//! one set of four slots, chosen by its hash and ordered by heat; a key that is new to a full set takes the coldest
//! slot, and the displaced key is emitted. Only short keys and whole amounts are stored, so that a hit is a compare and
//! an addition. The emitted pairs and their moments depend on the pairs alone.

/// Slots of a set: two cache lines.
const WAYS: usize = 4;
/// Maximum number of sets, 1 MiB of slots: half of a core's second-level cache.
const SETS_MAX: usize = 1 << 13;
const SETS_MIN: usize = 1 << 9;
const KEY_BYTES_MAX: usize = 16;
/// Fraction of its heat that the neighbour of the coldest slot loses with each key that is new to the set: a key that
/// is hot in one chapter must not stay forever.
const COOLING: u32 = 8;

/// A key and the sum of its pairs.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Field of the [`PackedKey`], as are `last` and `length`: one field of that type would take eight bytes more.
    first: u64,
    last: u64,
    amount: u64,
    length: u32,
    /// Number of pairs, minus cooling; 0 if the slot is free.
    heat: u32,
}

impl Slot {
    #[inline]
    fn new(key: PackedKey, amount: u64) -> Self {
        Self { first: key.first, last: key.last, amount, length: key.length, heat: 1 }
    }

    /// Adds to the key if it is in this slot.
    #[inline]
    fn add(&mut self, key: PackedKey, amount: u64) -> bool {
        let here = self.first == key.first && self.last == key.last && self.length == key.length;
        if !here || self.heat == 0 {
            return false;
        }
        self.heat = self.heat.saturating_add(1);
        self.amount += amount;
        true
    }

    fn displaced(self) -> Option<Displaced> {
        let key = PackedKey { first: self.first, last: self.last, length: self.length };
        (self.heat > 0).then_some(Displaced { key, amount: self.amount })
    }
}

const _: () = assert!(size_of::<[Slot; WAYS]>() == 128);

/// A key of at most [`KEY_BYTES_MAX`] bytes, padded with zeros.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PackedKey {
    first: u64,
    last: u64,
    length: u32,
}

impl PackedKey {
    /// Packs a key; None if it is too long.
    #[inline]
    pub fn new(key: &[u8]) -> Option<Self> {
        let length = key.len();
        let (first, last) = match length {
            0 => (0, 0),
            1..=3 => {
                let middle = u64::from(key[length / 2]) << (length / 2 * 8);
                (u64::from(key[0]) | middle | u64::from(key[length - 1]) << ((length - 1) * 8), 0)
            }
            4..=7 => {
                let (first, last) = (key.first_chunk::<4>()?, key.last_chunk::<4>()?);
                let last = u64::from(u32::from_le_bytes(*last)) << ((length - 4) * 8);
                (u64::from(u32::from_le_bytes(*first)) | last, 0)
            }
            8..=KEY_BYTES_MAX => {
                let last = u64::from_le_bytes(*key.last_chunk()?);
                let last = last.checked_shr(((KEY_BYTES_MAX - length) * 8) as u32).unwrap_or(0);
                (u64::from_le_bytes(*key.first_chunk()?), last)
            }
            _ => return None,
        };
        Some(Self { first, last, length: length as u32 })
    }

    /// Packs a key within a block: if enough of the block follows, it is read in one piece, without a branch on its
    /// length.
    #[inline]
    pub fn in_block(block: &[u8], start: usize, length: usize) -> Option<Self> {
        if length > KEY_BYTES_MAX {
            return None;
        }
        match block[start..].first_chunk::<KEY_BYTES_MAX>() {
            Some(bytes) => {
                let kept = u128::MAX.checked_shr(((KEY_BYTES_MAX - length) * 8) as u32).unwrap_or(0);
                let key = u128::from_le_bytes(*bytes) & kept;
                Some(Self { first: key as u64, last: (key >> 64) as u64, length: length as u32 })
            }
            None => Self::new(&block[start..start + length]),
        }
    }

    /// Unpacks the key into the front of the buffer.
    fn unpack(self, buffer: &mut [u8; KEY_BYTES_MAX]) -> &[u8] {
        *buffer = (u128::from(self.first) | u128::from(self.last) << 64).to_le_bytes();
        &buffer[..self.length as usize]
    }

    #[inline]
    fn hash(self) -> u64 {
        let product = u128::from(self.first ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(self.last ^ 0xa076_1d64_78bd_642f ^ u64::from(self.length) << 56);
        (product >> 64) as u64 ^ product as u64
    }
}

/// A displaced key.
pub(crate) struct Displaced {
    key: PackedKey,
    pub amount: u64,
}

impl Displaced {
    /// Returns its bytes.
    pub fn key<'a>(&self, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        self.key.unpack(buffer)
    }
}

/// Returns a buffer for the bytes of a displaced key.
pub(crate) fn key_buffer() -> [u8; KEY_BYTES_MAX] {
    [0; KEY_BYTES_MAX]
}

/// The table of hot keys.
pub(crate) struct HotKeys {
    /// Number of sets, a power of two.
    sets: Vec<[Slot; WAYS]>,
}

impl HotKeys {
    /// Makes a table of about `bytes`, within its limits.
    pub fn new(bytes: u64) -> Self {
        let sets = (bytes as usize / size_of::<[Slot; WAYS]>()).clamp(SETS_MIN, SETS_MAX);
        Self { sets: vec![[Slot::default(); WAYS]; 1 << sets.ilog2()] }
    }

    /// Returns the set of a key.
    #[inline]
    pub fn set_of(&self, key: PackedKey) -> usize {
        key.hash() as usize & (self.sets.len() - 1)
    }

    /// Prefetches a set.
    #[inline]
    pub fn prefetch(&self, set: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint and reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let set = self.sets.as_ptr().wrapping_add(set).cast::<i8>();
            _mm_prefetch(set, _MM_HINT_T0);
            _mm_prefetch(set.wrapping_add(size_of::<[Slot; WAYS]>() / 2), _MM_HINT_T0);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = set;
    }

    /// Adds a pair; returns the key that it displaced.
    #[inline]
    pub fn add(&mut self, key: PackedKey, amount: u64) -> Option<Displaced> {
        self.add_to(self.set_of(key), key, amount)
    }

    /// Adds a pair to a known set.
    #[inline]
    pub fn add_to(&mut self, set: usize, key: PackedKey, amount: u64) -> Option<Displaced> {
        let set = &mut self.sets[set];
        if set[0].add(key, amount) {
            return None;
        }
        Self::add_below(set, key, amount)
    }

    fn add_below(set: &mut [Slot; WAYS], key: PackedKey, amount: u64) -> Option<Displaced> {
        for way in 1..WAYS {
            if set[way].add(key, amount) {
                if set[way].heat > set[way - 1].heat {
                    set.swap(way, way - 1);
                }
                return None;
            }
        }
        let warmer = &mut set[WAYS - 2];
        warmer.heat -= (warmer.heat / COOLING).max(1).min(warmer.heat.saturating_sub(1));
        let before = std::mem::replace(&mut set[WAYS - 1], Slot::new(key, amount));
        if set[WAYS - 2].heat <= 1 {
            set.swap(WAYS - 1, WAYS - 2);
        }
        before.displaced()
    }

    /// Takes all keys out.
    pub fn drain(&mut self) -> impl Iterator<Item = Displaced> {
        self.sets.as_flattened_mut().iter_mut().filter_map(|slot| std::mem::take(slot).displaced())
    }
}

#[cfg(test)]
mod tests {
    use super::{HotKeys, PackedKey, key_buffer};
    use std::collections::BTreeMap;

    #[test]
    fn keys_come_back_as_they_went_in() {
        let text = b"abcdefghijklmnopq";
        for length in 0..=16 {
            let packed = PackedKey::new(&text[..length]).unwrap();
            assert_eq!(packed.unpack(&mut key_buffer()), &text[..length]);
            for block in [&text[..], &text[..length]] {
                assert!(PackedKey::in_block(block, 0, length) == Some(packed), "{length}");
            }
        }
        assert!(PackedKey::new(text).is_none());
        assert!(
            PackedKey::new(b"a") != PackedKey::new(b"aa") && PackedKey::new(b"") != PackedKey::new(b"\0")
        );
    }

    #[test]
    fn nothing_is_lost_between_the_slots() {
        let mut hot = HotKeys::new(0);
        let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
        let mut count = |displaced: super::Displaced| {
            *found.entry(displaced.key(&mut key_buffer()).to_vec()).or_insert(0) += displaced.amount;
        };
        for number in 0..200_000_u64 {
            let key = (number * number % 30_011).to_string().into_bytes();
            hot.add(PackedKey::new(&key).unwrap(), number % 3).into_iter().for_each(&mut count);
            *expected.entry(key).or_insert(0) += number % 3;
        }
        hot.drain().for_each(&mut count);
        assert_eq!(hot.drain().count(), 0);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hot_key_stays_among_many_cold_ones() {
        let mut hot = HotKeys::new(0);
        let key = PackedKey::new(b"the").unwrap();
        let mut displaced = 0;
        for number in 0..1_000_000_u64 {
            let cold = PackedKey::new(&number.to_le_bytes()).unwrap();
            let gone = [hot.add(key, 1), hot.add(cold, 1)];
            displaced += gone.into_iter().flatten().filter(|gone| gone.key == key).count();
        }
        assert!(displaced <= 2, "{displaced} times");
    }
}
