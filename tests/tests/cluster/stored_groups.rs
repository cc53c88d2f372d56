//! Groups of users that may read and change stored and intermediate files of a cluster.

use crate::security::{Guarded, serve};
use blackbox::{Running, Sandbox, StoredQuestions};
use serde_json::json;
use std::fs::File;

const REFUSED: i32 = 2;

#[test]
fn groups_open_stored_files_until_left() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    let admin = guarded.admin_token();
    let done = |token: &str, args: &[&str]| guarded.by(token, args).expect_success().text();
    let refuse = |token: &str, args: &[&str], text: &str| {
        guarded.by(token, args).expect_failure(REFUSED, &[text]);
    };
    guarded.sandbox.write("logs/a.txt", "one two\ntwo\n");
    guarded.sandbox.write("new.txt", "three\n");
    done("ann.token", &["files", "put", "logs", "of-ann/logs"]);
    let cat = ["files", "cat", "of-ann/logs/a.txt"];
    refuse("bob.token", &cat, "belong to \"ann\"");

    refuse("ann.token", &["group", "create", "team"], "a caller of the role user may not do this");
    refuse("ann.token", &["files", "chmod", "of-ann", "--read", "team"], "there is no group \"team\"");
    done(&admin, &["group", "create", "team"]);
    refuse(&admin, &["group", "add", "team", "nobody"], "there is no user \"nobody\"");
    done(&admin, &["group", "add", "team", "bob"]);
    refuse("bob.token", &["files", "chmod", "of-ann", "--read", "team"], "may choose its groups");
    done("ann.token", &["files", "chmod", "of-ann", "--read", "team"]);
    assert!(done("bob.token", &["group", "list"]).contains("team"));
    assert!(!done("ann.token", &["group", "list"]).contains("team"));

    // By any command, and for jobs.
    assert_eq!(done("bob.token", &cat), "one two\ntwo\n");
    done("bob.token", &["files", "get", "of-ann", "copy"]);
    let stat = guarded.by("bob.token", &["files", "stat", "of-ann/logs/a.txt", "--json"]);
    let stat = stat.expect_success().json();
    assert_eq!((stat["user"].as_str(), stat["read_group"].as_str()), (Some("ann"), Some("team")), "{stat}");
    let job = |output: &str| {
        let output = guarded.sandbox.path(output).display().to_string();
        let words = ["run", "--input", "files:of-ann/logs", "--mapper", "builtin:words", "--output", &output];
        guarded.by("bob.token", &words)
    };
    job("out").expect_success();
    let put = ["files", "put", "new.txt", "of-ann/logs/new.txt"];
    refuse("bob.token", &put, "belongs to ann");
    done("ann.token", &["files", "chmod", "of-ann/logs", "--write", "team"]);
    done("bob.token", &put);
    refuse("ann.token", &["files", "chown", "of-ann/logs/new.txt", "ann"], "only administrators");
    done(&admin, &["files", "chown", "of-ann/logs/new.txt", "ann"]);
    assert_eq!(done("ann.token", &["files", "cat", "of-ann/logs/new.txt"]), "three\n");

    done(&admin, &["group", "remove", "team", "bob"]);
    refuse("bob.token", &cat, "belong to \"ann\"");
    refuse("bob.token", &["files", "get", "of-ann", "again"], "belong to \"ann\"");
    refuse("bob.token", &put, "belongs to ann");
    job("again").expect_failure(REFUSED, &["belong to \"ann\""]);
    done(&admin, &["group", "delete", "team"]);
    refuse(&admin, &["group", "create", "team"], "still have a deleted group");
}

#[test]
fn groups_open_intermediate_files() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    let admin = guarded.admin_token();
    let done = |token: &str, args: &[&str]| guarded.by(token, args).expect_success().text();
    let put = |token: &str, text: &str, more: &[&str]| {
        let from = guarded.sandbox.write("to-put", text);
        let mut command = guarded.command(token, &[&["intermediate", "put", "edges"], more].concat());
        Running::start_with_stdin(&mut command, File::open(from).expect("it was written")).wait()
    };
    let read = ["intermediate", "read", "edges", "--user", "ann"];
    let refuse =
        |args: &[&str]| guarded.by("bob.token", args).expect_failure(REFUSED, &["belong to another user"]);
    put("ann.token", "of ann\n", &[]).expect_success();
    done(&admin, &["group", "create", "team"]);
    done(&admin, &["group", "add", "team", "bob"]);
    refuse(&read);
    refuse(&["intermediate", "chmod", "edges", "--user", "ann", "--read", "team"]);
    done("ann.token", &["intermediate", "chmod", "edges", "--read", "team"]);
    assert_eq!(done("bob.token", &read), "of ann\n");
    assert!(done("bob.token", &["intermediate", "list"]).contains("edges"));
    let replace = ["--user", "ann", "--replace"];
    put("bob.token", "of bob\n", &replace).expect_failure(REFUSED, &["belong to another user"]);
    done("ann.token", &["intermediate", "chmod", "edges", "--read", "none", "--write", "team"]);
    put("bob.token", "of bob\n", &replace).expect_success();
    assert_eq!(done("ann.token", &read), "of bob\n");
    let stat = guarded.by("bob.token", &["intermediate", "stat", "edges", "--user", "ann", "--json"]);
    let stat = stat.expect_success().json();
    assert_eq!((&stat["user"], &stat["groups"]), (&"ann".into(), &json!({ "write": "team" })));
    done(&admin, &["group", "remove", "team", "bob"]);
    refuse(&read);
    refuse(&["intermediate", "rm", "edges", "--user", "ann"]);
    done(&admin, &["intermediate", "chown", "edges", "bob", "--user", "ann"]);
    assert_eq!(done("bob.token", &["intermediate", "read", "edges"]), "of bob\n");
}

/// All routes of a private server are tried in `controlport`.
#[test]
fn private_server_shows_own_and_shared_files() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("").display().to_string();
    let server = serve(&sandbox, "127.0.0.1:0", &["--private", "--allow-root", &root]);
    let mut guarded = Guarded::of(sandbox, server);
    guarded.add_node();
    let admin = guarded.admin_token();
    let done = |token: &str, args: &[&str]| guarded.by(token, args).expect_success().text();
    let refuse = |token: &str, args: &[&str], text: &str| {
        guarded.by(token, args).expect_failure(REFUSED, &[text]);
    };
    let is_listed = |token: &str| done(token, &["files", "ls"]).contains("of-ann");
    guarded.sandbox.write("a.txt", "one\n");
    done("ann.token", &["files", "mkdir", "of-ann"]);
    assert!(is_listed("ann.token") && is_listed(&admin) && !is_listed("bob.token"));
    refuse("bob.token", &["files", "rm", "of-ann"], "there is no file or directory of-ann");
    refuse("bob.token", &["files", "mkdir", "of-ann/mine"], "of-ann cannot be used");
    refuse("bob.token", &["state", "select * from jobs"], "this server is private");
    let output = guarded.sandbox.path("out").display().to_string();
    let input = guarded.sandbox.path("a.txt").display().to_string();
    done("ann.token", &["run", "--input", &input, "--mapper", "builtin:words", "--output", &output]);
    let jobs = |token: &str| guarded.by(token, &["jobs", "--json"]).expect_success().json();
    assert_eq!(jobs("bob.token"), serde_json::json!([]));
    let job = jobs("ann.token")[0]["job"].to_string();
    refuse("bob.token", &["show", &job], "there is no job");
    done(&admin, &["show", &job]);
    done(&admin, &["group", "create", "team"]);
    done(&admin, &["group", "add", "team", "bob"]);
    done("ann.token", &["files", "chmod", "of-ann", "--read", "team"]);
    assert!(is_listed("bob.token"));
    refuse("bob.token", &["files", "rm", "of-ann"], "belongs to ann");
}

#[test]
fn one_machine_has_no_groups() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a\n");
    sandbox.files().done(&["put", "a", "a"]);
    for args in [&["chmod", "a", "--read", "team"][..], &["chown", "a", "ann"]] {
        sandbox.files().run(args).expect_failure(REFUSED, &["have no owners and no groups"]);
    }
}
