//! The namespaces of a slot: processes, mounts, and users where the engine is not root.

use crate::message::Refusal;
use crate::process::refused;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// The smallest and the largest number after which the processes of a slot are counted. Two programs that name files by
/// their process number rarely meet.
const FIRST_PID_MIN: u32 = 300;
const FIRST_PID_MAX: u32 = 30_000;

/// User and group of the engine. In a new user namespace they are the only ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    pub fn of_this_process() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// Returns the flags of a clone that makes the namespaces of a slot.
pub(crate) fn flags(user: Option<User>) -> i32 {
    let of_user = if user.is_some() { libc::CLONE_NEWUSER } else { 0 };
    libc::CLONE_NEWPID | libc::CLONE_NEWNS | of_user
}

/// Completes the namespaces in which this process was made: maps the user, and mounts a `/proc` of its own.
pub(crate) fn enter(user: Option<User>) -> Result<(), Refusal> {
    if let Some(User { uid, gid }) = user {
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
        write("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
    }
    // Later mounts of the machine arrive here, and none of ours leaves.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(refused("separate the mounts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(refused("mount /proc"))?;
    let span = u64::from(FIRST_PID_MAX - FIRST_PID_MIN);
    let last_pid = getrandom::u64().map_or(0, |random| random % span) + u64::from(FIRST_PID_MIN);
    // Without it numbers begin at 2, which is only less comfortable.
    let _ = write("/proc/sys/kernel/ns_last_pid", &last_pid.to_string());
    Ok(())
}

fn write(path: &str, text: &str) -> Result<(), Refusal> {
    std::fs::write(path, text).map_err(|error| Refusal {
        step: format!("write {path}"),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    })
}
