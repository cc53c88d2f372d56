//! Stored files of a cluster: the verbs, names and sources that cannot be put, rights, clients that meet or are killed.

use crate::security::Guarded;
use blackbox::{
    Cluster, FileTree, Finished, Random, Running, STORED_DIR, Sandbox, StoredFiles, StoredQuestions,
    could_not_run, exchange, file_tree, wait_until,
};
use private_postgres::PrivatePostgres;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REFUSED: i32 = 2;
/// Bytes of a block with a checksum.
const BLOCK_BYTES: usize = 64 << 10;
const LARGE_BYTES: usize = 200_000;
const SMALL_FILES: usize = 3000;
/// More than is put together with others.
const ALONE_BYTES: usize = (1 << 20) + 1000;
/// Kills of puts, each at a random moment.
const KILLS: u32 = 10;
/// Commands on a machine and a cluster.
const COMMANDS: u32 = 40;
/// Every write to a disk takes its time.
const SLOW_WRITES: (&str, &str) = ("SAILFISH_IO_FAULT", "write:slow:1+");

/// A cluster of so many nodes whose disks take stored files.
fn cluster_of(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    cluster.wait_for_stored_disks(nodes.into());
    cluster
}

/// A directory with files and names of all kinds.
fn write_source(sandbox: &Sandbox, name: &str) -> PathBuf {
    let long = "é".repeat(100);
    let large = Random::new(5).bytes(LARGE_BYTES);
    let files: [(&str, &[u8]); 7] = [
        ("empty", b""),
        ("one", b"1"),
        ("large", &large),
        ("deep/er/text", b"text\n"),
        ("deep/with space", b"space\n"),
        ("with\nnewline", b"newline\n"),
        (&long, b"long\n"),
    ];
    for (file, bytes) in files {
        sandbox.write(&format!("{name}/{file}"), bytes);
    }
    fs::create_dir_all(sandbox.path(name).join("deep/no files")).expect("a directory is made");
    sandbox.path(name)
}

/// Names below a directory, as they are listed.
fn names_below(dir: &Path) -> Vec<String> {
    file_tree(dir).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn assert_cut(files: &StoredFiles<'_>, name: &str, bytes: &[u8], offset: usize, length: usize) {
    let (from, count) = (offset.to_string(), length.to_string());
    let cut = files.bytes(&["cat", name, "--offset", &from, "--length", &count]);
    assert!(cut == bytes[offset..offset + length], "{length} bytes of {name} at {offset} differ");
}

/// Puts, reads, renames and removes on a cluster of three nodes.
fn round_trip(cluster: &Cluster) {
    cluster.wait_for_stored_disks(3);
    let files = cluster.files();
    let source = write_source(&cluster.sandbox, "in");
    let put = files.run(&["put", "in", "data", "--replicas", "2"]).expect_success();
    assert!(put.stderr.contains("put data version 1: 7 files"), "{}", put.stderr);
    assert_eq!(files.names("data"), names_below(&source));
    files.assert_stored(&source, "data");
    let large = fs::read(source.join("large")).expect("it was written");
    assert!(files.bytes(&["cat", "data/large"]) == large);
    assert_cut(&files, "data/large", &large, BLOCK_BYTES - 1000, 2000);
    assert_eq!(files.bytes(&["cat", "data/empty", "data/one"]), b"1");
    files.done(&["put", "in/large", "parted", "--parts", "3", "--replicas", "2"]);
    let replicas = files.replicas("parted");
    assert!(replicas.len() == 3 && replicas.iter().all(|nodes| nodes.len() == 2), "{replicas:?}");
    assert!(replicas.iter().all(|nodes| nodes[0] != nodes[1]), "{replicas:?}");
    assert!(files.bytes(&["cat", "parted"]) == large);
    assert_cut(&files, "parted", &large, LARGE_BYTES / 3 - 10, BLOCK_BYTES + 20);
    assert!(files.done(&["stat", "parted"]).contains("parts          3"));
    assert_eq!(cluster.replica_counts(), [2].into());
    files.assert_sound();
    change_names(&files, &source);
    files.done(&["rm", "--recursive", "twin", "a", "first", "parted", "kept"]);
    put_by_hash(cluster);
    assert_eq!(files.names("/"), [""; 0]);
    wait_until("the disks have no files", || (0..3).all(|node| cluster.has_nothing_stored_on(node)));
}

/// Puts records by the hash of their keys, which keeps all of them and not their order, and removes them.
fn put_by_hash(cluster: &Cluster) {
    let files = cluster.files();
    let text: String = (0..3000).map(|line| format!("{}\t{line}\n", line % 70)).collect();
    cluster.sandbox.write("records", &text);
    let by_hash = ["put", "records", "hashed", "--hash-by", "key", "--parts", "4", "--replicas", "2"];
    let put = files.run(&by_hash).expect_success();
    assert!(put.stderr.contains("order"), "{}", put.stderr);
    let (mut stored, mut expected) = (files.done(&["cat", "hashed"]), text);
    assert!(stored != expected, "the records have their order");
    for text in [&mut stored, &mut expected] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        *text = lines.join("\n");
    }
    assert!(stored == expected, "records differ");
    let replicas = files.replicas("hashed");
    assert!(replicas.len() == 4 && replicas.iter().all(|nodes| nodes.len() == 2), "{replicas:?}");
    let stat = files.run(&["stat", "--json", "hashed"]).expect_success().json();
    assert_eq!(stat["hashed"]["record_count"], 3000, "{stat}");
    files.assert_sound();
    files.done(&["rm", "hashed"]);
}

/// Copies, renames, makes and removes, and keeps a version.
fn change_names(files: &StoredFiles<'_>, source: &Path) {
    files.done(&["cp", "data", "twin"]);
    files.done(&["mv", "twin/one", "first"]);
    files.done(&["mkdir", "--parents", "a/b"]);
    files.done(&["cp", "first", "a/b/"]);
    files.done(&["rm", "--recursive", "data"]);
    files.run(&["cat", "data/large"]).expect_failure(REFUSED, &["no file or directory data"]);
    files.run(&["rm", "twin"]).expect_failure(REFUSED, &["twin is a directory", "--recursive"]);
    files.run(&["mkdir", "x/y"]).expect_failure(REFUSED, &["no file or directory x"]);
    files.run(&["cat", "twin"]).expect_failure(REFUSED, &["twin is a directory"]);
    let mut expected = file_tree(source);
    assert_eq!(expected.remove(Path::new("one")), Some(Some(b"1".to_vec())));
    assert!(files.got("twin") == expected, "the copy differs");
    assert_eq!(files.names("a"), ["b", "b/first"]);
    let version = |name: &str| {
        let stat = files.run(&["stat", "--json", name]).expect_success().json();
        stat["version"].as_i64().expect("a version")
    };
    let keeping = |source: &str| {
        files.done(&["put", source, "kept", "--keep-versions", "2"]);
        version("kept")
    };
    let (_, older) = (keeping("in/empty"), keeping("in/one"));
    keeping("in/deep/er/text");
    assert_eq!(files.done(&["cat", "kept", &format!("kept@{older}")]), "text\n1");
    // Without this an older version would stay when the name goes.
    files.done(&["put", "in/one", "kept"]);
    let changes = files.done(&["versions", "kept"]);
    assert_eq!(changes.matches("put").count(), 4, "{changes}");
    let changes = files.done(&["versions"]);
    assert_eq!(changes.lines().count(), 2 + 2 + 5 + 4, "{changes}");
}

#[test]
fn stored_files_round_trip() {
    round_trip(&cluster_of(3));
}

#[test]
fn stored_files_round_trip_on_postgres() {
    let what = "stored files of a cluster on PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    round_trip(&Cluster::builder().nodes(3).database(postgres.url("postgres")).start());
}

#[test]
fn stored_small_files_come_back() {
    let cluster = cluster_of(2);
    for number in 0..SMALL_FILES {
        let bytes = format!("{number} ").repeat(number % 50);
        cluster.sandbox.write(&format!("in/{}/{number}", number % 7), bytes);
    }
    let files = cluster.files();
    let put = files.run(&["put", "in", "data"]).expect_success();
    assert!(put.stderr.contains("3,000 files") || put.stderr.contains("3000 files"), "{}", put.stderr);
    files.assert_stored(&cluster.sandbox.path("in"), "data");
    assert_eq!(cluster.count_stored_on(0), cluster.count_stored_on(1));
    files.assert_sound();
}

#[test]
fn stored_standard_input_is_read_back() {
    let cluster = cluster_of(2);
    let files = cluster.files();
    let put = |from: Stdio, name: &str| {
        Running::start_with_stdin(&mut files.command(&["put", "-", name]), from).wait().expect_success()
    };
    let mut input = Command::new("seq").arg("300000").stdout(Stdio::piped()).spawn().expect("seq starts");
    put(input.stdout.take().expect("it is piped").into(), "lines");
    input.wait().expect("seq ends");
    let out = files.done(&["cat", "lines"]);
    assert_eq!((out.lines().count(), out.lines().last()), (300_000, Some("300000")));
    put(Stdio::null(), "nothing");
    assert_eq!(files.done(&["cat", "nothing"]), "");
    let parts = ["put", "-", "x", "--parts", "2"];
    files.run(&parts).expect_failure(REFUSED, &["--parts", "standard input"]);
}

#[test]
fn bad_stored_names_are_refused() {
    let cluster = cluster_of(1);
    let (sandbox, files) = (&cluster.sandbox, cluster.files());
    sandbox.write("in/good", "good");
    fs::write(sandbox.path("in").join(OsStr::from_bytes(b"not\xfftext")), "3").expect("Linux takes it");
    symlink("good", sandbox.path("in/link")).expect("a link is made");
    drop(sandbox.fifo("in/pipe"));
    drop(std::os::unix::net::UnixListener::bind(sandbox.path("in/socket")).expect("a socket is bound"));
    sandbox.write("in/version@12", "4");
    let words = ["not UTF-8", "in/link: it is a symbolic link", "a named pipe", "a socket", "version@12"];
    let refused = files.run(&["put", "in", "data"]).expect_failure(REFUSED, &words);
    assert!(refused.stderr.contains("5 entries"), "{}", refused.stderr);
    let long = "x".repeat(256);
    for (name, text) in
        [("../x", "`..`"), ("a//b", "empty part"), (long.as_str(), "at most 255"), ("x@3", "@")]
    {
        files.run(&["put", "in/good", name]).expect_failure(REFUSED, &[text]);
    }
    files.run(&["put", "in/good", &"x/".repeat(2048)]).expect_failure(REFUSED, &["4096 bytes", "4095"]);
    files.run(&["put", "nowhere", "x"]).expect_failure(REFUSED, &["nowhere", "No such file"]);
    assert_eq!((files.names("/"), cluster.open_puts()), (Vec::new(), 0));
    assert!(cluster.has_nothing_stored_on(0));
    files.done(&["put", "in", "data", "--skip"]);
    assert_eq!(files.names("data"), ["good"]);
}

#[test]
fn stored_files_need_nodes_with_room() {
    let mut cluster = Cluster::builder().start();
    cluster.sandbox.write("in", "some bytes");
    let put = ["put", "in", "data"];
    cluster.files().run(&put).expect_failure(REFUSED, &["no node takes stored files"]);
    let disk = rustix::fs::statvfs(cluster.sandbox.path("")).expect("a file system has sizes");
    if disk.f_bavail * 10 >= disk.f_blocks * 9 {
        return could_not_run("a put without room", "the disk is nearly empty");
    }
    cluster.add_node_with("rack-0", &["--shuffle-reserve", "90"]);
    let refused = "no node has room for";
    wait_until("the server knows the room of the node", || {
        cluster.files().run(&put).stderr.contains(refused)
    });
    cluster.files().run(&put).expect_failure(REFUSED, &[refused, "node-0 has room for 0 bytes"]);
    assert_eq!(cluster.files().names("/"), [""; 0]);
    cluster.add_node();
    wait_until("the other node takes files", || cluster.files().run(&put).status.success());
    assert_eq!((cluster.count_stored_on(0), cluster.count_stored_on(1)), (0, 1));
}

/// Names are seen by all users, contents by their own; over TLS.
#[test]
fn stored_files_belong_to_their_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.add_node();
    guarded.wait_for_stored_disks(2);
    guarded.sandbox.write("secret", "secret\n");
    guarded.sandbox.write("other", "other\n");
    let by = |token: &str, args: &[&str]| guarded.by(token, &[&["files"], args].concat());
    let refuse = |token: &str, args: &[&str], text: &str| drop(by(token, args).expect_failure(2, &[text]));
    by("ann.token", &["put", "secret", "of-ann/secret", "--replicas", "2"]).expect_success();
    assert_eq!(by("ann.token", &["cat", "of-ann/secret"]).expect_success().text(), "secret\n");
    let listed = by("bob.token", &["ls", "--recursive"]).expect_success().text();
    assert!(listed.contains("of-ann") && listed.contains("secret") && listed.contains("ann"), "{listed}");
    for args in [&["cat", "of-ann/secret"][..], &["get", "of-ann/secret", "x"], &["get", "of-ann", "y"]] {
        refuse("bob.token", args, "belong to \"ann\"");
    }
    for args in [
        &["put", "other", "of-ann/secret"][..],
        &["rm", "of-ann/secret"],
        &["rm", "--recursive", "of-ann"],
        &["mv", "of-ann/secret", "mine"],
        &["mv", "of-ann", "mine"],
        &["cp", "of-ann/secret", "mine"],
        &["cp", "of-ann", "mine"],
    ] {
        refuse("bob.token", args, "belongs to ann");
    }
    refuse("eve.token", &["put", "other", "of-eve"], "read-only may not");
    refuse("rack.token", &["put", "other", "of-rack"], "node may not");
    assert!(!guarded.sandbox.path("x").exists() && !guarded.sandbox.path("y").exists());
    by("bob.token", &["put", "other", "of-bob"]).expect_success();
    let admin = guarded.admin_token();
    assert_eq!(by(&admin, &["cat", "of-ann/secret"]).expect_success().text(), "secret\n");
    by(&admin, &["rm", "of-ann/secret"]).expect_success();
    refuse("ann.token", &["cat", "of-ann/secret"], "no file or directory");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

/// A request to a data port for all bytes of a part, as docs/protocol-data.md has it.
fn read_request(part: &Value) -> Vec<u8> {
    let number = |name: &str| part[name].as_u64().expect("a number");
    let mut message = b"SFFR\x02\0\0\0\x01\0\0\0".to_vec();
    message.extend(number("concrete").to_le_bytes());
    message.extend(number("bytes").to_le_bytes());
    message.extend((number("crc32c") as u32).to_le_bytes());
    message.extend(0_u64.to_le_bytes());
    message.extend(number("bytes").to_le_bytes());
    message.extend(crc32c(&message).to_le_bytes());
    message
}

#[test]
fn stored_rights_open_one_file() {
    let cluster = cluster_of(1);
    cluster.sandbox.write("in/a", "bytes of a");
    cluster.sandbox.write("in/b", "bytes of b");
    // Different puts, so that no range has both.
    cluster.files().done(&["put", "in/a", "a"]);
    cluster.files().done(&["put", "in/b", "b"]);
    let ask = |route: &str, message: Value| {
        let head = format!("POST /v1/stored-files/{route}");
        let answer = exchange(cluster.address(), &head, message.to_string().as_bytes()).expect("an answer");
        answer.json().unwrap_or_else(|| panic!("{route}: {}", answer.text()))
    };
    let root = ask("find", json!({ "path": "" }))["root"].clone();
    let page = |name: &str| {
        ask("list", json!({ "directory": root, "after": "", "only": name, "limit": 1, "parts": true }))
    };
    let (of_a, of_b) = (page("a"), page("b"));
    let node = &of_a["nodes"][0];
    let address = node["data_url"].as_str().expect("a URL").trim_start_matches("http://").to_string();
    let read = |page: &Value, token: Option<&str>| {
        let token = token.map_or(String::new(), |token| format!("\nauthorization: Bearer {token}"));
        let head = format!(
            "POST /data/v1/stored/read\ncontent-type: application/octet-stream\nsailfish-incarnation: {}{token}",
            node["incarnation"]
        );
        exchange(&address, &head, &read_request(&page["parts"][0]["file"])).expect("an answer")
    };
    let grant = |page: &Value| page["grants"][0]["grant"].as_str().expect("a grant").to_string();
    let answer = read(&of_a, Some(&grant(&of_a)));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("bytes of a"), "{}", answer.text());
    assert_eq!(read(&of_b, Some(&grant(&of_a))).status, 403);
    assert_eq!(read(&of_a, Some(&grant(&of_b))).status, 403);
    assert_eq!(read(&of_a, None).status, 401);
    let spoiled = grant(&of_a).replace("read", "write");
    assert_eq!(read(&of_a, Some(&spoiled)).status, 403);
    assert_eq!(read(&of_a, Some("guessed")).status, 403);
    // It lets nobody write, not even the same file.
    let head = format!(
        "POST /data/v1/stored/{}/write?bytes=0\ncontent-type: application/octet-stream\nsailfish-incarnation: {}\n\
         authorization: Bearer {}",
        node["disk"],
        node["incarnation"],
        grant(&of_a)
    );
    assert_eq!(exchange(&address, &head, b"").expect("an answer").status, 403);
}

/// A random command on few names, so that they meet.
fn random_command(random: &mut Random, step: u32) -> Vec<String> {
    let names = ["a", "b", "c", "d", "d/a", "d/e", "d/e/f", "/", "a/b", "..", "c@1"];
    let mut name = || random.one_of(&names).to_string();
    let (one, other) = (name(), name());
    let target = format!("target-{step}");
    // A cluster removes versions that nobody needs some time later: only changes of `c@1` are refused by both.
    let kinds = if one == "c@1" { 13 } else { 16 };
    let command = match random.below(kinds) {
        0..3 => vec!["put", "in/large", &one, "--parts", "2"],
        3 => vec!["put", "in/one", &one, "--keep-versions", "2"],
        4..6 => vec!["put", "in/deep", &one],
        6 => vec!["mkdir", &one],
        7 => vec!["mkdir", "--parents", &one],
        8 => vec!["rm", &one],
        9 => vec!["rm", "--recursive", &one],
        10..12 => vec!["mv", &one, &other],
        12 => vec!["cp", &one, &other],
        13 => vec!["get", &one, &target],
        14 => vec!["cat", &one],
        _ => vec!["ls", &one],
    };
    command.into_iter().map(ToString::to_string).collect()
}

/// Everything that a command says, without what must differ: times, progress, and the path of the sandbox.
fn said(finished: &Finished, sandbox: &Sandbox) -> (Option<i32>, String) {
    let line = |line: &str| {
        let is_timed = line.starts_with("sailfish: put ") || line.starts_with("sailfish: get ");
        line.rsplit_once(" in ").filter(|_| is_timed).map_or(line, |(before, _)| before).to_string()
    };
    let lines: Vec<String> =
        finished.stderr.lines().filter(|line| !line.contains(" % of ")).map(line).collect();
    (finished.code(), lines.join("\n").replace(&sandbox.directory(), "HERE"))
}

/// The whole tree as JSON, without times and users.
fn listed(files: &StoredFiles<'_>) -> Vec<Value> {
    let text = files.done(&["ls", "--json", "--recursive"]);
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).expect("a line is JSON");
        for field in ["user", "version", "created_ns"] {
            value.as_object_mut().expect("an object").remove(field);
        }
        value
    };
    text.lines().map(line).collect()
}

#[test]
fn stored_tree_is_that_of_one_machine() {
    let (machine, cluster) = (Sandbox::new(), cluster_of(2));
    for sandbox in [&machine, &cluster.sandbox] {
        write_source(sandbox, "in");
    }
    let (here, there) = (machine.files(), cluster.files());
    for files in [&here, &there] {
        files.done(&["put", "in", "c"]);
    }
    let mut random = Random::new(20_261_126);
    for step in 0..COMMANDS {
        let command = random_command(&mut random, step);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let (on_machine, on_cluster) = (here.run(&command), there.run(&command));
        let both = format!("step {step}: {}\n{}", on_machine.story(), on_cluster.story());
        assert_eq!(said(&on_machine, &machine), said(&on_cluster, &cluster.sandbox), "{both}");
        if command[0] == "cat" {
            assert!(on_machine.stdout == on_cluster.stdout, "{both}");
        }
        let target = format!("target-{step}");
        let got = [&machine, &cluster.sandbox].map(|sandbox| file_tree(&sandbox.path(&target)));
        assert!(got[0] == got[1], "{both}");
        if step % 8 == 7 {
            assert_eq!(listed(&here), listed(&there), "{both}");
        }
    }
    assert_eq!(listed(&here), listed(&there));
}

/// Several files that travel alone, and several that travel together.
fn write_two_kinds(sandbox: &Sandbox, name: &str, alone: u32, together: u32) -> FileTree {
    for number in 0..alone {
        let seed = u64::from(number) + name.len() as u64 * 1000;
        sandbox.write(&format!("{name}/alone/{number}"), Random::new(seed).bytes(ALONE_BYTES));
    }
    for number in 0..together {
        sandbox.write(&format!("{name}/together/{number}"), format!("{name} {number}\n").repeat(50));
    }
    file_tree(&sandbox.path(name))
}

#[test]
fn stored_puts_of_one_name_meet() {
    let cluster = cluster_of(2);
    let trees = ["one", "other"].map(|name| write_two_kinds(&cluster.sandbox, name, 2, 20));
    let files = cluster.files();
    let puts = ["one", "other"].map(|source| files.start(&["put", source, "data"]));
    puts.into_iter().for_each(|put| drop(put.wait().expect_success()));
    let got = files.got("data");
    assert!(trees.contains(&got), "it is neither of both");
    // Two clients with one source: the later one goes on, and the earlier one may have been too late.
    let puts = ["other", "other"].map(|source| files.start(&["put", source, "data"]));
    let ended = puts.map(Running::wait);
    let is_over = |put: &Finished| put.stderr.contains("another client goes on with it");
    assert!(ended.iter().all(|put| put.status.success() || is_over(put)), "{}", ended[0].story());
    assert!(ended.iter().any(|put| put.status.success()), "{}{}", ended[0].story(), ended[1].story());
    files.assert_stored(&cluster.sandbox.path("other"), "data");
}

#[test]
fn stored_put_goes_on_after_kill() {
    let mut cluster = Cluster::builder().start();
    for _ in 0..2 {
        cluster.add_changed_node(|command| {
            command.env(SLOW_WRITES.0, SLOW_WRITES.1);
        });
    }
    cluster.wait_for_stored_disks(2);
    let source = write_two_kinds(&cluster.sandbox, "in", 14, 5);
    let files = cluster.files();
    let put = ["put", "in", "data"];
    let putting = files.start(&put);
    wait_until("some files are there", || cluster.count_stored_on(0) > 3 || putting.has_ended());
    wait_until("files are recorded", || !cluster.recorded_contents().is_empty() || putting.has_ended());
    assert!(!putting.has_ended(), "the put is over: {}", putting.stderr_so_far());
    putting.signal(Signal::KILL);
    putting.wait();
    let recorded = cluster.recorded_contents();
    assert!(recorded.len() < source.len(), "the kill came too late");
    assert_eq!(files.names("/"), [""; 0]);
    files.done(&put);
    let named = cluster.named_contents();
    assert!(recorded.is_subset(&named), "recorded files were put again: {recorded:?} {named:?}");
    files.assert_stored(&cluster.sandbox.path("in"), "data");
    assert_eq!(cluster.replica_counts(), [2].into());
}

#[test]
fn killed_stored_puts_show_whole_trees() {
    let cluster = cluster_of(2);
    let trees = ["one", "other"].map(|name| write_two_kinds(&cluster.sandbox, name, 4, 20));
    let files = cluster.files();
    files.done(&["put", "one", "data"]);
    let mut random = Random::new(11);
    for kill in 0..KILLS {
        let source = if kill % 2 == 0 { "other" } else { "one" };
        let before = cluster.count_stored_on(0);
        let more = random.below(26) as usize;
        let putting = files.start(&["put", source, "data"]);
        wait_until("more files are there", || {
            putting.has_ended() || cluster.count_stored_on(0) >= before + more
        });
        putting.signal(Signal::KILL);
        putting.wait();
        let got = files.got("data");
        assert!(trees.contains(&got), "kill {kill} left a mixture");
    }
    files.done(&["put", "one", "data"]);
    files.assert_stored(&cluster.sandbox.path("one"), "data");
    files.assert_sound();
}

#[test]
fn stored_files_stay_private() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = cluster_of(1);
    cluster.sandbox.write("in", "in");
    cluster.files().done(&["put", "in", "in"]);
    for name in ["", "data", "secret"] {
        let path = cluster.node_disk(0).join(STORED_DIR).join(name);
        let mode = fs::metadata(path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
}
