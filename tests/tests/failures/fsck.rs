//! `sailfish fsck` over the data that a job kept: it names every changed file, its place, and the damage.

use blackbox::flow::{stage_files, start_here};
use blackbox::{Cluster, Finished, Questions, Running, Sandbox, run_files};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const DAMAGE: i32 = 1;
const CANNOT_LOOK: i32 = 2;
const LINES: u32 = 60_000;
const FILE_HEADER_BYTES: u64 = 64;
const FOOTER_BYTES: usize = 128;

/// Enough for some blocks.
fn lines() -> String {
    let mut text = String::new();
    for line in 0..LINES {
        let key = line.wrapping_mul(2_654_435_761) % 7000;
        writeln!(text, "key{key:04}\tthe value of line {line}").expect("a string takes all");
    }
    text
}

fn run(sandbox: &Sandbox, output: &str, more: &[&str]) -> Finished {
    let base = ["--input", "in", "--memory", "64M", "--slots", "2", "--no-sync", "--output", output];
    sandbox.run_job(&[&base[..], more].concat())
}

fn fsck(sandbox: &Sandbox, job: &str) -> Finished {
    sandbox.look(&["fsck", job])
}

/// A number in the footer of a run file (docs/formats/ifile.md).
fn footer_field(bytes: &[u8], offset: usize) -> u64 {
    let at = bytes.len() - FOOTER_BYTES + offset;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn flipped(bytes: &[u8], at: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at as usize] ^= 0x10;
    bytes
}

#[test]
fn fsck_passes_intact_files() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    run(&sandbox, "first", &["--keep-ifiles"]).expect_success();
    let told = fsck(&sandbox, "1").expect_success().text();
    assert!(told.contains("every file is whole; the proof of 1 I-file agrees"), "{told}");
    let json = sandbox.look(&["fsck", "1", "--json"]).expect_success().json();
    assert_eq!(json["runs"], run_files(&sandbox.disk()).len(), "{json}");
    assert_eq!((&json["damaged_count"], &json["disagreeing_count"]), (&0.into(), &0.into()));
    assert!(json["blocks"].as_u64() > Some(3), "{json}");
    // A job that reduced them again reads the same files.
    sandbox.look(&["rerun-reduce", "1", "--output", "again"]).expect_success();
    let told = fsck(&sandbox, "2").expect_success().text();
    assert!(told.starts_with("job 1: "), "{told}");
}

#[test]
fn every_damage_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    run(&sandbox, "first", &["--keep-ifiles"]).expect_success();
    run(&sandbox, "second", &["--keep-ifiles"]).expect_success();
    let files = run_files(&sandbox.disk());
    let (of_first, of_second): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| path.to_string_lossy().contains("-job1"));
    let path = of_first[0].clone();
    let whole = std::fs::read(&path).expect("a run");
    let name = path.to_str().expect("a plain path").to_string();
    let check = |bytes: Option<Vec<u8>>, texts: &[&str]| {
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).expect("a run is replaced"),
            None => std::fs::remove_file(&path).expect("a run is removed"),
        }
        let texts = [texts, &[&name, "no intact copy", "1 run without an intact copy", "does not agree"]];
        fsck(&sandbox, "1").expect_failure(DAMAGE, &texts.concat());
        // The other job is not concerned.
        fsck(&sandbox, "2").expect_success();
        std::fs::write(&path, &whole).expect("a run is put back");
    };
    let (index, sources) = (footer_field(&whole, 16), footer_field(&whole, 40));
    let size = whole.len() as u64;
    check(Some(flipped(&whole, 5)), &["not an I-file"]);
    check(Some(flipped(&whole, FILE_HEADER_BYTES + 200)), &["block 0 at byte", "checksum"]);
    check(Some(flipped(&whole, index - 1)), &["  block ", "checksum"]);
    check(Some(flipped(&whole, index + 1)), &["damaged key index: checksum"]);
    check(Some(flipped(&whole, sources + 1)), &["damaged source table: checksum"]);
    check(Some(flipped(&whole, size - 60)), &["damaged footer: checksum"]);
    check(Some(whole[..whole.len() / 2].to_vec()), &["end mark is missing"]);
    check(Some(whole[..20].to_vec()), &["truncated"]);
    check(Some(Vec::new()), &["truncated"]);
    check(None, &["the file is missing"]);
    // A whole file of the same number, made by another job.
    let other =
        of_second.iter().find(|other| other.file_name() == path.file_name()).expect("the same number");
    let other = std::fs::read(other).expect("a run");
    check(Some(other), &["not the file that was kept", "the job's number is 2 here, but 1 in another place"]);
    fsck(&sandbox, "1").expect_success();
}

/// Blocks behind a damaged one are looked at too.
#[test]
fn every_damaged_block_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    run(&sandbox, "first", &["--keep-ifiles"]).expect_success();
    let path = run_files(&sandbox.disk())[0].clone();
    let whole = std::fs::read(&path).expect("a run");
    let index = footer_field(&whole, 16);
    let twice = flipped(&flipped(&whole, FILE_HEADER_BYTES + 100), index - 1);
    std::fs::write(&path, twice).expect("a run is replaced");
    let json = sandbox.look(&["fsck", "1", "--json"]).expect_failure(DAMAGE, &[]).json();
    let file = &json["damaged"][0];
    let blocks: Vec<_> =
        file["damages"].as_array().into_iter().flatten().map(|damage| &damage["block"]).collect();
    assert_eq!(blocks, [0, footer_field(&whole, 32) - 1], "{json}");
    assert_eq!((&file["damage_count"], &file["intact"], &file["node"]), (&2.into(), &().into(), &().into()));
    assert_eq!((&json["lost_runs"], &json["disagreeing_count"]), (&1.into(), &1.into()));
    let row = &json["disagreeing"][0];
    assert!(row["committed"]["records"].as_u64() > row["held"]["records"].as_u64(), "{json}");
}

/// `fsck` compares committed data with held data, even if each file is whole by itself.
#[test]
fn a_proof_that_does_not_agree_is_damage() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    run(&sandbox, "first", &["--keep-ifiles"]).expect_success();
    let database = sandbox.state().join("sailfish.db");
    let statement = "update source_sums set records = records + 1 where rowid = 1";
    let changed = std::process::Command::new("python3")
        .args([
            "-c",
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()",
        ])
        .arg(database)
        .arg(statement)
        .status();
    match changed {
        Ok(status) if status.success() => {}
        _ => return blackbox::could_not_run("a proof that does not agree", "there is no python3"),
    }
    fsck(&sandbox, "1").expect_failure(
        DAMAGE,
        &["every file is whole", "the proof of 1 of 1 I-file does not agree", "of which intact runs hold"],
    );
}

#[test]
fn fsck_says_why_it_cannot_look() {
    let sandbox = Sandbox::new();
    fsck(&sandbox, "1").expect_failure(CANNOT_LOOK, &["no job has run in"]);
    sandbox.write("in", lines());
    run(&sandbox, "first", &[]).expect_success();
    run(&sandbox, "second", &["--map-only"]).expect_success();
    run(&sandbox, "third", &["--keep-ifiles"]).expect_success();
    fsck(&sandbox, "1").expect_failure(CANNOT_LOOK, &["kept no I-files", "--keep-ifiles"]);
    fsck(&sandbox, "2").expect_failure(CANNOT_LOOK, &["had no shuffle"]);
    fsck(&sandbox, "4").expect_failure(CANNOT_LOOK, &["there is no job 4"]);
    sandbox.look(&["gc", "3"]).expect_success();
    fsck(&sandbox, "3").expect_failure(CANNOT_LOOK, &["have been removed"]);
    let server = ["fsck", "1", "--server", "http://127.0.0.1:1"];
    Running::start(sandbox.sailfish().args(server)).wait().expect_failure(CANNOT_LOOK, &["127.0.0.1:1"]);
}

const FLOW: &str = r#"
memory = "64M"
keep_ifiles = true

[[stage]]
name = "words"
input = "in"
mapper = "builtin:words"
reducer = "builtin:sum"

[[stage]]
name = "lines"
from = "words"
output = "out"
"#;

/// Stage files go with the flow, kept or not.
#[test]
fn fsck_of_flow_reads_only_kept_last_stage() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    sandbox.write("flow.toml", FLOW);
    start_here(&sandbox, "flow.toml").wait().expect_success();
    assert!(stage_files(&sandbox, 1).is_empty());
    let stage = ["job 1 is a stage of a flow that others read", "only a last stage keeps any"];
    fsck(&sandbox, "1").expect_failure(CANNOT_LOOK, &stage);
    let told = fsck(&sandbox, "2").expect_success().text();
    assert!(told.starts_with("job 2: "), "{told}");
    let path = run_files(&sandbox.disk())[0].clone();
    std::fs::remove_file(path).expect("a run is removed");
    fsck(&sandbox, "2").expect_failure(DAMAGE, &["the file is missing", "no intact copy"]);
}

/// Two nodes in racks of their own, so that each has what its own maps put out, and job 1 that kept its I-files.
fn cluster_with_kept_job(more: &[&str]) -> Cluster {
    let cluster = Cluster::builder().racks(&["left", "right"]).start();
    cluster.sandbox.write_text(6 << 20, 8);
    let args = ["--input", "in", "--mapper", "builtin:words", "--output", "pairs", "--keep-ifiles"];
    cluster.run_job(&[&args[..], more].concat()).expect_success();
    cluster
}

fn fsck_at(cluster: &Cluster, words: &[&str]) -> Finished {
    cluster.run(&[&["fsck"][..], words].concat())
}

/// The files of a run that lies on both nodes: its own, and the replica.
fn file_and_replica(cluster: &Cluster) -> [(u32, PathBuf); 2] {
    let (run, home, copy) = cluster.nodes_of_a_replicated_run();
    let name = format!("run-{run:06}.ifile");
    [home as u32, copy as u32].map(|node| {
        let files = run_files(&cluster.node_disk(node));
        let file = files.into_iter().find(|path| path.file_name().is_some_and(|own| *own == *name));
        (node, file.unwrap_or_else(|| panic!("node-{node} has no {name}")))
    })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn nodes_name_intact_copies_of_damaged_files() {
    let cluster = cluster_with_kept_job(&["--replication", "sync"]);
    fsck_at(&cluster, &["1"]).expect_success();
    let json = fsck_at(&cluster, &["1", "--json"]).expect_success().json();
    assert!(json["replicas"].as_u64() > Some(0) && json["blocks"].as_u64() > Some(2), "{json}");
    let [(own_node, own), (replica_node, replica)] = file_and_replica(&cluster);
    let whole = std::fs::read(&own).expect("a run");
    assert!(whole == std::fs::read(&replica).expect("a replica"), "a replica is another file");
    let (own_node, replica_node) = (format!("node-{own_node}"), format!("node-{replica_node}"));
    let damaged = flipped(&whole, FILE_HEADER_BYTES + 200);
    let whole_elsewhere = "1 damaged file; there is an intact copy of each run; the proof of";
    let copy = |path: &Path, node: &str| format!("an intact copy: {} on {node}", path.display());

    std::fs::write(&own, &damaged).expect("a run is replaced");
    let found = fsck_at(&cluster, &["1"]).expect_failure(
        DAMAGE,
        &[&format!("{} on {own_node}", text(&own)), "block 0 at byte 88", &copy(&replica, &replica_node)],
    );
    assert!(
        found.text().contains(whole_elsewhere) && !found.text().contains("does not agree"),
        "{}",
        found.story()
    );

    // Both: then it is lost, and the proof says how much.
    std::fs::remove_file(&replica).expect("a replica is removed");
    fsck_at(&cluster, &["1"]).expect_failure(
        DAMAGE,
        &[
            "the file is missing",
            "no intact copy",
            "2 damaged files; 1 run without an intact copy",
            "does not agree",
        ],
    );

    std::fs::write(&own, &whole).expect("a run is put back");
    std::fs::write(&replica, &whole[..whole.len() - 1]).expect("a replica is cut");
    let found = fsck_at(&cluster, &["1", "--json"]).expect_failure(DAMAGE, &[]).json();
    let file = &found["damaged"][0];
    assert_eq!(
        (&file["is_replica"], &file["node"]),
        (&true.into(), &replica_node.as_str().into()),
        "{found}"
    );
    assert_eq!(
        (&file["intact"]["path"], &file["intact"]["node"]),
        (&text(&own).into(), &own_node.as_str().into())
    );
    // As the documentation says how it is mended.
    std::fs::copy(&own, &replica).expect("a copy is mended");
    fsck_at(&cluster, &["1"]).expect_success();
}

#[test]
fn fsck_finds_kept_files_after_nodes_died() {
    let mut cluster = cluster_with_kept_job(&["--replication", "none"]);
    fsck_at(&cluster, &["1"]).expect_success();
    let mut near = cluster.sandbox.sailfish();
    near.args(["fsck", "1", "--state"]).arg(cluster.sandbox.path("server-state"));
    Running::start(&mut near).wait().expect_failure(CANNOT_LOOK, &["name their server with --server"]);
    fsck_at(&cluster, &["7"]).expect_failure(CANNOT_LOOK, &["there is no job 7"]);
    let plain = ["--input", "in", "--mapper", "builtin:words", "--output", "plain"];
    cluster.run_job(&plain).expect_success();
    fsck_at(&cluster, &["2"]).expect_failure(CANNOT_LOOK, &["kept no I-files", "--keep-ifiles"]);

    cluster.stop_node();
    fsck_at(&cluster, &["1"])
        .expect_failure(CANNOT_LOOK, &["the node node-0, which has kept I-files of job 1"]);
    cluster.restart_node(0);
    cluster.restart_server();
    fsck_at(&cluster, &["1"]).expect_success();
    // On the node that came again on the disk of the one that made it.
    let path = run_files(&cluster.node_disk(0)).into_iter().next().expect("a run");
    std::fs::remove_file(&path).expect("a run is removed");
    let expected = format!("{} on node-0", path.display());
    fsck_at(&cluster, &["1"]).expect_failure(DAMAGE, &[&expected, "the file is missing", "does not agree"]);
    cluster.run(&["gc", "1"]).expect_success();
    fsck_at(&cluster, &["1"]).expect_failure(CANNOT_LOOK, &["have been removed"]);
}
