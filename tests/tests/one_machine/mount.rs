//! Stored files as a directory: programs read it, versions, mount points that cannot be used, and the end of a mount.

use blackbox::{Finished, Random, Running, Sandbox, could_not_run, file_tree, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const REFUSED: i32 = 2;
const LARGE_BYTES: usize = 20 << 20;
const MOUNTED: &str = "are mounted at";
/// Number of the error of a read-only file system.
const EROFS: i32 = 30;
/// Number of the error of a device.
const EIO: i32 = 5;

/// Maps a file twice, reads it in pieces, and prints its lines from both.
const PYTHON: &str = "
import mmap, sys
with open(sys.argv[1], 'rb') as file:
    whole = file.read()
    shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    assert shared[:] == whole and private[-1000:] == whole[-1000:]
print(len(whole), whole.count(b'\\n'))
";

/// A mount of the files of a sandbox. What a test leaves mounted is unmounted.
struct Mounted {
    process: Option<Running>,
    dir: PathBuf,
}

impl Mounted {
    /// Mounts the files at a new directory. None, and said so, where this machine does not let us.
    fn start(sandbox: &Sandbox, what: &str) -> Option<Mounted> {
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            could_not_run(what, &format!("/dev/fuse cannot be opened: {error}"));
            return None;
        }
        if !rustix::process::geteuid().is_root() && !is_there("fusermount3") {
            could_not_run(what, "mounting needs root or fusermount3");
            return None;
        }
        let dir = sandbox.path("mounted");
        fs::create_dir_all(&dir).expect("our own directory takes another");
        let process = Running::start(&mut mount_command(sandbox, "mounted"));
        process.wait_for_stderr(MOUNTED);
        Some(Mounted { process: Some(process), dir })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Ends the process with a signal.
    fn end(&mut self, signal: Signal) -> Finished {
        let process = self.process.take().expect("it is mounted");
        process.signal(signal);
        process.wait()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(Signal::TERM);
            process.wait();
        }
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("-V").output().is_ok()
}

fn mount_command(sandbox: &Sandbox, dir: &str) -> Command {
    let mut command = sandbox.sailfish();
    command.args(["mount", dir, "--state"]).arg(sandbox.state());
    command
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has the table");
    table.contains(&format!(" {} ", dir.display()))
}

/// Runs a program that reads mounted files.
#[track_caller]
fn told(program: &str, args: &[&str], dir: &Path) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).env("LC_ALL", "C");
    Running::start(&mut command).wait().expect_success().text()
}

/// A directory with files and names of many kinds.
fn write_source(sandbox: &Sandbox) -> PathBuf {
    let numbers: String = (0..200_000).map(|number| format!("{}\n", number * 7919 % 200_000)).collect();
    sandbox.write("in/numbers", numbers);
    sandbox.write("in/large", Random::new(9).bytes(LARGE_BYTES));
    sandbox.write("in/deep/er/empty", "");
    sandbox.write("in/with\nnewline", "x");
    sandbox.write(&format!("in/{}", "n".repeat(255)), "long");
    for number in 0..1500 {
        sandbox.write(&format!("in/many/{number}"), format!("{number}\n"));
    }
    sandbox.path("in")
}

#[test]
fn programs_read_mounted_files() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox);
    sandbox.files().done(&["put", "in", "data"]);
    sandbox.files().done(&["put", "in/large", "data/large", "--parts", "3"]);
    let Some(mounted) = Mounted::start(&sandbox, "programs that read mounted files") else { return };
    let text = |path: &Path| path.to_str().expect("a plain path").to_string();
    let (data, from) = (mounted.at("data"), text(&source));
    // Twice: from the store, and from the cache of the kernel.
    for _ in 0..2 {
        assert_eq!(told("diff", &["-r", &from, "."], &data), "");
    }
    assert!(file_tree(&data) == file_tree(&source), "the trees differ");
    assert_eq!(told("head", &["-c", "10", "numbers"], &data), "0\n7919\n158");
    assert_eq!(told("grep", &["-c", "^1999", "numbers"], &data), "111\n");
    let sorted = told("sort", &["-n", "numbers"], &data);
    assert!(sorted.lines().eq((0..200_000).map(|number| number.to_string())));
    assert_eq!(told("python3", &["-c", PYTHON, "numbers"], &data), "1288890 200000\n");
    let large = fs::read(source.join("large")).expect("it was written");
    let mut file = File::open(data.join("large")).expect("it opens");
    for offset in [LARGE_BYTES - 7, 3, 11 << 20, 1] {
        let mut bytes = [0; 7];
        file.seek(SeekFrom::Start(offset as u64)).expect("it seeks");
        file.read_exact(&mut bytes).expect("it reads");
        assert_eq!(bytes, large[offset..offset + 7], "at {offset}");
    }
    let refused = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.expect_err("it is read-only").raw_os_error(), Some(EROFS));
    };
    refused(fs::write(data.join("new"), ""));
    refused(File::options().append(true).open(data.join("numbers")).map(drop));
    refused(fs::remove_file(data.join("numbers")));
    refused(fs::create_dir(mounted.at("new")));
    refused(fs::rename(data.join("numbers"), data.join("x")));
}

#[test]
fn open_files_keep_their_version() {
    let sandbox = Sandbox::new();
    let files = sandbox.files();
    let older = Random::new(3).bytes(3 << 20);
    sandbox.write("older", &older);
    sandbox.write("newer", "newer");
    files.done(&["put", "older", "file", "--keep-versions", "2"]);
    let Some(mounted) = Mounted::start(&sandbox, "versions of mounted files") else { return };
    let mut open = File::open(mounted.at("file")).expect("it opens");
    files.done(&["put", "newer", "file", "--keep-versions", "2"]);
    wait_until("the new version is visible", || fs::read(mounted.at("file")).expect("it reads") == b"newer");
    let mut read = Vec::new();
    open.read_to_end(&mut read).expect("an open file stays readable");
    assert!(read == older, "an open file changed");
    assert!(fs::read(mounted.at(".versions/1/file")).expect("it reads") == older);
    assert_eq!(told("ls", &["-A"], &mounted.dir), ".versions\nfile\n");
    assert_eq!(told("ls", &[".versions"], &mounted.dir), "1\n2\n");
    files.done(&["rm", "file"]);
    wait_until("the name is gone", || !mounted.at("file").exists());
    assert!(!mounted.at(".versions/9").exists());
    drop(open);
    // Nobody reads it any more, and a later command removes it.
    drop(mounted);
    files.assert_sound();
}

#[test]
fn damage_is_an_error_of_its_reader() {
    let sandbox = Sandbox::new();
    sandbox.write("in/large", Random::new(4).bytes(LARGE_BYTES));
    sandbox.write("in/small", "small\n");
    sandbox.files().done(&["put", "in", "data"]);
    let Some(mut mounted) = Mounted::start(&sandbox, "damage below a mount") else { return };
    let stored = file_tree(&sandbox.state().join("files/data"));
    let large =
        stored.iter().find(|(_, bytes)| bytes.as_ref().is_some_and(|bytes| bytes.len() == LARGE_BYTES));
    let path = sandbox.state().join("files/data").join(large.expect("it has one part").0);
    let part = File::options().write(true).open(path).expect("our own file");
    part.write_all_at(b"damaged", LARGE_BYTES as u64 / 2).expect("it is written");
    let error = fs::read(mounted.at("data/large")).expect_err("it is damaged");
    assert_eq!(error.raw_os_error(), Some(EIO));
    assert_eq!(fs::read(mounted.at("data/small")).expect("it is whole"), b"small\n");
    let ended = mounted.end(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.story());
    assert!(ended.stderr.contains("\"data/large\" cannot be read"), "{}", ended.stderr);
}

#[test]
fn unusable_mount_points_are_refused() {
    let sandbox = Sandbox::new();
    let refuse = |dir: &str, text: &str| {
        let finished = Running::start(&mut mount_command(&sandbox, dir)).wait();
        finished.expect_failure(REFUSED, &[text]);
    };
    sandbox.write("full/file", "x");
    fs::create_dir(sandbox.path("empty")).expect("our own directory takes another");
    refuse("empty", "no files are stored in");
    sandbox.files().done(&["put", "full", "full"]);
    refuse("none", "the mount point none does not exist");
    refuse("full", "the mount point full is not empty");
    refuse("full/file", "the mount point full/file is not a directory");
    refuse("/proc", "/proc is a mount point already");
    let Some(mounted) = Mounted::start(&sandbox, "mount points that are in use") else { return };
    refuse("mounted", "mounted is a mount point already");
    assert!(mounted.at("full/file").exists());
}

#[test]
fn killed_mount_is_unmounted() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "x");
    sandbox.files().done(&["put", "file", "file"]);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        let Some(mut mounted) = Mounted::start(&sandbox, "the end of mounts") else { return };
        // A file that is open does not keep the mount.
        let open = File::open(mounted.at("file")).expect("it opens");
        let ended = mounted.end(signal);
        match signal {
            Signal::KILL => assert_eq!(ended.signal(), Some(Signal::KILL.as_raw())),
            _ => drop(ended.expect_success()),
        }
        wait_until("the directory is unmounted", || !is_mounted(&mounted.dir));
        drop(open);
        let left = fs::read_dir(&mounted.dir).expect("the directory can be used again").count();
        assert_eq!(left, 0);
    }
    let Some(mut mounted) = Mounted::start(&sandbox, "the end of mounts") else { return };
    assert!(Command::new("umount").arg(&mounted.dir).status().is_ok_and(|status| status.success()));
    mounted.process.take().expect("it is mounted").wait().expect_success();
}
