//! Steps of workflows that are remembered read, in users' directories, only the files that they declare.

use blackbox::{Finished, Running, Sandbox, could_not_run};
use std::fs;
use std::process::Command;

/// Asks the kernel for its version of Landlock; less than 1 if it has none.
pub fn landlock_version() -> i32 {
    let ask = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let answer = Command::new("python3").args(["-c", ask]).output().expect("python3 runs");
    String::from_utf8_lossy(&answer.stdout).trim().parse().expect("a number")
}

/// A workflow with files that its step may or may not read.
struct Place(Sandbox);

impl Place {
    /// None, and said so, where the kernel cannot limit reads.
    fn new() -> Option<Self> {
        let place = Self(Sandbox::new());
        place.0.write("wf/secret", "secret\n");
        place.0.write("wf/input", "input\n");
        if landlock_version() < 2 {
            could_not_run("declared reads of steps", "this kernel has no Landlock of version 2 (Linux 5.19)");
            return None;
        }
        Some(place)
    }

    /// Runs a workflow of one step, whose other keys these are, with the directory of the workflow as `$WF`.
    fn run(&self, keys: &str) -> Finished {
        let directory = self.0.path("wf");
        let env = match keys.contains("env = ") {
            true => String::new(),
            false => format!("env = {{ WF = {directory:?} }}\n"),
        };
        self.run_steps(&format!("[[step]]\nname = 'only'\noutputs = ['out']\n{env}{keys}\n"))
    }

    fn run_steps(&self, steps: &str) -> Finished {
        self.0.write("wf/wf.toml", steps);
        let mut command = self.0.sailfish();
        command.args(["workflow", "run"]).arg(self.0.path("wf/wf.toml"));
        Running::start(command.arg("--state").arg(self.0.state())).wait()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.0.path("wf/out")).expect("the step has written it")
    }
}

const READS_SECRET: &str = "command = 'cat \"$WF/secret\" > out'";

#[test]
fn undeclared_read_fails_and_names_both_keys() {
    let Some(place) = Place::new() else { return };
    let refused = place.run(READS_SECRET);
    refused.expect_failure(1, &["Permission denied", "add others to `reads`, or set `cache = false`"]);
    assert!(!place.0.path("wf/out").exists());
}

#[test]
fn failures_without_refused_reads_get_no_advice() {
    let Some(place) = Place::new() else { return };
    for command in ["exit 3", "no-such-program", "cat secret"] {
        let failed = place.run(&format!("command = '{command}'"));
        assert!(!failed.story().contains("reads"), "{}", failed.story());
        assert_eq!(failed.story().contains("secret stands there only if `inputs`"), command == "cat secret");
    }
    let late = place.run("command = 'sleep 60'\ntimeout = '1s'");
    late.expect_failure(2, &["--limit time=1s of the job (`timeout` of the step in a workflow file)"]);
}

#[test]
fn swallowed_refusal_is_told() {
    let Some(place) = Place::new() else { return };
    let ran = place.run(r#"command = 'cat "$WF/secret" | cat > out'"#);
    let story = ran.story();
    assert!(story.contains("the step succeeded, although it said") && story.contains("`reads`"), "{story}");
    let allowed = place.run("command = 'cat secret | cat > out; echo Permission denied >&2'\ncache = false");
    assert!(!allowed.story().contains("although it said"), "{}", allowed.story());
}

#[test]
fn each_key_opens_the_file() {
    let Some(place) = Place::new() else { return };
    for key in [
        "reads = ['secret']",
        "reads = ['../wf']",
        "environment = ['secret']",
        "cache = false",
        "inputs = ['secret']",
    ] {
        place.run(&format!("{READS_SECRET}\n{key}")).expect_success();
        assert_eq!(place.output(), "secret\n", "{key}");
        fs::remove_file(place.0.path("wf/out")).expect("it was made");
    }
}

#[test]
fn missing_named_file_fails_before_the_start() {
    let Some(place) = Place::new() else { return };
    for key in ["reads", "environment"] {
        let missing = place.run(&format!("command = 'touch \"$WF/started\" out'\n{key} = ['missing']"));
        let path = place.0.path("wf/missing").display().to_string();
        missing.expect_failure(2, &[&path, &format!("in `{key}` does not exist")]);
        assert!(!place.0.path("wf/started").exists());
    }
    let directory = place.run("command = 'touch out'\nenvironment = ['../wf']");
    directory.expect_failure(2, &["in `environment` is no plain file"]);
}

#[test]
fn installation_on_path_is_readable() {
    let Some(place) = Place::new() else { return };
    let tool = place.0.script("tools/bin/tool", "#!/bin/sh\ncat \"$(dirname \"$0\")/../lib/part\"\n");
    place.0.write("wf/tools/lib/part", "of the tool\n");
    place.0.script("wf/tools/bin/tool", &fs::read_to_string(tool).expect("it was written"));
    let path = format!("{}:/usr/bin:/bin", place.0.path("wf/tools/bin").display());
    place.run(&format!("command = 'tool > out'\nenv = {{ PATH = {path:?} }}")).expect_success();
    assert_eq!(place.output(), "of the tool\n");
}

#[test]
fn linked_input_and_temporary_files_are_readable() {
    let Some(place) = Place::new() else { return };
    place.0.write("elsewhere/real", "real\n");
    std::os::unix::fs::symlink("../elsewhere/real", place.0.path("wf/linked")).expect("a link");
    let command = "new=$(mktemp); cat linked > \"$new\"; cat \"$new\" > out";
    place.run(&format!("command = '{command}'\ninputs = ['linked']")).expect_success();
    assert_eq!(place.output(), "real\n");
}

/// Each step of a pipeline has its own limit, and reads what the others wrote.
#[test]
fn limit_is_of_each_step_of_a_pipeline() {
    let Some(place) = Place::new() else { return };
    let directory = place.0.path("wf");
    let step = |name: &str, keys: &str| {
        format!("[[step]]\nname = '{name}'\nenv = {{ WF = {directory:?} }}\n{keys}\n")
    };
    let pipeline = |first: &str, second: &str| {
        let first = step("first", &format!("{first}\nstdout = 'between'"));
        let second = step("second", &format!("{second}\nstdin = 'between'\nstdout = 'out'"));
        place.run_steps(&format!("{first}{second}"))
    };
    let (free, limited) = ("command = 'cat \"$WF/secret\"'\ncache = false", "command = 'cat'");
    pipeline(free, limited).expect_success();
    assert_eq!(place.output(), "secret\n");
    let refused = pipeline(free, "command = 'cat - \"$WF/input\"'");
    refused.expect_failure(1, &["second", "or set `cache = false`"]);
    fs::remove_file(place.0.path("wf/out")).expect("it was made");
    let file = step("first", "command = 'echo made > made'\noutputs = ['made']");
    let reader = step("second", "command = 'cat made > out'\ninputs = ['made']\noutputs = ['out']");
    place.run_steps(&format!("{file}{reader}")).expect_success();
    assert_eq!(place.output(), "made\n");
}
