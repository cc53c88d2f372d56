//! States and kept I-files of older builds: later ones open and read them.

use blackbox::{Finished, Sandbox, package_path};
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The directory in which the build of a commit ran; its name stands in the rows.
fn made_in(commit: &str) -> String {
    format!("/tmp/sailfish-kept-by-commit-{commit}-in-a-directory-of-a-long-name")
}

fn unpacked(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).expect("our own file");
    if path.extension().is_none_or(|extension| extension != "gz") {
        return bytes;
    }
    let mut text = Vec::new();
    GzDecoder::new(&*bytes).read_to_end(&mut text).expect("our own file is whole");
    text
}

/// The rows hold lengths of texts, so another name of the directory has the same length.
fn moved(mut database: Vec<u8>, made_in: &str, sandbox: &Sandbox) -> Vec<u8> {
    let place = sandbox.path("").to_string_lossy().trim_end_matches('/').to_string();
    let padding = made_in.len().checked_sub(place.len()).expect("the older directory has a long name");
    let (parent, name) = place.rsplit_once('/').expect("a sandbox has an absolute path");
    let same = format!("{parent}{}/{name}", "/".repeat(padding));
    let mut at = 0;
    while let Some(found) =
        database[at..].windows(made_in.len()).position(|window| window == made_in.as_bytes())
    {
        database[at + found..][..made_in.len()].copy_from_slice(same.as_bytes());
        at += found + made_in.len();
    }
    assert!(at > 0, "the rows name {made_in}");
    database
}

fn copy(from: &Path, to: &Path, made_in: &str, sandbox: &Sandbox) {
    fs::create_dir_all(to).expect("a sandbox takes a directory");
    for entry in fs::read_dir(from).expect("our own directory") {
        let path = entry.expect("our own directory").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let target = to.join(name.trim_end_matches(".gz"));
        match path.is_dir() {
            true => copy(&path, &target, made_in, sandbox),
            false if name.starts_with("sailfish.db") => {
                fs::write(target, moved(unpacked(&path), made_in, sandbox)).expect("a sandbox takes a file");
            }
            false => fs::write(target, unpacked(&path)).expect("a sandbox takes a file"),
        }
    }
}

#[test]
fn state_of_commit_73f7aaa_is_read() {
    check_state_of("73f7aaa");
}

#[test]
fn state_of_commit_468b926_is_read() {
    check_state_of("468b926");
}

fn check_state_of(commit: &str) {
    let sandbox = Sandbox::new();
    copy(&package_path(&format!("test_data/kept-{commit}")), &sandbox.path(""), &made_in(commit), &sandbox);
    let look = |args: &[&str]| -> Finished { sandbox.look(args).expect_success() };
    let jobs = look(&["jobs"]).text();
    assert!(jobs.contains("kept") && jobs.contains("succeeded"), "{jobs}");
    assert!(look(&["show", "1"]).text().contains("3 partitions by the whole key"));
    assert!(look(&["report", "2", "--json"]).text().contains("\"agrees\": true"));
    assert!(look(&["fsck", "1"]).text().contains("every file is whole"));
    sandbox.sailfish_with(&["verify", "out"]).expect_success();
    look(&["rerun-reduce", "1", "--output", "again"]);
    look(&["rerun-reduce", "2", "--output", "again2", "--reducer", "builtin:count"]);
    for (older, again) in [("out", "again"), ("out2", "again2")] {
        assert_eq!(sandbox.part_names(&sandbox.path(again)), sandbox.part_names(&sandbox.path(older)));
        let (older, again) = (sandbox.path(older), sandbox.path(again));
        assert!(sandbox.concatenated(&older) == sandbox.concatenated(&again), "{}", again.display());
    }
    look(&["gc", "--all"]);
    assert!(fs::read_dir(sandbox.disk()).expect("a disk").next().is_none());
}
