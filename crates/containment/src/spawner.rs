//! The process from which all inits come. It is forked before the engine's memory grows, so that a copy of it is cheap.

mod main_loop;

use crate::channel::{Channel, is_ready_within};
use crate::error::ContainmentError;
use crate::message::{Answer, Containment, NewInit};
use crate::process::{keep_only, run_to_end};
use crate::slot_init::SlotInit;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Time for a new init to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// Time for the spawner to end after the engine has let it go.
const END_MAX: Duration = Duration::from_secs(2);

/// The engine's side of the spawner. Dropping it ends the spawner, once its inits have ended.
#[derive(Debug)]
pub struct Spawner {
    /// None once it is let go.
    channel: Option<Channel>,
    pid: Pid,
    process: OwnedFd,
}

impl Spawner {
    /// Forks the spawner off this process: early, when the process is small.
    pub fn start() -> Result<Self, ContainmentError> {
        let io = |error| ContainmentError::Io { step: "start the spawner of programs", error };
        let (ours, its) = Channel::pair().map_err(io)?;
        // SAFETY: the child runs code of this crate alone, uses no lock of another thread (the C library makes its
        // allocator usable), and never returns.
        let pid = match unsafe { libc::fork() } {
            0 => run_to_end(|| {
                let Ok([channel]) = keep_only([its.into_descriptor()]) else { return };
                main_loop::run(Channel::from_descriptor(channel));
            }),
            pid => pid,
        };
        let pid = if pid < 0 { None } else { Pid::from_raw(pid) };
        let pid = pid.ok_or_else(|| io(std::io::Error::last_os_error()))?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| io(error.into()))?;
        Ok(Self { channel: Some(ours), pid, process })
    }

    /// Returns whether it still runs.
    pub fn is_alive(&self) -> bool {
        is_ready_within(self.process.as_fd(), Duration::ZERO).is_ok_and(|has_ended| !has_ended)
    }

    /// Makes the init of a slot. Errors: the spawner has ended; a namespace is refused
    /// ([`ContainmentError::Refused`]).
    pub fn new_init(&self, containment: Containment) -> Result<SlotInit, ContainmentError> {
        let io = |error| ContainmentError::Io { step: "start the init of a slot", error };
        let (ours, its) = Channel::pair().map_err(io)?;
        let channel = self.channel.as_ref().ok_or(ContainmentError::SpawnerEnded)?;
        channel
            .send(&NewInit { containment }, &[its.as_descriptor()])
            .map_err(|_| ContainmentError::SpawnerEnded)?;
        drop(its);
        match ours.receive_within::<Answer>(READY_MAX).map_err(io)?.map(|received| received.message) {
            Some(Answer::Ready) => Ok(SlotInit::new(ours)),
            Some(Answer::Refused(refusal)) => Err(ContainmentError::Refused(refusal.to_string())),
            _ => Err(ContainmentError::SpawnerEnded),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.channel = None;
        if is_ready_within(self.process.as_fd(), END_MAX).is_ok_and(|has_ended| has_ended) {
            let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
    }
}
