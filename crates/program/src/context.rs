//! Context of a user function from the node, and the registry of live processes.

use crate::idle::Idle;
use crate::killed::OutOfMemory;
use crate::reports::Reports;
use crate::sandbox::Sandbox;
use api::{Blame, TaskFailure};
use ids::JobId;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Context that the node gives to the functions of one attempt.
#[derive(Clone, Debug)]
pub struct FunctionContext {
    /// The registry of live processes of this attempt.
    pub programs: Arc<Programs>,
    /// Current directory of programs, with the files given with `--file`.
    pub work_dir: PathBuf,
    /// Directory in which the user typed the command.
    pub start_dir: PathBuf,
    /// Environment in addition to the variables that always pass through: the job's `--env` and the `SAILFISH_`
    /// variables.
    pub env: Vec<(String, String)>,
    /// Those of them that differ between attempts of the job: a program that stays gets them with each task.
    pub task_env: Vec<(String, String)>,
    /// The job whose next attempts on this thread may reuse a program of this one; None: each attempt starts its own.
    pub kept_for: Option<JobId>,
    /// Maximum size of key plus value.
    pub record_bytes_max: u64,
    /// Size of the buffer between a program and the engine, in each direction.
    pub buffer_bytes: usize,
    /// Set before the processes of a cancelled attempt are killed.
    pub cancelled: Arc<AtomicBool>,
    /// File to which standard error is also copied, up to a limit.
    pub stderr_log: Option<PathBuf>,
    /// Collector of the counters and the status that programs of this attempt report.
    pub reports: Arc<Reports>,
    /// Sandbox of programs; None: they may access whatever the node may.
    pub sandbox: Option<Arc<Sandbox>>,
    /// True if an exit code other than 0 is no failure; an end by a signal still is.
    pub any_exit_code: bool,
}

impl FunctionContext {
    /// Returns the failure of a cancelled attempt, if it was cancelled.
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

/// Time for which the end of the process waits for programs that are being started.
const STARTING_MAX: Duration = Duration::from_secs(2);

/// The live process groups of a node, so that Ctrl-C and cancelled attempts can end them.
#[derive(Debug, Default)]
pub struct Programs {
    live: Mutex<Live>,
    /// The starting program is registered, or could not be started.
    started: Condvar,
    pub(crate) out_of_memory: OutOfMemory,
    /// All starting programs are registered.
    pub(crate) idle: Mutex<Vec<Idle>>,
}

#[derive(Debug, Default)]
struct Live {
    /// By process group, whose id is that of its first process.
    groups: BTreeMap<i32, Arc<AtomicBool>>,
    /// Number of programs that may already run and are not registered yet.
    starting: usize,
    /// The process is about to end: no more programs are started.
    closed: bool,
}

/// Guard held while a program is started, until its group is registered.
#[derive(Debug)]
pub(crate) struct Starting<'a>(&'a Programs);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
        self.0.started.notify_all();
    }
}

impl Programs {
    /// Makes an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Kills every live process group. An attempt whose `cancelled` flag is set ends as cancelled, the others as failed
    /// by a signal: set the flags first.
    pub fn kill_all(&self) {
        self.lock().groups.keys().copied().for_each(kill_group);
    }

    /// Kills every live process group because this process is about to end, also those that are being started: the
    /// death of its parent would end such a program, but not its children. No program is started afterwards.
    pub fn end_all(&self) {
        let mut live = self.lock();
        live.closed = true;
        let waited = self.started.wait_timeout_while(live, STARTING_MAX, |live| live.starting > 0);
        let (live, _) = waited.unwrap_or_else(PoisonError::into_inner);
        live.groups.keys().copied().for_each(kill_group);
    }

    /// Returns a guard to hold from before a program is started until its group is registered. Err once the process
    /// ends.
    pub(crate) fn starting(&self) -> Result<Starting<'_>, TaskFailure> {
        let mut live = self.lock();
        if live.closed {
            return Err(cancelled_failure());
        }
        live.starting += 1;
        Ok(Starting(self))
    }

    /// Kills the process groups of the attempts whose `cancelled` flag is set.
    pub fn kill_cancelled(&self) {
        for (group, cancelled) in &self.lock().groups {
            if cancelled.load(Ordering::Relaxed) {
                kill_group(*group);
            }
        }
    }

    /// Kills the process group of the first of these attempts, identified by `cancelled` flags, that has one; returns
    /// whether any had. The attempt fails as if something else had killed its program.
    pub fn kill_one_of(&self, attempts: &[Arc<AtomicBool>]) -> bool {
        let live = self.lock();
        let groups = &live.groups;
        let of = |attempt: &Arc<AtomicBool>| groups.iter().find(|(_, flag)| Arc::ptr_eq(flag, attempt));
        let group = attempts.iter().find_map(of).map(|(group, _)| *group);
        group.into_iter().for_each(kill_group);
        group.is_some()
    }

    /// Returns the number of live process groups.
    pub fn live_count(&self) -> usize {
        self.lock().groups.len()
    }

    /// Registers a new group. A flag that was set before takes effect at once, so that no process escapes between the
    /// setting of the flag and the killing.
    pub(crate) fn register(&self, group: i32, cancelled: &Arc<AtomicBool>) {
        let mut live = self.lock();
        live.groups.insert(group, cancelled.clone());
        if cancelled.load(Ordering::Relaxed) {
            kill_group(group);
        }
    }

    /// Kills the rest of a group and removes it. The caller reaps the leader afterwards, not before: until then the id
    /// cannot be reused.
    pub(crate) fn kill_and_forget(&self, group: i32) {
        let mut live = self.lock();
        kill_group(group);
        live.groups.remove(&group);
    }

    /// Kills a group if it is still registered.
    pub(crate) fn kill(&self, group: i32) {
        let live = self.lock();
        if live.groups.contains_key(&group) {
            kill_group(group);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kill_group(group: i32) {
    if let Some(pid) = Pid::from_raw(group) {
        // The only possible error is that no process is left, which is the goal.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn end_waits_for_a_program_being_started() {
        let programs = Programs::new();
        let starting = programs.starting().unwrap();
        let mut program = Command::new("sleep").arg("3600").process_group(0).spawn().unwrap();
        let status = std::thread::scope(|scope| {
            scope.spawn(|| programs.end_all());
            while !programs.lock().closed {
                std::thread::yield_now();
            }
            programs.register(Pid::from_child(&program).as_raw_pid(), &Arc::default());
            drop(starting);
            program.wait().unwrap()
        });
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        assert_eq!(programs.starting().unwrap_err().blame, Blame::Cancelled);
    }
}
