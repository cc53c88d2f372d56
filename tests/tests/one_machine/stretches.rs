//! Programs that read files by themselves: the engine tells them of stretches, which cover each file.

use blackbox::flow::{start_here, write_flow};
use blackbox::{Random, Sandbox, frames_program, gzip};
use std::collections::BTreeMap;

/// A mapper that puts out a pair for each stretch: the name of the file with the offset, and the bytes in hexadecimal digits.
const PROGRAM: &str = r#"
_, job = frame()
assert json.loads(job)["input"] == "stretches", job
while True:
    kind, payload = frame()
    if kind == "E":
        break
    offset, which, n = struct.unpack_from("<QII", payload)
    stretch = json.loads(payload[16 + n:])
    path = payload[16:16 + n].decode()
    assert list(stretch) == ["path", "offset", "length", "size"] and payload.count(b"\n") == 1, stretch
    assert (stretch["path"], stretch["offset"]) == (path, offset), stretch
    assert os.path.isabs(path) and stretch["size"] == os.path.getsize(path), stretch
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(stretch["length"])
    assert len(data) == stretch["length"], stretch
    key, value = f"{os.path.basename(path)} {offset} {which}".encode(), data.hex().encode()
    put("P", struct.pack("<3I", 1, len(key), len(value)) + key + value)
put("E", b"")
"#;

/// Two plain files of more than one stretch, one of which is no text at all, a small one, and one that looks compressed.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut random = Random::new(3);
    let mut files = BTreeMap::new();
    files.insert("a.bin".to_string(), random.bytes(2_500_001));
    files.insert("b b.txt".to_string(), b"no end of line".repeat(100_000));
    files.insert("small".to_string(), b"x".to_vec());
    files.insert("z.bin".to_string(), gzip(&random.bytes(2_000_000)));
    files
}

#[test]
fn programs_see_every_byte_of_every_file_once() {
    let sandbox = Sandbox::new();
    sandbox.write("program.py", frames_program(PROGRAM));
    let files = files();
    files.iter().for_each(|(name, bytes)| drop(sandbox.write(&format!("in/{name}"), bytes)));
    sandbox.write("in/empty", "");
    let mapper = ["--exchange", "frames", "--file", "program.py", "--mapper", "python3 program.py"];
    let inputs = ["--input", "in/small", "in", "--input-format", "stretches", "--memory", "64M"];
    sandbox.run_job(&[&inputs[..], &mapper].concat()).expect_success();
    let mut found: BTreeMap<(String, String), BTreeMap<usize, Vec<u8>>> = BTreeMap::new();
    for line in sandbox.output_lines(&sandbox.out()) {
        let (key, digits) = line.split_once('\t').expect("KEY TAB DIGITS");
        let words: Vec<&str> = key.rsplitn(3, ' ').collect();
        let (which, offset, name) = (words[0], words[1].parse().expect("an offset"), words[2]);
        let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("digits");
        let of_file = found.entry((which.to_string(), name.to_string())).or_default();
        assert!(of_file.insert(offset, bytes).is_none(), "{key} comes twice");
    }
    assert!(found[&("1".to_string(), "a.bin".to_string())].len() > 1, "it is not cut");
    assert_eq!(found[&("1".to_string(), "z.bin".to_string())].len(), 1, "it looks compressed");
    let expected = files.iter().map(|(name, bytes)| (("1".to_string(), name.clone()), bytes.clone()));
    let small = (("0".to_string(), "small".to_string()), b"x".to_vec());
    let expected: BTreeMap<(String, String), Vec<u8>> = expected.chain([small]).collect();
    let stretches: usize = found.values().map(BTreeMap::len).sum();
    for stretches in found.values() {
        let ends = stretches.iter().map(|(offset, bytes)| offset + bytes.len());
        assert!(stretches.keys().skip(1).copied().eq(ends.take(stretches.len() - 1)), "stretches overlap");
    }
    let joined =
        found.into_iter().map(|(file, stretches)| (file, stretches.into_values().flatten().collect()));
    assert!(joined.collect::<BTreeMap<(String, String), Vec<u8>>>() == expected);
    let report = sandbox.report(&sandbox.out());
    let bytes: usize = expected.values().map(Vec::len).sum();
    assert_eq!(report["input"]["bytes"].as_u64(), Some(bytes as u64));
    assert_eq!(report["input"]["records"].as_u64(), Some(stretches as u64));
    sandbox.assert_no_leftovers();
}

#[test]
fn line_programs_and_built_ins_get_the_line() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a", "four");
    let path = sandbox.path("in/a").canonicalize().expect("it is there");
    let expected = format!("{{\"path\":\"{}\",\"offset\":0,\"length\":4,\"size\":4}}\n", path.display());
    for mapper in [&["--mapper", "cat", "--map-only"][..], &["--mapper", "builtin:grep:four|size"], &[]] {
        let args =
            ["--input", path.to_str().expect("a plain path"), "--input-format", "stretches", "--overwrite"];
        sandbox.run_job(&[&args[..], mapper].concat()).expect_success();
        assert_eq!(String::from_utf8_lossy(&sandbox.concatenated(&sandbox.out())), expected, "{mapper:?}");
    }
}

#[test]
fn a_file_that_changed_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a", vec![b'a'; 1_500_000]);
    let (mut started, mut go_on) = (sandbox.fifo("started"), sandbox.fifo("go_on"));
    let mapper = format!("sh -c 'echo here > {}; read line < {}; exec cat'", started.text(), go_on.text());
    let args = ["--input", "in", "--input-format", "stretches", "--slots", "1", "--memory", "64M"];
    let running = sandbox.start_job(&[&args[..], &["--mapper", &mapper]].concat());
    started.read_line();
    // The first of two stretches has been told.
    sandbox.write("in/a", vec![b'b'; 1_500_001]);
    (0..16).for_each(|_| go_on.write_line("go"));
    running.wait().expect_failure(2, &["in/a: file changed during the run"]);
    sandbox.assert_nothing_left();
}

const FLOW: &str = r#"
input_format = "stretches"
[[stage]]
name = "first"
input = "in"
[[stage]]
name = "second"
from = "first"
output = "out"
"#;

#[test]
fn stretches_need_files_with_names() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let stdin = sandbox.run_job(&["--input", "-", "--input-format", "stretches"]);
    stdin.expect_failure(2, &["--input - does not go with --input-format stretches"]);
    write_flow(&sandbox, "flow.toml", FLOW, "out");
    let flow = start_here(&sandbox, "flow.toml").wait();
    flow.expect_failure(2, &["the stage \"second\"", "`from` does not go with --input-format stretches"]);
}
