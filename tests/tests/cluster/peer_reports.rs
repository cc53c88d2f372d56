//! A machine is gone, and no connection to the server breaks with it: others that want its data find out.

use blackbox::{Cluster, Running, SlowProxy};
use std::fmt::Write;
use std::time::Duration;

const REDUCES: i64 = 8;
/// Hands on what it reads, when it or everybody is let go.
const REDUCER: &str = "#!/bin/sh\nuntil [ -e HERE/go-$mapreduce_task_partition ] || [ -e HERE/go ]; do sleep 0.05; done\nexec cat\n";
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
fn readers_that_reach_nobody_make_the_server_give_a_node_up() {
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
    let here = cluster.sandbox.path("");
    let reducer = REDUCER.replace("HERE", here.to_str().expect("a sandbox has a plain path"));
    let reducer = cluster.sandbox.script("reducer.sh", &reducer);
    let reducer = reducer.to_str().expect("a sandbox has a plain path");
    let job = Running::start(&mut cluster.sailfish(&streaming(reducer, "out")));
    // Every slot waits with a reduce task, and others are to come.
    cluster.wait_for("select count(*) = 6 from attempts where stage = 3 and state = 'running'");
    assert_eq!(cluster.number(&format!("select count(*) - {REDUCES} from tasks where stage = 3")), 0);
    let doomed = "(select node from nodes where name = 'node-0')";
    let has_data = format!("select count(*) from runs where run / 1099511627776 = {doomed}");
    assert!(cluster.number(&has_data) > 0, "the node that is to die has no data");
    line.stall(STALL);
    cluster.kill_node();
    // The next reduce tasks want its data.
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    let reported = "select count(*) from events where kind = 'node gone' \
                    and detail like '%node-0%reported by%peers%refused%'";
    assert_eq!(cluster.number(reported), 1, "nobody reported it");
    let told = Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text();
    assert!(told.contains("reported by") && told.contains("connection refused"), "{told}");
    Running::start(cluster.sandbox.sailfish().args(streaming("cat", "embedded"))).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}
