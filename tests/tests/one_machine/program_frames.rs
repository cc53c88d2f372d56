//! Programs that exchange frames with the engine: a program of thirty lines that knows nothing but `docs/formats/program-frames.md`.

use blackbox::flow::{start_here, write_flow};
use blackbox::{Finished, Running, Sandbox, Watched, corpus, frames_program};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};

/// Frames in, frames out. As a mapper it yields each word with (its line's place, the word); what it does else follows from its first
/// argument.
const PROGRAM: &str = r#"
wish = sys.argv[1]
def pairs(keys, values):
    lengths = struct.pack(f"<I{2 * len(keys)}I", len(keys), *map(len, keys), *map(len, values))
    put("P", lengths + b"".join(keys) + b"".join(values))
def groups(payload):
    n, m, goes_on = struct.unpack_from("<3I", payload)
    numbers = struct.unpack_from(f"<{2 * n + m}I", payload, 12)
    at = 12 + 4 * (2 * n + m)
    def cut(lengths):
        nonlocal at
        for length in lengths:
            yield payload[at:at + length]
            at += length
    keys, values = list(cut(numbers[:n])), list(cut(numbers[2 * n:]))
    for key, count in zip(keys, numbers[n:2 * n]):
        yield goes_on, key, values[:count]
        values, goes_on = values[count:], 0
kind, payload = frame()
job = json.loads(payload)
assert kind == "J" and job["version"] == 2, job
begun = None
while True:
    kind, payload = frame()
    if kind == "E":
        break
    if kind == "R":
        offset, which, length = struct.unpack_from("<QII", payload)
        name = payload[16:16 + length].decode()
        assert wish == "inputs" or name.endswith("/in"), name
        words = []
        for line in payload[16 + length:].splitlines(keepends=True):
            words += [(word[::-1] + b"\0\n\t", struct.pack("<Q", offset)) for word in line.split()]
            offset += len(line)
        if wish == "inputs":
            words = [(line, b"%d" % which) for line in payload[16 + length:].split()]
        if wish == "garbage":
            print("hello", flush=True)
        if wish == "fail":
            put("X", json.dumps({"message": "no such luck", "is_of_data": True, "traceback": ["line 7"]}).encode())
        if wish == "die":
            out.flush(); os.kill(os.getpid(), 9)
        if wish == "short":
            sys.exit(0)
        if wish == "lie":
            put("P", struct.pack("<3I", 1, 5, 5) + b"123")
        if wish == "bytes":
            put("O", struct.pack("<Q", 1) + b"x\n")
        pairs(*map(list, zip(*words)) if words else ([], []))
    if kind == "G" and job["role"] == "combine":
        for _, key, values in groups(payload):
            pairs([key] * len(values), values)
    elif kind == "G":
        for goes_on, key, values in groups(payload):
            assert goes_on == (key == begun), (goes_on, key, begun)
            begun = key
            line = b"%s %d" % (key[:-3][::-1], sum(struct.unpack("<Q", value)[0] for value in values))
            if wish == "pairs":
                pairs([key], [line])
            else:
                put("O", struct.pack("<Q", 1) + line + b"\n")
put("E", b"")
"#;

fn sandbox_with(text: &[u8]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("in", text);
    sandbox.write("program.py", frames_program(PROGRAM));
    sandbox
}

fn run(sandbox: &Sandbox, mapper: &str, options: &[&str]) -> Finished {
    let mapper = format!("python3 program.py {mapper}");
    let args = ["--input", "in", "--exchange", "frames", "--file", "program.py", "--mapper", &mapper];
    sandbox.run_job(&[&args[..], options].concat())
}

/// For each word the sum of the places of its lines: one for each part of a group, since a group may come in several frames.
fn model(text: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    let mut sums = BTreeMap::new();
    let mut offset = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            *sums.entry(word.to_vec()).or_insert(0) += offset;
        }
        offset += line.len() as u64;
    }
    sums
}

fn sums(lines: Vec<String>) -> BTreeMap<Vec<u8>, u64> {
    let mut sums = BTreeMap::new();
    for line in lines {
        let (word, sum) = line.rsplit_once(' ').expect("WORD SUM");
        *sums.entry(word.as_bytes().to_vec()).or_insert(0) += sum.parse::<u64>().expect("a number");
    }
    sums
}

#[test]
fn keys_and_values_are_any_bytes() {
    let text: Vec<u8> = corpus(2 << 20).into_iter().filter(u8::is_ascii).collect();
    let sandbox = sandbox_with(&text);
    let reducer = ["--reducer", "python3 program.py bytes", "--output-format", "raw", "--overwrite"];
    for more in [&[][..], &["--combiner", "python3 program.py combine"], &["--memory", "64M", "--slots", "4"]]
    {
        run(&sandbox, "words", &[&reducer[..], more].concat()).expect_success();
        assert!(sums(sandbox.output_lines(&sandbox.out())) == model(&text), "{more:?}");
        sandbox.assert_no_leftovers();
    }
}

/// A directory with two files, one without any, and two files beside them.
fn sandbox_with_inputs() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("program.py", frames_program(PROGRAM));
    for (file, line) in
        [("dir/b", "b\n"), ("dir/c", "c\n"), ("x1", "x1\n"), ("x2", "x2\n"), ("empty/_no", "")]
    {
        sandbox.write(file, line);
    }
    sandbox
}

/// Lines with the numbers of the inputs from which they are, in the order of their names.
fn numbered(sandbox: &Sandbox, output: &str) -> Vec<String> {
    let mut lines = sandbox.output_lines(&sandbox.path(output));
    lines.sort_unstable();
    lines
}

/// Two files of one directory have one number, and a directory without files has one as well.
#[test]
fn records_tell_which_input_they_are_from() {
    let sandbox = sandbox_with_inputs();
    let inputs = ["--input", "empty", "dir", "-", "--input", "x*", "--input", "x1", "--file", "program.py"];
    let mapper = ["--mapper", "python3 program.py inputs", "--exchange", "frames", "--map-only"];
    let mut command = sandbox.job(&[&inputs[..], &mapper, &["--output", "out"]].concat());
    let stdin = std::fs::File::open(sandbox.write("standard", "s\n")).expect("our own file");
    Running::start_with_stdin(&mut command, stdin).wait().expect_success();
    assert_eq!(numbered(&sandbox, "out"), ["b\t1", "c\t1", "s\t2", "x1\t3", "x1\t4", "x2\t3"]);
}

const FLOW: &str = r#"
file = "program.py"
map_only = true
[[stage]]
name = "first"
input = "x1"
[[stage]]
name = "second"
input = "x2"
[[stage]]
name = "third"
input = ["empty", "dir"]
from = ["second", "first"]
exchange = "frames"
mapper = "python3 program.py inputs"
output = "out"
"#;

#[test]
fn numbers_of_stages_follow_those_of_inputs() {
    let sandbox = sandbox_with_inputs();
    write_flow(&sandbox, "flow.toml", FLOW, "out");
    start_here(&sandbox, "flow.toml").wait().expect_success();
    assert_eq!(numbered(&sandbox, "out"), ["b\t1", "c\t1", "x1\t3", "x2\t2"]);
}

#[test]
fn reducer_pairs_are_written_in_job_format() {
    let sandbox = sandbox_with(b"one two\none\n");
    let options = ["--reducer", "python3 program.py pairs", "--separator", "=", "--output-format", "nul"];
    run(&sandbox, "words", &options).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.out()), b"eno\0\n\t=one 8\0owt\0\n\t=two 0\0");
}

#[test]
fn a_mapper_alone_puts_out_pairs_or_bytes() {
    let sandbox = sandbox_with(b"one two\n");
    run(&sandbox, "words", &["--map-only"]).expect_success();
    let expected = b"eno\0\n\t\t\0\0\0\0\0\0\0\0\nowt\0\n\t\t\0\0\0\0\0\0\0\0\n";
    assert_eq!(sandbox.concatenated(&sandbox.out()), expected);
    run(&sandbox, "bytes", &["--map-only", "--output-format", "raw", "--overwrite"]).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()).starts_with(b"x\n"));
}

#[test]
fn wrong_frames_of_programs_are_named() {
    let check = |wish: &str, code: i32, expected: &str| {
        let sandbox = sandbox_with(b"one two\n");
        run(&sandbox, wish, &[]).expect_failure(code, &[expected]);
        assert!(!sandbox.out().exists());
        sandbox.assert_no_leftovers();
    };
    check("garbage", 1, "begins with \"hello\\n");
    check("fail", 2, "no such luck");
    check("fail", 2, "| line 7");
    check("die", 137, "ended by signal 9");
    check("short", 1, "ended without the frame E");
    check("lie", 1, "add up to 10 bytes, but 3 follow them");
    check("bytes", 1, "reducers read only pairs");
}

#[test]
fn byte_parts_need_an_output_without_lines() {
    let sandbox = sandbox_with(b"one\n");
    let finished = run(&sandbox, "words", &["--reducer", "python3 program.py bytes"]);
    finished.expect_failure(2, &["--output-format raw"]);
}

#[test]
fn an_unknown_exchange_is_refused() {
    let sandbox = sandbox_with(b"one\n");
    let finished = sandbox.run_job(&["--input", "in", "--exchange", "pigeons"]);
    finished.expect_failure(2, &["--exchange \"pigeons\" is not known: choose lines, nul or frames"]);
}

/// Serves one task after the other: as a mapper it yields the variables and the place of each of its tasks.
const SERVER: &str = r#"
import json, os, struct, sys, time
source, out = sys.stdin.buffer, sys.stdout.buffer
wish, counted, tasks = sys.argv[1], "reporter:counter:test,%s,1\n", 0
def put(kind, payload):
    out.write(struct.pack("<IB3x", len(payload), ord(kind)) + payload)
    out.flush()
def once():
    try:
        os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False
while head := source.read(8):
    length, kind = struct.unpack("<IB3x", head)
    job = json.loads(source.read(length))
    assert chr(kind) == "J" and set(job["env"]) == {"SAILFISH_STAGE", "SAILFISH_TASK", "SAILFISH_ATTEMPT"}, job
    assert tasks or job["env"].items() <= os.environ.items() and job["work_dir"] == os.getcwd(), (job, os.environ)
    assert os.path.exists(job["work_dir"] + "/program.py")
    os.chdir(job["work_dir"])
    tasks += 1
    sys.stderr.write(f"task {job['env']['SAILFISH_TASK']}\n" + counted % "tasks" + (counted % "processes" if tasks == 1 else ""))
    lines = 0
    while chr(kind) != "E":
        length, kind = struct.unpack("<IB3x", source.read(8))
        payload = source.read(length)
        lines += payload.count(b"\n")
        if chr(kind) == "R" and tasks == 2 and wish == "die" and once():
            os.kill(os.getpid(), 9)
        if chr(kind) == "R" and tasks == 2 and wish == "hang" and once():
            time.sleep(3600)
    line = b"%s %d\n" % (job["env"]["SAILFISH_TASK"].encode(), lines)
    put("O", struct.pack("<Q", 1) + line)
    os.chdir("/")
    sys.stderr.write("reporter:end\n")
    sys.stderr.flush()
    put("E", b"\1")
    if wish == "hang":
        with open("%s.fifo" % sys.argv[2], "w") as told:
            told.write(f"{os.getpid()}\n")
    if wish == "leave" and once():
        sys.exit(0)
"#;

/// A sandbox with a server, and with lines for more than ten tasks: how many.
fn sandbox_with_tasks() -> (Sandbox, usize) {
    let sandbox = Sandbox::new();
    let line = format!("{}\n", "x".repeat(9999));
    let lines = 1200;
    sandbox.write("in", line.repeat(lines));
    sandbox.write("program.py", SERVER);
    (sandbox, lines)
}

/// The command line of a job whose tasks a server has, which marks in a file that it has done as it was told.
fn served(sandbox: &Sandbox, wish: &str, slots: &str) -> std::process::Command {
    let mapper = format!("python3 program.py {wish} {}", sandbox.path("mark").display());
    let job = ["--input", "in", "--exchange", "frames", "--file", "program.py", "--mapper", &mapper];
    let output = ["--map-only", "--output-format", "raw", "--slots", slots, "--output", "out"];
    sandbox.job(&[&job[..], &output].concat())
}

/// Checks that the output has all lines, and returns the number of tasks.
fn tasks_served(sandbox: &Sandbox, lines: usize) -> usize {
    let served = sums(sandbox.output_lines(&sandbox.out()));
    assert_eq!(served.values().sum::<u64>(), lines as u64);
    assert!(served.len() > 10, "{served:?}");
    served.len()
}

/// A counter as the job tells it at its end.
fn counted(sandbox: &Sandbox, name: &str) -> usize {
    let report = sandbox.report(&sandbox.out());
    report["counters"][format!("test,{name}")].as_u64().expect("it was counted") as usize
}

#[test]
fn a_process_serves_the_tasks_of_its_slot() {
    let (sandbox, lines) = sandbox_with_tasks();
    Running::start(&mut served(&sandbox, "serve", "2")).wait().expect_success();
    let tasks = tasks_served(&sandbox, lines);
    assert_eq!(counted(&sandbox, "tasks"), tasks);
    assert!(counted(&sandbox, "processes") <= 2);
    sandbox.assert_no_leftovers();
}

#[test]
fn killed_server_costs_one_attempt_at_most() {
    for wish in ["die", "leave"] {
        let (sandbox, lines) = sandbox_with_tasks();
        Running::start(&mut served(&sandbox, wish, "1")).wait();
        assert_eq!(counted(&sandbox, "tasks"), tasks_served(&sandbox, lines), "{wish}");
        sandbox.assert_no_leftovers();
    }
}

/// Neither the one that works nor the one that waits.
#[test]
fn no_server_outlives_the_engine() {
    for signal in [Signal::INT, Signal::KILL] {
        let (sandbox, lines) = sandbox_with_tasks();
        let mut told = sandbox.fifo("mark.fifo");
        let running = Running::start(&mut served(&sandbox, "hang", "2"));
        // One hangs in its second task, the other has done all others and waits.
        let tasks = (lines * 10_000).div_ceil(1 << 20);
        let servers: BTreeSet<String> = (1..tasks).map(|_| told.read_line()).collect();
        assert_eq!(servers.len(), 2);
        let watched: Vec<Watched> = servers.iter().map(|pid| Watched::new(pid)).collect();
        assert!(watched.iter().all(Watched::lives));
        running.signal(signal);
        running.wait();
        watched.iter().for_each(Watched::wait_gone);
        assert!(!sandbox.out().exists());
    }
}
