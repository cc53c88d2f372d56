//! In front of a fold table: the keys that come again and again, in a table small enough for a core's cache.
//!
//! Words, user names and hosts follow Zipf's law: a few thousand of them make up most of a text. Each key has one
//! slot here, chosen by its hash, and a key that meets another one in its slot sends that one on to the fold table.
//! Only short keys and only amounts that are whole numbers are held, so that a hit is a compare and an addition.
//! What is sent on, and when, depends on the pairs alone.

/// 256 KiB of slots: a quarter or less of a core's second-level cache.
const SLOTS: usize = 1 << 13;
const KEY_BYTES_MAX: usize = 16;
/// Longest amount read here. Beyond any count of pairs in a window these cannot overflow a slot.
const AMOUNT_DIGITS_MAX: usize = 8;

/// A key and what its pairs add up to.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: PackedKey,
    amount: u64,
    /// No key without pairs; a sum of zeros still has some.
    pairs: u32,
}

/// A key of at most [`KEY_BYTES_MAX`] bytes in two words that overlap where it is shorter.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct PackedKey {
    first: u64,
    last: u64,
    length: u32,
}

impl PackedKey {
    #[inline]
    fn new(key: &[u8]) -> Option<Self> {
        let length = key.len();
        let (first, last) = match length {
            0 => (0, 0),
            1..=3 => {
                let bytes = [key[0], key[length / 2], key[length - 1], 0];
                (u64::from(u32::from_le_bytes(bytes)), 0)
            }
            4..=7 => {
                let (first, last) = (key.first_chunk::<4>()?, key.last_chunk::<4>()?);
                (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
            }
            8..=KEY_BYTES_MAX => {
                (u64::from_le_bytes(*key.first_chunk()?), u64::from_le_bytes(*key.last_chunk()?))
            }
            _ => return None,
        };
        Some(Self { first, last, length: length as u32 })
    }

    /// The key again, in the front of the buffer.
    fn unpack(self, buffer: &mut [u8; KEY_BYTES_MAX]) -> &[u8] {
        let length = self.length as usize;
        match length {
            0 => {}
            1..=3 => {
                let [first, middle, last, ..] = self.first.to_le_bytes();
                // In this order: where places coincide the bytes do too.
                buffer[0] = first;
                buffer[length / 2] = middle;
                buffer[length - 1] = last;
            }
            4..=7 => {
                buffer[..4].copy_from_slice(&self.first.to_le_bytes()[..4]);
                buffer[length - 4..length].copy_from_slice(&self.last.to_le_bytes()[..4]);
            }
            _ => {
                buffer[..8].copy_from_slice(&self.first.to_le_bytes());
                buffer[length - 8..length].copy_from_slice(&self.last.to_le_bytes());
            }
        }
        &buffer[..length]
    }

    #[inline]
    fn slot(self) -> usize {
        let product = u128::from(self.first ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(self.last ^ 0xa076_1d64_78bd_642f ^ u64::from(self.length) << 56);
        ((product >> 64) as u64 ^ product as u64) as usize % SLOTS
    }
}

/// What became of a pair.
pub(crate) enum Taken {
    /// It was added up here.
    Kept,
    /// It was taken, and the key that had its slot goes on to the fold table.
    Displaced(Displaced),
    /// The key is too long.
    No,
}

/// A key that lost its slot.
pub(crate) struct Displaced {
    key: PackedKey,
    pub amount: u64,
}

impl Displaced {
    /// Its bytes.
    pub fn key<'a>(&self, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        self.key.unpack(buffer)
    }
}

/// Room for the bytes of a key that was displaced.
pub(crate) fn key_buffer() -> [u8; KEY_BYTES_MAX] {
    [0; KEY_BYTES_MAX]
}

/// The table of hot keys.
pub(crate) struct HotKeys {
    slots: Vec<Slot>,
}

impl HotKeys {
    pub fn new() -> Self {
        Self { slots: vec![Slot::default(); SLOTS] }
    }

    /// Adds a pair.
    #[inline]
    pub fn add(&mut self, key: &[u8], amount: u64) -> Taken {
        let Some(key) = PackedKey::new(key) else { return Taken::No };
        let slot = &mut self.slots[key.slot()];
        if slot.key == key && slot.pairs > 0 {
            slot.amount += amount;
            return Taken::Kept;
        }
        let before = std::mem::replace(slot, Slot { key, amount, pairs: 1 });
        match before.pairs {
            0 => Taken::Kept,
            _ => Taken::Displaced(Displaced { key: before.key, amount: before.amount }),
        }
    }

    /// Takes every key out.
    pub fn drain(&mut self) -> impl Iterator<Item = Displaced> {
        let held = self.slots.iter_mut().filter(|slot| slot.pairs > 0);
        held.map(|slot| {
            let slot = std::mem::take(slot);
            Displaced { key: slot.key, amount: slot.amount }
        })
    }
}

/// A value that is a few plain digits.
#[inline]
pub(crate) fn whole_amount(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > AMOUNT_DIGITS_MAX {
        return None;
    }
    let mut amount = 0;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        amount = amount * 10 + u64::from(digit);
    }
    Some(amount)
}

#[cfg(test)]
mod tests {
    use super::{HotKeys, PackedKey, Taken, key_buffer, whole_amount};
    use std::collections::BTreeMap;

    #[test]
    fn keys_come_back_as_they_went_in() {
        let text = b"abcdefghijklmnopq";
        for length in 0..=16 {
            let packed = PackedKey::new(&text[..length]).unwrap();
            assert_eq!(packed.unpack(&mut key_buffer()), &text[..length]);
        }
        assert!(PackedKey::new(text).is_none());
        assert!(
            PackedKey::new(b"a") != PackedKey::new(b"aa") && PackedKey::new(b"") != PackedKey::new(b"\0")
        );
    }

    #[test]
    fn nothing_is_lost_between_the_slots() {
        let mut hot = HotKeys::new();
        let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
        let mut count = |displaced: super::Displaced| {
            *found.entry(displaced.key(&mut key_buffer()).to_vec()).or_insert(0) += displaced.amount;
        };
        for number in 0..200_000_u64 {
            let key = (number * number % 30_011).to_string().into_bytes();
            match hot.add(&key, number % 3) {
                Taken::Kept => {}
                Taken::Displaced(displaced) => count(displaced),
                Taken::No => panic!("short keys are taken"),
            }
            *expected.entry(key).or_insert(0) += number % 3;
        }
        hot.drain().for_each(&mut count);
        assert_eq!(hot.drain().count(), 0);
        assert_eq!(found, expected);
    }

    #[test]
    fn only_plain_digits_are_amounts() {
        let check = |text: &str, expected| assert_eq!(whole_amount(text.as_bytes()), expected, "{text:?}");
        check("1", Some(1));
        check("00000012", Some(12));
        check("99999999", Some(99_999_999));
        for text in ["", "-1", "+1", "1.0", " 1", "1e3", "123456789", "x"] {
            check(text, None);
        }
    }
}
