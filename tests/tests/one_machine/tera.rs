//! The TeraSort suite: rows as gensort makes them, figures as valsort gives them, sorted by the road.

use blackbox::{Finished, Running, Sandbox, gzip, sha256, tera_rows};
use std::fs;
use std::path::Path;
use tera::{ROW_BYTES, RowLayout};

const FAILED: i32 = 1;
const REFUSED: i32 = 2;

/// SHA-256 of the first 1,000,000 modern rows of gensort 1.5, and of the same sorted.
const MILLION: &str = "515ea89a091c2a746500f46edd54dc5626878b4e9308d00ecf91656e8e3c3028";
const MILLION_SORTED: &str = "e3a83e3f15d2cb3fd414046d6c10d3f525921150c4f824dac25556e466b099d3";
const MILLION_CHECKSUM: &str = "7a0e0d4868cd4";
/// valsort's checksums of the first 1000 rows: layout, skewed, checksum.
const THOUSAND: [(&str, bool, &str); 5] = [
    ("modern", false, "1ea6370b955"),
    ("modern", true, "1e96301166b"),
    ("ascii", false, "1f5dfb3631a"),
    ("ascii", true, "1eef17d1cac"),
    ("legacy", false, "1f9ffe645ec"),
];

/// `sailfish COMMAND... ARGS...` with the sandbox's state and disk and little memory.
#[track_caller]
fn run(sandbox: &Sandbox, args: &[&str]) -> Finished {
    let mut command = sandbox.sailfish();
    command.args(args).arg("--state").arg(sandbox.state()).arg("--disk").arg(sandbox.disk());
    if !args.contains(&"--memory") {
        command.args(["--memory", "64M"]);
    }
    Running::start(&mut command).wait()
}

#[track_caller]
fn generate(sandbox: &Sandbox, output: &str, args: &[&str]) {
    let fixed = ["tera", "gen", "--output", output, "--no-sync"];
    run(sandbox, &[&fixed[..], args].concat()).expect_success();
}

#[track_caller]
fn sort(sandbox: &Sandbox, input: &str, output: &str, args: &[&str]) {
    let fixed = ["tera", "sort", "--input", input, "--output", output, "--no-sync"];
    run(sandbox, &[&fixed[..], args].concat()).expect_success();
}

fn layout_named(name: &str) -> RowLayout {
    name.parse().expect("a layout")
}

/// Rows in order of key; equal keys as they stood.
fn sorted(rows: &[u8]) -> Vec<u8> {
    let (rows, _) = rows.as_chunks::<ROW_BYTES>();
    let mut rows = rows.to_vec();
    rows.sort_by(|left, right| left[..10].cmp(&right[..10]));
    rows.concat()
}

#[test]
fn rows_are_those_of_gensort() {
    let sandbox = Sandbox::new();
    for (layout, skewed, checksum) in THOUSAND {
        let output = format!("{layout}-{skewed}");
        let skew: &[&str] = if skewed { &["--skewed"] } else { &[] };
        generate(&sandbox, &output, &[&["--layout", layout, "--rows", "1k"], skew].concat());
        let found = sandbox.concatenated(&sandbox.path(&output));
        assert!(found == tera_rows(layout_named(layout), skewed, 0, 1000), "{output}");
        let sum = run(&sandbox, &["tera", "sum", &output, "--layout", layout]).expect_success();
        let expected = format!("Records: 1000\nChecksum: {checksum}\n");
        assert!(sum.text().starts_with(&expected), "{}", sum.story());
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn parallel_rows_start_anywhere() {
    let sandbox = Sandbox::new();
    let rows = 30_000;
    for (index, start) in
        [u128::from(u64::MAX) - 12_345, (1 << 127) - 7_777, u128::MAX - 9_999].iter().enumerate()
    {
        let output = format!("out-{index}");
        let args = ["--layout", "ascii", "--skewed", "--rows", "30k", "--start", &start.to_string()];
        generate(&sandbox, &output, &args);
        let output = sandbox.path(&output);
        assert!(sandbox.part_names(&output).len() > 1, "one split shows nothing");
        let found = sandbox.concatenated(&output);
        assert!(found == tera_rows(RowLayout::Ascii, true, *start, rows), "rows from {start}");
    }
    generate(&sandbox, "none", &["--layout", "modern", "--rows", "0"]);
    assert!(sandbox.concatenated(&sandbox.path("none")).is_empty());
}

#[test]
fn a_million_rows_sort_to_the_known_bytes() {
    let sandbox = Sandbox::new();
    generate(&sandbox, "rows", &["--layout", "modern", "--rows", "1m"]);
    assert_eq!(sha256(&sandbox.concatenated(&sandbox.path("rows"))), MILLION);
    for (output, memory) in [("small", "64M"), ("large", "1G")] {
        sort(&sandbox, "rows", output, &["--memory", memory]);
        assert_eq!(sha256(&sandbox.concatenated(&sandbox.path(output))), MILLION_SORTED, "{memory}");
        sandbox.sailfish_with(&["verify", output]).expect_success();
    }
    let valid = run(&sandbox, &["tera", "validate", "small"]).expect_success();
    let expected = format!(
        "Records: 1000000\nChecksum: {MILLION_CHECKSUM}\nDuplicate keys: 0\nSUCCESS - all records are in order\n"
    );
    assert_eq!(valid.text(), expected);
    let not =
        run(&sandbox, &["tera", "validate", "rows", "--json"]).expect_failure(FAILED, &["not in order"]);
    let figures = not.json();
    assert_eq!((&figures["records"], &figures["checksum"]), (&1_000_000.into(), &MILLION_CHECKSUM.into()));
    assert_eq!((&figures["ordered"], &figures["first_unordered"]), (&false.into(), &2.into()));
    sandbox.assert_no_leftovers();
}

#[test]
fn every_layout_is_sorted() {
    let sandbox = Sandbox::new();
    for (layout, skewed) in [("ascii", false), ("ascii", true), ("modern", true), ("legacy", false)] {
        let rows = tera_rows(layout_named(layout), skewed, 1 << 70, 100_000);
        let (first, second) = rows.split_at(4_000_000);
        let input = format!("in-{layout}-{skewed}");
        sandbox.write(&format!("{input}/a"), first);
        sandbox.write(&format!("{input}/b.gz"), gzip(second));
        let output = format!("out-{layout}-{skewed}");
        sort(&sandbox, &input, &output, &[]);
        assert!(sandbox.concatenated(&sandbox.path(&output)) == sorted(&rows), "{output}");
        let valid = run(&sandbox, &["tera", "validate", &output, "--json"]).expect_success().json();
        let sum = run(&sandbox, &["tera", "sum", &input, "--json"]).expect_success().json();
        assert_eq!((&valid["records"], &valid["ordered"]), (&100_000.into(), &true.into()));
        assert_eq!(valid["checksum"], sum["checksum"]);
        assert_eq!(sum["files"][1]["records"], 60_000);
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn disorder_names_file_and_record() {
    let sandbox = Sandbox::new();
    let mut rows = sorted(&tera_rows(RowLayout::Modern, false, 0, 40_000));
    sandbox.write("in/a", &rows[..2_000_000]);
    sandbox.write("in/b", &rows[2_000_000..]);
    run(&sandbox, &["tera", "validate", "in"]).expect_success();
    // The arguments give the order.
    run(&sandbox, &["tera", "validate", "in/b", "in/a"])
        .expect_failure(FAILED, &["record 0 of", "in/a is smaller than the last record of", "in/b"]);
    let row = 35_000;
    rows[row * ROW_BYTES] = 0;
    sandbox.write("in/b", &rows[2_000_000..]);
    let texts = [
        "First unordered record is record 35000",
        "record 15000 of",
        "in/b is smaller than the record before it",
        "ERROR - there are 1 unordered records",
        "in/a\n  Records: 20000\n",
    ];
    run(&sandbox, &["tera", "validate", "in", "--files"]).expect_failure(FAILED, &texts);
    run(&sandbox, &["tera", "sum", "in"]).expect_success();
    sandbox.assert_no_leftovers();
}

#[test]
fn damaged_rows_are_named() {
    let sandbox = Sandbox::new();
    let rows = tera_rows(RowLayout::Ascii, false, 0, 20);
    let unix: Vec<u8> = rows.iter().copied().filter(|byte| *byte != b'\r').collect();
    sandbox.write("rows", &rows);
    sandbox.write("cut", &rows[..1990]);
    sandbox.write("cut.gz", gzip(&rows[..1990]));
    sandbox.write("unix", unix);
    sandbox.write("empty/part", "");
    let refuse = |args: &[&str], texts: &[&str]| {
        for verb in [&["validate"][..], &["sum"], &["sort", "--output", "out", "--input"]] {
            run(&sandbox, &[&["tera"], verb, args].concat()).expect_failure(REFUSED, texts);
        }
    };
    refuse(&["cut"], &["cut ends with a partial record", "1990 bytes", "90 are left after 19 rows"]);
    refuse(&["cut.gz"], &["cut.gz", "partial"]);
    refuse(&["unix"], &["the CR is lost"]);
    refuse(&["absent"], &["absent does not exist"]);
    refuse(&["rows", "--layout", "modern"], &["are not modern: they look ascii"]);
    refuse(&["rows", "--layout", "old"], &["modern, legacy or ascii"]);
    let empty = ["there must be at least one record to be validated"];
    run(&sandbox, &["tera", "validate", "empty"]).expect_failure(FAILED, &empty);
    let sum = run(&sandbox, &["tera", "sum", "empty"]).expect_success();
    assert!(sum.text().starts_with("Records: 0\nChecksum: 0\n"), "{}", sum.story());
    sandbox.assert_nothing_left();
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("rows", tera_rows(RowLayout::Modern, false, 0, 10));
    let refuse = |args: &[&str], text: &str| {
        let mut command = sandbox.sailfish();
        Running::start(command.arg("tera").args(args)).wait().expect_failure(REFUSED, &[text]);
    };
    let make = ["gen", "--output", "out", "--layout"];
    refuse(&[&make[..], &["legacy", "--skewed", "--rows", "1"]].concat(), "legacy has no skewed rows");
    refuse(&[&make[..], &["modern", "--rows", "1g"]].concat(), "as in 10m");
    refuse(&[&make[..], &["modern", "--rows", "1", "--memory", "1M"]].concat(), "below the minimum of 64M");
    sandbox.write("file", "no directory");
    refuse(&["gen", "--layout", "modern", "--rows", "1", "--output", "file/rows"], "is not a directory");
    refuse(&["sort", "--input", "rows", "--output", "out", "--rules", "--no-sync"], "cannot be used with");
    sandbox.write("rows.gz", gzip(b"x"));
    refuse(&["sort", "--input", "rows.gz", "--output", "out", "--rules"], "rows.gz is compressed");
    sandbox.assert_nothing_left();
}

#[test]
fn a_sort_by_the_rules_prints_its_figures() {
    let sandbox = Sandbox::new();
    generate(&sandbox, "rows", &["--layout", "modern", "--rows", "50k"]);
    let args = ["tera", "sort", "--rules", "--input", "rows", "--output", "out"];
    let finished = run(&sandbox, &args).expect_success();
    for text in ["records", "50,000", "TB/min", "MB/s", "the same as that of the input", "agrees"] {
        assert!(finished.text().contains(text), "no {text:?}:\n{}", finished.story());
    }
    let figures = run(&sandbox, &[&args[..], &["--overwrite", "--json"]].concat()).expect_success().json();
    assert_eq!(figures["checksum_in"], figures["checksum_out"]);
    assert_eq!((&figures["bytes"], &figures["ordered"]), (&5_000_000.into(), &true.into()));
    assert!(figures["seconds"].as_f64() > Some(0.0));
    assert!(sandbox.report(&sandbox.out())["synced"].as_bool() == Some(true));
    sandbox.assert_no_leftovers();
}

#[test]
fn the_benchmark_of_the_paper_leaves_nothing() {
    let sandbox = Sandbox::new();
    let args = ["bench", "shuffle", "--maps", "3", "--bytes-per-map", "4M"];
    let finished = run(&sandbox, &args).expect_success();
    let each = (4 << 20) / ROW_BYTES;
    for text in
        ["per reduce task", "retrievals", "would do", "fill", "phases", "MB/s", "3 map tasks", "agrees"]
    {
        assert!(finished.text().contains(text), "no {text:?}:\n{}", finished.story());
    }
    let report = run(&sandbox, &[&args[..], &["--json"]].concat()).expect_success().json();
    assert_eq!((&report["map"]["tasks"], &report["partitioning"]), (&3.into(), &"hash".into()));
    assert_eq!(report["proof"]["records"], 3 * each);
    assert_eq!(report["reducer"], "builtin:check-order");
    let refused = run(&sandbox, &["bench", "shuffle", "--bytes-per-map", "99"]);
    refused.expect_failure(REFUSED, &["a record has 100 bytes"]);
    let left: Vec<_> = fs::read_dir(sandbox.disk()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(!Path::new(&sandbox.out()).exists());
}
