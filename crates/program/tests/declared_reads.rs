//! Programs without a sandbox that read in users' directories only what they declare, as real processes.

use api::{Blame, TaskFailure};
use program::{
    DeclaredReads, FunctionContext, PipelineProgram, ProgramSpec, Programs, Streams, run_pipeline,
};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// A workflow with files, and the directory of a step of it.
struct Place {
    dir: tempfile::TempDir,
    /// Those of all places: the processes that start programs take a while to begin and to end.
    programs: Arc<Programs>,
    env: Vec<(String, String)>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for each in ["wf/data", "wf/tools/bin", "wf/tools/lib", "step"] {
            std::fs::create_dir_all(dir.path().join(each)).unwrap();
        }
        for each in ["wf/secret", "wf/input", "wf/data/one", "wf/tools/lib/part", "step/own"] {
            std::fs::write(dir.path().join(each), format!("{each}\n")).unwrap();
        }
        symlink(dir.path().join("wf/secret"), dir.path().join("step/link")).unwrap();
        symlink(dir.path().join("wf/input"), dir.path().join("step/input")).unwrap();
        static PROGRAMS: LazyLock<Arc<Programs>> = LazyLock::new(|| Arc::new(Programs::new()));
        Self { dir, programs: Arc::clone(&PROGRAMS), env: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a script in the directory of the step, with the directory of the workflow as `$WF`; None, and said so, where
    /// the kernel cannot limit reads.
    fn run(&self, script: &str, readable: &[&str]) -> Option<Result<(), TaskFailure>> {
        self.run_words(&["sh", "-euc", script], readable)
    }

    fn run_words(&self, words: &[&str], readable: &[&str]) -> Option<Result<(), TaskFailure>> {
        let readable = readable.iter().map(|name| self.path(name)).collect();
        let Some(limit) = DeclaredReads::new(&self.path("wf"), readable) else {
            println!("NOT RUN: declared reads: this kernel has no Landlock of version 2");
            return None;
        };
        let context = self.context();
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let spec =
            ProgramSpec { declared_reads: Some(Arc::new(limit)), ..ProgramSpec::new(&words, &context) };
        let programs = vec![PipelineProgram::alone(context, spec)];
        Some(run_pipeline(programs, vec![Streams::shown()], Vec::new(), |_| Ok(None), |_| {}))
    }

    fn context(&self) -> FunctionContext {
        let wf = ("WF".to_string(), self.path("wf").display().to_string());
        FunctionContext {
            programs: Arc::clone(&self.programs),
            work_dir: self.path("step"),
            start_dir: self.path("wf"),
            env: self.env.iter().cloned().chain([wf]).collect(),
            record_bytes_max: 0,
            buffer_bytes: 0,
            cancelled: Arc::default(),
            stderr_log: None,
            limits: Default::default(),
            disk_dirs: Vec::new(),
            reports: Default::default(),
            declared_reads: None,
            any_exit_code: false,
            task_env: Vec::new(),
            kept_for: None,
            sandbox: None,
            named: Vec::new(),
        }
    }
}

/// Reads of a file that is not declared.
const REFUSED: &[&str] = &[
    "cat $WF/secret",
    "read -r line < $WF/secret",
    "cat link",
    "cat ../wf/secret",
    "cat /proc/self/root$WF/secret",
    "cat /proc/self/cwd/../wf/secret",
    "cat /proc/$PPID/root$WF/secret",
    "cd $WF; cat secret",
    "ln $WF/secret mine",
    "mv -T --no-copy $WF/secret mine || mv $WF/secret mine && cat mine",
    "ln -s $WF/data here; cat here/one",
    "ls $WF",
    "ls $WF/..",
    "sh -c 'sh -c \"cat $WF/secret\"'",
    "(cat $WF/secret)& wait $!",
    "cp $WF/secret mine",
    "sh $WF/tools/bin/tool",
];

#[test]
fn undeclared_reads_are_refused() {
    for script in REFUSED {
        let place = Place::new();
        std::fs::write(place.path("wf/tools/bin/tool"), "true\n").unwrap();
        let Some(outcome) = place.run(script, &["step/input"]) else { return };
        let failure = outcome.expect_err(script);
        assert_eq!(failure.blame, Blame::UserProgram, "{script}");
        for named in ["`reads`", "`cache = false`"] {
            assert!(failure.message.contains(named), "{script}: {}", failure.message);
        }
        let tail = failure.stderr_tail.join("\n");
        let reasons = ["ermission denied", "annot open", "not permitted", "cross-device"];
        assert!(reasons.iter().any(|reason| tail.contains(reason)), "{script}: {tail}");
    }
}

/// Reads and writes that go on.
const ALLOWED: &[&str] = &[
    "cat input; cat $WF/input",
    "cat own; ls . > list; cat list; cd sub 2> /dev/null || mkdir sub; echo x > sub/x; mv sub/x x; cat x",
    "cat /etc/passwd /proc/self/status /proc/cpuinfo > /dev/null; ls /usr/bin /proc /dev > /dev/null",
    "test -e $WF/secret",
    "echo new > $WF/new; rm $WF/new; mkdir $WF/d; mv own $WF/d/",
    "cat < /dev/stdin; echo out > /dev/stdout; echo x | cat /dev/stdin",
    "ulimit -c > /dev/null; sort own | uniq -c",
];

#[test]
fn declared_files_and_writes_stay_allowed() {
    for script in ALLOWED {
        let Some(outcome) = Place::new().run(script, &["step/input"]) else { return };
        assert_eq!(outcome.map_err(|failure| (failure.message, failure.stderr_tail)), Ok(()), "{script}");
    }
}

#[test]
fn readable_directory_opens_its_files() {
    let script = "cat $WF/data/*; ! cat $WF/secret";
    let Some(outcome) = Place::new().run(script, &["wf/data"]) else { return };
    outcome.unwrap();
}

#[test]
fn search_path_opens_installation() {
    let mut place = Place::new();
    let script = "cat $WF/tools/lib/part; ! cat $WF/secret";
    if let Some(outcome) = place.run(script, &[]) {
        outcome.unwrap_err();
    }
    let path = format!("{}:/usr/bin:/bin", place.path("wf/tools/bin").display());
    place.env.push(("PATH".to_string(), path));
    if let Some(outcome) = place.run(script, &[]) {
        outcome.unwrap();
    }
}

#[test]
fn own_program_and_its_interpreter_run() {
    let place = Place::new();
    let executable = |name: &str, text: String| {
        std::fs::write(place.path(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.path(name), mode).unwrap();
        place.path(name).display().to_string()
    };
    let interpreter = executable("wf/data/interpreter", "#!/bin/sh\ncat \"$1\"\n".to_string());
    let script = executable("wf/script", format!("#!{interpreter}\n"));
    if let Some(outcome) = place.run_words(&[&script], &[]) {
        outcome.unwrap();
    }
    if let Some(outcome) = place.run_words(&["sh", &script], &[]) {
        outcome.unwrap_err();
    }
}

/// A descriptor of the engine is not the program's.
#[test]
fn open_files_of_the_engine_are_not_inherited() {
    let place = Place::new();
    let _open = std::fs::File::open(place.path("wf/secret")).unwrap();
    let script = "for number in 3 4 5 6 7 8 9; do cat <&$number && exit 1; done 2> /dev/null; true";
    if let Some(outcome) = place.run(&format!("set +e; {script}"), &[]) {
        outcome.unwrap();
    }
}

#[test]
fn advice_follows_standard_error() {
    let place = Place::new();
    for (script, expected) in [
        ("exit 3", "program \"sh\" ended with exit code 3"),
        ("echo ZeroDivisionError >&2; exit 1", "program \"sh\" ended with exit code 1"),
        ("no-such-program", "program \"sh\" ended with exit code 127"),
        ("cat nowhere", "program \"sh\" ended with exit code 1"),
        (
            "cat data/one",
            "program \"sh\" ended with exit code 1 (it runs in a directory of its own, and data/one stands there only if \
             `inputs` names it)",
        ),
    ] {
        let Some(outcome) = place.run(script, &[]) else { return };
        assert_eq!(outcome.unwrap_err().message, expected, "{script}");
    }
}

#[test]
fn unlimited_program_gets_no_advice() {
    let place = Place::new();
    let context = place.context();
    let words = ["sh", "-c", "exit 3"].map(str::to_string);
    let spec = ProgramSpec::new(&words, &context);
    let programs = vec![PipelineProgram::alone(context, spec)];
    let outcome = run_pipeline(programs, vec![Streams::shown()], Vec::new(), |_| Ok(None), |_| {});
    assert_eq!(outcome.unwrap_err().message, "program \"sh\" ended with exit code 3");
}
