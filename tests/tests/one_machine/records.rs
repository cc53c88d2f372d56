//! Records, files and options of every shape that is allowed.

use blackbox::{Random, Sandbox, gzip, part_lines, zstd};
use std::fs;

/// Returns the output of a total-order job without functions: the lines as they are, in key order, those of a key in input order.
fn sorted_by_key(text: &[u8]) -> Vec<u8> {
    let mut lines = part_lines(text);
    lines.sort_by_key(|line| line.split(|byte| *byte == b'\t').next());
    lines.iter().flat_map(|line| [*line, b"\n".as_slice()]).flatten().copied().collect()
}

/// Runs a total-order job over the input `in` and compares with the model.
#[track_caller]
fn check_sorted(sandbox: &Sandbox, text: &[u8], options: &[&str]) {
    let args = ["--input", "in", "--total-order", "--no-sync", "--overwrite"];
    sandbox.run_job(&[&args[..], options].concat()).expect_success();
    let found = sandbox.concatenated(&sandbox.out());
    let expected = sorted_by_key(text);
    let places = (found.len(), expected.len(), found.iter().zip(&expected).position(|(a, b)| a != b));
    assert!(
        found == expected,
        "not what the model says with {options:?}: (bytes, expected, first) {places:?}"
    );
    sandbox.assert_no_leftovers();
}

#[test]
fn zero_length_and_duplicate_records_are_kept() {
    let rows: [&[u8]; 6] = [
        b"\n",
        b"\n\n\n",
        b"\t\n\t\t\n\n\tvalue\n",
        b"a\t\na\na\tb\na\t\n",
        b"same\tsame\nsame\tsame\nsame\tsame\n",
        b"b\t\ta\nb\t\t\nab\na b\na\tb\n",
    ];
    for text in rows {
        let sandbox = Sandbox::new();
        sandbox.write("in", text);
        check_sorted(&sandbox, text, &[]);
        check_sorted(&sandbox, text, &["--mapper", "cat", "--memory", "64M"]);
    }
    let sandbox = Sandbox::new();
    sandbox.write("in", "dup\t1\n".repeat(400_000));
    check_sorted(&sandbox, "dup\t1\n".repeat(400_000).as_bytes(), &["--memory", "64M", "--slots", "4"]);
}

#[test]
fn arbitrary_bytes_are_sorted() {
    let mut random = Random::new(3);
    let mut text = Vec::new();
    while text.len() < 3 << 20 {
        let length = random.below(80) as usize;
        text.extend(random.bytes(length));
        text.push(*random.one_of(b"\n\n\t\0"));
    }
    let sandbox = Sandbox::new();
    sandbox.write("in", &text);
    check_sorted(&sandbox, &text, &["--memory", "64M"]);
    check_sorted(&sandbox, &text, &["--mapper", "cat", "--codec", "none"]);
}

#[test]
fn carriage_returns_belong_to_the_line() {
    let sandbox = Sandbox::new();
    let text = b"b\t2\r\na\r\n\r\na\t1\r\n";
    sandbox.write("in", text);
    check_sorted(&sandbox, text, &[]);
    assert_eq!(sandbox.concatenated(&sandbox.out()), b"\r\na\t1\r\na\r\nb\t2\r\n");
    let words = ["--input", "in", "--overwrite", "--mapper", "builtin:words", "--reducer", "builtin:count"];
    sandbox.run_job(&[&words[..], &["--total-order"]].concat()).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["1\t1", "2\t1", "a\t2", "b\t1"]);
}

#[test]
fn files_without_a_final_newline_are_not_joined() {
    let sandbox = Sandbox::new();
    sandbox.write("in/1", "b\t1\na");
    sandbox.write("in/2.gz", gzip(b"c\t2\nd\t3"));
    sandbox.write("in/3", "");
    sandbox.write("in/4", zstd(b"\n\ne"));
    sandbox.write("in/5", "f\t");
    for options in [&[][..], &["--mapper", "cat"]] {
        check_sorted(&sandbox, b"b\t1\na\nc\t2\nd\t3\n\n\ne\nf\t\n", options);
    }
    let reducer = ["--slots", "1", "--reducer", "sed -e 's/\\t$//'"];
    check_sorted(&sandbox, b"b\t1\na\nc\t2\nd\t3\n\n\ne\nf\n", &reducer);
    assert_eq!(sandbox.report(&sandbox.out())["input"]["records"], 8);
}

#[test]
fn empty_input_gives_a_whole_empty_output() {
    for make in [
        (|sandbox| fs::create_dir(sandbox.path("in")).unwrap()) as fn(&Sandbox),
        |sandbox| drop(sandbox.write("in", "")),
        |sandbox| drop(sandbox.write("in/empty.gz", gzip(b""))),
        |sandbox| {
            sandbox.write("in/_SUCCESS", "");
            sandbox.write("in/.hidden", "never data\n");
        },
    ] {
        let sandbox = Sandbox::new();
        make(&sandbox);
        for options in [
            &["--reducer", "builtin:sum"][..],
            &["--mapper", "cat", "--reducer", "cat"],
            &["--total-order"],
            &["--map-only"],
        ] {
            let args = [&["--input", "in", "--overwrite"], options].concat();
            sandbox.run_job(&args).expect_success();
            assert!(sandbox.concatenated(&sandbox.out()).is_empty(), "{options:?}");
            sandbox.sailfish_with(&["verify", "out"]).expect_success();
            sandbox.assert_no_leftovers();
        }
    }
}

#[test]
fn formats_are_told_by_content() {
    let sandbox = Sandbox::new();
    sandbox.write("in/1.txt", gzip(b"a\t1\n"));
    sandbox.write("in/2.gz", "b\t2\n");
    sandbox.write("in/3.gz", zstd(b"c\t3\n"));
    // Members and frames one after another, as `cat a.gz b.gz` makes them.
    sandbox.write("in/4", [gzip(b"d\t4\nd"), gzip(b"d\t5\n"), gzip(b"")].concat());
    sandbox.write("in/5", [zstd(b"e\t6\n"), zstd(b"e\t7\n")].concat());
    check_sorted(&sandbox, b"a\t1\nb\t2\nc\t3\nd\t4\ndd\t5\ne\t6\ne\t7\n", &[]);
}

#[test]
fn hidden_names_are_data_only_when_written_out() {
    let sandbox = Sandbox::new();
    for (name, text) in [
        ("in/seen", "seen\n"),
        ("in/_SUCCESS", "no\n"),
        ("in/.crc", "no\n"),
        ("in/_logs/log", "no\n"),
        ("in/sub/also", "also\n"),
        ("_named", "named\n"),
    ] {
        sandbox.write(name, text);
    }
    check_sorted(&sandbox, b"seen\nalso\n", &[]);
    let args = ["--overwrite", "--total-order", "--input", "in/*", "_named"];
    sandbox.run_job(&args).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["also", "named", "seen"]);
    // An output is an input: its report and its mark are no data.
    sandbox.run_job(&["--input", "out", "--output", "again", "--total-order"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("again")), ["also", "named", "seen"]);
}

#[test]
fn records_larger_than_frame_and_chunk_pass() {
    // At 64M a frame has 64 KiB and a chunk 16 MiB; a record may have 16 MiB.
    let largest = 16 << 20;
    let mut random = Random::new(11);
    let mut text = Vec::new();
    for length in [100_000, 65_536, 65_500, 3 << 20, 1, largest - 2, 40, 200_000, largest - 2, 5 << 20] {
        text.push(*random.one_of(b"klm"));
        text.push(b'\t');
        let letter = b'a' + random.below(26) as u8;
        text.extend(std::iter::repeat_n(letter, length));
        text.push(b'\n');
        text.extend_from_slice(b"k\tsmall\n");
    }
    let sandbox = Sandbox::new();
    sandbox.write("in", &text);
    check_sorted(&sandbox, &text, &["--memory", "64M", "--slots", "2", "--codec", "none"]);
    let report = sandbox.report(&sandbox.out());
    assert!(report["shuffle"]["oversize_chunks"].as_u64() >= Some(2), "{}", report["shuffle"]);
    check_sorted(&sandbox, &text, &["--memory", "64M", "--slots", "1", "--mapper", "cat"]);
    // As a key, which the indexes and the plan have to carry too.
    let keys: Vec<u8> = text.iter().map(|byte| if *byte == b'\t' { b'_' } else { *byte }).collect();
    sandbox.write("in", &keys);
    check_sorted(&sandbox, &keys, &["--memory", "64M", "--slots", "2"]);
}

#[test]
fn keys_and_values_of_100_mb_go_through() {
    let large = 100_000_000;
    let mut text = Vec::with_capacity(4 * large);
    text.extend_from_slice(b"small\tbefore\n");
    for (key_bytes, value_bytes) in [(large, 3), (3, large), (large, 5)] {
        text.extend(std::iter::repeat_n(b'k', key_bytes));
        text.push(b'\t');
        text.extend(std::iter::repeat_n(b'v', value_bytes));
        text.push(b'\n');
    }
    text.extend_from_slice(b"small\tafter\n");
    let sandbox = Sandbox::new();
    sandbox.write("in", &text);
    check_sorted(&sandbox, &text, &["--memory", "1G", "--slots", "2"]);
}

#[test]
fn job_files_count_paths_from_their_own_directory() {
    let sandbox = Sandbox::new();
    sandbox.write("project/data/a.txt", "b a\nb\n");
    sandbox.script("project/split.sh", "#!/bin/sh\nexec tr \"$FROM\" '\\n'\n");
    let toml = "input = \"data/*.txt\"\nmapper = \"./split.sh\"\nreducer = \"builtin:count\"\n\
        output = \"counts\"\nstate = \"state\"\nmemory = \"64M\"\nslots = 2\ntotal_order = true\n\
        no_sync = true\nname = \"from a file\"\nenv = { FROM = \" \" }\n";
    sandbox.write("project/job.toml", toml);
    let mut command = sandbox.sailfish();
    let finished = blackbox::Running::start(command.args(["run", "--job", "project/job.toml"])).wait();
    finished.expect_success();
    let output = sandbox.path("project/counts");
    assert_eq!(sandbox.output_lines(&output), ["a\t1", "b\t2"]);
    let report = sandbox.report(&output);
    assert_eq!((&report["name"], &report["synced"]), (&"from a file".into(), &false.into()));
    // The command line wins.
    let args = ["--job", "project/job.toml", "--reducer", "builtin:unique", "--slots", "1"];
    sandbox.run_job(&args).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["a", "b"]);
    assert_eq!(sandbox.report(&sandbox.out())["slots"], 1);
}

#[test]
fn map_only_job_writes_the_mapper_output() {
    let sandbox = Sandbox::new();
    let mut random = Random::new(5);
    let mut text = Vec::new();
    while text.len() < 5 << 20 {
        let length = random.below(100) as usize;
        text.extend(random.bytes(length));
        text.push(b'\n');
    }
    sandbox.write("in", &text);
    let job = |options: &[&str]| {
        let args = ["--input", "in", "--map-only", "--overwrite", "--no-sync"];
        sandbox.run_job(&[&args[..], options].concat()).expect_success();
        sandbox.sailfish_with(&["verify", "out"]).expect_success();
        sandbox.assert_no_leftovers();
        sandbox.concatenated(&sandbox.out())
    };
    // A program's bytes go through as they are, split by split in input order.
    assert!(job(&["--mapper", "cat", "--slots", "3"]) == text, "cat changed something");
    assert!(sandbox.part_names(&sandbox.out()).len() > 1, "one split only");
    let grepped = job(&["--mapper", "builtin:grep:^[a-z]", "--slots", "2"]);
    let matching =
        part_lines(&text).into_iter().filter(|line| line.first().is_some_and(u8::is_ascii_lowercase));
    let expected: Vec<u8> = matching.flat_map(|line| [line, b"\n"].concat()).collect();
    // A line with its TAB last has an empty value and loses it.
    let without_tab = |bytes: &[u8]| -> Vec<u8> {
        let lines = part_lines(bytes).into_iter();
        lines.flat_map(|line| [line.strip_suffix(b"\t").unwrap_or(line), b"\n"].concat()).collect()
    };
    assert!(without_tab(&grepped) == without_tab(&expected), "grep differs");
    // Attempts that failed leave nothing in a part.
    let flaky = "sh -c 'if [ \"$SAILFISH_ATTEMPT\" -lt 2 ]; then head -n 9; exit 1; fi; exec cat'";
    assert!(job(&["--mapper", flaky]) == text, "a failed attempt left something");
}

#[test]
fn files_and_environment_reach_the_functions() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    sandbox.write("tables/lookup.txt", "from the file\n");
    sandbox.script("tools/map.sh", "#!/bin/sh\nread key\necho \"$key\t$GREETING $(cat lookup.txt)\"\n");
    let mut command = sandbox.job(&["--input", "in", "--mapper", "./map.sh", "--file", "tools/map.sh"]);
    command.args(["--file", "tables/lookup.txt", "--env", "GREETING=hello"]).env("SECRET", "do not pass");
    blackbox::Running::start(&mut command).wait().expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["a\thello from the file"]);
    let mut command =
        sandbox.job(&["--input", "in", "--mapper", "sh -c 'cat > /dev/null; env'", "--overwrite"]);
    command.args(["--total-order"]).env("SECRET", "do not pass").env("LC_TIME", "C").env("LANG", "C");
    blackbox::Running::start(&mut command).wait().expect_success();
    let lines = sandbox.output_lines(&sandbox.out());
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    assert!(!has("SECRET="), "{lines:?}");
    for name in ["PATH=", "HOME=", "LANG=C", "LC_TIME=C", "SAILFISH_JOB=", "SAILFISH_TASK=0"] {
        assert!(has(name), "{name} is missing in {lines:?}");
    }
}

/// Lines that spill at the least memory and do not shrink much.
fn spilling_text() -> Vec<u8> {
    let mut random = Random::new(13);
    let mut text = Vec::new();
    while text.len() < 70 << 20 {
        let key = random.next_bits();
        let value = random.next_bits();
        text.extend(format!("{key:016x}\t{value:x}{:x}{key:x}\n", value ^ key).into_bytes());
    }
    text
}

#[test]
fn codecs_and_disks_change_nothing_but_the_files() {
    let sandbox = Sandbox::new();
    let text = spilling_text();
    sandbox.write("in", &text);
    ["disk-b", "disk-c"].iter().for_each(|disk| fs::create_dir(sandbox.path(disk)).unwrap());
    check_sorted(&sandbox, &text, &["--memory", "64M", "--slots", "4", "--codec", "zstd"]);
    let report = sandbox.report(&sandbox.out());
    let figure = |name: &str| report["shuffle"][name].as_f64().expect("a figure");
    assert!(figure("run_stored_bytes") > 10e6 && figure("run_stored_bytes") < figure("bytes"), "{report}");
    assert!(figure("fill_percent_min") >= 99.0, "{}", report["shuffle"]);
    assert!(figure("chunks") <= (figure("chunks_optimum") * 1.02).ceil(), "{}", report["shuffle"]);
    let disks = ["--disk", "disk", "--disk", "disk-b", "--disk", "disk-c"];
    let options = ["--memory", "64M", "--slots", "2", "--codec", "none", "--keep-ifiles"];
    let args =
        [&["--input", "in", "--total-order", "--no-sync", "--overwrite"], &options[..], &disks].concat();
    sandbox.run_job(&args).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()) == sorted_by_key(&text), "several disks change the output");
    // Each disk took its share, and what was kept is whole.
    for disk in ["disk", "disk-b", "disk-c"] {
        let dirs: Vec<_> =
            fs::read_dir(sandbox.path(disk)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(dirs.len(), 1, "{disk} holds {dirs:?}");
        let kept: Vec<String> = fs::read_dir(&dirs[0])
            .unwrap()
            .map(|entry| entry.unwrap().path().display().to_string())
            .filter(|path| path.ends_with(".ifile"))
            .collect();
        assert!(!kept.is_empty(), "nothing was written to {disk}");
        let verify: Vec<&str> =
            ["ifile", "verify"].into_iter().chain(kept.iter().map(String::as_str)).collect();
        sandbox.sailfish_with(&verify).expect_success();
    }
}

#[test]
fn overwriting_exchanges_the_output_as_one() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "new\n");
    sandbox.write("older", "old\n");
    sandbox.run_job(&["--input", "older", "--partitions", "3"]).expect_success();
    sandbox.run_job(&["--input", "in", "--overwrite"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["new"]);
    assert_eq!(sandbox.report(&sandbox.out())["synced"], true);
    // A failing job leaves the old output alone.
    let args = ["--input", "in", "--overwrite", "--mapper", "false"];
    sandbox.run_job(&args).expect_failure(1, &["exit code 1"]);
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["new"]);
    sandbox.sailfish_with(&["verify", "out"]).expect_success();
    sandbox.assert_no_leftovers();
}
