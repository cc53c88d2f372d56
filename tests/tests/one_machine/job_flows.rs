//! Steps that are MapReduce jobs and read each other's parts, on this machine.

use blackbox::{Running, Sandbox};
use rustix::process::Signal;
use std::fs;

/// Two jobs, of which the second one has this mapper, and a program. MORE stands for further keys of the first job.
const FLOW: &str = r#"
[[step]]
name = "count"
inputs = ["text"]
MORE
[step.job]
mapper = "builtin:words"
reducer = "builtin:sum"
output = "counts"
partitions = 3
memory = "64M"

[[step]]
name = "how many"
inputs = ["more", "counts/*"]
[step.job]
mapper = '''MAPPER'''
reducer = "builtin:count"
output = "how-many"
partitions = 2
memory = "64M"

[[step]]
name = "all"
command = "sort how-many/* > all"
inputs = ["how-many/*"]
outputs = ["all"]
"#;

const SECOND_FIELD: &str = "awk '{ print $2 }'";

fn with_text() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("wf/text", "a rose is\na rose is a rose\n");
    sandbox.write("wf/more", "x 2\n");
    sandbox
}

fn write(sandbox: &Sandbox, mapper: &str, more: &str) {
    sandbox.write("wf/flow.toml", FLOW.replace("MAPPER", mapper).replace("MORE", more));
}

fn start(sandbox: &Sandbox) -> Running {
    let mut command = sandbox.sailfish();
    command.args(["workflow", "run"]).arg(sandbox.path("wf/flow.toml"));
    Running::start(command.arg("--state").arg(sandbox.state()))
}

/// Runs the workflow. Returns the summary.
#[track_caller]
fn run(sandbox: &Sandbox) -> String {
    start(sandbox).wait().expect_success().story()
}

fn why(sandbox: &Sandbox) -> String {
    sandbox.workflow(&["why", "wf/flow.toml"]).expect_success().text()
}

#[track_caller]
fn check_all(sandbox: &Sandbox) {
    let all = fs::read_to_string(sandbox.path("wf/all")).expect("it was made");
    assert_eq!(all, "2\t2\n3\t2\n");
}

/// Returns the names in the directory of the workflow.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("wf")).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn parts_between_jobs_are_no_files() {
    let sandbox = with_text();
    write(&sandbox, SECOND_FIELD, "");
    let plan = sandbox.sailfish_with(&["workflow", "plan", "wf/flow.toml"]).expect_success().text();
    assert!(plan.contains("count | how many"), "{plan}");
    assert!(!run(&sandbox).contains("skipped"));
    check_all(&sandbox);
    assert_eq!(names(&sandbox), ["all", "flow.toml", "more", "text"]);
    let report = sandbox.look(&["report", "1"]).expect_success().text();
    assert!(report.contains("streamed, never a file"), "{report}");
    let lineage =
        sandbox.look(&["lineage", &sandbox.path("wf/all").display().to_string()]).expect_success().text();
    assert!(lineage.contains("how many") && lineage.contains("text"), "{lineage}");
    assert!(run(&sandbox).contains("3 of them skipped"));
    // Any change within the flow makes all its jobs run, as nothing is left of it.
    sandbox.write("wf/more", "x 3\n");
    let reasons = why(&sandbox);
    assert!(reasons.contains("\"count\": \"how many\" needs counts/part-00000"), "{reasons}");
    assert!(!run(&sandbox).contains("skipped"));
    // With files between the jobs they are skipped one by one.
    sandbox.write("wf/more", "x 2\n");
    write(&sandbox, SECOND_FIELD, "keep = true");
    assert!(!run(&sandbox).contains("skipped"));
    check_all(&sandbox);
    assert!(sandbox.path("wf/counts/part-00002").exists() && !sandbox.path("wf/how-many").exists());
    sandbox.write("wf/more", "x 4\n");
    assert!(run(&sandbox).contains("1 of them skipped"));
}

#[test]
fn failed_jobs_of_flows_name_their_step() {
    let sandbox = with_text();
    write(&sandbox, "sh -c 'echo bad line >&2; exit 7'", "");
    start(&sandbox).wait().expect_failure(7, &["the step \"how many\"", "exit code 7", "bad line"]);
    assert_eq!(names(&sandbox), ["flow.toml", "more", "text"]);
    sandbox.assert_no_leftovers();
    write(&sandbox, SECOND_FIELD, "");
    run(&sandbox);
    check_all(&sandbox);
}

#[test]
fn killed_flows_run_again() {
    let sandbox = with_text();
    let (mut here, mut go) = (sandbox.fifo("here"), sandbox.fifo("go"));
    let root = sandbox.path("").display().to_string();
    write(
        &sandbox,
        &format!("sh -c \"echo here > {root}/here; read line < {root}/go; exec {SECOND_FIELD}\""),
        "",
    );
    let killed = start(&sandbox);
    assert_eq!(here.read_line(), "here");
    killed.signal(Signal::KILL);
    killed.wait();
    let again = start(&sandbox);
    assert_eq!(here.read_line(), "here");
    // The first job has read it.
    sandbox.write("wf/text", "a rose is\na rose is a rose \n");
    for _ in 0..2 {
        go.write_line("go on");
    }
    again.wait().expect_success();
    check_all(&sandbox);
    assert_eq!(names(&sandbox), ["all", "flow.toml", "more", "text"]);
    sandbox.assert_no_leftovers();
    assert!(why(&sandbox).contains("no finished run of it is known"), "{}", why(&sandbox));
}

#[test]
fn temporary_parts_go_with_their_directory() {
    let sandbox = with_text();
    let step = "[[step]]\nname = \"all\"\ncommand = \"sort counts/* > all\"\ninputs = [\"counts/*\"]\noutputs = [\"all\"]\n";
    let job = "[[step]]\nname = \"count\"\ninputs = [\"text\"]\n[step.job]\nmapper = \"builtin:words\"\noutput = \"counts\"\npartitions = 2\nmemory = \"64M\"\n";
    sandbox.write("wf/flow.toml", format!("{job}{step}"));
    run(&sandbox);
    assert_eq!(names(&sandbox), ["all", "flow.toml", "more", "text"]);
    assert!(run(&sandbox).contains("2 of them skipped"));
    // With a part that no step reads, all of them stay.
    sandbox.write("wf/flow.toml", format!("{job}{step}").replace("counts/*\"]", "counts/part-00000\"]"));
    run(&sandbox);
    assert!(sandbox.path("wf/counts/part-00000").exists() && sandbox.path("wf/counts/_SUCCESS").exists());
}
