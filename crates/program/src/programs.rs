//! The registry of live programs, and the ends of all that they start.

use crate::process::idle::Idle;
use crate::process::killed::OutOfMemory;
use crate::slots::{Slots, TemporaryDir};
use api::{Blame, TaskFailure};
use containment::{Containment, ContainmentError, SlotInit};
use ids::JobId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) fn cancelled_failure() -> TaskFailure {
    TaskFailure::new(Blame::Cancelled, "the attempt was cancelled")
}

/// Time for which the end of the process waits for programs that are being started.
const STARTING_MAX: Duration = Duration::from_secs(2);

/// The live programs of a node, so that Ctrl-C and cancelled attempts can end them.
#[derive(Debug)]
pub struct Programs {
    live: Mutex<Live>,
    /// The starting program is registered, or could not be started.
    started: Condvar,
    pub(crate) out_of_memory: OutOfMemory,
    /// All starting programs are registered.
    pub(crate) idle: Mutex<Vec<Idle>>,
    pub(crate) slots: Slots,
}

/// Number of a registered program.
pub(crate) type ProgramNumber = u64;

/// A program and the init below which it runs.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub init: Arc<SlotInit>,
    pub pid: i32,
}

#[derive(Debug)]
struct LiveProgram {
    member: Member,
    /// Flag of its attempt.
    cancelled: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Live {
    programs: BTreeMap<ProgramNumber, LiveProgram>,
    next_number: ProgramNumber,
    /// Number of programs that may already run and are not registered yet.
    starting: usize,
    /// The process is about to end: no more programs are started.
    closed: bool,
}

/// Guard held while a program is started, until it is registered.
#[derive(Debug)]
pub(crate) struct Starting<'a>(&'a Programs);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
        self.0.started.notify_all();
    }
}

impl Default for Programs {
    fn default() -> Self {
        Self::new()
    }
}

impl Programs {
    /// Makes an empty registry, whose programs see the machine as this process does.
    pub fn new() -> Self {
        Self::contained(Containment::Subreaper)
    }

    /// Makes an empty registry whose programs are contained like this.
    pub fn contained(containment: Containment) -> Self {
        Self {
            live: Mutex::default(),
            started: Condvar::new(),
            out_of_memory: OutOfMemory::default(),
            idle: Mutex::default(),
            slots: Slots::new(containment),
        }
    }

    /// Starts the process from which programs come, while this process is small. Without it the first program does
    /// that.
    pub fn prepare(&self) -> Result<(), ContainmentError> {
        self.slots.prepare()
    }

    /// Changes the containment of later programs to one that this machine allows; returns the refusal of the better
    /// one: the step that the kernel, or a container around this process, does not allow.
    pub fn contain_as_allowed(&self) -> Result<(), ContainmentError> {
        self.slots.check().inspect_err(|_| self.slots.set_containment(Containment::Subreaper))
    }

    /// Sets where contained programs have their `/tmp`: each prefix becomes the path of a directory by a number after
    /// it, and the first that can be made is used. Without any it is in memory.
    pub fn set_temporary(&self, prefixes: Vec<PathBuf>) {
        self.slots.set_temporary(prefixes);
    }

    /// Makes a private directory as [`Self::private_directory`], or returns one that was given back, which has no more than
    /// these folders.
    pub fn spare_directory(&self, folders: &BTreeSet<PathBuf>) -> std::io::Result<TemporaryDir> {
        self.slots.spare_directory(folders)
    }

    /// Takes such a directory for a later program of the same user. All processes that used it must have ended. These
    /// folders stay in it.
    pub fn give_back(&self, dir: TemporaryDir, folders: BTreeSet<PathBuf>) {
        self.slots.give_back(dir, folders);
    }

    /// Makes a private directory on one of these disks, or, without any, where the machine keeps temporary files.
    pub fn private_directory(&self) -> std::io::Result<TemporaryDir> {
        self.slots.private_directory()
    }

    /// Returns the private directory of this thread for sockets by which its programs reach the engine.
    pub fn socket_directory(&self) -> std::io::Result<PathBuf> {
        self.slots.sockets_here()
    }

    /// Kills everything that the programs of all attempts have started. An attempt whose `cancelled` flag is set ends
    /// as cancelled, the others as failed by a signal: set the flags first.
    pub fn kill_all(&self) {
        self.lock().programs.values().for_each(|program| program.member.init.kill_all());
    }

    /// Ends everything because this process is about to end, also programs that are being started. None is started
    /// afterwards.
    pub fn end_all(&self) {
        let mut live = self.lock();
        live.closed = true;
        let waited = self.started.wait_timeout_while(live, STARTING_MAX, |live| live.starting > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.kill_all();
        for init in self.slots.inits() {
            // An init that has ended has ended everything.
            let _ = init.end_others(None);
        }
    }

    /// Returns a guard to hold from before a program is started until it is registered. Err once the process ends.
    pub(crate) fn starting(&self) -> Result<Starting<'_>, TaskFailure> {
        let mut live = self.lock();
        if live.closed {
            return Err(cancelled_failure());
        }
        live.starting += 1;
        Ok(Starting(self))
    }

    /// Kills everything that the attempts whose `cancelled` flag is set have started.
    pub fn kill_cancelled(&self) {
        for program in self.lock().programs.values() {
            if program.cancelled.load(Ordering::Relaxed) {
                program.member.init.kill_all();
            }
        }
    }

    /// Kills the process group of a program of the first of these attempts, identified by `cancelled` flags, that has
    /// one; returns whether any had. The attempt fails as if something else had killed its program.
    pub fn kill_one_of(&self, attempts: &[Arc<AtomicBool>]) -> bool {
        let live = self.lock();
        let of = |attempt: &Arc<AtomicBool>| {
            live.programs.values().find(|program| Arc::ptr_eq(&program.cancelled, attempt))
        };
        let member = attempts.iter().find_map(of).map(|program| &program.member);
        member.into_iter().for_each(Member::kill);
        member.is_some()
    }

    /// Returns the number of live programs.
    pub fn live_count(&self) -> usize {
        self.lock().programs.len()
    }

    /// Begins an attempt on this thread: a program that waits for a task of another job is ended, since it would mostly
    /// wait in vain.
    pub fn begin_attempt(&self, job: JobId) {
        self.end_idle_except(job);
        let kept = self.idle_here();
        self.slots.begin_attempt(Some(job), kept);
    }

    /// Lets the programs of later attempts, and of attempts that have started none, see what was mounted until now. Others
    /// may not: their mounts were made before.
    pub fn see_mounts(&self) {
        self.slots.see_mounts();
    }

    /// Ends everything that this thread's attempt has left behind, except a program that waits for the next one.
    pub fn end_attempt(&self) {
        let kept = self.idle_here();
        self.slots.end_attempt(kept);
    }

    /// Returns the processor time, user and system, of the programs of this thread's last attempt, which has ended, in
    /// microseconds. A program that lives on for the next attempt counts for each as far as it ran then.
    pub fn take_cpu_us(&self) -> u64 {
        self.slots.take_cpu_us()
    }

    /// Ends everything of this thread, which runs no more programs.
    pub fn leave_slot(&self) {
        self.end_idle_here();
        self.slots.leave();
    }

    /// Ends the processes of containment, once all slots have ended, and waits for them: nothing is left, and their
    /// processor time counts for this process. The next program would start them again.
    pub fn close(&self) {
        self.end_idle();
        self.slots.close();
    }

    /// Registers a new program. A flag that was set before takes effect at once, so that no process escapes between the
    /// setting of the flag and the killing.
    pub(crate) fn register(&self, member: Member, cancelled: &Arc<AtomicBool>) -> ProgramNumber {
        let mut live = self.lock();
        if cancelled.load(Ordering::Relaxed) {
            member.init.kill_all();
        }
        let number = live.next_number;
        live.next_number += 1;
        live.programs.insert(number, LiveProgram { member, cancelled: Arc::clone(cancelled) });
        number
    }

    /// Kills the group of a program, or the rest of it, and removes the program.
    pub(crate) fn kill_and_forget(&self, number: ProgramNumber) {
        if let Some(program) = self.lock().programs.remove(&number) {
            program.member.kill();
        }
    }

    /// Removes a program.
    pub(crate) fn forget(&self, number: ProgramNumber) {
        self.lock().programs.remove(&number);
    }

    /// Kills a group if it is still registered.
    pub(crate) fn kill(&self, number: ProgramNumber) {
        if let Some(program) = self.lock().programs.get(&number) {
            program.member.kill();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn kill(&self) {
        self.init.kill(self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_waits_for_a_program_being_started() {
        let programs = Programs::new();
        let starting = programs.starting().unwrap();
        std::thread::scope(|scope| {
            let end = scope.spawn(|| programs.end_all());
            while !programs.lock().closed {
                std::thread::yield_now();
            }
            assert!(!end.is_finished());
            drop(starting);
        });
        assert_eq!(programs.starting().unwrap_err().blame, Blame::Cancelled);
    }
}
