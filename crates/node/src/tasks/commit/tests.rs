//! Tests of the steps of a commit, each also repeated by a later attempt.

use super::{Names, name_part, publish, publish_directory, remove_strays};
use crate::attempt::JobRun;
use api::task::Part;
use api::{JobSpec, Layout};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn spec(output: &Path, overwrite: bool) -> JobSpec {
    JobSpec {
        output: output.to_path_buf(),
        overwrite,
        memory_bytes: 64 << 20,
        layout: Layout {
            ifile_count: 1,
            chunk_bytes: 16 << 20,
            frame_bytes: 64 << 10,
            block_bytes: 64 << 10,
            record_bytes_max: 16 << 20,
            combine_window_bytes: 0,
            split_bytes: 1 << 20,
            chunk_share_bytes: 40 << 20,
            sort_share_bytes: 16 << 20,
            io_share_bytes: 8 << 20,
        },
        ..JobSpec::named("commit")
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn parts_get_their_names_and_strays_go() {
    let staging = tempfile::tempdir().unwrap();
    let part = Part {
        name: "part-00000".to_string(),
        attempt_name: ".part-00000.attempt-1".to_string(),
        ..Part::default()
    };
    fs::write(staging.path().join(&part.attempt_name), "won").unwrap();
    fs::write(staging.path().join(".part-00000.attempt-0"), "lost").unwrap();
    for _attempt in 0..2 {
        name_part(staging.path(), &part).unwrap();
        remove_strays(staging.path(), std::slice::from_ref(&part)).unwrap();
        assert_eq!(names(staging.path()), ["part-00000"]);
    }
    assert_eq!(fs::read(staging.path().join("part-00000")).unwrap(), b"won");
}

#[test]
fn missing_part_is_an_error() {
    let staging = tempfile::tempdir().unwrap();
    let part = Part { name: "part-00000".to_string(), attempt_name: ".gone".to_string(), ..Part::default() };
    assert!(name_part(staging.path(), &part).unwrap_err().message.contains(".gone"));
}

/// Writes an output that has the file names and the report of a job.
fn write_output(dir: &Path, text: &str) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("part-00000"), text).unwrap();
    fs::write(dir.join("_report.json"), "{\"parts\": [{\"name\": \"part-00000\"}], \"seconds\": 0.5}")
        .unwrap();
    fs::write(dir.join("_SUCCESS"), "").unwrap();
}

#[test]
fn output_is_renamed_exchanged_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (staging, output) = (dir.path().join(".out.sailfish-1"), dir.path().join("out"));
    let names = |overwrite: bool| {
        let spec = spec(&output, overwrite);
        (
            Names::of(&JobRun { staging: staging.clone(), ..JobRun::new(Arc::new(spec.clone())) }).unwrap(),
            spec,
        )
    };
    let publish = |overwrite: bool| {
        let (names, spec) = names(overwrite);
        publish(&spec, &names, b"{}")
    };
    let published = || fs::read_to_string(output.join("part-00000")).unwrap();

    write_output(&staging, "first");
    assert!(!publish(false).unwrap());
    assert_eq!((published().as_str(), staging.exists()), ("first", false));

    write_output(&staging, "second");
    let refused = publish(false).unwrap_err();
    assert!(refused.message.contains("appeared while the job ran"), "{}", refused.message);
    assert_eq!((published().as_str(), staging.exists()), ("first", true));

    // A file of another owner is kept, and so are the files beside it.
    fs::write(output.join("notes"), "mine").unwrap();
    let refused = publish(true).unwrap_err();
    assert!(refused.message.contains("holds \"notes\""), "{}", refused.message);
    assert_eq!(
        (published().as_str(), fs::read_to_string(staging.join("part-00000")).unwrap().as_str()),
        ("first", "second")
    );
    fs::remove_file(output.join("notes")).unwrap();

    assert!(publish(true).unwrap());
    assert_eq!(published(), "second");
    assert_eq!(fs::read_to_string(staging.join("part-00000")).unwrap(), "first");
}

/// Runs a second attempt: the node of the first died after publishing the output, before it reported this.
#[test]
fn attempt_after_the_publishing_one_does_nothing() {
    let check = |overwrite: bool| {
        let dir = tempfile::tempdir().unwrap();
        let (staging, output) = (dir.path().join(".out.sailfish-2"), dir.path().join("out"));
        let run = JobRun { staging: staging.clone(), ..JobRun::new(Arc::new(spec(&output, overwrite))) };
        let part = Part {
            name: "part-00000".to_string(),
            attempt_name: ".part-00000.attempt-0".to_string(),
            ..Part::default()
        };
        // The same job number may have had the same parts in another run, but at another time.
        let report = |seconds: f64| {
            format!("{{\"job\": 1, \"parts\": [{{\"name\": \"part-00000\", \"bytes\": 5}}], \"seconds\": {seconds}}}").into_bytes()
        };
        let write_older = |path: &Path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("part-00000"), "older").unwrap();
            fs::write(path.join("_report.json"), report(0.25)).unwrap();
        };
        if overwrite {
            write_older(&output);
        }
        fs::create_dir(&staging).unwrap();
        fs::write(staging.join(&part.attempt_name), "newer").unwrap();
        let commit = || {
            publish_directory(
                &run,
                &AtomicBool::new(false),
                std::slice::from_ref(&part),
                &report(0.3),
                |_| Ok(None),
            )
        };
        assert_eq!(commit().unwrap().replaced, overwrite);
        for older_left in [false, true] {
            if overwrite && older_left {
                write_older(&staging);
            }
            assert_eq!(commit().unwrap().replaced, overwrite && older_left);
            assert_eq!(fs::read_to_string(output.join("part-00000")).unwrap(), "newer");
            assert!(!staging.exists());
        }
    };
    check(false);
    check(true);
}
