//! Nodes of a cluster whose disks are full, or become read-only while a job runs, or are lost: other disks and other nodes do the
//! work, or the job fails and names the disk. Nothing half-written is ever published.

use blackbox::{
    Cluster, Event, Mounts, Questions, Random, Running, Stage, State, WaitingProgram, wait_until,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// More than the memory for chunks of a job with `--memory 64M`.
const LARGE_BYTES: usize = 72 << 20;
const SMALL_BYTES: usize = 4 << 20;

/// A cluster without nodes, and text in four files that hardly shrinks.
fn set_up(bytes: usize) -> (Cluster, Vec<u8>) {
    let cluster = Cluster::builder().start();
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
fn full_only_disk_fails_job_and_is_named() {
    let Some(mounts) = Mounts::start("a node whose only disk is full") else { return };
    let (mut cluster, text) = set_up(LARGE_BYTES);
    let small = cluster.sandbox.path("small");
    mounts.small_disk(&small, "size=2m");
    add_node(&mut cluster, &mounts, &[&small], false);
    let finished = start(&cluster, "out", &[]).wait();
    finished.expect_failure(1, &["No space left on device", "small/"]);
    assert_nothing_published(&cluster, "out");
    cluster.jobs().not_cleaned().wait_for(0);
    // The node is none the worse: what fits is done, and what does not is done where there is room.
    cluster.sandbox.write("few.txt", "b\na\n");
    let few =
        ["run", "--memory", "64M", "--slots", "1", "--input", "few.txt", "--total-order", "--output", "few"];
    cluster.run(&few).expect_success();
    assert_eq!(cluster.sandbox.output_lines(&cluster.sandbox.path("few")), ["a", "b"]);
    add_node(&mut cluster, &mounts, &[], true);
    mounts.fill(&small);
    cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"full\""));
    start(&cluster, "again", &[]).wait().expect_success();
    assert_sorted(&cluster, "again", &text);
    assert_eq!(mounts.files(&small), [format!("{}/filler", small.display())]);
}

#[test]
fn node_with_another_disk_survives_full_disk() {
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
    program: WaitingProgram,
}

fn begin_on_a_failing_disk(what: &str, bytes: usize, another_disk: bool) -> Option<Failing> {
    let mounts = Mounts::start(what)?;
    let (mut cluster, text) = set_up(bytes);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], another_disk);
    let mut program = cluster.sandbox.waiting_once_program("mapper");
    let job = start(&cluster, "out", &["--mapper", &program.path]);
    assert_eq!(program.here.read_line(), "here");
    mounts.make_read_only(&failing);
    Some(Failing { cluster, mounts, text, job, program })
}

impl Failing {
    /// The server hears of the disk, the task goes on, and the job ends well.
    fn end_well(mut self) {
        self.cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"read_only\""));
        self.program.go.write_line("go on");
        self.job.wait().expect_success();
        assert_sorted(&self.cluster, "out", &self.text);
    }
}

/// Reading goes on where writing does not: what lies there is moved by nobody, so the other disk takes the rest.
#[test]
fn read_only_disk_leaves_work_to_another_disk() {
    let what = "a disk that becomes read-only beside another one";
    let Some(failing) = begin_on_a_failing_disk(what, LARGE_BYTES, true) else { return };
    failing.end_well();
}

#[test]
fn read_only_node_leaves_work_to_other_nodes() {
    let what = "a node whose disk becomes read-only in the middle of a job";
    let Some(mut failing) = begin_on_a_failing_disk(what, SMALL_BYTES, false) else { return };
    add_node(&mut failing.cluster, &failing.mounts, &[], true);
    failing.end_well();
}

#[test]
fn read_only_cluster_fails_job_and_names_disk() {
    let what = "a cluster whose only disk becomes read-only";
    let Some(mut failing) = begin_on_a_failing_disk(what, LARGE_BYTES, false) else { return };
    failing.program.go.write_line("go on");
    failing.job.wait().expect_failure(1, &["Read-only file system", "failing/"]);
    assert_nothing_published(&failing.cluster, "out");
}

/// Checks that every failure had a reason of the node, and that the server knows of the failed disk.
#[track_caller]
fn assert_nobody_was_blamed(cluster: &Cluster) {
    let failures = cluster.attempts().is(State::Failed).failures();
    // Whoever meets the loss before its node has looked at its disks counts, for the node.
    let of_node = |failure: &String| failure.contains("\"blame\":\"environment\"");
    assert!(failures.iter().all(of_node), "somebody was blamed: {failures:?}");
    let disks = cluster.run(&["nodes", "--json"]).expect_success().text();
    assert!(disks.contains("\"failed\""), "{disks}");
}

/// The disk with the programs that came with the job is lost while one of them runs, with runs of maps that are over: these run again
/// at once, the programs are brought to the other disk, and the user is not blamed.
#[test]
fn first_disk_lost_during_maps_costs_its_data() {
    let Some(mounts) = Mounts::start("a first disk that is lost among maps") else { return };
    let (mut cluster, text) = set_up(LARGE_BYTES);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], true);
    let mut program = cluster.sandbox.waiting_once_program("mapper");
    let job = start(&cluster, "out", &["--mapper", &program.path, "--keep-ifiles"]);
    assert_eq!(program.here.read_line(), "here");
    cluster.tasks().in_stage(Stage::Map).is(State::Done).wait_until("at least 3", |count| count >= 3);
    // Chunks that are full are written in the background.
    wait_until("a run is written to the disk", || {
        mounts.files(&failing).iter().any(|file| file.ends_with(".ifile"))
    });
    mounts.lose(&failing);
    cluster.events(Event::DataLost).wait_for_some();
    program.go.write_line("go on");
    job.wait().expect_success();
    assert_sorted(&cluster, "out", &text);
    assert_nobody_was_blamed(&cluster);
}

/// The same while reducers run that read a file beside them after that: they fail, and the user is not blamed.
#[test]
fn first_disk_lost_during_reduces_costs_its_data() {
    let Some(mounts) = Mounts::start("a first disk that is lost among reducers") else { return };
    let (mut cluster, text) = set_up(SMALL_BYTES);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], true);
    let mut here = cluster.sandbox.fifo("here");
    cluster.sandbox.write("words", "of the user's\n");
    let reads = "#!/bin/sh\nset -e\ncat > all\n[ -e HERE/go ] || echo here > 'FIFO'\nGATE\ncat words > /dev/null\nsed 's/\\t$//' all\n";
    let program = cluster.sandbox.program("reduce.sh", &reads.replace("FIFO", here.text()));
    let job = start(&cluster, "out", &["--reducer", &program, "--file", "words"]);
    assert_eq!(here.read_line(), "here");
    mounts.lose(&failing);
    cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"failed\""));
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    assert_sorted(&cluster, "out", &text);
    assert_nobody_was_blamed(&cluster);
}

/// Reads all it is given, or one line of it, says so, and goes on when it may.
const READER: &str = "#!/bin/sh
if [ \"$1\" = all ] || [ $(( SAILFISH_TASK % 2 )) = 1 ]; then cat > all; else head -c 200 > all; fi
[ -e HERE/go ] || echo here > 'FIFO'
GATE
# A line without a value comes with the TAB before it.
cat all - | sed 's/\t$//'
";

/// A job whose four reducers run, two on the node with all runs on two disks, and two on another one.
struct Reading {
    cluster: Cluster,
    mounts: Mounts,
    text: Vec<u8>,
    job: Running,
}

impl Reading {
    fn start(what: &str, words: &str, more: &[&str]) -> Option<Reading> {
        let mounts = Mounts::start(what)?;
        let (mut cluster, text) = set_up(LARGE_BYTES);
        let failing = cluster.sandbox.path("failing");
        mounts.small_disk(&failing, "size=400m");
        cluster.add_node_inside(&mounts, |args| {
            args.extend(["--disk".into(), failing.into_os_string()]);
        });
        let mut here = cluster.sandbox.fifo("here");
        let program = cluster.sandbox.program("reduce.sh", &READER.replace("FIFO", here.text()));
        let program = format!("{program} {words}");
        let partitions = ["--reducer", program.trim(), "--partitions", "4"];
        let args = ["run", "--memory", "64M", "--slots", "2", "--codec", "none", "--input", "in"];
        let args = [&args[..], &["--output", "out"], &partitions, more].concat();
        let job = Running::start(&mut cluster.sailfish(&args));
        (0..2).for_each(|_| assert_eq!(here.read_line(), "here"));
        cluster.add_node();
        (0..2).for_each(|_| assert_eq!(here.read_line(), "here"));
        Some(Reading { cluster, mounts, text, job })
    }

    /// The maps with data on the second disk.
    fn predicted(&self) -> BTreeSet<i64> {
        self.cluster.map_tasks_on_disk(1)
    }

    fn lose_the_second_disk(&self) {
        self.mounts.lose(&self.cluster.sandbox.path("failing"));
        self.cluster.events(Event::DataLost).wait_for_some();
    }

    fn finish(self) -> Cluster {
        self.cluster.sandbox.open_gate();
        self.job.wait().expect_success();
        let mut lines = self.cluster.sandbox.output_lines(&self.cluster.sandbox.path("out"));
        lines.sort_unstable();
        let expected = String::from_utf8(blackbox::sorted_lines(&self.text)).expect("text");
        assert!(lines.iter().map(String::as_str).eq(expected.lines()), "the output is wrong");
        self.cluster
    }
}

fn reduces(cluster: &Cluster, state: State) -> BTreeSet<i64> {
    cluster.attempts().in_stage(Stage::Reduce).first().is(state).tasks()
}

/// Running reducers that have read all they need of the lost data go on, wherever they run; the others begin again.
#[test]
fn reducers_that_read_all_survive_lost_disk() {
    let what = "a second disk that is lost among reducers";
    let Some(reading) = Reading::start(what, "", &["--keep-ifiles"]) else { return };
    let predicted = reading.predicted();
    assert!(!predicted.is_empty());
    reading.lose_the_second_disk();
    let cluster = reading.finish();
    let again = cluster.attempts().in_stage(Stage::Map).again().is(State::Succeeded);
    assert_eq!(again.tasks(), predicted);
    assert_eq!(reduces(&cluster, State::Succeeded), BTreeSet::from([1, 3]));
    assert_eq!(reduces(&cluster, State::Discarded), BTreeSet::from([0, 2]));
    assert_nobody_was_blamed(&cluster);
}

/// Nothing runs again if all reducers have read the data that they need, and nobody else wants it.
#[test]
fn data_that_all_have_read_is_not_regenerated() {
    let what = "a second disk that is lost when all have read it";
    let Some(reading) = Reading::start(what, "all", &[]) else { return };
    assert!(!reading.predicted().is_empty());
    reading.lose_the_second_disk();
    let cluster = reading.finish();
    assert_eq!(cluster.attempts().again().count(), 0);
    assert_eq!(reduces(&cluster, State::Succeeded), BTreeSet::from([0, 1, 2, 3]));
}
