//! Fault drills: `sailfish drill` on clusters of real processes, and what it says when something is lost for real.

use blackbox::{Answers, Cluster, Event, Finished, Questions, Running, State, rows_of, run_files};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

const WRONG: i32 = 1;
const REFUSED: i32 = 2;
const INTERRUPTED: i32 = 130;

/// Three nodes that take part, each started again when it ends.
fn three_nodes() -> Cluster {
    let mut cluster = Cluster::builder().start();
    (0..3).for_each(|_| {
        cluster.add_changed_node(|node| {
            node.args(["--drills", "--supervise"]);
        })
    });
    cluster
}

fn drill(cluster: &Cluster, more: &[&str]) -> Command {
    std::fs::create_dir_all(cluster.sandbox.path("shared")).expect("our own directory takes another");
    let size: &[&str] = if more.contains(&"--size") { &[] } else { &["--size", "8M"] };
    cluster.sailfish(&[&["drill", "--directory", "shared", "--seed", "7"], size, more].concat())
}

#[track_caller]
fn drilled(cluster: &Cluster, more: &[&str]) -> Finished {
    Running::start(&mut drill(cluster, more)).wait()
}

/// The drill has taken all away that it had made.
#[track_caller]
fn assert_clean(cluster: &Cluster) {
    let left: Vec<_> =
        std::fs::read_dir(cluster.sandbox.path("shared")).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_eq!(cluster.jobs().not_ended().count(), 0);
    cluster.jobs().with_ifiles("kept").wait_for(0);
}

/// The row of a fault that struck.
#[track_caller]
fn row<'a>(told: &'a Value, fault: &str) -> &'a Value {
    let mut rows = told["faults"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["fault"] == fault && row["fired"] == true);
    row.unwrap_or_else(|| panic!("{fault} did not strike: {told:#}"))
}

#[track_caller]
fn assert_nothing_lost(told: &Value) {
    for what in ["lost", "twice", "wrong", "failed"] {
        assert_eq!(told[what], 0, "{told:#}");
    }
    assert!(told["records"].as_u64() > Some(1000), "{told:#}");
}

#[test]
fn faults_of_data_and_programs_lose_nothing() {
    let cluster = three_nodes();
    let faults = ["--faults", "kill-program,damage-run,drop-run", "--json"];
    let told = drilled(&cluster, &faults).expect_success().json();
    assert_nothing_lost(&told);
    for fault in ["kill-program", "damage-run", "drop-run"] {
        let row = row(&told, fault);
        assert!(row["node"].is_string() && row["what"].is_string(), "{row:#}");
        assert_eq!(row["jobs"].as_array().map(Vec::len), Some(3), "{row:#}");
    }
    let did = row(&told, "kill-program")["did"].to_string();
    assert!(did.contains("failed") && did.contains("retried"), "{told:#}");
    assert_clean(&cluster);
}

#[test]
fn faults_of_nodes_lose_nothing() {
    let cluster = three_nodes();
    let faults = [
        "--faults",
        "pause-node:12,kill-node,crash-at:frame-after-hand-over",
        "--jobs",
        "2",
        "--rounds",
        "1",
    ];
    let finished = drilled(&cluster, &faults).expect_success();
    let text = finished.text();
    for part in
        ["pause-node:12", "kill-node", "crash-at:frame-after-hand-over", "paused for 12 s", "node came back"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.contains("node removed after") && !text.contains("did not come back"), "{text}");
    assert!(text.ends_with("lost: nothing, twice: nothing, wrong: nothing\n"), "{text}");
    assert!(cluster.events(Event::NodeGone).count() >= 2);
    assert_clean(&cluster);
}

#[test]
fn unprepared_nodes_are_not_drilled() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let sentence = ["takes part in drills: start nodes with `sailfish node --drills`"];
    drilled(&cluster, &[]).expect_failure(REFUSED, &sentence);
    drilled(&cluster, &["--faults", "kil-node"])
        .expect_failure(REFUSED, &["kil-node", "did you mean kill-node?"]);
    drilled(&cluster, &["--size", "3"]).expect_failure(REFUSED, &["--size"]);
    let list =
        Running::start(cluster.sandbox.sailfish().args(["drill", "--list"])).wait().expect_success().text();
    assert!(list.contains("damage-run") && list.contains("commit-after-rename"), "{list}");

    // One takes part; it is not ended where another one has a job, and not where it is the last.
    cluster.add_changed_node(|node| {
        node.arg("--drills");
    });
    let submitted = Running::start(cluster.sailfish(&["submit"]).args(["--", "sleep", "3600"])).wait();
    let job = submitted.expect_success().text();
    let refused = drilled(&cluster, &["--faults", "kill-program,kill-node"]);
    refused.expect_failure(REFUSED, &["1 job of other users", "kill-node", "--yes"]);
    cluster.run(&["cancel", job.trim()]).expect_success();
    cluster.run(&["wait", job.trim()]);
    cluster.stop_node();
    let last = drilled(&cluster, &["--faults", "kill-node", "--jobs", "1", "--size", "1M"]);
    assert_eq!(last.code(), Some(WRONG), "{}", last.story());
    assert!(
        last.text().contains("not injected: kill-node") && last.text().contains("the only working node"),
        "{}",
        last.story()
    );
    assert_clean(&cluster);
}

/// The holder of the administrator's token.
struct Administrator<'a> {
    cluster: &'a Cluster,
    token: &'a str,
}

impl Answers for Administrator<'_> {
    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(self.cluster.run(&["state", "--json", statement, "--token-file", self.token]))
    }
}

#[test]
fn only_administrators_start_drills() {
    let mut cluster = Cluster::builder()
        .server_command(|server| {
            let sandbox = server.get_current_dir().expect("it starts in its sandbox").to_path_buf();
            server.arg("--require-tokens").arg("--allow-root").arg(sandbox);
        })
        .start();
    let admin = cluster.sandbox.path("server-state/admin.token").display().to_string();
    for (user, role) in [("ann", "user"), ("rack", "node")] {
        let args = ["token", "create", "--user", user, "--role", role, "--token-file", &admin];
        let file = format!("{user}.token");
        Running::start(cluster.sailfish(&args).args(["--output", &file])).wait().expect_success();
    }
    for _ in 0..2 {
        cluster.add_changed_node(|node| {
            node.args(["--drills", "--token-file", "rack.token"]);
        });
    }
    let by = |token: &str, more: &[&str]| {
        let args = ["--faults", "kill-program", "--jobs", "1", "--size", "2M", "--token-file", token];
        drilled(&cluster, &[&args, more].concat())
    };
    by("ann.token", &[]).expect_failure(REFUSED, &["role user"]);
    by("rack.token", &[]).expect_failure(REFUSED, &["role node"]);
    by(&admin, &[]).expect_success();
    // One that was refused, two nodes that were asked, and the fault.
    let count = Administrator { cluster: &cluster, token: &admin }.audited("POST /v1/nodes/{node}/drill");
    assert!(count >= 4, "{count}");
}

#[test]
fn a_drill_that_is_stopped_takes_everything_along() {
    let cluster = three_nodes();
    let running = Running::start(&mut drill(&cluster, &["--faults", "drop-run"]));
    cluster.jobs().is(State::Running).with_name_like("sailfish-drill-%").wait_for(3);
    running.signal(Signal::INT);
    let finished = running.wait();
    assert_eq!(finished.code(), Some(INTERRUPTED), "{}", finished.story());
    assert!(finished.stderr.contains("its jobs and files were removed"), "{}", finished.story());
    assert_clean(&cluster);
    for number in 0..3 {
        assert_eq!(run_files(&cluster.node_disk(number)), Vec::<std::path::PathBuf>::new());
    }
}

/// A program of the machine that is not what it should be: what it takes away no engine can know of.
#[test]
fn a_record_that_is_lost_is_named() {
    let mut cluster = Cluster::builder().start();
    cluster.sandbox.script("bin/cat", "#!/bin/sh\nexec sed '/^word-00003/d'\n");
    let path = std::env::var("PATH").expect("tests have a PATH");
    let path = format!("{}:{path}", cluster.sandbox.path("bin").display());
    (0..2).for_each(|_| {
        cluster.add_changed_node(|node| {
            node.arg("--drills").env("PATH", &path);
        })
    });
    let finished = drilled(&cluster, &["--faults", "kill-program", "--jobs", "2", "--size", "2M"]);
    assert_eq!(finished.code(), Some(WRONG), "{}", finished.story());
    let text = finished.text();
    for part in ["WRONG", "-1-count): lost: 1 record, twice: nothing, wrong: nothing", "lost: word-00003"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    // The other job has no such record.
    assert!(text.ends_with("lost: 1 record, twice: nothing, wrong: nothing\n"), "{text}");
    assert_clean(&cluster);
}
