//! Programs below an init, for tests.

use containment::{Containment, JobFiles, Launch, ProcessLimits, ProgramEnd, ProgramEnds, SlotInit, Spawner};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Longest wait for anything that happens at once.
pub const SOON: Duration = Duration::from_secs(20);

/// A slot with its spawner.
pub struct Slot {
    pub init: SlotInit,
    pub spawner: Spawner,
}

/// A running program of which the test has the output.
pub struct Program {
    pub pid: i32,
    pub end: ProgramEnd,
    pub output: File,
}

impl Slot {
    pub fn new(containment: Containment) -> Self {
        let spawner = Spawner::start().unwrap();
        let init = spawner.new_init(containment).unwrap();
        init.new_job(JobFiles::default()).unwrap();
        Self { init, spawner }
    }

    /// Starts a shell with a script, and without input.
    pub fn start(&self, script: &str) -> Program {
        start(&self.init, script)
    }

    /// Runs a script to its end; returns its status and output.
    pub fn run(&self, script: &str) -> (ExitStatus, String) {
        let Program { end, mut output, .. } = self.start(script);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        (end.wait().unwrap(), text)
    }

    /// Starts a script, and returns it with the first line of its output.
    pub fn start_until_line(&self, script: &str) -> (Program, String) {
        let mut program = self.start(script);
        let line = read_line(&mut program.output);
        (program, line)
    }
}

pub fn read_line(output: &mut File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

pub fn start(init: &SlotInit, script: &str) -> Program {
    start_limited(init, script, ProcessLimits::default())
}

pub fn start_limited(init: &SlotInit, script: &str, limits: ProcessLimits) -> Program {
    let (stdin, _) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let stderr = File::options().write(true).open("/dev/null").unwrap();
    let launch = Launch {
        executable: b"/bin/sh".to_vec(),
        arguments: ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec(),
        environment: vec![b"PATH=/usr/bin:/bin:/usr/local/bin".to_vec()],
        work_dir: b"/".to_vec(),
        restrictions: None,
        limits,
    };
    let ends =
        ProgramEnds { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd(), rules: None };
    let started = init.start(&launch, ends).unwrap();
    Program { pid: started.pid, end: started.end, output: File::from(output) }
}

/// A word that no other process has in its arguments.
pub fn mark() -> String {
    format!("containment-{}-{:?}", std::process::id(), Instant::now()).replace([' ', '{', '}', ':', ','], "")
}

/// Returns the processes of the machine that have a word among their arguments.
pub fn with_argument(word: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_it = |pid: &i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    pids.filter(has_it).collect()
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Returns the children of a process.
pub fn children_of(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns the process id of this process's spawner, and of its first init.
pub fn spawner_and_init() -> (i32, i32) {
    let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = all.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<i32> = lists
        .flat_map(|list| list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    let spawner = children[0];
    (spawner, children_of(spawner)[0])
}
