//! Stored files of a cluster whose nodes, disks and server fail: reads go on, and replicas are made again.

use blackbox::{Cluster, Mounts, Random, Running, STORED_DIR, StoredQuestions, wait_until};
use private_postgres::PrivatePostgres;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const FAILED: i32 = 1;
const REFUSED: i32 = 2;
/// More than is put and read together with others.
const ALONE_BYTES: usize = (1 << 20) + 1000;
/// Every write to a disk takes its time.
const SLOW_WRITES: (&str, &str) = ("SAILFISH_IO_FAULT", "write:slow:1+");

/// Writes files that travel alone, and others that travel together.
fn write_source(cluster: &Cluster, alone: u32, together: u32) -> PathBuf {
    for number in 0..alone {
        let bytes = Random::new(number.into()).bytes(ALONE_BYTES);
        cluster.sandbox.write(&format!("in/alone/{number}"), bytes);
    }
    for number in 0..together {
        cluster.sandbox.write(&format!("in/together/{number}"), format!("{number}\n").repeat(500));
    }
    cluster.sandbox.path("in")
}

/// A cluster that copies the files of a silent node after a short time.
fn quick_repairs(racks: &[&str]) -> Cluster {
    let quick = |command: &mut Command| {
        command.args(["--repair-after", "3s"]);
    };
    let cluster = Cluster::builder().racks(racks).server_command(quick).start();
    cluster.wait_for_stored_disks(racks.len() as i64);
    cluster
}

/// A cluster of so many nodes whose disks take stored files.
fn cluster_of(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    cluster.wait_for_stored_disks(nodes.into());
    cluster
}

fn slow(command: &mut Command) {
    command.env(SLOW_WRITES.0, SLOW_WRITES.1);
}

/// Adds nodes whose writes take their time.
fn with_slow_nodes(mut cluster: Cluster, count: u32) -> Cluster {
    (0..count).for_each(|_| cluster.add_changed_node(slow));
    cluster.wait_for_stored_disks(count.into());
    cluster
}

/// Waits until each of these nodes has so many concrete files.
#[track_caller]
fn wait_for_files(cluster: &Cluster, nodes: &[u32], count: usize) {
    wait_until(&format!("nodes {nodes:?} have {count} files"), || {
        nodes.iter().all(|node| cluster.count_stored_on(*node) == count)
    });
}

/// The largest concrete files of a node, by their paths.
fn largest_files(cluster: &Cluster, node: u32) -> Vec<PathBuf> {
    let mut files: Vec<(usize, PathBuf)> =
        cluster.stored_on(node).into_iter().map(|(path, bytes)| (bytes.len(), path)).collect();
    files.sort();
    files.into_iter().rev().map(|(_, path)| cluster.stored_dir(node).join(path)).collect()
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("it is read");
    bytes[500_000] ^= 1;
    fs::write(path, bytes).expect("it is written");
}

fn cut(path: &Path) {
    let file = File::options().write(true).open(path).expect("it is opened");
    file.set_len(1000).expect("it is cut");
}

#[test]
fn stored_files_survive_a_rack() {
    let mut cluster = quick_repairs(&["rack-0", "rack-0", "rack-1", "rack-1"]);
    let source = write_source(&cluster, 2, 20);
    cluster.files().done(&["put", "in", "data", "--replicas", "2"]);
    let in_rack = |cluster: &Cluster, nodes: [u32; 2]| nodes.map(|node| cluster.count_stored_on(node));
    assert_eq!(in_rack(&cluster, [0, 1]).iter().sum::<usize>(), 22, "each rack has a replica");
    assert_eq!(in_rack(&cluster, [2, 3]).iter().sum::<usize>(), 22, "each rack has a replica");
    cluster.kill_node();
    cluster.kill_node();
    cluster.files().assert_stored(&source, "data");
    wait_for_files(&cluster, &[2, 3], 22);
    let left = in_rack(&cluster, [0, 1]);
    assert_eq!(left.iter().sum::<usize>(), 22);
    cluster.restart_node(0);
    cluster.restart_node(1);
    wait_until("all files have two replicas again", || cluster.replica_counts() == [2].into());
    wait_until("surplus files are removed", || {
        (0..4).map(|node| cluster.count_stored_on(node)).sum::<usize>() == 44
    });
    for node in 0..4 {
        assert_eq!(cluster.replicas_on(node), cluster.count_stored_on(node) as i64, "node {node}");
    }
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
}

#[test]
fn stored_files_survive_kills_on_postgres() {
    let what = "stored files of a killed node on PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    let mut cluster = Cluster::builder().nodes(1).database(postgres.url("postgres")).start();
    cluster.wait_for_stored_disks(1);
    let source = write_source(&cluster, 2, 20);
    cluster.files().done(&["put", "in", "data"]);
    cluster.kill_node();
    cluster.restart_server();
    cluster.restart_node(0);
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
    assert_eq!((cluster.replica_counts(), cluster.replicas_on(0)), ([1].into(), 22));
}

#[test]
fn stored_put_survives_a_lost_node() {
    let mut cluster = with_slow_nodes(quick_repairs(&[]), 3);
    let source = write_source(&cluster, 6, 20);
    let put = cluster.files().start(&["put", "in", "data", "--replicas", "2"]);
    let fullest = || (0..3).max_by_key(|node| cluster.count_stored_on(*node)).expect("three nodes");
    wait_until("a node has some files", || cluster.count_stored_on(fullest()) > 2 || put.has_ended());
    let lost = fullest();
    assert!(!put.has_ended(), "the put is over: {}", put.stderr_so_far());
    cluster.kill_node_at(lost as usize);
    put.wait().expect_success();
    cluster.files().assert_stored(&source, "data");
    let left: Vec<u32> = (0..3).filter(|node| *node != lost).collect();
    wait_for_files(&cluster, &left, 26);
    cluster.files().assert_stored(&source, "data");
}

#[test]
fn damaged_stored_replicas_are_made_anew() {
    let cluster = cluster_of(2);
    let source = write_source(&cluster, 3, 5);
    let files = cluster.files();
    files.done(&["put", "in", "data"]);
    let whole = cluster.stored_on(0);
    assert!(whole == cluster.stored_on(1));
    let damaged = largest_files(&cluster, 0);
    flip(&damaged[0]);
    cut(&damaged[1]);
    fs::remove_file(&damaged[2]).expect("it is removed");
    assert!(whole != cluster.stored_on(0));
    // Which replica is read is a matter of chance.
    wait_until("reads have found all damage", || {
        files.assert_stored(&source, "data");
        files.done(&["cat", "data/alone/0"]);
        cluster.stored_on(0) == whole
    });
    // A node tells the server of a new file when that is complete.
    wait_until("the server knows the new files", || cluster.replica_counts() == [2].into());
    assert!(cluster.stored_on(1) == whole);
}

#[test]
fn stored_damage_is_found_without_readers() {
    let mut cluster = Cluster::builder().start();
    (0..2).for_each(|_| cluster.add_node_with("rack-0", &["--scrub-every", "1s"]));
    cluster.wait_for_stored_disks(2);
    write_source(&cluster, 2, 5);
    cluster.files().done(&["put", "in", "data"]);
    let whole = cluster.stored_on(0);
    let damaged = largest_files(&cluster, 0);
    flip(&damaged[0]);
    cut(&damaged[1]);
    wait_until("the scrub has found all damage", || cluster.stored_on(0) == whole);
    wait_until("the replicas are known", || cluster.replica_counts() == [2].into());
}

#[test]
fn lost_stored_files_are_named() {
    let mut cluster = cluster_of(2);
    let source = write_source(&cluster, 1, 3);
    cluster.files().done(&["put", "in", "data", "--replicas", "1"]);
    let maker = ["--input", "in/together", "--output", "files:made", "--name", "counts", "--replicas", "1"];
    cluster.run_job(&[&maker[..], &["--mapper", "builtin:words", "--reducer", "builtin:sum"]].concat());
    (0..2).for_each(|_| cluster.kill_node());
    let is_lost = |name: &str| cluster.files().replicas(name).iter().all(Vec::is_empty);
    wait_until("the nodes are missed", || is_lost("data/alone/0") && is_lost("made"));
    let files = cluster.files();
    let made_by = "it was made by job 1 (counts): run that job again";
    files.run(&["fsck"]).expect_failure(FAILED, &["alone/0", "cannot be read", made_by]);
    let read = [&["get", "data/alone/0", "out"][..], &["cat", "data/alone/0"]].map(|args| files.start(args));
    let read_made = files.start(&["cat", "made"]);
    let words = ["data/alone/0 cannot be read, of which", "can be reached"];
    let job = |input| {
        let job = ["--input", input, "--output", "out", "--mapper", "builtin:words"];
        Running::start(&mut cluster.job(&job))
    };
    let jobs = ["files:data", "files:made"].map(job);
    for (job, cause) in jobs.into_iter().zip(["none of their nodes can be reached", made_by]) {
        job.wait().expect_failure(REFUSED, &["cannot be read", cause]);
    }
    read.into_iter().for_each(|read| drop(read.wait().expect_failure(FAILED, &words)));
    read_made.wait().expect_failure(FAILED, &["made cannot be read, of which", made_by]);
    assert!(!cluster.sandbox.path("out").exists());
    assert_eq!(files.names("data/alone"), ["0"]);
    (0..2).for_each(|node| cluster.restart_node(node));
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
}

#[test]
fn stored_transfers_survive_a_killed_server() {
    let mut cluster = with_slow_nodes(Cluster::builder().start(), 2);
    let source = write_source(&cluster, 6, 20);
    let put = cluster.files().start(&["put", "in", "data"]);
    wait_until("some files are there", || {
        put.has_ended() || cluster.count_stored_on(0) + cluster.count_stored_on(1) > 2
    });
    assert!(!put.has_ended(), "the put is over: {}", put.stderr_so_far());
    cluster.restart_server();
    put.wait().expect_success();
    let mut get = cluster.files().command(&["get", "data", "out"]);
    slow(&mut get);
    let get = Running::start(&mut get);
    let begun = || {
        let names = fs::read_dir(cluster.sandbox.path("")).expect("it is listed").flatten();
        let is_begun = |name: &str| name.starts_with(".out.sailfish-get-");
        names.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_begun(&name))
    };
    wait_until("the get has begun", || begun() || get.has_ended());
    assert!(!get.has_ended(), "the get is over: {}", get.stderr_so_far());
    cluster.restart_server();
    get.wait().expect_success();
    let [got, put] = [cluster.sandbox.path("out"), source].map(|dir| blackbox::file_tree(&dir));
    assert!(got == put, "the copy differs");
    cluster.files().assert_stored(&cluster.sandbox.path("in"), "data");
    // Files that were placed before both nodes had reported to the new server get their second replica later.
    wait_until("all files have two replicas", || cluster.replica_counts() == [2].into());
}

/// The concrete files of nodes with the numbers of their inodes: a file that was written again has another one.
fn inodes(cluster: &Cluster, nodes: &[u32]) -> BTreeMap<PathBuf, u64> {
    let of_node = |node: &u32| {
        let dir = cluster.stored_dir(*node);
        cluster.stored_on(*node).into_keys().map(move |path| dir.join(path)).collect::<Vec<_>>()
    };
    let inode = |path: PathBuf| {
        let inode = fs::metadata(&path).expect("it exists").ino();
        (path, inode)
    };
    nodes.iter().flat_map(of_node).map(inode).collect()
}

#[test]
fn returning_node_moves_no_stored_files() {
    let mut cluster = cluster_of(3);
    let source = write_source(&cluster, 2, 10);
    cluster.files().done(&["put", "in", "data", "--replicas", "2"]);
    let before = inodes(&cluster, &[0, 1, 2]);
    assert_eq!(
        before.values().len(),
        cluster.stored_on(0).len() + cluster.stored_on(1).len() + cluster.stored_on(2).len()
    );
    let held = cluster.count_stored_on(0) as i64;
    cluster.stop_node();
    cluster.files().assert_stored(&source, "data");
    cluster.restart_node(0);
    let both = |name: &str| cluster.files().replicas(name).iter().all(|nodes| nodes.len() == 2);
    wait_until("all replicas can be reached", || both("data/alone/0") && both("data/alone/1"));
    wait_until("the rows are those of before", || cluster.replica_counts() == [2].into());
    assert_eq!(cluster.replicas_on(0), held);
    assert_eq!(inodes(&cluster, &[0, 1, 2]), before);
}

/// A file that the store does not know goes when its node returns.
#[test]
fn unknown_stored_file_is_removed() {
    let mut cluster = cluster_of(1);
    cluster.sandbox.write("in/one", "one");
    cluster.sandbox.write("in/two", "two");
    cluster.files().done(&["put", "in", "data"]);
    let known = cluster.stored_on(0);
    let put = fs::read_dir(cluster.stored_dir(0)).expect("it is listed").flatten().next().expect("a put");
    let strange = put.path().join("7");
    fs::create_dir_all(&strange).expect("a directory is made");
    fs::write(strange.join("7abc"), "nobody put this").expect("it is written");
    cluster.kill_node();
    cluster.restart_node(0);
    wait_until("the file is gone", || !strange.join("7abc").exists());
    assert!(cluster.stored_on(0) == known);
    cluster.files().assert_stored(&cluster.sandbox.path("in"), "data");
}

#[test]
fn returning_node_gets_cut_replicas_anew() {
    let mut cluster = cluster_of(2);
    write_source(&cluster, 2, 5);
    cluster.files().done(&["put", "in", "data"]);
    let whole = cluster.stored_on(1);
    cluster.kill_node_at(1);
    let [first, second] = [0, 1].map(|index| largest_files(&cluster, 1)[index].clone());
    cut(&first);
    fs::remove_file(&second).expect("it is removed");
    cluster.restart_node(1);
    wait_until("the node has all files again", || cluster.stored_on(1) == whole);
}

#[test]
fn full_disk_ends_a_stored_put() {
    let Some(mounts) = Mounts::start("stored files on the full disk of a node") else { return };
    let mut cluster = Cluster::builder().start();
    let small = cluster.node_disk(0);
    mounts.small_disk(&small, "size=8m");
    cluster.add_node_inside(&mounts, |_| ());
    cluster.wait_for_stored_disks(1);
    (0..5).for_each(|number| drop(cluster.sandbox.write(&format!("in/{number}"), vec![number; 3 << 20])));
    let files = cluster.files();
    files.run(&["put", "in", "data"]).expect_failure(REFUSED, &["no node has room for", "node-0"]);
    assert_eq!(files.names("/"), [""; 0]);
    // Its bytes go, and the disk has room again.
    wait_until("one of them has room", || files.run(&["put", "in/1", "one"]).status.success());
    // The node may not have said yet that it is full.
    mounts.fill(&small);
    wait_until("the server knows of it", || !files.run(&["put", "in/2", "two"]).status.success());
    assert_eq!(files.names("/"), ["one"]);
    files.done(&["get", "one", "got"]);
    let [put, got] = ["in/1", "got"].map(|name| fs::read(cluster.sandbox.path(name)).expect("it is read"));
    assert!(put == got, "the copy differs");
}

#[test]
fn joined_node_takes_stored_files() {
    let Some(mounts) = Mounts::start("stored files that move to a new node") else { return };
    let mut cluster = Cluster::builder().start();
    [0, 1].into_iter().for_each(|node| mounts.small_disk(&cluster.node_disk(node), "size=40m"));
    cluster.add_node_inside(&mounts, |_| ());
    cluster.wait_for_stored_disks(1);
    let source = write_source(&cluster, 20, 5);
    cluster.files().done(&["put", "in", "data", "--replicas", "1"]);
    cluster.add_node_inside(&mounts, |_| ());
    wait_until("the new node has its share", || {
        cluster.replicas_on(1) >= 8 && cluster.replicas_on(0) + cluster.replicas_on(1) == 25
    });
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
}

/// A disk with files of another server is not used, and nothing on it changes.
#[test]
fn stored_files_of_another_server_stay() {
    let other = cluster_of(1);
    write_source(&other, 1, 5);
    other.files().done(&["put", "in", "data"]);
    let mut cluster = cluster_of(1);
    cluster.sandbox.write("in/one", "one");
    let disk = cluster.node_disk(1);
    fs::create_dir_all(&disk).expect("a directory is made");
    let copied = Command::new("cp").arg("-r").arg(other.node_disk(0).join(STORED_DIR)).arg(&disk).status();
    assert!(copied.is_ok_and(|status| status.success()), "our own directory takes a copy");
    cluster.add_node();
    cluster.node(1).wait_for_stderr("they stay untouched");
    let files = cluster.files();
    files.done(&["put", "in", "data"]);
    files.assert_stored(&cluster.sandbox.path("in"), "data");
    files.done(&["rm", "--recursive", "data"]);
    wait_until("the files of this server go", || cluster.has_nothing_stored_on(0));
    assert!(cluster.stored_on(1) == other.stored_on(0), "files of another server have changed");
    let last = cluster.take_node(1);
    last.signal(Signal::TERM);
    assert!(last.wait().status.success());
}

#[test]
fn drained_node_leaves_no_stored_file_short() {
    let mut cluster = cluster_of(3);
    let source = write_source(&cluster, 2, 20);
    cluster.files().done(&["put", "in", "data", "--replicas", "2"]);
    let drained = cluster.run(&["nodes", "drain", "node-0", "--wait"]).expect_success();
    assert!(drained.text().contains("node-0 drained"), "{}", drained.story());
    // It left when the last copy was there.
    assert_eq!([1, 2].map(|node| cluster.count_stored_on(node)), [22, 22]);
    cluster.wait_for_node(0);
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
}

#[test]
fn drain_lists_stored_files_without_place() {
    let mut cluster = cluster_of(3);
    let source = write_source(&cluster, 1, 2);
    cluster.files().done(&["put", "in", "data", "--replicas", "3"]);
    cluster.run(&["nodes", "drain", "node-0"]).expect_success();
    let is_stuck = |answer: &str| answer.contains("\"without_place\": 3");
    cluster.ask_until(&["nodes", "--json"], is_stuck);
    cluster.restart_server();
    cluster.ask_until(&["nodes", "--json"], is_stuck);
    let asked = cluster.run(&["nodes", "drain", "node-0"]).expect_success();
    assert!(asked.text().contains("draining, 3 stored parts left"), "{}", asked.story());
    let words =
        ["no other node can take 3 parts", "files:data/alone/0", "files:data/together/1", "add a node"];
    words.iter().for_each(|word| assert!(asked.stderr.contains(word), "{}", asked.story()));
    // A node that joins takes them.
    cluster.add_node();
    cluster.wait_for_node(0);
    cluster.files().assert_stored(&source, "data");
    cluster.files().assert_sound();
}
