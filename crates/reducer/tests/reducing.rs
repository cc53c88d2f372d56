//! Reduce functions over a model of the merge: built-ins, folds against big decimals, real programs.

use api::{Blame, FieldSplit, Formats, Function, OutputFormat, TaskFailure};
use bigdecimal::BigDecimal;
use functions::ReducedValues::{self, Emitted, Partial};
use functions::{GroupedRecord, GroupedRecords, ReduceCounts, combines_by_itself};
use ids::AttemptNumber;
use output::{PartPlace, PartWriter};
use program::{FunctionContext, Programs};
use proptest::prelude::*;
use reducer::reduce_function;
use std::str::FromStr;
use std::sync::Arc;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Sorted pairs, with group starts found as the merge finds them.
struct Sorted<'a> {
    pairs: &'a Pairs,
    next: usize,
}

impl GroupedRecords for Sorted<'_> {
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
        let Some((key, value)) = self.pairs.get(self.next) else {
            return Ok(None);
        };
        let starts_group = self.next == 0 || self.pairs[self.next - 1].0 != *key;
        self.next += 1;
        Ok(Some(GroupedRecord { key, value, starts_group, is_separated: false }))
    }
}

fn context() -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: "/".into(),
        start_dir: "/".into(),
        env: Vec::new(),
        record_bytes_max: 1 << 20,
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

fn pairs(rows: &[(&str, &str)]) -> Pairs {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

fn reduce(
    function: Option<&str>,
    values: ReducedValues,
    pairs: &Pairs,
) -> Result<(Vec<u8>, ReduceCounts), TaskFailure> {
    reduce_formats(function, values, pairs, &Formats::default())
}

fn reduce_formats(
    function: Option<&str>,
    values: ReducedValues,
    pairs: &Pairs,
    formats: &Formats,
) -> Result<(Vec<u8>, ReduceCounts), TaskFailure> {
    let staging = tempfile::tempdir().unwrap();
    let function = function.map(|text| Function::parse(text).unwrap());
    let place = PartPlace {
        staging: staging.path(),
        part_index: 0,
        attempt: AttemptNumber(0),
        buffer_bytes: 4096,
        object_buffer_bytes: 0,
        sync: false,
        is_stage_file: false,
        is_hashed: false,
        stored: None,
    };
    let mut part = PartWriter::create(place, formats)?;
    let mut input = Sorted { pairs, next: 0 };
    let mut reducer = reduce_function(function.as_ref(), values, &context(), formats)?;
    let counts = reducer.run(&mut input, &mut part)?;
    assert_eq!(input.next, pairs.len(), "the input is drained");
    let part = part.finish()?;
    Ok((std::fs::read(staging.path().join(part.attempt_name)).unwrap(), counts))
}

fn check(function: Option<&str>, rows: &[(&str, &str)], expected: &str) {
    let (output, counts) = reduce(function, Emitted, &pairs(rows)).unwrap();
    assert_eq!(String::from_utf8(output).unwrap(), expected, "{function:?}");
    let mut keys: Vec<&str> = rows.iter().map(|row| row.0).collect();
    keys.dedup();
    assert_eq!(counts, ReduceCounts { groups: keys.len() as u64, unread_bytes: 0 });
}

#[test]
fn functions_write_in_the_formats_of_the_job() {
    let rows = pairs(&[("a", ""), ("a", "2"), ("b::c", "3")]);
    let check = |function: Option<&str>, formats: &Formats, expected: &str| {
        let (output, _) = reduce_formats(function, Emitted, &rows, formats).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), expected, "{function:?} {formats:?}");
    };
    let output = OutputFormat::Lines { separator: b"=".to_vec(), terminator: 0, always_separate: true };
    let nul = Formats { output, reduce_input_separator: b"::".to_vec(), ..Formats::default() };
    check(None, &nul, "a=\0a=2\0b::c=3\0");
    check(Some("builtin:list"), &nul, "a=,2\0b::c=3\0");
    check(Some("builtin:unique"), &nul, "a=\0b::c=\0");
    // What a program prints is copied, unless its lines are parted.
    check(Some("cat"), &nul, "a::\na::2\nb::c::3\n");
    let split = FieldSplit { separator: b"::".to_vec(), key_fields: 1 };
    check(Some("cat"), &Formats { reduce_output: Some(split), ..nul }, "a=\0a=2\0b=c::3\0");
    let raw = Formats { output: OutputFormat::Raw, ..Formats::default() };
    check(None, &raw, "aa2b::c3");
    check(Some("builtin:list"), &raw, "a,2b::c3");
}

#[test]
fn functions_write_their_lines() {
    let rows = [("", ""), ("a", "2"), ("a", "10"), ("b", "-1.5"), ("c\r", "7")];
    check(None, &rows, "\na\t2\na\t10\nb\t-1.5\nc\r\t7\n");
    check(Some("builtin:sum"), &rows[1..], "a\t12\nb\t-1.5\nc\r\t7\n");
    check(Some("builtin:min"), &rows[1..], "a\t2\nb\t-1.5\nc\r\t7\n");
    check(Some("builtin:max"), &rows[1..], "a\t10\nb\t-1.5\nc\r\t7\n");
    check(Some("builtin:count"), &rows, "\t1\na\t2\nb\t1\nc\r\t1\n");
    check(Some("builtin:unique"), &rows, "\na\nb\nc\r\n");
    check(Some("builtin:list"), &rows, "\na\t2,10\nb\t-1.5\nc\r\t7\n");
    check(Some("cat"), &rows, "\t\na\t2\na\t10\nb\t-1.5\nc\r\t7\n");
    for function in [None, Some("builtin:sum"), Some("builtin:list"), Some("cat")] {
        check(function, &[], "");
    }
}

#[test]
fn lists_keep_empty_values() {
    check(
        Some("builtin:list"),
        &[("a", ""), ("a", ""), ("a", "x"), ("b", ""), ("c", "y"), ("c", "")],
        "a\t,,x\nb\nc\ty,\n",
    );
}

#[test]
fn partial_counts_are_summed() {
    let (output, _) = reduce(Some("builtin:count"), Partial, &pairs(&[("a", "40"), ("a", "2")])).unwrap();
    assert_eq!(output, b"a\t42\n");
    assert!(combines_by_itself(&Function::parse("builtin:count").unwrap()));
    assert!(!combines_by_itself(&Function::parse("cat").unwrap()));
    assert!(!combines_by_itself(&Function::parse("builtin:words").unwrap()));
}

#[test]
fn bad_functions_and_values_are_named() {
    let failure =
        |function, rows: &[(&str, &str)]| reduce(Some(function), Emitted, &pairs(rows)).unwrap_err();
    let unknown = failure("builtin:summ", &[]);
    assert_eq!(unknown.blame, Blame::UserData);
    assert!(unknown.message.contains("builtin:sum, builtin:min, builtin:max"), "{}", unknown.message);
    assert!(failure("builtin:sum:x", &[]).message.contains("takes no argument"));
    let value = failure("builtin:sum", &[("a", "1"), ("key", "one")]);
    assert_eq!(value.blame, Blame::UserData);
    assert!(value.message.contains("\"one\" of the key \"key\" is not a number"), "{}", value.message);
    assert!(failure("no-such-program", &[]).message.contains("not found"));
}

#[test]
fn programs_are_fed_to_the_end() {
    let many: Pairs =
        (0..100_000).map(|number| (format!("{number:06}").into_bytes(), b"v".to_vec())).collect();
    let (output, counts) = reduce(Some("head -n 1"), Emitted, &many).unwrap();
    assert_eq!(output, b"000000\tv\n");
    assert_eq!(counts.groups, 100_000);
    assert!(counts.unread_bytes > 300_000, "{counts:?}");
    let (output, counts) = reduce(Some("cat"), Emitted, &many).unwrap();
    assert_eq!((output.len(), counts.unread_bytes), (900_000, 0));
    let failure = reduce(Some("sh -c 'cat >/dev/null; echo why >&2; exit 7'"), Emitted, &many).unwrap_err();
    assert_eq!((failure.exit_code, failure.stderr_tail), (Some(7), vec!["why".to_string()]));
}

#[test]
fn a_program_gets_values_larger_than_its_buffer() {
    let rows: Pairs = vec![(b"k".to_vec(), vec![b'x'; 3_000_000]), (b"l".to_vec(), Vec::new())];
    let (output, _) = reduce(Some("wc -c"), Emitted, &rows).unwrap();
    assert_eq!(String::from_utf8(output).unwrap().trim(), (3_000_000 + 3 + 3).to_string());
}

fn any_number() -> impl Strategy<Value = String> {
    prop_oneof![
        "[-+]?[0-9]{1,3}",
        "[-+]?[0-9]{0,2}\\.[0-9]{1,3}",
        "[-+]?[0-9]{15,40}(\\.[0-9]{0,30})?",
        "[-+]?[0-9]{1,3}[eE][-+]?[0-9]{1,2}",
    ]
}

/// The plain text of a number without zeros at the end of its fraction.
fn plain(number: &BigDecimal) -> String {
    number.normalized().to_plain_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn folds_of_numbers_equal_the_model(texts in proptest::collection::vec(any_number(), 1..20)) {
        let rows: Pairs = texts.iter().map(|text| (b"k".to_vec(), text.as_bytes().to_vec())).collect();
        let numbers: Vec<BigDecimal> = texts.iter().map(|text| BigDecimal::from_str(text).unwrap()).collect();
        let first_equal = |best: &BigDecimal| &texts[numbers.iter().position(|number| number == best).unwrap()];
        let fold = |name: &str| String::from_utf8(reduce(Some(name), Emitted, &rows).unwrap().0).unwrap();
        let sum: BigDecimal = numbers.iter().sum();
        prop_assert_eq!(fold("builtin:sum"), format!("k\t{}\n", plain(&sum)));
        prop_assert_eq!(fold("builtin:min"), format!("k\t{}\n", first_equal(numbers.iter().min().unwrap())));
        prop_assert_eq!(fold("builtin:max"), format!("k\t{}\n", first_equal(numbers.iter().max().unwrap())));
    }
}
