//! The operator's list of roots: what a job names outside of them is refused, by the server and by the node.

use blackbox::{CLUSTER_MEMORY, Cluster, Finished, Running};
use std::os::unix::fs::symlink;

const TEXT: &str = "one two\ntwo\n";

fn write_inputs(cluster: &Cluster) {
    cluster.sandbox.write("data/in/text", TEXT);
    cluster.sandbox.write("secret/text", TEXT);
}

fn start_run(cluster: &Cluster, input: &str, output: &str) -> Running {
    let count = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];
    Running::start(&mut cluster.job(&[&["--input", input, "--output", output], &count[..]].concat()))
}

fn run(cluster: &Cluster, input: &str, output: &str) -> Finished {
    start_run(cluster, input, output).wait()
}

#[test]
fn jobs_name_only_paths_below_the_roots() {
    let cluster = Cluster::builder().nodes(1).roots(&["data", "more"]).start();
    write_inputs(&cluster);
    let sandbox = &cluster.sandbox;
    run(&cluster, "data/in", "more/counts").expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("more/counts")), ["one\t1", "two\t2"]);
    symlink(sandbox.path("secret"), sandbox.path("data/leak")).expect("a link");
    let roots = sandbox.path("data").display().to_string();
    run(&cluster, "secret/text", "data/a").expect_failure(2, &["secret/text", &roots, "--allow-root"]);
    run(&cluster, "data/leak/text", "data/a").expect_failure(2, &["which leads to", "--allow-root"]);
    run(&cluster, "data/in", "secret/out").expect_failure(2, &["output", "secret/out", "--allow-root"]);
    run(&cluster, "data/in", "data/leak/out").expect_failure(2, &["output", "--allow-root"]);
    let names = std::fs::read_dir(sandbox.path("secret")).expect("a directory").count();
    assert_eq!(names, 1, "something was made outside");
    let submit = |directory: &str, words: &[&str]| {
        let mut command = cluster.sailfish(&["submit", "--wait"]);
        command.arg("--").args(words).current_dir(sandbox.path(directory));
        Running::start(&mut command).wait()
    };
    submit("data", &["true"]).expect_success();
    submit("secret", &["true"]).expect_failure(2, &["directory", "--allow-root"]);
    submit("data/leak", &["true"]).expect_failure(2, &["directory", "--allow-root"]);
    submit("data", &["/bin/true"]).expect_failure(2, &["program /bin/true", "--allow-root"]);
}

/// Paths lead elsewhere by the time a node opens them, or on its machine: it looks for itself.
#[test]
fn node_checks_paths_that_the_server_permits() {
    let mut cluster = Cluster::builder().roots(&["data"]).start();
    write_inputs(&cluster);
    let job = start_run(&cluster, "data/in", "data/counts");
    cluster.ask_until(&["jobs", "--json"], |answer| answer.contains("running"));
    let sandbox = &cluster.sandbox;
    std::fs::rename(sandbox.path("data/in"), sandbox.path("data/old")).expect("a rename");
    symlink(sandbox.path("secret"), sandbox.path("data/in")).expect("a link");
    cluster.add_node();
    job.wait().expect_failure(2, &["on node", "data/in/text", "which leads to"]);
    let mut narrow = Cluster::builder().start();
    write_inputs(&narrow);
    let own = narrow.sandbox.path("data");
    narrow.add_changed_node(|command| {
        command.arg("--allow-root").arg(own);
    });
    run(&narrow, "data/in", "data/counts").expect_success();
    run(&narrow, "secret/text", "data/others").expect_failure(2, &["on node", "secret/text"]);
    run(&narrow, "data/in", "secret/counts").expect_failure(2, &["on node", "secret/counts"]);
    let mut submit = narrow.sailfish(&["submit", "--wait"]);
    Running::start(submit.args(["--", "true"])).wait().expect_failure(2, &["directory"]);
}

#[test]
fn roots_must_be_absolute_directories() {
    let cluster = Cluster::builder().start();
    let refused = |root: &str, part: &str| {
        let mut server = cluster.sandbox.sailfish();
        server.args(["server", "--listen", "127.0.0.1:0", "--state", "other-state", "--allow-root", root]);
        Running::start(&mut server).wait().expect_failure(2, &["--allow-root", part]);
        let mut node = cluster.sailfish(&["node", "--memory", CLUSTER_MEMORY, "--disk", "disk"]);
        Running::start(node.args(["--allow-root", root])).wait().expect_failure(2, &["--allow-root", part]);
    };
    refused("data", "not an absolute path");
    refused("/not/there", "cannot be used");
    refused("gs://bucket", "gs:");
}
