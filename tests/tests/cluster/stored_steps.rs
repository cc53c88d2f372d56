//! Steps of workflows on nodes that read stored files of the cluster.

use crate::security::{Guarded, serve};
use blackbox::{
    Cluster, Running, Sandbox, StoredQuestions, WaitingProgram, could_not_run, files_below, wait_until,
};
use serde_json::json;

const REFUSED: i32 = 2;

fn cluster() -> Cluster {
    let cluster = Cluster::builder().nodes(2).start();
    cluster.wait_for_stored_disks(2);
    cluster
}

#[test]
fn many_steps_share_a_copy_of_each_node() {
    let cluster = cluster();
    let sandbox = &cluster.sandbox;
    sandbox.write("genes", "a gene\n");
    cluster.files().done(&["put", "genes", "refs/genes", "--replicas", "1"]);
    std::fs::remove_file(sandbox.path("genes")).expect("it is removed");
    let flow = "[[step]]\nname = \"match {k}\"\nsweep = { k = [1, 2, 3, 4, 5, 6, 7, 8] }\n\
                command = \"cat genes > out-{k}; echo {k} >> out-{k}\"\ninputs = [\"files:refs/genes\"]\n\
                outputs = [\"out-{k}\"]\n\
                [[step]]\nname = \"all\"\ncommand = \"cat out-* > all\"\ninputs = [\"out-*\", \"files:refs/genes\"]\n\
                outputs = [\"all\"]\n";
    sandbox.write("flow.toml", flow);
    let file = sandbox.path("flow.toml").display().to_string();
    let run = || cluster.run(&["workflow", "run", &file]).expect_success();
    run();
    let all = std::fs::read_to_string(sandbox.path("all")).expect("a result");
    assert_eq!(all.matches("a gene\n").count(), 8, "{all}");
    let copies = (0..2).flat_map(|node| files_below(&cluster.node_disk(node)));
    let copies = copies.filter(|path| path.ends_with("genes")).count();
    assert!((1..=2).contains(&copies), "at most one copy for each node: {copies}");
    assert!(run().story().contains("9 of them skipped"));
}

#[test]
fn nodes_copy_only_the_partitions_of_their_steps() {
    let cluster = cluster();
    let sandbox = &cluster.sandbox;
    sandbox.write("day", (0..4000).map(|line| format!("{line}\n")).collect::<String>());
    let put = ["put", "day", "logs/day", "--replicas", "1", "--parts", "4", "--records", "lines"];
    cluster.files().done(&put);
    let flow = "[[step]]\nname = \"count {partition}\"\neach = \"files:logs/day\"\nper = \"partition\"\n\
                command = \"wc -l < day > files-{partition}\"\ninputs = [\"files:logs/day\"]\noutputs = \
                [\"files:counts/{partition}\"]\n\
                [[step]]\nname = \"sum\"\ncommand = \"cat 0 1 2 3 > sum\"\ninputs = [\"files:counts/*\"]\n\
                outputs = [\"sum\"]\n";
    sandbox.write("flow.toml", flow.replace("> files-{partition}", "> {partition}"));
    let file = sandbox.path("flow.toml").display().to_string();
    let run = || cluster.run(&["workflow", "run", &file]).expect_success();
    run();
    let sum = std::fs::read_to_string(sandbox.path("sum")).expect("a result");
    let lines: Vec<u32> = sum.lines().map(|line| line.trim().parse().expect("a number")).collect();
    assert_eq!((lines.len(), lines.iter().sum::<u32>()), (4, 4000), "{sum}");
    let copies = (0..2).flat_map(|node| files_below(&cluster.node_disk(node)));
    let copies: Vec<_> = copies.filter(|path| path.ends_with("day")).collect();
    let whole = sandbox.path("day").metadata().expect("a file").len();
    let is_part = |path: &std::path::PathBuf| path.metadata().is_ok_and(|facts| facts.len() < whole / 2);
    assert!(!copies.is_empty() && copies.iter().all(is_part), "{copies:?}");
}

#[test]
fn steps_keep_versions_over_restarts() {
    let mut cluster = cluster();
    cluster.sandbox.write("list", "old\n");
    cluster.files().done(&["put", "list", "list", "--replicas", "2"]);
    let WaitingProgram { mut here, mut go, path } = cluster.sandbox.waiting_once_program("first");
    let flow = format!(
        "[[step]]\nname = \"first\"\ncommand = \"echo x | {path} > /dev/null; cat list > first\"\n\
         inputs = [\"files:list\"]\noutputs = [\"first\"]\ncache = false\n\
         [[step]]\nname = \"second\"\ncommand = \"cat first list > second\"\ninputs = [\"first\", \"files:list\"]\n\
         outputs = [\"second\"]\n"
    );
    cluster.sandbox.write("flow.toml", flow);
    let file = cluster.sandbox.path("flow.toml").display().to_string();
    let running = Running::start(&mut cluster.sailfish(&["workflow", "run", &file]));
    assert_eq!(here.read_line().trim(), "here");
    // The workflow has the version of its submission, also for steps that have not begun.
    cluster.files().done(&["rm", "list"]);
    cluster.restart_server();
    cluster.wait_for_stored_disks(2);
    go.write_line("go");
    running.wait().expect_success();
    let second = std::fs::read_to_string(cluster.sandbox.path("second")).expect("a result");
    assert_eq!(second, "old\nold\n");
    cluster
        .run(&["workflow", "run", &file])
        .expect_failure(REFUSED, &["files:list", "no file or directory list"]);
}

#[test]
fn steps_read_only_files_of_their_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    guarded.sandbox.write("secret", "of ann\n");
    guarded.by("ann.token", &["files", "put", "secret", "of-ann"]).expect_success();
    let dir = guarded.sandbox.path("");
    let flow = "[[step]]\nname = \"a\"\ncommand = \"cat of-ann > a\"\ninputs = [\"files:of-ann\"]\noutputs = [\"a\"]\n";
    guarded.sandbox.write("flow.toml", flow);
    let file = dir.join("flow.toml").display().to_string();
    let run = ["workflow", "run", &file];
    guarded.by("bob.token", &run).expect_failure(REFUSED, &["files:of-ann", "belong to \"ann\""]);
    guarded.by("ann.token", &run).expect_success();
    assert_eq!(std::fs::read_to_string(dir.join("a")).expect("a result"), "of ann\n");
    // A specification that names bytes which its job has not pinned.
    let input = json!({ "name": "a", "path": "/etc/passwd", "content": "11".repeat(32) });
    let other = json!({ "name": "b", "path": dir.join("flow.toml") });
    for inputs in [json!([input]), json!([other, input])] {
        let program = json!({ "words": ["true"], "directory": dir, "inputs": inputs });
        let spec = json!({ "steps": [{ "name": "a", "program": program }] });
        guarded.sandbox.write("steps.json", spec.to_string());
        let spec = dir.join("steps.json").display().to_string();
        let submit = ["submit", "--wait", "--kind", "workflow", "--spec", &spec];
        guarded.by("bob.token", &submit).expect_failure(REFUSED, &["cannot be declared"]);
    }
}

/// Bytes of each stored input: large enough that its place matters.
const INPUT_BYTES: usize = 3_000_000;

/// Puts stored files with one replica until each of two nodes has two. Returns their names, by node.
fn put_on_both(cluster: &Cluster) -> [Vec<String>; 2] {
    let mut on = [Vec::new(), Vec::new()];
    for number in 0..32 {
        if on.iter().all(|names: &Vec<String>| names.len() >= 2) {
            return on;
        }
        let name = format!("in-{number}");
        cluster.sandbox.write(&name, vec![b'a' + number; INPUT_BYTES]);
        cluster.files().done(&["put", &name, &name, "--replicas", "1"]);
        let node = cluster.files().replicas(&name).concat().join(" ");
        on[usize::from(node == "node-1")].push(name);
    }
    panic!("all files lie on one node: {on:?}");
}

/// A cluster of two nodes of four slots.
fn wide_cluster() -> Cluster {
    let mut cluster = Cluster::builder().nodes(0).start();
    (0..2).for_each(|_| cluster.add_node_with("rack-0", &["--slots", "4"]));
    cluster.wait_for_stored_disks(2);
    cluster
}

#[test]
fn steps_run_where_their_inputs_lie() {
    let cluster = wide_cluster();
    let [here, there] = put_on_both(&cluster);
    let step = |name: &str, command: String, inputs: &str, outputs: &str| {
        format!(
            "[[step]]\nname = \"{name}\"\ncommand = \"{command}; echo $SAILFISH_NODE > at-{name}\"\n\
             inputs = [{inputs}]\noutputs = [{outputs}, \"at-{name}\"]\n"
        )
    };
    // Figure 7: the third runs where the larger output was written.
    let cut = |name: &str, bytes: u32, output: &str| format!("head -c {bytes} {name} > {output}");
    let stored = |name: &str| format!("\"files:{name}\"");
    let flow = [
        step("one", cut(&here[0], 1_200_000, "small"), &stored(&here[0]), "\"small\""),
        step("two", cut(&there[0], 2_500_000, "large"), &stored(&there[0]), "\"large\""),
        step("three", "cat small large > all".to_string(), "\"small\", \"large\"", "\"all\""),
    ];
    cluster.sandbox.write("flow.toml", flow.concat());
    let file = cluster.sandbox.path("flow.toml").display().to_string();
    cluster.run(&["workflow", "run", &file]).expect_success();
    let at = ["one", "two", "three"].map(|name| {
        let path = cluster.sandbox.path(&format!("at-{name}"));
        std::fs::read_to_string(path).expect("a result").trim().to_string()
    });
    assert_eq!(at, ["node-0", "node-1", "node-1"]);
}

#[test]
fn branches_with_inputs_on_one_node_join() {
    let cluster = wide_cluster();
    let [together, elsewhere] = put_on_both(&cluster);
    // Figure 6, and Figure 7 for inputs that lie apart.
    let flow = |dir: &str, one: &str, two: &str| {
        let flow = format!(
            "[[step]]\nname = \"J1\"\ncommand = \"cat {one}\"\ninputs = [\"files:{one}\"]\nstdout = \"f1\"\n\
             [[step]]\nname = \"J2\"\ncommand = \"tail -c 5\"\nstdin = \"f1\"\nstdout = \"f2\"\n\
             [[step]]\nname = \"J3\"\ncommand = \"tail -c 5 {two} > f3\"\ninputs = [\"files:{two}\"]\noutputs = [\"f3\"]\n\
             [[step]]\nname = \"J4\"\ncommand = \"cat - f3 > f4\"\nstdin = \"f2\"\ninputs = [\"f3\"]\noutputs = [\"f4\"]\n"
        );
        cluster.sandbox.write(&format!("{dir}/flow.toml"), flow);
        let file = cluster.sandbox.path(&format!("{dir}/flow.toml")).display().to_string();
        cluster.run(&["workflow", "run", &file]).expect_success();
        std::fs::read_to_string(cluster.sandbox.path(&format!("{dir}/f4"))).expect("a result").len()
    };
    assert_eq!(flow("six", &together[0], &together[1]), 10);
    assert_eq!(flow("seven", &together[0], &elsewhere[0]), 10);
    let names = |of: &str| {
        let list = cluster.run(&["jobs", "--steps-of", of, "--json"]).expect_success().json();
        let rows = list.as_array().expect("a list").iter();
        let mut names: Vec<String> =
            rows.filter_map(|row| row["name"].as_str()).map(str::to_string).collect();
        names.retain(|name| name.contains('J'));
        names.sort();
        names
    };
    let jobs = cluster.run(&["jobs", "--json"]).expect_success().json();
    let mut workflows: Vec<i64> = jobs
        .as_array()
        .expect("a list")
        .iter()
        .filter(|row| row["name"] == "flow")
        .filter_map(|row| row["job"].as_i64())
        .collect();
    workflows.sort_unstable();
    assert_eq!(names(&workflows[0].to_string()), ["J1 | J2 | J3 | J4"]);
    assert_eq!(names(&workflows[1].to_string()), ["J1 | J2", "J3", "J4"]);
}

/// A workflow on a server whose jobs may name no path: its files travel.
const TRAVELS: &str = r#"
[[step]]
name = "words"
command = "echo words ran >&2; tr ' ' '\\n'"
stdin = "texts/in"
stdout = "words"

[[step]]
name = "counts"
command = "echo counts ran >&2; sort -k1 | uniq -c > out/in"
inputs = ["words"]
outputs = ["out/in"]

[[step]]
name = "script"
words = ["./scripts/join.sh", "out/in", "texts/in"]
inputs = ["out/in", "texts/in"]
stdout = "joined"
"#;

/// A cluster whose nodes may open no file of the client.
fn closed_cluster() -> Cluster {
    let cluster = Cluster::builder().nodes(2).roots(&["allowed"]).start();
    cluster.wait_for_stored_disks(2);
    cluster
}

#[test]
fn uploaded_workflow_needs_no_shared_files() {
    let cluster = closed_cluster();
    let sandbox = &cluster.sandbox;
    sandbox.write("flow/texts/in", "b a b\n");
    sandbox.program("flow/scripts/join.sh", "#!/bin/sh\necho script ran >&2\ncat \"$@\"\n");
    sandbox.write("flow/flow.toml", TRAVELS.replace("sort -k1 | uniq -c", "sort < words | uniq -c"));
    let file = sandbox.path("flow/flow.toml").display().to_string();
    let run = |more: &[&str]| cluster.run(&[&["workflow", "run", &file], more].concat());
    run(&[]).expect_failure(REFUSED, &["--allow-root", "--upload"]);
    let said = run(&["--upload", "--fetch"]).expect_success().story();
    assert!(said.contains("2 files put") && said.contains("1 output fetched"), "{said}");
    let read = |name: &str| std::fs::read_to_string(sandbox.path(name)).expect("a result");
    assert_eq!(
        read("flow/joined").split_whitespace().collect::<Vec<_>>(),
        ["1", "a", "2", "b", "b", "a", "b"]
    );
    assert!(!sandbox.path("flow/words").exists() && !sandbox.path("flow/out").exists(), "temporary files");
    let said = run(&["--upload", "--fetch"]).expect_success().story();
    assert!(
        said.contains("0 files put") && said.contains("3 of them skipped") && said.contains("1 unchanged"),
        "{said}"
    );
    // A changed script runs again, and nothing else.
    sandbox.write("flow/texts/in", "b a c\n");
    std::fs::remove_file(sandbox.path("flow/joined")).expect("our own file");
    let why = cluster.run(&["workflow", "why", &file, "--upload"]).expect_success().text();
    assert!(why.contains("texts/in changed"), "{why}");
    run(&["--upload", "--fetch"]).expect_success();
    assert!(read("flow/joined").contains("b a c"));
    let names = cluster.files().names("runs");
    let left: Vec<&str> =
        names.iter().filter_map(|name| name.split_once('/')).map(|(_, below)| below).collect();
    assert_eq!(left, ["joined", "out", "scripts", "scripts/join.sh", "texts", "texts/in"]);
}

#[test]
fn lost_stored_output_is_made_again() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.wait_for_stored_disks(1);
    let WaitingProgram { mut here, go: _go, path } = cluster.sandbox.waiting_once_program("wait");
    let ran = cluster.sandbox.path("ran").display().to_string();
    let step = |name: &str, command: &str, rest: &str| {
        format!("[[step]]\nname = \"{name}\"\ncommand = \"echo {name} >> {ran}; {command}\"\n{rest}\n")
    };
    let flow = [
        step("first", "echo first > first", "outputs = [\"files:t/first\"]"),
        step("other", "echo other > other", "outputs = [\"other\"]"),
        step(
            "wait",
            &format!("echo x | {path} > /dev/null; cat first > wait"),
            "inputs = [\"files:t/first\", \"other\"]\noutputs = [\"wait\"]\ncache = false",
        ),
        step("last", "cat wait other > last", "inputs = [\"wait\", \"other\"]\noutputs = [\"last\"]"),
    ];
    cluster.sandbox.write("flow.toml", flow.concat());
    let file = cluster.sandbox.path("flow.toml").display().to_string();
    let running = Running::start(&mut cluster.sailfish(&["workflow", "run", &file]));
    assert_eq!(here.read_line().trim(), "here");
    // The only replica of the first output goes with its node.
    cluster.add_node();
    cluster.kill_node_at(0);
    std::fs::remove_dir_all(cluster.node_disk(0)).expect("the disk of a node that is gone");
    running.wait().expect_success();
    let read = |name: &str| std::fs::read_to_string(cluster.sandbox.path(name)).expect("a result");
    assert_eq!(read("last"), "first\nother\n");
    let ran = read("ran");
    let count = |name: &str| ran.lines().filter(|line| *line == name).count();
    assert_eq!(["first", "other", "last"].map(count), [2, 1, 1], "{ran}");
}

#[test]
fn stored_outputs_are_of_the_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    guarded.by("ann.token", &["files", "mkdir", "of-ann"]).expect_success();
    let dir = guarded.sandbox.path("");
    let flow = "[[step]]\nname = \"a\"\ncommand = \"echo a > a\"\noutputs = [\"files:of-ann/a\"]\n\
                [[step]]\nname = \"b\"\ncommand = \"cat a a > b\"\ninputs = [\"files:of-ann/a\"]\n\
                outputs = [\"files:of-ann/b\"]\n";
    guarded.sandbox.write("flow.toml", flow);
    let file = dir.join("flow.toml").display().to_string();
    let run = ["workflow", "run", &file];
    guarded.by("bob.token", &run).expect_failure(REFUSED, &["files:of-ann/a", "ann"]);
    guarded.by("ann.token", &run).expect_success();
    assert_eq!(guarded.by("ann.token", &["files", "cat", "of-ann/b"]).expect_success().text(), "a\na\n");
    guarded.by("bob.token", &["files", "cat", "of-ann/b"]).expect_failure(REFUSED, &["belong to \"ann\""]);
    let versions = guarded.by("ann.token", &["files", "versions", "of-ann/b"]).expect_success().text();
    assert!(
        versions.contains("put") && versions.lines().filter(|line| line.contains("of-ann/b")).count() <= 1,
        "{versions}"
    );
}

#[test]
fn stored_outputs_count_for_quotas() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("").display().to_string();
    let server = serve(&sandbox, "127.0.0.1:0", &["--allow-root", &root, "--user-stored-max", "10K"]);
    let mut guarded = Guarded::of(sandbox, server);
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    let flow = "[[step]]\nname = \"a\"\ncommand = \"echo a > a; head -c 20000 /dev/zero > big\"\n\
                outputs = [\"files:a\", \"files:big\"]\n";
    let file = guarded.sandbox.write("flow.toml", flow).display().to_string();
    guarded
        .by("ann.token", &["workflow", "run", &file])
        .expect_failure(REFUSED, &["files:a", "--user-stored-max"]);
    // The first one was written, and got no name.
    let listed = guarded.by("ann.token", &["files", "ls", "--json"]).expect_success().text();
    assert_eq!(listed, "");
}

#[test]
fn stored_outputs_need_room() {
    let mut cluster = Cluster::builder().start();
    let disk = rustix::fs::statvfs(cluster.sandbox.path("")).expect("a file system has sizes");
    if disk.f_bavail * 10 >= disk.f_blocks * 9 {
        return could_not_run("a stored output without room", "the disk is nearly empty");
    }
    cluster.add_node_with("rack-0", &["--shuffle-reserve", "90"]);
    cluster.sandbox.write("in", "a\n");
    wait_until("the server knows the room of the node", || {
        cluster.files().run(&["put", "in", "data"]).stderr.contains("no node has room for")
    });
    let flow = "[[step]]\nname = \"a\"\ncommand = \"echo a > a\"\noutputs = [\"files:a\"]\n";
    let file = cluster.sandbox.write("flow.toml", flow).display().to_string();
    cluster.run(&["workflow", "run", &file]).expect_failure(REFUSED, &["files:a", "no node has room for"]);
}
