//! Stages that follow one another: the same as one job after the other, on one machine and on a cluster, whoever dies on the way.

use blackbox::flow::{
    attempts_again, cluster_with_input, let_finish, start_between, start_here, wait_until_gone, write_flow,
    write_input,
};
use blackbox::{Cluster, Question, Questions, Running, Sandbox, Stage, State, wait_until};

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
fn stages_give_the_output_of_consecutive_jobs() {
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
    // The command for workflows takes the same file.
    let workflow = |args: &[&str]| {
        let mut command = sandbox.sailfish();
        Running::start(command.arg("workflow").args(args).arg(sandbox.path("again.toml"))).wait()
    };
    write_flow(&sandbox, "again.toml", STAGES, "again");
    assert_eq!(workflow(&["check"]).expect_success().text(), "4 stages, no mistakes\n");
    let state = sandbox.state().display().to_string();
    workflow(&["run", "--state", &state]).expect_success();
    assert!(sandbox.concatenated(&sandbox.path("again")) == expected, "the outputs differ");
    workflow(&["plot"]).expect_failure(2, &["again.toml has stages", "use `sailfish workflow check`"]);
    workflow(&["run", "--state", &state, "--priority", "1"]).expect_failure(2, &["--priority", "again.toml"]);
}

#[test]
fn lost_node_reruns_only_its_unreplicated_parts() {
    let mut cluster = cluster_with_input(3);
    let flow = start_between(&cluster, "none", "builtin:sum");
    fn reduces(cluster: &Cluster) -> Question<'_> {
        cluster.attempts().of_job(1).in_stage(Stage::Reduce)
    }
    let parts_lost = reduces(&cluster).winning().on_node(0).count();
    cluster.kill_node();
    wait_until_gone(&cluster);
    let_finish(&cluster, flow);
    // Of the first stage only the reduce tasks ran again whose parts were there.
    let again = reduces(&cluster).again().is(State::Succeeded).tasks().len() as i64;
    assert!(again <= parts_lost, "{parts_lost} parts were lost");
    assert!(parts_lost == 0 || again > 0, "{parts_lost} parts were lost and none made again");
}

#[test]
fn lost_node_with_replicated_parts_reruns_nothing() {
    let mut cluster = cluster_with_input(3);
    let flow = start_between(&cluster, "rack", "builtin:sum");
    wait_until("all parts lie on two nodes", || cluster.all_parts_lie_on_two_nodes(1));
    cluster.kill_node();
    wait_until_gone(&cluster);
    let_finish(&cluster, flow);
    assert_eq!(attempts_again(&cluster, 1), 0);
}

#[test]
fn flow_survives_server_kill_between_stages() {
    let mut cluster = cluster_with_input(3);
    let flow = start_between(&cluster, "rack", "builtin:sum");
    cluster.restart_server();
    let_finish(&cluster, flow);
    assert_eq!(attempts_again(&cluster, 1), 0);
}
