//! Each call by which the engine changes its files fails once, and from some call on all do: a small job ends right, or fails
//! and names the cause; nothing half-written is published, nothing is left, and the next job is none the worse.

use blackbox::{Cluster, Finished, Questions, Running, Sandbox};
use faults::IoCall;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FAILED: i32 = 1;
const REFUSED: i32 = 2;
/// Calls of one kind in a small job, at most: a walk that goes on longer does not end.
const CALLS_MAX: u64 = 400;

/// Lines of each file of the input: for two map tasks, and for more than one node has slots.
const LINES: u32 = 22_000;
const LINES_OF_CLUSTER: u32 = 120_000;

/// Returns the words of the system for a fault.
fn words(fault: &str) -> &'static str {
    match fault {
        "eio" => "Input/output error",
        _ => "No space left on device",
    }
}

/// Lines with keys in no order, in three files of which no task reads all.
fn write_input(sandbox: &Sandbox, lines: u32) -> Vec<u8> {
    let line = |n: u32| format!("{:07}\tvalue-{n}\n", n.wrapping_mul(2_654_435_761) % 10_000_000);
    let mut text = Vec::new();
    for number in 0..3 {
        let piece: Vec<u8> = (0..lines).flat_map(|n| line(number * lines + n).into_bytes()).collect();
        sandbox.write(&format!("in/{number}.txt"), &piece);
        text.extend(piece);
    }
    text
}

/// A job of one process that has all there is to be written: runs, work directories with files, parts.
struct Embedded {
    sandbox: Sandbox,
    options: &'static [&'static str],
    expected: Vec<u8>,
}

/// Every run goes to the disk, parts are synced.
const KEEPING: &[&str] = &["--keep-for", "0s"];
/// Two jobs, one of which reads what the other wrote: stage files lie between them.
const STAGED: &[&str] = &["--job", "flow.toml"];
/// Its stages; what the second reads is what the first was given.
const STAGES: &str = r#"
memory = "64M"
slots = 2
partitions = 3

[[stage]]
name = "first"
input = "in"
mapper = "./map.sh"
file = ["map.sh", "beside.txt"]

[[stage]]
name = "second"
from = "first"
"#;
/// The same where each job brings its program.
const STAGES_OF_CLUSTER: &str = r#"
[[stage]]
name = "first"
input = "in"
mapper = "ship/map.sh"
partitions = 3

[[stage]]
name = "second"
from = "first"
"#;
/// Parts go through the page cache, compressed.
const COMPRESSING: &[&str] = &["--compress", "gzip", "--no-sync"];

impl Embedded {
    fn new(options: &'static [&'static str]) -> Self {
        let sandbox = Sandbox::new();
        let text = write_input(&sandbox, LINES);
        sandbox.script("map.sh", "#!/bin/sh\nexec cat - beside.txt\n");
        sandbox.write("beside.txt", "");
        sandbox.write("flow.toml", STAGES);
        Self { sandbox, options, expected: blackbox::sorted_lines(&text) }
    }

    fn command(&self) -> Command {
        if self.options == STAGED {
            return self.sandbox.job(self.options);
        }
        let args = ["--input", "in", "--partitions", "3", "--memory", "64M", "--slots", "2"];
        let functions = ["--mapper", "./map.sh", "--file", "map.sh", "--file", "beside.txt"];
        self.sandbox.job(&[&args, &functions[..], self.options].concat())
    }

    fn run(&self, fault: &str) -> Finished {
        let mut command = self.command();
        command.env("SAILFISH_IO_FAULT", fault);
        Running::start(&mut command).wait()
    }
}

/// How the jobs of a walk ended that a fault struck.
#[derive(Debug, Default)]
struct Ends {
    right: u32,
    /// Before anything ran.
    refused: u32,
    failed: u32,
}

/// The run was struck by the fault it was to be struck by: there are as many calls.
fn was_struck(finished: &Finished) -> bool {
    finished.stderr.contains("gets the planted fault")
}

/// A failure of a kind that it may be, with its cause and what it happened to.
#[track_caller]
fn assert_named(finished: &Finished, cause: &str) {
    let story = finished.story();
    assert!(matches!(finished.code(), Some(FAILED | REFUSED)), "{story}");
    assert!(!story.contains("panicked at"), "{story}");
    let names = |line: &str| line.contains(cause) && line.contains('/');
    assert!(finished.stderr.lines().any(names), "no line names the cause ({cause}) and a path:\n{story}");
}

impl Embedded {
    /// The output is the right one, and nothing else is there once what was to be kept has been collected.
    #[track_caller]
    fn assert_right(&self) {
        let out = self.sandbox.out();
        let mut found = Vec::new();
        for name in self.sandbox.part_names(&out) {
            let bytes = std::fs::read(out.join(name)).expect("a part can be read");
            let is_packed = self.options.contains(&"--compress");
            found.extend(if is_packed { blackbox::unpacked("gz", &bytes) } else { bytes });
        }
        assert!(blackbox::sorted_lines(&found) == self.expected, "the output differs from the reference");
        let shown = out.to_str().expect("a sandbox has a plain path");
        self.sandbox.sailfish_with(&["verify", shown]).expect_success();
        self.collect();
        self.sandbox.assert_no_leftovers();
        std::fs::remove_dir_all(out).expect("an output can be removed");
    }

    /// Removes what was kept, of jobs that failed as well. Before the first job there is no state to look at.
    fn collect(&self) {
        if self.options == KEEPING && self.sandbox.state().join("sailfish.db").exists() {
            self.sandbox.look(&["gc", "--all"]).expect_success();
        }
    }

    /// One run under a fault, and one without where that has failed; false where the job has fewer calls.
    fn survives(&self, fault: &str, cause: &str, ends: &mut Ends) -> bool {
        println!("SAILFISH_IO_FAULT={fault} {:?}", self.options);
        let finished = self.run(fault);
        if finished.status.success() {
            self.assert_right();
            let struck = was_struck(&finished);
            ends.right += u32::from(struck);
            return struck;
        }
        assert!(was_struck(&finished), "{}", finished.story());
        assert_named(&finished, cause);
        println!("failed: {}", finished.stderr.trim_end());
        self.collect();
        self.sandbox.assert_nothing_left();
        ends.refused += u32::from(finished.code() == Some(REFUSED));
        ends.failed += u32::from(finished.code() == Some(FAILED));
        Running::start(&mut self.command()).wait().expect_success();
        self.assert_right();
        true
    }

    /// Every so many-th call of each kind, until the job has no more; `ending` stands behind their numbers.
    fn walk(&self, fault: &str, ending: &str, step: u64) -> Ends {
        let mut total = 0;
        let mut all = Ends::default();
        for call in IoCall::ALL {
            let mut number = 1;
            while self.survives(&format!("{}:{fault}:{number}{ending}", call.name()), words(fault), &mut all)
            {
                number += step;
                total += 1;
                assert!(number < CALLS_MAX, "{} calls have no end", call.name());
            }
        }
        println!("{fault}{ending} at {total} calls of {:?}: {all:?}", self.options);
        assert!(total >= 8);
        all
    }
}

#[test]
fn a_job_survives_each_call_that_fails_once() {
    let ends = Embedded::new(KEEPING).walk("eio", "", 1);
    assert_eq!(ends.failed, 0, "what fails once is tried again");
}

#[test]
fn job_survives_disk_that_fills_at_any_call() {
    Embedded::new(KEEPING).walk("enospc", "+", 1);
}

#[test]
fn compressing_job_survives_failing_calls() {
    let job = Embedded::new(COMPRESSING);
    job.walk("enospc", "", 3);
    job.walk("eio", "+", 4);
}

#[test]
fn stages_survive_each_call_that_fails_once() {
    let ends = Embedded::new(STAGED).walk("eio", "", 1);
    assert_eq!(ends.failed, 0, "what fails once is tried again");
}

#[test]
fn stages_survive_disk_that_fills_at_any_call() {
    Embedded::new(STAGED).walk("enospc", "+", 2);
}

#[test]
fn slow_calls_change_nothing() {
    let job = Embedded::new(KEEPING);
    for call in IoCall::ALL {
        for number in ["1", "3", "8", "1+"] {
            let finished = job.run(&format!("{}:slow:{number}", call.name()));
            assert!(was_struck(&finished) || number == "8", "{}", finished.story());
            finished.expect_success();
            job.assert_right();
        }
    }
}

/// The calls in a log, and how many of each kind there are.
fn counts(log: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for kind in text.lines().filter_map(|line| line.split(' ').next()) {
        *counts.entry(kind.to_string()).or_default() += 1;
    }
    counts
}

/// The numbers of the calls that stand in a log behind its beginning, every so many-th of each kind.
fn later_calls(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    step: usize,
) -> Vec<(String, u64)> {
    let mut calls = Vec::new();
    for (kind, last) in after {
        let first = before.get(kind).copied().unwrap_or(0) + 1;
        calls.extend((first..=*last).step_by(step).map(|number| (kind.clone(), number)));
    }
    calls
}

/// A cluster with a node whose calls fail, and perhaps one that is well.
struct Struck {
    cluster: Cluster,
    expected: Vec<u8>,
    jobs: u32,
    /// Its jobs are two, one of which reads what the other wrote.
    staged: bool,
}

impl Struck {
    fn new(cluster: Cluster) -> Self {
        let text = write_input(&cluster.sandbox, LINES_OF_CLUSTER);
        cluster.sandbox.write("flow.toml", STAGES_OF_CLUSTER);
        Self { cluster, expected: blackbox::sorted_lines(&text), jobs: 0, staged: false }
    }

    fn add_node(&mut self, variable: &str, value: &str) {
        self.cluster.add_changed_node(|command| {
            command.env(variable, value);
        });
    }

    /// Ends the node that was added last, which may have warned of what happened to it.
    fn end_node(&mut self, healthy_nodes: usize) -> Finished {
        let node = self.cluster.take_node(healthy_nodes);
        node.signal(rustix::process::Signal::TERM);
        let ended = node.wait();
        assert!(!ended.stderr.contains("panicked at"), "{}", ended.story());
        ended
    }

    /// Runs a job under a name of its own, which ships its program.
    fn run(&mut self) -> (Finished, PathBuf) {
        self.jobs += 1;
        let output = format!("out-{}", self.jobs);
        self.cluster.sandbox.script("ship/map.sh", &format!("#!/bin/sh\n# {}\nexec cat\n", self.jobs));
        let plain = ["--input", "in", "--partitions", "3", "--mapper", "ship/map.sh", "--keep-for", "0s"];
        let args = if self.staged { STAGED } else { &plain };
        let ran = Running::start(self.cluster.job(args).args(["--output", &output])).wait();
        (ran, self.cluster.sandbox.path(&output))
    }

    /// A job ends right, or says why not and leaves nothing.
    fn survive(&mut self, cause: &str, ends: &mut Ends) {
        let (finished, out) = self.run();
        if finished.status.success() {
            self.assert_right(&out);
            ends.right += 1;
        } else {
            assert_named(&finished, cause);
            assert!(!out.exists(), "an output of a failed job:\n{}", finished.story());
            println!("failed: {}", finished.stderr.trim_end());
            ends.failed += 1;
        }
        self.cluster.jobs().not_cleaned().wait_for(0);
        let entries = std::fs::read_dir(self.cluster.sandbox.path("")).expect("a sandbox can be listed");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let staging: Vec<String> = names.filter(|name| name.starts_with(".out-")).collect();
        assert!(staging.is_empty(), "left behind: {staging:?}");
    }

    #[track_caller]
    fn assert_right(&self, out: &Path) {
        let found = self.cluster.sandbox.concatenated(out);
        assert!(blackbox::sorted_lines(&found) == self.expected, "{} is wrong", out.display());
    }
}

/// A node fails at some of its calls: `ending` stands behind their numbers. Its jobs, and one when it has gone.
fn survive_a_bad_node(healthy_nodes: u32, fault: &str, ending: &str, step: usize) -> Ends {
    survive_with(false, healthy_nodes, fault, ending, step)
}

fn survive_with(staged: bool, healthy_nodes: u32, fault: &str, ending: &str, step: usize) -> Ends {
    let mut cluster = Cluster::builder().start();
    // In a rack of their own, so that each keeps what its own maps put out.
    (0..healthy_nodes).for_each(|_| cluster.add_node_in("elsewhere"));
    let mut struck = Struck { staged, ..Struck::new(cluster) };
    let log = struck.cluster.sandbox.path("calls");
    struck.add_node("SAILFISH_IO_LOG", log.to_str().expect("a sandbox has a plain path"));
    let before = counts(&log);
    let mut ends = Ends::default();
    struck.survive(words(fault), &mut ends);
    assert_eq!(ends.right, 1);
    struck.end_node(healthy_nodes as usize);
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    let kept = if staged { ".stage" } else { "/run-" };
    assert!(told.contains(kept) && told.contains("/.part-"), "a node that does little:\n{told}");
    let (mut ends, mut reached) = (Ends::default(), 0);
    let calls = later_calls(&before, &counts(&log), step);
    for (call, number) in &calls {
        let fault_at = format!("{call}:{fault}:{number}{ending}");
        println!("SAILFISH_IO_FAULT={fault_at} beside {healthy_nodes} nodes");
        struck.add_node("SAILFISH_IO_FAULT", &fault_at);
        struck.survive(words(fault), &mut ends);
        reached += u32::from(was_struck(&struck.end_node(healthy_nodes as usize)));
    }
    println!("{fault}{ending} at {} calls of a node ({reached} reached): {ends:?}", calls.len());
    assert!(reached as usize > calls.len() / 3);
    struck.cluster.add_node();
    let (last, out) = struck.run();
    last.expect_success();
    struck.assert_right(&out);
    ends
}

#[test]
fn cluster_survives_failing_calls_of_only_node() {
    let ends = survive_a_bad_node(0, "eio", "", 1);
    assert_eq!(ends.failed, 0, "what fails once is tried again");
}

#[test]
fn stages_survive_failing_calls_of_only_node() {
    let ends = survive_with(true, 0, "eio", "", 2);
    assert_eq!(ends.failed, 0, "what fails once is tried again");
}

#[test]
fn cluster_survives_node_whose_disk_fills() {
    let ends = survive_a_bad_node(1, "enospc", "+", 2);
    assert_eq!(ends.failed, 0, "what fails on one node goes to the other");
    survive_a_bad_node(0, "enospc", "+", 3);
}

#[test]
fn stages_survive_node_whose_disk_fills() {
    let ends = survive_with(true, 1, "enospc", "+", 4);
    assert_eq!(ends.failed, 0, "what fails on one node goes to the other");
}

#[test]
fn slow_calls_of_a_node_change_nothing() {
    let (some, all) = (survive_a_bad_node(1, "slow", "", 4), survive_a_bad_node(0, "slow", "+", 8));
    assert_eq!(some.failed + all.failed, 0);
}

/// Faults in files that a server writes itself beside its store: its locks, files that clients ship, the staging directories.
#[test]
fn server_survives_each_failing_call() {
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_path_buf();
    let mut struck = Struck::new(
        Cluster::builder()
            .nodes(1)
            .server_command(|command| {
                command.env("SAILFISH_IO_LOG", &path);
            })
            .start(),
    );
    let before = counts(&path);
    let mut ends = Ends::default();
    struck.survive("", &mut ends);
    let after = counts(&path);
    for (call, number) in later_calls(&BTreeMap::new(), &before, 1) {
        println!("SAILFISH_IO_FAULT={call}:eio:{number} of a server that begins");
        let sandbox = Sandbox::new();
        let mut command = sandbox.sailfish();
        command.args(["server", "--listen", "127.0.0.1:0", "--state"]).arg(sandbox.path("server-state"));
        command.env("SAILFISH_IO_FAULT", format!("{call}:eio:{number}"));
        assert_named(&Running::start(&mut command).wait(), words("eio"));
    }
    let later = later_calls(&before, &after, 1);
    for (call, number) in &later {
        let fault = format!("{call}:enospc:{number}");
        println!("SAILFISH_IO_FAULT={fault} of a server");
        let mut struck = Struck::new(
            Cluster::builder()
                .nodes(1)
                .server_command(|command| {
                    command.env("SAILFISH_IO_FAULT", &fault);
                })
                .start(),
        );
        struck.survive(words("enospc"), &mut ends);
        let said = struck.cluster.server().stderr_so_far();
        assert!(said.contains("gets the planted fault"), "{said}");
        let (next, out) = struck.run();
        next.expect_success();
        struck.assert_right(&out);
    }
    println!("enospc at {} calls of a server that serves: {ends:?}", later.len());
    assert!(later.len() > 4);
}
