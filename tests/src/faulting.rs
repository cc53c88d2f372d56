//! Making things go wrong: processes to watch until they are gone, file systems that are full or read-only.

use crate::{Sandbox, WAIT_MAX, could_not_run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A process of somebody else, to see whether it ends.
pub struct Watched {
    pid: String,
    handle: Option<OwnedFd>,
}

impl Watched {
    /// Watches the process of this number. One that is gone already counts as ended.
    #[track_caller]
    pub fn new(pid: &str) -> Watched {
        let number = pid.trim().parse().ok().and_then(Pid::from_raw);
        let number = number.unwrap_or_else(|| panic!("{pid:?} is no process id"));
        let handle = pidfd_open(number, PidfdFlags::empty()).ok();
        Watched { pid: pid.trim().to_string(), handle }
    }

    /// Whether it still runs.
    pub fn lives(&self) -> bool {
        !self.ends_within(Timespec::default())
    }

    /// Waits for its end; fails the test when that does not come.
    #[track_caller]
    pub fn wait_gone(&self) {
        let limit = Timespec::try_from(WAIT_MAX).expect("minutes fit");
        assert!(self.ends_within(limit), "process {} still runs", self.pid);
    }

    fn ends_within(&self, limit: Timespec) -> bool {
        let Some(handle) = &self.handle else { return true };
        let mut waiting = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut waiting, Some(&limit)).expect("a process can be waited for") > 0
    }
}

/// A small file system of its own for a run.
pub struct SmallDisk<'a> {
    /// Mount point; an existing directory.
    pub dir: &'a Path,
    /// Options of a tmpfs: `size=1m`.
    pub options: &'a str,
    /// Mounted, and then made read-only.
    pub read_only: bool,
}

/// Mounts `$1` disks, each given by three arguments (directory, options, rw or ro), then runs what follows. The
/// mounts are seen by nobody else, so what lies on them afterwards is listed on the last lines.
const SCRIPT: &str = r#"
count=$1; shift
listed=
while [ "$count" -gt 0 ]; do
  mount -t tmpfs -o "$2" tmpfs "$1" || exit 99
  if [ "$3" = ro ]; then mount -o remount,ro "$1" || exit 99; fi
  listed="$listed $1"; shift 3; count=$((count - 1))
done
"$@"
code=$?
for dir in $listed; do find "$dir" -mindepth 1 | sed 's/^/on-small-disk /'; done
exit $code
"#;

/// `command`, run with small file systems mounted; None, and said so, where this machine lets us mount nothing.
/// Standard output ends with a line `on-small-disk PATH` for each file left on them.
pub fn with_small_disks(sandbox: &Sandbox, disks: &[SmallDisk<'_>], command: &Command) -> Option<Command> {
    let unshare = namespace()?;
    let mut wrapped = Command::new("unshare");
    sandbox.clean(&mut wrapped);
    wrapped.args(unshare).args(["sh", "-c", SCRIPT, "sh"]).arg(disks.len().to_string());
    for disk in disks {
        wrapped.arg(disk.dir).arg(disk.options).arg(if disk.read_only { "ro" } else { "rw" });
    }
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            wrapped.env(name, value);
        }
    }
    Some(wrapped)
}

/// The files a run left on its small file systems, from what it printed.
pub fn left_on_small_disks(stdout: &str) -> Vec<&str> {
    stdout.lines().filter_map(|line| line.strip_prefix("on-small-disk ")).collect()
}

/// How a mount namespace is made here: as root, or inside a user namespace.
fn namespace() -> Option<&'static [&'static str]> {
    static FOUND: OnceLock<Option<&'static [&'static str]>> = OnceLock::new();
    let ways: [&'static [&'static str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let works = |way: &&[&str]| {
        let probe =
            "d=$(mktemp -d) && mount -t tmpfs -o size=64k tmpfs $d && umount $d; c=$?; rmdir $d; exit $c";
        let mut command = Command::new("unshare");
        command
            .args(*way)
            .args(["sh", "-c", probe])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = *FOUND.get_or_init(|| ways.into_iter().find(works));
    if found.is_none() {
        could_not_run(
            "full and read-only disks",
            "this machine lets us mount nothing, not even in a namespace",
        );
    }
    found
}
