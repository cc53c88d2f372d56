//! Steps of workflows on nodes that read stored files of the cluster.

use crate::security::Guarded;
use blackbox::{Cluster, Running, StoredQuestions, WaitingProgram, files_below};
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
