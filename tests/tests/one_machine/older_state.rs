//! A state and kept I-files of an older build: later ones open and read them.

use blackbox::{Finished, Sandbox, package_path};
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The directory in which the older build ran; its name stands in the rows.
const MADE_IN: &str = "/tmp/sailfish-kept-by-commit-73f7aaa-in-a-directory-of-a-long-name";

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
fn moved(mut database: Vec<u8>, sandbox: &Sandbox) -> Vec<u8> {
    let place = sandbox.path("").to_string_lossy().trim_end_matches('/').to_string();
    let padding = MADE_IN.len().checked_sub(place.len()).expect("the older directory has a long name");
    let (parent, name) = place.rsplit_once('/').expect("a sandbox has an absolute path");
    let same = format!("{parent}{}/{name}", "/".repeat(padding));
    let mut at = 0;
    while let Some(found) =
        database[at..].windows(MADE_IN.len()).position(|window| window == MADE_IN.as_bytes())
    {
        database[at + found..][..MADE_IN.len()].copy_from_slice(same.as_bytes());
        at += found + MADE_IN.len();
    }
    assert!(at > 0, "the rows name {MADE_IN}");
    database
}

fn copy(from: &Path, to: &Path, sandbox: &Sandbox) {
    fs::create_dir_all(to).expect("a sandbox takes a directory");
    for entry in fs::read_dir(from).expect("our own directory") {
        let path = entry.expect("our own directory").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let target = to.join(name.trim_end_matches(".gz"));
        match path.is_dir() {
            true => copy(&path, &target, sandbox),
            false if name.starts_with("sailfish.db") => {
                fs::write(target, moved(unpacked(&path), sandbox)).expect("a sandbox takes a file");
            }
            false => fs::write(target, unpacked(&path)).expect("a sandbox takes a file"),
        }
    }
}

#[test]
fn state_of_commit_73f7aaa_is_read() {
    let sandbox = Sandbox::new();
    copy(&package_path("test_data/kept-73f7aaa"), &sandbox.path(""), &sandbox);
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
