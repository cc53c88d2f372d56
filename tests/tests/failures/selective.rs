//! Replication `selective`: maps append on other nodes than their own and keep what they sent, so that what is lost with a node is sent
//! again and no user's program runs twice.

use blackbox::{CLUSTER_MEMORY, Cluster, Running, corpus};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// Says that it ran, and hands on what it reads; where that begins so, when it is let go.
const MAPPER: &str = "#!/bin/sh
echo ran >>HERE/ran
IFS= read -r line || exit 0
case \"$line\" in 'wait for it') until [ -e HERE/go-maps ]; do sleep 0.05; done;; esac
{ printf '%s\\n' \"$line\"; cat; } | tr -s ' ' '\\n'
";
/// Reads the first of what it is given, waits until everybody is let go, and hands all on.
const REDUCER: &str = "#!/bin/sh
IFS= read -r line
until [ -e HERE/go ]; do sleep 0.05; done
printf '%s\\n' \"$line\"
exec cat
";
const TEXT_BYTES: usize = 12 << 20;
/// Size of the splits of a job with this little input.
const SPLIT_BYTES: usize = 1 << 20;
/// Chunks and runs say their node in their upper bits.
const PER_NODE: i64 = 1 << 40;
const REDUCERS_RUN: &str =
    "select count(*) > 0 as one from attempts where stage = 3 and state = 'running' and job = 1";
const DATA_LOST: &str = "select count(*) > 0 as one from events where kind = 'data lost'";

struct Job {
    cluster: Cluster,
    job: Running,
    mapper: String,
    reducer: String,
    more: Vec<String>,
}

impl Job {
    fn start(cluster: Cluster, more: &[&str]) -> Job {
        for (number, piece) in corpus(TEXT_BYTES).chunks(TEXT_BYTES / 6 + 1).enumerate() {
            cluster.sandbox.write(&format!("in/{number}.txt"), piece);
        }
        let here = cluster.sandbox.path("");
        let script = |name, text: &str| {
            let text = text.replace("HERE", here.to_str().expect("a sandbox has a plain path"));
            let program = cluster.sandbox.script(name, &text);
            program.to_str().expect("a sandbox has a plain path").to_string()
        };
        let (mapper, reducer) = (script("mapper.sh", MAPPER), script("reducer.sh", REDUCER));
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
        job.cluster.wait_for(REDUCERS_RUN);
        assert_eq!(job.runs_of_mappers(), job.maps(), "before anything is lost");
        job
    }

    fn maps(&self) -> i64 {
        self.cluster.number("select count(*) as n from tasks where stage = 0 and job = 1")
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
        self.cluster.sandbox.write("go-maps", "");
        self.cluster.sandbox.write("go", "");
        self.job.wait().expect_success();
        let ran = runs_of_mappers(&self.cluster);
        let sizes = ["--memory", CLUSTER_MEMORY, "--slots", "2"].map(String::from);
        let own = arguments(&self.mapper, &self.reducer, &self.more, "embedded");
        let args: Vec<&str> = sizes.iter().chain(&own).map(String::as_str).collect();
        self.cluster.sandbox.run_job(&args).expect_success();
        let whole = |output| self.cluster.sandbox.concatenated(&self.cluster.sandbox.path(output));
        assert!(whole("out") == whole("embedded"), "the outputs differ");
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

fn explained(cluster: &Cluster) -> String {
    Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text()
}

fn shuffle(cluster: &Cluster, figure: &str) -> u64 {
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    report["shuffle"][figure].as_u64().unwrap_or_else(|| panic!("no {figure} in {report}"))
}

/// The number of the node with most runs.
fn node_with_runs(cluster: &Cluster) -> usize {
    let question = format!(
        "select cast(replace(n.name, 'node-', '') as integer) as n from runs r join nodes n \
         on n.node = r.run / {PER_NODE} group by n.name order by count(*) desc, n.name limit 1"
    );
    cluster.number(&question) as usize
}

/// How much was appended on the node of the attempt that did.
fn appended_at_home(cluster: &Cluster) -> i64 {
    cluster.number(&format!(
        "select count(*) as n from sources s join attempts a on a.job = s.job and a.stage = 0 and a.task = s.map_task \
         and a.attempt = s.attempt where s.chunk / {PER_NODE} = a.node"
    ))
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

/// The spools on the disk of a node.
fn spools(cluster: &Cluster, node: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files_below(&cluster.node_disk(node), &mut found);
    let is_spool = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("spool-"))
    };
    found.into_iter().filter(is_spool).collect()
}

#[test]
fn a_node_that_is_killed_costs_no_run_of_a_program() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    assert!(maps > 3, "{maps} maps");
    assert_eq!(appended_at_home(&job.cluster), 0);
    let with_data = job.cluster.number("select count(distinct map_task) as n from sources");
    assert_eq!((0..3).map(|node| spools(&job.cluster, node).len() as i64).sum::<i64>(), with_data);
    let doomed = node_with_runs(&job.cluster);
    job.kill(doomed);
    job.cluster.wait_for(DATA_LOST);
    let cluster = job.finish();
    assert_eq!(runs_of_mappers(&cluster), maps);
    assert!(cluster.number("select count(*) as n from attempts where job = 1 and stage = 0") > maps);
    let told = explained(&cluster);
    assert!(told.contains("from their spools, without the user's program"), "{told}");
    assert!(shuffle(&cluster, "resent_bytes") > 0);
    assert!(shuffle(&cluster, "spooled_bytes") >= shuffle(&cluster, "bytes"));
    assert_eq!(cluster.number("select count(*) as n from replicas"), 0);
}

/// While maps run: those that are done are sent again.
#[test]
fn a_node_that_dies_before_the_maps_end_costs_only_what_ran_there() {
    let cluster = Cluster::builder().nodes(3).start();
    // As large as a split, to the byte: it is one, with nothing else in it.
    let mut last = [b"wait for it\n".to_vec(), corpus(SPLIT_BYTES)].concat();
    last.truncate(SPLIT_BYTES);
    cluster.sandbox.write("in/last.txt", last);
    let mut job = Job::start(cluster, &[]);
    job.cluster.wait_for(
        "select count(*) > 3 and count(*) = sum(state = 'done') + 1 as one from tasks where stage = 0 and job = 1",
    );
    let maps = job.maps();
    assert_eq!(job.runs_of_mappers(), maps);
    // Not the one where the last map runs.
    let doomed = job.cluster.number(&format!(
        "select cast(replace(n.name, 'node-', '') as integer) as n from sources s join nodes n on n.node = s.chunk / {PER_NODE} \
         where n.node not in (select node from attempts where state = 'running') \
         group by n.name order by count(*) desc, n.name limit 1"
    ));
    job.kill(doomed as usize);
    job.cluster.wait_for(DATA_LOST);
    let cluster = job.finish();
    let told = explained(&cluster);
    assert!(told.contains("from their spools"), "{told}");
    // The last map may have had to run once more: what it appends, if anything, may have been under way there.
    assert!((maps..=maps + 1).contains(&runs_of_mappers(&cluster)), "{maps} maps");
}

/// The next server knows which frames were sent again.
#[test]
fn spools_outlive_the_server() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    let doomed = node_with_runs(&job.cluster);
    job.kill(doomed);
    job.cluster.restart_server();
    job.cluster.wait_for(DATA_LOST);
    job.cluster.restart_server();
    assert_eq!(runs_of_mappers(&job.finish()), maps);
}

/// A second node dies when the data of the first was sent again.
#[test]
fn what_was_sent_again_is_sent_again() {
    let mut job = Job::reducing(4, &[]);
    let first = node_with_runs(&job.cluster);
    job.kill(first);
    job.cluster.wait_for(DATA_LOST);
    job.cluster.wait_for(
        "select count(*) > 0 as one from attempts where stage = 3 and state = 'running' and attempt > 0",
    );
    let second = node_with_runs(&job.cluster);
    assert_ne!(first, second);
    // Processes are named by when they began; the one before it is gone.
    job.kill(if second > first { second - 1 } else { second });
    job.cluster.wait_for("select count(*) > 1 as one from events where kind = 'data lost'");
    let cluster = job.finish();
    let told = explained(&cluster);
    assert!(told.matches("from their spools").count() > 1, "{told}");
}

#[test]
fn where_a_spool_is_damaged_the_program_runs_again() {
    let mut job = Job::reducing(3, &[]);
    let maps = job.maps();
    let doomed = node_with_runs(&job.cluster);
    for path in (0..3).filter(|node| *node != doomed as u32).flat_map(|node| spools(&job.cluster, node)) {
        let mut bytes = std::fs::read(&path).expect("a spool can be read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("a spool can be written");
    }
    job.kill(doomed);
    job.cluster.wait_for(DATA_LOST);
    let cluster = job.finish();
    assert!(runs_of_mappers(&cluster) > maps);
    let told = explained(&cluster);
    assert!(told.contains("ran the user's program: its spool cannot be sent again (spool-"), "{told}");
}

#[test]
fn with_a_chunk_and_its_spool_both_gone_the_program_runs_again() {
    let mut job = Job::reducing(4, &[]);
    let maps = job.maps();
    // With node-0 and node-1 go spools of what lies on the other one.
    job.kill(1);
    job.kill(0);
    job.cluster.wait_for(DATA_LOST);
    let cluster = job.finish();
    assert!(runs_of_mappers(&cluster) >= maps);
}

/// Records that go to an I-file by their key go there again.
#[test]
fn a_total_order_is_sent_again_as_it_was() {
    let mut job = Job::reducing(3, &["--total-order"]);
    let maps = job.maps();
    let doomed = node_with_runs(&job.cluster);
    job.kill(doomed);
    job.cluster.wait_for(DATA_LOST);
    assert_eq!(runs_of_mappers(&job.finish()), maps);
}

/// A node that is alone in its rack appends in another one; one that is alone has nothing to gain.
#[test]
fn a_rack_of_one_node_uses_another_rack() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.add_node_in("rack-1");
    let job = Job::start(cluster, &[]);
    job.cluster.wait_for(REDUCERS_RUN);
    assert_eq!(appended_at_home(&job.cluster), 0);
    job.finish();
    let job = Job::start(Cluster::builder().nodes(1).start(), &[]);
    job.cluster.wait_for(REDUCERS_RUN);
    assert!(spools(&job.cluster, 0).is_empty());
    let cluster = job.finish();
    assert_eq!(shuffle(&cluster, "spooled_bytes"), 0);
}
