//! Groups on their way to a program, a batch at a time.

/// Sorted records that are gathered into a frame: the lengths of all keys, how many values each key has, the lengths of all values,
/// the keys, the values. A group that goes on in the next frame has its key there again, and the frame says that it goes on.
#[derive(Debug, Default)]
pub struct GroupBatch {
    head: Vec<u8>,
    key_lengths: Vec<u8>,
    counts: Vec<[u8; 4]>,
    value_lengths: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Records of the last group in this batch.
    count: u32,
    /// The first group began in a frame before.
    goes_on: bool,
}

impl GroupBatch {
    /// Appends the first record of a group.
    pub fn start_group(&mut self, key: &[u8], value: &[u8]) {
        if self.counts.is_empty() {
            self.goes_on = false;
        }
        self.push_key(key);
        self.push_value(value);
    }

    /// Appends another record of the last group. An empty batch takes the key of the group as well.
    pub fn continue_group(&mut self, key: &[u8], value: &[u8]) {
        if self.counts.is_empty() {
            self.goes_on = true;
            self.push_key(key);
        }
        self.push_value(value);
    }

    fn push_key(&mut self, key: &[u8]) {
        self.key_lengths.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.keys.extend_from_slice(key);
        self.counts.push([0; 4]);
        self.count = 0;
    }

    fn push_value(&mut self, value: &[u8]) {
        self.count += 1;
        if let Some(count) = self.counts.last_mut() {
            *count = self.count.to_le_bytes();
        }
        self.value_lengths.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.values.extend_from_slice(value);
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Bytes gathered.
    pub fn bytes(&self) -> usize {
        let lengths = self.key_lengths.len() + self.counts.as_flattened().len() + self.value_lengths.len();
        lengths + self.keys.len() + self.values.len()
    }

    /// The payload of the frame, in pieces.
    pub fn payload(&mut self) -> [&[u8]; 6] {
        let values = (self.value_lengths.len() / 4) as u32;
        self.head.clear();
        for number in [self.counts.len() as u32, values, u32::from(self.goes_on)] {
            self.head.extend_from_slice(&number.to_le_bytes());
        }
        let counts = self.counts.as_flattened();
        [&self.head, &self.key_lengths, counts, &self.value_lengths, &self.keys, &self.values]
    }

    /// Forgets what was gathered. So many bytes of each column stay set aside for the next batch.
    pub fn clear(&mut self, kept_bytes: usize) {
        self.counts.clear();
        for bytes in [&mut self.key_lengths, &mut self.value_lengths, &mut self.keys, &mut self.values] {
            bytes.clear();
            bytes.shrink_to(kept_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GroupBatch;

    #[test]
    fn a_group_goes_on_in_the_next_batch() {
        let mut batch = GroupBatch::default();
        batch.start_group(b"a", b"1");
        batch.continue_group(b"a", b"2");
        batch.start_group(b"b", b"3");
        let words =
            |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let first = batch.payload().concat();
        assert_eq!(first, [words(&[2, 3, 0, 1, 1, 2, 1, 1, 1, 1]), b"ab123".to_vec()].concat());
        assert_eq!(batch.bytes() + 12, first.len());
        batch.clear(0);
        assert!(batch.is_empty() && batch.bytes() == 0);
        batch.continue_group(b"b", b"44");
        assert_eq!(batch.payload().concat(), [words(&[1, 1, 1, 1, 1, 2]), b"b44".to_vec()].concat());
    }
}
