//! A machine is gone, and no connection to the server breaks with it: others that want its data find out.

use blackbox::{Cluster, Event, Questions, Running, SlowProxy, Stage, State, WAITS_AT_THE_GATE};
use std::fmt::Write;
use std::time::Duration;

const REDUCES: i64 = 8;
/// Longer than a lease: by itself the server would learn of the loss by that.
const STALL: Duration = Duration::from_secs(120);

fn streaming<'a>(reducer: &'a str, output: &'a str) -> [&'a str; 13] {
    [
        "streaming",
        "-D",
        "mapreduce.job.reduces=8",
        "--memory",
        "256M",
        "-input",
        "in",
        "-output",
        output,
        "-mapper",
        "cat",
        "-reducer",
        reducer,
    ]
}

#[test]
fn server_gives_up_node_that_readers_cannot_reach() {
    let mut cluster = Cluster::builder().start();
    let line = SlowProxy::start(cluster.address());
    cluster.add_node_by(&line.address().to_string());
    cluster.add_node();
    cluster.add_node();
    for file in 0..6 {
        let mut text = String::new();
        for number in (file..6000).step_by(6) {
            writeln!(text, "{}\t{number}", number * 7919 % 6000).expect("a string takes all");
        }
        cluster.sandbox.write(&format!("in/{file}.txt"), text);
    }
    let reducer = cluster.sandbox.program("reducer.sh", WAITS_AT_THE_GATE);
    let job = Running::start(&mut cluster.sailfish(&streaming(&reducer, "out")));
    // Every slot waits with a reduce task, and others are to come.
    cluster.attempts().in_stage(Stage::Reduce).is(State::Running).wait_for(6);
    assert_eq!(cluster.tasks().in_stage(Stage::Reduce).count(), REDUCES);
    assert!(cluster.runs().on_node(0).any(), "the node that is to die has no data");
    line.stall(STALL);
    cluster.kill_node();
    // The next reduce tasks want its data.
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    let reported = cluster.events(Event::NodeGone).saying("node-0%reported by%peers%refused");
    assert_eq!(reported.count(), 1, "nobody reported it");
    let told = cluster.explain(1);
    assert!(told.contains("reported by") && told.contains("connection refused"), "{told}");
    Running::start(cluster.sandbox.sailfish().args(streaming("cat", "embedded"))).wait().expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
}
