//! How bytes become records and back: record formats, separators, compressed input and output, standard input
//! and output; and what is wrong with each, by name.

use blackbox::{
    Finished, Questions, Random, Running, Sandbox, bzip2, gzip, sorted_lines, unpacked, xz, zstd,
};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

const REFUSED: i32 = 2;

/// Packs bytes.
type Pack = fn(&[u8]) -> Vec<u8>;

const PACKED: [(&str, Pack); 4] = [("gz", gzip), ("zst", zstd), ("bz2", bzip2), ("xz", xz)];

/// Runs a job over `in` that is well; gives back its output.
#[track_caller]
fn output_of(sandbox: &Sandbox, options: &[&str]) -> Vec<u8> {
    let args = [&["--input", "in", "--overwrite", "--no-sync"], options].concat();
    sandbox.run_job(&args).expect_success();
    sandbox.sailfish_with(&["verify", "out"]).expect_success();
    sandbox.assert_no_leftovers();
    sandbox.concatenated(&sandbox.out())
}

#[track_caller]
fn check(sandbox: &Sandbox, options: &[&str], expected: &[u8]) {
    let found = output_of(sandbox, options);
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    assert_eq!(shown(&found), shown(expected), "{options:?}");
}

/// A job with bytes on its standard input; output and all other options are the test's.
fn job_with_stdin(sandbox: &Sandbox, stdin: impl Into<Stdio>, options: &[&str]) -> Finished {
    let mut command = sandbox.job(&[&["--input", "-", "--no-sync"], options].concat());
    Running::start_with_stdin(&mut command, stdin).wait()
}

/// A pipe that gives these bytes and then ends.
fn pipe_of(bytes: &[u8]) -> Stdio {
    let (reader, mut writer) = std::io::pipe().expect("a pipe can be made");
    let bytes = bytes.to_vec();
    // Whoever stops reading early is the test's business, not this thread's.
    std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    reader.into()
}

fn random_rows(rows: usize, row_bytes: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(17);
    (0..rows).map(|_| random.bytes(row_bytes)).collect()
}

#[test]
fn fixed_records_are_sorted_and_written_unchanged() {
    let sandbox = Sandbox::new();
    let mut rows = random_rows(50_000, 100);
    sandbox.write("in/1", rows[..20_000].concat());
    sandbox.write("in/2", xz(&rows[20_000..20_100].concat()));
    sandbox.write("in/3", rows[20_100..].concat());
    let raw = ["--input-format", "fixed:100:10", "--output-format", "raw", "--memory", "64M"];
    let copied = output_of(&sandbox, &[&raw[..], &["--map-only", "--slots", "3"]].concat());
    assert!(copied == rows.concat(), "a copy differs");
    assert_eq!(sandbox.report(&sandbox.out())["input"]["records"], 50_000);
    let by_program = output_of(&sandbox, &[&raw[..], &["--map-only", "--mapper", "cat"]].concat());
    assert!(by_program == copied, "a copy by a program differs");
    rows.sort_by(|left, right| left[..10].cmp(&right[..10]));
    let sorted = output_of(&sandbox, &[&raw[..], &["--total-order", "--slots", "2"]].concat());
    assert!(sorted == rows.concat(), "not sorted by the first ten bytes");
    let report = sandbox.report(&sandbox.out());
    let records: u64 =
        report["parts"].as_array().unwrap().iter().map(|part| part["records"].as_u64().unwrap()).sum();
    assert_eq!(records, 50_000);
}

/// Field report, 5.
#[test]
fn nul_records_may_hold_line_ends() {
    let sandbox = Sandbox::new();
    sandbox.write("in", b"b\nx\t2\0a\t1\n\0\0c");
    let nul = ["--input-format", "nul", "--total-order"];
    check(&sandbox, &[&nul[..], &["--output-format", "nul"]].concat(), b"\0a\t1\n\0b\nx\t2\0c\0");
    check(
        &sandbox,
        &[&nul[..], &["--mapper", "builtin:words", "--reducer", "builtin:count"]].concat(),
        b"1\t1\n2\t1\na\t1\nb\t1\nc\t1\nx\t1\n",
    );
    // Programs read and print records that end with a zero byte, the reducer with the separator.
    let cats = ["--mapper", "cat", "--combiner", "cat", "--reducer", "cat"];
    let zeros = [&cats[..], &["--output-format", "nul"]].concat();
    check(&sandbox, &[&nul[..], &zeros].concat(), b"\t\0a\t1\n\0b\nx\t2\0c\t\0");
    let mapper = ["--mapper", "tr '\\n' '_'", "--output-format", "nul"];
    check(&sandbox, &[&nul[..], &mapper].concat(), b"\0a\t1_\0b_x\t2\0c\0");
    // Their records get the other end where the output has it.
    check(&sandbox, &[&nul[..], &mapper[..2]].concat(), b"\na\t1_\nb_x\t2\nc\n");
    check(&sandbox, &[&nul[..2], &mapper[..2], &["--map-only"]].concat(), b"b_x\t2\na\t1_\n\nc\n");
    // Numbers of the field report: 2 records are 2 records.
    sandbox.write("in", b"b\0a\nx\0");
    check(&sandbox, &[&nul[..], &["--mapper", "cat", "--output-format", "nul"]].concat(), b"a\nx\0b\0");
}

#[test]
fn program_printing_lines_for_nul_input_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("in", b"b\0a\0");
    let job = |options: &[&str]| {
        let options = [&["--input", "in", "--overwrite", "--input-format", "nul"], options].concat();
        sandbox.run_job(&options)
    };
    let lines = ["--mapper", "tr '\\0' '\\n'"];
    for output in
        [&["--output-format", "nul"][..], &["--map-only"], &["--map-only", "--output-format", "nul"]]
    {
        job(&[&lines[..], output].concat())
            .expect_failure(REFUSED, &["does not end with a zero byte", "--exchange lines"]);
    }
    let lines = [&lines[..], &["--exchange", "lines", "--total-order"]].concat();
    job(&lines).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.out()), b"a\nb\n");
    sandbox.write("in", b"b\0a\nx\0");
    job(&lines).expect_failure(REFUSED, &["in at byte 3", "line feed", "--exchange lines"]);
    sandbox
        .run_job(&["--input", "in", "--exchange", "nul"])
        .expect_failure(REFUSED, &["--exchange nul", "--input-format nul"]);
}

/// Bug 10 of the field report.
/// Field report, 10.
#[test]
fn bytes_after_gzip_data_give_a_warning() {
    let sandbox = Sandbox::new();
    let members = [gzip(b"b\n"), gzip(b"a\n")].concat();
    sandbox.write("in.gz", [&members[..], b"\0\0\0\0padding"].concat());
    let said = sandbox.run_job(&["--input", "in.gz", "--total-order"]).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.out()), b"a\nb\n");
    let at = format!("at byte {}", members.len());
    for text in ["warning", "in.gz", &at, "were left out"] {
        assert!(said.stderr.contains(text), "{}", said.story());
    }
    let report = sandbox.report(&sandbox.out());
    assert_eq!((&report["warning_count"], report["warnings"].as_array().map(Vec::len)), (&1.into(), Some(1)));
    // Data that breaks off is still an error.
    sandbox.write("in.gz", &members[..members.len() - 1]);
    sandbox.run_job(&["--input", "in.gz", "--overwrite"]).expect_failure(REFUSED, &["in.gz is truncated"]);
}

#[test]
fn separators_and_keys_may_be_several() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b::1::x\na:::2\na::3\n::\nc\n");
    let sorted = ["--separator", "::", "--total-order"];
    check(&sandbox, &sorted, b"::\na:::2\na::3\nb::1::x\nc\n");
    // Programs read and print the same separator: key, separator, value.
    let swap = "sed -e 's/^/k::/'";
    let joined = ["--mapper", swap, "--reducer", "builtin:list"];
    check(&sandbox, &[&sorted[..], &joined].concat(), b"k::b::1::x,a:::2,a::3,::,c\n");
    check(
        &sandbox,
        &[&sorted[..], &["--reducer", "sed -e 's/$/|/'"]].concat(),
        b"::|\na:::2|\na::3|\nb::1::x|\nc::|\n",
    );
    let two = ["--separator", "::", "--key-fields", "2", "--reducer", "builtin:count", "--total-order"];
    check(&sandbox, &two, b"::::1\na::3::1\na:::2::1\nb::1::1\nc::1\n");
    sandbox.write("in", "x y 1\nx y 2\nx z 3\n");
    let combined = [
        "--separator",
        " ",
        "--key-fields",
        "2",
        "--mapper",
        "cat",
        "--combiner",
        "cat",
        "--reducer",
        "builtin:sum",
        "--total-order",
    ];
    check(&sandbox, &combined, b"x y 3\nx z 3\n");
    sandbox.write("in", b"a\x01\x021\n");
    check(&sandbox, &["--separator", "\\x01\\x02", "--reducer", "builtin:sum"], b"a\x01\x021\n");
}

#[test]
fn outputs_are_raw_or_discarded() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b\t2\na\t1\n");
    check(&sandbox, &["--output-format", "raw", "--total-order"], b"a1b2");
    check(&sandbox, &["--output-format", "discard"], b"");
    let parts = sandbox.report(&sandbox.out())["parts"].clone();
    assert_eq!((&parts[0]["records"], &parts[0]["bytes"]), (&2.into(), &0.into()));
    check(&sandbox, &["--output-format", "discard", "--map-only", "--mapper", "cat"], b"");
}

#[test]
fn outputs_are_compressed() {
    let sandbox = Sandbox::new();
    let text: String = (0..20_000).map(|number| format!("{}\t{number}\n", number % 100)).collect();
    sandbox.write("in", &text);
    let expected = output_of(&sandbox, &["--total-order"]);
    for (codec, extension) in [("gzip", "gz"), ("zstd", "zst"), ("bzip2", "bz2"), ("xz", "xz")] {
        for options in [&["--total-order"][..], &["--map-only"], &["--reducer", "cat", "--total-order"]] {
            let stored = output_of(&sandbox, &[&["--compress", codec], options].concat());
            let names = sandbox.part_names(&sandbox.out());
            assert!(names.iter().all(|name| name.ends_with(&format!(".{extension}"))), "{names:?}");
            let found = unpacked(extension, &stored);
            assert!(sorted_lines(&found) == sorted_lines(text.as_bytes()), "{codec} {options:?}");
            assert!(options.contains(&"--map-only") || found == expected, "{codec} {options:?}");
            let records: u64 = sandbox.report(&sandbox.out())["parts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part["records"].as_u64().unwrap())
                .sum();
            assert_eq!(records, 20_000);
        }
        // An output is an input.
        let args = ["--input", "out", "--output", "again", "--total-order", "--overwrite", "--no-sync"];
        sandbox.run_job(&args).expect_success();
        assert!(sandbox.concatenated(&sandbox.path("again")) == expected, "{codec} read again");
    }
    let verified = |change: fn(&Path)| {
        output_of(&sandbox, &["--compress", "gzip"]);
        change(&sandbox.out().join("part-00000.gz"));
        sandbox.sailfish_with(&["verify", "out"]).expect_failure(1, &["part-00000.gz"]);
    };
    verified(|part| fs::write(part, gzip(b"other\n")).unwrap());
    verified(|part| fs::remove_file(part).unwrap());
}

#[test]
fn partial_records_are_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.write("in/rows.bin", vec![7; 1030]);
    let fixed = ["--input", "in", "--input-format", "fixed:100:10", "--output-format", "raw"];
    let texts = ["rows.bin", "partial last record", "1030", "record length 100"];
    sandbox.run_job(&fixed).expect_failure(REFUSED, &texts);
    assert!(!sandbox.state().exists(), "a refused request left a state");
    for (_, pack) in PACKED {
        sandbox.write("in/rows.bin", pack(&[7; 1030]));
        sandbox.run_job(&fixed).expect_failure(REFUSED, &texts);
        sandbox.assert_nothing_left();
    }
    let stdin = [&fixed[2..], &["--output", "out"]].concat();
    job_with_stdin(&sandbox, pipe_of(&[7; 1030]), &stdin)
        .expect_failure(REFUSED, &["standard input has a partial last record", "1030"]);
    sandbox.assert_nothing_left();
}

#[test]
fn damaged_bzip2_and_xz_are_named() {
    let sandbox = Sandbox::new();
    let text: String = (0..30_000_u32).map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761))).collect();
    for (extension, pack) in &PACKED[2..] {
        let name = format!("in/data.{extension}");
        let whole = pack(text.as_bytes());
        // Streams one behind the other are one text.
        sandbox.write(&name, [pack(b"first\n"), pack(b"sec"), pack(b"ond\n")].concat());
        check(&sandbox, &["--map-only"], b"first\nsecond\n");
        fs::remove_dir_all(sandbox.out()).unwrap();
        let failing = |bytes: &[u8], text: &str| {
            sandbox.write(&name, bytes);
            let file = format!("data.{extension} is {text}");
            sandbox.run_job(&["--input", "in"]).expect_failure(REFUSED, &[&file, "byte"]);
            sandbox.assert_nothing_left();
        };
        failing(&whole[..whole.len() / 2], "truncated");
        failing(&whole[..whole.len() - 1], "truncated");
        let mut corrupt = whole.clone();
        let middle = corrupt.len() / 2;
        corrupt[middle..middle + 16].fill(0xff);
        failing(&corrupt, "corrupt");
        fs::remove_dir_all(sandbox.path("in")).unwrap();
    }
}

#[test]
fn standard_input_is_an_input_like_others() {
    let sandbox = Sandbox::new();
    sandbox.write("in/1", "a\t1\n");
    let text = b"b\t2\nc\t3\n";
    let run = |stdin: Stdio, options: &[&str]| {
        job_with_stdin(&sandbox, stdin, &[options, &["--overwrite", "--map-only"]].concat()).expect_success();
        sandbox.assert_no_leftovers();
        sandbox.output_lines(&sandbox.out())
    };
    assert_eq!(run(pipe_of(text), &["--input", "in"]), ["b\t2", "c\t3", "a\t1"]);
    for (_, pack) in PACKED {
        assert_eq!(run(pipe_of(&pack(text)), &[]), ["b\t2", "c\t3"]);
    }
    assert!(run(pipe_of(b""), &[]).is_empty());
    assert!(run(Stdio::null(), &[]).is_empty());
    // A file is read where it lies, from where it stands.
    let file = || File::open(sandbox.path("in/1")).unwrap();
    assert_eq!(run(file().into(), &[]), ["a\t1"]);
    let mut moved = file();
    moved.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(run(moved.into(), &[]), ["1"]);
    // Attempts read it again.
    let flaky = "sh -c 'if [ \"$SAILFISH_ATTEMPT\" -lt 2 ]; then head -n 1; exit 1; fi; exec cat'";
    assert_eq!(run(pipe_of(text), &["--mapper", flaky]), ["b\t2", "c\t3"]);
    // More than one split of it.
    let large = "0123456789abcdef\n".repeat(400_000);
    assert_eq!(run(pipe_of(large.as_bytes()), &["--slots", "3"]).len(), 400_000);
    assert!(sandbox.part_names(&sandbox.out()).len() > 1, "one split only");
}

#[test]
fn standard_input_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    let twice = job_with_stdin(&sandbox, pipe_of(b"x\n"), &["--input", "-"]);
    twice.expect_failure(REFUSED, &["--input -", "2 times"]);
    let broken = &gzip("text\n".repeat(100).as_bytes())[..30];
    job_with_stdin(&sandbox, pipe_of(broken), &[])
        .expect_failure(REFUSED, &["input standard input is truncated", "gzip"]);
    sandbox.assert_nothing_left();
    // The near end of a new pseudo terminal is a terminal too.
    let terminal = File::open("/dev/ptmx").expect("a terminal can be made");
    job_with_stdin(&sandbox, terminal, &[]).expect_failure(REFUSED, &["standard input is a terminal"]);
    sandbox.assert_nothing_left();
}

#[test]
fn outputs_are_printed_in_order_of_part() {
    let sandbox = Sandbox::new();
    let mut random = Random::new(23);
    let mut text = Vec::new();
    while text.len() < 6 << 20 {
        text.extend(format!("{:016x}\t{}\n", random.next_bits(), random.below(9)).into_bytes());
    }
    sandbox.write("in", &text);
    let print = |options: &[&str]| {
        let args = [&["--input", "in", "--output", "-", "--slots", "4"], options].concat();
        let finished = sandbox.run_job(&args).expect_success();
        assert!(finished.stderr.contains("standard output"), "{}", finished.stderr);
        sandbox.assert_nothing_left();
        finished.stdout
    };
    assert!(print(&["--total-order", "--memory", "64M"]) == sorted_lines(&text), "not the sorted lines");
    assert!(print(&["--map-only", "--mapper", "cat"]) == text, "not the lines");
    assert!(unpacked("gz", &print(&["--map-only", "--compress", "gzip"])) == text, "not the packed lines");
    let job = sandbox.last_job().to_string();
    assert!(sandbox.look(&["show", &job]).expect_success().text().contains("standard output"));
    // Both ends at once, as part of a pipeline.
    let both = job_with_stdin(&sandbox, pipe_of(b"b\na\n"), &["--output", "-", "--total-order"]);
    assert_eq!(both.expect_success().stdout, b"a\nb\n");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "0123456789\n".repeat(200_000));
    let mut command = sandbox.job(&["--input", "in", "--output", "-", "--map-only"]);
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary starts");
    // The command holds the other end of the pipe as long as it lives.
    drop((command, reader));
    let finished = child.wait_with_output().expect("a child can be waited for");
    assert!(finished.status.success(), "{}", String::from_utf8_lossy(&finished.stderr));
    sandbox.assert_nothing_left();
}

#[test]
fn a_job_that_fails_prints_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\nb\n".repeat(1000));
    let fails = |options: &[&str], code: i32, texts: &[&str]| {
        let args = [&["--input", "in", "--output", "-"], options].concat();
        let finished = sandbox.run_job(&args).expect_failure(code, texts);
        assert!(finished.stdout.is_empty(), "{}", finished.story());
        sandbox.assert_nothing_left();
    };
    fails(&["--mapper", "sh -c 'cat; exit 7'"], 7, &["exit code 7"]);
    fails(&["--mapper", "cat", "--reducer", "sh -c 'cat; exit 3'"], 3, &["exit code 3"]);
    fails(&["--reducer", "builtin:sum"], REFUSED, &["key \"a\""]);
    fails(&["--json"], REFUSED, &["--json", "--output -"]);
    fails(&["--overwrite"], REFUSED, &["--overwrite", "--output -"]);
    fails(&["--output-format", "discard"], REFUSED, &["discard", "--output -"]);
    // Standard output that takes nothing.
    let mut command = sandbox.job(&["--input", "in", "--output", "-"]);
    let full = File::options().write(true).open("/dev/full").expect("it is always there");
    let finished = command.stdin(Stdio::null()).stdout(full).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.code() == Some(1) && said.contains("No space left"), "{said}");
    sandbox.assert_nothing_left();
}

#[test]
fn next_run_sweeps_after_a_killed_process() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let mut pipe = sandbox.fifo("started");
    let waits = format!("sh -c 'echo here > {}; exec sleep 1000'", pipe.text());
    let running = sandbox.start_job(&["--input", "in", "--output", "-", "--mapper", &waits]);
    assert_eq!(pipe.read_line(), "here");
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.wait().signal(), Some(9));
    assert!(!sandbox.leftovers().is_empty(), "the private directory is there");
    assert_eq!(sandbox.run_job(&["--input", "in", "--output", "-"]).expect_success().stdout, b"a\n");
    sandbox.assert_nothing_left();
}

#[test]
fn conflicting_formats_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let refused = |options: &[&str], texts: &[&str]| {
        sandbox.run_job(&[&["--input", "in"], options].concat()).expect_failure(REFUSED, texts);
        assert!(!sandbox.state().exists(), "a refused request left a state: {options:?}");
    };
    refused(&["--input-format", "fixed"], &["--input-format", "fixed:100:10"]);
    refused(&["--input-format", "fixed:10:11"], &["--input-format", "at most the 10"]);
    refused(&["--input-format", "fixed:20000000", "--memory", "64M"], &["partial last record"]);
    refused(&["--output-format", "csv"], &["--output-format", "lines, nul, raw or discard"]);
    refused(&["--separator", ""], &["--separator is empty"]);
    refused(&["--separator", "\\n"], &["--separator", "ends each record"]);
    refused(&["--key-fields", "0"], &["--key-fields 0"]);
    refused(&["--key-fields", "2", "--input-format", "fixed:2"], &["--key-fields has no meaning"]);
    refused(&["--compress", "lz4"], &["--compress", "gzip, zstd, bzip2 or xz"]);
    refused(&["--compress", "gzip", "--output-format", "discard"], &["--compress has no meaning"]);
    // The same words in a job file.
    sandbox.write("job.toml", "input = \"in\"\noutput = \"-\"\nseparator = \"\\\\t\"\ncompress = \"gzip\"\n");
    let mut command = sandbox.sailfish();
    command.args(["run", "--job", "job.toml", "--state", "state", "--disk", "disk"]);
    let finished = Running::start(&mut command).wait().expect_success();
    assert_eq!(unpacked("gz", &finished.stdout), b"a\n");
}
