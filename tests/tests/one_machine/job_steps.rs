//! Steps of workflows that are MapReduce jobs, on this machine.

use blackbox::{Running, Sandbox};
use rustix::process::Signal;
use std::fs;
use std::process::Command;

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
keep = true
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
        "it has `keep`"
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
    assert!(why.contains("its command or the names of its files changed"), "{why}");
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "most"), "x\t2\n");
    assert_eq!(sandbox.part_names(&sandbox.path("counts")), ["part-00000", "part-00001"]);
}

/// Runs the workflow; the end of its summary must be as expected.
#[track_caller]
fn check_run(sandbox: &Sandbox, options: &[&str], expected: &str) {
    let said = sandbox.workflow(&[&["run", "flow.toml"], options].concat()).expect_success().story();
    let end = said.split_once("succeeded").map(|(_, end)| end.trim()).unwrap_or_default();
    assert!(end.starts_with(expected) && (!expected.is_empty() || !end.contains("skipped")), "{said}");
}

#[track_caller]
fn check_why(sandbox: &Sandbox, step: &str, expected: &str) {
    let why = sandbox.workflow(&["why", "flow.toml", step]).expect_success().text();
    assert!(why.contains(expected), "{why}");
}

#[test]
fn unchanged_jobs_are_skipped() {
    let sandbox = with_text();
    sandbox.write("flow.toml", COUNT);
    check_run(&sandbox, &[], "");
    check_run(&sandbox, &["--slots", "1"], ", 3 of them skipped");
    sandbox.write("flow.toml", COUNT.replace("64M", "80M"));
    sandbox.write("text", read(&sandbox, "text"));
    check_run(&sandbox, &[], ", 3 of them skipped");
    let jobs = sandbox.look(&["jobs", "--steps-of", "1", "--json"]).expect_success().json();
    let jobs = jobs.as_array().expect("a list").iter().filter(|job| job["name"] == "count");
    assert_eq!(jobs.count(), 1);
    assert!(!sandbox.path("lower").exists(), "it stays removed");
    sandbox.write("flow.toml", COUNT.replace("[step.job]", "cache = false\n[step.job]"));
    check_run(&sandbox, &[], "");
    check_why(&sandbox, "count", "its runs are not remembered");
}

#[test]
fn changed_parts_are_made_again() {
    let sandbox = with_text();
    sandbox.write("flow.toml", COUNT);
    check_run(&sandbox, &[], "");
    let parts = ["part-00000", "part-00001", "part-00002"].map(|part| format!("counts/{part}"));
    let full = parts.iter().find(|part| !read(&sandbox, part).is_empty()).expect("a part with records");
    let before = read(&sandbox, full);
    sandbox.write(full, before.to_uppercase());
    check_why(&sandbox, "count", &format!("{full} was changed"));
    // The temporary file is made again, and the command after the job has the same input as before.
    check_run(&sandbox, &[], ", 1 of them skipped");
    assert_eq!(read(&sandbox, full), before);
    fs::remove_file(sandbox.path(full)).expect("a part");
    check_why(&sandbox, "count", &format!("{full} is gone"));
    check_run(&sandbox, &[], ", 1 of them skipped");
    fs::remove_dir_all(sandbox.path("counts")).expect("a directory");
    check_run(&sandbox, &[], ", 1 of them skipped");
    assert_eq!(read(&sandbox, "most"), "a\t3\nrose\t3\n");
}

#[test]
fn changed_functions_make_jobs_run_again() {
    let sandbox = with_text();
    let step = |mapper: &str, more: &str| {
        let job = format!("mapper = '''{mapper}'''\noutput = \"out\"\nmemory = \"64M\"\n{more}\n");
        sandbox.write("flow.toml", format!("[[step]]\nname = \"a\"\ninputs = [\"text\"]\n[step.job]\n{job}"));
    };
    sandbox.script("map.sh", "#!/bin/sh\nexec tr a x\n");
    sandbox.write("beside", "a b");
    let again = |reason: &str, expected: &str| {
        check_why(&sandbox, "a", reason);
        check_run(&sandbox, &[], "");
        assert_eq!(read(&sandbox, "out/part-00000"), expected);
        check_run(&sandbox, &[], ", 1 of them skipped");
    };
    step("./map.sh", "");
    again("no finished run", "A rose is\nx Rose is x rose\n");
    sandbox.script("map.sh", "#!/bin/sh\nexec tr a y\n");
    again("map.sh changed", "A rose is\ny Rose is y rose\n");
    sandbox.script("map.sh", "#!/bin/bash\nexec tr a y\n");
    again("map.sh changed", "A rose is\ny Rose is y rose\n");
    step("sh -c \"tr \\$(cat beside)\"", "file = [\"beside\"]");
    again("its command", "A rose is\nb Rose is b rose\n");
    sandbox.write("beside", "a c");
    again("beside changed", "A rose is\nc Rose is c rose\n");
    step("sh -c \"tr \\$(cat beside)\"", "file = [\"beside\"]\nreducer = \"builtin:count\"");
    again("its command", "A rose is\t1\nc Rose is c rose\t1\n");
    // A file that the step does not declare.
    let undeclared = text(&sandbox, "beside");
    step(&format!("sh -c \"cat {undeclared} && cat\""), "");
    let refused = read(&sandbox, "flow.toml");
    sandbox
        .workflow(&["run", "flow.toml"])
        .expect_failure(1, &["may read only the files that it declares", "`reads`"]);
    for (key, counts) in [("reads", false), ("environment", true)] {
        sandbox
            .write("flow.toml", refused.replace("[step.job]", &format!("{key} = [\"beside\"]\n[step.job]")));
        check_run(&sandbox, &[], "");
        sandbox.write("beside", key);
        check_run(&sandbox, &[], if counts { "" } else { ", 1 of them skipped" });
    }
    sandbox.write("flow.toml", refused.replace("[step.job]", "environment = [\"none\"]\n[step.job]"));
    sandbox.workflow(&["run", "flow.toml"]).expect_failure(2, &["\"a\" cannot begin", "none"]);
}

#[test]
fn inputs_that_change_fail_their_job() {
    let sandbox = Sandbox::new();
    let (mut here, mut go) = (sandbox.fifo("here"), sandbox.fifo("go"));
    let root = text(&sandbox, "");
    let reducer = format!("sh -c \"echo here > {root}/here; read line < {root}/go; cat\"");
    let job = format!("reducer = '''{reducer}'''\noutput = \"out\"\nmemory = \"64M\"\n");
    sandbox.write("wf/flow.toml", format!("[[step]]\nname = \"a\"\ninputs = [\"text\"]\n[step.job]\n{job}"));
    let mut start = || {
        let mut command = sandbox.sailfish();
        command.args(["workflow", "run"]).arg(sandbox.path("wf/flow.toml"));
        let run = Running::start(command.arg("--state").arg(sandbox.state()));
        assert_eq!(here.read_line(), "here");
        run
    };
    let why = || sandbox.workflow(&["why", "wf/flow.toml"]).expect_success().text();
    sandbox.write("wf/text", "a\n");
    let run = start();
    // The maps have read it.
    sandbox.write("wf/text", "b\n");
    go.write_line("go on");
    run.wait().expect_failure(2, &["wf/text was changed during the run"]);
    assert!(!sandbox.path("wf/out").exists());
    let run = start();
    // Another file with the same bytes and time takes its place: it may have had other bytes when the maps read it.
    let time = sandbox.path("wf/text").metadata().and_then(|facts| facts.modified()).expect("a time");
    sandbox.write("wf/new", "b\n");
    let new = fs::File::options().append(true).open(sandbox.path("wf/new")).expect("a file");
    new.set_modified(time).expect("a time that can be set");
    fs::rename(sandbox.path("wf/new"), sandbox.path("wf/text")).expect("a file");
    go.write_line("go on");
    run.wait().expect_success();
    assert!(why().contains("no finished run of it is known"), "{}", why());
    let run = start();
    go.write_line("go on");
    run.wait().expect_success();
    assert!(why().contains("all steps are skipped"), "{}", why());
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
    // It reads a file that it does not declare.
    let waits = COUNT.replace("builtin:words", &waits).replace("[step.job]", "cache = false\n[step.job]");
    sandbox.write("flow.toml", waits);
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

/// A step that stores a compressed file, and a job that reads it with two files that were stored before.
const STORED: &str = r#"
[[step]]
name = "pack"
command = "gzip -c more > packed"
inputs = ["more"]
outputs = ["files:made/packed"]
keep = true

[[step]]
name = "count"
inputs = ["files:texts/plain", "files:texts/packed", "files:made/packed"]
[step.job]
mapper = "builtin:words"
reducer = "builtin:sum"
output = "counts"
memory = "64M"
"#;

#[test]
fn jobs_read_stored_files() {
    let sandbox = with_text();
    sandbox.write("flow.toml", STORED);
    sandbox.write("more", "x y\n");
    let put = |text: &str| {
        sandbox.write("plain", text);
        sandbox.files().done(&["put", "plain", "texts/plain", "--parts", "3", "--records", "lines"]);
    };
    put("a b\nb c\nc d\n");
    sandbox.write("packed.sh", "printf 'd e\n' | gzip -c > packed.gz\n");
    let packed = Command::new("sh").arg(sandbox.path("packed.sh")).current_dir(sandbox.path("")).status();
    assert!(packed.expect("gzip runs").success());
    sandbox.files().done(&["put", "packed.gz", "texts/packed"]);
    check_run(&sandbox, &[], "");
    assert_eq!(read(&sandbox, "counts/part-00000"), "a\t1\nb\t2\nc\t2\nd\t2\ne\t1\nx\t1\ny\t1\n");
    check_run(&sandbox, &[], ", 2 of them skipped");
    put("a a\n");
    check_why(&sandbox, "count", "files:texts/plain changed");
    check_run(&sandbox, &[], ", 1 of them skipped");
    // The other step is skipped, and its file is read again.
    assert_eq!(read(&sandbox, "counts/part-00000"), "a\t2\nd\t1\ne\t1\nx\t1\ny\t1\n");
    let down = sandbox.look(&["lineage", "files:made/packed", "--down"]).expect_success().text();
    assert!(down.contains("count"), "{down}");
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
    check_run(&sandbox, &[], "");
    check_run(&sandbox, &[], ", 1 of them skipped");
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
        (format!("inputs = [\"files:a\"]\n[step.job]\n{whole}"), ["files:a", "no files are stored"]),
        (job("mapper = \"builtin:words\"\noutput = \"files:a\""), ["is a job and writes files:a", "`cat`"]),
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
