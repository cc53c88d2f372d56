//! Nodes of a cluster whose disks are full, or become read-only while a job runs, or are lost: other disks and other nodes do the
//! work, or the job fails and names the disk. Nothing half-written is ever published.

use blackbox::{Cluster, Fifo, Mounts, Random, Running, WAIT_MAX};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

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

/// The first column of the rows that a question gives, in order.
fn numbers(cluster: &Cluster, question: &str) -> BTreeSet<i64> {
    let asked = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let json = asked.json();
    let rows = json.as_array().unwrap_or_else(|| panic!("{question} gives {json}"));
    let number = |row: &serde_json::Value| row.as_object()?.values().next()?.as_i64();
    rows.iter().map(|row| number(row).unwrap_or_else(|| panic!("{question} gives {json}"))).collect()
}

/// Checks that every failure had a reason of the node, and that the server knows of the failed disk.
#[track_caller]
fn assert_nobody_was_blamed(cluster: &Cluster) {
    let failed = "select failure from attempts where state = 'failed'";
    let failed = Running::start(&mut cluster.sailfish(&["state", "--json", failed])).wait().expect_success();
    let failed = failed.json();
    let of_node = |row: &serde_json::Value| {
        row["failure"].as_str().is_some_and(|failure| failure.contains("\"blame\":\"environment\""))
    };
    // Whoever meets the loss before its node has looked at its disks counts, for the node.
    assert!(failed.as_array().is_some_and(|rows| rows.iter().all(of_node)), "somebody was blamed: {failed}");
    let disks = Running::start(&mut cluster.sailfish(&["nodes", "--json"])).wait().expect_success().text();
    assert!(disks.contains("\"failed\""), "{disks}");
}

/// The disk with the programs that came with the job is lost while one of them runs, with runs of maps that are over: these run again
/// at once, the programs are brought to the other disk, and the user is not blamed.
#[test]
fn the_first_disk_lost_among_the_maps_costs_its_data_and_nothing_else() {
    let Some(mounts) = Mounts::start("a first disk that is lost among maps") else { return };
    let (mut cluster, text) = set_up(LARGE_BYTES);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], true);
    let (mut here, mut go, program) = hangs_once(&cluster);
    let job = start(&cluster, "out", &["--mapper", &program, "--keep-ifiles"]);
    assert_eq!(here.read_line(), "here");
    cluster.wait_for("select count(*) >= 3 from tasks where stage = 0 and state = 'done'");
    // Chunks that are full are written in the background.
    let began = Instant::now();
    while !mounts.files(&failing).iter().any(|file| file.ends_with(".ifile")) {
        assert!(began.elapsed() < WAIT_MAX, "no run was written to the disk");
    }
    mounts.lose(&failing);
    cluster.wait_for("select count(*) > 0 from events where kind = 'data lost'");
    go.write_line("go on");
    job.wait().expect_success();
    assert_sorted(&cluster, "out", &text);
    assert_nobody_was_blamed(&cluster);
}

/// The same while reducers run that read a file beside them after that: they fail, and the user is not blamed.
#[test]
fn the_first_disk_lost_among_the_reducers_costs_its_data_and_nothing_else() {
    let Some(mounts) = Mounts::start("a first disk that is lost among reducers") else { return };
    let (mut cluster, text) = set_up(SMALL_BYTES);
    let failing = cluster.sandbox.path("failing");
    mounts.small_disk(&failing, "size=400m");
    add_node(&mut cluster, &mounts, &[&failing], true);
    let mut here = cluster.sandbox.fifo("here");
    let go = cluster.sandbox.path("go");
    cluster.sandbox.write("words", "of the user's\n");
    let waits = format!(
        "[ -e '{0}' ] || echo here > '{1}'\nuntil [ -e '{0}' ]; do sleep 0.05; done",
        go.display(),
        here.text()
    );
    let program =
        format!("#!/bin/sh\nset -e\ncat > all\n{waits}\ncat words > /dev/null\nsed 's/\\t$//' all\n");
    let program = cluster.sandbox.script("reduce.sh", &program);
    let program = program.to_str().expect("a sandbox has a plain path");
    let job = start(&cluster, "out", &["--reducer", program, "--file", "words"]);
    assert_eq!(here.read_line(), "here");
    mounts.lose(&failing);
    cluster.ask_until(&["nodes", "--json"], |nodes| nodes.contains("\"failed\""));
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    assert_sorted(&cluster, "out", &text);
    assert_nobody_was_blamed(&cluster);
}

/// Reads all it is given, or one line of it, says so, and goes on when it may.
const READER: &str = "#!/bin/sh
if [ \"$1\" = all ] || [ $(( SAILFISH_TASK % 2 )) = 1 ]; then cat > all; else head -c 200 > all; fi
[ -e GO ] || echo here > 'HERE'
until [ -e GO ]; do sleep 0.05; done
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
        let go = cluster.sandbox.path("go");
        let program = READER.replace("GO", &format!("'{}'", go.display())).replace("HERE", here.text());
        let program = cluster.sandbox.script("reduce.sh", &program);
        let program = format!("{} {words}", program.display());
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
        numbers(
            &self.cluster,
            "select distinct s.map_task from sources s join run_chunks c on c.job = s.job and c.chunk = s.chunk
             join runs r on r.job = c.job and r.run = c.run where r.disk = 1 and r.in_memory = 0 and r.replaced_by is null",
        )
    }

    fn lose_the_second_disk(&self) {
        self.mounts.lose(&self.cluster.sandbox.path("failing"));
        self.cluster.wait_for("select count(*) > 0 from events where kind = 'data lost'");
    }

    fn finish(self) -> Cluster {
        self.cluster.sandbox.write("go", "");
        self.job.wait().expect_success();
        let mut lines = self.cluster.sandbox.output_lines(&self.cluster.sandbox.path("out"));
        lines.sort_unstable();
        let expected = String::from_utf8(blackbox::sorted_lines(&self.text)).expect("text");
        assert!(lines.iter().map(String::as_str).eq(expected.lines()), "the output is wrong");
        self.cluster
    }
}

fn reduces(cluster: &Cluster, state: &str) -> BTreeSet<i64> {
    numbers(
        cluster,
        &format!("select task from attempts where stage = 3 and attempt = 0 and state = '{state}'"),
    )
}

/// Running reducers that have read all they need of the lost data go on, wherever they run; the others begin again.
#[test]
fn who_has_read_all_of_a_lost_disk_goes_on() {
    let what = "a second disk that is lost among reducers";
    let Some(reading) = Reading::start(what, "", &["--keep-ifiles"]) else { return };
    let predicted = reading.predicted();
    assert!(!predicted.is_empty());
    reading.lose_the_second_disk();
    let cluster = reading.finish();
    let again = "select distinct task from attempts where stage = 0 and attempt > 0 and state = 'succeeded'";
    assert_eq!(numbers(&cluster, again), predicted);
    assert_eq!(reduces(&cluster, "succeeded"), BTreeSet::from([1, 3]));
    assert_eq!(reduces(&cluster, "discarded"), BTreeSet::from([0, 2]));
    assert_nobody_was_blamed(&cluster);
}

/// Nothing runs again if all reducers have read the data that they need, and nobody else wants it.
#[test]
fn what_all_have_read_is_not_made_again() {
    let what = "a second disk that is lost when all have read it";
    let Some(reading) = Reading::start(what, "all", &[]) else { return };
    assert!(!reading.predicted().is_empty());
    reading.lose_the_second_disk();
    let cluster = reading.finish();
    assert_eq!(cluster.number("select count(*) from attempts where attempt > 0"), 0);
    assert_eq!(reduces(&cluster, "succeeded"), BTreeSet::from([0, 1, 2, 3]));
}
