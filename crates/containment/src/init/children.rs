//! The children of an init: programs, and whatever was left behind by them.

use crate::message::{Containment, Report};
use crate::process::ChildNews;
use crate::processes::{Descendant, descendants_of, group_of, is_zombie};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest wait for killed processes: only those that wait for a device take long.
const END_WAIT_MAX: Duration = Duration::from_secs(10);
/// Wait between two looks at processes that multiply.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Looks after which a program is not kept any more, because its leftovers multiply faster than they can be killed.
const LOOKS_MAX: u32 = 100;

/// The children of an init.
pub(crate) struct Children {
    containment: Containment,
    /// Programs that have not been reaped, with the pipe for their report.
    programs: BTreeMap<i32, OwnedFd>,
    news: ChildNews,
    here: i32,
}

/// Writes a report. A failure means that the engine does not wait for it any more.
pub(crate) fn tell(pipe: &OwnedFd, report: Report) {
    while let Err(Errno::INTR) = rustix::io::write(pipe, &report.to_bytes()) {}
}

impl Children {
    pub fn new(containment: Containment) -> std::io::Result<Self> {
        let here = rustix::process::getpid().as_raw_pid();
        Ok(Self { containment, programs: BTreeMap::new(), news: ChildNews::new()?, here })
    }

    /// Returns a descriptor that is readable when a child may have ended.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_descriptor()
    }

    pub fn add(&mut self, pid: i32, report: OwnedFd) {
        self.programs.insert(pid, report);
    }

    /// Closes the pipes for reports.
    pub fn forget_programs(&mut self) {
        self.programs.clear();
    }

    pub fn descendants(&self) -> Vec<Descendant> {
        descendants_of(self.here)
    }

    /// Reaps everything that has ended, and reports the ends of programs. Returns whether a child is left.
    pub fn reap(&mut self) -> bool {
        self.news.clear();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(report) = self.programs.remove(&pid.as_raw_pid()) {
                        tell(&report, Report::Ended { status: status.as_raw() });
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Kills the process group of a program, or the rest of the group if the program has ended.
    pub fn kill(&mut self, pid: i32) {
        if !self.reap() {
            return;
        }
        match self.containment {
            // A program that has not been reaped keeps its number.
            _ if self.programs.contains_key(&pid) => kill_group(pid),
            // Only processes of the same slot have numbers here.
            Containment::Namespaces => kill_group(pid),
            Containment::Subreaper => {
                let members = self.descendants().into_iter().filter(|each| group_of(each.pid) == Some(pid));
                members.for_each(Descendant::kill);
            }
        }
    }

    /// Kills everything, once.
    pub fn kill_all(&self) {
        match self.containment {
            Containment::Namespaces => kill_namespace(),
            Containment::Subreaper => self.descendants().into_iter().for_each(Descendant::kill),
        }
    }

    /// Kills everything but one program, and waits for the ends; returns whether nothing else is left.
    pub fn end_others(&mut self, kept: Option<i32>) -> bool {
        let until = Instant::now() + END_WAIT_MAX;
        let mut looks = 0;
        while self.reap() {
            let kept = kept.filter(|_| looks < LOOKS_MAX);
            let others: Vec<Descendant> = match (kept, self.containment) {
                // One call reaches everything, also processes that are being made.
                (None, Containment::Namespaces) => {
                    kill_namespace();
                    Vec::new()
                }
                _ => self.others(kept),
            };
            if kept.is_some() && others.is_empty() {
                return true;
            }
            others.iter().for_each(|other| other.kill());
            if Instant::now() >= until {
                return false;
            }
            self.news.wait(LOOK_AGAIN_AFTER);
            looks += 1;
        }
        true
    }

    /// Returns the living descendants except a program.
    fn others(&self, kept: Option<i32>) -> Vec<Descendant> {
        let all = self.descendants().into_iter();
        // A kept program may not reap its children.
        all.filter(|each| Some(each.pid) != kept && !is_zombie(each.pid)).collect()
    }
}

fn kill_group(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The only possible error is that no process is left, which is the goal.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

/// Kills all processes of this PID namespace but its init.
fn kill_namespace() {
    // SAFETY: sends a signal; this process is the first of its namespace, which the call leaves out.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}
