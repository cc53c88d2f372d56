//! Looking back and trying again: timelines, reducing kept I-files again, keeping and collecting them.

use blackbox::{Fifo, Finished, Questions, Running, Sandbox, package_path, sorted_lines};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const FAILED: i32 = 1;
const REFUSED: i32 = 2;
const LINE_COUNT: u32 = 30_000;

/// Lines `key TAB value`, about forty for each key.
fn lines() -> String {
    (0..LINE_COUNT)
        .map(|line| format!("key{:04}\t{line}\n", line.wrapping_mul(2_654_435_761) % 700))
        .collect()
}

/// A sandbox with an input, and job 1 that keeps its I-files.
fn with_kept_job(args: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    let base = ["--input", "in", "--memory", "64M", "--slots", "2", "--no-sync"];
    sandbox.run_job(&[&base[..], args].concat()).expect_success();
    sandbox
}

/// The directories of jobs on the disk of a sandbox.
fn job_dirs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(sandbox.disk()).unwrap().map(|entry| entry.unwrap().path()).collect();
    dirs.sort();
    dirs
}

/// Every file below the disk of a sandbox, with its bytes.
fn files_on_disk(sandbox: &Sandbox) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in job_dirs(sandbox) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn rerun(sandbox: &Sandbox, job: &str, output: &str, args: &[&str]) -> Finished {
    sandbox.look(&[&["rerun-reduce", job, "--output", output][..], args].concat())
}

/// A program that says where it is, waits for a line, and copies its input.
fn waiting_cat(here: &Fifo, gate: &Fifo) -> String {
    format!("sh -c 'echo here > {}; read line < {}; exec cat'", here.text(), gate.text())
}

#[test]
fn timeline_shows_the_work_of_each_slot() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a", lines());
    sandbox.write("in/b", lines());
    let mapper = "sh -c 'test $SAILFISH_ATTEMPT = 0 && test $SAILFISH_TASK = 0 && exit 3; exec cat'";
    sandbox
        .run_job(&["--input", "in", "--mapper", mapper, "--slots", "2", "--name", "slow"])
        .expect_success();
    let text = sandbox.look(&["timeline", "1", "--width", "70"]).expect_success().text();
    let slots: Vec<&str> = text.lines().filter(|line| line.starts_with("slot ")).collect();
    assert_eq!(slots.len(), 2, "{text}");
    assert!(slots.iter().all(|line| line.len() == 70), "{text}");
    let drawn: String = slots.concat().replace("slot", "");
    assert!(drawn.contains('-') && drawn.contains('#'), "{text}");
    for expected in ["Job 1: slow, succeeded", "seconds", "stages", "^map", "Marks", "merge and reduce"] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colours without a terminal");
    let json = sandbox.look(&["timeline", "1", "--json"]).expect_success().json();
    let attempts = json["attempts"].as_array().unwrap();
    let lost: Vec<_> = attempts.iter().filter(|attempt| attempt["state"] == "failed").collect();
    assert_eq!((lost.len(), &lost[0]["stage"], &lost[0]["attempt"]), (1, &"map".into(), &0.into()));
    assert_eq!(lost[0]["spans"][0]["mark"], "lost");
    let reduce = attempts.iter().find(|attempt| attempt["stage"] == "reduce").unwrap();
    let marks: Vec<_> = reduce["spans"].as_array().unwrap().iter().map(|span| &span["mark"]).collect();
    assert_eq!(marks, ["merge", "reduce"]);
    let sum: f64 =
        json["slot_seconds"].as_object().unwrap().values().map(|each| each.as_f64().unwrap()).sum();
    let all = 2.0 * json["wall_seconds"].as_f64().unwrap();
    assert!((sum - all).abs() < 0.01 * all + 0.001, "{sum} of {all} slot seconds");
    sandbox.look(&["timeline", "9"]).expect_failure(REFUSED, &["no job 9"]);
    sandbox.look(&["timeline", "1", "--width", "3"]).expect_failure(REFUSED, &["--width"]);
}

/// The database of the version before timelines: it opens, and shows what it knows.
#[test]
fn a_state_of_an_earlier_version_is_shown() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.state()).unwrap();
    let old = package_path("../crates/metastore/test_data/v2/sailfish.db");
    fs::copy(old, sandbox.state().join("sailfish.db")).unwrap();
    let text = sandbox.look(&["timeline", "1", "--width", "60"]).expect_success().text();
    assert!(text.contains("Job 1: counting") && text.contains("slot 1"), "{text}");
    let text = sandbox.look(&["timeline", "3"]).expect_success().text();
    assert!(text.lines().any(|line| line.starts_with("slot") && line[6..].contains('-')), "{text}");
    // Its files were on another machine.
    assert!(sandbox.look(&["jobs"]).expect_success().text().contains("gone"));
    sandbox.look(&["show", "1"]).expect_success();
    let refused = rerun(&sandbox, "1", "again", &["--disk", "disk"]);
    refused.expect_failure(REFUSED, &["run-000000.ifile", "job 1 kept"]);
    sandbox.write("in", "a\n");
    sandbox.run_job(&["--input", "in"]).expect_success();
}

#[track_caller]
fn check_same_as_a_whole_run(order: &[&str]) {
    let kept = with_kept_job(&[order, &["--keep-ifiles"]].concat());
    let before = files_on_disk(&kept);
    assert!(before.keys().any(|path| path.extension().is_some_and(|extension| extension == "ifile")));
    let awk = "awk -F '\\t' '{ print NR \" \" $2 \" \" $1 }'";
    for (index, reducer) in
        [None, Some(awk), Some("builtin:count"), Some("builtin:list")].into_iter().enumerate()
    {
        let given: Vec<&str> = reducer.iter().flat_map(|reducer| ["--reducer", reducer]).collect();
        let (whole, again) = (format!("whole{index}"), format!("again{index}"));
        let base = ["--input", "in", "--memory", "64M", "--slots", "2", "--output", &whole];
        kept.run_job(&[&base[..], order, &given].concat()).expect_success();
        let finished = rerun(&kept, "1", &again, &given).expect_success();
        assert!(finished.stderr.contains("the I-files that job 1 kept"), "{}", finished.story());
        let (whole, again) = (kept.path(&whole), kept.path(&again));
        assert!(kept.concatenated(&whole) == kept.concatenated(&again), "{reducer:?} gives another output");
        let report = kept.report(&again);
        assert_eq!((&report["proof"]["agrees"], &report["reduce_again"]), (&true.into(), &1.into()));
        assert_eq!(report["proof"]["records"], LINE_COUNT);
        kept.sailfish_with(&["verify", again.to_str().unwrap()]).expect_success();
    }
    assert!(files_on_disk(&kept) == before, "the kept files changed");
    assert_eq!(kept.stages().of_job(3).stage_names(), ["adopt", "merge", "reduce", "commit"]);
    let text = kept.look(&["report", "3"]).expect_success().text();
    assert!(text.contains("the I-files that job 1 kept"), "{text}");
    kept.look(&["timeline", "3"]).expect_success();
    kept.look(&["show", "3"]).expect_success();
}

#[test]
fn rerun_gives_the_output_under_hash() {
    check_same_as_a_whole_run(&[]);
}

#[test]
fn rerun_gives_the_output_in_total_order() {
    check_same_as_a_whole_run(&["--total-order"]);
}

/// Large records and little memory: the new job merges runs beforehand, into files of its own.
#[test]
fn rerun_with_less_memory_keeps_the_files() {
    let sandbox = Sandbox::new();
    let value = "v".repeat(4_000_000);
    let text: String =
        (0..11).map(|record| format!("key{:02}\t{record}{value}\n", 7 * record % 11)).collect();
    sandbox.write("in", &text);
    let args = ["--input", "in", "--memory", "96M", "--slots", "2", "--keep-ifiles", "--no-sync"];
    sandbox.run_job(&args).expect_success();
    let before = files_on_disk(&sandbox);
    assert_eq!(sandbox.report(&sandbox.out())["shuffle"]["merged_runs"], 0, "the first job has the memory");
    rerun(&sandbox, "1", "again", &["--memory", "64M", "--no-sync"]).expect_success();
    let again = sandbox.path("again");
    let merged = sandbox.report(&again)["shuffle"]["merged_runs"].as_u64();
    assert!(merged > Some(0), "nothing was merged beforehand");
    assert!(sorted_lines(&sandbox.concatenated(&again)) == sorted_lines(text.as_bytes()), "records differ");
    assert!(files_on_disk(&sandbox) == before, "the kept files changed");
    assert_eq!(job_dirs(&sandbox).len(), 1, "something of the new job is left");
}

#[test]
fn failed_reducer_can_be_mended_and_rerun() {
    let sandbox = Sandbox::new();
    sandbox.write("in", lines());
    sandbox.write("words", "hello");
    sandbox.script("reduce.sh", "#!/bin/sh\necho broken >&2\nexit 4\n");
    let args = ["--input", "in", "--reducer", "./reduce.sh", "--file", "reduce.sh", "--file", "words"];
    let options = ["--keep-ifiles", "--env", "A=1", "--env", "B=2"];
    sandbox.run_job(&[&args[..], &options].concat()).expect_failure(4, &["broken"]);
    // The file of the job is read as it is now; its environment is that of the job but for what is new.
    sandbox.script("reduce.sh", "#!/bin/sh\ncat > /dev/null\necho $A $B $(cat words)\n");
    rerun(&sandbox, "1", "mended", &["--reducer", "./reduce.sh", "--env", "A=3"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("mended")), ["3 2 hello"]);
    // A job that reduced again stands for the one that has the files; outputs are guarded as ever.
    rerun(&sandbox, "2", "sorted", &["--name", "third"]).expect_success();
    let sorted = sandbox.concatenated(&sandbox.path("sorted"));
    assert!(sorted_lines(&sorted) == sorted_lines(lines().as_bytes()), "records differ");
    assert_eq!(sandbox.report(&sandbox.path("sorted"))["reduce_again"], 1);
    rerun(&sandbox, "1", "sorted", &[]).expect_failure(REFUSED, &["exists already"]);
    rerun(&sandbox, "1", "sorted", &["--overwrite", "--reducer", "builtin:count"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("sorted")).len(), 700);
}

#[test]
fn partial_results_are_not_taken_for_values() {
    let sandbox = with_kept_job(&["--reducer", "builtin:sum", "--keep-ifiles"]);
    let whole = sandbox.concatenated(&sandbox.out());
    rerun(&sandbox, "1", "same", &["--reducer", "builtin:sum"]).expect_success();
    assert!(sandbox.concatenated(&sandbox.path("same")) == whole, "the sums differ");
    for wrong in ["builtin:count", "builtin:max", "builtin:list"] {
        let texts = ["job 1 combined", "builtin:sum", "partial results", wrong];
        rerun(&sandbox, "1", "wrong", &["--reducer", wrong]).expect_failure(REFUSED, &texts);
    }
    let keys = rerun(&sandbox, "1", "keys", &["--reducer", "builtin:unique"]).expect_success();
    assert!(!keys.stderr.contains("partial"), "{}", keys.story());
    assert_eq!(sandbox.output_lines(&sandbox.path("keys")).len(), 700);
    for (output, args) in [("pairs", &[][..]), ("cat", &["--reducer", "cat"])] {
        let finished = rerun(&sandbox, "1", output, args).expect_success();
        assert!(finished.stderr.contains("its partial results"), "{}", finished.story());
    }
}

#[test]
fn impossible_reruns_are_refused() {
    let sandbox = with_kept_job(&[]);
    rerun(&sandbox, "1", "again", &[]).expect_failure(REFUSED, &["job 1 kept no I-files", "--keep-ifiles"]);
    rerun(&sandbox, "7", "again", &[]).expect_failure(REFUSED, &["no job 7"]);
    sandbox.run_job(&["--input", "in", "--output", "mapped", "--map-only"]).expect_success();
    rerun(&sandbox, "2", "again", &[]).expect_failure(REFUSED, &["--map-only"]);
    let fails = ["--input", "in", "--output", "none", "--keep-ifiles", "--mapper", "sh -c 'exit 6'"];
    sandbox.run_job(&fails).expect_failure(6, &[]);
    rerun(&sandbox, "3", "again", &[]).expect_failure(REFUSED, &["before all its maps were done"]);
    let (mut here, mut gate) = (sandbox.fifo("here"), sandbox.fifo("gate"));
    let mapper = waiting_cat(&here, &gate);
    let running =
        sandbox.start_job(&["--input", "in", "--keep-ifiles", "--output", "late", "--mapper", &mapper]);
    assert_eq!(here.read_line(), "here");
    rerun(&sandbox, "4", "again", &[]).expect_failure(REFUSED, &["job 4 is running"]);
    sandbox.look(&["gc", "4"]).expect_failure(REFUSED, &["job 4 is running"]);
    sandbox.look(&["timeline", "4"]).expect_success();
    gate.write_line("go");
    running.wait().expect_success();
    // What the checks of the new options say.
    let reducer = ["--reducer", "no-such-program"];
    rerun(&sandbox, "4", "again", &reducer).expect_failure(REFUSED, &["--reducer", "no-such-program"]);
    rerun(&sandbox, "4", "again", &["--memory", "1M"]).expect_failure(REFUSED, &["64M"]);
    rerun(&sandbox, "4", "again", &["--slots", "0"]).expect_failure(REFUSED, &["--slots"]);
    rerun(&sandbox, "4", "again", &["--env", "A"]).expect_failure(REFUSED, &["NAME=VALUE"]);
    assert!(!sandbox.path("again").exists());
}

#[test]
fn damaged_or_missing_kept_files_are_named() {
    let sandbox = with_kept_job(&["--keep-ifiles"]);
    let kept = files_on_disk(&sandbox);
    let (path, bytes) = kept.iter().next().expect("a run is kept");
    let check = |changed: Option<Vec<u8>>, code: i32, texts: &[&str]| {
        match changed {
            Some(changed) => fs::write(path, changed).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        rerun(&sandbox, "1", "again", &[]).expect_failure(code, &[&[name][..], texts].concat());
        assert!(!sandbox.path("again").exists());
        fs::write(path, bytes).unwrap();
    };
    let flipped = |at: usize| {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        Some(flipped)
    };
    check(None, REFUSED, &["which job 1 kept"]);
    // The footer, the source table before it, a block.
    for at in [bytes.len() - 100, bytes.len() - 130, 200] {
        check(flipped(at), FAILED, &["damaged", "at byte"]);
    }
    check(Some(bytes[..bytes.len() / 2].to_vec()), FAILED, &["damaged"]);
    rerun(&sandbox, "1", "again", &[]).expect_success();
    assert_eq!(job_dirs(&sandbox).len(), 1);
}

#[test]
fn kept_files_go_when_their_time_is_over() {
    let sandbox = with_kept_job(&["--keep-for", "0s"]);
    assert_eq!(job_dirs(&sandbox).len(), 1);
    let state = || sandbox.jobs().of_job(1).ifile_states();
    assert_eq!(state(), ["kept"]);
    // Looking removes nothing; the next job does.
    let text = sandbox.look(&["gc", "--dry-run"]).expect_success().text();
    assert!(text.contains("job 1 (out)") && text.contains("would be removed"), "{text}");
    assert_eq!((job_dirs(&sandbox).len(), state()), (1, vec!["kept".to_string()]));
    sandbox.run_job(&["--input", "in", "--output", "two", "--keep-for", "1d12h"]).expect_success();
    assert_eq!(state(), ["removed"]);
    assert_eq!(job_dirs(&sandbox).len(), 1);
    rerun(&sandbox, "1", "again", &[]).expect_failure(REFUSED, &["have been removed"]);
    let text = sandbox.look(&["jobs"]).expect_success().text();
    assert!(text.contains("I-files") && text.contains(" until "), "{text}");
    let text = sandbox.look(&["show", "2"]).expect_success().text();
    assert!(text.contains(" until ") && text.contains("-job2"), "{text}");
    assert!(sandbox.look(&["show", "1"]).expect_success().text().contains("have been removed"));
    let json = sandbox.look(&["jobs", "--json"]).expect_success().json();
    assert_eq!((&json[0]["ifiles"], &json[1]["ifiles"]), (&"kept".into(), &"removed".into()));
    assert!(json[0]["ifile_bytes"].as_u64().unwrap() > 0 && json[0]["keep_until_ns"].is_u64());
    // Its time is not over.
    assert_eq!(sandbox.look(&["gc"]).expect_success().text(), "nothing removed\n");
    assert_eq!(sandbox.look(&["gc", "--older-than", "1h"]).expect_success().text(), "nothing removed\n");
    let text = sandbox.look(&["gc", "--older-than", "0s"]).expect_success().text();
    assert!(text.contains("job 2 (two)") && text.contains("removed: "), "{text}");
    sandbox.assert_no_leftovers();
    for wrong in [&["--older-than", "soon"][..], &["--older-than", "1h", "1"], &["--all", "1"], &["99"]] {
        sandbox.look(&[&["gc"][..], wrong].concat()).expect_failure(REFUSED, &[]);
    }
    for wrong in ["forever", "5"] {
        sandbox.run_job(&["--input", "in", "--keep-for", wrong]).expect_failure(REFUSED, &["--keep-for"]);
    }
    let both = ["--input", "in", "--keep-for", "1h", "--keep-ifiles=false"];
    sandbox.run_job(&both).expect_failure(REFUSED, &["contradicts"]);
    sandbox
        .run_job(&["--input", "in", "--keep-for", "1h", "--map-only"])
        .expect_failure(REFUSED, &["--map-only"]);
}

#[test]
fn gc_takes_only_the_jobs_it_is_given() {
    let sandbox = with_kept_job(&["--keep-ifiles"]);
    // A second state on the same disk: its files are none of the first one's business.
    let other = sandbox.path("other-state");
    let other_args =
        ["--input", "in", "--output", "other", "--keep-for", "0s", "--state", other.to_str().unwrap()];
    sandbox.run_job(&other_args).expect_success();
    sandbox.run_job(&["--input", "in", "--output", "two", "--keep-ifiles"]).expect_success();
    assert_eq!(job_dirs(&sandbox).len(), 3);
    let text = sandbox.look(&["gc", "2"]).expect_success().text();
    assert!(text.contains("job 2 (two)") && text.contains("of 1 job"), "{text}");
    assert_eq!(sandbox.look(&["gc", "2"]).expect_success().text(), "nothing removed\n");
    assert_eq!(job_dirs(&sandbox).len(), 2);
    // A job that reads them protects them, also from a collector in another process.
    let (mut here, mut gate) = (sandbox.fifo("here"), sandbox.fifo("gate"));
    let reducer = waiting_cat(&here, &gate);
    let mut command = sandbox.sailfish();
    command.args(["rerun-reduce", "1", "--output", "again", "--slots", "1", "--reducer", &reducer]);
    let reading = Running::start(command.arg("--state").arg(sandbox.state()));
    assert_eq!(here.read_line(), "here");
    for args in [&["gc", "1"][..], &["gc", "--all"], &["gc", "--all", "--dry-run"]] {
        let text = sandbox.look(args).expect_success().text();
        assert!(text.contains("job 3 reads it") && text.contains("nothing"), "{text}");
    }
    gate.write_line("go");
    reading.wait().expect_success();
    let whole = sorted_lines(&sandbox.concatenated(&sandbox.path("again")));
    assert!(whole == sorted_lines(lines().as_bytes()), "records differ");
    let text = sandbox.look(&["gc", "--all"]).expect_success().text();
    assert!(text.contains("job 1 (out)"), "{text}");
    assert_eq!(sandbox.look(&["gc", "--all"]).expect_success().text(), "nothing removed\n");
    assert_eq!(job_dirs(&sandbox).len(), 1, "that of the other state stays");
    let mut command = sandbox.sailfish();
    command.args(["gc", "--state"]).arg(&other);
    let text = Running::start(&mut command).wait().expect_success().text();
    assert!(text.contains("removed: "), "{text}");
    sandbox.assert_no_leftovers();
}
