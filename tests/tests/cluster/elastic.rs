//! A reduce task that takes long gives up the end of its range where slots are idle: the same output, in the same order, in more
//! parts, whatever dies meanwhile.

use blackbox::{Cluster, Event, Questions, Running, Stage};
use std::path::Path;

/// Hands on what it reads, slowly.
const REDUCER: &str = "#!/bin/sh\nexec awk '{ print } NR % 2000 == 0 { fflush(); system(\"sleep 0.2\") }'\n";
const FILES: usize = 4;
const LINES: usize = 30_000;

/// Some megabytes, all of which one task would reduce in about twelve seconds; what the output must be.
fn write_numbers(cluster: &Cluster) -> String {
    cluster.sandbox.write_numbers(FILES, LINES, 30)
}

fn reducer(cluster: &Cluster) -> String {
    let path = cluster.sandbox.script("reducer.sh", REDUCER);
    path.to_str().expect("a sandbox has a plain path").to_string()
}

fn start(cluster: &Cluster, more: &[&str]) -> Running {
    let reducer = reducer(cluster);
    let args = ["--input", "in", "--reducer", &reducer, "--output", "out"];
    Running::start(&mut cluster.job(&[&args[..], more].concat()))
}

/// The number of ranges that have been cut.
fn splits(cluster: &Cluster) -> i64 {
    cluster.events(Event::RangeSplit).count()
}

/// The parts, by what the files are called and by what the store says, are as many as the tasks; they verify.
fn assert_parts(cluster: &Cluster, tasks: i64) {
    let out = cluster.sandbox.path("out");
    let names = cluster.sandbox.part_names(&out);
    let expected: Vec<String> = (0..tasks).map(|number| format!("part-{number:05}")).collect();
    assert_eq!(names, expected);
    for (name, bytes) in names.iter().map(|name| (name, size(&out.join(name)))) {
        assert_eq!(cluster.parts().named(name).bytes(), [bytes], "{name}");
    }
    cluster.sandbox.sailfish_with(&["verify", "out"]).expect_success();
}

fn size(path: &Path) -> i64 {
    path.metadata().expect("a part is there").len() as i64
}

fn assert_sorted(cluster: &Cluster, expected: &str) {
    let output = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert!(output == expected.as_bytes(), "the output differs");
}

/// The output is right, in one part more than there were cuts.
fn assert_cut(cluster: &Cluster, expected: &str) {
    assert_sorted(cluster, expected);
    let tasks = cluster.task_count(1, Stage::Reduce);
    assert_eq!(tasks, 1 + splits(cluster));
    assert_parts(cluster, tasks);
}

#[test]
fn idle_slots_take_over_part_of_long_range() {
    let cluster = Cluster::builder().nodes(2).start();
    let expected = write_numbers(&cluster);
    start(&cluster, &["--total-order"]).wait().expect_success();
    assert_sorted(&cluster, &expected);
    let splits = splits(&cluster);
    assert!(splits >= 2, "four slots, and {splits} splits");
    let explained = cluster.explain(1);
    assert!(explained.contains("gave up the end of its range"), "{explained}");
    assert_eq!(cluster.task_count(1, Stage::Reduce), 1 + splits);
    assert_parts(&cluster, 1 + splits);
    assert_eq!(cluster.plan_version(1), 1 + splits);
}

/// By hash each I-file has its own order, so the lines are compared as a set.
#[test]
fn ranges_within_i_files_are_cut_as_well() {
    let cluster = Cluster::builder().nodes(2).start();
    let expected = write_numbers(&cluster);
    start(&cluster, &[]).wait().expect_success();
    let lines = |bytes: &[u8]| {
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort_unstable();
        lines
    };
    let output = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert!(lines(&output) == lines(expected.as_bytes()), "the output differs");
    let tasks = cluster.task_count(1, Stage::Reduce);
    assert!(splits(&cluster) >= 1);
    assert_parts(&cluster, tasks);
}

#[test]
fn ranges_stay_whole_when_the_job_says_so() {
    for (number_of, more) in
        [("1", &["--total-order", "--elastic", "off"][..]), ("2", &["--partitions", "2"][..])]
    {
        let cluster = Cluster::builder().nodes(2).start();
        write_numbers(&cluster);
        start(&cluster, more).wait().expect_success();
        assert_eq!(splits(&cluster), 0, "{more:?}");
        assert_eq!(cluster.sandbox.part_names(&cluster.sandbox.path("out")).len().to_string(), number_of);
    }
}

#[test]
fn cuts_survive_server_and_node_loss() {
    let mut cluster = Cluster::builder().nodes(3).start();
    let expected = write_numbers(&cluster);
    let job = start(&cluster, &["--total-order", "--replication", "rack"]);
    cluster.events(Event::RangeSplit).wait_for_some();
    cluster.restart_server();
    let before = splits(&cluster);
    assert!(before >= 1);
    cluster.kill_node();
    job.wait().expect_success();
    assert_cut(&cluster, &expected);
}

/// Both replicas are gone: maps run again, and the ranges are as they were cut.
#[test]
fn cuts_survive_regeneration_of_data() {
    let mut cluster = Cluster::builder().nodes(3).start();
    let expected = write_numbers(&cluster);
    let job = start(&cluster, &["--total-order", "--replication", "none"]);
    cluster.events(Event::RangeSplit).wait_for_some();
    cluster.kill_node();
    job.wait().expect_success();
    assert_cut(&cluster, &expected);
}
