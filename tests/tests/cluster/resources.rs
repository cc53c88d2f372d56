//! Generic resources: nodes declare amounts, steps and one-task jobs take them where they run.

use blackbox::{Cluster, Finished, Running, Sandbox, WaitingProgram};

const REFUSED: i32 = 2;

/// A cluster whose second node has one GPU.
fn cluster() -> Cluster {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.add_node_with("rack-0", &["--resource", "gpu=1"]);
    cluster
}

fn write(sandbox: &Sandbox, flow: &str) -> String {
    sandbox.write("flow.toml", flow);
    sandbox.path("flow.toml").display().to_string()
}

/// Returns a workflow of three steps with a GPU. A step fails if another one runs at the same time; the first waits.
fn one_at_a_time(sandbox: &Sandbox, first: &str) -> String {
    let lock = sandbox.path("lock").display().to_string();
    let flow = format!(
        "[[step]]\nname = \"train {{k}}\"\nsweep = {{ k = [1, 2, 3] }}\nresources = {{ gpu = 1 }}\ncache = false\n\
         command = \"mkdir {lock}; echo | {first} > /dev/null; rmdir {lock}; \
         echo ${{SAILFISH_NODE:-here}} $SAILFISH_RESOURCE_GPU > out-{{k}}\"\noutputs = [\"out-{{k}}\"]\n"
    );
    write(sandbox, &flow)
}

fn outputs(sandbox: &Sandbox) -> Vec<String> {
    let output = |k| std::fs::read_to_string(sandbox.path(&format!("out-{k}"))).expect("a result");
    (1..=3).map(output).collect()
}

fn run(cluster: &Cluster, file: &str) -> Finished {
    cluster.run(&["workflow", "run", file])
}

#[test]
fn steps_share_the_only_gpu_in_turn() {
    let mut cluster = cluster();
    let WaitingProgram { mut here, mut go, path } = cluster.sandbox.waiting_once_program("first");
    let file = one_at_a_time(&cluster.sandbox, &path);
    let running = Running::start(&mut cluster.sailfish(&["workflow", "run", &file]));
    assert_eq!(here.read_line().trim(), "here");
    // A restarted server knows the amounts of its nodes, and those that are taken.
    cluster.restart_server();
    let waits = |told: &str| told.contains("it needs gpu=1 on a node; running tasks");
    let jobs = [2, 3, 4].map(|job| job.to_string());
    let explained = |job: &String| cluster.run(&["explain", job]).expect_success().text();
    cluster.ask_until(&["jobs", "--json"], |_| jobs.iter().filter(|job| waits(&explained(job))).count() == 2);
    go.write_line("go");
    running.wait().expect_success();
    assert_eq!(outputs(&cluster.sandbox), vec!["node-1 1\n"; 3]);
    let nodes = cluster.run(&["nodes"]).expect_success().text();
    assert_eq!(nodes.matches("gpu=1").count(), 1, "{nodes}");
}

#[test]
fn amounts_of_no_node_are_refused() {
    let mut cluster = cluster();
    let flow = |gpu: u32| {
        format!(
            "[[step]]\nname = \"a\"\nresources = {{ gpu = {gpu} }}\ncommand = \"echo $SAILFISH_NODE > a\"\noutputs = [\"a\"]\n"
        )
    };
    let file = write(&cluster.sandbox, &flow(2));
    let told = ["the step \"a\" cannot begin", "gpu=2", "largest amount", "is 1", "--resource gpu=2"];
    run(&cluster, &file).expect_failure(REFUSED, &told);
    let submit = |options: &[&str]| {
        let mut command = cluster.sailfish(&[&["submit", "--wait"], options].concat());
        Running::start(command.args(["--", "true"])).wait()
    };
    submit(&["--resource", "gpu=2"]).expect_failure(REFUSED, &["gpu=2", "is 1"]);
    submit(&["--resource", "tape=1"]).expect_failure(REFUSED, &["tape=1", "is 0"]);
    submit(&["--resource", "gpu"]).expect_failure(REFUSED, &["--resource", "NAME=AMOUNT"]);
    submit(&["--resource", "gpu=1"]).expect_success();
    // A node that joins later has it.
    cluster.add_node_with("rack-0", &["--resource", "gpu=2", "--resource", "tape=1"]);
    run(&cluster, &file).expect_success();
    assert_eq!(std::fs::read_to_string(cluster.sandbox.path("a")).expect("a result"), "node-2\n");
}

#[test]
fn a_lost_node_frees_steps_for_another() {
    let mut cluster = cluster();
    let WaitingProgram { mut here, go: _go, path } = cluster.sandbox.waiting_once_program("first");
    let flow = format!(
        "[[step]]\nname = \"a\"\nresources = {{ gpu = 1 }}\ncache = false\ncommand = \"echo | {path}; echo $SAILFISH_NODE > a\"\noutputs = [\"a\"]\n"
    );
    let file = write(&cluster.sandbox, &flow);
    let running = Running::start(&mut cluster.sailfish(&["workflow", "run", &file]));
    assert_eq!(here.read_line().trim(), "here");
    cluster.add_node_with("rack-0", &["--resource", "gpu=1"]);
    cluster.kill_node_at(1);
    running.wait().expect_success();
    assert_eq!(std::fs::read_to_string(cluster.sandbox.path("a")).expect("a result"), "node-2\n");
}

#[test]
fn this_machine_has_what_a_run_declares() {
    let sandbox = Sandbox::new();
    let file = one_at_a_time(&sandbox, "cat");
    let run = |more: &[&str]| {
        let mut command = sandbox.sailfish();
        command.args(["workflow", "run", &file, "--slots", "3"]).args(more).arg("--state");
        Running::start(command.arg(sandbox.state())).wait()
    };
    run(&[]).expect_failure(REFUSED, &["gpu=1", "is 0", "--resource gpu=1"]);
    run(&["--resource", "gpu=0"]).expect_failure(REFUSED, &["--resource", "1 to 1000000"]);
    run(&["--resource", "gpu=1"]).expect_success();
    assert_eq!(outputs(&sandbox), vec!["here 1\n"; 3]);
}
