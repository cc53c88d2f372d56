//! Keys with tails: pairs of one partition key come to one reducer, in the order of the whole key.

use blackbox::{Cluster, Finished, Random, Running, Sandbox, frames_program};
use std::collections::{BTreeMap, BTreeSet};

/// A mapper of lines `PARTITION_KEY TAIL NUMBER`, and a reducer that puts out what it gets with the number of its process in front, and
/// fails where a group is not what is equal in the whole key. How keys are put out follows from the first argument.
const PROGRAM: &str = r#"
def numbers(*columns):
    every = [number for column in columns for number in column]
    return struct.pack(f"<I{len(every)}I", len(columns[0]), *every)
wish = sys.argv[1]
end = b"" if wish == "no-end" else b"\0"
frame()
before = None
while True:
    kind, payload = frame()
    if kind == "E":
        break
    if kind == "R":
        _, _, n = struct.unpack_from("<QII", payload)
        parted, tails, values = [], [], []
        for line in payload[16 + n:].splitlines():
            partition_key, tail, number = line.split()
            parted.append(partition_key + end)
            tails.append(struct.pack(">I", int(tail)))
            values.append(number.rjust(250))
        keys = [a + b for a, b in zip(parted, tails)]
        lengths = [list(map(len, keys)), list(map(len, values)), list(map(len, parted))]
        if wish == "too-long":
            lengths[2][0] = lengths[0][0] + 1
        if wish == "whole":
            put("P", numbers(*lengths[:2]) + b"".join(keys + values))
        else:
            put("T", numbers(*lengths) + b"".join(keys + values))
    if kind == "G":
        n, m, goes_on = struct.unpack_from("<3I", payload)
        lengths = struct.unpack_from(f"<{2 * n + m}I", payload, 12)
        at = 12 + 4 * (2 * n + m)
        pieces = []
        for length in lengths[:n] + lengths[2 * n:]:
            pieces.append(payload[at:at + length])
            at += length
        values = iter(pieces[n:])
        lines = []
        for key, count in zip(pieces, lengths[n:2 * n]):
            assert goes_on == (key == before), (goes_on, key, before)
            before, goes_on = key, 0
            partition_key, tail = key[:-5], struct.unpack(">I", key[-4:])[0]
            lines += [b"%d %s %d %s\n" % (os.getpid(), partition_key, tail, next(values).strip()) for _ in range(count)]
        put("O", struct.pack("<Q", len(lines)) + b"".join(lines))
put("E", b"")
"#;

/// Nearly half of the lines have one partition key, and most others one of a few.
fn skewed(lines: u64) -> String {
    let mut random = Random::new(7);
    let mut text = String::new();
    for number in 0..lines {
        let partition_key = match random.below(10) {
            0..5 => 0,
            5..8 => random.below(3),
            8 => random.below(20),
            _ => random.below(2000),
        };
        let tail = random.below(1 << 16);
        text.push_str(&format!("{partition_key} {tail} {number}\n"));
    }
    text
}

/// The pairs as they must come out: of each partition key in order of the tail, and those of one tail in that of the input.
fn model(text: &str) -> BTreeMap<String, Vec<(u32, u32)>> {
    let mut all: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let pair = (words[1].parse().expect("a number"), words[2].parse().expect("a number"));
        all.entry(words[0].to_string()).or_default().push(pair);
    }
    all.values_mut().for_each(|pairs| pairs.sort_unstable());
    all
}

/// Returns the pairs in the output by partition key, and the number of processes. Checks that each key has one process and one stretch.
#[track_caller]
fn reduced(lines: &[String]) -> (BTreeMap<String, Vec<(u32, u32)>>, usize) {
    let mut all: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    let mut processes = BTreeSet::new();
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    for stretch in words.chunk_by(|left, right| left[1] == right[1]) {
        let of_process = stretch[0][0];
        assert!(
            stretch.iter().all(|words| words[0] == of_process),
            "more than one process: {:?}",
            stretch[0]
        );
        let pair = |words: &Vec<&str>| (words[2].parse().expect("TAIL"), words[3].parse().expect("NUMBER"));
        let again = all.insert(stretch[0][1].to_string(), stretch.iter().map(pair).collect());
        assert!(again.is_none(), "{:?} comes twice", stretch[0]);
        processes.insert(of_process);
    }
    (all, processes.len())
}

fn arguments<'a>(wish: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let formats = ["--input", "in", "--exchange", "frames", "--output-format", "raw", "--file", "program.py"];
    [&formats[..], &["--mapper", wish, "--reducer", "python3 program.py reduce"], more].concat()
}

fn run(text: &str, wish: &str, more: &[&str]) -> (Sandbox, Finished) {
    let sandbox = Sandbox::new();
    sandbox.write("program.py", frames_program(PROGRAM));
    sandbox.write("in", text);
    let mapper = format!("python3 program.py {wish}");
    let finished = sandbox.run_job(&arguments(&mapper, more));
    (sandbox, finished)
}

#[test]
fn each_partition_key_reaches_one_reducer_in_order() {
    let text = skewed(300_000);
    let expected = model(&text);
    let small = ["--key-tails", "--memory", "64M", "--slots", "4"];
    for more in [&[][..], &["--total-order"]] {
        let (sandbox, finished) = run(&text, "tails", &[&small[..], more].concat());
        finished.expect_success();
        let lines = sandbox.output_lines(&sandbox.out());
        let (found, processes) = reduced(&lines);
        assert!(found == expected, "other pairs, or another order: {more:?}");
        let report = sandbox.report(&sandbox.out());
        let shuffle = |what: &str| report["shuffle"][what].as_u64().expect("a number");
        assert!(shuffle("runs") > shuffle("runs_in_memory"), "nothing went to the disk: {report}");
        assert!(processes > 1, "{report}");
        if !more.is_empty() {
            let keys: Vec<String> =
                lines.iter().map(|line| line.split(' ').nth(1).unwrap_or("").into()).collect();
            assert!(keys.is_sorted(), "the parts one after the other are not in order");
        }
        sandbox.assert_no_leftovers();
    }
}

#[test]
fn nodes_keep_partition_keys_together() {
    let cluster = Cluster::builder().nodes(2).start();
    let text = skewed(200_000);
    cluster.sandbox.write("program.py", frames_program(PROGRAM));
    cluster.sandbox.write("in", &text);
    let mut job = cluster.job(&arguments("python3 program.py tails", &["--key-tails", "--output", "out"]));
    Running::start(&mut job).wait().expect_success();
    // Processes of different machines may have one number.
    let lines = cluster.sandbox.output_lines(&cluster.sandbox.out());
    assert!(reduced(&lines).0 == model(&text), "other pairs, or another order");
}

#[test]
fn key_without_tail_is_its_partition_key() {
    let (sandbox, finished) = run("b 7 0\na 2 1\nb 3 2\nb 7 3\n", "whole", &["--key-tails"]);
    finished.expect_success();
    let lines = sandbox.output_lines(&sandbox.out());
    let words: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    assert_eq!(words, ["a 2 1", "b 3 2", "b 7 0", "b 7 3"]);
}

#[test]
fn partition_key_that_begins_another_is_named() {
    // Without an end, `a` and four bytes lie around `a\0\0`.
    let (_, finished) = run("a 1 0\na\u{0}\u{0} 1 1\na 70000 2\n", "no-end", &["--key-tails"]);
    finished.expect_failure(2, &["partition key \"a\" is the beginning of another one, \"a\\0\\0\""]);
}

#[test]
fn unsuitable_key_tails_are_refused() {
    let check = |wish: &str, more: &[&str], code: i32, expected: &str| {
        let (sandbox, finished) = run("a 1 0\n", wish, more);
        finished.expect_failure(code, &[expected]);
        assert!(!sandbox.out().exists());
        sandbox.assert_no_leftovers();
    };
    check("tails", &[], 2, "give --key-tails");
    check("too-long", &["--key-tails"], 1, "partition key of its pair 0 has 7 bytes, but the key has 6");
    let combiner = ["--key-tails", "--combiner", "python3 program.py reduce"];
    check("tails", &combiner, 2, "--combiner does not go with --key-tails");
    for option in
        [&["--order", "numeric"][..], &["--reverse"], &["--partitions", "3"], &["--sort-keys", "-k1"]]
    {
        check("tails", &[&["--key-tails"], option].concat(), 2, "does not go with --key-tails");
    }
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let job = |more: &[&str]| sandbox.run_job(&[&["--input", "in", "--key-tails"], more].concat());
    job(&[]).expect_failure(2, &["--key-tails needs --exchange frames"]);
    job(&["--exchange", "frames", "--map-only"])
        .expect_failure(2, &["--key-tails has no meaning with --map-only"]);
}

#[test]
fn tails_of_job_file_stay_with_kept_files() {
    let sandbox = Sandbox::new();
    let text = skewed(1000);
    sandbox.write("program.py", frames_program(PROGRAM));
    sandbox.write("in", &text);
    let job = "input = \"in\"\nfile = \"program.py\"\nexchange = \"frames\"\noutput_format = \"raw\"\nkey_tails = true\n\
               keep_ifiles = true\nmapper = \"python3 program.py tails\"\nreducer = \"python3 program.py reduce\"\n";
    sandbox.write("job.toml", job);
    sandbox.run_job(&["--job", "job.toml"]).expect_success();
    assert!(reduced(&sandbox.output_lines(&sandbox.out())).0 == model(&text));
    let again = ["rerun-reduce", "1", "--output", "again", "--reducer", "python3 program.py reduce"];
    sandbox.look(&again).expect_success();
    assert!(reduced(&sandbox.output_lines(&sandbox.path("again"))).0 == model(&text));
}
