//! Word count, the job that everybody knows, against coreutils; and the order of values.

use blackbox::{Questions, Random, Running, Sandbox, State, corpus, gzip};
use std::process::Command;
use std::sync::OnceLock;

/// Enough for several splits, spills at the least memory, and a sort by coreutils in seconds.
const TEXT_BYTES: usize = 24 << 20;
/// The reference: words, one to a line, in bytewise order and counted. `-a`: sources may hold any byte.
const REFERENCE: &str = "tr -s '[:space:]' '\\n' < text | grep -a . | sort | uniq -c";
/// The same words in the eyes of a program that is not ours: (word, 1) for each.
const PYTHON_MAPPER: &str = r#"
import sys
out = sys.stdout.buffer
for line in sys.stdin.buffer:
    out.write(b"".join([word + b"\t1\n" for word in line.split()]))
"#;
/// Adds the values of each key of sorted `key TAB value` lines.
const AWK_REDUCER: &str = "awk -F '\\t' '{ if (NR > 1 && $1 \"\" != key) { printf \"%s\\t%d\\n\", key, sum; sum = 0 } \
    key = $1 \"\"; sum += $2 } END { if (NR) printf \"%s\\t%d\\n\", key, sum }'";

struct Text {
    bytes: Vec<u8>,
    /// `word TAB count` lines.
    counted: Vec<u8>,
}

/// The text and what coreutils say about it, made once for all tests.
fn text() -> &'static Text {
    static TEXT: OnceLock<Text> = OnceLock::new();
    TEXT.get_or_init(|| {
        let sandbox = Sandbox::new();
        let bytes = corpus(TEXT_BYTES);
        sandbox.write("text", &bytes);
        let counted = reference(&sandbox);
        Text { bytes, counted }
    })
}

/// Runs the reference over the file `text` of a sandbox and turns `   COUNT WORD` into `WORD TAB COUNT`.
fn reference(sandbox: &Sandbox) -> Vec<u8> {
    let mut command = Command::new("sh");
    sandbox.clean(&mut command);
    command.env("LC_ALL", "C").args(["-c", REFERENCE]);
    let counted = Running::start(&mut command).wait().expect_success().stdout;
    let mut lines = Vec::with_capacity(counted.len());
    for line in blackbox::part_lines(&counted) {
        let line = line.trim_ascii_start();
        let blank = line.iter().position(|byte| *byte == b' ').expect("uniq -c writes COUNT WORD");
        lines.extend_from_slice(&line[blank + 1..]);
        lines.push(b'\t');
        lines.extend_from_slice(&line[..blank]);
        lines.push(b'\n');
    }
    lines
}

/// Lays the text out as a directory of files of very different sizes.
fn lay_out(sandbox: &Sandbox, text: &[u8]) {
    let mut rest = text;
    for (name, share) in [("books/a", 2), ("books/b/c", 3), ("books/b/d.gz", 4), ("books/e", 100)] {
        let middle = rest.len() / share;
        let end =
            rest[middle..].iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| middle + at + 1);
        let (piece, remaining) = if name == "books/e" { (rest, &rest[..0]) } else { rest.split_at(end) };
        match name.ends_with(".gz") {
            true => sandbox.write(name, gzip(piece)),
            false => sandbox.write(name, piece),
        };
        rest = remaining;
    }
}

#[track_caller]
fn check_counts(options: &[&str]) {
    let sandbox = Sandbox::new();
    lay_out(&sandbox, &text().bytes);
    let mut args = vec!["--input", "books", "--total-order", "--no-sync"];
    args.extend_from_slice(options);
    let finished = sandbox.run_job(&args).expect_success();
    let found = sandbox.concatenated(&sandbox.out());
    assert!(found == text().counted, "not what coreutils count: {}", first_difference(&found));
    let report = sandbox.report(&sandbox.out());
    assert_eq!(report["proof"]["agrees"], true, "{}", finished.story());
    sandbox.assert_no_leftovers();
}

fn first_difference(found: &[u8]) -> String {
    let (found, expected) = (blackbox::part_lines(found), blackbox::part_lines(&text().counted));
    let lengths = format!("{} lines, expected {}", found.len(), expected.len());
    let differs = found.iter().zip(&expected).enumerate().find(|(_, (found, expected))| found != expected);
    let shown = |line: &[u8]| line.escape_ascii().to_string();
    differs.map_or(lengths.clone(), |(number, (found, expected))| {
        format!("{lengths}; line {} is {:?}, expected {:?}", number + 1, shown(found), shown(expected))
    })
}

#[test]
fn builtins_count_as_coreutils_do() {
    let words = ["--mapper", "builtin:words", "--reducer"];
    check_counts(&[&words[..], &["builtin:sum"]].concat());
    check_counts(&[&words[..], &["builtin:sum", "--memory", "64M", "--slots", "8"]].concat());
    check_counts(&[&words[..], &["builtin:count", "--slots", "1", "--codec", "zstd"]].concat());
    check_counts(&[&words[..], &["builtin:count", "--memory", "4G", "--codec", "none"]].concat());
}

#[test]
fn programs_count_as_coreutils_do() {
    let sandbox = Sandbox::new();
    let mapper = sandbox.write("map.py", PYTHON_MAPPER);
    let mapper = format!("python3 {}", mapper.display());
    // No combiner: every word is shuffled, through spills at the least memory.
    check_counts(&["--mapper", &mapper, "--reducer", AWK_REDUCER, "--memory", "64M", "--slots", "3"]);
    check_counts(&["--mapper", &mapper, "--combiner", AWK_REDUCER, "--reducer", "builtin:sum"]);
}

/// Lines of few keys, each with the place it came from: `key TAB file:line`. Returns them in input order.
fn write_tagged(sandbox: &Sandbox, padding_bytes_max: u64) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut all = Vec::new();
    for (file, lines) in [("in/1", 60_000), ("in/2.gz", 40_000), ("in/3", 3), ("in/4", 120_000)] {
        let mut text = Vec::new();
        for line in 0..lines {
            // Keys that are prefixes of each other, one that is in half of the lines, and the empty one.
            let key = match random.below(8) {
                0..4 => "a",
                4 => "",
                5 => "ab",
                6 => "aba",
                _ => random.one_of(&["b", "ba", "c", "\u{e9}t\u{e9}"]),
            };
            text.extend(
                format!("{key}\t{file}:{line} {}\n", "x".repeat(random.below(padding_bytes_max) as usize))
                    .into_bytes(),
            );
        }
        sandbox.write(file, if file.ends_with("gz") { gzip(&text) } else { text.clone() });
        all.extend(text);
    }
    all
}

fn stable_sort(lines: &[u8]) -> Vec<u8> {
    let sandbox = Sandbox::new();
    sandbox.write("lines", lines);
    let mut command = Command::new("sort");
    sandbox.clean(&mut command);
    command.env("LC_ALL", "C").args(["-s", "-t", "\t", "-k", "1,1", "lines"]);
    Running::start(&mut command).wait().expect_success().stdout
}

#[track_caller]
fn check_order(sandbox: &Sandbox, expected: &[u8], options: &[&str]) {
    let mut args = vec!["--input", "in", "--total-order", "--no-sync", "--overwrite"];
    args.extend_from_slice(options);
    if !options.contains(&"--reducer") {
        args.extend_from_slice(&["--reducer", "cat"]);
    }
    sandbox.run_job(&args).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()) == expected, "values out of input order with {options:?}");
    sandbox.assert_no_leftovers();
}

#[test]
fn values_arrive_in_input_order() {
    let sandbox = Sandbox::new();
    let expected = stable_sort(&write_tagged(&sandbox, 60));
    check_order(&sandbox, &expected, &[]);
    check_order(&sandbox, &expected, &["--memory", "64M", "--slots", "8"]);
    check_order(&sandbox, &expected, &["--memory", "64M", "--slots", "1", "--mapper", "cat"]);
    check_order(&sandbox, &expected, &["--memory", "2G", "--slots", "4", "--codec", "none"]);
}

#[test]
fn failed_attempts_change_nothing() {
    let sandbox = Sandbox::new();
    let expected = stable_sort(&write_tagged(&sandbox, 60));
    // Each first attempt gives some of its lines, which are appended, and then fails.
    let mapper = "sh -c 'if [ \"$SAILFISH_ATTEMPT\" = 0 ]; then head -n 3000; exit 3; fi; exec cat'";
    check_order(&sandbox, &expected, &["--memory", "64M", "--slots", "4", "--mapper", mapper]);
    // And reducers that fail after half of their output.
    let reducer = "sh -c 'if [ \"$SAILFISH_ATTEMPT\" = 1 ]; then exec cat; fi; head -n 100; exit 4'";
    check_order(&sandbox, &expected, &["--mapper", mapper, "--reducer", reducer]);
    let failed = sandbox.attempts().of_last_job().is(State::Failed).count();
    assert!(failed >= 2, "{failed} attempts failed");
}

#[test]
fn each_part_is_sorted_and_holds_whole_groups() {
    let sandbox = Sandbox::new();
    let lines = write_tagged(&sandbox, 700);
    // Without a total order the parts together are not sorted, but a key is in one part only.
    sandbox.run_job(&["--input", "in", "--no-sync", "--memory", "1G", "--slots", "3"]).expect_success();
    let out = sandbox.out();
    let mut parts = Vec::new();
    let names = sandbox.part_names(&out);
    let report = sandbox.report(&out);
    assert!(names.len() > 1 && report["shuffle"]["ifiles"].as_u64() > Some(1), "{}", report["plan"]);
    for name in names {
        let part = std::fs::read(out.join(name)).expect("a part can be read");
        assert!(part == stable_sort(&part), "a part is not sorted");
        parts.extend(part);
    }
    let expected: Vec<u8> = without_empty_values(&lines);
    assert!(stable_sort(&parts) == stable_sort(&expected), "lines are missing or changed their order");
}

/// A pair without a value is written without its TAB.
fn without_empty_values(lines: &[u8]) -> Vec<u8> {
    let lines = blackbox::part_lines(lines).into_iter();
    lines.flat_map(|line| [line.strip_suffix(b"\t").unwrap_or(line), b"\n"].concat()).collect()
}
