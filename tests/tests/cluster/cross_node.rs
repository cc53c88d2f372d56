//! Steps that read the standard output of a step while it runs on another node.

use blackbox::{Cluster, Fifo, Finished, Questions, Running, State, exchange, exchange_without_token};
use serde_json::{Value, json};
use std::fs;

/// Jobs of the two steps: the workflow is the first one.
const WRITER: i64 = 2;
const READER: i64 = 3;

/// A step that writes one line at once and another one later, and a step that reads it, on nodes of one slot each.
struct Streaming {
    cluster: Cluster,
    workflow: Running,
    /// The reader says its first line here.
    here: Fifo,
    /// The writer waits here.
    go: Fifo,
}

/// The reader says its first line, and puts out all.
const READS_ALL: &str = "read first; echo \"$first\" > ../here; echo \"$first\"; cat";

impl Streaming {
    /// Begins the workflow. `reads`: the command of the reader, which finds its pipes above its directory.
    fn begin(nodes: u32, reads: &str) -> Self {
        let mut cluster = Cluster::builder().start();
        for _ in 0..nodes {
            cluster.add_node_with("", &["--slots", "1"]);
        }
        let data = cluster.sandbox.path("data");
        fs::create_dir_all(&data).expect("a directory");
        let (here, go) = (cluster.sandbox.fifo("data/here"), cluster.sandbox.fifo("data/go"));
        let at = |text: &str| text.replace("../", &format!("{}/", data.display()));
        let file = |name: &str| json!({ "name": name, "path": data.join(name) });
        let writes = at("echo begun >> ../trace; echo one; read line < ../go; echo \"$line\"");
        let spec = json!({ "steps": [
            { "name": "writer", "program": {
                "words": ["sh", "-c", writes], "directory": data, "outputs": [file("a")], "stdout": "a",
            } },
            { "name": "reader", "program": {
                "words": ["sh", "-c", at(reads)], "directory": data, "inputs": [file("a")], "stdin": "a",
                "outputs": [file("b")], "stdout": "b",
            } },
        ] });
        cluster.sandbox.write("steps.json", spec.to_string());
        let mut command = cluster.sailfish(&["submit", "--wait", "--kind", "workflow"]);
        let workflow = Running::start(command.arg("--spec").arg(cluster.sandbox.path("steps.json")));
        Self { cluster, workflow, here, go }
    }

    /// Returns the number of the node that runs a job.
    fn node_of(&self, job: i64) -> usize {
        let running =
            |node: &usize| self.cluster.attempts().of_job(job).is(State::Running).on_node(*node).count() > 0;
        (0..4).find(running).expect("a node runs it")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.cluster.sandbox.path("data").join(name)).expect("it was made")
    }

    fn has(&self, name: &str) -> bool {
        self.cluster.sandbox.path("data").join(name).exists()
    }

    /// The workflow ends well, and its files are right.
    fn succeeds(self) -> Cluster {
        let Self { workflow, cluster, .. } = self;
        workflow.wait().expect_success();
        let read =
            |name: &str| fs::read_to_string(cluster.sandbox.path("data").join(name)).expect("it was made");
        assert_eq!((read("a").as_str(), read("b").as_str()), ("one\ntwo\n", "one\ntwo\n"));
        cluster
    }
}

#[test]
fn reader_sees_bytes_before_the_writer_ends() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    assert_ne!(streaming.node_of(WRITER), streaming.node_of(READER));
    assert!(!streaming.has("a") && !streaming.has("b"));
    streaming.go.write_line("two");
    let cluster = streaming.succeeds();
    for job in [WRITER, READER] {
        assert_eq!(cluster.attempts().of_job(job).count(), 1);
    }
}

/// The reader does not take the death of the writer's node for the end of its input.
#[test]
fn lost_writer_runs_again_and_nothing_is_torn() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    let node = streaming.node_of(WRITER);
    streaming.cluster.kill_node_at(node);
    streaming.cluster.attempts().of_job(WRITER).is(State::Running).again().wait_for_some();
    assert!(!streaming.has("a") && !streaming.has("b"));
    streaming.go.write_line("two");
    let cluster = streaming.succeeds();
    let trace = fs::read_to_string(cluster.sandbox.path("data/trace")).expect("both attempts wrote it");
    assert_eq!(trace.lines().count(), 2);
    assert_eq!(cluster.attempts().of_job(WRITER).count(), 2);
    // Its interrupted run is no failure: it has no retries.
    assert_eq!(cluster.attempts().of_job(READER).is(State::Succeeded).count(), 1);
    assert_eq!(cluster.attempts().of_job(READER).is(State::Failed).count(), 0);
}

#[test]
fn lost_reader_leaves_the_writer_alone() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    let node = streaming.node_of(READER);
    streaming.cluster.kill_node_at(node);
    streaming.cluster.attempts().of_job(READER).not_ended().wait_for(0);
    streaming.go.write_line("two");
    assert_eq!(streaming.read("trace"), "begun\n");
    let cluster = streaming.succeeds();
    assert_eq!(cluster.attempts().of_job(WRITER).count(), 1);
    assert_eq!(cluster.attempts().of_job(READER).count(), 2);
}

/// A reader that fails counts when the writer has ended, as if it began after it.
#[test]
fn failed_reader_lets_the_writer_end() {
    let mut streaming = Streaming::begin(2, "read first; echo \"$first\" > ../here; exit 3");
    assert_eq!(streaming.here.read_line(), "one");
    streaming.cluster.jobs().of_job(READER).is(State::Failed).wait_for_some();
    assert_eq!(streaming.cluster.jobs().of_job(WRITER).is(State::Running).count(), 1);
    streaming.go.write_line("two");
    let Streaming { cluster, workflow, .. } = streaming;
    workflow.wait().expect_failure(3, &["the step \"reader\" failed"]);
    assert_eq!(cluster.jobs().of_job(WRITER).is(State::Succeeded).count(), 1);
    assert_eq!(cluster.attempts().of_job(READER).count(), 1, "a program that failed does not run again");
    let read = fs::read_to_string(cluster.sandbox.path("data/a")).expect("it was made");
    assert_eq!(read, "one\ntwo\n");
}

/// A reader that runs early keeps no other job from a slot.
#[test]
fn early_reader_gives_its_slot_to_others() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    let other =
        Running::start(streaming.cluster.sailfish(&["submit", "--wait"]).args(["--", "echo", "other"]));
    let other: Finished = other.wait();
    assert!(other.expect_success().text().ends_with("\nother\n"));
    assert_eq!(streaming.cluster.attempts().of_job(WRITER).is(State::Running).count(), 1);
    streaming.go.write_line("two");
    let cluster = streaming.succeeds();
    assert_eq!(cluster.attempts().of_job(READER).is(State::Succeeded).count(), 1);
    assert_eq!(cluster.attempts().of_job(READER).is(State::Failed).count(), 0);
}

#[test]
fn restarted_server_begins_the_reader_again() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    streaming.cluster.restart_server();
    streaming.cluster.attempts().of_job(READER).is(State::Running).again().wait_for_some();
    assert_eq!(streaming.here.read_line(), "one");
    streaming.go.write_line("two");
    let cluster = streaming.succeeds();
    assert_eq!(cluster.attempts().of_job(WRITER).count(), 1);
}

/// A stream is read only with the right of the server to the data of the job that writes it.
#[test]
fn streams_are_closed_to_strangers() {
    let mut streaming = Streaming::begin(2, READS_ALL);
    assert_eq!(streaming.here.read_line(), "one");
    let nodes = streaming.cluster.run(&["nodes", "--json"]).expect_success().json();
    let nodes: Vec<Value> = nodes["nodes"].as_array().expect("nodes").clone();
    for node in &nodes {
        let address = node["info"]["data_url"].as_str().expect("a URL").trim_start_matches("http://");
        let head = |job: i64| {
            let kind = "content-type: application/octet-stream";
            format!("POST /data/v1/jobs/{job}/outputs\n{kind}\nsailfish-incarnation: {}", node["node"])
        };
        let answer = exchange_without_token(address, &head(WRITER), b"x").expect("a data port answers");
        assert_eq!(answer.status, 401);
        // The token of a user, and made-up rights to data of the jobs.
        let made_up =
            ["job.2", "job.3"].map(|job| format!("authorization: Bearer {job}.0123456789abcdef.00"));
        for shown in made_up.into_iter().chain([streaming.cluster.own_token_header()]) {
            let head = format!("{}\n{}", head(WRITER), shown.trim());
            let answer = exchange(address, &head, b"x").expect("a data port answers");
            assert_eq!(answer.status, 403, "{shown}");
        }
    }
    // The right itself goes only to nodes that run the reader.
    let body = json!({}).to_string();
    let head = format!("POST /v1/jobs/{WRITER}/brief\ncontent-type: application/json");
    let answer = exchange(streaming.cluster.address(), &head, body.as_bytes()).expect("the server answers");
    assert_eq!(answer.status, 403);
    streaming.go.write_line("two");
    streaming.succeeds();
}
