//! Map functions and combine windows: real programs, and windows against a model.

use api::{Blame, FieldSplit, Formats, Function, OutputFormat, RecordFormat, TaskFailure};
use functions::{BlockPlace, Emitter, MapCounts, RecordInput};
use ids::AttemptNumber;
use mapper::{CombineEmitter, map_function, run_map_only};
use output::{PartPlace, PartWriter};
use program::{FunctionContext, Programs};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Pair = (Vec<u8>, Vec<u8>);

struct Blocks {
    blocks: Vec<Vec<u8>>,
    next: usize,
    format: RecordFormat,
}

impl Blocks {
    fn lines(blocks: &[&str]) -> Blocks {
        let blocks = blocks.iter().map(|block| block.as_bytes().to_vec()).collect();
        Blocks { blocks, next: 0, format: RecordFormat::TEXT }
    }
}

impl RecordInput for Blocks {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        self.next += 1;
        Ok(self.blocks.get(self.next - 1).map(Vec::as_slice))
    }
    fn format(&self) -> RecordFormat {
        self.format
    }
    fn place(&self) -> BlockPlace {
        BlockPlace::default()
    }
    fn source_name(&self) -> String {
        "test".to_string()
    }

    fn position(&self, offset_in_block: usize) -> String {
        format!("test at byte {offset_in_block}")
    }
}

#[derive(Default)]
struct Collected(Vec<Pair>);

impl Emitter for Collected {
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.0.push((key.to_vec(), value.to_vec()));
        Ok(())
    }
}

fn context() -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: "/".into(),
        start_dir: "/".into(),
        env: Vec::new(),
        record_bytes_max: 100_000,
        buffer_bytes: 1000,
        cancelled: Arc::default(),
        stderr_log: None,
        limits: Default::default(),
        disk_dirs: Vec::new(),
        reports: Default::default(),
        declared_reads: None,
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        sandbox: None,
        named: Vec::new(),
    }
}

fn map(function: &str, blocks: &[&str]) -> Result<(Vec<Pair>, MapCounts), TaskFailure> {
    let function = Function::parse(function).unwrap();
    let mut input = Blocks::lines(blocks);
    let mut output = Collected::default();
    let counts =
        map_function(Some(&function), &context(), &Formats::default())?.run(&mut input, &mut output)?;
    assert_eq!(input.next, blocks.len() + 1, "the input is drained");
    Ok((output.0, counts))
}

fn check(function: &str, blocks: &[&str], expected: &[(&str, &str)]) {
    let (pairs, counts) = map(function, blocks).unwrap();
    let pair = |(key, value): &(&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(pairs, expected.iter().map(pair).collect::<Vec<_>>());
    let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!((counts.output_records, counts.output_bytes), (pairs.len() as u64, bytes as u64));
}

#[test]
fn programs_map_lines_to_pairs() {
    check("cat", &["a\tb\tc\n\nk\r\n", "x\n"], &[("a", "b\tc"), ("", ""), ("k\r", ""), ("x", "")]);
    check("printf 'a\\t1\\n\\nno end'", &["input\n"], &[("a", "1"), ("", ""), ("no end", "")]);
    check("true", &["input\n"], &[]);
    let long = "x".repeat(99_000);
    check("cat", &[&format!("{long}\tv\ny\n")], &[(&long, "v"), ("y", "")]);
}

#[test]
fn unread_input_of_program_is_drained() {
    let block = "line\n".repeat(20_000);
    let (pairs, counts) = map("head -n 1", &[block.as_str(); 50]).unwrap();
    assert_eq!(pairs, [(b"line".to_vec(), Vec::new())]);
    assert!(counts.unread_bytes > 4_000_000 && counts.unread_bytes < 5_000_000, "{counts:?}");
}

#[test]
fn bad_programs_are_named() {
    let failure = map("sh -c 'cat >/dev/null; echo why >&2; exit 5'", &["x\n"]).unwrap_err();
    assert_eq!((failure.blame, failure.exit_code), (Blame::UserProgram, Some(5)));
    assert_eq!(failure.stderr_tail, ["why"]);
    let failure = map("sh -c 'echo first; head -c 300000 /dev/zero; echo; echo last'", &["x\n"]).unwrap_err();
    assert_eq!(failure.blame, Blame::UserData);
    assert!(
        failure.message.contains("output line 2 of the user program: it has 300000 bytes"),
        "{failure:?}"
    );
    assert!(failure.message.contains("--memory 2M"), "{failure:?}");
    // A gigabyte and more in one line: read past, never held.
    let failure = map("head -c 1200000000 /dev/zero", &[]).unwrap_err();
    assert!(failure.message.contains("output line 1 of the user program"), "{failure:?}");
    assert!(failure.message.contains("the limit of any record"), "{failure:?}");
}

fn map_only_formats(function: Option<&str>, formats: &Formats, block: &[u8]) -> (Vec<u8>, MapCounts, u64) {
    let staging = tempfile::tempdir().unwrap();
    let function = function.map(|text| Function::parse(text).unwrap());
    let place = PartPlace {
        staging: staging.path(),
        part_index: 0,
        attempt: AttemptNumber(0),
        buffer_bytes: 1000,
        object_buffer_bytes: 0,
        sync: false,
        is_stage_file: false,
        is_hashed: false,
        stored: None,
    };
    let mut part = PartWriter::create(place, formats).unwrap();
    let mut input = Blocks { blocks: vec![block.to_vec()], next: 0, format: formats.input };
    let counts = run_map_only(function.as_ref(), &context(), formats, &mut input, &mut part).unwrap();
    let part = part.finish().unwrap();
    (std::fs::read(staging.path().join(part.attempt_name)).unwrap(), counts, part.records)
}

fn map_only(function: Option<&str>, block: &str) -> (String, MapCounts, u64) {
    let (bytes, counts, records) = map_only_formats(function, &Formats::default(), block.as_bytes());
    (String::from_utf8(bytes).unwrap(), counts, records)
}

#[test]
fn map_only_jobs_know_the_formats() {
    let input = RecordFormat::Fixed { record_bytes: 5, key_bytes: 2 };
    let raw = Formats { input, output: OutputFormat::Raw, ..Formats::default() };
    let rows = b"abcdefghijklm\no";
    for function in [None, Some("builtin:identity"), Some("builtin:grep:.|\\n"), Some("cat")] {
        let (bytes, counts, records) = map_only_formats(function, &raw, rows);
        assert_eq!((bytes.as_slice(), counts.output_bytes), (&rows[..], 15), "{function:?}");
        let known = if function == Some("cat") { 0 } else { 3 };
        assert_eq!((counts.output_records, records), (known, known), "{function:?}");
    }
    // The lines of a program become pairs where the job says how they are parted.
    let output = OutputFormat::Lines { separator: b"=>".to_vec(), terminator: 0, always_separate: true };
    let split = FieldSplit { separator: b", ".to_vec(), key_fields: 2 };
    let pairs = Formats { reduce_output: Some(split), output, ..Formats::default() };
    let (bytes, counts, records) = map_only_formats(Some("cat"), &pairs, b"a, b, c\nd\n");
    assert_eq!(bytes, b"a, b=>c\0d=>\0");
    assert_eq!((counts.output_records, counts.output_bytes, records), (2, 8, 2));
}

#[test]
fn map_only_jobs_write_lines_or_program_output() {
    assert_eq!(map_only(None, "a\tb\nc\t\nd\n").0, "a\tb\nc\t\nd\n");
    assert_eq!(map_only(Some("builtin:words"), "a b\n").0, "a\t1\nb\t1\n");
    let (text, counts, records) = map_only(Some("tr -d '\\n'"), "a\t\nb\n");
    assert_eq!((text.as_str(), counts.output_records, counts.output_bytes, records), ("a\tb", 1, 3, 1));
    let large = "0123456789\n".repeat(100_000);
    assert_eq!(map_only(Some("cat"), &large).0, large);
}

fn combine(combiner: &str, window_bytes: u64, pairs: &[Pair]) -> Result<Vec<Pair>, TaskFailure> {
    let combiner = Function::parse(combiner).unwrap();
    let mut output = Collected::default();
    let formats = Formats::default();
    let mut emitter = CombineEmitter::new(&combiner, window_bytes, &context(), &formats, &mut output)?;
    for (key, value) in pairs {
        emitter.emit(key, value)?;
    }
    let emitted = emitter.finish()?;
    assert_eq!(emitted, output.0.len() as u64);
    Ok(output.0)
}

fn text_pairs(rows: &[(&str, &str)]) -> Vec<Pair> {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

#[test]
fn windows_are_cut_by_bytes() {
    let pairs = text_pairs(&[("b", "1"), ("a", "1"), ("b", "1"), ("b", "1"), ("a", "5")]);
    let whole = text_pairs(&[("a", "6"), ("b", "3")]);
    let mut combined = combine("builtin:sum", 1 << 20, &pairs).unwrap();
    combined.sort();
    assert_eq!(combined, whole);
    // A program counts its pairs' bytes and 12 more for each.
    let sorted = text_pairs(&[("a", "1"), ("b", "1"), ("b", "1"), ("a", "5"), ("b", "1")]);
    assert_eq!(combine("cat", 3 * 14, &pairs).unwrap(), sorted);
    assert_eq!(combine("cat", 1, &pairs).unwrap(), pairs);
    assert_eq!(combine("builtin:max", 1, &pairs).unwrap(), pairs);
    assert_eq!(combine("cat", 1, &[]).unwrap(), []);
}

#[test]
fn combiners_use_the_separators_of_the_job() {
    let split = FieldSplit { separator: b"::".to_vec(), key_fields: 2 };
    let formats = Formats { map_output: split, reduce_input_separator: b"::".to_vec(), ..Formats::default() };
    let combiner = Function::parse("sed -e 's/$/!/'").unwrap();
    let mut output = Collected::default();
    let mut emitter = CombineEmitter::new(&combiner, 1000, &context(), &formats, &mut output).unwrap();
    emitter.emit(b"b::x", b"1").unwrap();
    emitter.emit(b"a::y", b"2\t3").unwrap();
    assert_eq!(emitter.finish().unwrap(), 2);
    assert_eq!(output.0, text_pairs(&[("a::y", "2\t3!"), ("b::x", "1!")]));
}

#[test]
fn combiners_that_fail_are_named() {
    let pairs = text_pairs(&[("a", "1"), ("a", "x")]);
    let failure = combine("builtin:sum", 1000, &pairs).unwrap_err();
    assert!(failure.message.contains("\"x\" of the key \"a\""), "{failure:?}");
    assert!(combine("builtin:words", 1000, &pairs).unwrap_err().message.contains("no built-in combiner"));
    assert_eq!(combine("sh -c 'exit 9'", 1000, &pairs).unwrap_err().exit_code, Some(9));
}

#[test]
fn combined_lists_stay_within_a_record() {
    let pairs: Vec<Pair> = (0..5).map(|_| (b"key".to_vec(), vec![b'x'; 40_000])).collect();
    let lists = combine("builtin:list", 1 << 30, &pairs).unwrap();
    let lengths: Vec<usize> = lists.iter().map(|(_, value)| value.len()).collect();
    assert_eq!(lengths, [80_001, 80_001, 40_000]);
}

/// Values of each key, in order.
fn grouped(pairs: &[Pair]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut groups: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    pairs.iter().for_each(|(key, value)| groups.entry(key.clone()).or_default().push(value.clone()));
    groups
}

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Computes the result of a reducer for the values of a key. With `partial` the values are results of windows.
fn model(name: &str, values: &[Vec<u8>], partial: bool) -> Vec<u8> {
    let numbers = || values.iter().map(|value| number(value));
    match name {
        "sum" => numbers().sum::<i64>().to_string().into_bytes(),
        "count" if partial => numbers().sum::<i64>().to_string().into_bytes(),
        "count" => values.len().to_string().into_bytes(),
        "min" => values.iter().min_by_key(|value| number(value)).unwrap().clone(),
        "max" => values.iter().rev().max_by_key(|value| number(value)).unwrap().clone(),
        "unique" => Vec::new(),
        _ => values.join(&b','),
    }
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0u8)], 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn windows_change_nothing_that_a_reducer_sees(
        pairs in proptest::collection::vec((any_key(), "0?[0-9]{1,2}"), 0..200),
        window_bytes in 1u64..4000,
    ) {
        let pairs: Vec<Pair> = pairs.into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
        for name in ["sum", "count", "min", "max", "unique", "list"] {
            let reduce = |groups: &BTreeMap<Vec<u8>, Vec<Vec<u8>>>, partial: bool| -> Vec<Pair> {
                groups.iter().map(|(key, values)| (key.clone(), model(name, values, partial))).collect()
            };
            let combined = combine(&format!("builtin:{name}"), window_bytes, &pairs).unwrap();
            prop_assert!(combined.len() <= pairs.len());
            prop_assert_eq!(&combined, &combine(&format!("builtin:{name}"), window_bytes, &pairs).unwrap());
            prop_assert_eq!(reduce(&grouped(&combined), true), reduce(&grouped(&pairs), false), "{}", name);
        }
    }
}

#[test]
fn windows_reach_programs_sorted_with_values_in_order() {
    let pair = |number: u32| (format!("k{}", number * 7 % 13).into_bytes(), number.to_string().into_bytes());
    let pairs: Vec<Pair> = (0..1000).map(pair).collect();
    for window_bytes in [100, 2000, 1 << 20] {
        let combined = combine("cat", window_bytes, &pairs).unwrap();
        assert_eq!(grouped(&combined), grouped(&pairs));
        if window_bytes == 1 << 20 {
            assert!(combined.is_sorted_by(|left, right| left.0 <= right.0));
        }
    }
}
