//! A node that is emptied while a job runs takes nothing with it, and nothing is made again.

use blackbox::{Cluster, Event, Questions, Running, STORED_DIR, Stage, State, WaitingProgram};
use rustix::process::Signal;
use std::path::Path;

/// Several map tasks for each node.
const TEXT_BYTES: usize = 6 << 20;

/// Every map task was run once, whatever happened to the node.
fn assert_no_map_ran_again(cluster: &Cluster) {
    let attempts = cluster.attempts().of_job(1).in_stage(Stage::Map).count();
    assert_eq!(attempts, cluster.tasks().of_job(1).in_stage(Stage::Map).count());
    assert_eq!(cluster.events(Event::TaskRetried).count() + cluster.events(Event::StageReopened).count(), 0);
}

/// A job whose first map waits, on three nodes, one of which will be drained.
struct Draining {
    cluster: Cluster,
    mapper: WaitingProgram,
    reducer: WaitingProgram,
    job: Running,
}

impl Draining {
    /// Starts the job and drains a node when at least three maps are done.
    fn start() -> Draining {
        let cluster = Cluster::builder().nodes(3).start();
        cluster.sandbox.write_text(TEXT_BYTES, 4);
        let mut mapper = cluster.sandbox.waiting_once_program("mapper");
        let reducer = cluster.sandbox.waiting_once_program("reducer");
        let args = ["--input", "in", "--mapper", &mapper.path, "--reducer", &reducer.path];
        let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
        assert_eq!(mapper.here.read_line(), "here");
        let done = cluster.attempts().in_stage(Stage::Map).is(State::Succeeded);
        done.wait_until("at least 3", |count| count >= 3);
        let told = cluster.run(&["nodes", "drain", "node-0"]).expect_success();
        assert!(told.text().contains("draining"), "{}", told.text());
        Draining { cluster, mapper, reducer, job }
    }

    /// Lets the maps end, and waits until the reducers run.
    fn reduce(&mut self) {
        self.mapper.go.write_line("go on");
        assert_eq!(self.reducer.here.read_line(), "here");
    }

    /// Lets the reducers end. The node has left nothing, and no map ran again.
    fn finish(mut self) -> Cluster {
        assert_eq!(left_on(&self.cluster.node_disk(0)), 0);
        self.reducer.go.write_line("go on");
        self.job.wait().expect_success();
        assert_no_map_ran_again(&self.cluster);
        assert!(self.cluster.tasks().of_job(1).in_stage(Stage::Merge).any(), "nothing moved");
        let args = ["--input", "in", "--mapper", &self.mapper.path, "--reducer", &self.reducer.path];
        self.cluster.assert_as_embedded(&args);
        self.cluster
    }
}

/// Counts the files on a disk, except the cache of shipped files and the stored files, which are for the next node there.
fn left_on(disk: &Path) -> usize {
    let entries = std::fs::read_dir(disk).expect("a node has made its disk");
    let names = entries.map(|entry| entry.expect("a disk can be listed").file_name());
    names.filter(|name| name != ".sailfish-shipped" && name != STORED_DIR).count()
}

/// A draining node moves the output of its maps when they are over; then the node goes, while the job reduces.
#[test]
fn a_node_is_emptied_while_maps_run() {
    let mut draining = Draining::start();
    draining.reduce();
    // The reducers run and the node is not needed.
    let told = draining.cluster.run(&["nodes", "drain", "node-0", "--wait"]);
    assert!(told.expect_success().text().contains("drained"));
    draining.cluster.wait_for_node(0);
    let cluster = draining.finish();
    let nodes = cluster.run(&["nodes"]).expect_success().text();
    assert!(nodes.contains("drained"), "{nodes}");
}

/// The plan of the reducers stands: the node serves its runs until they have read them.
#[test]
fn a_node_serves_reducers_before_it_goes() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.sandbox.write_text(TEXT_BYTES, 4);
    let mut reducer = cluster.sandbox.waiting_once_program("reducer");
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", &reducer.path];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(reducer.here.read_line(), "here");
    // So little text is one run, for one reducer.
    assert_eq!(cluster.runs().count(), 1);
    let (serving, other) = if cluster.runs().on_node(0).any() { (0, 1) } else { (1, 0) };
    let name = |number: u32| format!("node-{number}");
    let drain = Running::start(&mut cluster.sailfish(&["nodes", "drain", &name(serving), "--wait"]));
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("\"draining\""));
    reducer.go.write_line("go on");
    job.wait().expect_success();
    assert!(drain.wait().expect_success().text().contains("drained"));
    cluster.wait_for_node(serving as usize);
    assert_no_map_ran_again(&cluster);
    cluster.assert_as_embedded(&args);
    // The last one cannot go, and one that does not exist neither.
    let drain = |name: &str| cluster.run(&["nodes", "drain", name]);
    drain(&name(other)).expect_failure(2, &["no other node"]);
    drain("node-7").expect_failure(2, &["no node of the name node-7"]);
}

/// The server is killed while a node is being emptied: the next one goes on with it, and nothing is made again.
#[test]
fn a_drain_goes_on_under_the_next_server() {
    let mut draining = Draining::start();
    draining.cluster.restart_server();
    let states = ["nodes", "--json"];
    draining.cluster.ask_until(&states, |answer| answer.contains("\"draining\""));
    draining.reduce();
    draining.cluster.ask_until(&states, |answer| answer.contains("\"drained\""));
    // Once more, when it has gone or is about to.
    draining.cluster.restart_server();
    draining.cluster.wait_for_node(0);
    let cluster = draining.finish();
    assert_eq!(cluster.nodes().named("node-0").count(), 1, "the node that was drained came back");
}

/// The node does not hear that it may leave before the server dies. The next one tells it again, in place of taking it for
/// a new one.
#[test]
fn drained_node_does_not_rejoin_the_next_server() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.node(0).signal(Signal::STOP);
    // The poll that waits carries that it is being emptied; that it may leave waits for the next poll, which does not come.
    cluster.run(&["nodes", "drain", "node-0"]).expect_success();
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("\"drained\""));
    cluster.restart_server();
    cluster.node(0).signal(Signal::CONT);
    cluster.wait_for_node(0);
    assert_eq!(cluster.nodes().named("node-0").count(), 1);
    let told = cluster.run(&["nodes", "drain", "node-0", "--wait"]);
    assert!(told.expect_success().text().contains("drained"));
}

/// Map tasks open chunks on the nodes of their own rack.
#[test]
fn chunks_stay_in_their_rack() {
    let cluster = Cluster::builder().racks(&["left", "right", "left", "right"]).start();
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("node-3"));
    cluster.sandbox.write_text(TEXT_BYTES, 4);
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    cluster.run_job(&[&args[..], &["--output", "out"]].concat()).expect_success();
    cluster.assert_as_embedded(&args);
    assert_eq!(cluster.sources_in_other_racks().of_job(1).count(), 0);
    assert!(cluster.sources().of_job(1).any());
}
