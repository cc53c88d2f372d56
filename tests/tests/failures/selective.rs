//! Replication `selective`: maps append on other nodes than their own and keep what they sent, so that what is lost with a node is sent
//! again and no user's program runs twice.

use blackbox::{
    CLUSTER_MEMORY, Cluster, Event, Questions, Running, Stage, State, WAITS_AFTER_A_LINE, corpus,
    files_below, wait_until,
};
use rustix::process::Signal;
use std::path::PathBuf;

/// Says that it ran, and hands on what it reads; where that begins so, when it is let go.
const MAPPER: &str = "#!/bin/sh
echo ran >>HERE/ran
IFS= read -r line || exit 0
case \"$line\" in 'wait for it') GATE;; esac
{ printf '%s\\n' \"$line\"; cat; } | tr -s ' ' '\\n'
";
const TEXT_BYTES: usize = 12 << 20;
/// Size of the splits of a job with this little input.
const SPLIT_BYTES: usize = 1 << 20;
struct Job {
    cluster: Cluster,
    job: Running,
    mapper: String,
    reducer: String,
    more: Vec<String>,
}

impl Job {
    fn start(cluster: Cluster, more: &[&str]) -> Job {
        let sandbox = &cluster.sandbox;
        sandbox.write_text(TEXT_BYTES, 6);
        let mapper = sandbox.program("mapper.sh", MAPPER);
        let reducer = sandbox.program("reducer.sh", WAITS_AFTER_A_LINE);
        let more: Vec<String> = more.iter().map(ToString::to_string).collect();
        let args = arguments(&mapper, &reducer, &more, "out");
        let mut command = cluster.job(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.args(["--replication", "selective"]);
        let job = Running::start(&mut command);
        Job { cluster, job, mapper, reducer, more }
    }

    /// One whose reducers have begun to read and wait.
    fn reducing(nodes: u32, more: &[&str]) -> Job {
        let job = Self::start(Cluster::builder().nodes(nodes).start(), more);
        job.wait_for_reducers();
        assert_eq!(job.runs_of_mappers(), job.maps(), "before anything is lost");
        job
    }

    fn wait_for_reducers(&self) {
        self.cluster.attempts().of_job(1).in_stage(Stage::Reduce).is(State::Running).wait_for_some();
    }

    fn maps(&self) -> i64 {
        self.cluster.tasks().of_job(1).in_stage(Stage::Map).count()
    }

    fn runs_of_mappers(&self) -> i64 {
        runs_of_mappers(&self.cluster)
    }

    /// Kills the process of a node, by its number in the names of nodes.
    fn kill(&mut self, number: usize) {
        self.cluster.take_node(number).signal(Signal::KILL);
    }

    /// Lets all go on, until the job is over. The output is right, whatever happened.
    fn finish(self) -> Cluster {
        self.cluster.sandbox.open_gate();
        self.job.wait().expect_success();
        let ran = runs_of_mappers(&self.cluster);
        let sizes = ["--memory", CLUSTER_MEMORY, "--slots", "2"].map(String::from);
        let own = arguments(&self.mapper, &self.reducer, &self.more, "embedded");
        let args: Vec<&str> = sizes.iter().chain(&own).map(String::as_str).collect();
        self.cluster.sandbox.run_job(&args).expect_success();
        self.cluster.sandbox.assert_same_output("out", "embedded");
        self.cluster.sandbox.write("ran", "ran\n".repeat(ran as usize));
        self.cluster
    }
}

fn arguments(mapper: &str, reducer: &str, more: &[String], output: &str) -> Vec<String> {
    let own = ["--input", "in", "--mapper", mapper, "--reducer", reducer, "--output", output];
    own.iter().map(ToString::to_string).chain(more.iter().cloned()).collect()
}

fn runs_of_mappers(cluster: &Cluster) -> i64 {
    let ran = std::fs::read_to_string(cluster.sandbox.path("ran")).unwrap_or_default();
    ran.lines().count() as i64
}

fn shuffle(cluster: &Cluster, figure: &str) -> u64 {
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    report["shuffle"][figure].as_u64().unwrap_or_else(|| panic!("no {figure} in {report}"))
}

/// The spools on the disk of a node.
fn spools(cluster: &Cluster, node: u32) -> Vec<PathBuf> {
    let found = files_below(&cluster.node_disk(node));
    let is_spool = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("spool-"))
    };
    found.into_iter().filter(is_spool).collect()
}

#[test]
fn killed_node_reruns_no_program() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    assert!(maps > 3, "{maps} maps");
    assert_eq!(job.cluster.sources_at_home().count(), 0);
    let with_data = job.cluster.sources().map_tasks().len() as i64;
    assert_eq!((0..3).map(|node| spools(&job.cluster, node).len() as i64).sum::<i64>(), with_data);
    let doomed = job.cluster.runs().busiest_node();
    job.kill(doomed);
    job.cluster.events(Event::DataLost).wait_for_some();
    let cluster = job.finish();
    assert_eq!(runs_of_mappers(&cluster), maps);
    assert!(cluster.attempts().of_job(1).in_stage(Stage::Map).count() > maps);
    let told = cluster.explain(1);
    assert!(told.contains("from their spools, without the user's program"), "{told}");
    assert!(shuffle(&cluster, "resent_bytes") > 0);
    assert!(shuffle(&cluster, "spooled_bytes") >= shuffle(&cluster, "bytes"));
    assert_eq!(cluster.replicas().count(), 0);
}

/// While maps run: those that are done are sent again.
#[test]
fn node_lost_during_maps_reruns_only_its_programs() {
    let cluster = Cluster::builder().nodes(3).start();
    // As large as a split, to the byte: it is one, with nothing else in it.
    let mut last = [b"wait for it\n".to_vec(), corpus(SPLIT_BYTES)].concat();
    last.truncate(SPLIT_BYTES);
    cluster.sandbox.write("in/last.txt", last);
    let mut job = Job::start(cluster, &[]);
    // Tasks are there all at once.
    let maps = || job.cluster.tasks().of_job(1).in_stage(Stage::Map);
    wait_until("all maps but the last are done", || {
        maps().count() > 3 && maps().is_not(State::Done).count() == 1
    });
    let maps = job.maps();
    assert_eq!(job.runs_of_mappers(), maps);
    // Not the one where the last map runs.
    let doomed = job.cluster.sources().on_idle_nodes().busiest_node();
    job.kill(doomed);
    job.cluster.events(Event::DataLost).wait_for_some();
    let cluster = job.finish();
    let told = cluster.explain(1);
    assert!(told.contains("from their spools"), "{told}");
    // The last map may have had to run once more: what it appends, if anything, may have been under way there.
    assert!((maps..=maps + 1).contains(&runs_of_mappers(&cluster)), "{maps} maps");
}

/// The next server knows which frames were sent again.
#[test]
fn spools_outlive_the_server() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    let doomed = job.cluster.runs().busiest_node();
    job.kill(doomed);
    job.cluster.restart_server();
    job.cluster.events(Event::DataLost).wait_for_some();
    job.cluster.restart_server();
    assert_eq!(runs_of_mappers(&job.finish()), maps);
}

/// A second node dies when the data of the first was sent again.
#[test]
fn resent_data_is_sent_again_after_second_loss() {
    let mut job = Job::reducing(4, &[]);
    let first = job.cluster.runs().busiest_node();
    job.kill(first);
    job.cluster.events(Event::DataLost).wait_for_some();
    job.cluster.attempts().in_stage(Stage::Reduce).is(State::Running).again().wait_for_some();
    let second = job.cluster.runs().busiest_node();
    assert_ne!(first, second);
    // Processes are named by when they began; the one before it is gone.
    job.kill(if second > first { second - 1 } else { second });
    job.cluster.events(Event::DataLost).wait_until("more than one", |count| count > 1);
    let cluster = job.finish();
    let told = cluster.explain(1);
    assert!(told.matches("from their spools").count() > 1, "{told}");
}

#[test]
fn damaged_spool_makes_its_program_run_again() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    let doomed = job.cluster.runs().busiest_node();
    for path in (0..3).filter(|node| *node != doomed as u32).flat_map(|node| spools(&job.cluster, node)) {
        let mut bytes = std::fs::read(&path).expect("a spool can be read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("a spool can be written");
    }
    job.kill(doomed);
    job.cluster.events(Event::DataLost).wait_for_some();
    let cluster = job.finish();
    assert!(runs_of_mappers(&cluster) > maps);
    let told = cluster.explain(1);
    assert!(told.contains("ran the user's program: its spool cannot be sent again (spool-"), "{told}");
}

#[test]
fn program_runs_again_without_chunk_and_spool() {
    let mut job = Job::reducing(4, &[]);
    let maps = job.maps();
    // With node-0 and node-1 go spools of what lies on the other one.
    job.kill(1);
    job.kill(0);
    job.cluster.events(Event::DataLost).wait_for_some();
    let cluster = job.finish();
    assert!(runs_of_mappers(&cluster) >= maps);
}

/// Records that go to an I-file by their key go there again.
#[test]
fn total_order_is_sent_again_unchanged() {
    let mut job = Job::reducing(3, &["--total-order"]);
    let maps = job.maps();
    let doomed = job.cluster.runs().busiest_node();
    job.kill(doomed);
    job.cluster.events(Event::DataLost).wait_for_some();
    assert_eq!(runs_of_mappers(&job.finish()), maps);
}

/// A node that is alone in its rack appends in another one; one that is alone has nothing to gain.
#[test]
fn a_rack_of_one_node_uses_another_rack() {
    let cluster = Cluster::builder().racks(&["rack-0", "rack-1"]).start();
    let job = Job::start(cluster, &[]);
    job.wait_for_reducers();
    assert_eq!(job.cluster.sources_at_home().count(), 0);
    job.finish();
    let job = Job::start(Cluster::builder().nodes(1).start(), &[]);
    job.wait_for_reducers();
    assert!(spools(&job.cluster, 0).is_empty());
    let cluster = job.finish();
    assert_eq!(shuffle(&cluster, "spooled_bytes"), 0);
}
