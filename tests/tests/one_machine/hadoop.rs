//! Hadoop's own TeraSort suite against ours, where a JVM and Maven are there.

use blackbox::{Finished, Running, Sandbox, could_not_run, package_path};
use std::path::PathBuf;
use std::process::Command;

const FAILED: i32 = 1;
/// Title of the test in the list of tests that could not run.
const WHAT: &str = "Hadoop's TeraGen, TeraSort and TeraValidate against ours";
const ROWS: &str = "30000";

fn peers() -> PathBuf {
    package_path("../bench/peers")
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("-version").output().is_ok_and(|output| output.status.success())
}

/// A script of bench/peers, with the whole environment: Maven and Java may need any of it.
fn peer(script: &str, args: &[&str]) -> Finished {
    let mut command = Command::new(peers().join(script));
    Running::start(command.args(args)).wait()
}

/// Installs Hadoop where it is not there yet; false, and said so, where that cannot be.
fn hadoop_is_there() -> bool {
    let missing: Vec<&str> = ["java", "mvn"].into_iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        could_not_run(WHAT, &format!("there is no {}", missing.join(" and no ")));
        return false;
    }
    let setup = peer("setup-hadoop.sh", &[]);
    if setup.code() != Some(0) {
        let reason = setup.stderr.lines().last().unwrap_or("for no reason given").to_string();
        could_not_run(WHAT, &format!("Maven does not bring it: {reason}"));
        return false;
    }
    true
}

/// A run of ours in the sandbox; its standard output as JSON.
fn ours(sandbox: &Sandbox, args: &[&str]) -> serde_json::Value {
    let mut command = sandbox.sailfish();
    command.arg("tera").args(args).args(["--json", "--memory", "64M", "--state"]).arg(sandbox.state());
    Running::start(&mut command).wait().expect_success().json()
}

/// The checksum that TeraValidate prints.
fn checksum(finished: &Finished) -> String {
    let text = finished.text();
    let line = text.lines().find_map(|line| line.strip_prefix("checksum"));
    line.unwrap_or_else(|| panic!("no checksum:\n{}", finished.story())).trim().to_string()
}

#[test]
fn hadoop_and_sailfish_accept_each_others_rows() {
    if !hadoop_is_there() {
        return;
    }
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(name).to_str().expect("a sandbox has a plain path").to_string();
    let (made, sorted) = (path("ours"), path("ours-sorted"));
    let make = ["gen", "--layout", "legacy", "--rows", ROWS, "--no-sync", "--output", &made];
    ours(&sandbox, &make);
    ours(&sandbox, &["sort", "--input", &made, "--no-sync", "--output", &sorted]);
    let sum = ours(&sandbox, &["validate", &sorted]);
    let accepted = peer("hadoop-tera.sh", &["validate", &sorted]).expect_success();
    assert_eq!(sum["checksum"], checksum(&accepted), "{}", accepted.story());
    peer("hadoop-tera.sh", &["validate", &made]).expect_failure(FAILED, &["error"]);

    let (made_there, sorted_there) = (path("theirs"), path("theirs-sorted"));
    peer("hadoop-tera.sh", &["gen", ROWS, &made_there]).expect_success();
    assert!(concatenated(&made_there) == concatenated(&made), "TeraGen makes other rows");
    peer("hadoop-tera.sh", &["sort", &made_there, &sorted_there]).expect_success();
    let accepted = ours(&sandbox, &["validate", &sorted_there, "--layout", "legacy"]);
    assert_eq!((&accepted["ordered"], &accepted["records"]), (&true.into(), &30_000.into()));
    assert_eq!(accepted["checksum"], sum["checksum"]);
    assert!(concatenated(&sorted_there) == concatenated(&sorted), "TeraSort sorts otherwise");
}

/// The parts of an output of either side, one after another.
fn concatenated(dir: &str) -> Vec<u8> {
    let entries = std::fs::read_dir(dir).expect("an output is a directory");
    let mut parts: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    let is_part =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-"));
    parts.retain(is_part);
    parts.sort();
    parts.iter().flat_map(|part| std::fs::read(part).expect("a part can be read")).collect()
}
