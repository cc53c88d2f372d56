//! How long stored files of a cluster live: a time to live, a server of an older backup, and a server that is away.

use blackbox::{Cluster, STORED_DIR, StoredQuestions, file_tree, wait_until};
use std::fs;
use std::path::PathBuf;

const REFUSED: i32 = 2;
/// State directory of the server.
const STATE: &str = "server-state";

fn cluster_of(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    cluster.wait_for_stored_disks(nodes.into());
    cluster
}

#[test]
fn names_go_when_their_time_is_over() {
    let cluster = cluster_of(2);
    let files = cluster.files();
    cluster.sandbox.write("in/a", "a");
    cluster.sandbox.write("in/deep/b", "b");
    for wrong in ["0s", "7", "99999999999999w", "5000w5000w"] {
        files.run(&["put", "in", "x", "--ttl", wrong]).expect_failure(REFUSED, &["--ttl"]);
    }
    files.done(&["put", "in", "kept", "--ttl", "1h"]);
    files.done(&["mv", "kept", "moved"]);
    files.done(&["cp", "moved", "copy"]);
    let expires =
        |name: &str| files.run(&["stat", "--json", name]).expect_success().json()["expires_ns"].as_u64();
    let created =
        |name: &str| files.run(&["stat", "--json", name]).expect_success().json()["created_ns"].as_u64();
    let hour_ns = 3_600_000_000_000;
    assert_eq!(expires("moved"), created("moved").map(|created| created + hour_ns));
    assert_eq!((expires("copy"), expires("moved/a")), (None, None));
    assert!(files.done(&["stat", "moved"]).contains("expires"));
    files.done(&["put", "in", "moved"]);
    assert_eq!(expires("moved"), None);
    files.done(&["put", "in", "above/goes", "--ttl", "2s"]);
    let listed = files.done(&["ls", "--json", "above"]);
    assert!(listed.contains("\"expires_ns\":1"), "{listed}");
    wait_until("it is gone", || files.names("above").is_empty());
    files.run(&["cat", "above/goes/a"]).expect_failure(REFUSED, &["no file or directory above/goes/a"]);
    let changes = cluster.stored_changes();
    assert_eq!(changes.last().map(String::as_str), Some("expire above/goes"), "{changes:?}");
    assert_eq!(
        files.names("/"),
        [
            "above",
            "copy",
            "copy/a",
            "copy/deep",
            "copy/deep/b",
            "moved",
            "moved/a",
            "moved/deep",
            "moved/deep/b"
        ]
    );
    files.done(&["rm", "--recursive", "copy", "moved"]);
    wait_until("the disks have no files", || (0..2).all(|node| cluster.has_nothing_stored_on(node)));
}

/// Returns the files of the database of a server: with its log.
fn database_files(cluster: &Cluster) -> Vec<PathBuf> {
    let entries = fs::read_dir(cluster.sandbox.path(STATE)).expect("a state directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.to_string_lossy().contains("sailfish.db")).collect()
}

#[test]
fn older_backup_leaves_newer_files() {
    let mut cluster = cluster_of(1);
    cluster.sandbox.write("in/a", "a");
    cluster.files().done(&["put", "in", "before"]);
    cluster.kill_server();
    let backup = cluster.sandbox.path("backup");
    fs::create_dir(&backup).expect("a directory is made");
    for file in database_files(&cluster) {
        fs::copy(&file, backup.join(file.file_name().expect("a name"))).expect("it is copied");
    }
    let again = |cluster: &mut Cluster| {
        let server = cluster.another_server();
        server.wait_for_stderr("serving at");
        cluster.led_by(server);
    };
    again(&mut cluster);
    let put = |cluster: &Cluster, text: &str, name: &str| {
        cluster.sandbox.write("one", text);
        // The node joins again after a restart of the server.
        let is_put = || cluster.files().run(&["put", "one", name]).status.success();
        wait_until("a file is put", is_put);
    };
    for number in 0..3 {
        put(&cluster, "newer", &format!("newer{number}"));
    }
    cluster.kill_server();
    let newer = cluster.stored_on(0);
    for file in database_files(&cluster) {
        fs::remove_file(file).expect("it is removed");
    }
    for (path, bytes) in file_tree(&backup) {
        fs::write(cluster.sandbox.path(STATE).join(path), bytes.expect("a file")).expect("it is written");
    }
    again(&mut cluster);
    cluster.server().wait_for_stderr("restored from an older backup");
    cluster.files().run(&["cat", "newer0"]).expect_failure(REFUSED, &["no file or directory newer0"]);
    // New puts pass their numbers. The next inventory has an unknown file too, of a number that was given to a change.
    for number in 0..9 {
        put(&cluster, "more", &format!("more{number}"));
    }
    let data = cluster.node_disk(0).join(STORED_DIR).join("data");
    let unknown = data.join("2/0/0");
    fs::create_dir_all(unknown.parent().expect("a directory")).expect("a directory is made");
    fs::copy(data.join("1/0/0"), &unknown).expect("it is copied");
    cluster.restart_server();
    wait_until("the unknown file is removed", || !unknown.exists());
    let here = cluster.stored_on(0);
    let gone: Vec<&PathBuf> = newer.keys().filter(|path| !here.contains_key(*path)).collect();
    assert!(gone.is_empty(), "the node has no {gone:?}");
    assert_eq!(cluster.files().done(&["cat", "before/a", "more8"]), "amore");
    cluster.files().assert_sound();
}

#[test]
fn silent_server_is_named_once() {
    let mut cluster = cluster_of(1);
    cluster.files().done(&["mkdir", "here"]);
    cluster.kill_server();
    let listing = cluster.files().start(&["ls"]);
    listing.wait_for_stderr("does not answer");
    let server = cluster.another_server();
    server.wait_for_stderr("serving at");
    cluster.led_by(server);
    let listed = listing.wait().expect_success();
    assert!(listed.text().contains("here/"), "{}", listed.story());
    let line = format!("the server at {} does not answer; it is asked again", cluster.url);
    assert_eq!(listed.stderr.matches(&line).count(), 1, "{}", listed.stderr);
}
