//! A task that is slow where it runs gets a second attempt elsewhere, and the output has each record once; one that has much data is
//! left alone. `explain` says which and why.

use blackbox::{Cluster, Event, Questions, Running, Stage, State};
use std::fmt::Write;

/// Hands on what it reads, in pieces, and rests after each: ten times as long on the last of three nodes.
const SLOW_THERE: &str = "#!/bin/sh\ncase $PWD in */node-disk-2/*) rest=2 ;; *) rest=0.2 ;; esac\n\
     while head -c 65536 > piece && [ -s piece ]; do cat piece; sleep $rest; done\n";
const STEADY: &str =
    "#!/bin/sh\nwhile head -c 65536 > piece && [ -s piece ]; do cat piece; sleep 0.3; done\n";
const FILES: usize = 8;
const LINES: usize = 1 << 14;

fn script(cluster: &Cluster, name: &str, text: &str) -> String {
    cluster.sandbox.script(name, text).to_str().expect("a plain path").to_string()
}

/// Files of a mebibyte, a map task each; what the output must be.
fn write_numbers(cluster: &Cluster) -> String {
    cluster.sandbox.write_numbers(FILES, LINES, 54)
}

fn expect_one_winner_each(cluster: &Cluster) {
    assert_eq!(cluster.tasks_with_two_winners(1), 0, "{}", cluster.explain(1));
}

#[test]
fn node_with_slow_program_is_overtaken() {
    let cluster = Cluster::builder().nodes(3).start();
    let expected = write_numbers(&cluster);
    let mapper = script(&cluster, "mapper.sh", SLOW_THERE);
    let job = cluster.job(&["--input", "in", "--mapper", &mapper, "--total-order", "--output", "out"]);
    Running::start(&mut { job }).wait().expect_success();
    let output = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert!(output == expected.as_bytes(), "the output differs");
    let text = cluster.explain(1);
    let copied = text.lines().find(|line| line.contains("attempt 1 beside attempt 0"));
    let copied = copied.unwrap_or_else(|| panic!("nothing was copied:\n{text}"));
    assert!(copied.contains("map/") && copied.contains("slow-"), "{copied}");
    assert!(copied.contains("slow-program") || copied.contains("slow-node"), "{copied}");
    assert!(text.contains("speculative: the attempt on another node was slow"), "{text}");
    // Who was overtaken stopped when it was told to.
    let stopped = cluster.attempts().of_job(1).in_stage(Stage::Map).is(State::Cancelled);
    assert!(stopped.any(), "{text}");
    expect_one_winner_each(&cluster);
}

#[test]
fn a_job_that_wants_no_copies_has_none() {
    let cluster = Cluster::builder().nodes(3).start();
    let expected = write_numbers(&cluster);
    let text = SLOW_THERE.replace("rest=2 ", "rest=0.6 ");
    let mapper = script(&cluster, "mapper.sh", &text);
    let args = ["--input", "in", "--mapper", &mapper, "--total-order", "--output", "out"];
    let job = cluster.job(&[&args[..], &["--speculation", "off"]].concat());
    Running::start(&mut { job }).wait().expect_success();
    let output = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert!(output == expected.as_bytes(), "the output differs");
    assert_eq!(cluster.attempts().of_job(1).again().count(), 0);
    assert_eq!(cluster.events(Event::Speculation).count(), 0);
}

/// One key has more than half of all, which one task must have.
#[test]
fn a_task_with_much_data_is_not_copied() {
    let cluster = Cluster::builder().nodes(3).start();
    let mut text = String::new();
    for line in 0..48 << 10 {
        let key = if line % 5 < 3 { 0 } else { 1 + line % 40 };
        writeln!(text, "key-{key}\t{line:054}").expect("a string takes all");
    }
    cluster.sandbox.write("in/skewed.txt", &text);
    let reducer = script(&cluster, "reducer.sh", STEADY);
    let args = ["--input", "in", "--reducer", &reducer, "--partitions", "6", "--output", "out"];
    cluster.run_job(&args).expect_success();
    let output = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort_unstable();
        lines
    };
    let output = String::from_utf8(output).expect("lines that were text stay text");
    assert!(sorted(&output) == sorted(&text), "the output differs");
    let told = cluster.explain(1);
    assert!(told.contains("large-data") && told.contains("it would have the same data"), "{told}");
    assert!(!told.contains("beside attempt"), "{told}");
    expect_one_winner_each(&cluster);
}
