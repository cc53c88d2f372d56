//! Flows that are stopped, whose intermediate files are damaged, whose nodes leave, and whose programs fail: the output is what it
//! would have been or there is none, and nothing is left.

use blackbox::flow::{
    Damage, GATED, assert_as_embedded, attempts_again, cluster_with_input, let_finish, stage_files,
    start_between, start_gated, start_here, start_on, wait_for_replicas, wait_until_gone, write_flow,
    write_hanging, write_input,
};
use blackbox::{Questions, Random, Sandbox, State, Watched};
use rustix::process::Signal;
use std::path::PathBuf;

const INTERRUPTED: i32 = 130;
const REFUSED: i32 = 2;

#[test]
fn ctrl_c_ends_all_stages() {
    let sandbox = Sandbox::new();
    let mut pids = write_hanging(&sandbox);
    let flow = start_here(&sandbox, "flow.toml");
    let program = Watched::new(&pids.read_line());
    flow.signal(Signal::INT);
    let stopped = flow
        .wait()
        .expect_failure(INTERRUPTED, &["stopped by a signal", "it left no output and no intermediate data"]);
    program.wait_gone();
    sandbox.assert_nothing_left();
    assert_eq!(sandbox.jobs().states(), ["cancelled"; 3], "{}", stopped.story());
}

#[test]
fn run_after_kill_9_sweeps_every_stage() {
    let sandbox = Sandbox::new();
    let mut pids = write_hanging(&sandbox);
    let flow = start_here(&sandbox, "flow.toml");
    let program = Watched::new(&pids.read_line());
    flow.signal(Signal::KILL);
    flow.wait();
    program.wait_gone();
    assert!(!sandbox.out().exists() && !sandbox.leftovers().is_empty());
    sandbox.run_job(&["--input", "gate.txt"]).expect_success();
    sandbox.assert_no_leftovers();
    assert_eq!(sandbox.jobs().states(), ["interrupted", "interrupted", "interrupted", "succeeded"]);
}

/// Both copies of some parts: these are made again.
#[test]
fn parts_with_both_copies_damaged_are_made_again() {
    let cluster = cluster_with_input(3);
    let (flow, first) = start_gated(&cluster, "rack", "out");
    wait_for_replicas(&cluster, first);
    let mut random = Random::new(1);
    for copies in stage_files(&cluster.sandbox, first).values().take(2) {
        copies.iter().for_each(|copy| Damage::choose(&mut random).strike(copy, &mut random));
    }
    let_finish(&cluster, flow);
    assert_eq!(attempts_again(&cluster, first), 2);
}

#[test]
fn damaged_parts_are_made_again_on_one_machine() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    write_flow(&sandbox, "flow.toml", &GATED.replace("MODE", "none"), "out");
    let mut random = Random::new(0);
    let flow = start_here(&sandbox, "flow.toml");
    flow.wait_for_stderr("stage words is done");
    let files: Vec<PathBuf> = stage_files(&sandbox, 1).into_values().flatten().collect();
    Damage::choose(&mut random).strike(random.one_of::<PathBuf>(&files), &mut random);
    sandbox.open_gate();
    flow.wait().expect_success();
    assert_as_embedded(&sandbox, "flow.toml", "out");
    sandbox.assert_no_leftovers();
}

/// A node is told to end, not drained: the same as when it is lost.
#[test]
fn a_node_with_parts_is_stopped() {
    let mut cluster = cluster_with_input(3);
    let (flow, first) = start_gated(&cluster, "none", "out");
    let place = cluster.node_with_parts(first);
    let node = cluster.take_node(place);
    node.signal(Signal::TERM);
    node.wait().expect_success();
    let_finish(&cluster, flow);
}

/// Each job takes more than half of the memory of a node.
const LARGE: &str = r#"
memory = "600M"
slots = 2

WORDS
[[stage]]
name = "counts"
from = "words"
mapper = "awk -F'\t' '{ print $2 \"\t1\" }'"
reducer = "builtin:sum"

[[stage]]
name = "all"
from = ["words", "counts"]
mapper = "HERE/waits.sh"
output = "OUT"
"#;

#[test]
fn stages_that_rest_give_their_memory_back() {
    let mut cluster = cluster_with_input(2);
    let flow = start_on(&cluster, LARGE, "out");
    cluster.attempts().of_job(3).is(State::Running).wait_for_some();
    // What was there is made again where the last stage has all memory.
    cluster.kill_node();
    wait_until_gone(&cluster);
    let_finish(&cluster, flow);
}

/// The reducer says something else each time, and a reader has read some of it when it is lost.
#[test]
fn part_that_changes_after_reading_ends_flow() {
    let mut cluster = cluster_with_input(3);
    cluster
        .sandbox
        .script("clock.sh", "#!/bin/sh\ncat > /dev/null\nprintf 'now\\t%s\\n' \"$(date +%N)-$$\"\n");
    let flow = start_between(&cluster, "none", "HERE/clock.sh");
    let place = cluster.node_with_parts(1);
    cluster.kill_node_at(place);
    flow.wait()
        .expect_failure(REFUSED, &["the stage \"words\"", "came out differently", "--replication rack"]);
    assert!(!cluster.sandbox.out().exists());
    cluster.sandbox.assert_no_leftovers();
    assert_eq!(cluster.jobs().is(State::Running).count(), 0);
}

/// Such a stage is over before those that read it are asked for anything.
#[test]
fn stage_without_input_is_read_like_others() {
    let sandbox = Sandbox::new();
    sandbox.write("empty.txt", "");
    sandbox.write("lines.txt", "a\t1\nb\t2\n");
    let text = "memory = \"64M\"\noverwrite = true\n[[stage]]\nname = \"nothing\"\ninput = \"empty.txt\"\nmapper = \"builtin:words\"\n\
                reducer = \"builtin:sum\"\n[[stage]]\nname = \"less\"\nfrom = \"nothing\"\nreducer = \"builtin:sum\"\n\
                [[stage]]\nname = \"lines\"\ninput = \"lines.txt\"\nfrom = \"less\"\noutput = \"out\"\n";
    sandbox.write("flow.toml", text);
    start_here(&sandbox, "flow.toml").wait().expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.path("out")), b"a\t1\nb\t2\n");
    sandbox.assert_no_leftovers();
}
