//! Nodes of a cluster whose disks are full, or become read-only while a job runs: other disks and other nodes do the work,
//! or the job fails and names the disk. Nothing half-written is ever published.

use blackbox::{Cluster, Fifo, Mounts, Random, Running};
use std::path::PathBuf;

/// More than the memory for chunks of a job with `--memory 64M`.
const LARGE_BYTES: usize = 72 << 20;
const SMALL_BYTES: usize = 4 << 20;

/// A cluster without nodes, and text in four files that hardly shrinks.
fn set_up(bytes: usize) -> (Cluster, Vec<u8>) {
    let cluster = Cluster::start(0);
    let mut random = Random::new(11);
    let mut text = Vec::new();
    for number in 0..4 {
        let mut piece = Vec::new();
        while piece.len() < bytes / 4 {
            let line: String = (0..6).map(|_| format!("{:016x}", random.next_bits())).collect();
            piece.extend_from_slice(line.as_bytes());
            piece.push(b'\n');
        }
        cluster.sandbox.write(&format!("in/{number}.txt"), &piece);
        text.extend_from_slice(&piece);
    }
    (cluster, text)
}

/// A node in a place where file systems are mounted, with these disks, and then perhaps one of its own. One without has a
/// single slot, so that nothing runs there beside a program that hangs.
fn add_node(cluster: &mut Cluster, mounts: &Mounts, disks: &[&PathBuf], own: bool) {
    cluster.add_node_inside(mounts, |args| {
        // Last stands the disk that a test node has.
        let own_disk = args.split_off(args.len() - 2);
        for disk in disks {
            args.extend(["--disk".into(), disk.as_os_str().to_os_string()]);
        }
        let slots = args.iter().position(|arg| arg == "--slots").expect("a test node says how many");
        if own {
            args.extend(own_disk);
        } else {
            args[slots + 1] = "1".into();
        }
    });
}

/// A program that hands on what it reads; the first one says on a pipe that it has read a line, and waits on another.
fn hangs_once(cluster: &Cluster) -> (Fifo, Fifo, String) {
    let (here, go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let first = cluster.sandbox.path("first");
    let hang = format!("echo here > '{}'; read line < '{}'", here.text(), go.text());
    let text = format!("#!/bin/sh\nif mkdir '{}' 2>/dev/null; then {hang}; fi\nexec cat\n", first.display());
    let program = cluster.sandbox.script("hangs.sh", &text);
    (here, go, program.to_str().expect("a sandbox has a plain path").to_string())
}

fn start(cluster: &Cluster, output: &str, more: &[&str]) -> Running {
    let args =
        ["run", "--memory", "64M", "--slots", "2", "--codec", "none", "--total-order", "--input", "in"];
    Running::start(cluster.sailfish(&args).args(["--output", output]).args(more))
}

#[track_caller]
fn assert_sorted(cluster: &Cluster, output: &str, text: &[u8]) {
    let whole = cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole == blackbox::sorted_lines(text), "{output} is wrong");
}

/// No output, and nothing hidden beside it.
#[track_caller]
fn assert_nothing_published(cluster: &Cluster, output: &str) {
    let entries = std::fs::read_dir(cluster.sandbox.path("")).expect("a sandbox");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| name.contains(output)).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_node_whose_disk_is_full_fails_the_job_and_names_the_disk() {
    let Some(mounts) = Mounts::start("a node whose only disk is full") else { return };
    let (mut cluster, text) = set_up(LARGE_BYTES);
    let small = cluster.sandbox.path("small");
    mounts.small_disk(&small, "size=2m");
    add_node(&mut cluster, &mounts, &[&small], false);
    let finished = start(&cluster, "out", &[]).wait();
    finished.expect_failure(1, &["No space left on device", "small/"]);
    assert_nothing_published(&cluster, "out");
    cluster.ask_until(&["state", "--json", "select state from jobs where cleaned_ns is null"], |rows| {
        rows.trim() == "[]"
    });
    // The node is none the worse: what fits is done, and what does not is done where there is room.
    cluster.sandbox.write("few.txt", "b\na\n");
    let few =
        ["run", "--memory", "64M", "--slots", "1", "--input", "few.txt", "--total-order", "--output", "few"];
    Running::start(&mut cluster.sailfish(&few)).wait().expect_success();
    assert_eq!(cluster.sandbox.output_lines(&cluster.sandbox.path("few")), ["a", "b"]);
    add_node(&mut cluster, &mounts, &[], true);
    mounts.fill(&small);
    cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"full\""));
    start(&cluster, "again", &[]).wait().expect_success();
    assert_sorted(&cluster, "again", &text);
    assert_eq!(mounts.files(&small), [format!("{}/filler", small.display())]);
}

#[test]
fn a_node_with_another_disk_goes_on_when_one_is_full() {
    let Some(mounts) = Mounts::start("a node with a full disk and another one") else { return };
    let (mut cluster, text) = set_up(LARGE_BYTES);
    let small = cluster.sandbox.path("small");
    mounts.small_disk(&small, "size=2m");
    add_node(&mut cluster, &mounts, &[&small], true);
    start(&cluster, "out", &[]).wait().expect_success();
    assert_sorted(&cluster, "out", &text);
}

/// A cluster whose only node has a disk that has just become read-only, while a map task waits for a word to go on.
struct Failing {
    cluster: Cluster,
    mounts: Mounts,
    text: Vec<u8>,
    job: Running,
    go: Fifo,
}

fn begin_on_a_failing_disk(what: &str, bytes: usize, another_disk: bool) -> Option<Failing> {
    let mounts = Mounts::start(what)?;
    let (mut cluster, text) = set_up(bytes);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], another_disk);
    let (mut here, go, program) = hangs_once(&cluster);
    let job = start(&cluster, "out", &["--mapper", &program]);
    assert_eq!(here.read_line(), "here");
    mounts.make_read_only(&failing);
    Some(Failing { cluster, mounts, text, job, go })
}

impl Failing {
    /// The server hears of the disk, the task goes on, and the job ends well.
    fn end_well(mut self) {
        self.cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"read_only\""));
        self.go.write_line("go on");
        self.job.wait().expect_success();
        assert_sorted(&self.cluster, "out", &self.text);
    }
}

/// Reading goes on where writing does not: what lies there is moved by nobody, so the other disk takes the rest.
#[test]
fn a_disk_that_becomes_read_only_leaves_the_rest_to_another() {
    let what = "a disk that becomes read-only beside another one";
    let Some(failing) = begin_on_a_failing_disk(what, LARGE_BYTES, true) else { return };
    failing.end_well();
}

#[test]
fn a_node_whose_only_disk_becomes_read_only_leaves_the_job_to_the_others() {
    let what = "a node whose disk becomes read-only in the middle of a job";
    let Some(mut failing) = begin_on_a_failing_disk(what, SMALL_BYTES, false) else { return };
    add_node(&mut failing.cluster, &failing.mounts, &[], true);
    failing.end_well();
}

#[test]
fn a_cluster_whose_only_disk_becomes_read_only_fails_the_job_and_names_it() {
    let what = "a cluster whose only disk becomes read-only";
    let Some(mut failing) = begin_on_a_failing_disk(what, LARGE_BYTES, false) else { return };
    failing.go.write_line("go on");
    failing.job.wait().expect_failure(1, &["Read-only file system", "failing/"]);
    assert_nothing_published(&failing.cluster, "out");
}
