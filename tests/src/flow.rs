//! Flows for tests: stages whose output others read, input for them, the files in between, and damage to these.

use crate::{
    Cluster, Event, Fifo, Questions, Random, Running, Sandbox, State, WAITS_AT_THE_GATE, wait_until,
};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The stage that counts words, for which WORDS stands in a flow.
const WORDS: &str = r#"[[stage]]
name = "words"
input = "in"
mapper = "builtin:words"
reducer = "builtin:sum"
partitions = 6
"#;

/// Three stages: the last reads the first, and a second one that is not over before it is let go. Whatever runs twice does so because
/// something was lost.
pub const GATED: &str = r#"
memory = "64M"
slots = 2
speculation = false
replication = "MODE"

WORDS
[[stage]]
name = "gate"
input = "gate.txt"
map_only = true
mapper = "HERE/waits.sh"

[[stage]]
name = "lines"
from = ["words", "gate"]
total_order = true
output = "OUT"
"#;

/// Two stages; the mappers of the second all begin, and wait to be let go. MODE and REDUCER are to be filled in.
const WAITING: &str = r#"
memory = "64M"
slots = 2
replication = "MODE"

[[stage]]
name = "words"
input = "in"
mapper = "builtin:words"
reducer = "REDUCER"
partitions = 6

[[stage]]
name = "lines"
from = "words"
mapper = "HERE/waits.sh"
output = "OUT"
"#;

/// The first stage is done when the program of the second tells its process number, and hangs; the third waits.
const HANGS: &str = r#"
memory = "64M"
slots = 2

WORDS
[[stage]]
name = "lines"
from = "words"
mapper = "HERE/hangs.sh"

[[stage]]
name = "last"
from = ["words", "lines"]
output = "OUT"
"#;

/// Some files of words below `in`, a line for the gate, and the program that waits for a file `go`.
pub fn write_input(sandbox: &Sandbox) {
    for file in 0..3 {
        let words = |line: usize| format!("w{} w{} and w{file}\n", line * 7919 % 613, line * line % 89);
        let text: String = (0..4_000).map(words).collect();
        sandbox.write(&format!("in/{file}.txt"), text);
    }
    sandbox.write("gate.txt", "through\tthe gate\n");
    sandbox.program("waits.sh", WAITS_AT_THE_GATE);
}

/// Returns a flow with the stage that counts words in place of WORDS.
pub fn with_words(text: &str) -> String {
    text.replace("WORDS", WORDS)
}

/// Writes a job file in which HERE stands for the sandbox, OUT for the output, and WORDS for the stage that counts words.
pub fn write_flow(sandbox: &Sandbox, name: &str, text: &str, output: &str) {
    let text = with_words(text).replace("HERE", &sandbox.directory());
    sandbox.write(name, text.replace("OUT", output));
}

/// Writes a hanging flow as `flow.toml`. Returns the pipe on which the first attempt of its program tells its process number.
pub fn write_hanging(sandbox: &Sandbox) -> Fifo {
    write_input(sandbox);
    let pids = sandbox.fifo("pids");
    let said = sandbox.path("said");
    let says = format!("mkdir '{}' 2>/dev/null && echo $$ > '{}'", said.display(), pids.text());
    sandbox.script("hangs.sh", &format!("#!/bin/sh\n{says}\nexec sleep 3600\n"));
    write_flow(sandbox, "flow.toml", HANGS, "out");
    pids
}

/// Lets the program of another hanging flow tell its process number.
pub fn forget_who_hung(sandbox: &Sandbox) {
    std::fs::remove_dir(sandbox.path("said")).expect("the first attempt made it");
}

/// A cluster of so many nodes with input for flows.
pub fn cluster_with_input(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    write_input(&cluster.sandbox);
    cluster
}

/// A flow on a cluster, written as `flow.toml`.
pub fn start_on(cluster: &Cluster, text: &str, output: &str) -> Running {
    write_flow(&cluster.sandbox, "flow.toml", text, output);
    Running::start(&mut cluster.sailfish(&["run", "--job", "flow.toml"]))
}

/// The first flow of a cluster, of two stages: the first stage is done, and of the second every attempt that has a slot runs.
pub fn start_between(cluster: &Cluster, mode: &str, reducer: &str) -> Running {
    let flow = start_on(cluster, &WAITING.replace("MODE", mode).replace("REDUCER", reducer), "out");
    cluster.attempts().of_job(2).is(State::Running).wait_for_some();
    flow
}

/// A flow that waits goes on, and gives what it gives on one machine.
#[track_caller]
pub fn let_finish(cluster: &Cluster, flow: Running) {
    cluster.sandbox.open_gate();
    flow.wait().expect_success();
    assert_as_embedded(&cluster.sandbox, "flow.toml", "out");
}

/// Attempts of a job that ran because something was lost.
pub fn attempts_again(cluster: &Cluster, job: i64) -> i64 {
    cluster.attempts().of_job(job).again().count()
}

/// The server has given a node up.
pub fn wait_until_gone(cluster: &Cluster) {
    cluster.events(Event::NodeGone).wait_for_some();
}

/// A flow in this process, with the disk and the state of the sandbox.
pub fn start_here(sandbox: &Sandbox, file: &str) -> Running {
    let mut command = sandbox.sailfish();
    command.args(["run", "--job", file, "--state"]).arg(sandbox.state()).arg("--disk").arg(sandbox.disk());
    Running::start(&mut command)
}

/// The flow gives what it gives on one machine. Everything is let go.
#[track_caller]
pub fn assert_as_embedded(sandbox: &Sandbox, file: &str, output: &str) {
    sandbox.open_gate();
    let text = std::fs::read_to_string(sandbox.path(file)).expect("our own file");
    let other = format!("{output}-embedded");
    if !sandbox.path(&other).exists() {
        sandbox.write("embedded.toml", text.replace(&format!("\"{output}\""), &format!("\"{other}\"")));
        start_here(sandbox, "embedded.toml").wait().expect_success();
    }
    sandbox.assert_same_output(output, &other);
}

/// Returns the stage files of a job, by name. A replica has the name of its original.
pub fn stage_files(sandbox: &Sandbox, job: i64) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found = stage_files_below(&sandbox.path(""));
    let is_of_job = |path: &PathBuf| {
        path.parent().is_some_and(|dir| dir.to_string_lossy().ends_with(&format!("-job{job}")))
    };
    found.values_mut().for_each(|paths| paths.retain(is_of_job));
    found.retain(|_, paths| !paths.is_empty());
    found
}

fn stage_files_below(dir: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for path in entries.map(|entry| entry.expect("a sandbox can be listed").path()) {
        if path.is_dir() {
            for (name, paths) in stage_files_below(&path) {
                found.entry(name).or_default().extend(paths);
            }
        } else if path.extension().is_some_and(|extension| extension == "stage") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.entry(name).or_default().push(path);
        }
    }
    found.values_mut().for_each(|paths| paths.sort());
    found
}

/// Damage to a stage file.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    Flip,
    CutShort,
    Empty,
    TakeAway,
}

impl Damage {
    pub fn choose(random: &mut Random) -> Damage {
        *random.one_of(&[Self::Flip, Self::Flip, Self::CutShort, Self::Empty, Self::TakeAway])
    }

    pub fn strike(self, path: &Path, random: &mut Random) {
        println!("{self:?} {}", path.display());
        if let Self::TakeAway = self {
            return std::fs::remove_file(path).expect("a file is taken away");
        }
        let file = OpenOptions::new().read(true).write(true).open(path).expect("a stage file opens");
        let at = random.below(file.metadata().expect("it has a size").len());
        match self {
            Self::CutShort => file.set_len(at).expect("a file is cut"),
            Self::Empty => file.set_len(0).expect("a file is cut"),
            Self::Flip | Self::TakeAway => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("a byte is read");
                byte[0] ^= 1 << random.below(8);
                file.write_all_at(&byte, at).expect("a byte is written");
            }
        }
    }
}

/// A gated flow on three nodes, its first stage at rest.
pub fn start_gated(cluster: &Cluster, mode: &str, output: &str) -> (Running, i64) {
    start_at_gate(cluster, &GATED.replace("MODE", mode), output)
}

/// The same of a changed text.
pub fn start_at_gate(cluster: &Cluster, text: &str, output: &str) -> (Running, i64) {
    cluster.sandbox.close_gate();
    let before = cluster.last_job();
    let flow = start_on(cluster, text, output);
    flow.wait_for_stderr("stage words is done");
    let gate = before + 2;
    cluster.attempts().of_job(gate).is(State::Running).wait_for_some();
    (flow, before + 1)
}

/// Each of the six parts lies on two nodes, and the server knows.
#[track_caller]
pub fn wait_for_replicas(cluster: &Cluster, job: i64) {
    let flows = (job + 2) / 3;
    cluster.part_replicas().wait_until("six for each flow", |count| count >= 6 * flows);
}

/// Waits until no node has a file of a stage any more: they go when their flow is over.
#[track_caller]
pub fn nothing_of_stages_is_left(cluster: &Cluster) {
    wait_until("no node has a file of a stage", || stage_files_below(&cluster.sandbox.path("")).is_empty());
}
