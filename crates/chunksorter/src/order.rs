//! Sorting by entries: u128 = 11 key bytes, one byte of length, 4 bytes of position.

use crate::parted::sort_parted;
use ifile::record::{self, KeyShape, Record};
use std::cmp::Ordering;

/// Key bytes in an entry.
const ENTRY_KEY_BYTES: usize = 11;
/// Length byte of a key that is longer than its entry: the key itself decides ties.
const LONGER: u8 = ENTRY_KEY_BYTES as u8 + 1;
/// Bytes of an entry while it is sorted.
const ENTRY_BYTES: usize = 16;
/// Bytes of a position in a finished order.
const POSITION_BYTES: usize = 4;
/// Up to this many equal entries a comparison sort finishes the work; above it the next key bytes make new entries.
const COMPARE_BELOW: usize = 48;
/// Maximum rounds of new entries before a comparison sort finishes the work: keys that are each a prefix of the next
/// would otherwise need a round, and a stack frame, per key.
const LEVELS_MAX: u32 = 32;

/// Error: a frame whose bytes do not match its record count. The engine's own data is wrong: not retryable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortError {
    /// Position of the frame in the input slice.
    pub frame: usize,
    pub offset_bytes: usize,
}

/// Place of a record: its frame in the sorted slice, and its offset in the payload of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub frame: u32,
    pub offset: u32,
}

/// The sorted order of the records of some frames: sorted batches of positions, merged when read.
#[derive(Debug)]
pub struct SortedOrder {
    batches: Vec<Batch>,
    offset_bits: u32,
    shape: KeyShape,
}

#[derive(Debug)]
struct Batch {
    /// The frame of position 0.
    first_frame: u32,
    /// (frame - first_frame) << offset_bits | offset, in sorted order.
    positions: Vec<u32>,
}

/// Returns the maximum bytes of the order from [`sort_frames`] for `records` records; a caller charges this for an
/// order.
pub fn order_bytes_max(records: u64) -> u64 {
    records * POSITION_BYTES as u64 + 4096
}

/// Sorts the records of `frames` (which must be in input order, see `order_frames`). `record_counts` has the records of
/// each frame. `scratch` is the working memory besides the order itself; it must have room for the entries of the frame
/// with the most records, and twice that for the fastest way.
pub fn sort_frames(
    shape: KeyShape,
    frames: &[&[u8]],
    record_counts: &[u64],
    scratch: &mut [u128],
) -> Result<SortedOrder, SortError> {
    assert_eq!(frames.len(), record_counts.len(), "one count for each frame");
    let largest = frames.iter().map(|frame| frame.len()).max().unwrap_or(0);
    let offset_bits = (usize::BITS - largest.saturating_sub(1).leading_zeros()).max(1);
    let frames_per_batch = 1usize << (32 - offset_bits.min(31));
    let mut order = SortedOrder { batches: Vec::new(), offset_bits, shape };
    let mut entry_count = 0;
    let mut first_frame = 0;
    for (index, frame) in frames.iter().enumerate() {
        let refused = |offset_bytes| SortError { frame: index, offset_bytes };
        let records = usize::try_from(record_counts[index]).map_err(|_| refused(0))?;
        if entry_count + records > scratch.len() || index - first_frame >= frames_per_batch {
            order.finish_batch(scratch, entry_count, first_frame, frames);
            (first_frame, entry_count) = (index, 0);
        }
        let room = scratch.get_mut(entry_count..entry_count + records).ok_or_else(|| refused(0))?;
        let base = ((index - first_frame) as u64) << offset_bits;
        let mut offset = 0;
        for place in room {
            let rest = &frame[offset..];
            let record = record::decode(shape, rest).ok_or_else(|| refused(offset))?;
            let key_offset = record.encoded.len() - record.value.len() - record.key.len();
            let entry = entry_at(&rest[key_offset..], record.key.len());
            *place = entry | u128::from(base | offset as u64);
            offset += record.encoded.len();
        }
        if offset != frame.len() {
            return Err(refused(offset));
        }
        entry_count += records;
    }
    order.finish_batch(scratch, entry_count, first_frame, frames);
    Ok(order)
}

/// Makes the entry of a key of `key_len` bytes at the front of `bytes`, read in one piece if more bytes follow.
#[inline]
fn entry_at(bytes: &[u8], key_len: usize) -> u128 {
    let Some(first) = bytes.first_chunk::<ENTRY_BYTES>() else {
        return entry(&bytes[..key_len]);
    };
    let kept_bits = 8 * key_len.min(ENTRY_KEY_BYTES) as u32;
    let key_bits = u128::from_be_bytes(*first) & !(u128::MAX >> kept_bits);
    key_bits | (key_len.min(usize::from(LONGER)) as u128) << 32
}

/// Makes the upper 96 bits of an entry. Two keys of at most 11 bytes compare like their entries: padding is zero, and
/// of a key and the same key with zeros appended the shorter has the smaller length byte.
#[inline]
fn entry(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    if key.len() > ENTRY_KEY_BYTES {
        bytes[..ENTRY_KEY_BYTES].copy_from_slice(&key[..ENTRY_KEY_BYTES]);
        bytes[ENTRY_KEY_BYTES] = LONGER;
    } else {
        bytes[..key.len()].copy_from_slice(key);
        bytes[ENTRY_KEY_BYTES] = key.len() as u8;
    }
    u128::from_be_bytes(bytes)
}

fn key_part(entry: u128) -> u128 {
    entry >> 32
}

fn length_byte(entry: u128) -> u8 {
    (entry >> 32) as u8
}

impl SortedOrder {
    /// Sorts the entries at the front of the scratch and keeps their positions.
    fn finish_batch(
        &mut self,
        scratch: &mut [u128],
        entry_count: usize,
        first_frame: usize,
        frames: &[&[u8]],
    ) {
        let (entries, spare) = scratch.split_at_mut(entry_count);
        if entries.is_empty() {
            return;
        }
        let batch =
            BatchKeys { frames: &frames[first_frame..], shape: self.shape, offset_bits: self.offset_bits };
        let entries = sort_parted(entries, spare);
        batch.mend_ties(entries, 0, 0);
        let positions = entries.iter().map(|entry| *entry as u32).collect();
        self.batches.push(Batch { first_frame: first_frame as u32, positions });
    }

    /// Returns the number of records in the order.
    pub fn len(&self) -> usize {
        self.batches.iter().map(|batch| batch.positions.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns the bytes of the order.
    pub fn bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.positions.capacity() * POSITION_BYTES).sum::<usize>() as u64
    }

    fn position(&self, batch: usize, index: usize) -> Position {
        let batch = &self.batches[batch];
        self.unpack(batch, batch.positions[index])
    }

    #[inline]
    fn unpack(&self, batch: &Batch, packed: u32) -> Position {
        let packed = u64::from(packed);
        let frame = (packed >> self.offset_bits) as u32;
        Position {
            frame: batch.first_frame + frame,
            offset: (packed & ((1u64 << self.offset_bits) - 1)) as u32,
        }
    }

    /// Returns the record at a position. The frames must be those that were sorted.
    #[inline]
    fn record<'a>(&self, frames: &[&'a [u8]], position: Position) -> Record<'a> {
        record::decode(self.shape, &frames[position.frame as usize][position.offset as usize..])
            .expect("the frames are those that were sorted, and every record of them decoded then")
    }

    /// Returns every `step`-th record of each sorted batch, with the number of records it represents.
    pub fn samples<'a>(
        &'a self,
        frames: &'a [&'a [u8]],
        step: usize,
    ) -> impl Iterator<Item = (Record<'a>, usize)> + 'a {
        let step = step.max(1);
        (0..self.batches.len()).flat_map(move |batch| {
            let count = self.batches[batch].positions.len();
            (0..count)
                .step_by(step)
                .map(move |index| (self.record(frames, self.position(batch, index)), step.min(count - index)))
        })
    }

    /// Returns a cursor over the records with lower <= key < upper (bounds on the partition key).
    pub fn cursor(&self, frames: &[&[u8]], lower: Option<&[u8]>, upper: Option<&[u8]>) -> OrderCursor {
        let find = |batch: usize, bound: &[u8]| {
            let positions = &self.batches[batch].positions;
            let (mut low, mut high) = (0, positions.len());
            while low < high {
                let middle = low + (high - low) / 2;
                let record = self.record(frames, self.position(batch, middle));
                if record.partition_key() < bound { low = middle + 1 } else { high = middle }
            }
            low
        };
        let heads = (0..self.batches.len())
            .map(|batch| {
                let start = lower.map_or(0, |bound| find(batch, bound));
                let end = upper.map_or(self.batches[batch].positions.len(), |bound| find(batch, bound));
                Head { batch, next: start, end: end.max(start) }
            })
            .filter(|head| head.next < head.end)
            .collect();
        OrderCursor { heads, record_bytes: 0 }
    }
}

struct BatchKeys<'a> {
    frames: &'a [&'a [u8]],
    shape: KeyShape,
    offset_bits: u32,
}

impl BatchKeys<'_> {
    fn key(&self, entry: u128) -> &[u8] {
        let packed = u64::from(entry as u32);
        let offset = (packed & ((1u64 << self.offset_bits) - 1)) as usize;
        let frame = self.frames[(packed >> self.offset_bits) as usize];
        record::decode(self.shape, &frame[offset..]).map_or(&[], |record| record.key)
    }

    /// Orders the stretches of entries that are equal so far (`depth` key bytes plus one entry's worth) by the rest of
    /// their keys. Large stretches (keys with a long common prefix) get new entries from the next key bytes; small ones
    /// are compared.
    fn mend_ties(&self, entries: &mut [u128], depth: usize, level: u32) {
        let mut start = 0;
        while start < entries.len() {
            let part = key_part(entries[start]);
            if length_byte(entries[start]) != LONGER {
                start += 1;
                continue;
            }
            let mut end = start + 1;
            while end < entries.len() && key_part(entries[end]) == part {
                end += 1;
            }
            if end - start > 1 {
                self.order_tied(&mut entries[start..end], depth + ENTRY_KEY_BYTES, level);
            }
            start = end;
        }
    }

    /// Prefetches the records of entries, whose keys are read next.
    fn prefetch(&self, entries: &[u128]) {
        for entry in entries {
            let packed = u64::from(*entry as u32);
            let frame = self.frames[(packed >> self.offset_bits) as usize];
            let offset = (packed & ((1u64 << self.offset_bits) - 1)) as usize;
            prefetch_lines(frame, offset, 0);
        }
    }

    /// Returns whether all keys are equal, as is common if their prefixes are: a frequent word.
    fn are_one_key(&self, entries: &[u128], depth: usize) -> bool {
        let first = self.key(entries[0]);
        entries.chunks(COMPARE_BELOW).enumerate().all(|(index, some)| {
            let ahead = entries.get((index + 1) * COMPARE_BELOW..).unwrap_or_default();
            self.prefetch(&ahead[..ahead.len().min(COMPARE_BELOW)]);
            some.iter().all(|each| self.key(*each)[depth..] == first[depth..])
        })
    }

    fn order_tied(&self, entries: &mut [u128], depth: usize, level: u32) {
        self.prefetch(&entries[..entries.len().min(COMPARE_BELOW)]);
        if self.are_one_key(entries, depth) {
            // Entries with equal key parts are in the order of their positions.
            return;
        }
        if entries.len() < COMPARE_BELOW || level >= LEVELS_MAX {
            entries.sort_unstable_by(|left, right| {
                let keys = self.key(*left)[depth..].cmp(&self.key(*right)[depth..]);
                keys.then((*left as u32).cmp(&(*right as u32)))
            });
            return;
        }
        let first = self.key(entries[0]);
        // All of them agree up to `depth`, and are longer.
        let mut common = first.len();
        for (index, each) in entries.iter().enumerate() {
            if index % COMPARE_BELOW == 0 {
                let ahead = entries.get(index + COMPARE_BELOW..).unwrap_or_default();
                self.prefetch(&ahead[..ahead.len().min(COMPARE_BELOW)]);
            }
            let key = self.key(*each);
            let limit = common.min(key.len());
            let pairs = first[depth..limit].iter().zip(&key[depth..limit]);
            common = depth + pairs.take_while(|(left, right)| left == right).count();
        }
        for index in 0..entries.len() {
            if index % COMPARE_BELOW == 0 {
                let ahead = entries.get(index..).unwrap_or_default();
                self.prefetch(&ahead[..ahead.len().min(2 * COMPARE_BELOW)]);
            }
            let each = &mut entries[index];
            *each = entry(&self.key(*each)[common..]) | u128::from(*each as u32);
        }
        entries.sort_unstable();
        self.mend_ties(entries, common, level + 1);
    }
}

struct Head {
    batch: usize,
    next: usize,
    end: usize,
}

/// Position in a [`SortedOrder`]. Holds no borrow: the order and the frames are passed to each call.
pub struct OrderCursor {
    heads: Vec<Head>,
    /// Encoded bytes of the last record: the estimate for the next ones.
    record_bytes: usize,
}

/// Records taken at a time. As many again are prefetched meanwhile: both fit the first-level cache while records are
/// short.
pub const BATCH_RECORDS: usize = 32;

impl OrderCursor {
    /// Returns the index of the batch that has the next record.
    #[inline]
    fn least(&self, order: &SortedOrder, frames: &[&[u8]]) -> usize {
        let key = |head: &Head| order.record(frames, order.position(head.batch, head.next)).key;
        let mut least = 0;
        for index in 1..self.heads.len() {
            // Batches hold frames in input order, so among equal keys the earlier batch goes first.
            if key(&self.heads[index]).cmp(key(&self.heads[least])) == Ordering::Less {
                least = index;
            }
        }
        least
    }

    /// Takes the next records, at most [`BATCH_RECORDS`] and none only at the end, and calls `each` with them.
    #[inline]
    pub fn take_batch<'a>(
        &mut self,
        order: &SortedOrder,
        frames: &[&'a [u8]],
        mut each: impl FnMut(Position, Record<'a>),
    ) {
        if let [only] = self.heads.as_mut_slice() {
            let batch = &order.batches[only.batch];
            let count = (only.end - only.next).min(BATCH_RECORDS);
            let (positions, ahead) = batch.positions[only.next..only.end].split_at(count);
            if self.record_bytes == 0 {
                prefetch(order, frames, batch, positions, 0);
            }
            prefetch(order, frames, batch, &ahead[..ahead.len().min(BATCH_RECORDS)], self.record_bytes);
            for packed in positions {
                let position = order.unpack(batch, *packed);
                let record = order.record(frames, position);
                self.record_bytes = record.encoded.len();
                each(position, record);
            }
            only.next += count;
            return;
        }
        for _ in 0..BATCH_RECORDS {
            if self.heads.is_empty() {
                return;
            }
            let least = self.least(order, frames);
            let head = &mut self.heads[least];
            let position = order.position(head.batch, head.next);
            head.next += 1;
            if head.next == head.end {
                self.heads.remove(least);
            }
            each(position, order.record(frames, position));
        }
    }

    /// Returns the number of records left.
    pub fn remaining(&self) -> usize {
        self.heads.iter().map(|head| head.end - head.next).sum()
    }
}

/// Prefetches the records at `positions`: the order jumps all over the frames, and without this each record waits for
/// memory. `record_bytes` is an estimate of their length, so that each of their cache lines is fetched.
///
/// All in one short loop: a prefetch waits for the address to be translated, and only instructions this close
/// together let a processor translate several at a time (one prefetch a record was no faster than none).
fn prefetch(order: &SortedOrder, frames: &[&[u8]], batch: &Batch, positions: &[u32], record_bytes: usize) {
    for packed in positions {
        let position = order.unpack(batch, *packed);
        prefetch_lines(frames[position.frame as usize], position.offset as usize, record_bytes);
    }
}

/// Prefetches the cache lines of `bytes` bytes of a frame: at least the first one, and a few at most.
#[inline]
fn prefetch_lines(frame: &[u8], offset: usize, bytes: usize) {
    const LINE_BYTES: usize = 64;
    const LINES_MAX: usize = 4;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and reads nothing; the address lies inside `frame` or a few lines behind.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = frame.as_ptr().wrapping_add(offset);
        let first_line = start.addr() % LINE_BYTES;
        let lines = (first_line + bytes).div_ceil(LINE_BYTES).clamp(1, LINES_MAX);
        for line in 0..lines {
            _mm_prefetch(start.wrapping_add(line * LINE_BYTES).cast::<i8>(), _MM_HINT_T0);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (frame, offset, bytes, LINE_BYTES, LINES_MAX);
}
