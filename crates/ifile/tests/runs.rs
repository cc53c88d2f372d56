//! Whole runs: any records go through a run file unchanged, and ranges of keys are found through its index.

mod samples;

use api::{Codec, DataSum};
use ids::{AttemptNumber, ChunkId, Source, TaskIndex};
use ifile::record::KeyShape;
use ifile::run_file::RunIdentity;
use ifile::{INDEX_KEY_BYTES_MAX, Problem, RunFile, SourceRow, block, verify};
use proptest::prelude::*;
use samples::{Sample, noise, run_identity, write_run};

/// Four rows in a given order of rank; records name them by position.
fn rows() -> Vec<SourceRow> {
    let row = |task, attempt, first_sequence| SourceRow {
        chunk: ChunkId(u64::from(task)),
        source: Source { map_task: TaskIndex(task), attempt: AttemptNumber(attempt) },
        first_sequence,
        sum: DataSum::default(),
    };
    vec![row(4, 0, 0), row(1, 2, 9), row(1, 2, 0), row(0, 0, 0)]
}

/// Keys that collide, are the beginning of each other, and are longer than the index keeps.
fn whole_keys() -> impl Strategy<Value = Vec<u8>> {
    let long = |len: usize| {
        prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0)], 0..4)
            .prop_map(move |end| [vec![b'a'; len], end].concat())
    };
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0), Just(0xff)], 0..4),
        1 => long(INDEX_KEY_BYTES_MAX - 1),
        1 => long(INDEX_KEY_BYTES_MAX),
        1 => long(INDEX_KEY_BYTES_MAX + 40),
    ]
}

/// Partition keys of which none is the beginning of another: all but the last byte are letters. Behind them
/// stands a sort key.
fn prefix_keys() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let letters = prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..4),
        1 => Just(vec![b'a'; INDEX_KEY_BYTES_MAX - 1]),
        1 => Just(vec![b'a'; INDEX_KEY_BYTES_MAX + 3]),
    ];
    (letters, prop::collection::vec(any::<u8>(), 0..3)).prop_map(|(mut key, sort_key)| {
        key.push(0);
        let partition_key_bytes = key.len();
        key.extend_from_slice(&sort_key);
        (key, partition_key_bytes)
    })
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0_usize..2000).prop_map(|len| vec![b'v'; len]),
        1 => (any::<u32>(), 0_usize..2000).prop_map(|(seed, len)| noise(seed.into(), len)),
    ]
}

fn some_samples(shape: KeyShape) -> BoxedStrategy<Vec<Sample>> {
    let key = match shape {
        KeyShape::Whole => whole_keys()
            .prop_map(|key| {
                let len = key.len();
                (key, len)
            })
            .boxed(),
        KeyShape::Prefix => prefix_keys().boxed(),
    };
    let sample = (0_u32..4, key, values(), any::<bool>()).prop_map(
        |(row, (key, partition_key_bytes), value, is_separated)| Sample {
            row,
            key,
            value,
            partition_key_bytes,
            is_separated,
        },
    );
    let in_order = |mut samples: Vec<Sample>| {
        let rows = rows();
        samples.sort_by_key(|sample| (sample.key.clone(), rows[sample.row as usize].rank()));
        samples
    };
    prop::collection::vec(sample, 0..60).prop_map(in_order).boxed()
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)]
}

fn shaped_samples() -> impl Strategy<Value = (KeyShape, Vec<Sample>)> {
    prop_oneof![
        some_samples(KeyShape::Whole).prop_map(|samples| (KeyShape::Whole, samples)),
        some_samples(KeyShape::Prefix).prop_map(|samples| (KeyShape::Prefix, samples)),
    ]
}

/// The samples of each block, read back block by block.
fn blocks_of(bytes: &[u8], run: &RunFile) -> Vec<Vec<Sample>> {
    let mut blocks = Vec::new();
    let mut raw = Vec::new();
    for entry in &run.index.entries {
        verify::read_block(bytes, entry, &mut raw).unwrap();
        let mut samples = Vec::new();
        let mut offset = 0;
        while offset < raw.len() {
            let (row, record, taken) = block::decode_record(run.identity.key_shape, &raw[offset..]).unwrap();
            offset += taken;
            samples.push(Sample {
                row,
                key: record.key.to_vec(),
                value: record.value.to_vec(),
                partition_key_bytes: record.partition_key_bytes,
                is_separated: record.is_separated(),
            });
        }
        blocks.push(samples);
    }
    blocks
}

/// The model of a range: the first and one past the last block that holds a key of [lower, upper).
fn needed_blocks(
    blocks: &[Vec<Sample>],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Option<(usize, usize)> {
    let within = |sample: &Sample| {
        lower.is_none_or(|bound| sample.key.as_slice() >= bound)
            && upper.is_none_or(|bound| sample.key.as_slice() < bound)
    };
    let first = blocks.iter().position(|block| block.iter().any(within))?;
    let last = blocks.iter().rposition(|block| block.iter().any(within))?;
    Some((first, last + 1))
}

fn check_range(run: &RunFile, blocks: &[Vec<Sample>], lower: Option<&[u8]>, upper: Option<&[u8]>) {
    let found = run.index.blocks_in_range(lower, upper);
    assert!(found.start <= found.end && found.end <= blocks.len());
    if let Some((first, end)) = needed_blocks(blocks, lower, upper) {
        assert!(found.start <= first && end <= found.end, "{found:?} misses some of {first}..{end}");
    }
    let cut = run.index.entries.iter().any(|entry| entry.key_is_cut);
    if !cut && lower <= upper.or(Some(&[0xff; 300])) {
        // Without cut keys no block is read in vain, but that before the first key at or above the lower bound.
        let first_keys = || blocks.iter().map(|block| block[0].key.as_slice());
        let start =
            lower.map_or(0, |bound| first_keys().filter(|key| *key < bound).count().saturating_sub(1));
        let end = upper.map_or(blocks.len(), |bound| first_keys().filter(|key| *key < bound).count());
        assert_eq!(found, start..end.max(start));
    }
}

proptest! {
    #[test]
    fn any_records_go_through_a_run(
        (shape, samples) in shaped_samples(), codec in codecs(), block_bytes in 1_u64..1500,
    ) {
        let (bytes, written) = write_run(run_identity(shape), codec, block_bytes, rows(), &samples);
        let run = RunFile::open(&bytes[..]).unwrap();
        prop_assert_eq!(run.identity, written.identity);
        prop_assert_eq!(run.footer, written.footer);
        prop_assert_eq!(&run.index, &written.index);
        prop_assert_eq!(&run.sources, &written.sources);
        prop_assert_eq!(run.file_bytes(), bytes.len() as u64);
        let blocks = blocks_of(&bytes, &run);
        for (block, entry) in blocks.iter().zip(&run.index.entries) {
            prop_assert!(block.len() == 1 || u64::from(entry.raw_bytes) <= block_bytes);
        }
        prop_assert_eq!(blocks.concat(), samples.clone());
        let mut walked = 0;
        verify::walk_run(&bytes[..], &run, |_, _| walked += 1).unwrap();
        prop_assert_eq!(walked, samples.len());
        prop_assert_eq!(run.footer.sum.records, samples.len() as u64);
    }

    #[test]
    fn ranges_are_found_through_the_index(
        (shape, samples) in shaped_samples(), block_bytes in 1_u64..600, bounds in prop::collection::vec(whole_keys(), 0..6),
    ) {
        let (bytes, run) = write_run(run_identity(shape), Codec::None, block_bytes, rows(), &samples);
        let blocks = blocks_of(&bytes, &run);
        // Cuts are made between index keys, so these count most; any other bound must do as well.
        let of_index = run.index.entries.iter().map(|entry| entry.first_key.clone());
        let of_records = samples.iter().step_by(5).map(|sample| sample.key[..sample.partition_key_bytes].to_vec());
        let all: Vec<Vec<u8>> = bounds.into_iter().chain(of_index).chain(of_records).collect();
        for lower in all.iter().map(Some).chain([None]) {
            for upper in all.iter().map(Some).chain([None]) {
                check_range(&run, &blocks, lower.map(Vec::as_slice), upper.map(Vec::as_slice));
            }
        }
    }

    /// Ranges that lie side by side hold each record once, whatever the cuts: what a reduce plan relies on.
    #[test]
    fn cuts_between_index_keys_lose_and_double_nothing(
        (shape, samples) in shaped_samples(), block_bytes in 1_u64..600, take in prop::collection::vec(any::<bool>(), 60),
    ) {
        let (bytes, run) = write_run(run_identity(shape), Codec::Lz4, block_bytes, rows(), &samples);
        let blocks = blocks_of(&bytes, &run);
        let mut cuts: Vec<Vec<u8>> =
            run.index.entries.iter().zip(take).filter(|(_, take)| *take).map(|(entry, _)| entry.first_key.clone()).collect();
        cuts.dedup();
        let mut bounds: Vec<Option<&[u8]>> = vec![None];
        bounds.extend(cuts.iter().map(|cut| Some(cut.as_slice())));
        bounds.push(None);
        let mut read = Vec::new();
        for pair in bounds.windows(2) {
            for block in &blocks[run.index.blocks_in_range(pair[0], pair[1])] {
                let within = |sample: &&Sample| {
                    pair[0].is_none_or(|bound| sample.key.as_slice() >= bound)
                        && pair[1].is_none_or(|bound| sample.key.as_slice() < bound)
                };
                read.extend(block.iter().filter(within).cloned());
            }
        }
        prop_assert_eq!(read, samples);
    }

    /// Records in any other order are refused when the run is verified.
    #[test]
    fn records_out_of_order_are_found(samples in some_samples(KeyShape::Whole), at in any::<prop::sample::Index>()) {
        prop_assume!(samples.len() > 1);
        let rank = |sample: &Sample| (sample.key.clone(), rows()[sample.row as usize].rank());
        let mut swapped = samples.clone();
        let first = at.index(samples.len() - 1);
        swapped.swap(first, first + 1);
        prop_assume!(rank(&samples[first]) != rank(&samples[first + 1]));
        let (bytes, run) = write_run(run_identity(KeyShape::Whole), Codec::Lz4, 300, rows(), &swapped);
        let error = verify::walk_run(&bytes[..], &run, |_, _| {}).unwrap_err();
        prop_assert!(matches!(error.problem, Problem::Order), "{}", error);
    }
}

/// A record larger than a block has a block of its own, and those beside it keep theirs.
#[test]
fn records_larger_than_a_block() {
    let sample = |key: &[u8], value: Vec<u8>| Sample {
        row: 0,
        key: key.to_vec(),
        value,
        partition_key_bytes: key.len(),
        is_separated: false,
    };
    let samples = [
        sample(b"a", vec![b'v'; 10]),
        sample(b"b", noise(3, 5 << 20)),
        sample(b"c", vec![b'v'; 10]),
        sample(b"d", vec![b'v'; 10]),
    ];
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let (bytes, run) = write_run(run_identity(KeyShape::Whole), codec, 64 << 10, rows(), &samples);
        assert_eq!(run.index.entries.len(), 3);
        assert!(blocks_of(&bytes, &run).concat() == samples);
        let opened = RunFile::open(&bytes[..]).unwrap();
        assert!(opened.footer.block_bytes_max > 5 << 20);
    }
}

/// The sums find lies: each of these files has right checksums everywhere, and is refused all the same.
#[test]
fn well_formed_lies_are_found() {
    let samples = samples::samples(KeyShape::Whole);
    let identity = run_identity(KeyShape::Whole);
    let (honest, run) = write_run(identity, Codec::None, 256, samples::source_rows(), &samples);
    check_lie(&honest, &run, "", |_| {});
    check_lie(&honest, &run, "the number of records", |run| run.footer.sum.records += 1);
    check_lie(&honest, &run, "the hash sum", |run| run.footer.sum.hash_sum ^= 1);
    check_lie(&honest, &run, "the bytes", |run| run.footer.sum.bytes += 1);
    check_lie(&honest, &run, "the largest block", |run| run.footer.block_bytes_max -= 1);
    check_lie(&honest, &run, "the run", |run| run.footer.run.0 += 1);
    check_lie(&honest, &run, "a source's records", |run| run.sources[1].sum.records -= 1);
    check_lie(&honest, &run, "a source's hash sum", |run| run.sources[2].sum.hash_sum ^= 1);
    check_lie(&honest, &run, "the order of sources", |run| run.sources.swap(0, 2));
    check_lie(&honest, &run, "a source that is gone", |run| {
        run.sources.pop();
        run.footer.source_count -= 1;
    });
    check_lie(&honest, &run, "a first key", |run| run.index.entries[1].first_key.push(b'x'));
    check_lie(&honest, &run, "a first key that is not cut", |run| run.index.entries[1].key_is_cut ^= true);
    check_lie(&honest, &run, "records of two blocks", |run| {
        run.index.entries[0].records += 1;
        run.index.entries[1].records -= 1;
    });
    check_lie(&honest, &run, "the border of two blocks", |run| {
        run.index.entries[0].stored_bytes += 1;
        run.index.entries[1].stored_bytes -= 1;
        run.index.entries[1].offset_bytes += 1;
    });
    check_lie(&honest, &run, "the order of blocks", |run| run.index.entries.swap(0, 1));
}

/// Writes the end of the file anew after `lie`, with right checksums; a reader must accept it when the lie is empty.
fn check_lie(honest: &[u8], run: &RunFile, name: &str, lie: impl FnOnce(&mut RunFile)) {
    let mut told = run.clone();
    lie(&mut told);
    let mut bytes = honest[..run.footer.index_offset as usize].to_vec();
    let (mut index, mut sources) = (Vec::new(), Vec::new());
    told.index.encode(&mut index);
    ifile::source_table::encode(&told.sources, &mut sources);
    told.footer.index_bytes = index.len() as u64;
    told.footer.index_crc32c = crc32c::crc32c(&index);
    told.footer.sources_offset = told.footer.index_offset + index.len() as u64;
    told.footer.sources_crc32c = crc32c::crc32c(&sources);
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(&sources);
    bytes.extend_from_slice(&told.footer.encode());
    let read = RunFile::open(&bytes[..]).and_then(|run| verify::walk_run(&bytes[..], &run, |_, _| {}));
    assert_eq!(read.is_ok(), name.is_empty(), "{name}: {read:?}");
}

/// A header from one run on the blocks of another.
#[test]
fn a_header_of_another_run_is_found() {
    let bytes = samples::sample_run(Codec::Lz4, KeyShape::Whole);
    let other = RunIdentity { run: ids::RunId(35), ..run_identity(KeyShape::Whole) };
    let mixed = [&other.encode_header()[..], &bytes[64..]].concat();
    let error = RunFile::open(&mixed[..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "at byte {}: damaged: the run's number is 34 here, but 35 in another place",
            bytes.len() - 128
        )
    );
}
