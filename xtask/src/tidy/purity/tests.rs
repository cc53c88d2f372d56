use super::super::check_finds;
use super::{bounded_channels, pure_crates, serde_derives, sql};

/// Checks one file of a pure crate; `expected` has the line and the start of the message.
#[track_caller]
fn check_pure(text: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|each| format!("crates/ifile/src/a.rs:{each}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_finds(pure_crates, &[("crates/ifile/src/a.rs", text)], &expected);
}

#[test]
fn effects_in_a_pure_crate_are_found() {
    check_pure("use std::fs;", &["1: a pure crate uses std::fs"]);
    check_pure("use std::{io::Read, fs::File};", &["1: a pure crate uses std::fs"]);
    check_pure(
        "use std::fs::{self, File};",
        &["1: a pure crate uses std::fs", "1: a pure crate uses std::fs"],
    );
    check_pure("fn f() {\n    std::thread::spawn(g);\n}", &["2: a pure crate uses std::thread"]);
    check_pure("use std::time::{Duration, Instant};", &["1: a pure crate uses std::time::Instant"]);
    check_pure("use std::time::*;", &["1: a pure crate uses std::time::Instant"]);
    check_pure("fn f() { let t = time::SystemTime::now(); }", &[]);
    check_pure("fn f() { let t = SystemTime::now(); }", &["1: a pure crate uses SystemTime::now"]);
    check_pure("fn f(x: ::std::net::IpAddr) {}", &["1: a pure crate uses std::net"]);
    check_pure("fn f() { assert!(a, std::env::var(b)); }", &["1: a pure crate uses std::env"]);
    check_pure("fn f() {\n    println!(\"x\");\n}", &["2: a pure crate calls println!"]);
}

#[test]
fn tests_comments_and_strings_are_free() {
    check_pure("#[cfg(test)]\nmod tests { use std::fs; fn f() { println!(\"x\"); } }", &[]);
    check_pure("impl A {\n    #[cfg(test)]\n    fn f() { std::fs::read(p); }\n}", &[]);
    check_pure("// std::fs\n/// std::fs\nconst A: &str = \"std::fs\";", &[]);
    check_pure("use std::io::Read;\nuse std::time::Duration;\nuse std::collections::BTreeMap;", &[]);
    check_finds(pure_crates, &[("crates/ifile/tests/a.rs", "use std::fs;")], &[]);
    check_finds(pure_crates, &[("crates/node/src/a.rs", "use std::fs;")], &[]);
}

#[track_caller]
fn check_channels(text: &str, expected: &[&str]) {
    check_finds(bounded_channels, &[("a.rs", text)], expected);
}

#[test]
fn channels_without_a_bound_are_found() {
    check_channels(
        "use std::sync::mpsc;\nfn f() { mpsc::channel::<u8>(); }",
        &["a.rs:2: mpsc::channel has no bound"],
    );
    check_channels("use std::sync::mpsc::channel;", &["a.rs:1: std::sync::mpsc::channel has no bound"]);
    check_channels(
        "fn f() { crossbeam_channel::unbounded(); }",
        &["a.rs:1: crossbeam_channel::unbounded has"],
    );
    check_channels(
        "use tokio::sync::mpsc::unbounded_channel;",
        &["a.rs:1: tokio::sync::mpsc::unbounded_channel"],
    );
}

#[test]
fn channels_with_a_bound_are_free() {
    check_channels("use std::sync::mpsc::sync_channel;\nuse crossbeam_channel::bounded;", &[]);
    check_channels("use tokio::sync::mpsc;\nfn f() { mpsc::channel(4); }", &[]);
}

#[test]
fn sql_outside_the_metastore_is_found() {
    let text = "fn f() {\n    run(\"SELECT id FROM jobs\");\n}";
    check_finds(
        sql,
        &[("crates/server/src/a.rs", text)],
        &["crates/server/src/a.rs:2: a literal that looks like SQL"],
    );
    check_finds(sql, &[("crates/metastore/src/a.rs", text), ("crates/server/tests/a.rs", text)], &[]);
    let raw = "fn f() { run(format!(r#\"\n  insert into jobs values ({x})\"#)); }";
    check_finds(sql, &[("crates/cli/src/a.rs", raw)], &["crates/cli/src/a.rs:1: a literal"]);
}

#[test]
fn prose_that_only_opens_like_sql_is_free() {
    let text =
        "/// select x from y\nconst A: &str = \"select one of these\";\nconst B: &str = \"update the file\";";
    check_finds(sql, &[("crates/cli/src/a.rs", text)], &[]);
}

#[test]
fn serde_derives_outside_their_crates_are_found() {
    let text = "#[derive(Clone, serde::Serialize)]\nstruct A;\n#[derive(Debug, Deserialize)]\nenum B {}";
    let found =
        ["crates/node/src/a.rs:1: derives serde::Serialize", "crates/node/src/a.rs:3: derives Deserialize"];
    check_finds(serde_derives, &[("crates/node/src/a.rs", text)], &found);
    check_finds(serde_derives, &[("crates/api/src/a.rs", text), ("crates/ids/src/a.rs", text)], &[]);
    let conditional = "#[cfg_attr(feature = \"x\", derive(Serialize))]\nstruct A;";
    check_finds(
        serde_derives,
        &[("crates/node/src/a.rs", conditional)],
        &["crates/node/src/a.rs:1: derives"],
    );
    check_finds(serde_derives, &[("crates/node/src/a.rs", "#[derive(Clone)]\nstruct A;")], &[]);
}
