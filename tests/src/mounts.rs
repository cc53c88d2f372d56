//! A place where file systems can be mounted while processes run there, and nobody else sees it.

use crate::{Running, STORED_DIR, Sandbox, could_not_run};
use std::path::Path;
use std::process::{Command, Stdio};

/// A mount namespace; it goes with the value, and with it what is mounted there.
pub struct Mounts {
    holder: Running,
}

impl Mounts {
    /// Makes one; None, and said so, where this machine does not let us.
    pub fn start(what: &str) -> Option<Mounts> {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /tmp && nsenter -V"]);
        let quiet = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !quiet.status().is_ok_and(|status| status.success()) {
            could_not_run(what, "mounting in a namespace of one's own needs root, unshare and nsenter");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "echo ready >&2; exec sleep infinity"]);
        let holder = Running::start(&mut command);
        holder.wait_for_stderr("ready");
        Some(Mounts { holder })
    }

    /// Mounts a file system of its own on a directory, which is made: options of a tmpfs, as in `size=1m`.
    #[track_caller]
    pub fn small_disk(&self, dir: &Path, options: &str) {
        std::fs::create_dir_all(dir).expect("our own directory takes another");
        self.run(&["mount", "-t", "tmpfs", "-o", options, "tmpfs", &text(dir)]);
    }

    /// Lets nobody write below a directory any more: what is there stays, and files that are open stay so.
    #[track_caller]
    pub fn make_read_only(&self, dir: &Path) {
        let dir = text(dir);
        // A mount with open files does not become read-only: one on top of it does, by which all go from now on.
        self.run(&["mount", "--bind", &dir, &dir]);
        self.run(&["mount", "-o", "remount,bind,ro", &dir]);
    }

    /// Takes a disk away: what is open there comes to nothing, and nothing that was there can be opened any more.
    #[track_caller]
    pub fn lose(&self, dir: &Path) {
        let dir = text(dir);
        self.run(&["find", &dir, "-type", "f", "-exec", "truncate", "--size", "0", "{}", "+"]);
        self.run(&["mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", &dir]);
    }

    /// Puts the empty device in place of another one.
    #[track_caller]
    pub fn take_device(&self, device: &Path) {
        self.run(&["mount", "--bind", "/dev/null", &text(device)]);
    }

    /// Fills a file system to its last byte.
    #[track_caller]
    pub fn fill(&self, dir: &Path) {
        // It ends when there is no room, which is an error.
        let fill = format!("cat /dev/zero > '{}/filler' 2> /dev/null; true", text(dir));
        self.run(&["sh", "-c", &fill]);
    }

    /// The names of all files below a directory, but for hidden ones and those of stored files.
    #[track_caller]
    pub fn files(&self, dir: &Path) -> Vec<String> {
        let found = self.run(&[
            "find",
            &text(dir),
            "-ignore_readdir_race",
            "-mindepth",
            "1",
            "-name",
            "[!.]*",
            "-not",
            "-path",
            "*/.*",
        ]);
        let lines = found.lines().filter(|file| !file.contains(&format!("/{STORED_DIR}")));
        lines.map(str::to_string).collect()
    }

    /// The same command, run here. `nsenter` becomes the command, so that signals reach it; it begins where the command
    /// says, and has the environment of a test's process.
    pub fn inside(&self, sandbox: &Sandbox, command: &Command) -> Command {
        let mut entered = self.entering();
        sandbox.clean(&mut entered);
        // A new namespace begins at its root.
        entered.arg(format!("--wd={}", sandbox.path("").display()));
        entered.arg(command.get_program()).args(command.get_args());
        entered
    }

    fn entering(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        Running::start(self.entering().args(words)).wait().expect_success().text()
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a sandbox has a plain path").to_string()
}
