//! Stored files of a cluster as a directory: contents of others, and a server that is away.

use crate::security::Guarded;
use blackbox::{Cluster, Random, Running, StoredQuestions, could_not_run, file_tree};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::time::Duration;

/// Numbers of errors: a device that fails, and a permission that is missing.
const EIO: i32 = 5;
const EACCES: i32 = 13;
const LARGE_BYTES: usize = 24 << 20;

/// Starts a mount at a directory of a sandbox. None, and said so, where this machine does not let us.
fn mounted(mut command: Command, what: &str) -> Option<Running> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        could_not_run(what, &format!("/dev/fuse cannot be opened: {error}"));
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        could_not_run(what, "mounting needs root");
        return None;
    }
    let mount = Running::start(&mut command);
    mount.wait_for_stderr("are mounted at");
    Some(mount)
}

/// Unmounts. Returns the log.
fn end(mount: Running) -> String {
    mount.signal(Signal::TERM);
    let ended = mount.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.story());
    ended.stderr
}

#[test]
fn mounted_files_of_a_cluster_are_read() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.wait_for_stored_disks(2);
    let sandbox = &cluster.sandbox;
    sandbox.write("in/large", Random::new(2).bytes(LARGE_BYTES));
    for number in 0..300 {
        sandbox.write(&format!("in/small/{number}"), format!("{number}\n"));
    }
    cluster.files().done(&["put", "in", "data", "--parts", "3"]);
    let (source, dir) = (sandbox.path("in"), sandbox.path("mounted"));
    fs::create_dir(&dir).expect("our own directory takes another");
    let mut command = sandbox.sailfish();
    command.args(["mount", "mounted", "--server", &cluster.url, "--wait-max", "2"]);
    let Some(mount) = mounted(command, "mounted files of a cluster") else { return };
    assert!(file_tree(&dir.join("data")) == file_tree(&source), "the trees differ");
    assert!(file_tree(&dir.join(".versions/1/data")) == file_tree(&source), "the versions differ");
    // The pages of a file that is known stay with the kernel; another one needs the server.
    let mut open = File::open(dir.join("data/large")).expect("it opens");
    cluster.kill_server();
    std::thread::sleep(Duration::from_millis(1100));
    let error = File::open(dir.join("data/small/7")).expect_err("the server is away");
    assert_eq!(error.raw_os_error(), Some(EIO));
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).expect("the nodes have it");
    assert!(bytes == fs::read(source.join("large")).expect("it was written"));
    drop(open);
    let log = end(mount);
    assert!(log.contains("cannot be read"), "{log}");
}

#[test]
fn mount_refuses_contents_of_others() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.add_node();
    guarded.wait_for_stored_disks(2);
    guarded.sandbox.write("secret", "secret\n");
    guarded.by("ann.token", &["files", "put", "secret", "of-ann/secret"]).expect_success();
    guarded.by("bob.token", &["files", "put", "secret", "of-bob/secret"]).expect_success();
    let dir = guarded.sandbox.path("mounted");
    fs::create_dir(&dir).expect("our own directory takes another");
    let command = guarded.command("bob.token", &["mount", "mounted"]);
    let Some(mount) = mounted(command, "contents of others in a mount") else { return };
    assert_eq!(fs::read(dir.join("of-bob/secret")).expect("it is his own"), b"secret\n");
    assert_eq!(fs::metadata(dir.join("of-ann/secret")).expect("names are visible").len(), 7);
    let error = fs::read(dir.join("of-ann/secret")).expect_err("it belongs to another user");
    assert_eq!(error.raw_os_error(), Some(EACCES));
    end(mount);
}
