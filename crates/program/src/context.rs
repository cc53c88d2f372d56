//! What a user function gets from the node that runs it, and the registry of the processes that live.

use crate::reports::Reports;
use crate::sandbox::Sandbox;
use api::{Blame, TaskFailure};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the node gives to the functions of one attempt.
#[derive(Clone, Debug)]
pub struct FunctionContext {
    /// The registry in which processes of this attempt stand while they live.
    pub programs: Arc<Programs>,
    /// Current directory of programs; the files given with `--file` lie there.
    pub work_dir: PathBuf,
    /// Directory in which the user typed the command.
    pub start_dir: PathBuf,
    /// Environment on top of what always passes through: the job's `--env` and the `SAILFISH_` variables.
    pub env: Vec<(String, String)>,
    /// Largest key plus value accepted.
    pub record_bytes_max: u64,
    /// Size of the buffer between a program and the engine, one for each direction.
    pub buffer_bytes: usize,
    /// Set before the processes of a cancelled attempt are killed.
    pub cancelled: Arc<AtomicBool>,
    /// File to which standard error is copied as well, up to a limit.
    pub stderr_log: Option<PathBuf>,
    /// Takes the counters and the status that programs of this attempt report.
    pub reports: Arc<Reports>,
    /// What programs may reach; None: whatever the node may.
    pub sandbox: Option<Arc<Sandbox>>,
    /// A program that exits with another code than 0 has not failed; one that a signal ended has.
    pub any_exit_code: bool,
}

impl FunctionContext {
    /// The failure of an attempt that was told to stop, if it was.
    pub fn check_cancelled(&self) -> Result<(), TaskFailure> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(cancelled_failure()),
            false => Ok(()),
        }
    }
}

pub(crate) fn cancelled_failure() -> TaskFailure {
    TaskFailure::new(Blame::Cancelled, "the attempt was cancelled")
}

/// The live process groups of a node, so that Ctrl-C and cancelled attempts can end them.
#[derive(Debug, Default)]
pub struct Programs {
    /// By process group, which has the id of its first process.
    groups: Mutex<BTreeMap<i32, Arc<AtomicBool>>>,
}

impl Programs {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Kills every live process group. An attempt whose `cancelled` flag is set then ends as cancelled,
    /// the others as failed by a signal: set the flags first.
    pub fn kill_all(&self) {
        for group in self.lock().keys() {
            kill_group(*group);
        }
    }

    /// Kills the process groups of the attempts whose `cancelled` flag is set.
    pub fn kill_cancelled(&self) {
        for (group, cancelled) in self.lock().iter() {
            if cancelled.load(Ordering::Relaxed) {
                kill_group(*group);
            }
        }
    }

    /// Kills the process group of the first of these attempts, each told by its `cancelled` flag, that has one; whether any had. The
    /// attempt fails as if its program had been killed by somebody else.
    pub fn kill_one_of(&self, attempts: &[Arc<AtomicBool>]) -> bool {
        let groups = self.lock();
        let of = |attempt: &Arc<AtomicBool>| groups.iter().find(|(_, flag)| Arc::ptr_eq(flag, attempt));
        let group = attempts.iter().find_map(of).map(|(group, _)| *group);
        group.into_iter().for_each(kill_group);
        group.is_some()
    }

    /// Number of process groups that live.
    pub fn live_count(&self) -> usize {
        self.lock().len()
    }

    /// Takes a new group in. A flag that was set before the group stood here is obeyed at once, so that no
    /// process slips between the setting of the flag and the killing.
    pub(crate) fn register(&self, group: i32, cancelled: &Arc<AtomicBool>) {
        let mut groups = self.lock();
        groups.insert(group, cancelled.clone());
        if cancelled.load(Ordering::Relaxed) {
            kill_group(group);
        }
    }

    /// Kills what is left of a group and forgets it. The caller reaps the leader afterwards, not before:
    /// until then the id cannot belong to anybody else.
    pub(crate) fn kill_and_forget(&self, group: i32) {
        let mut groups = self.lock();
        kill_group(group);
        groups.remove(&group);
    }

    /// Kills a group if it still stands here.
    pub(crate) fn kill(&self, group: i32) {
        if self.lock().contains_key(&group) {
            kill_group(group);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<AtomicBool>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kill_group(group: i32) {
    if let Some(pid) = Pid::from_raw(group) {
        // The only error possible is that nobody is left, which is what we want.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}
