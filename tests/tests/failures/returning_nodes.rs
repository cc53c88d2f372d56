//! A node is killed and comes back on its disks: what is whole there is read again, and only what was in memory, or is damaged, or
//! is not there any more, is made again.

use blackbox::{
    Cluster, Event, LAST_WORDS, LAST_WORDS_MAPPER, Questions, Running, Stage, State, WAITS_AT_THE_GATE,
    corpus, wait_until,
};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// So long a map takes that nobody would rather make its data again at once than wait for the node.
const MAPPER: &str = "#!/bin/sh\nsleep SECONDS\nexec cat\n";
const SMALL_BYTES: usize = 3 << 20;
/// More than fits what lies between a run and the reducers.
const LARGE_BYTES: usize = 48 << 20;
/// A run is cut in so many pieces, and damaged where they meet: the last of them has its index.
const DAMAGES: u64 = 9;
fn job<'a>(mapper: &'a str, reducer: &'a str, output: &'a str, memory: &'a str) -> [&'a str; 15] {
    [
        "run",
        "--memory",
        memory,
        "--slots",
        "2",
        "--keep-ifiles",
        "--input",
        "in",
        "--mapper",
        mapper,
        "--reducer",
        reducer,
        "--output",
        output,
        "--no-sync",
    ]
}

/// The output is that of one machine where nothing fails.
fn assert_right(cluster: &Cluster, memory: &str) {
    let mut embedded = cluster.sandbox.sailfish();
    let state = cluster.sandbox.state();
    Running::start(embedded.args(job("cat", "cat", "embedded", memory)).arg("--state").arg(state))
        .wait()
        .expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
}

/// The runs of the job on the disk of the first node.
fn runs_on_disk(cluster: &Cluster) -> Vec<PathBuf> {
    let within =
        |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_of_job = |path: &PathBuf| path.to_string_lossy().ends_with("-job1");
    let jobs = within(cluster.node_disk(0)).filter(is_of_job);
    let is_run = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ifile");
    jobs.flat_map(within).filter(is_run).collect()
}

/// All that the first node has is in runs on its disk, and reducers wait. It is killed.
fn killed_while_reducers_wait(text_bytes: usize, seconds: &str) -> (Cluster, Running) {
    let mut cluster = Cluster::builder().nodes(3).start();
    cluster.sandbox.write_text(text_bytes, 6);
    let (mapper, reducer) = (
        cluster.sandbox.program("mapper.sh", &MAPPER.replace("SECONDS", seconds)),
        cluster.sandbox.program("reducer.sh", WAITS_AT_THE_GATE),
    );
    let job = Running::start(&mut cluster.sailfish(&job(&mapper, &reducer, "out", "256M")));
    cluster.attempts().in_stage(Stage::Reduce).is(State::Running).wait_for_some();
    assert!(cluster.runs().on_node(0).any(), "the node that is to die has nothing");
    cluster.kill_node();
    (cluster, job)
}

/// Attempts of map tasks after the first.
fn maps_again(cluster: &Cluster) -> i64 {
    cluster.attempts().in_stage(Stage::Map).again().count()
}

fn finish(cluster: &Cluster, job: Running) {
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    assert_right(cluster, "256M");
}

#[test]
fn node_that_returns_during_reduces_reruns_no_map() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    cluster.restart_node(0);
    cluster.events(Event::DataIsBack).wait_for_some();
    finish(&cluster, job);
    assert_eq!(maps_again(&cluster), 0);
    assert_eq!(cluster.events(Event::DataLost).count(), 0);
    let told = cluster.explain(1);
    assert!(told.contains("node-0 came back as"), "{told}");
    // What stands on the new node is kept there.
    assert!(cluster.replicas().is(State::Standing).any());
    let again = ["rerun-reduce", "1", "--reducer", "cat", "--output", "again"];
    cluster.run(&again).expect_success();
    cluster.sandbox.assert_same_output("again", "out");
}

#[test]
fn damaged_block_of_returned_run_is_found() {
    let (mut cluster, job) = killed_while_reducers_wait(LARGE_BYTES, "1");
    for path in runs_on_disk(&cluster) {
        let file = std::fs::File::options().read(true).write(true).open(&path).expect("our own file opens");
        let bytes = file.metadata().expect("it has a length").len();
        for at in (1..DAMAGES).map(|place| place * bytes / DAMAGES) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("a run is as long as that");
            file.write_all_at(&[byte[0] ^ 1], at).expect("our own file takes it");
        }
    }
    cluster.restart_node(0);
    cluster.events(Event::DataIsBack).wait_for_some();
    finish(&cluster, job);
    assert!(maps_again(&cluster) > 0, "damaged data was taken for whole");
}

#[test]
fn run_with_damaged_end_does_not_come_back() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    for path in runs_on_disk(&cluster) {
        let file = std::fs::File::options().write(true).open(&path).expect("our own file opens");
        let bytes = file.metadata().expect("it has a length").len();
        file.set_len(bytes - 1).expect("our own file can be cut");
    }
    cluster.restart_node(0);
    cluster.events(Event::DataLost).wait_for_some();
    finish(&cluster, job);
    assert!(maps_again(&cluster) > 0);
    assert_eq!(cluster.events(Event::DataIsBack).count(), 0);
}

#[test]
fn node_that_returns_with_empty_disk_lost_everything() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    std::fs::remove_dir_all(cluster.node_disk(0)).expect("our own disk can be emptied");
    cluster.restart_node(0);
    cluster.events(Event::DataLost).wait_for_some();
    finish(&cluster, job);
    assert!(maps_again(&cluster) > 0);
}

/// A chunk is full, sorted and on disk, and another one is not, when their node dies.
#[test]
fn only_data_in_memory_is_lost_during_maps() {
    let mut cluster = Cluster::builder().nodes(2).start();
    let text = corpus((24 << 20) + (500 << 10));
    // The last file is a split of its own: what is left of the other one is too much to go with it.
    let (most, last) = text.split_at(text.len() - (600 << 10));
    cluster.sandbox.write("in/0-most.txt", most);
    cluster.sandbox.write("in/1-last.txt", [LAST_WORDS.as_bytes(), last].concat());
    let mapper = cluster.sandbox.program("mapper.sh", &LAST_WORDS_MAPPER.replace("exec", "sleep 1\nexec"));
    let (reducer, memory) = (cluster.sandbox.program("reducer.sh", WAITS_AT_THE_GATE), "64M");
    let job = Running::start(&mut cluster.sailfish(&job(&mapper, &reducer, "out", memory)));
    let maps = || cluster.tasks().in_stage(Stage::Map);
    cluster.attempts().in_stage(Stage::Map).is(State::Running).wait_for_some();
    maps().is_not(State::Done).wait_for(1);
    wait_until("a chunk is sorted while maps run", || !runs_on_disk(&cluster).is_empty());
    let maps = maps().count();
    cluster.kill_node();
    cluster.restart_node(0);
    cluster.events(Event::DataIsBack).wait_for_some();
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    let again = cluster.attempts().in_stage(Stage::Map).again().is(State::Succeeded).tasks().len() as i64;
    assert!(0 < again && again < maps / 2 + 2, "{again} of {maps} maps ran again");
    assert_right(&cluster, memory);
}

const FLOW: &str = r#"
memory = "64M"
slots = 2
replication = "none"

[[stage]]
name = "first"
input = "in"
mapper = "cat"
reducer = "HERE/slow.sh"
partitions = 6

[[stage]]
name = "second"
from = "first"
mapper = "HERE/waits.sh"
output = "OUTPUT"
"#;

#[test]
fn parts_that_a_later_stage_reads_come_back() {
    let mut cluster = Cluster::builder().nodes(3).start();
    cluster.sandbox.write("in/text.txt", corpus(1 << 20));
    cluster.sandbox.program("slow.sh", "#!/bin/sh\nsleep 2\nexec cat\n");
    cluster.sandbox.program("waits.sh", WAITS_AT_THE_GATE);
    let flow = FLOW.replace("HERE", &cluster.sandbox.directory());
    cluster.sandbox.write("flow.toml", flow.replace("OUTPUT", "out"));
    let running = Running::start(&mut cluster.sailfish(&["run", "--job", "flow.toml"]));
    cluster.attempts().of_job(2).is(State::Running).wait_for_some();
    let parts = cluster.attempts().of_job(1).in_stage(Stage::Reduce).is(State::Succeeded).on_node(0).count();
    assert!(parts > 0, "the node that is to die made no part");
    cluster.kill_node();
    cluster.restart_node(0);
    cluster.events(Event::DataIsBack).wait_for_some();
    cluster.sandbox.open_gate();
    running.wait().expect_success();
    assert_eq!(cluster.attempts().of_job(1).again().count(), 0);
    cluster.sandbox.write("embedded.toml", flow.replace("OUTPUT", "embedded"));
    let mut embedded = cluster.sandbox.sailfish();
    embedded.args(["run", "--job", "embedded.toml", "--state"]).arg(cluster.sandbox.state());
    Running::start(&mut embedded).wait().expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
}
