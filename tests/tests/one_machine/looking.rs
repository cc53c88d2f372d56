//! Looking at jobs, reports, outputs, the state and I-files.

use blackbox::{Answers, Sandbox, part_lines};
use std::fs;
use std::path::{Path, PathBuf};

const FAILED: i32 = 1;
const REFUSED: i32 = 2;

/// A sandbox in which job 1 succeeded and job 2 failed.
fn with_two_jobs() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b a\na c\n".repeat(1000));
    let count = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum", "--total-order"];
    let finished = sandbox.run_job(&[&count[..], &["--name", "counting"]].concat()).expect_success();
    for text in ["job 1 done", "2,000 records", "proof", "agrees", "out"] {
        assert!(finished.stderr.contains(text), "no {text:?} in the summary:\n{}", finished.story());
    }
    assert!(finished.stdout.is_empty(), "{}", finished.story());
    let fail = ["--input", "in", "--output", "failed", "--mapper", "sh -c 'echo oh no >&2; exit 5'"];
    sandbox.run_job(&fail).expect_failure(5, &["oh no"]);
    sandbox
}

#[test]
fn jobs_are_listed_newest_first() {
    let sandbox = with_two_jobs();
    let text = sandbox.look(&["jobs"]).expect_success().text();
    let (failed, counting) = (text.find("failed (5)").unwrap(), text.find("counting").unwrap());
    assert!(failed < counting && text.contains("succeeded"), "{text}");
    let list = sandbox.look(&["jobs", "--json"]).expect_success().json();
    assert_eq!(list[0]["job"], 2);
    assert_eq!((&list[0]["state"], &list[0]["exit_code"]), (&"failed".into(), &5.into()));
    assert_eq!((&list[1]["name"], &list[1]["state"]), (&"counting".into(), &"succeeded".into()));
    let list = sandbox.look(&["jobs", "--json", "--limit", "1"]).expect_success().json();
    assert_eq!(list.as_array().map(Vec::len), Some(1));
}

#[test]
fn show_prints_stages_and_failures_of_job() {
    let sandbox = with_two_jobs();
    let text = sandbox.look(&["show", "1"]).expect_success().text();
    for expected in
        ["Job 1: counting", "succeeded", "builtin:words", "builtin:sum", "map", "reduce", "commit"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    let text = sandbox.look(&["show", "2"]).expect_success().text();
    for expected in ["failed (5)", "map task 0, attempt 2: ", "exit code 5", "| oh no", "Latest events"] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn reports_are_the_same_everywhere() {
    let sandbox = with_two_jobs();
    let text = sandbox.look(&["report", "1"]).expect_success().text();
    for expected in
        ["Job 1: counting", "Phases", "I-files", "Plan and parts", "Proof", "agrees", "part-00000"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    let printed = sandbox.look(&["report", "1", "--json"]).expect_success().json();
    assert_eq!(printed["report_version"], 1);
    assert_eq!(
        (&printed["input"]["records"], &printed["map"]["output_records"]),
        (&2000.into(), &4000.into())
    );
    // What stands in the output was written before the commit ended, so the times of that phase may differ.
    let stored = sandbox.report(&sandbox.out());
    for part in ["job", "name", "layout", "input", "map", "shuffle", "reduce", "proof", "plan", "parts"] {
        assert_eq!(printed[part], stored[part], "{part} differs");
    }
    let refused = sandbox.look(&["report", "2"]);
    refused.expect_failure(FAILED, &["job 2 is failed", "sailfish show 2"]);
    // `run --json` prints it too, and nothing else.
    let args = ["--input", "in", "--output", "json", "--json", "--mapper", "builtin:words"];
    let printed = sandbox.run_job(&args).expect_success().json();
    assert_eq!(printed["parts"], sandbox.report(&sandbox.path("json"))["parts"]);
}

#[track_caller]
fn check_damage(damage: impl Fn(&Path), texts: &[&str]) {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b\t1\na\t2\nc\t3\n");
    sandbox.run_job(&["--input", "in", "--total-order", "--no-sync"]).expect_success();
    let said = sandbox.sailfish_with(&["verify", "out"]).expect_success().text();
    assert!(said.contains("out matches the report of job 1"), "{said}");
    damage(&sandbox.out());
    sandbox.sailfish_with(&["verify", "out"]).expect_failure(FAILED, texts);
}

#[test]
fn damaged_outputs_are_found() {
    let part = "part-00000";
    check_damage(|out| fs::write(out.join(part), "a\t2\nb\t1\nd\t3\n").unwrap(), &[part, "1 difference"]);
    check_damage(|out| fs::write(out.join(part), "a\t2\nb\t1\n").unwrap(), &[part, "8 bytes", "2 lines"]);
    check_damage(|out| fs::remove_file(out.join(part)).unwrap(), &[part, "cannot be read"]);
    check_damage(|out| fs::write(out.join("part-00099"), "x").unwrap(), &["part-00099 is not in the report"]);
    check_damage(|out| fs::remove_file(out.join("_SUCCESS")).unwrap(), &["_SUCCESS"]);
    check_damage(|out| fs::write(out.join("_report.json"), "{}").unwrap(), &["_report.json"]);
}

#[test]
fn the_state_answers_questions_and_takes_no_orders() {
    let sandbox = with_two_jobs();
    let ask = |statement: &str| sandbox.rows(statement);
    assert_eq!(ask("select count(*) as jobs from jobs"), [serde_json::json!({ "jobs": 2 })]);
    let words = "select name, state from jobs where state = 'succeeded'";
    assert_eq!(ask(words), [serde_json::json!({ "name": "counting", "state": "succeeded" })]);
    let proofs = ask("select agrees, committed_records = merged_records as same from proofs where job = 1");
    assert!(
        !proofs.is_empty() && proofs.iter().all(|row| row["agrees"] == 1 && row["same"] == 1),
        "{proofs:?}"
    );
    let stages = ask("select name from stages where job = 1 order by stage");
    let names: Vec<_> = stages.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["map", "seal", "merge", "reduce", "commit"]);
    for table in ["attempts", "pipelines", "events", "ifiles", "chunks", "runs", "sources", "plans", "parts"]
    {
        let rows = ask(&format!("select 1 from {table} limit 1"));
        assert_eq!(rows.len(), 1, "nothing in {table}");
    }
    let text = sandbox.look(&["state", "select name from jobs order by job"]).expect_success().text();
    assert!(text.contains("counting") && text.contains("name"), "{text}");
    let text = sandbox.look(&["state", "select 1 as one union select 2", "--limit", "1"]).expect_success();
    assert!(text.stderr.contains("there are more"), "{}", text.story());
    for order in [
        "delete from jobs",
        "update jobs set state = 'succeeded'",
        "drop table jobs",
        "pragma journal_mode = delete",
        "with doomed as (select 1) delete from jobs",
        "select 1; delete from jobs",
        "",
        "select nothing from nowhere",
        "vacuum",
    ] {
        sandbox.look(&["state", order]).expect_failure(REFUSED, &["sailfish: "]);
    }
    assert_eq!(ask("select count(*) as jobs from jobs"), [serde_json::json!({ "jobs": 2 })]);
}

/// Runs a job that keeps its I-files and returns those that were written.
fn kept_ifiles(sandbox: &Sandbox) -> Vec<PathBuf> {
    let lines: String = (0..20_000).map(|line| format!("key{:04}\tvalue {line}\n", line % 700)).collect();
    sandbox.write("in", lines);
    let args = ["--input", "in", "--keep-ifiles", "--total-order", "--memory", "64M", "--slots", "2"];
    let finished = sandbox.run_job(&args).expect_success();
    assert!(finished.stderr.contains("I-files"), "{}", finished.story());
    let mut kept = Vec::new();
    for dir in fs::read_dir(sandbox.disk()).unwrap() {
        kept.extend(fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    kept.retain(|path| path.extension().is_some_and(|extension| extension == "ifile"));
    kept.sort();
    assert!(!kept.is_empty(), "no I-files were kept");
    kept
}

#[test]
fn kept_ifiles_can_be_inspected_verified_and_scanned() {
    let sandbox = Sandbox::new();
    let kept = kept_ifiles(&sandbox);
    let mut scanned = Vec::new();
    for path in &kept {
        let path = path.to_str().unwrap();
        let text = sandbox.sailfish_with(&["ifile", "inspect", path]).expect_success().text();
        for expected in ["sorted run", "job 1", "records", "key index", "chunk", "map task"] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        let text = sandbox.sailfish_with(&["ifile", "verify", path]).expect_success().text();
        assert!(text.contains("is whole"), "{text}");
        let lines = sandbox.sailfish_with(&["ifile", "scan", path]).expect_success().stdout;
        let keys: Vec<&[u8]> = part_lines(&lines).iter().map(|line| &line[..7]).collect();
        assert!(keys.is_sorted(), "{path} is not scanned in order");
        scanned.extend_from_slice(&lines);
        let range = ["ifile", "scan", path, "--lower", "key0100", "--upper", "key0102"];
        let some = sandbox.sailfish_with(&range).expect_success().stdout;
        let expected =
            part_lines(&lines).into_iter().filter(|line| (&b"key0100"[..]..b"key0102").contains(&&line[..7]));
        assert_eq!(part_lines(&some), expected.collect::<Vec<_>>());
    }
    // Together they hold what was put in.
    let text = fs::read(sandbox.path("in")).unwrap();
    assert!(blackbox::sorted_lines(&scanned) == blackbox::sorted_lines(&text), "records differ");
}

#[test]
fn damaged_and_foreign_ifiles_are_named_by_offset() {
    let sandbox = Sandbox::new();
    let kept = kept_ifiles(&sandbox);
    let whole = fs::read(&kept[0]).unwrap();
    // One bit in each of 24 places over the whole file.
    for step in 0..24 {
        let place = (whole.len() - 1) * step / 23;
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << (step % 8);
        let path = sandbox.write("flipped.ifile", &flipped);
        let path = path.to_str().unwrap();
        let finished = sandbox.sailfish_with(&["ifile", "verify", path]);
        let finished = finished.expect_failure(FAILED, &["flipped.ifile", "at byte "]);
        let after = finished.stderr.split("at byte ").nth(1).expect("just checked");
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        let offset: usize = digits.parse().expect("an offset is a number");
        assert!(offset < whole.len(), "{}", finished.story());
    }
    for cut in [0, 1, 10, 100, whole.len() / 2, whole.len() - 1] {
        sandbox.write("cut.ifile", &whole[..cut]);
        for command in ["inspect", "verify", "scan"] {
            let finished = sandbox.sailfish_with(&["ifile", command, "cut.ifile"]);
            finished.expect_failure(FAILED, &["cut.ifile", "at byte "]);
        }
    }
    sandbox.write("foreign", "key\tvalue\n".repeat(100));
    for command in ["inspect", "verify", "scan"] {
        let finished = sandbox.sailfish_with(&["ifile", command, "foreign"]);
        finished.expect_failure(FAILED, &["foreign", "at byte 0", "not an I-file"]);
        sandbox.sailfish_with(&["ifile", command, "absent"]).expect_failure(FAILED, &["absent"]);
    }
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let sandbox = Sandbox::new();
    let kept = kept_ifiles(&sandbox);
    let mut shell = std::process::Command::new("sh");
    sandbox.clean(&mut shell);
    // The code of the scan is what the shell tells; `head` closes the pipe after one line.
    let script = "{ \"$0\" ifile scan \"$1\"; echo \"code $?\" >&2; } | head -n 1";
    shell.args(["-c", script]).arg(blackbox::sailfish_binary()).arg(&kept[0]);
    let finished = blackbox::Running::start(&mut shell).wait().expect_success();
    assert_eq!((finished.text().lines().count(), finished.stderr.as_str()), (1, "code 0\n"));
}
