//! Merge and group against a ten-line model.

use ids::{AttemptNumber, ChunkId, IfileIndex, Source, TaskIndex};
use ifile::record::{KeyShape, Record, decode, encode};
use ifile::{SourceRow, record_hash};
use imerger::{Groups, Merge, SortedRun, Winners};
use proptest::prelude::*;

const PARTITION_KEY_BYTES: usize = 2;

/// A record with its input position: (map task, attempt, frame, position in the run) order equal keys.
#[derive(Clone, Debug)]
struct Input {
    key: Vec<u8>,
    value: Vec<u8>,
    source: Source,
}

struct VecRun {
    ifile: IfileIndex,
    sources: Vec<SourceRow>,
    records: Vec<(u32, Vec<u8>)>,
    next: usize,
}

impl SortedRun for VecRun {
    type Error = std::convert::Infallible;

    fn advance(&mut self) -> Result<bool, Self::Error> {
        self.next += 1;
        Ok(self.next <= self.records.len())
    }

    fn record(&self) -> Record<'_> {
        decode(KeyShape::Prefix, &self.records[self.next - 1].1).unwrap()
    }

    fn source_row(&self) -> u32 {
        self.records[self.next - 1].0
    }

    fn sources(&self) -> &[SourceRow] {
        &self.sources
    }

    fn ifile(&self) -> IfileIndex {
        self.ifile
    }
}

/// A run of the given records: one source row per source, records sorted stably by key, then source.
fn run(ifile: u32, chunk: u64, mut inputs: Vec<Input>) -> VecRun {
    inputs.sort_by(|a, b| (&a.key, a.source).cmp(&(&b.key, b.source)));
    let mut found: Vec<Source> = inputs.iter().map(|input| input.source).collect();
    found.sort_unstable();
    found.dedup();
    let sources = found
        .iter()
        .map(|source| SourceRow {
            chunk: ChunkId(chunk),
            source: *source,
            // A source's frames go to one chunk after another.
            first_sequence: chunk * 1000,
            sum: api::DataSum::default(),
        })
        .collect();
    let records = inputs
        .iter()
        .map(|input| {
            let mut bytes = Vec::new();
            let partition = input.key.len().min(PARTITION_KEY_BYTES);
            encode(KeyShape::Prefix, &input.key, &input.value, partition, &mut bytes);
            (found.binary_search(&input.source).unwrap() as u32, bytes)
        })
        .collect();
    VecRun { ifile: IfileIndex(ifile), sources, records, next: 0 }
}

fn input() -> impl Strategy<Value = (Vec<u8>, u32, u32)> {
    // Keys are a two-byte group and a sort part: partition keys are free of prefixes among themselves.
    (proptest::collection::vec(0u8..3, 2..5), 0u32..4, 0u32..2)
}

proptest! {
    #[test]
    fn merge_and_group_equal_the_model(
        runs in proptest::collection::vec(proptest::collection::vec(input(), 0..40), 0..7),
        winners in proptest::collection::vec(0u32..2, 4),
        // Of some tasks another attempt counts in the second I-file.
        older in proptest::collection::btree_map(0u32..4, 0u32..2, 0..3),
    ) {
        // Every record gets a value that says where it stood in the input.
        let mut serial = 0u32;
        let runs: Vec<Vec<Input>> = runs.into_iter().map(|run| run.into_iter().map(|(key, task, attempt)| {
            serial += 1;
            let source = Source { map_task: TaskIndex(task), attempt: AttemptNumber(attempt) };
            Input { key, value: serial.to_be_bytes().to_vec(), source }
        }).collect()).collect();

        // The model: concatenate the winners in run order, sort stably by (key, task), group by key prefix.
        let total = runs.iter().map(Vec::len).sum::<usize>();
        let counts = |ifile: usize, input: &Input| {
            let task = input.source.map_task.0;
            let elsewhere = older.get(&task).filter(|_| ifile == 1);
            *elsewhere.unwrap_or(&winners[task as usize]) == input.source.attempt.0
        };
        let of_run = |(index, run): (usize, &Vec<Input>)| -> Vec<Input> {
            run.iter().filter(|input| counts(index % 2, input)).cloned().collect()
        };
        let mut model: Vec<Input> = runs.iter().enumerate().flat_map(of_run).collect();
        let order = |input: &Input| (input.key.clone(), input.source.map_task, input.source.attempt);
        model.sort_by_key(order);
        let expected: Vec<(Vec<u8>, Vec<u8>, bool)> = model.iter().enumerate().map(|(index, input)| {
            let starts = index == 0 || model[index - 1].key[..2] != input.key[..2];
            (input.key.clone(), input.value.clone(), starts)
        }).collect();

        let chosen = winners.iter().enumerate()
            .map(|(task, attempt)| (TaskIndex(task as u32), AttemptNumber(*attempt)));
        let older = older.iter()
            .map(|(task, attempt)| (IfileIndex(1), TaskIndex(*task), AttemptNumber(*attempt)));
        let chosen = Winners::new(chosen, []).with_older(older);
        let cursors: Vec<VecRun> =
            runs.iter().enumerate().map(|(index, inputs)| run(index as u32 % 2, index as u64, inputs.clone())).collect();
        let valid = cursors.iter().map(|cursor| chosen.valid_rows(cursor.ifile, &cursor.sources)).collect();
        let mut groups = Groups::new(Merge::new(cursors).unwrap(), valid);
        let mut actual = Vec::new();
        while let Some(record) = groups.advance().unwrap() {
            actual.push((record.key.to_vec(), record.value.to_vec(), record.starts_group));
        }
        prop_assert_eq!(&actual, &expected);

        let report = groups.report();
        prop_assert_eq!(report.groups, expected.iter().filter(|record| record.2).count() as u64);
        prop_assert_eq!(report.dropped_records, (total - expected.len()) as u64);
        let mut sum = api::DataSum::default();
        for input in &model {
            let mut bytes = Vec::new();
            encode(KeyShape::Prefix, &input.key, &input.value, 2, &mut bytes);
            sum.add_record(bytes.len() as u64, record_hash(&bytes));
        }
        let mut merged = api::DataSum::default();
        for (_, each) in &report.merged {
            merged.add(each);
        }
        prop_assert_eq!(merged, sum);
    }
}

proptest! {
    /// Ended earlier at any moment, the stream is what lies before the key, and a stream from there is the rest; or,
    /// where it was too late, nothing has changed.
    #[test]
    fn a_stream_that_ends_earlier_leaves_the_rest(
        runs in proptest::collection::vec(proptest::collection::vec((0u8..12, 0u8..4), 0..30), 1..5),
        key in 0u8..12,
        taken in 0usize..60,
        again in 0u8..12,
    ) {
        let source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
        let input = |(first, second): &(u8, u8)| Input { key: vec![0, *first, *second], value: vec![], source };
        let runs: Vec<Vec<Input>> = runs.iter().map(|run| run.iter().map(input).collect()).collect();
        let mut model: Vec<Vec<u8>> = runs.iter().flatten().map(|input| input.key.clone()).collect();
        model.sort();
        let cursors: Vec<VecRun> =
            runs.into_iter().enumerate().map(|(index, inputs)| run(0, index as u64, inputs)).collect();
        let valid = cursors.iter().map(|cursor| vec![true; cursor.sources.len()]).collect();
        let mut groups = Groups::new(Merge::new(cursors).unwrap(), valid);
        let mut actual = Vec::new();
        while actual.len() < taken && let Some(record) = groups.advance().unwrap() {
            actual.push(record.key.to_vec());
        }
        let mut end = vec![0, key];
        // Whoever has come to the end has nothing to give up.
        let is_over = actual.len() < taken;
        let is_ahead = actual.last().is_none_or(|last| last[..2] < end[..]);
        let has_ended = groups.end_before(&end);
        if !(is_over || actual.len() == model.len()) {
            prop_assert_eq!(has_ended, is_ahead);
        }
        prop_assert!(is_ahead || !has_ended);
        if has_ended && groups.end_before(&[0, again]) {
            prop_assert!(again < key);
            end = vec![0, again];
        }
        while let Some(record) = groups.advance().unwrap() {
            actual.push(record.key.to_vec());
        }
        prop_assert!(groups.advance().unwrap().is_none());
        let expected: Vec<Vec<u8>> =
            model.into_iter().filter(|key| !has_ended || key[..2] < end[..]).collect();
        prop_assert_eq!(groups.report().merged.iter().map(|(_, sum)| sum.records).sum::<u64>(), expected.len() as u64);
        prop_assert_eq!(actual, expected);
    }
}

#[test]
fn void_chunks_are_dropped() {
    let source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
    let make =
        |chunk: u64| run(0, chunk, vec![Input { key: b"kk".to_vec(), value: vec![chunk as u8], source }]);
    let winners = Winners::new([(TaskIndex(0), AttemptNumber(0))], [(source, ChunkId(1))]);
    let cursors = vec![make(0), make(1), make(2)];
    let valid = cursors.iter().map(|cursor| winners.valid_rows(cursor.ifile, &cursor.sources)).collect();
    let mut groups = Groups::new(Merge::new(cursors).unwrap(), valid);
    let mut values = Vec::new();
    while let Some(record) = groups.advance().unwrap() {
        values.push(record.value.to_vec());
    }
    assert_eq!(values, vec![vec![0], vec![2]]);
}
