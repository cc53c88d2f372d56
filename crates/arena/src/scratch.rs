//! Scratch memory on huge pages, kept by a worker from one piece of work to the next.

use crate::ArenaError;
use crate::mapping::Mapping;

/// Room for sort entries. It is outside an arena's budget: its owner charges it. Pages are backed on the first write
/// and stay so until it is dropped, so only the first use pays for them.
pub struct Scratch {
    mapping: Mapping,
    entry_count: usize,
}

impl Scratch {
    /// Makes room for `entry_count` entries of 16 bytes.
    pub fn new(entry_count: usize) -> Result<Self, ArenaError> {
        let bytes = entry_count.max(1) * size_of::<u128>();
        let mapping =
            Mapping::new(bytes).map_err(|source| ArenaError { budget_bytes: bytes as u64, source })?;
        Ok(Self { mapping, entry_count })
    }

    /// Returns the entries; they have the values of the last use.
    pub fn entries(&mut self) -> &mut [u128] {
        // SAFETY: the mapping has room for so many entries, is aligned to a huge page, zeroed by the kernel (any
        // bytes are a u128), and borrowed mutably with `self` for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.pointer(0).cast::<u128>(), self.entry_count) }
    }
}

#[cfg(test)]
mod tests {
    use super::Scratch;

    #[test]
    fn entries_are_writable_to_the_last() {
        let mut scratch = Scratch::new(3 << 17).unwrap();
        let entries = scratch.entries();
        assert_eq!((entries.len(), entries[0], entries[(3 << 17) - 1]), (3 << 17, 0, 0));
        entries.fill(7);
        assert_eq!(scratch.entries()[(3 << 17) - 1], 7);
        assert!(Scratch::new(0).unwrap().entries().is_empty());
    }
}
