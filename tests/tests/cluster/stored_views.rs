//! Steps on nodes that read stored files through the mount of their node, without copies.

use crate::security::{Guarded, serve_jobs};
use blackbox::{
    Cluster, Finished, Mounts, Random, Running, Sandbox, StoredQuestions, WaitingProgram, could_not_run,
    files_below, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

const LARGE_BYTES: usize = 24 << 20;
/// Most bytes that may go over the network for a read of two KB.
const MOVED_BYTES_MAX: u64 = 2 << 20;
/// Number of a file system of FUSE, as `stat -f` prints it.
const FUSE: &str = "65735546";

/// A node without the file. Its slot has run a program before the first view is mounted.
const FAR: &[&str] = &["--slots", "1", "--resource", "far=1"];

/// Reads the first and the last KB of a file, and tries to write to it.
const READS: &str = r#"
[[step]]
name = "before"
command = "echo > before"
outputs = ["before"]
resources = { far = 1 }

[[step]]
name = "read"
command = """
head -c 1024 genes.db > first
tail -c 1024 genes.db > last
stat -L -f -c %t genes.db > kind
if (echo x >> genes.db); then echo written > kind; fi
ls $(dirname $(dirname $(readlink genes.db))) > listed 2> /dev/null || true
"""
inputs = ["before", { path = "files:refs/genes.db", view = true }]
outputs = ["first", "last", "kind", "listed"]
resources = { far = 1 }
"#;

/// Returns whether something can be mounted here.
fn can_mount(what: &str) -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let can = device.is_ok() && rustix::process::geteuid().is_root();
    if !can {
        could_not_run(what, "mounting needs root and /dev/fuse");
    }
    can
}

fn read(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    fs::read(sandbox.path(name)).expect("a result")
}

fn text(sandbox: &Sandbox, name: &str) -> String {
    String::from_utf8(read(sandbox, name)).expect("a text")
}

fn write(sandbox: &Sandbox, flow: &str) -> String {
    sandbox.write("flow.toml", flow);
    sandbox.path("flow.toml").display().to_string()
}

/// Returns a cluster whose first node has a stored file of three parts. The bytes of the file are returned too.
fn cluster() -> (Cluster, Vec<u8>) {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.wait_for_stored_disks(1);
    let bytes = Random::new(7).bytes(LARGE_BYTES);
    cluster.sandbox.write("genes.db", &bytes);
    cluster.files().done(&["put", "genes.db", "refs/genes.db", "--replicas", "1", "--parts", "3"]);
    (cluster, bytes)
}

/// Returns whether a file system is mounted below a directory.
fn has_mount(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has the table");
    table.contains(&format!(" {}/", dir.display()))
}

#[track_caller]
fn assert_read(sandbox: &Sandbox, bytes: &[u8]) {
    assert!(read(sandbox, "first") == bytes[..1024] && read(sandbox, "last") == bytes[bytes.len() - 1024..]);
    assert_eq!((text(sandbox, "kind").trim(), text(sandbox, "listed").as_str()), (FUSE, ""));
}

fn skipped(finished: &Finished, count: u32) -> bool {
    finished.story().contains(&format!("{count} of them skipped"))
}

#[test]
fn views_bring_only_what_is_read() {
    if !can_mount("views of stored files on nodes") {
        return;
    }
    let (mut cluster, bytes) = cluster();
    cluster.add_node_with("rack-0", FAR);
    let file = write(&cluster.sandbox, READS);
    let run = || cluster.run(&["workflow", "run", &file]).expect_success();
    run();
    assert_read(&cluster.sandbox, &bytes);
    let usage = cluster.run(&["usage", "--by", "day", "--json"]).expect_success().json();
    let rows = usage["rows"].as_array().or(usage.as_array()).expect("rows").iter();
    let moved: u64 = rows.filter_map(|row| row["moved_bytes"].as_u64()).sum();
    assert!((2048..MOVED_BYTES_MAX).contains(&moved), "{moved} bytes went over the network: {usage}");
    let copies = files_below(&cluster.node_disk(1)).into_iter().filter(|path| path.ends_with("genes.db"));
    assert_eq!(copies.count(), 0);
    // The way in which a step reads a file is no part of its inputs.
    cluster.sandbox.write("flow.toml", READS.replace(", view = true", ""));
    assert!(skipped(&run(), 2));
    assert!(has_mount(&cluster.node_disk(1)));
    cluster.node(1).signal(Signal::TERM);
    cluster.wait_for_node(1);
    assert!(!has_mount(&cluster.node_disk(1)));
}

#[test]
fn killed_node_leaves_no_mount() {
    if !can_mount("mounts of killed nodes") {
        return;
    }
    let (mut cluster, bytes) = cluster();
    cluster.add_node_with("rack-0", FAR);
    let WaitingProgram { mut here, go, path } = cluster.sandbox.waiting_once_program("first");
    let waits = format!("cache = false\ncommand = \"\"\"\necho | {path} > /dev/null");
    let file = write(&cluster.sandbox, &READS.replace("command = \"\"\"", &waits));
    let running = Running::start(&mut cluster.sailfish(&["workflow", "run", &file]));
    assert_eq!(here.read_line().trim(), "here");
    assert!(has_mount(&cluster.node_disk(1)));
    cluster.node(1).signal(Signal::KILL);
    wait_until("the watcher has unmounted it", || !has_mount(&cluster.node_disk(1)));
    drop(go);
    cluster.wait_for_crash(1);
    cluster.restart_changed_node(1, FAR, |_| ());
    running.wait().expect_success();
    assert_read(&cluster.sandbox, &bytes);
}

#[test]
fn files_without_room_are_viewed() {
    let what = "a stored file that fits on no disk of a node";
    let Some(mounts) = Mounts::start(what).filter(|_| can_mount(what)) else { return };
    let (mut cluster, bytes) = cluster();
    mounts.small_disk(&cluster.node_disk(1), "size=12m");
    cluster.add_node_inside(&mounts, |args| {
        args.splice(1..1, ["--resource", "far=1"].map(Into::into));
    });
    let file = write(&cluster.sandbox, &READS.replace(", view = true", ""));
    cluster.run(&["workflow", "run", &file]).expect_success();
    assert_read(&cluster.sandbox, &bytes);
}

#[test]
fn views_without_fuse_are_copies() {
    let what = "a node without FUSE";
    let Some(mounts) = Mounts::start(what).filter(|_| can_mount(what)) else { return };
    let (mut cluster, bytes) = cluster();
    mounts.take_device(Path::new("/dev/fuse"));
    cluster.add_node_inside(&mounts, |args| {
        args.splice(1..1, ["--resource", "far=1"].map(Into::into));
    });
    let flow = READS.replace("(echo x >> genes.db)", "false").replace("[[step]]", "[[step]]\ncache = false");
    let file = write(&cluster.sandbox, &flow);
    for _ in 0..2 {
        cluster.run(&["workflow", "run", &file]).expect_success();
        assert!(read(&cluster.sandbox, "first") == bytes[..1024]);
        assert_ne!(text(&cluster.sandbox, "kind").trim(), FUSE);
    }
    let copies = files_below(&cluster.node_disk(1)).into_iter().filter(|path| path.ends_with("genes.db"));
    assert_eq!(copies.count(), 1);
    cluster.node(1).signal(Signal::TERM);
    let log = cluster.take_node(1).wait().expect_success().stderr;
    assert_eq!(log.matches("views of stored files are copies").count(), 1, "{log}");
}

#[test]
fn views_work_in_sandbox_of_their_user() {
    if !can_mount("views in a sandbox") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = serve_jobs(&sandbox, "127.0.0.1:0");
    let mut guarded = Guarded::of(sandbox, server);
    guarded.add_changed_node(|command| {
        command.args(["--sandbox", "--resource", "far=1"]);
    });
    guarded.wait_for_stored_disks(1);
    let bytes = Random::new(8).bytes(LARGE_BYTES);
    guarded.sandbox.write("genes.db", &bytes);
    guarded.by("ann.token", &["files", "put", "genes.db", "refs/genes.db", "--parts", "2"]).expect_success();
    let file = write(&guarded.sandbox, READS);
    let run = ["workflow", "run", &file];
    guarded.by("bob.token", &run).expect_failure(2, &["files:refs/genes.db", "belong to \"ann\""]);
    guarded.by("ann.token", &run).expect_success();
    assert_read(&guarded.sandbox, &bytes);
}
