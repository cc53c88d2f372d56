//! Files in memory between the steps of a pipeline.

use blackbox::{Running, Sandbox, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a workflow: `write` makes the file `a` with this claim of memory, and `read` makes `b` from it.
fn workflow(sandbox: &Sandbox, memory: &str, write: &str, read: &str) {
    let step = |name: &str, more: &str, command: &str, output: &str| {
        let command = format!("echo {name} ran >> {}\n{command}", sandbox.path("log").display());
        format!("[[step]]\nname = \"{name}\"\n{more}command = '''{command}'''\noutputs = [\"{output}\"]\n")
    };
    let first = step("write", &format!("memory = \"{memory}\"\n"), write, "a");
    sandbox.write("flow.toml", first + &step("read", "inputs = [\"a\"]\n", read, "b"));
}

/// Returns the steps that ran since the last call.
fn ran(sandbox: &Sandbox) -> String {
    let text = fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    let _ = fs::remove_file(sandbox.path("log"));
    text.replace(" ran\n", " ")
}

fn run(sandbox: &Sandbox) -> Running {
    let mut command = sandbox.sailfish();
    command.current_dir(sandbox.path("")).args(["workflow", "run", "flow.toml", "--slots", "2", "--state"]);
    Running::start(command.arg(sandbox.state()))
}

/// Returns the type of the file system of a directory, as programs see it.
fn file_system(dir: &Path) -> String {
    let found = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output().expect("stat runs");
    String::from_utf8(found.stdout).expect("a word").trim().to_string()
}

/// Command that shows the file system of the directory.
const SHOW: &str = "stat -f -c %T .\n";

/// Says that a test needs files in memory, and returns whether they are here.
fn has_memory() -> bool {
    let has = file_system(Path::new("/dev/shm")) == "tmpfs" && file_system(&std::env::temp_dir()) != "tmpfs";
    if !has {
        println!("skipped: /dev/shm is no tmpfs, or temporary files lie in one");
    }
    has
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("a result")
}

#[test]
fn files_in_memory_are_real_files() {
    if !has_memory() {
        return;
    }
    let sandbox = Sandbox::new();
    let write = format!(
        "{SHOW}printf 'hello world' > part\nprintf W | dd of=part bs=1 seek=6 conv=notrunc status=none\n\
         ln part linked\nmv part a\ntest a -ef linked\ntest ! -e part\nmktemp -d | xargs rmdir\n"
    );
    let read_twice = "test -f a\nstat -L -f -c %T a\nstat -L -c %s a > b\ncat a a >> b\n\
                      dd if=a bs=1 skip=6 status=none >> b\n";
    workflow(&sandbox, "64M", &write, read_twice);
    let shown = run(&sandbox).wait().expect_success();
    assert_eq!(shown.text(), "tmpfs\ntmpfs\n", "{}", shown.story());
    assert_eq!(read(&sandbox, "b"), "11\nhello Worldhello WorldWorld");
    assert!(!sandbox.path("a").exists(), "it was temporary");
    assert_eq!(ran(&sandbox), "write read ");
    // They are remembered as if the file had been on a disk.
    run(&sandbox).wait().expect_success();
    assert_eq!(ran(&sandbox), "");
    let lineage = sandbox.look(&["lineage", &sandbox.path("b").display().to_string()]).expect_success();
    assert!(lineage.text().contains("write") && lineage.text().contains("read"), "{}", lineage.story());
    let why = sandbox.workflow(&["why", "flow.toml"]).expect_success();
    assert_eq!(why.text(), "all steps are skipped, as nothing changed for them\n");
    // The size of the file is known now; nothing stands for the reader once its output is gone.
    let text = read(&sandbox, "flow.toml").replace("memory = \"64M\"\n", "");
    sandbox.write("flow.toml", text);
    fs::remove_file(sandbox.path("b")).expect("it was made");
    let again = run(&sandbox).wait().expect_success();
    assert_eq!(ran(&sandbox), "write read ");
    assert_eq!(again.text(), "tmpfs\ntmpfs\n");
}

#[test]
fn files_too_large_lie_on_disks() {
    if !has_memory() {
        return;
    }
    let sandbox = Sandbox::new();
    let disk = file_system(&std::env::temp_dir());
    let copy = "cat a > b\n";
    // No machine has so much memory.
    workflow(&sandbox, "900T", &format!("{SHOW}echo text > a\n"), copy);
    assert_eq!(run(&sandbox).wait().expect_success().text(), format!("{disk}\n"));
    assert_eq!((read(&sandbox, "b"), ran(&sandbox)), ("text\n".to_string(), "write read ".to_string()));
    // Its reader cannot be skipped now, so they are one pipeline again.
    fs::remove_file(sandbox.path("b")).expect("it was made");
    // The file outgrows its memory, so the step writes it again. That is no failure.
    workflow(&sandbox, "2M", &format!("{SHOW}head -c 20000000 /dev/zero > a\n"), copy);
    let grown = run(&sandbox).wait().expect_success();
    assert_eq!(grown.text(), format!("tmpfs\n{disk}\n"));
    assert_eq!(ran(&sandbox), "write write read ");
    assert_eq!(fs::metadata(sandbox.path("b")).expect("a result").len(), 20_000_000);
}

#[test]
fn finished_phase_outlives_failure_of_the_next() {
    let sandbox = Sandbox::new();
    let broken = sandbox.write("broken", "");
    let reader = format!("test ! -e {}\ncat a > b\n", broken.display());
    workflow(&sandbox, "64M", "echo text > a\n", &reader);
    run(&sandbox).wait().expect_failure(1, &["exit code 1"]);
    assert_eq!((read(&sandbox, "a"), ran(&sandbox)), ("text\n".to_string(), "write read ".to_string()));
    fs::remove_file(broken).expect("it is removed");
    run(&sandbox).wait().expect_success();
    assert_eq!((read(&sandbox, "b"), ran(&sandbox)), ("text\n".to_string(), "read ".to_string()));
    assert!(!sandbox.path("a").exists(), "it was temporary");
}

/// Returns the directory in memory of a process, if there is one.
fn memory_of(process: u32) -> Option<PathBuf> {
    let begin = format!("sailfish-files-{process}-");
    let mut entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.find(|entry| entry.file_name().to_string_lossy().starts_with(&begin)).map(|entry| entry.path())
}

/// Starts a workflow whose reader waits.
fn start_waiting(sandbox: &Sandbox) -> Running {
    let mut here = sandbox.fifo("here");
    let go = sandbox.path("go").display().to_string();
    let reader = format!("if ! test -e {go}; then echo here > {}; sleep 3600; fi\ncat a > b\n", here.text());
    workflow(sandbox, "64M", "echo text > a\n", &reader);
    let running = run(sandbox);
    assert_eq!(here.read_line(), "here");
    sandbox.write("go", "");
    running
}

#[test]
fn finished_phase_outlives_an_interrupt() {
    let sandbox = Sandbox::new();
    let running = start_waiting(&sandbox);
    let process = running.id();
    running.signal(Signal::INT);
    running.wait().expect_failure(130, &[]);
    assert_eq!((ran(&sandbox), memory_of(process)), ("write read ".to_string(), None));
    run(&sandbox).wait().expect_success();
    assert_eq!((read(&sandbox, "b"), ran(&sandbox)), ("text\n".to_string(), "read ".to_string()));
}

#[test]
fn memory_of_a_killed_process_is_freed() {
    if !has_memory() {
        return;
    }
    let sandbox = Sandbox::new();
    let running = start_waiting(&sandbox);
    let process = running.id();
    assert!(memory_of(process).is_some(), "its file is in memory");
    running.signal(Signal::KILL);
    running.wait();
    // A program of it may hold the lock for a moment: it is about to be killed too.
    wait_until("the memory is freed by the next run", || {
        run(&sandbox).wait().expect_success();
        memory_of(process).is_none()
    });
    assert_eq!(read(&sandbox, "b"), "text\n");
}
