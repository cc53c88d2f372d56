//! Rows of the report on the Python package that the engine answers.

use blackbox::{Cluster, Running, Sandbox};

/// A mapper that says something to standard error for each line, and fails at the line `bad`.
const TALKING: &str = "#!/bin/sh
while read -r word; do
    echo \"saw $word\" >&2
    [ \"$word\" != bad ] || exit 7
    echo \"$word\"
done
echo >&2
";

/// The logs of a job are kept, whether it succeeds or fails: of each task, behind its name.
#[test]
fn python_report_4_logs_of_tasks_are_kept() {
    let sandbox = Sandbox::new();
    sandbox.script("map.sh", TALKING);
    sandbox.write("in", "good\n");
    let job = ["--input", "in", "--mapper", "sh map.sh", "--file", "map.sh", "--overwrite"];
    sandbox.run_job(&[&job[..], &["--reducer", "sh -c 'cat; echo reduced >&2'"]].concat()).expect_success();
    let logs = sandbox.look(&["logs", "1"]).expect_success();
    assert_eq!((logs.text().as_str(), logs.stderr.as_str()), ("", "map 0: saw good\nreduce 0: reduced\n"));
    sandbox.write("in", "good\nbad\n");
    sandbox.run_job(&job).expect_failure(7, &["saw bad"]);
    let logs = sandbox.look(&["logs", "2"]).expect_success();
    let first = "map 0: saw good\nmap 0: saw bad\nmap 0, attempt 1: saw good\n";
    assert!(logs.stderr.starts_with(first), "{}", logs.story());
    // They are not among the events, of which only the latest are shown.
    let shown = sandbox.look(&["show", "1"]).expect_success();
    assert!(!shown.text().contains("saw good"), "{}", shown.text());
    sandbox.look(&["logs", "9"]).expect_failure(2, &["there is no job 9"]);
}

/// Python report, 4.
#[test]
fn server_keeps_logs_of_tasks() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.script("map.sh", TALKING);
    cluster.sandbox.write("in", "good\n");
    let mut job = cluster.job(&["--input", "in", "--mapper", "sh map.sh", "--file", "map.sh"]);
    Running::start(job.arg("--output").arg(cluster.sandbox.out())).wait().expect_success();
    let logs = cluster.run(&["logs", "1"]).expect_success();
    assert_eq!(logs.stderr, "map 0: saw good\n", "{}", logs.story());
}

/// Directories above an output are made, as Hadoop does.
/// Python report, 12.
#[test]
fn missing_parents_of_output_are_made() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let words = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];
    let mut run = sandbox.sailfish();
    run.args(["run", "--input", "in", "--output", "no/such/out"]).args(words);
    Running::start(&mut run).wait().expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("no/such/out")), ["a\t1"]);
    let mut streaming = sandbox.sailfish();
    streaming.args(["streaming", "-input", "in", "-output", "other/such/out", "-mapper", "cat"]);
    Running::start(&mut streaming).wait().expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("other/such/out")), ["a\t"]);
}

/// Python report, 10.
#[test]
fn parts_have_the_extension_of_their_kind() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let options = ["--input", "in", "--part-extension", ".csv", "--overwrite"];
    sandbox.run_job(&options).expect_success();
    let part_of = |sandbox: &Sandbox| {
        let names = sandbox.part_names(&sandbox.out());
        names.into_iter().find(|name| name.starts_with("part-")).unwrap_or_default()
    };
    assert_eq!(part_of(&sandbox), "part-00000.csv");
    sandbox.run_job(&[&options[..], &["--compress", "gzip", "--map-only"]].concat()).expect_success();
    assert_eq!(part_of(&sandbox), "part-00000.csv.gz");
    // Readers of a directory may take the types of its first file for all.
    sandbox.write("two", "b\n");
    let grep = ["--partitions", "8", "--omit-empty-parts", "--overwrite", "--input", "in", "--input", "two"];
    sandbox.run_job(&[&grep[..], &["--mapper", "builtin:grep:a|b"]].concat()).expect_success();
    let parts = sandbox.report(&sandbox.out())["parts"].as_array().map(Vec::len);
    assert!(parts.is_some_and(|parts| (1..=2).contains(&parts)), "{parts:?}");
    assert_eq!(sandbox.part_names(&sandbox.out()).len(), parts.unwrap_or_default());
    sandbox.run_job(&[&grep[..], &["--mapper", "builtin:grep:nothing"]].concat()).expect_success();
    assert_eq!(sandbox.part_names(&sandbox.out()).len(), 1);
    sandbox.run_job(&["--input", "in", "--part-extension", "../x"]).expect_failure(2, &["--part-extension"]);
}
