//! `sailfish usage`: what jobs and steps used on one machine.

use blackbox::{Running, Sandbox};
use serde_json::Value;

/// Takes some tenths of a second of a processor.
const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

fn usage(sandbox: &Sandbox, args: &[&str]) -> Vec<Value> {
    let rows = sandbox.look(&[&["usage", "--json"], args].concat()).expect_success().json();
    rows.as_array().expect("a list").clone()
}

fn number(row: &Value, figure: &str) -> u64 {
    row[figure].as_u64().unwrap_or_else(|| panic!("{figure} of {row}"))
}

#[test]
fn jobs_account_for_what_they_used() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "some lines\n".repeat(1000));
    sandbox.write("busy", format!("{BUSY}\nsh -c '{BUSY}'\nexec cat\n"));
    let args =
        ["--input", "in", "--file", "busy", "--mapper", "sh busy", "--reducer", "cat", "--output", "out"];
    sandbox.run_job(&args).expect_success();
    let rows = usage(&sandbox, &["--by", "job"]);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((number(row, "job"), number(row, "read_bytes")), (1, 11_000));
    assert!(number(row, "cpu_ms") >= 50 && number(row, "attempts") >= 4, "{row}");
    assert!(number(row, "shuffled_bytes") > 11_000 && number(row, "stored_bytes") >= 11_000, "{row}");
    assert_eq!(number(row, "moved_bytes"), 0);
    // A failed attempt counts, also what its children used.
    let mut fails = sandbox.sailfish();
    fails.args(["submit", "--state"]).arg(sandbox.state());
    fails.args(["--", "sh", "-c", &format!("sh -c '{BUSY}'; exit 3")]);
    Running::start(&mut fails).wait().expect_failure(3, &[]);
    let failed = number(&usage(&sandbox, &["--by", "job"])[0], "job");
    let rows = usage(&sandbox, &["--job", &failed.to_string()]);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert!(failed > 1 && number(row, "attempts") == 1 && number(row, "cpu_ms") >= 50, "{row}");
    let days = usage(&sandbox, &["--by", "day", "--since", "2020-01-01"]);
    assert_eq!(days.iter().map(|row| number(row, "jobs")).sum::<u64>(), 2);
    assert_eq!(usage(&sandbox, &["--until", "2020-01-01"]), [Value::Null; 0]);
    let table = sandbox.look(&["usage", "--by", "job"]).expect_success().text();
    assert!(table.contains("CPU") && table.contains("read"), "{table}");
    for (args, text) in [
        (["--since", "2026-02-30", "--by", "day"], "YYYY-MM-DD"),
        (["--since", "2026-02-03", "--until", "2026-02-02"], "exchange the days"),
    ] {
        sandbox.look(&[&["usage"], &args[..]].concat()).expect_failure(2, &[text]);
    }
}

#[test]
fn steps_account_for_their_workflow() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "x".repeat(4321));
    let text = "[[step]]\nname = \"one\"\ncommand = \"cat in > middle\"\ninputs = [\"in\"]\noutputs = [\"middle\"]\n\
                [[step]]\nname = \"two\"\ncommand = \"head -c 21 middle > out\"\ninputs = [\"middle\"]\noutputs = [\"out\"]\n";
    sandbox.write("w.toml", text);
    sandbox.look(&["workflow", "run", "w.toml"]).expect_success();
    let rows = usage(&sandbox, &["--by", "job"]);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((number(row, "read_bytes"), number(row, "stored_bytes")), (2 * 4321, 4321 + 21));
    assert!(number(row, "attempts") >= 2 && number(row, "cpu_ms") > 0, "{row}");
}
