//! Steps of workflows that are MapReduce jobs, on this machine.

use blackbox::{Running, Sandbox};
use rustix::process::Signal;
use std::fs;

/// Commands before and after a job with three parts.
const COUNT: &str = r#"
[[step]]
name = "lower"
command = "tr A-Z a-z"
stdin = "text"
stdout = "lower"

[[step]]
name = "count"
inputs = ["lower"]
[step.job]
mapper = "builtin:words"
reducer = "builtin:sum"
output = "counts"
partitions = 3
memory = "64M"

[[step]]
name = "most"
command = "cat counts/* | sort -k2,2nr -k1,1 | head -n 2 > most"
inputs = ["counts/*"]
outputs = ["most"]
"#;

fn with_text() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("text", "A rose is\na Rose is a rose\n");
    sandbox
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("a result")
}

/// Runs a workflow of one step, which must be refused before anything runs.
#[track_caller]
fn refused(sandbox: &Sandbox, step: &str, parts: &[&str]) {
    sandbox.write("bad.toml", format!("[[step]]\nname = \"bad\"\n{step}\n"));
    sandbox.workflow(&["run", "bad.toml"]).expect_failure(2, parts);
}

#[test]
fn commands_read_the_parts_of_jobs() {
    let sandbox = with_text();
    sandbox.write("flow.toml", COUNT);
    sandbox.sailfish_with(&["workflow", "check", "flow.toml"]).expect_success();
    let said = sandbox.workflow(&["run", "flow.toml", "--slots", "2"]).expect_success().story();
    assert!(said.contains("3 steps succeeded"), "{said}");
    assert_eq!(read(&sandbox, "most"), "a\t3\nrose\t3\n");
    assert_eq!(
        sandbox.part_names(&sandbox.path("counts")),
        ["part-00000", "part-00001", "part-00002"],
        "parts stay"
    );
    assert!(!sandbox.path("lower").exists(), "it was temporary");
    let listed = sandbox.look(&["jobs", "--steps-of", "1"]).expect_success().text();
    assert!(listed.contains("count") && listed.contains("most"), "{listed}");
}

/// The report and the parts of an earlier run are in the directory, and no input.
#[test]
fn jobs_run_again_and_replace_their_parts() {
    let sandbox = with_text();
    sandbox.write("flow.toml", COUNT);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    sandbox.write("text", "x x\n");
    sandbox.write("flow.toml", COUNT.replace("partitions = 3", "partitions = 2"));
    let why = sandbox.workflow(&["why", "flow.toml", "count"]).expect_success().text();
    assert!(why.contains("its runs are not remembered"), "{why}");
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "most"), "x\t2\n");
    assert_eq!(sandbox.part_names(&sandbox.path("counts")), ["part-00000", "part-00001"]);
}

#[test]
fn failed_mappers_name_their_step() {
    let sandbox = with_text();
    sandbox.write("flow.toml", COUNT.replace("builtin:words", "sh -c 'echo bad line >&2; exit 7'"));
    let failed = sandbox.workflow(&["run", "flow.toml"]);
    failed.expect_failure(7, &["the step \"count\"", "exit code 7", "bad line"]);
    assert!(!sandbox.path("counts").exists() && !sandbox.path("most").exists());
    // The same run with a mapper that works goes on.
    sandbox.write("flow.toml", COUNT);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "most"), "a\t3\nrose\t3\n");
}

#[test]
fn interrupted_run_leaves_nothing_of_its_job() {
    let sandbox = with_text();
    let mut here = sandbox.fifo("here");
    let _never = sandbox.fifo("never");
    let place = text(&sandbox, "");
    let waits = format!("sh -c 'cd {place}; echo here > here; read line < never'");
    sandbox.write("flow.toml", COUNT.replace("builtin:words", &waits));
    let mut command = sandbox.sailfish();
    command.args(["workflow", "run"]).arg(sandbox.path("flow.toml"));
    let run = Running::start(command.arg("--state").arg(sandbox.state()));
    assert_eq!(here.read_line(), "here");
    run.signal(Signal::INT);
    run.wait().expect_failure(130, &["stopped by a signal"]);
    let left = fs::read_dir(sandbox.path("")).expect("a directory").flatten();
    let names: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| !name.contains("counts") && name != "most"), "{names:?}");
    sandbox.write("flow.toml", COUNT);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "most"), "a\t3\nrose\t3\n");
}

#[test]
fn sweeps_and_wildcards_stand_for_jobs() {
    let sandbox = Sandbox::new();
    sandbox.write("data/x.txt", "1 2\n");
    sandbox.write("data/y.txt", "3 3\n");
    sandbox.write(
        "flow.toml",
        r#"
[params]
reduce = "sum"

[[step]]
name = "count {sample}"
each = "data/{sample}.txt"
inputs = ["data/{sample}.txt"]
[step.job]
mapper = "builtin:words"
reducer = "builtin:{reduce}"
output = "counts/{sample}"
memory = "64M"

[[step]]
name = "all"
inputs = ["counts/*/part-*"]
[step.job]
output = "all"
memory = "64M"
"#,
    );
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "all/part-00000"), "1\t1\n2\t1\n3\t2\n");
    let plan = sandbox.sailfish_with(&["workflow", "plan", "flow.toml"]).expect_success().text();
    assert!(plan.contains("count x") && plan.contains("all"), "{plan}");
    let plot = sandbox.sailfish_with(&["workflow", "plot", "flow.toml"]).expect_success().text();
    assert!(plot.contains("map builtin:words, reduce builtin:sum"), "{plot}");
    let exported = sandbox.sailfish_with(&["workflow", "export", "flow.toml"]);
    exported.expect_failure(2, &["\"count x\" is a MapReduce job"]);
}

#[test]
fn rows_are_sorted_in_a_step() {
    let sandbox = Sandbox::new();
    let rows = ["tera", "gen", "--layout", "modern", "--rows", "2000", "--output", "rows", "--memory", "64M"];
    sandbox.look(&rows).expect_success();
    sandbox.write(
        "flow.toml",
        r#"
[[step]]
name = "sort"
inputs = ["rows/part-*"]
[step.job]
input_format = "fixed:100:10"
output_format = "raw"
output = "sorted"
memory = "64M"
"#,
    );
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    let rows = fs::read(sandbox.path("sorted/part-00000")).expect("a part");
    assert_eq!(rows.len(), 2000 * 100);
    let keys: Vec<&[u8]> = rows.chunks(100).map(|row| &row[..10]).collect();
    assert!(keys.is_sorted());
}

fn text(sandbox: &Sandbox, name: &str) -> String {
    sandbox.path(name).display().to_string()
}

#[test]
fn bad_jobs_in_steps_are_refused() {
    let sandbox = with_text();
    sandbox.write("out/mine", "a file of the user\n");
    let job = |job: &str| format!("inputs = [\"text\"]\n[step.job]\n{job}");
    let whole = "mapper = \"builtin:words\"\noutput = \"counts\"";
    for (step, parts) in [
        (job("maper = \"builtin:words\""), ["the job of the step \"bad\"", "`maper`: did you mean `mapper`"]),
        (job("input = \"text\""), ["`input`", "`inputs` of the step"]),
        (job("mapper = \"builtin:words\""), ["\"bad\"", "without an output"]),
        (job("output = \"-\""), ["\"bad\"", "without an output"]),
        (format!("[step.job]\n{whole}"), ["\"bad\"", "without inputs"]),
        (format!("command = \"true\"\n{}", job(whole)), ["\"bad\"", "[step.job] and `command`"]),
        (format!("stdout = \"o\"\n{}", job(whole)), ["\"bad\"", "[step.job] and `stdout`"]),
        (format!("memory = \"1G\"\n{}", job(whole)), ["\"bad\"", "[step.job] and `memory`"]),
        (job(&format!("{whole}\npartitions = 0")), ["partitions = \"0\"", "give 1 to 9999"]),
        (job(&format!("{whole}\npartitions = \"3\"")), ["bad.toml", "partitions"]),
        (job(&format!("{whole}\norder = \"up\"")), ["bad.toml", "numeric"]),
        (job("mapper = \"builtin:wrds\"\noutput = \"counts\""), ["the job of the step \"bad\"", "--mapper"]),
        (job("mapper = \"./none\"\noutput = \"counts\""), ["the job of the step \"bad\"", "--mapper"]),
        (job("output = \"../counts\""), ["\"bad\"", "without `..`"]),
        (job("output = \"out\""), ["\"bad\" cannot begin", "out"]),
        (format!("inputs = [\"files:a\"]\n[step.job]\n{whole}"), ["is a job and reads files:a", "`cp`"]),
        (format!("inputs = [\"none\"]\n[step.job]\n{whole}"), ["reads", "none, which does not exist"]),
    ] {
        refused(&sandbox, &step, &parts);
    }
    // Files with holes, of more bytes than a step may read.
    for name in ["huge-1", "huge-2", "huge-3"] {
        let huge = fs::File::create(sandbox.path(name)).expect("a file");
        huge.set_len((16 << 40) - 4096).expect("a file with holes");
    }
    let reads = format!("inputs = [\"huge-*\"]\n[step.job]\n{whole}");
    refused(&sandbox, &reads, &["\"bad\" cannot begin", "sailfish run"]);
    assert_eq!(read(&sandbox, "out/mine"), "a file of the user\n");
    refused(
        &sandbox,
        &format!(
            "{}\n[[step]]\nname = \"read\"\ncommand = \"true\"\ninputs = [\"counts/_SUCCESS\"]",
            job(whole)
        ),
        &["\"read\" reads", "no part of the output of \"bad\""],
    );
}
