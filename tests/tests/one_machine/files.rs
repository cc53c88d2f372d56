//! Stored files: put and get, names and sources that cannot be put, kills, crash points, failing calls, damage.

use blackbox::{Finished, Mounts, Random, Running, Sandbox, could_not_run, wait_until};
use faults::{CrashPoint, IoCall};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const FAILED: i32 = 1;
pub const REFUSED: i32 = 2;
const INTERRUPTED: i32 = 130;
/// The signal of `abort`.
pub const SIGABRT: i32 = 6;
/// Kills of one put, each at a random moment.
const KILLS: usize = 10;
/// Calls of one kind in a small put, at most.
const CALLS_MAX: u64 = 200;

/// `sailfish files` on the state of the sandbox.
fn files_command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.sailfish();
    command.arg("files").args(args).arg("--state").arg(sandbox.state());
    command
}

pub fn files(sandbox: &Sandbox, args: &[&str]) -> Finished {
    Running::start(&mut files_command(sandbox, args)).wait()
}

#[track_caller]
pub fn done(sandbox: &Sandbox, args: &[&str]) -> String {
    files(sandbox, args).expect_success().text()
}

/// Names below a directory of the store, in order.
#[track_caller]
pub fn names(sandbox: &Sandbox, dir: &str) -> Vec<String> {
    let listed = done(sandbox, &["ls", "--json", "--recursive", dir]);
    let name = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        value["name"].as_str().expect("a name").to_string()
    };
    let mut names: Vec<String> = listed.lines().map(name).collect();
    names.sort_unstable();
    names
}

/// Everything below a directory: names, and bytes of files.
fn contents(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).expect("a directory is listed") {
            let path = entry.expect("an entry").path();
            let below = path.strip_prefix(dir).expect("it lies below").to_path_buf();
            match path.is_dir() {
                true => {
                    all.push((below, None));
                    pending.push(path);
                }
                false => all.push((below, Some(fs::read(&path).expect("a file is read")))),
            }
        }
    }
    all.sort();
    all
}

/// Concrete files on the disk of the store, with their checksums; not the locks of puts. Puts may be running.
pub fn stored(sandbox: &Sandbox) -> Vec<PathBuf> {
    let data = sandbox.state().join("files/data");
    let (mut pending, mut found) = (vec![data.clone()], Vec::new());
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            match path.is_dir() {
                true => pending.push(path),
                false if path.ends_with("lock") => {}
                false => found.push(path.strip_prefix(&data).expect("it lies below").to_path_buf()),
            }
        }
    }
    found
}

/// The store has this directory under a name, as `get` and `fsck` show.
#[track_caller]
fn assert_stored(sandbox: &Sandbox, source: &Path, name: &str) {
    let copy = sandbox.path("copy");
    done(sandbox, &["get", name, "copy"]);
    assert!(contents(&copy) == contents(source), "the copy differs from {}", source.display());
    fs::remove_dir_all(copy).expect("the copy is removed");
    let checked = done(sandbox, &["fsck"]);
    assert!(checked.contains("; 0 problems"), "{checked}");
}

/// A directory with small files, a large one of several parts, an empty one, and an empty directory.
fn write_source(sandbox: &Sandbox, name: &str, files: u32) -> PathBuf {
    for number in 0..files {
        sandbox.write(&format!("{name}/small/{number}.txt"), format!("{name} {number}\n").repeat(50));
    }
    sandbox.write(&format!("{name}/large"), vec![b'x'; 300_000]);
    sandbox.write(&format!("{name}/deep/er/empty"), "");
    fs::create_dir_all(sandbox.path(name).join("no files")).expect("a directory is made");
    sandbox.path(name)
}

#[test]
fn directory_is_put_listed_and_got() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 3);
    let put = files(&sandbox, &["put", "in", "data/in", "--parts", "3"]).expect_success();
    assert!(put.stderr.contains("put data/in version 1: 5 files"), "{}", put.stderr);
    assert_stored(&sandbox, &source, "data/in");
    assert_eq!(names(&sandbox, "data/in/small"), ["0.txt", "1.txt", "2.txt"]);
    assert_eq!(done(&sandbox, &["cat", "data/in/small/1.txt"]), "in 1\n".repeat(50));
    assert!(done(&sandbox, &["stat", "data/in/large"]).contains("parts          3"));
    // Into a directory, under its own name.
    done(&sandbox, &["put", "in/small", "files:data/"]);
    assert_eq!(names(&sandbox, "/data/small").len(), 3);
    done(&sandbox, &["cp", "data/small", "twin"]);
    done(&sandbox, &["mv", "twin/0.txt", "/"]);
    done(&sandbox, &["cp", "0.txt", "twin/"]);
    done(&sandbox, &["mv", "twin/0.txt", "first"]);
    done(&sandbox, &["rm", "0.txt"]);
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(names(&sandbox, "/"), ["first", "twin", "twin/1.txt", "twin/2.txt"]);
    assert_eq!(done(&sandbox, &["cat", "first", "twin/1.txt"]), "in 0\n".repeat(50) + &"in 1\n".repeat(50));
    assert_eq!(stored(&sandbox).len(), 3);
    files(&sandbox, &["rm", "twin"]).expect_failure(REFUSED, &["twin is a directory", "--recursive"]);
    files(&sandbox, &["mkdir", "a/b"]).expect_failure(REFUSED, &["no file or directory a"]);
    files(&sandbox, &["get", "twin", "in"]).expect_failure(REFUSED, &["cannot create in", "exists already"]);
    files(&sandbox, &["cat", "twin"]).expect_failure(REFUSED, &["twin is a directory"]);
    let versions = done(&sandbox, &["versions"]);
    assert_eq!(versions.lines().count(), 2 + 8, "{versions}");
}

#[test]
fn standard_input_is_put() {
    let sandbox = Sandbox::new();
    let mut command = files_command(&sandbox, &["put", "-", "lines"]);
    let mut input = Command::new("seq").arg("100000").stdout(Stdio::piped()).spawn().expect("seq starts");
    let numbers = input.stdout.take().expect("it is piped");
    Running::start_with_stdin(&mut command, numbers).wait().expect_success();
    input.wait().expect("seq ends");
    let out = done(&sandbox, &["cat", "lines"]);
    assert_eq!((out.lines().count(), out.lines().last()), (100_000, Some("100000")));
    let mut empty = files_command(&sandbox, &["put", "-", "nothing"]);
    Running::start_with_stdin(&mut empty, Stdio::null()).wait().expect_success();
    assert_eq!(done(&sandbox, &["cat", "nothing"]), "");
    files(&sandbox, &["put", "-", "x", "--records", "lines"]).expect_failure(REFUSED, &["--records"]);
}

#[test]
fn parts_end_with_records() {
    let sandbox = Sandbox::new();
    let text: String = (0..10_000).map(|number| format!("{number:07}\n")).collect();
    sandbox.write("lines", &text);
    done(&sandbox, &["put", "lines", "lines", "--parts", "7", "--records", "lines"]);
    done(&sandbox, &["put", "lines", "fixed", "--parts", "7", "--records", "fixed:16"]);
    for (name, record_bytes) in [("lines", 8), ("fixed", 16)] {
        let value: serde_json::Value =
            serde_json::from_str(&done(&sandbox, &["stat", "--json", name])).expect("JSON");
        let parts = value["concrete_files"].as_array().expect("a list");
        assert_eq!(parts.len(), 7);
        let whole =
            |part: &serde_json::Value| part["bytes"].as_u64().expect("a number").is_multiple_of(record_bytes);
        assert!(parts.iter().all(whole), "{value}");
        assert_eq!(done(&sandbox, &["cat", name]), text);
    }
    files(&sandbox, &["put", "lines", "x", "--records", "fixed:7"])
        .expect_failure(REFUSED, &["lines", "80000 bytes", "records of 7"]);
}

#[test]
fn bad_names_are_listed_before_any_byte() {
    let sandbox = Sandbox::new();
    sandbox.write("in/good", "good");
    sandbox.write("in/with space", "1");
    sandbox.write("in/with\nnewline", "2");
    fs::write(sandbox.path("in").join(OsStr::from_bytes(b"not\xfftext")), "3").expect("Linux takes it");
    symlink("good", sandbox.path("in/link")).expect("a link is made");
    symlink("..", sandbox.path("in/up")).expect("a link is made");
    drop(sandbox.fifo("in/pipe"));
    drop(std::os::unix::net::UnixListener::bind(sandbox.path("in/socket")).expect("a socket is bound"));
    sandbox.write("in/version@12", "4");
    let refused = files(&sandbox, &["put", "in", "data"]);
    refused.expect_failure(
        REFUSED,
        &[
            "not UTF-8",
            "in/link: it is a symbolic link",
            "a named pipe",
            "a socket",
            "version@12",
            "6 entries",
        ],
    );
    assert!(stored(&sandbox).is_empty());
    let put = files(&sandbox, &["put", "in", "data", "--skip"]).expect_success();
    assert_eq!(put.stderr.matches("left out:").count(), 6, "{}", put.stderr);
    assert_eq!(names(&sandbox, "data"), ["good", "with\nnewline", "with space"]);
    // A list stays one line for each entry.
    assert!(done(&sandbox, &["ls", "data"]).contains("with\\nnewline"));
    assert_eq!(done(&sandbox, &["cat", "data/with\nnewline"]), "2");
    // A link that leads back would have no end.
    files(&sandbox, &["put", "in", "data", "--follow-links"])
        .expect_failure(REFUSED, &["in/up", "a directory above it"]);
    let long = "x".repeat(256);
    for (name, text) in
        [("../x", "`..`"), ("a//b", "empty part"), (long.as_str(), "at most 255"), ("x@3", "@")]
    {
        files(&sandbox, &["put", "in/good", name]).expect_failure(REFUSED, &[text]);
    }
    files(&sandbox, &["put", "in/good", &"x/".repeat(2048)]).expect_failure(REFUSED, &["4096 bytes", "4095"]);
    files(&sandbox, &["put", "nowhere", "x"]).expect_failure(REFUSED, &["nowhere", "No such file"]);
}

#[test]
fn source_that_changes_is_refused() {
    let sandbox = Sandbox::new();
    for number in 0..20 {
        sandbox.write(&format!("in/{number:02}"), "before");
    }
    let mut command = files_command(&sandbox, &["put", "in", "data"]);
    command.env("SAILFISH_IO_FAULT", "write:slow:1+");
    let putting = Running::start(&mut command);
    wait_until("parts are being written", || !stored(&sandbox).is_empty());
    sandbox.write("in/19", "after!");
    fs::remove_file(sandbox.path("in/18")).expect("it is removed");
    let failed = putting.wait();
    assert!(matches!(failed.code(), Some(FAILED | REFUSED)), "{}", failed.story());
    let named = failed.stderr.contains("in/19 changed while") || failed.stderr.contains("in/18");
    assert!(named, "{}", failed.story());
    files(&sandbox, &["ls", "data"]).expect_failure(REFUSED, &["no file or directory data"]);
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &sandbox.path("in"), "data");
}

/// Starts a put whose writes take their time.
fn slow_put(sandbox: &Sandbox) -> Running {
    let mut command = files_command(sandbox, &["put", "in", "data"]);
    command.env("SAILFISH_IO_FAULT", "write:slow:1+");
    Running::start(&mut command)
}

#[test]
fn interrupted_put_goes_on() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 40);
    let putting = slow_put(&sandbox);
    wait_until("some files are there", || stored(&sandbox).len() > 8);
    putting.signal(Signal::INT);
    putting.wait().expect_failure(INTERRUPTED, &["the same command goes on"]);
    let kept = stored(&sandbox).len();
    assert!((6..40).contains(&kept), "{kept}");
    files(&sandbox, &["ls", "data"]).expect_failure(REFUSED, &["data"]);
    assert!(files(&sandbox, &["fsck"]).expect_success().stderr.contains("unfinished put of data"));
    // A file that changed in between is put anew.
    sandbox.write("in/small/0.txt", "changed");
    let log = sandbox.path("calls");
    let mut again = files_command(&sandbox, &["put", "in", "data"]);
    again.env("SAILFISH_IO_LOG", &log);
    Running::start(&mut again).wait().expect_success();
    let calls = fs::read_to_string(log).expect("the log is there");
    let writes = calls.lines().filter(|line| line.starts_with("write ") && line.contains("/data/")).count();
    assert!(writes <= 43 - kept + 3, "{writes} files were written though {kept} were there");
    assert_stored(&sandbox, &source, "data");
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(stored(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn killed_puts_show_nothing() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 40);
    let mut random = Random::new(7);
    for kill in 0..KILLS {
        let putting = slow_put(&sandbox);
        let before = stored(&sandbox).len();
        let more = 1 + random.below(6) as usize;
        wait_until("more files are there", || stored(&sandbox).len() >= before.min(30) + more);
        putting.signal(Signal::KILL);
        putting.wait();
        let listed = files(&sandbox, &["ls", "data"]);
        assert_eq!(listed.code(), Some(REFUSED), "kill {kill}: {}", listed.story());
    }
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &source, "data");
    // The last put reused or replaced all files of the killed ones.
    assert_eq!(stored(&sandbox).len(), 40 + 2, "the small files, the large one and its checksums");
}

/// Puts, gets and removes run at once: each get has one version, whole.
#[test]
fn readers_and_writers_meet() {
    let sandbox = Sandbox::new();
    write_source(&sandbox, "one", 30);
    write_source(&sandbox, "two", 30);
    done(&sandbox, &["put", "one", "data"]);
    let versions = [contents(&sandbox.path("one")), contents(&sandbox.path("two"))];
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for round in 0..6 {
                done(&sandbox, &["put", if round % 2 == 0 { "two" } else { "one" }, "data"]);
            }
        });
        for reader in 0..2 {
            let (sandbox, versions) = (&sandbox, &versions);
            scope.spawn(move || {
                for round in 0..6 {
                    let target = format!("out-{reader}-{round}");
                    done(sandbox, &["get", "data", &target]);
                    let got = contents(&sandbox.path(&target));
                    assert!(versions.contains(&got), "{target} is no version");
                }
            });
        }
        writing.join().expect("the writer says its error itself");
    });
    assert_stored(&sandbox, &sandbox.path("one"), "data");
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(stored(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn same_put_runs_several_times_at_once() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 5);
    for _ in 0..5 {
        let puts: Vec<Running> =
            (0..4).map(|_| Running::start(&mut files_command(&sandbox, &["put", "in", "data"]))).collect();
        puts.into_iter().for_each(|put| drop(put.wait().expect_success()));
        assert_stored(&sandbox, &source, "data");
        assert_eq!(stored(&sandbox).len(), 5 + 2);
    }
}

#[test]
fn puts_survive_crashes_at_each_point() {
    use CrashPoint::{FilesBegun, FilesCommitted, FilesRemoved, FilesRetired, FilesSynced, FilesWritten};
    for point in [FilesBegun, FilesWritten, FilesSynced, FilesCommitted, FilesRetired, FilesRemoved] {
        let sandbox = Sandbox::new();
        let source = write_source(&sandbox, "in", 3);
        write_source(&sandbox, "older", 2);
        done(&sandbox, &["put", "older", "data"]);
        let mut command = files_command(&sandbox, &["put", "in", "data"]);
        command.env("SAILFISH_CRASH_AT", point.name());
        let crashed = Running::start(&mut command).wait();
        assert_eq!(crashed.signal(), Some(SIGABRT), "{}: {}", point.name(), crashed.story());
        let is_committed = !matches!(point, FilesBegun | FilesWritten | FilesSynced);
        let expected = if is_committed { &source } else { &sandbox.path("older") };
        assert_stored(&sandbox, expected, "data");
        done(&sandbox, &["put", "in", "data"]);
        assert_stored(&sandbox, &source, "data");
        assert_eq!(stored(&sandbox).len(), 3 + 2, "{}", point.name());
    }
}

/// Each call that changes files fails once, and from some call on all do.
#[test]
fn failing_calls_leave_a_whole_version() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 2);
    let older = write_source(&sandbox, "older", 1);
    for call in [IoCall::Create, IoCall::Write, IoCall::Sync] {
        for fault in ["enospc", "eio"] {
            let mut number = 1;
            loop {
                let _ = fs::remove_dir_all(sandbox.state());
                done(&sandbox, &["put", "older", "data"]);
                let mut command = files_command(&sandbox, &["put", "in", "data"]);
                command.env("SAILFISH_IO_FAULT", format!("{}:{fault}:{number}", call.name()));
                let finished = Running::start(&mut command).wait();
                if !finished.stderr.contains("gets the planted fault") {
                    assert!(number > 1 && finished.status.success(), "{}", finished.story());
                    break;
                }
                let is_new = finished.status.success();
                if !is_new {
                    assert!(matches!(finished.code(), Some(FAILED | REFUSED)), "{}", finished.story());
                    let cause = if fault == "eio" { "Input/output error" } else { "No space left" };
                    assert!(finished.stderr.contains(cause), "{}", finished.story());
                }
                assert_stored(&sandbox, if is_new { &source } else { &older }, "data");
                done(&sandbox, &["put", "in", "data"]);
                assert_stored(&sandbox, &source, "data");
                number += 1;
                assert!(number < CALLS_MAX, "it does not end");
            }
        }
    }
}

#[test]
fn full_disk_refuses_a_put() {
    let Some(mounts) = Mounts::start("a full disk under stored files") else { return };
    let sandbox = Sandbox::new();
    mounts.small_disk(&sandbox.state(), "size=4m");
    sandbox.write("small", "small");
    sandbox.write("large", vec![b'x'; 8 << 20]);
    let run = |args: &[&str]| {
        let mut command = mounts.inside(&sandbox, &files_command(&sandbox, args));
        Running::start(&mut command).wait()
    };
    run(&["put", "small", "small"]).expect_success();
    run(&["put", "large", "large"]).expect_failure(FAILED, &["No space left on device"]);
    // Its bytes are gone: the disk has room again.
    run(&["put", "small", "second"]).expect_success();
    assert_eq!(run(&["cat", "small", "second"]).expect_success().text(), "smallsmall");
    assert!(run(&["fsck"]).expect_success().text().contains("2 files, 2 parts"));
}

#[test]
fn damage_is_found_and_never_read() {
    let sandbox = Sandbox::new();
    write_source(&sandbox, "in", 1);
    done(&sandbox, &["put", "in", "data"]);
    let data = sandbox.state().join("files/data");
    let flip = |path: &Path, place: usize| {
        let mut bytes = fs::read(path).expect("it is read");
        bytes[place] ^= 1;
        fs::write(path, bytes).expect("it is written");
    };
    let large = stored(&sandbox).into_iter().map(|path| data.join(path));
    let large = large.max_by_key(|path| fs::metadata(path).expect("it exists").len()).expect("a file");
    flip(&large, 200_000);
    files(&sandbox, &["cat", "data/large"]).expect_failure(FAILED, &["is damaged", "block 3"]);
    files(&sandbox, &["get", "data", "out"]).expect_failure(FAILED, &["is damaged", "block 3"]);
    assert!(!sandbox.path("out").exists());
    files(&sandbox, &["fsck"]).expect_failure(FAILED, &["large: part 0", "block 3", "1 problem"]);
    flip(&large, 200_000);
    let cut = File::options().write(true).open(&large).expect("it is opened");
    cut.set_len(100).expect("it is cut");
    files(&sandbox, &["fsck", "data"]).expect_failure(FAILED, &["100 bytes instead of 300000"]);
    fs::remove_file(&large).expect("it is removed");
    files(&sandbox, &["cat", "data/large"]).expect_failure(FAILED, &["it does not exist"]);
    // A new version needs nothing of the damaged one.
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &sandbox.path("in"), "data");
    // A file that nobody made here.
    fs::create_dir_all(data.join("77/0")).expect("directories are made");
    fs::write(data.join("77/0/1"), "foreign").expect("it is written");
    files(&sandbox, &["fsck"]).expect_failure(FAILED, &["has no row in the store"]);
}

#[test]
fn interrupted_get_goes_on() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 5);
    done(&sandbox, &["put", "in", "data"]);
    // As a killed get leaves it: complete files, and a torn one.
    fs::create_dir_all(sandbox.path(".out.sailfish-get-1/tree/small")).expect("directories are made");
    fs::create_dir_all(sandbox.path(".out.sailfish-get-1/incomplete")).expect("directories are made");
    let torn = File::create(sandbox.path(".out.sailfish-get-1/incomplete/2")).expect("it is made");
    (&torn).write_all(&vec![b'y'; 400_000]).expect("it is written");
    done(&sandbox, &["get", "data", "out"]);
    assert!(contents(&sandbox.path("out")) == contents(&source));
    assert!(!sandbox.path(".out.sailfish-get-1").exists());
    sandbox.write("file", "old");
    files(&sandbox, &["get", "data/small/0.txt", "file"]).expect_failure(REFUSED, &["--overwrite"]);
    done(&sandbox, &["get", "data/small/0.txt", "file", "--overwrite"]);
    assert_eq!(fs::read(sandbox.path("file")).expect("it is read"), "in 0\n".repeat(50).as_bytes());
}

#[test]
fn get_uses_no_directory_of_others() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "stored\n");
    done(&sandbox, &["put", "in", "data"]);
    let place = sandbox.path(".out.sailfish-get-1");
    fs::create_dir(sandbox.path("elsewhere")).expect("a directory is made");
    symlink("elsewhere", &place).expect("a link is made");
    files(&sandbox, &["get", "data", "out"]).expect_failure(REFUSED, &["get-1", "not the directory of"]);
    assert_eq!(fs::read_dir(sandbox.path("elsewhere")).expect("it is listed").count(), 0);
    fs::remove_file(&place).expect("the link is removed");
    fs::create_dir(&place).expect("a directory is made");
    sandbox.write(".out.sailfish-get-1/tree", "foreig\n");
    match std::os::unix::fs::chown(&place, Some(65_534), None) {
        Ok(()) => {
            files(&sandbox, &["get", "data", "out"]).expect_failure(REFUSED, &["not the directory of"]);
        }
        Err(_) => could_not_run("a get into a directory of another user", "only root can give files away"),
    }
    assert!(!sandbox.path("out").exists());
    fs::remove_dir_all(&place).expect("it is removed");
    done(&sandbox, &["get", "data", "out"]);
    assert_eq!(fs::read(sandbox.path("out")).expect("it is read"), b"stored\n");
}

#[test]
fn stored_files_are_private() {
    let sandbox = Sandbox::new();
    sandbox.write("secret", "secret");
    done(&sandbox, &["put", "secret", "secret"]);
    for dir in ["", "files", "files/data"] {
        let mode = fs::metadata(sandbox.state().join(dir)).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{dir}: {mode:o}");
    }
}

#[test]
fn nothing_is_made_by_reading() {
    let sandbox = Sandbox::new();
    files(&sandbox, &["ls"]).expect_failure(REFUSED, &["no files are stored in", "--state"]);
    assert!(!sandbox.state().exists());
    files(&sandbox, &["put"]).expect_failure(REFUSED, &["Usage"]);
}

#[test]
fn names_go_when_their_time_is_over() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a", "a");
    sandbox.write("in/b", "b");
    files(&sandbox, &["put", "in", "x", "--ttl", "0s"])
        .expect_failure(REFUSED, &["--ttl", "at least a second"]);
    files(&sandbox, &["put", "in", "x", "--ttl", "6000w"])
        .expect_failure(REFUSED, &["--ttl", "a hundred years"]);
    done(&sandbox, &["put", "in", "goes", "--ttl", "1s"]);
    done(&sandbox, &["put", "in/a", "stays", "--ttl", "1s"]);
    done(&sandbox, &["put", "in/a", "stays"]);
    done(&sandbox, &["put", "in/a", "later", "--ttl", "7d"]);
    // The first command after that time removes it.
    wait_until("it is gone", || names(&sandbox, "/") == ["later", "stays"]);
    assert!(done(&sandbox, &["versions", "goes"]).contains("expire"));
    assert_eq!(stored(&sandbox).len(), 2);
    let stat = files(&sandbox, &["stat", "--json", "later"]).expect_success().json();
    let time = |field: &str| stat[field].as_u64().expect("a time");
    assert_eq!(time("expires_ns"), time("created_ns") + 7 * 86_400_000_000_000);
    assert!(done(&sandbox, &["stat", "later"]).contains("expires"));
}
