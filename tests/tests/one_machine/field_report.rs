//! Rows of the field report that need one machine.

use blackbox::{Running, Sandbox};

fn with_input() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\nb\n");
    sandbox
}

/// Hints for the most common mistakes stand below the error.
#[test]
fn field_report_trap_hints_for_the_commonest_mistakes() {
    let sandbox = with_input();
    sandbox.write("map.py", "import sys\nsys.exit(3)\n");
    let check = |mapper: &str, hint: &str| {
        let finished = sandbox.run_job(&["--input", "in", "--mapper", mapper]);
        assert!(
            !finished.status.success() && finished.stderr.contains(hint),
            "{mapper}: {}",
            finished.story()
        );
    };
    check(
        "sh map.py",
        "map.py is a file here, and programs run in directories of their own: add --file map.py",
    );
    check("cat | grep x", "give --mapper \"sh -c 'cat | grep x'\"");
    check("grep nothing", "give --mapper builtin:grep:PATTERN, or \"sh -c 'grep nothing || [ $? = 1 ]'\"");
    sandbox.write("job.toml", "input = \"in\"\noutput = out\n");
    let mut job = sandbox.sailfish();
    Running::start(job.args(["run", "--job", "job.toml"])).wait().expect_failure(2, &["output = \"out\""]);
}

/// Field report, 11.
#[test]
fn stage_of_failed_job_is_shown_as_failed() {
    let sandbox = with_input();
    sandbox.run_job(&["--input", "in", "--mapper", "false"]).expect_failure(1, &[]);
    let shown = sandbox.look(&["show", "1"]).expect_success().text();
    let stages =
        shown.lines().skip_while(|line| *line != "Stages").skip(3).take_while(|line| !line.is_empty());
    let states = stages.map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).nth(1));
    let states: Vec<&str> = states.flatten().collect();
    assert_eq!(states, ["failed", "not begun", "not begun", "not begun", "not begun"], "{shown}");
}

/// Field report, 11.
#[test]
fn removed_input_is_reported_as_removed() {
    let sandbox = Sandbox::new();
    let text = "0123456789abcdef\n".repeat(3 << 20);
    sandbox.write("one", &text);
    sandbox.write("two", &text);
    let two = sandbox.path("two");
    let mapper = format!("sh -c 'cat > /dev/null; rm -f {}'", two.display());
    let job = ["--input", "one", "--input", "two", "--slots", "1", "--memory", "64M", "--mapper", &mapper];
    sandbox.run_job(&job).expect_failure(2, &["two: the file was removed during the run"]);
}

/// Options of Hadoop have one dash.
/// Field report, 11.
#[test]
fn errors_of_streaming_name_its_options() {
    let sandbox = with_input();
    let check = |words: &[&str], expected: &str| {
        let mut streaming = sandbox.sailfish();
        let finished = Running::start(streaming.arg("streaming").args(words).args(["-mapper", "cat"])).wait();
        let finished = finished.expect_failure(2, &[expected]);
        assert!(
            !finished.stderr.contains("--input") && !finished.stderr.contains("--output"),
            "{}",
            finished.story()
        );
    };
    check(&["-input", "absent", "-output", "out"], "-input: input");
    check(&["-input", "in", "-output", "in"], "-output in exists");
}

/// Field report, 11.
#[test]
fn missing_disk_directory_is_made() {
    let sandbox = with_input();
    sandbox.run_job(&["--input", "in", "--disk", "new-disk"]).expect_success();
    assert!(sandbox.path("new-disk").is_dir());
}

/// Help begins with the options that a command is for.
#[test]
fn help_ends_with_rarely_needed_options() {
    let sandbox = Sandbox::new();
    for words in [["run", "--help"], ["jobs", "-h"], ["server", "--help"]] {
        let help = sandbox.sailfish_with(&words).expect_success().text();
        let options = help.find("Options:").unwrap_or_default();
        let first = help[options..].lines().nth(1).unwrap_or_default();
        assert!(!first.contains("--objects-config"), "{words:?}: {first}");
    }
    let help = sandbox.sailfish_with(&["run", "--help"]).expect_success().text();
    assert!(help.contains("bob<TAB><LF>           key bob, an empty value"), "{help}");
}
