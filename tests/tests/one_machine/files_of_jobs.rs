//! Stored files as inputs, programs and outputs of jobs of this machine.

use super::files::{FAILED, REFUSED, SIGABRT, done, files, names, stored};
use blackbox::{Running, Sandbox, gzip};
use faults::CrashPoint;
use std::fs;
use std::process::Command;

/// The lines of a job over an input, sorted.
#[track_caller]
fn sorted_by_a_job(sandbox: &Sandbox, inputs: &[&str]) -> Vec<String> {
    let _ = fs::remove_dir_all(sandbox.out());
    let named = inputs.iter().flat_map(|input| ["--input", input]);
    sandbox.run_job(&named.chain(["--total-order"]).collect::<Vec<_>>()).expect_success();
    sandbox.output_lines(&sandbox.out())
}

#[test]
fn jobs_read_stored_files() {
    let sandbox = Sandbox::new();
    let mut expected = Vec::new();
    for file in 0..4 {
        let lines: Vec<String> =
            (0..5000).map(|line| format!("{:08}", (line * 7919 + file) % 100_003)).collect();
        sandbox.write(&format!("in/{file}.txt"), lines.join("\n") + "\n");
        expected.extend(lines);
    }
    sandbox.write("in/_hidden", "no data\n");
    sandbox.write("in/packed", gzip(b"packed\n"));
    expected.push("packed".to_string());
    expected.sort_unstable();
    // Parts end anywhere within lines.
    done(&sandbox, &["put", "in", "data", "--parts", "7", "--keep-versions", "2"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data"]), expected);
    sandbox.write("plain", "plain\n");
    let both = sorted_by_a_job(&sandbox, &["plain", "files:data/3.txt", "files:data/packed"]);
    assert_eq!(both.len(), 5002);
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data@1"]), expected);
    sandbox
        .run_job(&["--input", "files:data"])
        .expect_failure(REFUSED, &["files:data", "no file or directory data"]);
    sandbox.run_job(&["--input", "files:../x"]).expect_failure(REFUSED, &["files:../x", "`..`"]);
}

/// Prints the bytes of stretches, and treats their files as the variable SPOIL says.
const STRETCH_READER: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    stretch = json.loads(line)
    path = stretch["path"]
    assert os.path.getsize(path) == stretch["size"] and os.stat(path).st_mode & 0o777 == 0o444, stretch
    with open(path, "rb") as file:
        file.seek(stretch["offset"])
        data = file.read(stretch["length"])
    sys.stdout.write(f"{os.path.basename(path)} {stretch['offset']:09}\t{data.hex()}\n")
    spoil = os.environ.get("SPOIL")
    if spoil in ("write", "cut"):
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.write(b"spoiled") if spoil == "write" else file.truncate(1)
    if spoil == "remove":
        os.unlink(path)
"#;

/// Returns the bytes of a file that [`STRETCH_READER`] has printed.
fn printed_bytes(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    let mut lines = sandbox.output_lines(&sandbox.out());
    lines.retain(|line| line.starts_with(&format!("{name} ")));
    lines.sort();
    let digits: String = lines.iter().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn programs_cannot_change_stored_files() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
    sandbox.write("in/whole", &bytes);
    sandbox.write("in/small", "small");
    done(&sandbox, &["put", "in", "data", "--parts", "3"]);
    let mapper = sandbox.script("read.py", STRETCH_READER);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let job = |more: &[&str]| {
        let job = ["--input", "files:data", "--input-format", "stretches", "--mapper", mapper, "--map-only"];
        sandbox.run_job(&[&job[..], &["--overwrite"], more].concat())
    };
    for (spoil, is_noticed) in [("write", true), ("cut", true), ("remove", false)] {
        for contained in [&[][..], &["--contain"]] {
            let ran = job(&[&["--slots", "1", "--env", &format!("SPOIL={spoil}")][..], contained].concat());
            match is_noticed {
                true => drop(ran.expect_failure(1, &["changed its copy of files:data/", "must not write"])),
                false => drop(ran.expect_success()),
            }
        }
        job(&[]).expect_success();
        assert_eq!(printed_bytes(&sandbox, "whole"), bytes, "{spoil}");
        assert_eq!(printed_bytes(&sandbox, "small"), b"small");
    }
    done(&sandbox, &["fsck"]);
}

/// Prints its input behind a file beside it, a file that it is told, and its mode.
const TELLS: &str = r#"#!/bin/sh
[ -z "$SPOIL" ] || { chmod 600 "$1"; echo spoiled > "$1"; }
exec sed "s/^/$(cat words) $(cat "$1") $(stat -L -c %a "$0" words | tr '\n' ' ')/"
"#;

#[test]
fn stored_programs_run() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "line\n");
    sandbox.write("tell.sh", TELLS);
    sandbox.write("words", "old");
    done(&sandbox, &["put", "tell.sh", "bin/tell.sh"]);
    done(&sandbox, &["put", "words", "words", "--keep-versions", "2"]);
    let mapper = ["--mapper", "files:bin/tell.sh files:words"];
    let told = |more: &[&str]| {
        let job = [&["--input", "in", "--map-only", "--overwrite"][..], &mapper, more].concat();
        sandbox.run_job(&job)
    };
    let lines = |more: &[&str]| {
        told(&[&["--file", "files:words"], more].concat()).expect_success();
        sandbox.output_lines(&sandbox.out())
    };
    for contained in [&[][..], &["--contain"]] {
        assert_eq!(lines(contained), ["old old 555 555 line"]);
    }
    sandbox.write("words", "new");
    done(&sandbox, &["put", "words", "words", "--keep-versions", "2"]);
    assert_eq!(lines(&[]), ["new new 555 555 line"]);
    told(&["--file", "files:words@2"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["old new 555 555 line"]);
    // What a program does to its copy concerns nobody else.
    told(&["--file", "files:words", "--env", "SPOIL=1"])
        .expect_failure(1, &["changed its copy of files:words@3", "must not write"]);
    assert_eq!(lines(&[]), ["new new 555 555 line"]);
    let state = sandbox.state().display().to_string();
    let streaming =
        ["streaming", "-input", "in", "-output", "hadoop", "-numReduceTasks", "0", "--state", &state];
    let programs =
        ["-mapper", "tell.sh files:words", "-file", "files:bin/tell.sh", "-files", "files:words@2#words"];
    Running::start(sandbox.sailfish().args(streaming).args(programs)).wait().expect_success();
    // A key alone has the separator, as in Hadoop.
    assert_eq!(sandbox.output_lines(&sandbox.path("hadoop")), ["old new 555 555 line\t"]);
    let submit = |words: &[&str]| {
        let mut submit = sandbox.sailfish();
        submit.args(["submit", "--state", &state, "--file", "files:words", "--"]).args(words);
        Running::start(&mut submit).wait()
    };
    let told = submit(&["sh", "-c", "echo line | \"$0\" \"$1\"", "files:bin/tell.sh", "files:words@2"]);
    assert_eq!(told.expect_success().text(), "new old 555 555 line\n");
    for (name, problem) in [("files:none", "no file or directory none"), ("files:bin", "bin is a directory")]
    {
        let job = |option| sandbox.run_job(&["--input", "in", option, name]);
        job("--mapper").expect_failure(REFUSED, &[&format!("--mapper {name}"), problem]);
        job("--file").expect_failure(REFUSED, &[&format!("--file {name}"), problem]);
        submit(&["cat", name]).expect_failure(REFUSED, &[name, problem]);
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn job_keeps_the_version_it_reads() {
    let sandbox = Sandbox::new();
    // More than pipes hold, so that the second file is opened when the program goes on.
    sandbox.write("in/a", "old\n".repeat(1 << 20));
    sandbox.write("in/b", "old\n");
    done(&sandbox, &["put", "in", "data"]);
    let (mut started, mut gate) = (sandbox.fifo("started"), sandbox.fifo("gate"));
    let text =
        format!("#!/bin/sh\necho here > {}\nread line < {}\nexec sort -u\n", started.text(), gate.text());
    let mapper = sandbox.script("wait.sh", &text);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let job = sandbox.start_job(&["--input", "files:data", "--mapper", mapper, "--map-only", "--slots", "1"]);
    started.read_line();
    sandbox.write("in/a", "new\n");
    fs::remove_file(sandbox.path("in/b")).expect("it is removed");
    done(&sandbox, &["put", "in", "data"]);
    assert_eq!(stored(&sandbox).len(), 2 + 1 + 1, "the job needs the old files and checksums");
    // A line for each task.
    (0..8).for_each(|_| gate.write_line("go"));
    job.wait().expect_success();
    let mut lines = sandbox.output_lines(&sandbox.out());
    lines.dedup();
    assert_eq!(lines, ["old"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data"]), ["new"]);
    done(&sandbox, &["mkdir", "other"]);
    assert_eq!(stored(&sandbox).len(), 1);
}

#[test]
fn damaged_stored_file_fails_its_job() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "line\n".repeat(100_000));
    done(&sandbox, &["put", "in", "data"]);
    let file = stored(&sandbox).into_iter().find(|path| !path.to_string_lossy().ends_with(".sums"));
    let path = sandbox.state().join("files/data").join(file.expect("a file"));
    let mut bytes = fs::read(&path).expect("it is read");
    bytes[300_000] ^= 4;
    fs::write(&path, bytes).expect("it is written");
    sandbox
        .run_job(&["--input", "files:data"])
        .expect_failure(FAILED, &["files:data@1", "damaged", "block 4"]);
    sandbox.assert_no_leftovers();
}

/// A job whose output is stored.
fn stored_job(sandbox: &Sandbox, output: &str, options: &[&str]) -> Command {
    let mut command = sandbox.sailfish();
    command.args(["run", "--input", "in", "--output", output, "--state"]).arg(sandbox.state());
    command.arg("--disk").arg(sandbox.disk()).args(["--memory", "64M", "--slots", "2"]).args(options);
    command
}

/// Private outputs of jobs that are left.
fn private_outputs(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.state().join("files/outputs")).map_or(0, Iterator::count)
}

#[test]
fn output_of_a_job_is_stored() {
    let sandbox = Sandbox::new();
    let expected = sandbox.write_numbers(3, 4000, 20);
    let parted = ["--partitions", "3"];
    let sorted_lines = |text: String| blackbox::sorted_lines(text.as_bytes());
    let all_lines = blackbox::sorted_lines(expected.as_bytes());
    let run =
        |output: &str, options: &[&str]| Running::start(&mut stored_job(&sandbox, output, options)).wait();
    let first = run("files:sorted/all", &["--partitions", "3", "--name", "counts"]).expect_success();
    assert!(first.stderr.contains("files:sorted/all (3 parts"), "{}", first.stderr);
    assert_eq!(sorted_lines(done(&sandbox, &["cat", "sorted/all"])), all_lines);
    assert!(done(&sandbox, &["stat", "sorted/all"]).contains("parts          3"));
    assert!(done(&sandbox, &["fsck"]).contains("1 file, 3 parts"));
    let made_by = "job 1 (counts)";
    for shown in [done(&sandbox, &["versions", "sorted"]), done(&sandbox, &["stat", "sorted/all"])] {
        assert!(shown.contains(made_by), "{shown}");
    }
    let stat = files(&sandbox, &["stat", "--json", "sorted/all"]).expect_success().json();
    assert_eq!((&stat["job"], &stat["job_name"]), (&1.into(), &"counts".into()));
    assert_eq!(private_outputs(&sandbox), 0);
    // Again: a new version; the old one goes.
    run("files:sorted/all", &["--total-order"]).expect_success();
    assert_eq!(done(&sandbox, &["cat", "sorted/all"]), expected);
    assert!(done(&sandbox, &["fsck"]).contains("1 file, 1 part,"));
    // Its input may be a stored file, also the one that it replaces.
    let mut onto_itself = sandbox.sailfish();
    onto_itself.args(["run", "--input", "files:sorted/all", "--output", "files:sorted/all", "--reverse"]);
    onto_itself.args(["--total-order", "--state"]).arg(sandbox.state()).arg("--disk").arg(sandbox.disk());
    Running::start(&mut onto_itself).wait().expect_success();
    let reversed: String = expected.lines().rev().map(|line| format!("{line}\n")).collect();
    assert_eq!(done(&sandbox, &["cat", "sorted/all"]), reversed);
    // Files that cannot be joined stay apart.
    let apart = ["--partitions", "2", "--part-extension", ".txt", "--name", "apart"];
    run("files:apart", &apart).expect_success();
    assert_eq!(names(&sandbox, "apart"), ["part-00000.txt", "part-00001.txt"]);
    let apart = done(&sandbox, &["cat", "apart/part-00000.txt", "apart/part-00001.txt"]);
    assert_eq!(sorted_lines(apart), all_lines);
    // A file that is lost names the job that can make it again, also under another name.
    done(&sandbox, &["mv", "apart/part-00000.txt", "lost.txt"]);
    let text = done(&sandbox, &["cat", "lost.txt"]).into_bytes();
    let data = sandbox.state().join("files/data");
    let mut parts = stored(&sandbox).into_iter().map(|path| data.join(path));
    let lost = parts.find(|path| fs::read(path).is_ok_and(|bytes| bytes == text));
    fs::remove_file(lost.expect("the part is there")).expect("it is removed");
    fs::create_dir(sandbox.path("got")).expect("a directory is made");
    for verb in [&["cat", "lost.txt"][..], &["get", "lost.txt", "got/lost.txt"], &["fsck", "lost.txt"]] {
        files(&sandbox, verb).expect_failure(FAILED, &["made", "job 4 (apart)", "run that job again"]);
    }
    // The get could go on.
    fs::remove_dir_all(sandbox.path("got")).expect("it is removed");
    run("files:apart", &parted).expect_failure(REFUSED, &["files:apart", "is a directory"]);
    run("files:a/../b", &parted).expect_failure(REFUSED, &["--output", "`..`"]);
    run("files:sorted/all@1", &parted).expect_failure(REFUSED, &["--output", "a version cannot be written"]);
    let failed = run("files:failed", &["--mapper", "false"]);
    assert!(!failed.status.success(), "{}", failed.story());
    files(&sandbox, &["ls", "failed"]).expect_failure(REFUSED, &["no file or directory failed"]);
    assert_eq!(private_outputs(&sandbox), 0);
    sandbox.assert_no_leftovers();
}

#[test]
fn stage_outputs_are_stored() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a b\nb\n");
    let text = "memory = \"64M\"\n[[stage]]\nname = \"words\"\ninput = \"in\"\nmapper = \"builtin:words\"\n\
                reducer = \"builtin:sum\"\n[[stage]]\nname = \"again\"\nfrom = \"words\"\noutput = \"files:counts\"\n";
    sandbox.write("flow.toml", text);
    let mut command = sandbox.sailfish();
    command.args(["run", "--job", "flow.toml", "--state"]).arg(sandbox.state());
    let finished = Running::start(&mut command).wait().expect_success();
    assert!(finished.stderr.contains("files:counts"), "{}", finished.stderr);
    assert_eq!(done(&sandbox, &["cat", "counts"]), "a\t1\nb\t2\n");
}

#[test]
fn crash_before_an_output_is_stored() {
    use CrashPoint::{CleanupAfterRemove, CommitAfterRename, FilesBegun, FilesCommitted, FilesSynced};
    for point in [CommitAfterRename, CleanupAfterRemove, FilesBegun, FilesSynced, FilesCommitted] {
        let sandbox = Sandbox::new();
        let expected = sandbox.write_numbers(1, 500, 10);
        let mut command = stored_job(&sandbox, "files:sorted", &["--total-order"]);
        command.env("SAILFISH_CRASH_AT", point.name());
        let crashed = Running::start(&mut command).wait();
        assert_eq!(crashed.signal(), Some(SIGABRT), "{}: {}", point.name(), crashed.story());
        match point {
            FilesCommitted => assert_eq!(done(&sandbox, &["cat", "sorted"]), expected),
            _ => drop(files(&sandbox, &["cat", "sorted"]).expect_failure(REFUSED, &["sorted"])),
        }
        Running::start(&mut stored_job(&sandbox, "files:sorted", &["--total-order"])).wait().expect_success();
        assert_eq!(done(&sandbox, &["cat", "sorted"]), expected);
        assert!(done(&sandbox, &["fsck"]).contains("1 file, 1 part,"), "{}", point.name());
        assert_eq!((private_outputs(&sandbox), stored(&sandbox).len()), (0, 1), "{}", point.name());
    }
}
