//! A node is killed and comes back on its disks: what is whole there is read again, and only what was in memory, or is damaged, or
//! is not there any more, is made again.

use blackbox::{Cluster, LAST_WORDS, LAST_WORDS_MAPPER, Running, corpus};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// So long a map takes that nobody would rather make its data again at once than wait for the node.
const MAPPER: &str = "#!/bin/sh\nsleep SECONDS\nexec cat\n";
/// Hands on what it reads, when it is let go.
const REDUCER: &str = "#!/bin/sh\nuntil [ -e HERE/go ]; do sleep 0.05; done\nexec cat\n";
const BACK: &str = "select count(*) > 0 from events where kind = 'data is back'";
const LOST: &str = "select count(*) > 0 from events where kind = 'data lost'";
const REDUCING: &str = "select count(*) > 0 from attempts where stage = 3 and state = 'running'";
const MAPS_AGAIN: &str = "select count(*) from attempts where stage = 0 and attempt > 0";
const SMALL_BYTES: usize = 3 << 20;
/// More than fits what lies between a run and the reducers.
const LARGE_BYTES: usize = 48 << 20;
/// A run is cut in so many pieces, and damaged where they meet: the last of them has its index.
const DAMAGES: u64 = 9;
/// Looks at a disk before a test counts as stuck; each takes a process and a request.
const LOOKS_MAX: u32 = 5_000;

fn program(cluster: &Cluster, name: &str, text: &str) -> String {
    let here = cluster.sandbox.path("");
    let here = here.to_str().expect("a sandbox has a plain path").trim_end_matches('/');
    let program = cluster.sandbox.script(name, &text.replace("HERE", here));
    program.to_str().expect("a sandbox has a plain path").to_string()
}

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
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(!whole("out").is_empty() && whole("out") == whole("embedded"), "the outputs differ");
}

fn explained(cluster: &Cluster) -> String {
    Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text()
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
    let text = corpus(text_bytes);
    for (number, piece) in text.chunks(text.len() / 6 + 1).enumerate() {
        cluster.sandbox.write(&format!("in/{number}.txt"), piece);
    }
    let (mapper, reducer) = (
        program(&cluster, "mapper.sh", &MAPPER.replace("SECONDS", seconds)),
        program(&cluster, "reducer.sh", REDUCER),
    );
    let job = Running::start(&mut cluster.sailfish(&job(&mapper, &reducer, "out", "256M")));
    cluster.wait_for(REDUCING);
    let on_doomed = "select count(*) from runs where run / 1099511627776 = (select node from nodes where name = 'node-0')";
    assert!(cluster.number(on_doomed) > 0, "the node that is to die has nothing");
    cluster.kill_node();
    (cluster, job)
}

fn finish(cluster: &Cluster, job: Running) {
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    assert_right(cluster, "256M");
}

#[test]
fn a_node_that_comes_back_while_reducers_wait_costs_no_map() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    cluster.restart_node(0);
    cluster.wait_for(BACK);
    finish(&cluster, job);
    assert_eq!(cluster.number(MAPS_AGAIN), 0);
    assert_eq!(cluster.number("select count(*) from events where kind = 'data lost'"), 0);
    let told = explained(&cluster);
    assert!(told.contains("node-0 came back as"), "{told}");
    // What stands on the new node is kept there.
    assert!(cluster.number("select count(*) from replicas where state = 'standing'") > 0);
    let again = ["rerun-reduce", "1", "--reducer", "cat", "--output", "again"];
    Running::start(&mut cluster.sailfish(&again)).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("again") == whole("out"), "what was kept differs");
}

#[test]
fn a_run_whose_block_was_damaged_meanwhile_is_found_when_it_is_read() {
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
    cluster.wait_for(BACK);
    finish(&cluster, job);
    assert!(cluster.number(MAPS_AGAIN) > 0, "damaged data was taken for whole");
}

#[test]
fn a_run_whose_end_was_damaged_meanwhile_does_not_come_back() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    for path in runs_on_disk(&cluster) {
        let file = std::fs::File::options().write(true).open(&path).expect("our own file opens");
        let bytes = file.metadata().expect("it has a length").len();
        file.set_len(bytes - 1).expect("our own file can be cut");
    }
    cluster.restart_node(0);
    cluster.wait_for(LOST);
    finish(&cluster, job);
    assert!(cluster.number(MAPS_AGAIN) > 0);
    assert_eq!(cluster.number("select count(*) from events where kind = 'data is back'"), 0);
}

#[test]
fn a_node_that_comes_back_with_an_empty_disk_has_lost_all() {
    let (mut cluster, job) = killed_while_reducers_wait(SMALL_BYTES, "3");
    std::fs::remove_dir_all(cluster.node_disk(0)).expect("our own disk can be emptied");
    cluster.restart_node(0);
    cluster.wait_for(LOST);
    finish(&cluster, job);
    assert!(cluster.number(MAPS_AGAIN) > 0);
}

/// A chunk is full, sorted and on disk, and another one is not, when their node dies.
#[test]
fn while_maps_run_only_what_was_in_memory_is_made_again() {
    let mut cluster = Cluster::builder().nodes(2).start();
    let text = corpus((24 << 20) + (500 << 10));
    // The last file is a split of its own: what is left of the other one is too much to go with it.
    let (most, last) = text.split_at(text.len() - (600 << 10));
    cluster.sandbox.write("in/0-most.txt", most);
    cluster.sandbox.write("in/1-last.txt", [LAST_WORDS.as_bytes(), last].concat());
    let mapper = program(&cluster, "mapper.sh", &LAST_WORDS_MAPPER.replace("exec", "sleep 1\nexec"));
    let (reducer, memory) = (program(&cluster, "reducer.sh", REDUCER), "64M");
    let job = Running::start(&mut cluster.sailfish(&job(&mapper, &reducer, "out", memory)));
    cluster.wait_for("select count(*) > 0 from attempts where stage = 0 and state = 'running'");
    cluster.wait_for("select count(*) = 1 from tasks where stage = 0 and state <> 'done'");
    let is_sorted = || cluster.number("select count(*) from jobs") == 1 && !runs_on_disk(&cluster).is_empty();
    assert!((0..LOOKS_MAX).any(|_| is_sorted()), "no chunk was sorted while maps ran");
    let maps = cluster.number("select count(*) from tasks where stage = 0");
    cluster.kill_node();
    cluster.restart_node(0);
    cluster.wait_for(BACK);
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    let again =
        "select count(distinct task) from attempts where stage = 0 and attempt > 0 and state = 'succeeded'";
    let again = cluster.number(again);
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
    program(&cluster, "slow.sh", "#!/bin/sh\nsleep 2\nexec cat\n");
    program(&cluster, "waits.sh", REDUCER);
    let here = cluster.sandbox.path("").to_str().expect("a plain path").trim_end_matches('/').to_string();
    let flow = FLOW.replace("HERE", &here);
    cluster.sandbox.write("flow.toml", flow.replace("OUTPUT", "out"));
    let running = Running::start(&mut cluster.sailfish(&["run", "--job", "flow.toml"]));
    cluster.wait_for("select count(*) > 0 from attempts where job = 2 and state = 'running'");
    let on_doomed = "select count(*) from attempts where job = 1 and stage = 3 and state = 'succeeded' \
                     and node = (select node from nodes where name = 'node-0')";
    let parts = cluster.number(on_doomed);
    assert!(parts > 0, "the node that is to die made no part");
    cluster.kill_node();
    cluster.restart_node(0);
    cluster.wait_for(BACK);
    cluster.sandbox.write("go", "");
    running.wait().expect_success();
    assert_eq!(cluster.number("select count(*) from attempts where job = 1 and attempt > 0"), 0);
    cluster.sandbox.write("embedded.toml", flow.replace("OUTPUT", "embedded"));
    let mut embedded = cluster.sandbox.sailfish();
    embedded.args(["run", "--job", "embedded.toml", "--state"]).arg(cluster.sandbox.state());
    Running::start(&mut embedded).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(!whole("out").is_empty() && whole("out") == whole("embedded"), "the outputs differ");
}
