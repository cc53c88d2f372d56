//! Streams between steps that their programs open by name.

use blackbox::{Running, Sandbox};
use std::fs;

/// Returns a step. `more` has its other keys, as in `inputs = ["a"]`.
fn step(name: &str, command: &str, more: &[&str]) -> String {
    format!("[[step]]\nname = \"{name}\"\ncommand = \'\'\'{command}\'\'\'\n{}\n", more.join("\n"))
}

fn run(sandbox: &Sandbox, slots: u32) -> Running {
    let mut command = sandbox.sailfish();
    let slots = slots.to_string();
    command.current_dir(sandbox.path("")).args([
        "workflow",
        "run",
        "flow.toml",
        "--slots",
        &slots,
        "--state",
    ]);
    Running::start(command.arg(sandbox.state()))
}

/// Runs a workflow with streams, and without any. Returns the results of both, `out` and `kept` as far as it is there.
fn run_both(text: &str) -> Vec<[String; 2]> {
    let run = |slots| {
        let sandbox = Sandbox::new();
        sandbox.write("flow.toml", text);
        run(&sandbox, slots).wait().expect_success();
        let names =
            fs::read_dir(sandbox.path("")).expect("it is there").flatten().map(|entry| entry.file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        let is_left = |name: &&String| ["a", "b"].contains(&name.as_str()) || name.contains("stream");
        assert_eq!(names.iter().find(is_left), None, "{names:?}");
        ["out", "kept"].map(|name| fs::read_to_string(sandbox.path(name)).unwrap_or_default())
    };
    vec![run(4), run(1)]
}

/// Command that shows whether files are pipes.
fn shows(names: &str) -> String {
    format!("for file in {names}; do test -p $file && echo pipe || echo file; done")
}

#[test]
fn two_streams_are_pasted_by_name() {
    let text = step("a", "seq 3 > a", &["outputs = [\"a\"]", "streams = [\"a\"]"])
        + &step("b", "seq 4 6", &["stdout = \"b\""])
        + &step(
            "out",
            "paste -d, a b > out",
            &["inputs = [\"a\", \"b\"]", "streams = [\"a\", \"b\"]", "outputs = [\"out\"]"],
        );
    let results = run_both(&text);
    assert_eq!(results, [["1,4\n2,5\n3,6\n", ""]; 2]);
    // The test is one of pipes where they are.
    let sandbox = Sandbox::new();
    let looks = text.replace("paste", &format!("{}\npaste", shows("a b")));
    sandbox.write("flow.toml", looks.replace("seq 3", "test -p a\nseq 3"));
    let shown = run(&sandbox, 4).wait().expect_success();
    assert_eq!(shown.text(), "pipe\npipe\n", "{}", shown.story());
    let plan = sandbox.workflow(&["plan", "flow.toml", "--slots", "4"]).expect_success();
    assert!(plan.text().contains("a") && plan.text().lines().count() >= 1, "{}", plan.text());
    // It is remembered like a workflow with files.
    let why = sandbox.workflow(&["why", "flow.toml"]).expect_success();
    assert_eq!(why.text(), "all steps are skipped, as nothing changed for them\n");
    let without = fs::read_to_string(sandbox.path("flow.toml"))
        .expect("it is there")
        .replace("\"a\", \"b\"]\noutputs", "\"a\"]\noutputs");
    sandbox.write("flow.toml", without);
    let why = sandbox.workflow(&["why", "flow.toml"]).expect_success();
    assert!(why.text().contains("\"out\""), "{}", why.text());
}

#[test]
fn names_lead_to_standard_streams_and_back() {
    let text = step("a", "seq 100000 > a", &["outputs = [\"a\"]", "streams = [\"a\"]"])
        + &step("b", "sort -rn", &["stdin = \"a\"", "stdout = \"b\""])
        + &step(
            "out",
            "head -n 2 b > out; tail -n 1 b >> out || true",
            &["inputs = [\"b\"]", "outputs = [\"out\"]"],
        );
    let [streamed, filed] = &run_both(&text)[..] else { panic!("two runs") };
    assert_eq!((streamed, streamed[0].as_str()), (filed, "100000\n99999\n1\n"));
    let by_name = text.replace("inputs = [\"b\"]", "inputs = [\"b\"]\nstreams = [\"b\"]");
    let by_name =
        by_name.replace("head -n 2 b > out; tail -n 1 b >> out || true", "sed -n \'1,2p;$p\' b > out");
    assert_eq!(run_both(&by_name), [["100000\n99999\n1\n", ""]; 2]);
}

/// The reader wants the stream first that is written last.
#[test]
fn standard_stream_waits_for_a_named_one() {
    let text = step(
        "write",
        "seq 300000; echo end > b",
        &["stdout = \"a\"", "outputs = [\"b\"]", "streams = [\"b\"]"],
    ) + &step(
        "out",
        "cat b - | sed -n \'1,3p;$p\' > out",
        &["stdin = \"a\"", "inputs = [\"b\"]", "streams = [\"b\"]", "outputs = [\"out\"]"],
    );
    assert_eq!(run_both(&text), [["end\n1\n2\n300000\n", ""]; 2]);
}

/// One output stays, and is read by a stream and as a finished file; the readers take two streams in opposite order.
#[test]
fn kept_outputs_stream_and_stay() {
    let write = "seq 300000 > kept; seq 300000 > b; echo end >> kept";
    let text =
        step("write", write, &["outputs = [\"kept\", \"b\"]", "streams = [\"kept\", \"b\"]", "keep = true"])
            + &step(
                "one",
                "cat kept b | cksum > a",
                &["inputs = [\"kept\", \"b\"]", "streams = [\"kept\", \"b\"]", "outputs = [\"a\"]"],
            )
            + &step(
                "two",
                "cat b kept | cksum",
                &["inputs = [\"kept\", \"b\"]", "streams = [\"kept\", \"b\"]", "stdout = \"c\""],
            )
            + &step(
                "last",
                "cat a c > out; tail -n 1 kept >> out",
                &["inputs = [\"a\", \"c\", \"kept\"]", "outputs = [\"out\"]"],
            );
    let text = text
        .replace("\"b\"", "\"d\"")
        .replace("> b", "> d")
        .replace("kept b", "kept d")
        .replace("cat b", "cat d");
    let [streamed, filed] = &run_both(&text)[..] else { panic!("two runs") };
    assert_eq!(streamed, filed);
    assert!(streamed[0].ends_with("\nend\n") && streamed[1].ends_with("\n300000\nend\n"), "{streamed:?}");
}

#[test]
fn misused_streams_fail_with_advice() {
    let fails = |write: &str, read: &str, code: i32, texts: &[&str]| {
        let sandbox = Sandbox::new();
        let text = step("a", write, &["outputs = [\"a\"]", "streams = [\"a\"]"])
            + &step("out", read, &["inputs = [\"a\"]", "streams = [\"a\"]", "stdout = \"out\""]);
        sandbox.write("flow.toml", text);
        run(&sandbox, 4).wait().expect_failure(code, texts);
        assert!(!sandbox.path("out").exists() && !sandbox.path("a").exists());
    };
    fails(
        "seq 3 > a",
        "cat a a",
        1,
        &["\"a | out\"", "a stream can be opened once: leave a out of the streams"],
    );
    fails(
        "seq 3 > b; mv b a",
        "cat a",
        1,
        &["\"a | out\"", "has removed the stream a or put a file in its place"],
    );
    fails("true", "cat a", 1, &["its output a is missing"]);
    fails("seq 3 > a; exit 7", "cat a", 7, &["exit code 7"]);
    fails("cat /dev/zero > a", "exit 8", 8, &["exit code 8"]);
}
