//! Stages that follow one another: the same as one job after the other, on one machine and on a cluster, whoever dies on the way.

use blackbox::flow::{assert_as_embedded, start_here, write_flow, write_input};
use blackbox::{Cluster, Running, Sandbox};

/// Words and how often each is there; of these, how many words come how often; in the order of that, and joined with the first.
const STAGES: &str = r#"
memory = "64M"

[[stage]]
name = "words"
input = "in"
mapper = "builtin:words"
reducer = "builtin:sum"

[[stage]]
name = "counts"
from = "words"
mapper = "awk -F'\t' '{ print $2 \"\t1\" }'"
reducer = "builtin:sum"

[[stage]]
name = "marked"
from = ["counts"]
map_only = true
mapper = "sed s/$/!/"

[[stage]]
name = "all"
input = "more"
from = ["words", "marked"]
order = "numeric"
total_order = true
mapper = "awk -F'\t' '{ print length($0) \"\t\" $0 }'"
output = "OUT"
"#;

/// The same, one job after the other with files between them.
fn run_one_by_one(sandbox: &Sandbox) -> Vec<u8> {
    let run = |args: &[&str]| Running::start(&mut sandbox.job(args)).wait().expect_success();
    let path = |name: &str| sandbox.path(name).to_str().expect("a plain path").to_string();
    run(&[
        "--input",
        &path("in"),
        "--mapper",
        "builtin:words",
        "--reducer",
        "builtin:sum",
        "--output",
        &path("by-1"),
    ]);
    let counts = "awk -F'\t' '{ print $2 \"\t1\" }'";
    run(&[
        "--input",
        &path("by-1/part-*"),
        "--mapper",
        counts,
        "--reducer",
        "builtin:sum",
        "--output",
        &path("by-2"),
    ]);
    run(&[
        "--input",
        &path("by-2/part-*"),
        "--mapper",
        "sed s/$/!/",
        "--map-only",
        "--output",
        &path("by-3"),
    ]);
    let all = "awk -F'\t' '{ print length($0) \"\t\" $0 }'";
    let inputs = [path("more"), path("by-1/part-*"), path("by-3/part-*")];
    let (output, order) = (path("by-4"), ["--order", "numeric", "--total-order"]);
    let head = ["--input", &inputs[0], &inputs[1], &inputs[2], "--mapper", all, "--output", &output];
    run(&[&head[..], &order[..]].concat());
    sandbox.concatenated(&sandbox.path("by-4"))
}

#[test]
fn stages_give_what_jobs_one_after_the_other_give() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    sandbox.write("more/one.txt", "a line of its own\n");
    write_flow(&sandbox, "flow.toml", STAGES, "out");
    let ran = start_here(&sandbox, "flow.toml").wait().expect_success();
    assert!(ran.story().contains("4 stages done"), "{}", ran.story());
    let expected = run_one_by_one(&sandbox);
    assert!(!expected.is_empty());
    assert!(sandbox.concatenated(&sandbox.path("out")) == expected, "the outputs differ");
    sandbox.assert_no_leftovers();
}

/// Two stages on three nodes: the second's mappers all begin, and wait.
struct Between {
    cluster: Cluster,
    flow: Running,
}

const WAITING: &str = r#"
memory = "64M"
slots = 2
replication = "MODE"

[[stage]]
name = "words"
input = "in"
mapper = "builtin:words"
reducer = "builtin:sum"
partitions = 6

[[stage]]
name = "lines"
from = "words"
mapper = "HERE/waits.sh"
output = "OUT"
"#;

impl Between {
    fn start(mode: &str) -> Between {
        let cluster = Cluster::start(3);
        write_input(&cluster.sandbox);
        write_flow(&cluster.sandbox, "flow.toml", &WAITING.replace("MODE", mode), "out");
        let flow = Running::start(&mut cluster.sailfish(&["run", "--job", "flow.toml"]));
        Between { cluster, flow }
    }

    /// The first stage is done, and of the second every attempt that has a slot runs.
    fn wait_for_second(&self) {
        self.cluster.wait_for("select count(*) > 0 from attempts where job = 2 and state = 'running'");
    }

    fn finish(self) -> Cluster {
        self.cluster.sandbox.write("go", "");
        self.flow.wait().expect_success();
        assert_as_embedded(&self.cluster.sandbox, "flow.toml", "out");
        self.cluster
    }
}

#[test]
fn a_node_with_parts_that_nobody_replicated_is_lost_and_only_they_are_made_again() {
    let mut between = Between::start("none");
    between.wait_for_second();
    let on_doomed = "node = (select node from nodes where name = 'node-0')";
    let winners = format!(
        "select count(*) from tasks join attempts using (job, stage, task) where job = 1 and stage = 3 \
         and attempts.attempt = tasks.winner and {on_doomed}"
    );
    let parts_lost = between.cluster.number(&winners);
    between.cluster.kill_node();
    between.cluster.wait_for("select count(*) > 0 from events where kind = 'node gone'");
    let cluster = between.finish();
    // Of the first stage only the reduce tasks ran again whose parts were there.
    let again = "select count(distinct task) from attempts where job = 1 and stage = 3 and attempt > 0 and state = 'succeeded'";
    assert!(cluster.number(again) <= parts_lost, "{parts_lost} parts were lost");
    assert!(parts_lost == 0 || cluster.number(again) > 0, "{parts_lost} parts were lost and none made again");
}

#[test]
fn a_node_whose_parts_have_replicas_costs_the_stage_before_nothing() {
    let mut between = Between::start("rack");
    between.wait_for_second();
    between.cluster.wait_for(
        "select (select count(*) from part_replicas) = (select count(*) from parts where job = 1 and bytes > 0)",
    );
    between.cluster.kill_node();
    between.cluster.wait_for("select count(*) > 0 from events where kind = 'node gone'");
    let cluster = between.finish();
    let again = "select count(*) from attempts where job = 1 and attempt > 0";
    assert_eq!(cluster.number(again), 0);
}

#[test]
fn a_server_that_is_killed_between_the_stages_goes_on() {
    let mut between = Between::start("rack");
    between.wait_for_second();
    between.cluster.restart_server();
    let cluster = between.finish();
    assert_eq!(cluster.number("select count(*) from attempts where job = 1 and attempt > 0"), 0);
}
