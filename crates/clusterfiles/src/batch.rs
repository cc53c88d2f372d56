//! Small parts of a put on their way to nodes: many travel with one request.

use crate::numbers::Numbered;
use crate::read_ahead::{GROUP_BYTES_MAX, GROUP_PARTS_MAX};
use api::StoredPart;
use api::stored::cluster::StoredRange;
use std::collections::HashMap;

/// Small parts that travel together, under one right.
#[derive(Debug)]
pub(crate) struct Batch {
    pub range: StoredRange,
    pub parts: Vec<BatchedPart>,
    pub bytes: u64,
}

/// A small part in memory.
#[derive(Debug)]
pub(crate) struct BatchedPart {
    /// Its number in the plan.
    pub planned: u32,
    pub part: StoredPart,
    pub payload: Vec<u8>,
}

/// Batches that are not full, by the windows of the numbers of their parts.
#[derive(Debug, Default)]
pub(crate) struct OpenBatches {
    open: HashMap<usize, Batch>,
}

impl OpenBatches {
    /// Adds a part. Returns the batch that is full now.
    pub fn add(&mut self, numbered: &Numbered, part: BatchedPart) -> Option<Batch> {
        let new = || Batch { range: numbered.range.clone(), parts: Vec::new(), bytes: 0 };
        let batch = self.open.entry(numbered.window).or_insert_with(new);
        batch.bytes += part.part.bytes;
        batch.parts.push(part);
        let is_full = batch.bytes >= GROUP_BYTES_MAX || batch.parts.len() >= GROUP_PARTS_MAX;
        if is_full { self.open.remove(&numbered.window) } else { None }
    }

    /// Takes a batch that is not full.
    pub fn take(&mut self) -> Option<Batch> {
        let window = *self.open.keys().next()?;
        self.open.remove(&window)
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchedPart, OpenBatches};
    use crate::numbers::Numbered;
    use crate::read_ahead::GROUP_PARTS_MAX;
    use api::StoredPart;
    use api::data_access::SecretText;
    use api::stored::cluster::StoredRange;
    use ids::ConcreteId;

    fn add(batches: &mut OpenBatches, window: usize, planned: u32, bytes: u64) -> Option<usize> {
        let id = ConcreteId(i64::from(planned));
        let range = StoredRange { first: id, last: id, grant: SecretText(window.to_string()) };
        let part = StoredPart { concrete: id, bytes, crc32c: 0 };
        let batched = BatchedPart { planned, part, payload: Vec::new() };
        batches.add(&Numbered { id, range, window }, batched).map(|batch| batch.parts.len())
    }

    #[test]
    fn batches_end_by_bytes_and_by_count() {
        let mut batches = OpenBatches::default();
        let full = (0..8).filter_map(|planned| add(&mut batches, 0, planned, 1 << 20)).collect::<Vec<_>>();
        assert_eq!(full, [8]);
        let full = (0..2500).filter_map(|planned| add(&mut batches, 0, planned, 1)).collect::<Vec<_>>();
        assert_eq!(full, [GROUP_PARTS_MAX, GROUP_PARTS_MAX]);
        assert_eq!(batches.take().map(|batch| (batch.parts.len(), batch.bytes)), Some((500, 500)));
        assert!(batches.take().is_none());
    }

    #[test]
    fn parts_of_two_rights_stay_apart() {
        let mut batches = OpenBatches::default();
        for (planned, window) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!(add(&mut batches, window, planned, 1), None);
        }
        let mut taken = Vec::new();
        while let Some(batch) = batches.take() {
            taken.push((batch.range.grant.0, batch.parts.len()));
        }
        taken.sort();
        assert_eq!(taken, [("0".to_string(), 2), ("1".to_string(), 1)]);
    }
}
