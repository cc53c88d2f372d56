//! Steps of workflows on this machine that read stored files.

use blackbox::{Random, Running, Sandbox, could_not_run};
use std::fs;

/// A pipeline and a step that read the same stored file. Each step says that it runs.
const STEPS: &str = r#"
[[step]]
name = "count"
command = "echo count ran; wc -l < list.txt > count"
inputs = ["files:texts/list.txt"]
outputs = ["count"]

[[step]]
name = "upper"
command = "tr a-z A-Z"
stdin = "files:texts/list.txt"
stdout = "upper"

[[step]]
name = "first"
command = "echo first ran >&2; head -n 1"
stdin = "upper"
stdout = "first"

[[step]]
name = "other"
command = "echo other ran; cat in > other"
inputs = ["in"]
outputs = ["other"]
"#;

/// Runs a workflow of one step, which must be refused before anything runs.
#[track_caller]
fn refused(sandbox: &Sandbox, step: &str, parts: &[&str]) {
    sandbox.write("bad.toml", format!("[[step]]\nname = \"bad\"\n{step}\n"));
    sandbox.workflow(&["run", "bad.toml"]).expect_failure(2, parts);
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("a result")
}

fn put(sandbox: &Sandbox, text: &str) {
    sandbox.write("list.txt", text);
    sandbox.files().done(&["put", "list.txt", "texts/list.txt", "--keep-versions", "9"]);
}

#[test]
fn steps_follow_versions_of_stored_files() {
    let sandbox = Sandbox::new();
    sandbox.write("flow.toml", STEPS);
    sandbox.write("in", "in\n");
    put(&sandbox, "b\na\n");
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert!(said.contains("count ran\n") && said.contains("other ran\n"), "{said}");
    assert_eq!((read(&sandbox, "count").trim(), read(&sandbox, "first").as_str()), ("2", "B\n"));
    let again = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert!(again.story().contains("4 steps succeeded, 4 of them skipped"), "{}", again.story());
    // A copy of the same bytes under the name changes nothing.
    sandbox.files().done(&["cp", "texts/list.txt", "texts/copy.txt"]);
    sandbox.files().done(&["mv", "texts/copy.txt", "texts/list.txt"]);
    let again = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert!(again.story().contains("4 of them skipped"), "{}", again.story());
    put(&sandbox, "c\nb\na\n");
    let why = sandbox.workflow(&["why", "flow.toml"]).expect_success().text();
    assert!(why.contains("\"count\": files:texts/list.txt changed") && !why.contains("other"), "{why}");
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert_eq!(said, "count ran\n");
    assert_eq!((read(&sandbox, "count").trim(), read(&sandbox, "first").as_str()), ("3", "C\n"));
    let down = sandbox.look(&["lineage", "files:texts/list.txt", "--down"]).expect_success().text();
    assert!(["count", "upper", "first"].iter().all(|step| down.contains(step)), "{down}");
    put(&sandbox, "d\n");
    let rerun = sandbox.look(&["rerun", "--downstream", "files:texts/list.txt"]).expect_success();
    assert!(rerun.story().contains("1 of them skipped"), "{}", rerun.story());
    assert_eq!(read(&sandbox, "first"), "D\n");
}

/// A step for each partition of a file, and one that gathers what they wrote.
const BY_PARTITION: &str = r#"
[[step]]
name = "count {partition}"
each = "files:logs/{day}"
per = "partition"
command = "echo part {partition} of {day} ran; wc -l < {day} > counts/{day}.{partition}"
inputs = ["files:logs/{day}"]
outputs = ["counts/{day}.{partition}"]
keep = true

[[step]]
name = "sum"
command = "cat counts/* | awk '{ sum += $1 } END { print sum }'"
inputs = ["counts/*"]
stdout = "sum"
"#;

#[test]
fn steps_run_once_for_each_partition() {
    let sandbox = Sandbox::new();
    sandbox.write("flow.toml", BY_PARTITION);
    let put = |name: &str, lines: u32, parts: &str| {
        sandbox.write("day", (0..lines).map(|line| format!("{line}\n")).collect::<String>());
        sandbox.files().done(&["put", "day", name, "--parts", parts, "--records", "lines"]);
    };
    put("logs/monday", 1000, "3");
    put("logs/tuesday", 50, "1");
    let check = sandbox.sailfish_with(&["workflow", "check", "flow.toml"]);
    // It looks at the stored files of the default state directory, which has none.
    check.expect_failure(2, &["files:logs/{day}", "no stored file matches"]);
    let checked = sandbox.workflow(&["check", "flow.toml"]).expect_success().text();
    assert!(checked.contains("5 steps"), "{checked}");
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert_eq!(said.lines().filter(|line| line.ends_with("ran")).count(), 4, "{said}");
    assert_eq!(read(&sandbox, "sum"), "1050\n");
    let again = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert!(again.story().contains("5 steps succeeded, 5 of them skipped"), "{}", again.story());
    put("logs/tuesday", 70, "2");
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert!(said.contains("part 1 of tuesday ran") && !said.contains("monday"), "{said}");
    assert_eq!(read(&sandbox, "sum"), "1070\n");
    let down = sandbox.look(&["lineage", "files:logs/monday", "--down"]).expect_success().text();
    assert!(["count 0", "count 2", "sum"].iter().all(|step| down.contains(step)), "{down}");
}

#[test]
fn stored_files_are_matched_and_gathered() {
    let sandbox = Sandbox::new();
    for (name, text) in
        [("texts/en/a", "1\n"), ("texts/en/b", "2\n"), ("texts/de/a", "3\n"), ("texts/c", "4\n")]
    {
        sandbox.write("text", text);
        sandbox.files().done(&["put", "text", name]);
    }
    sandbox.write(
        "flow.toml",
        r#"
[[step]]
name = "copy {language}"
each = "files:texts/{language}/a"
command = "cat a > copies/{language}"
inputs = ["files:texts/{language}/a"]
outputs = ["files:copies/{language}"]

[[step]]
name = "all"
command = "cat a b de en > all"
inputs = ["files:texts/en/*", "files:copies/*"]
outputs = ["all"]
"#
        .replace("> copies/", "> "),
    );
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "all"), "1\n2\n3\n1\n");
}

#[test]
fn old_versions_are_read_by_name() {
    let sandbox = Sandbox::new();
    put(&sandbox, "old\n");
    put(&sandbox, "new\n");
    let listed = sandbox.files().done(&["versions", "texts/list.txt", "--json"]);
    let oldest: serde_json::Value =
        serde_json::from_str(listed.lines().next_back().expect("a line")).expect("JSON");
    let old = &oldest["version"];
    sandbox.write(
        "flow.toml",
        format!(
            "[[step]]\nname = \"a\"\nwords = [\"cat\", \"list.txt\"]\ninputs = [\"files:texts/list.txt@{old}\"]\nstdout = \
             \"a\"\n",
        ),
    );
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "a"), "old\n");
}

#[test]
fn bad_stored_inputs_are_refused_by_name() {
    let sandbox = Sandbox::new();
    put(&sandbox, "a\n");
    let with = |files: &str| format!("command = \"true\"\n{files}");
    for (files, parts) in [
        ("inputs = [\"files:none\"]", ["files:none", "no file or directory none"]),
        ("inputs = [\"files:texts\"]", ["files:texts", "is a directory"]),
        ("inputs = [\"files:none/*\"]", ["files:none/*", "no stored file matches"]),
        ("each = \"files:none/{k}\"", ["files:none/{k}", "no stored file matches"]),
        ("each = \"texts/{k}\"\nper = \"partition\"", ["texts/{k}", "needs stored files"]),
        ("per = \"partition\"", ["partition", "give `each` the stored file"]),
        ("per = \"partitions\"", ["partitions", "did you mean `partition`"]),
        ("each = \"files:texts/list.txt\"\nper = \"partition\"", ["texts/list.txt", "among its inputs"]),
        ("each = \"files:texts/{partition}\"\nper = \"partition\"", ["{partition}", "choose another name"]),
        ("outputs = [\"o\"]\nreads = [\"files:texts/list.txt\"]", ["reads", "belong into `inputs`"]),
        ("inputs = [\"files:texts/list.txt@9\"]", ["files:texts/list.txt@9", "version 9 does not exist"]),
        ("outputs = [\"files:texts/../new\"]", ["files:texts/../new", "without a version"]),
        ("outputs = [\"files:texts/new@3\"]", ["files:texts/new@3", "without a version"]),
        ("outputs = [\"files:o\"]\nin_place = true", ["files:o", "in_place"]),
        ("inputs = [\"files:o\"]\noutputs = [\"files:o\"]", ["files:o", "cannot change its input"]),
        ("inputs = [\"files:texts/list.txt\", \"list.txt\"]", ["list.txt", "declared twice"]),
    ] {
        refused(&sandbox, &with(files), &parts);
    }
    sandbox.write("flow.toml", STEPS);
    sandbox.write("in", "in\n");
    let exported =
        Running::start(sandbox.sailfish().args(["workflow", "export"]).arg(sandbox.path("flow.toml")));
    exported.wait().expect_failure(2, &["files:texts/list.txt", "\"count\""]);
    // A specification without pins is refused by the server.
    let program = serde_json::json!({
        "words": ["true"], "directory": sandbox.path(""),
        "inputs": [{"name": "a", "path": "/dev/../dev/null", "content": "00".repeat(32)}],
    });
    let spec = serde_json::json!({ "steps": [{ "name": "a", "program": program }] });
    sandbox.write("steps.json", spec.to_string());
    let mut submit = sandbox.sailfish();
    submit.args(["submit", "--kind", "workflow", "--state"]).arg(sandbox.state());
    Running::start(submit.arg("--spec").arg(sandbox.path("steps.json"))).wait().expect_failure(2, &["\"a\""]);
}

#[test]
fn programs_cannot_change_stored_inputs() {
    let sandbox = Sandbox::new();
    put(&sandbox, "a\n");
    let step = "[[step]]\nname = \"bad\"\ncommand = \"chmod u+w list.txt; echo b >> list.txt; touch out\"\n\
                inputs = [\"files:texts/list.txt\"]\noutputs = [\"out\"]\n";
    sandbox.write("flow.toml", step);
    sandbox.workflow(&["run", "flow.toml"]).expect_failure(1, &["files:texts/list.txt", "changed"]);
    assert!(!sandbox.path("out").exists(), "nothing of it counts");
    assert_eq!(sandbox.files().done(&["cat", "texts/list.txt"]), "a\n");
}

/// Steps that write stored files and read those of each other. Each step says that it runs.
const OUTPUTS: &str = r#"
[[step]]
name = "upper"
command = "echo upper ran >&2; tr a-z A-Z < text > all"
inputs = ["text"]
outputs = ["files:out/all"]

[[step]]
name = "count"
command = "echo count ran >&2; wc -l"
stdin = "files:out/all"
stdout = "files:out/count"

[[step]]
name = "copy"
command = "echo copy ran >&2; cat all count > copy"
inputs = ["files:out/all", "files:out/count"]
outputs = ["copy"]
"#;

#[test]
fn stored_outputs_pass_between_steps() {
    let sandbox = Sandbox::new();
    sandbox.write("flow.toml", OUTPUTS);
    sandbox.write("text", "a\nb\n");
    let run = || sandbox.workflow(&["run", "flow.toml"]);
    let said = run().expect_success().story();
    assert!(["upper ran", "count ran", "copy ran"].iter().all(|step| said.contains(step)), "{said}");
    assert_eq!(read(&sandbox, "copy").split_whitespace().collect::<Vec<_>>(), ["A", "B", "2"]);
    // Steps read both, so both are temporary.
    assert_eq!(sandbox.files().names("out"), Vec::<String>::new());
    assert!(run().expect_success().story().contains("3 of them skipped"));
    // What a step needs again is made again.
    fs::remove_file(sandbox.path("copy")).expect("our own file");
    let said = run().expect_success().story();
    assert!(said.contains("upper ran") && said.contains("copy ran"), "{said}");
    sandbox.write("flow.toml", OUTPUTS.replace("[[step]]", "[[step]]\nkeep = true"));
    sandbox.write("text", "c\n");
    run().expect_success();
    assert_eq!(sandbox.files().done(&["cat", "out/all"]), "C\n");
    assert!(run().expect_success().story().contains("3 of them skipped"));
    // Another version of an output is none that the step wrote.
    put(&sandbox, "d\n");
    sandbox.files().done(&["put", "list.txt", "out/count"]);
    let why = sandbox.workflow(&["why", "flow.toml"]).expect_success().text();
    assert!(why.contains("\"count\": files:out/count was changed") && !why.contains("upper"), "{why}");
    let said = run().expect_success().story();
    assert!(said.contains("count ran") && !said.contains("upper ran"), "{said}");
    let up = sandbox.look(&["lineage", "copy"]).expect_success().text();
    assert!(up.contains("files:out/all") && up.contains("upper"), "{up}");
}

#[test]
fn failed_step_stores_no_output() {
    let sandbox = Sandbox::new();
    put(&sandbox, "a\n");
    let check = |command: &str, outputs: &str, code: i32, parts: &[&str]| {
        let step = format!("[[step]]\nname = \"bad\"\ncommand = \"{command}\"\noutputs = {outputs}\n");
        sandbox.write("flow.toml", step);
        sandbox.workflow(&["run", "flow.toml"]).expect_failure(code, parts);
        assert_eq!(sandbox.files().names(""), ["texts", "texts/list.txt"], "{command}");
    };
    check("echo x > one; exit 3", "[\"files:one\"]", 3, &["bad"]);
    check("echo x > one", "[\"files:one\", \"files:two\"]", 1, &["two", "is missing"]);
    // The second one cannot be stored, so the first one is not.
    check(
        "echo x > one; echo x > new",
        "[\"files:one\", \"files:texts/list.txt/new\"]",
        2,
        &["texts/list.txt"],
    );
    let two = "[[step]]\nname = \"a\"\ncommand = \"true\"\noutputs = [\"files:o\"]\n";
    sandbox.write("flow.toml", format!("{two}{}", two.replace("\"a\"", "\"b\"")));
    sandbox.workflow(&["run", "flow.toml"]).expect_failure(2, &["both write files:o"]);
}

#[test]
fn views_are_read_without_copies() {
    let sandbox = Sandbox::new();
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    if device.is_err() || !rustix::process::geteuid().is_root() {
        return could_not_run("views of stored files", "mounting needs root and /dev/fuse");
    }
    let bytes = Random::new(3).bytes(9 << 20);
    sandbox.write("genes.db", &bytes);
    sandbox.files().done(&["put", "genes.db", "refs/genes.db", "--parts", "3", "--keep-versions", "2"]);
    let flow = "[[step]]\nname = \"a\"\n\
                inputs = [{ path = \"files:refs/genes.db@1\", view = true }]\noutputs = [\"kind\", \"ends\", \"at\"]\n\
                command = \"\"\"\nstat -L -f -c %t genes.db > kind\nreadlink genes.db > at\n\
                (head -c 9; tail -c 9 genes.db) < genes.db > ends\n\
                if (echo x >> genes.db); then exit 7; fi\n\"\"\"\n";
    sandbox.write("flow.toml", flow);
    // The step reads the version that it names.
    sandbox.write("genes.db", "new\n");
    sandbox.files().done(&["put", "genes.db", "refs/genes.db", "--keep-versions", "2"]);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read(&sandbox, "kind").trim(), "65735546");
    let ends = fs::read(sandbox.path("ends")).expect("a result");
    assert!(ends == [&bytes[..9], &bytes[bytes.len() - 9..]].concat(), "other bytes were read");
    let at = read(&sandbox, "at");
    let mounted = std::path::Path::new(at.trim()).ancestors().nth(2).expect("a mount point");
    assert!(!mounted.exists(), "{} was removed", mounted.display());
    let again = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert!(again.story().contains("1 of them skipped"), "{}", again.story());
}

#[test]
fn bad_views_are_refused_by_name() {
    let sandbox = Sandbox::new();
    put(&sandbox, "a\n");
    let with = |inputs: &str| format!("command = \"true\"\ninputs = [{inputs}]");
    for (input, parts) in [
        ("{ path = \"list.txt\", view = true }", ["list.txt", "no stored file"]),
        ("{ path = \"files:texts/list.txt\", veiw = true }", ["veiw", "did you mean `view`"]),
        ("{ view = true }", ["an input of the step \"bad\"", "without `path`"]),
        ("{ path = \"files:none/*\", view = true }", ["files:none/*", "no stored file matches"]),
        ("{ path = \"files:none\", view = true }", ["files:none", "no file or directory none"]),
        (
            "{ path = \"files:texts/list.txt\", view = \"yes\" }",
            ["`inputs` of the step \"bad\"", "view = true"],
        ),
    ] {
        refused(&sandbox, &with(input), &parts);
    }
    let flow = "[[step]]\nname = \"w\"\ncommand = \"echo > new\"\noutputs = [\"files:new\"]\n\
                [[step]]\nname = \"r\"\ncommand = \"cat new\"\ninputs = [{ path = \"files:new\", view = true }]\n";
    sandbox.write("bad.toml", flow);
    sandbox
        .workflow(&["run", "bad.toml"])
        .expect_failure(2, &["\"r\"", "files:new", "\"w\"", "leave `view` out"]);
}

#[test]
fn steps_run_again_with_their_resources() {
    let sandbox = Sandbox::new();
    put(&sandbox, "a\n");
    sandbox.write(
        "flow.toml",
        "[[step]]\nname = \"a\"\ncommand = \"cat list.txt > a\"\ninputs = [\"files:texts/list.txt\"]\noutputs = [\"a\"]\n\
         resources = { gpu = 1 }\n",
    );
    sandbox.workflow(&["run", "flow.toml", "--resource", "gpu=1"]).expect_success();
    put(&sandbox, "b\n");
    let rerun = ["rerun", "--downstream", "files:texts/list.txt"];
    sandbox.look(&rerun).expect_failure(2, &["gpu=1"]);
    sandbox.look(&[&rerun[..], &["--resource", "gpu=1"]].concat()).expect_success();
    assert_eq!(read(&sandbox, "a"), "b\n");
}
