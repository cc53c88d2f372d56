//! Intermediate files of users on a cluster of real processes: written, read in ranges and while nodes, writers and servers die.

use blackbox::{Cluster, Finished, Questions, Running, State, corpus, exchange, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;
const BLOCK: usize = 64 << 10;

fn ifile(cluster: &Cluster, args: &[&str]) -> Command {
    cluster.sailfish(&[&["intermediate"], args].concat())
}

#[track_caller]
fn run(cluster: &Cluster, args: &[&str]) -> Finished {
    Running::start(&mut ifile(cluster, args)).wait()
}

/// Writes a file and waits until it is complete.
#[track_caller]
fn put(cluster: &Cluster, name: &str, bytes: &[u8], more: &[&str]) -> Finished {
    cluster.sandbox.write("to-put", bytes);
    let from = File::open(cluster.sandbox.path("to-put")).expect("it was written");
    let mut command = ifile(cluster, &[&["put", name], more].concat());
    Running::start_with_stdin(&mut command, from).wait()
}

/// A writer whose standard input the test holds.
fn begin_put(cluster: &Cluster, name: &str, more: &[&str]) -> (Running, PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = ifile(cluster, &[&["put", name], more].concat());
    let running = Running::start_with_stdin(&mut command, reader);
    // The command keeps its ends of the pipes.
    drop(command);
    cluster.intermediate_files().named(name).is(State::Writing).wait_for(1);
    (running, writer)
}

#[track_caller]
fn assert_reads(cluster: &Cluster, args: &[&str], expected: &[u8]) {
    let read = run(cluster, &[&["read"], args].concat()).expect_success();
    assert!(read.stdout == expected, "{args:?} gave {} bytes, not {}", read.stdout.len(), expected.len());
}

fn stat(cluster: &Cluster, name: &str) -> Value {
    run(cluster, &["stat", name, "--json"]).expect_success().json()
}

/// Waits until a file lies on a second node.
fn wait_for_replica(cluster: &Cluster, name: &str) {
    cluster.replicated_intermediate_files().named(name).wait_for(1);
}

/// The place, among all that were started, of the node on which a file lies first.
fn home(cluster: &Cluster, name: &str) -> usize {
    cluster.intermediate_files().named(name).busiest_node()
}

/// The stage files of users on the disks of so many nodes.
fn on_disks(cluster: &Cluster, nodes: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for node in 0..nodes {
        for dir in std::fs::read_dir(cluster.node_disk(node)).into_iter().flatten().flatten() {
            if dir.file_name().to_string_lossy().ends_with("-intermediate") {
                let files = std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
                found.extend(files.map(|file| file.path()));
            }
        }
    }
    found
}

#[test]
fn written_file_is_read_in_ranges() {
    let cluster = Cluster::builder().nodes(3).start();
    let text = corpus(5 * MIB + 17);
    put(&cluster, "words", &text, &[]).expect_success();
    put(&cluster, "nothing", b"", &["--keep-for", "1h"]).expect_success();
    assert_reads(&cluster, &["words"], &text);
    assert_reads(&cluster, &["nothing"], b"");
    let check = |offset: usize, length: usize| {
        let (from, count) = (offset.to_string(), length.to_string());
        let end = (offset + length).min(text.len());
        assert_reads(&cluster, &["words", "--offset", &from, "--length", &count], &text[offset..end]);
    };
    check(0, 1);
    check(BLOCK - 1, 2);
    check(BLOCK, BLOCK);
    check(3 * MIB - 5, 2 * MIB);
    check(text.len() - 1, 100);
    check(text.len(), 5);
    assert_reads(&cluster, &["words", "--offset", "4194304"], &text[4 * MIB..]);
    let beyond = (text.len() + 1).to_string();
    run(&cluster, &["read", "words", "--offset", &beyond]).expect_failure(2, &["there is nothing at"]);
    let status = stat(&cluster, "words");
    assert_eq!((&status["state"], &status["bytes"]), (&"complete".into(), &(text.len() as u64).into()));
    let listed = run(&cluster, &["list", "--json"]).expect_success().json();
    let names: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["nothing", "words"]);
    let shown = run(&cluster, &["list"]).expect_success().text();
    assert!(shown.contains("words") && shown.contains("when it is removed"), "{shown}");
    // It never changes.
    put(&cluster, "words", b"other", &[]).expect_failure(2, &["\"words\" exists already and is complete"]);
    run(&cluster, &["rm", "words", "nothing"]).expect_success();
    run(&cluster, &["read", "words"]).expect_failure(2, &["there is no intermediate file \"words\""]);
    run(&cluster, &["rm", "words"]).expect_failure(2, &["there is no intermediate file"]);
    wait_until("bytes of removed files are gone", || on_disks(&cluster, 3).is_empty());
    put(&cluster, "words", b"other", &[]).expect_success();
    assert_reads(&cluster, &["words"], b"other");
    put(&cluster, "words", b"a third", &["--replace", "--keep-for", "1s"]).expect_success();
    cluster.ask_until(&["intermediate", "list"], |listed| !listed.contains("words"));
    put(&cluster, "a\nb", b"", &[]).expect_failure(2, &["is not a valid name of an intermediate file"]);
}

/// Also where the server ends in between, while the file is written.
#[test]
fn reader_waits_for_writer_up_to_its_limit() {
    let mut cluster = Cluster::builder().nodes(3).start();
    let text = corpus(3 * MIB);
    let (writer, mut pipe) = begin_put(&cluster, "late", &[]);
    run(&cluster, &["read", "late"]).expect_failure(1, &["\"late\" is not complete after 0 seconds"]);
    let readers: Vec<Running> = (0..3)
        .map(|_| Running::start(&mut ifile(&cluster, &["read", "late", "--wait", "10m", "--offset", "7"])))
        .collect();
    pipe.write_all(&text[..2 * MIB]).expect("the writer reads");
    cluster.restart_server();
    pipe.write_all(&text[2 * MIB..]).expect("the writer reads");
    // Nobody reads what is not complete.
    assert!(readers.iter().all(|reader| !reader.has_ended()));
    drop(pipe);
    writer.wait().expect_success();
    for reader in readers {
        assert!(reader.wait().expect_success().stdout == text[7..]);
    }
    cluster.restart_server();
    assert_reads(&cluster, &["late"], &text);
    // What was ordered of the server before this one is made up for.
    run(&cluster, &["rm", "late"]).expect_success();
    cluster.restart_server();
    wait_until("bytes of removed files are gone", || on_disks(&cluster, 3).is_empty());
}

#[test]
fn a_file_has_one_writer() {
    let cluster = Cluster::builder().nodes(2).start();
    let (first, mut pipe) = begin_put(&cluster, "one", &[]);
    pipe.write_all(b"of the first").expect("the writer reads");
    put(&cluster, "one", b"x", &[]).expect_failure(2, &["\"one\" exists already and is writing"]);
    // Whoever takes the name over fences the other one off.
    put(&cluster, "one", b"of the second", &["--replace"]).expect_success();
    drop(pipe);
    first.wait().expect_failure(1, &["\"one\" cannot be written"]);
    assert_reads(&cluster, &["one"], b"of the second");
}

#[test]
fn killed_writer_leaves_nothing() {
    let cluster = Cluster::builder().nodes(2).start();
    let (writer, mut pipe) = begin_put(&cluster, "half", &["--silence", "3s"]);
    pipe.write_all(&corpus(4 * MIB)).expect("the writer reads");
    wait_until("something is written", || {
        on_disks(&cluster, 2).iter().any(|path| path.metadata().is_ok_and(|file| file.len() > MIB as u64))
    });
    let reader = Running::start(&mut ifile(&cluster, &["read", "half", "--wait", "10m"]));
    writer.signal(Signal::KILL);
    writer.wait();
    let told = ["\"half\" is abandoned", "nothing was heard of its writer for 3 seconds"];
    reader.wait().expect_failure(1, &told);
    wait_until("bytes of a dead writer are gone", || on_disks(&cluster, 2).is_empty());
    run(&cluster, &["read", "half", "--wait", "10m"]).expect_failure(1, &told);
    // One that is alive and has nothing to say is not given up.
    let (writer, mut pipe) = begin_put(&cluster, "half", &["--silence", "10s"]);
    let (other, other_pipe) = begin_put(&cluster, "other", &["--silence", "11s"]);
    other.signal(Signal::KILL);
    other.wait();
    drop(other_pipe);
    cluster.ask_until(&["intermediate", "stat", "other"], |told| told.contains("abandoned"));
    pipe.write_all(b"whole").expect("the writer reads");
    drop(pipe);
    writer.wait().expect_success();
    assert_reads(&cluster, &["half"], b"whole");
}

#[test]
fn reader_uses_replica_when_node_is_killed() {
    let mut cluster = Cluster::builder().nodes(3).start();
    let text = corpus(24 * MIB);
    put(&cluster, "large", &text, &[]).expect_success();
    wait_for_replica(&cluster, "large");
    let first = home(&cluster, "large");
    // So much is read that it does not fit what lies between: the rest comes from the replica.
    let mut reading = ifile(&cluster, &["read", "large", "--offset", "11"]);
    let mut reading = reading.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a reader");
    let mut output = reading.stdout.take().expect("it is a pipe");
    let mut begin = vec![0; MIB];
    output.read_exact(&mut begin).expect("a megabyte");
    cluster.take_node(first).signal(Signal::KILL);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("the rest");
    assert!(reading.wait().expect("it ends").success());
    assert!(begin == text[11..11 + MIB] && rest == text[11 + MIB..], "it read {} bytes", rest.len());
    // The third node gets what the first had, and then the second may die as well.
    cluster.replicated_intermediate_files().named("large").not_on_node(first).wait_for(1);
    let second = home(&cluster, "large");
    assert_ne!(first, second);
    cluster.take_node(if second > first { second - 1 } else { second }).signal(Signal::KILL);
    assert_reads(&cluster, &["large"], &text);
    // With the last one it is lost, and says so.
    cluster.kill_node();
    cluster.ask_until(&["intermediate", "stat", "large"], |told| told.contains("lost"));
    let told = ["\"large\" is lost", "which had the only copy, is gone"];
    run(&cluster, &["read", "large"]).expect_failure(1, &told);
}

#[test]
fn returned_node_brings_its_files_back() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let text = corpus(MIB);
    put(&cluster, "single", &text, &[]).expect_success();
    put(&cluster, "removed", b"nobody misses it", &[]).expect_success();
    let (writer, mut pipe) = begin_put(&cluster, "half", &[]);
    cluster.kill_node();
    let told = ["\"single\" is lost", "the node node-0, which had the only copy, is gone"];
    cluster.ask_until(&["intermediate", "stat", "single"], |told| told.contains("lost"));
    run(&cluster, &["read", "single", "--wait", "1m"]).expect_failure(1, &told);
    // The writer fails with its next write.
    // It may be gone before it has read all.
    let _ = pipe.write_all(&corpus(2 * MIB));
    drop(pipe);
    writer.wait().expect_failure(1, &["\"half\" cannot be written"]);
    let told = ["\"half\" is abandoned", "the node node-0 was lost while it was written there"];
    run(&cluster, &["read", "half", "--wait", "1m"]).expect_failure(1, &told);
    put(&cluster, "nowhere", b"", &[]).expect_failure(2, &["no node takes intermediate files now"]);
    run(&cluster, &["rm", "removed"]).expect_success();
    // The files that the server does not want any more go from the disk.
    let is_back = |told: &str| told.contains("complete");
    cluster.restart_node(0);
    cluster.ask_until(&["intermediate", "stat", "single"], is_back);
    assert_reads(&cluster, &["single"], &text);
    wait_until("removed files are gone", || on_disks(&cluster, 1).len() == 1);
    run(&cluster, &["read", "half"]).expect_failure(1, &told);
    put(&cluster, "single", b"again", &[]).expect_failure(2, &["\"single\" exists already"]);
    // A node that was told to end keeps them too.
    cluster.stop_node();
    cluster.ask_until(&["intermediate", "stat", "single"], |told| told.contains("lost"));
    cluster.restart_node(0);
    cluster.ask_until(&["intermediate", "stat", "single"], is_back);
    assert_reads(&cluster, &["single"], &text);
}

#[test]
fn drained_node_leaves_its_files_behind() {
    let mut cluster = Cluster::builder().nodes(2).start();
    let text = corpus(2 * MIB);
    put(&cluster, "stays", &text, &[]).expect_success();
    let node = home(&cluster, "stays");
    let drained = cluster.sailfish(&["nodes", "drain", &format!("node-{node}"), "--wait"]).output();
    assert!(drained.expect("it runs").status.success());
    cluster.wait_for_node(node);
    assert_reads(&cluster, &["stays"], &text);
}

/// A program of a job knows the server and its node, and what it makes goes with the job if it wants.
#[test]
fn programs_of_jobs_reach_intermediate_files() {
    let cluster = Cluster::builder().nodes(3).start();
    let go = cluster.sandbox.fifo("go");
    let binary = cluster.sandbox.sailfish().get_program().to_string_lossy().into_owned();
    let program = format!(
        "echo of the job | '{binary}' intermediate put bound --job \"$SAILFISH_JOB\" && \
         echo \"$SAILFISH_NODE\" | '{binary}' intermediate put kept && read line < '{}'",
        go.text()
    );
    let script = cluster.sandbox.script("program.sh", &format!("#!/bin/sh\n{program}\n"));
    let script = script.to_str().expect("a sandbox has a plain path");
    let job = Running::start(cluster.sailfish(&["submit", "--wait"]).args(["--", script]));
    cluster.ask_until(&["intermediate", "list"], |listed| listed.matches("complete").count() == 2);
    assert_reads(&cluster, &["bound"], b"of the job\n");
    let node = run(&cluster, &["read", "kept"]).expect_success().text();
    // They lie where the program ran.
    assert_eq!(node.trim(), format!("node-{}", home(&cluster, "kept")));
    let mut go = go;
    go.write_line("on");
    job.wait().expect_success();
    cluster.ask_until(&["intermediate", "list"], |listed| !listed.contains("bound"));
    assert_reads(&cluster, &["kept"], format!("{}\n", node.trim()).as_bytes());
    put(&cluster, "late", b"", &["--job", "1"]).expect_failure(2, &["there is no job 1"]);
}

#[test]
fn intermediate_files_need_a_cluster() {
    let sandbox = blackbox::Sandbox::new();
    let put = Running::start(sandbox.sailfish().args(["intermediate", "put", "x"])).wait();
    put.expect_failure(2, &["--server is missing", "nodes of a cluster"]);
}

/// Scripts of before: each old spelling does its work, and names the new one on standard error.
#[test]
fn old_spellings_work_and_name_the_new() {
    let cluster = Cluster::builder().nodes(1).start();
    let from = cluster.sandbox.write("to-put", b"as ever\n");
    let mut put = cluster.sailfish(&["ifile", "put", "old"]);
    let put = Running::start_with_stdin(&mut put, File::open(from).expect("it was written")).wait();
    put.expect_success();
    let old = |args: &[&str]| {
        let told =
            Running::start(&mut cluster.sailfish(&[&["ifile"], args].concat())).wait().expect_success();
        let line = format!("sailfish: use `sailfish intermediate {}`", args[0]);
        assert!(told.stderr.contains(&line), "{}", told.story());
        told.text()
    };
    assert_eq!(old(&["read", "old"]), "as ever\n");
    assert!(old(&["list"]).contains("old"));
    assert!(old(&["stat", "old"]).contains("complete"));
    let open = exchange(cluster.address(), "POST /v1/ifiles/open", br#"{"name": "old"}"#).expect("an answer");
    assert_eq!(open.status, 200, "{}", open.text());
    let named = "a client calls /v1/ifiles/open: change it to call /v1/intermediate-files/open";
    cluster.server().wait_for_stderr(named);
    old(&["rm", "old"]);
    let listed = exchange(cluster.address(), "GET /v1/ifiles", b"").expect("an answer");
    assert!(listed.status == 200 && !listed.text().contains("old"), "{}", listed.text());
    // Once in a process is enough.
    let log = cluster.server().stderr_so_far();
    assert_eq!(log.matches("a client calls").count(), 1, "{log}");
}

/// The calls as any program may make them: plain HTTP, each write with its offset.
#[test]
fn the_calls_are_plain_http() {
    let cluster = Cluster::builder().nodes(1).start();
    let ask = |path: &str, body: &str| {
        let answer =
            exchange(cluster.address(), &format!("POST {path}"), body.as_bytes()).expect("an answer");
        (answer.status, answer.json().unwrap_or_default())
    };
    let (status, created) = ask("/v1/intermediate-files", r#"{"name": "by hand"}"#);
    assert_eq!((status, &created["silence_seconds"]), (200, &60.into()), "{created}");
    let place = &created["place"];
    let address = place["data_url"].as_str().expect("a URL").trim_start_matches("http://").to_string();
    let file = created["file"].as_i64().expect("a number");
    let incarnation = format!("sailfish-incarnation: {}", place["incarnation"]);
    let grant = std::cell::RefCell::new(created["grant"].as_str().expect("a grant").to_string());
    let call = |method: &str, rest: &str, body: &[u8]| {
        let head = format!("{method} /data/v1/intermediate/{file}{rest}\n{incarnation}");
        let head = format!("{head}\nauthorization: Bearer {}", grant.borrow());
        let answer = exchange(&address, &head, body).expect("an answer");
        (answer.status, answer.text())
    };
    let check = |offset: u64, body: &str, status: u16, told: &str| {
        let (found, text) = call("POST", &format!("/write?offset={offset}"), body.as_bytes());
        assert_eq!(found, status, "{body:?} at {offset}: {text}");
        assert!(text.contains(told), "{text}");
    };
    check(0, "abc", 200, "3\n");
    check(3, "defgh", 200, "8\n");
    // Repeated, because an answer was lost.
    check(3, "defgh", 200, "8\n");
    check(1, "bc", 200, "8\n");
    check(1, "bd", 409, "holds other bytes at 1");
    check(9, "x", 409, "only 8 bytes are written");
    check(7, "hi", 409, "goes beyond it");
    assert_eq!(call("POST", "/write", b"x").0, 400);
    assert_eq!(call("GET", "?offset=0", b"").0, 403, "it may be written by this, and not be read");
    assert_eq!(call("POST", "/close?bytes=9", b"").0, 409);
    let (status, open) = ask("/v1/intermediate-files/open", r#"{"name": "by hand", "wait_ms": 10}"#);
    assert_eq!((status, &open["status"]["state"]), (200, &"writing".into()), "{open}");
    assert_eq!(open["places"].as_array().map(Vec::len), Some(0));
    assert_eq!(call("POST", "/close?bytes=8", b""), (200, "8\n".to_string()));
    // The answer was lost.
    assert_eq!(call("POST", "/close?bytes=8", b""), (200, "8\n".to_string()));
    check(8, "x", 409, "it never changes any more");
    let (_, open) = ask("/v1/intermediate-files/open", r#"{"name": "by hand"}"#);
    assert_eq!(open["places"][0], *place);
    grant.replace(open["grant"].as_str().expect("a grant").to_string());
    assert_eq!(call("POST", "/write?offset=8", b"x").0, 403, "it may be read by this, and not be written");
    assert_eq!(call("GET", "?offset=2&length=3", b""), (200, "cde".to_string()));
    assert_eq!(call("GET", "?offset=6", b""), (200, "gh".to_string()));
    assert_eq!(call("GET", "?offset=99", b""), (200, String::new()));
    assert_eq!(ask("/v1/intermediate-files/remove", r#"{"name": "by hand"}"#).0, 200);
    assert_eq!(ask("/v1/intermediate-files/open", r#"{"name": "by hand"}"#).0, 404);
    assert_eq!(ask("/v1/intermediate-files", r#"{"name": "x", "silence_seconds": 0}"#).0, 422);
}
