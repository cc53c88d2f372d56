//! Jobs of a cluster that keep their I-files: reduced again where they lie, whatever became of nodes and server since,
//! and removed when their time is over.

use blackbox::{CLUSTER_MEMORY, Cluster, Finished, Questions, Running, Stage, wait_until};
use std::path::{Path, PathBuf};

const REFUSED: i32 = 2;
const FAILED: i32 = 1;

/// Two nodes in racks of their own, so that each has what its own maps put out, and text of some megabytes in eight
/// files, so that maps run on both.
fn two_nodes() -> Cluster {
    let cluster = Cluster::builder().racks(&["left", "right"]).start();
    cluster.sandbox.write_text(6 << 20, 8);
    cluster
}

/// The two nodes, and job 1 that keeps its I-files on both.
fn with_kept_job(more: &[&str]) -> Cluster {
    let cluster = two_nodes();
    let args = ["--input", "in", "--mapper", "builtin:words", "--output", "pairs"];
    let ended = run(&mut cluster.job(&[&args[..], more].concat()));
    ended.expect_success();
    assert_eq!((kept_dirs(&cluster, 0).len(), kept_dirs(&cluster, 1).len()), (1, 1));
    cluster
}

fn run(command: &mut std::process::Command) -> Finished {
    Running::start(command).wait()
}

fn rerun(cluster: &Cluster, job: &str, output: &str, args: &[&str]) -> Finished {
    run(&mut cluster.sailfish(&[&["rerun-reduce", job, "--output", output][..], args].concat()))
}

/// Kept directories on the disk of the node that was started as this one.
fn kept_dirs(cluster: &Cluster, node: u32) -> Vec<PathBuf> {
    named(&cluster.node_disk(node), |name| name.starts_with("sailfish-kept-"))
}

fn named(dir: &Path, is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("a directory can be listed").path());
    paths.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&is_meant)).collect()
}

/// Nodes do what they are told a moment later.
#[track_caller]
fn wait_until_gone(cluster: &Cluster, node: u32) {
    wait_until("its kept directories are gone", || kept_dirs(cluster, node).is_empty());
}

/// Runs the whole job with another reducer, and returns its output.
fn whole(cluster: &Cluster, output: &str, args: &[&str]) -> Vec<u8> {
    let base = ["--input", "in", "--mapper", "builtin:words", "--output", output];
    run(&mut cluster.job(&[&base[..], args].concat())).expect_success();
    cluster.sandbox.concatenated(&cluster.sandbox.path(output))
}

/// The last job reduced what job 1 kept, without a map.
fn assert_no_map_ran(cluster: &Cluster, output: &str) {
    let report = cluster.sandbox.report(&cluster.sandbox.path(output));
    assert_eq!((&report["proof"]["agrees"], &report["reduce_again"]), (&true.into(), &1.into()));
    let maps = cluster.stages().of_last_job().named("map");
    assert_eq!(maps.count(), 0);
    let adopts = cluster.attempts().of_last_job().in_stage(Stage::Adopt);
    assert_eq!(adopts.count(), 2);
}

#[test]
fn reducing_again_gives_the_output_of_whole_job() {
    let cluster = with_kept_job(&["--keep-ifiles"]);
    let awk = "awk -F '\\t' '{ print NR \" \" $2 \" \" $1 }'";
    for (index, reducer) in [None, Some("builtin:count"), Some(awk)].into_iter().enumerate() {
        let given: Vec<&str> = reducer.iter().flat_map(|reducer| ["--reducer", reducer]).collect();
        let (fresh, again) = (format!("fresh{index}"), format!("again{index}"));
        let ended = rerun(&cluster, "1", &again, &given).expect_success();
        assert!(ended.stderr.contains("the I-files that job 1 kept"), "{}", ended.story());
        assert_no_map_ran(&cluster, &again);
        let again = cluster.sandbox.concatenated(&cluster.sandbox.path(&again));
        assert!(whole(&cluster, &fresh, &given) == again, "{reducer:?} gives another output");
    }
    // Job 2 is the first that reduced again; a rerun of it reads what job 1 kept.
    rerun(&cluster, "2", "third", &[]).expect_success();
    assert_eq!(cluster.sandbox.report(&cluster.sandbox.path("third"))["reduce_again"], 1);
    // It looks as on one machine, from afar as from near.
    let shown = run(&mut cluster.sailfish(&["show", "1"])).expect_success().text();
    assert!(shown.contains("sailfish-kept-") && shown.contains("on node-1"), "{shown}");
    let jobs = run(&mut cluster.sailfish(&["jobs", "--json"])).expect_success().json();
    let first = jobs.as_array().and_then(|jobs| jobs.last()).expect("a job");
    assert!(first["ifile_bytes"].as_u64() > Some(0), "{first}");
    for words in [&["show", "1"][..], &["report", "2"], &["jobs"], &["timeline", "2", "--width", "80"]] {
        let mut near = cluster.sandbox.sailfish();
        near.args(words).arg("--state").arg(cluster.sandbox.path("server-state"));
        assert_eq!(
            run(&mut cluster.sailfish(words)).expect_success().text(),
            run(&mut near).expect_success().text()
        );
    }
    let report = run(&mut cluster.sailfish(&["report", "2"])).expect_success().text();
    assert!(report.contains("the I-files that job 1 kept"), "{report}");
}

/// Nothing but what lies on disks and in the store is needed.
#[test]
fn kept_runs_outlive_nodes_and_server() {
    let mut cluster = with_kept_job(&["--keep-ifiles", "--total-order"]);
    let expected = whole(&cluster, "fresh", &["--total-order", "--reducer", "builtin:list"]);
    let list = ["--reducer", "builtin:list"];
    cluster.kill_node();
    cluster.restart_node(0);
    rerun(&cluster, "1", "node-killed", &list).expect_success();
    assert_no_map_ran(&cluster, "node-killed");
    // Now node-1, told to end; then the server, and then both nodes at once.
    cluster.stop_node();
    cluster.restart_node(1);
    cluster.restart_server();
    rerun(&cluster, "1", "server-killed", &list).expect_success();
    cluster.kill_node();
    cluster.kill_node();
    cluster.restart_server();
    cluster.restart_node(1);
    cluster.restart_node(0);
    rerun(&cluster, "1", "all-killed", &list).expect_success();
    assert_no_map_ran(&cluster, "all-killed");
    for output in ["node-killed", "server-killed", "all-killed"] {
        let again = cluster.sandbox.concatenated(&cluster.sandbox.path(output));
        assert!(expected == again, "{output} is another output");
    }
}

#[test]
fn a_node_that_is_away_is_named() {
    let mut cluster = with_kept_job(&["--keep-ifiles"]);
    cluster.stop_node();
    rerun(&cluster, "1", "again", &[])
        .expect_failure(REFUSED, &["the node node-0, which has kept I-files of job 1"]);
    assert!(!cluster.sandbox.path("again").exists());
    // Nobody needs it to be there for its files to be given up; it learns of it when it comes back.
    let told = run(&mut cluster.sailfish(&["gc", "1"])).expect_success().text();
    assert!(told.contains("on node-0 once it is back") && told.contains("of 1 job"), "{told}");
    wait_until_gone(&cluster, 1);
    assert_eq!(kept_dirs(&cluster, 0).len(), 1);
    cluster.restart_node(0);
    wait_until_gone(&cluster, 0);
    rerun(&cluster, "1", "again", &[]).expect_failure(REFUSED, &["have been removed"]);
}

#[test]
fn node_that_dies_during_rerun_is_named() {
    let mut cluster = with_kept_job(&["--keep-ifiles"]);
    let mut hangs = cluster.sandbox.waiting_program("hangs");
    let args = ["rerun-reduce", "1", "--output", "again", "--reducer", &hangs.path];
    let again = Running::start(&mut cluster.sailfish(&args));
    assert_eq!(hangs.here.read_line(), "here");
    let removed = run(&mut cluster.sailfish(&["gc", "--all"])).expect_success().text();
    assert!(removed.contains("kept: job 2 reads it"), "{removed}");
    cluster.kill_node();
    again
        .wait()
        .expect_failure(FAILED, &["the node node-0 (", "), which has kept I-files of job 1, is gone"]);
    // What was kept is there all the same.
    cluster.restart_node(0);
    rerun(&cluster, "1", "mended", &[]).expect_success();
}

/// A job whose reducer fails keeps what its maps made; the new job goes on through a restart of the server.
#[test]
fn mended_reducer_survives_server_kill() {
    let mut cluster = two_nodes();
    let args = ["--input", "in", "--mapper", "builtin:words", "--keep-ifiles", "--output", "out"];
    let fails = ["--reducer", "sh -c 'exit 4'"];
    run(&mut cluster.job(&[&args[..], &fails].concat())).expect_failure(4, &[]);
    let mut waits = cluster.sandbox.waiting_once_program("waits");
    let args = ["rerun-reduce", "1", "--output", "again", "--reducer", &waits.path];
    let again = Running::start(&mut cluster.sailfish(&args));
    assert_eq!(waits.here.read_line(), "here");
    cluster.restart_server();
    waits.go.write_line("go on");
    again.wait().expect_success();
    assert_no_map_ran(&cluster, "again");
    let expected = whole(&cluster, "fresh", &["--reducer", "cat"]);
    assert!(expected == cluster.sandbox.concatenated(&cluster.sandbox.path("again")), "another output");
}

#[test]
fn kept_files_go_on_time_or_on_request() {
    let cluster = with_kept_job(&["--keep-for", "1d"]);
    let gc =
        |words: &[&str]| run(&mut cluster.sailfish(&[&["gc"][..], words].concat())).expect_success().text();
    assert!(gc(&["--older-than", "1h"]).contains("nothing removed"));
    assert!(gc(&["--dry-run", "--all"]).contains("would be removed"));
    // Of the state directory itself nobody takes it away behind the back of the server.
    let mut near = cluster.sandbox.sailfish();
    near.args(["rerun-reduce", "1", "--output", "near", "--state"]).arg(cluster.sandbox.path("server-state"));
    run(&mut near).expect_failure(REFUSED, &["name their server"]);
    assert_eq!((kept_dirs(&cluster, 0).len(), kept_dirs(&cluster, 1).len()), (1, 1));
    assert!(gc(&["1"]).contains("removed: "));
    wait_until_gone(&cluster, 0);
    wait_until_gone(&cluster, 1);
    let words = ["--input", "in", "--mapper", "builtin:words", "--keep-for", "0s", "--output", "short"];
    run(&mut cluster.job(&words)).expect_success();
    // Without being asked.
    cluster.jobs().of_job(2).with_ifiles("removed").wait_for(1);
    wait_until_gone(&cluster, 0);
    wait_until_gone(&cluster, 1);
    run(&mut cluster.sailfish(&["gc", "7"])).expect_failure(REFUSED, &["no job 7"]);
    rerun(&cluster, "2", "again", &[]).expect_failure(REFUSED, &["have been removed"]);
    let words = ["--input", "in", "--mapper", "builtin:words", "--output", "plain"];
    run(&mut cluster.job(&words)).expect_success();
    rerun(&cluster, "3", "again", &[]).expect_failure(REFUSED, &["kept no I-files"]);
}

/// Kept I-files stay on the disks of a drained node, and come back with them.
#[test]
fn drained_node_names_its_kept_files() {
    let mut cluster = with_kept_job(&["--keep-ifiles"]);
    let drained = run(&mut cluster.sailfish(&["nodes", "drain", "node-0", "--wait"])).expect_success();
    assert!(
        drained.stderr.contains("node-0 has kept I-files, which stay on its disks"),
        "{}",
        drained.story()
    );
    cluster.wait_for_node(0);
    rerun(&cluster, "1", "again", &[]).expect_failure(REFUSED, &["node-0"]);
    cluster.restart_node(0);
    rerun(&cluster, "1", "again", &["--memory", CLUSTER_MEMORY]).expect_success();
    assert_no_map_ran(&cluster, "again");
}
