//! Encoded data decodes again: records, frames, blocks, key index, source table, for all shapes and codecs.

mod samples;

use api::{Codec, DataSum};
use ids::{AttemptNumber, ChunkId, Source, TaskIndex};
use ifile::block::{self, BLOCK_HEADER_BYTES, BlockHeader};
use ifile::frame::{FrameHeader, FrameRecords};
use ifile::record::{self, KeyShape};
use ifile::{FRAME_HEADER_BYTES, IndexEntry, KeyIndex, Problem, SourceRow, source_table};
use proptest::prelude::*;
use samples::Sample;

fn shapes() -> impl Strategy<Value = KeyShape> {
    prop_oneof![Just(KeyShape::Whole), Just(KeyShape::Prefix)]
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)]
}

/// Bytes around the sizes where a length takes one byte more, some empty, some compressible.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..24),
        2 => prop::collection::vec(prop_oneof![Just(b'a'), Just(0), Just(0xff)], 0..300),
        1 => (120_usize..135, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (16_380_usize..16_390, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn a_sample() -> impl Strategy<Value = Sample> {
    (0_u32..1000, some_bytes(), some_bytes(), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(row, key, value, cut, is_separated)| {
            let partition_key_bytes = cut.index(key.len() + 1);
            Sample { row, key, value, partition_key_bytes, is_separated }
        },
    )
}

/// The sample as the shape keeps it: with whole keys the partition key is the key.
fn shaped(shape: KeyShape, mut sample: Sample) -> Sample {
    if shape == KeyShape::Whole {
        sample.partition_key_bytes = sample.key.len();
    }
    sample
}

fn from_record(row: u32, record: &ifile::Record<'_>) -> Sample {
    Sample {
        row,
        key: record.key.to_vec(),
        value: record.value.to_vec(),
        partition_key_bytes: record.partition_key_bytes,
        is_separated: record.is_separated(),
    }
}

proptest! {
    #[test]
    fn records(shape in shapes(), sample in a_sample(), behind in some_bytes()) {
        let sample = shaped(shape, sample);
        let encoded = sample.encoded(shape);
        let bytes = [&encoded[..], &behind].concat();
        let record = record::decode(shape, &bytes).unwrap();
        prop_assert_eq!(record.encoded, &encoded[..]);
        prop_assert_eq!(record.partition_key(), &sample.key[..sample.partition_key_bytes]);
        prop_assert_eq!(from_record(sample.row, &record), sample);
        for cut in [0, 1, encoded.len() / 2, encoded.len() - 1] {
            prop_assert!(record::decode(shape, &encoded[..cut]).is_none());
        }
    }

    #[test]
    fn frames(shape in shapes(), samples in prop::collection::vec(a_sample(), 0..30), numbers in any::<(u32, u32, u64)>()) {
        let samples: Vec<Sample> = samples.into_iter().map(|each| shaped(shape, Sample { row: 0, ..each })).collect();
        let source = Source { map_task: TaskIndex(numbers.0), attempt: AttemptNumber(numbers.1) };
        let (header, payload) = samples::frame(source, numbers.2, shape, &samples);
        let bytes = header.encode();
        prop_assert_eq!(FrameHeader::decode(&bytes).unwrap(), header);
        prop_assert!(FrameHeader::decode(&bytes[..FRAME_HEADER_BYTES - 1]).is_err());
        header.check_payload(&payload).unwrap();
        header.check_records(&payload).unwrap();
        let mut offset = 0;
        let mut found = Vec::new();
        for each in FrameRecords::new(shape, &payload) {
            let (at, record) = each.unwrap();
            prop_assert_eq!(at, offset);
            offset += record.encoded.len();
            found.push(from_record(0, &record));
        }
        prop_assert_eq!(found, samples);
    }

    #[test]
    fn blocks(codec in codecs(), shape in shapes(), samples in prop::collection::vec(a_sample(), 1..30)) {
        let samples: Vec<Sample> = samples.into_iter().map(|each| shaped(shape, each)).collect();
        let mut raw = Vec::new();
        for sample in &samples {
            block::push_record(&mut raw, sample.row, &sample.encoded(shape));
        }
        let mut bytes = b"what was there before".to_vec();
        let before = bytes.len();
        let written = block::encode(&raw, samples.len() as u32, codec, &mut bytes);
        let header = BlockHeader::decode(&bytes[before..]).unwrap();
        prop_assert_eq!(header, written);
        prop_assert!(header.stored_bytes as usize <= raw.len(), "a block never grows");
        let stored = &bytes[before + BLOCK_HEADER_BYTES..];
        let mut decoded = b"stale".to_vec();
        block::decode_into(&header, stored, &mut decoded).unwrap();
        prop_assert_eq!(&decoded, &raw);
        prop_assert!(block::decode_into(&header, &stored[..stored.len() - 1], &mut decoded).is_err());
        let mut offset = 0;
        let mut found = Vec::new();
        while offset < raw.len() {
            let (row, record, taken) = block::decode_record(shape, &raw[offset..]).unwrap();
            found.push(from_record(row, &record));
            offset += taken;
        }
        prop_assert_eq!(found, samples);
    }

    #[test]
    fn key_indexes(
        entries in prop::collection::vec(
            (any::<u64>(), 0_u32..1 << 30, 0_u32..1 << 30, 1_u32..1 << 30,
             prop::collection::vec(any::<u8>(), 0..=256), any::<bool>()), 0..20),
    ) {
        let entry = |(offset_bytes, stored_bytes, raw_bytes, records, first_key, key_is_cut)| {
            IndexEntry { offset_bytes, stored_bytes, raw_bytes, records, first_key, key_is_cut }
        };
        let index = KeyIndex { entries: entries.into_iter().map(entry).collect() };
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        let count = index.entries.len() as u64;
        prop_assert_eq!(&KeyIndex::decode(&bytes, count).unwrap(), &index);
        prop_assert!(KeyIndex::decode(&bytes, count + 1).is_err());
        prop_assert!(count == 0 || KeyIndex::decode(&bytes, count - 1).is_err());
        prop_assert!(KeyIndex::decode(&bytes, u64::MAX).is_err());
        for cut in 0..bytes.len() {
            prop_assert!(KeyIndex::decode(&bytes[..cut], count).is_err());
        }
    }

    #[test]
    fn source_tables(rows in prop::collection::vec(any::<((u64, u32, u32), (u64, u64, u64, u128))>(), 0..20)) {
        let row = |((chunk, task, attempt), (first_sequence, records, bytes, hash_sum))| SourceRow {
            chunk: ChunkId(chunk),
            source: Source { map_task: TaskIndex(task), attempt: AttemptNumber(attempt) },
            first_sequence,
            sum: DataSum { records, bytes, hash_sum },
        };
        let rows: Vec<SourceRow> = rows.into_iter().map(row).collect();
        let mut bytes = Vec::new();
        source_table::encode(&rows, &mut bytes);
        let count = rows.len() as u64;
        prop_assert_eq!(source_table::decode(&bytes, count).unwrap(), rows);
        prop_assert!(source_table::decode(&bytes, count + 1).is_err());
        prop_assert!(source_table::decode(&bytes, u64::MAX).is_err());
    }

    /// Damage of a record's bytes that a CRC could miss by chance is found by the hashes, too.
    #[test]
    fn altered_frames_do_not_match_their_sums(
        samples in prop::collection::vec(a_sample(), 1..10), at in any::<prop::sample::Index>(), bit in 0..8,
    ) {
        let samples: Vec<Sample> = samples.into_iter().map(|each| shaped(KeyShape::Whole, each)).collect();
        let (header, mut payload) = samples::frame(Source::default(), 0, KeyShape::Whole, &samples);
        let offset = at.index(payload.len());
        payload[offset] ^= 1_u8 << bit;
        prop_assert!(header.check_payload(&payload).is_err());
        prop_assert!(header.check_records(&payload).is_err());
    }
}

fn check_block(raw: &[u8], codec: Codec, expected: Codec) {
    let mut bytes = Vec::new();
    let header = block::encode(raw, 1, codec, &mut bytes);
    assert_eq!(header.codec, expected, "{codec:?} of {} bytes", raw.len());
    let mut decoded = Vec::new();
    block::decode_into(&header, &bytes[BLOCK_HEADER_BYTES..], &mut decoded).unwrap();
    assert!(decoded == raw);
}

#[test]
fn incompressible_blocks_are_stored_raw() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        check_block(&samples::noise(7, 64 << 10), codec, Codec::None);
        check_block(b"", codec, Codec::None);
        check_block(b"x", codec, Codec::None);
        check_block(&[b'x'; 64 << 10], codec, codec);
    }
}

/// The densest that each codec can make must pass the limits of growth that a reader applies.
#[test]
fn the_densest_blocks_are_read() {
    for bytes in [1 << 10, 128 << 10, (128 << 10) + 1, 1 << 20, 32 << 20] {
        for codec in [Codec::Lz4, Codec::Zstd] {
            check_block(&vec![0; bytes], codec, codec);
        }
    }
}

/// A header with a right checksum that asks for more room than its block could fill is refused before any is made.
#[test]
fn impossible_growth_is_refused() {
    for (codec, growth_max) in [(0, 1_u32), (1, 255), (2, 32 << 10)] {
        for (raw_bytes, accepted) in
            [(20 * growth_max, true), (20 * growth_max + 1, false), (u32::MAX, false)]
        {
            let mut bytes = b"SFB".to_vec();
            bytes.push(codec);
            for field in [1, 20, raw_bytes, 0] {
                bytes.extend_from_slice(&u32::to_le_bytes(field));
            }
            let crc = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let found = BlockHeader::decode(&bytes);
            assert_eq!(found.is_ok(), accepted, "codec {codec}, {raw_bytes} bytes");
            let Err(error) = found else { continue };
            assert!(matches!(error.problem, Problem::Field { what: "block size", .. }), "{error}");
        }
    }
}

#[test]
fn large_records_round_trip() {
    for (key_bytes, value_bytes) in [(0, 3 << 20), (3 << 20, 0), (1 << 20, 2 << 20)] {
        for shape in [KeyShape::Whole, KeyShape::Prefix] {
            let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
            let mut bytes = Vec::new();
            record::encode(shape, &key, &value, key_bytes, &mut bytes);
            let record = record::decode(shape, &bytes).unwrap();
            assert!(record.key == key && record.value == value && record.encoded == bytes);
        }
    }
}

/// Lengths that add up to more than a record may have, or overflow, with and without bytes behind them.
#[test]
fn impossible_lengths_are_refused() {
    for length in
        [ifile::ENCODED_RECORD_BYTES_MAX + 1, u64::from(u32::MAX), u64::MAX / 2, u64::MAX - 1, u64::MAX]
    {
        for lengths in [[length, 0], [0, length], [length, length], [5, length]] {
            let mut bytes = Vec::new();
            for each in lengths {
                ifile::encoding::put_varint(&mut bytes, each);
            }
            bytes.extend_from_slice(&[0; 64]);
            assert!(record::decode(KeyShape::Whole, &bytes).is_none(), "{lengths:?}");
            assert!(record::decode(KeyShape::Prefix, &bytes).is_none(), "{lengths:?}");
        }
    }
}
