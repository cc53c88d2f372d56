//! Jobs of a cluster whose programs are stored files.

use crate::security::Guarded;
use blackbox::{Cluster, Running, StoredQuestions, WaitingProgram, files_below, wait_until};

const REFUSED: i32 = 2;
/// Jobs of one task that run at once on two nodes with two slots each.
const TASKS: usize = 4;

fn cluster() -> Cluster {
    let cluster = Cluster::builder().nodes(2).start();
    cluster.wait_for_stored_disks(2);
    cluster
}

/// Prints its argument and a file beside it, and its own mode, when the gate is open.
const TELLS: &str = "#!/bin/sh
mkdir HERE/begun-$SAILFISH_INDEX
GATE
cat \"$1\" words
stat -L -c %a \"$0\" words
";

#[test]
fn stored_programs_run_on_any_node() {
    let cluster = cluster();
    let sandbox = &cluster.sandbox;
    sandbox.program("tell.sh", TELLS);
    sandbox.write("words", "some words\n");
    for (source, name) in [("tell.sh", "bin/tell.sh"), ("words", "words")] {
        cluster.files().done(&["put", source, name, "--replicas", "1"]);
        std::fs::remove_file(sandbox.path(source)).expect("it is removed");
    }
    let count = TASKS.to_string();
    let mut submit = cluster.sailfish(&["submit", "--wait", "--count", &count, "--file", "files:words"]);
    let running = Running::start(submit.args(["--", "files:bin/tell.sh", "files:words@2"]));
    let begun = |index: usize| sandbox.path(&format!("begun-{index}")).exists();
    wait_until("all slots of both nodes run it", || (0..TASKS).all(begun));
    sandbox.open_gate();
    let told = running.wait().expect_success().text();
    let expected = "some words\nsome words\n555\n555\n";
    assert_eq!(told.matches(expected).count(), TASKS, "{told}");
    for wrong in [["files:bin", "bin is a directory"], ["files:none", "no file or directory none"]] {
        let mut submit = cluster.sailfish(&["submit"]);
        Running::start(submit.args(["--", wrong[0]])).wait().expect_failure(REFUSED, &wrong);
    }
}

/// All slots are taken, so no task of the second job can have asked for the program.
#[test]
fn shared_programs_are_copied_before_tasks_run() {
    let cluster = cluster();
    let sandbox = &cluster.sandbox;
    let blocks = sandbox.program("blocks.sh", "#!/bin/sh\nmkdir HERE/begun-$SAILFISH_INDEX\nGATE\n");
    sandbox.program("shared.sh", "#!/bin/sh\necho shared\n");
    cluster.files().done(&["put", "shared.sh", "shared.sh", "--replicas", "1"]);
    let submit = |count: usize, program: &str| {
        let count = count.to_string();
        Running::start(cluster.sailfish(&["submit", "--wait", "--count", &count]).args(["--", program]))
    };
    let blocking = submit(TASKS, &blocks);
    let begun = |index: usize| sandbox.path(&format!("begun-{index}")).exists();
    wait_until("all slots are taken", || (0..TASKS).all(begun));
    let waiting = submit(2, "files:shared.sh");
    let copies = |node: u32| {
        let files = files_below(&cluster.node_disk(node));
        files.iter().filter(|path| path.ends_with("shared.sh")).count()
    };
    wait_until("both nodes have a copy", || (0..2).all(|node| copies(node) == 1));
    sandbox.open_gate();
    blocking.wait().expect_success();
    assert_eq!(waiting.wait().expect_success().text().matches("shared\n").count(), 2);
}

#[test]
fn jobs_keep_versions_of_their_programs() {
    let mut cluster = cluster();
    let sandbox = &cluster.sandbox;
    sandbox.write("in.txt", "b\t1\na\t2\n");
    sandbox.write("reduce.sh", "#!/bin/sh\nexec sed \"s/^/$(cat words)/\"\n");
    sandbox.write("words", "old:");
    for (source, name) in [("reduce.sh", "bin/reduce.sh"), ("words", "words")] {
        cluster.files().done(&["put", source, name, "--replicas", "1", "--keep-versions", "3"]);
    }
    let WaitingProgram { mut here, mut go, path } = sandbox.waiting_once_program("mapper");
    let programs = ["--mapper", &path, "--reducer", "files:bin/reduce.sh", "--file", "files:words"];
    let job = ["--input", "in.txt", "--partitions", "1", "--keep-ifiles", "--output", "out"];
    let running = Running::start(&mut cluster.job(&[&job[..], &programs].concat()));
    assert_eq!(here.read_line().trim(), "here");
    cluster.sandbox.write("words", "new:");
    cluster.files().done(&["put", "words", "words", "--keep-versions", "3"]);
    cluster.files().done(&["rm", "bin/reduce.sh"]);
    // The server does not forget them with its memory.
    cluster.restart_server();
    cluster.wait_for_stored_disks(2);
    go.write_line("go");
    running.wait().expect_success();
    let text = |output: &str| {
        let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path(output));
        String::from_utf8(bytes).expect("a part is text")
    };
    assert_eq!(text("out"), "old:a\t2\nold:b\t1\n");
    let shown = cluster.run(&["show", "1"]).expect_success().text();
    assert!(shown.contains("files:bin/reduce.sh@2"), "{shown}");
    // The files of the earlier job keep their versions, and a new one has its current one.
    let again = ["rerun-reduce", "1", "--reducer", "files:bin/reduce.sh@2", "--output", "again"];
    cluster.run(&again).expect_success();
    assert_eq!(text("again"), text("out"));
    let newest = ["--file", "files:words", "--overwrite"];
    cluster.run(&[&again[..], &newest].concat()).expect_success();
    assert_eq!(text("again"), "new:a\t2\nnew:b\t1\n");
}

#[test]
fn stored_programs_are_for_their_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    guarded.sandbox.write("secret.sh", "#!/bin/sh\ncat \"$0\"\n");
    guarded.sandbox.write("in.txt", "a\n");
    guarded.by("ann.token", &["files", "put", "secret.sh", "of-ann"]).expect_success();
    let told = guarded.by("ann.token", &["submit", "--wait", "--", "files:of-ann"]).expect_success();
    assert!(told.text().contains("cat \"$0\""), "{}", told.story());
    let (input, output) = (guarded.sandbox.path("in.txt"), guarded.sandbox.path("out"));
    let (input, output) = (input.display().to_string(), output.display().to_string());
    let job = ["run", "--input", &input, "--output", &output];
    for (option, value) in [("--mapper", "files:of-ann"), ("--file", "files:of-ann")] {
        let refused = guarded.by("bob.token", &[&job[..], &[option, value]].concat());
        refused.expect_failure(REFUSED, &[&format!("{option} {value}"), "belong to \"ann\""]);
    }
    let refused = guarded.by("bob.token", &["submit", "--", "sh", "files:of-ann"]);
    refused.expect_failure(REFUSED, &["files:of-ann", "belong to \"ann\""]);
}
