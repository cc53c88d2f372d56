//! The spawner's own process: it makes inits, and ends whatever an init that was killed has left behind.

use crate::channel::Channel;
use crate::init::{self, InitEnds, User};
use crate::message::{Answer, Containment, NewInit, Refusal};
use crate::process::{
    ChildNews, adopt_orphans, erase_words_and_variables, leave_signals_to_engine, name, run_to_end,
};
use crate::processes::{Descendant, descendants_of};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitOptions;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Wait between two looks at leftovers that are being killed.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Longest time for which leftovers are killed: those that wait for a device do not end.
const KILL_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the inits when the engine has ended.
const INITS_END_MAX: Duration = Duration::from_secs(15);

struct Spawner {
    engine: Channel,
    news: ChildNews,
    inits: BTreeSet<i32>,
    here: i32,
    /// Kept open while the spawner lives: the inits have the other end.
    life: (OwnedFd, OwnedFd),
}

/// Serves the engine until it has ended, and then waits for the inits.
pub(super) fn run(engine: Channel) {
    name(c"sailfish-spawn");
    erase_words_and_variables();
    // Ctrl-C reaches the processes of the terminal's group: the engine decides about the programs.
    let _ = rustix::process::setpgid(None, None);
    leave_signals_to_engine();
    if adopt_orphans("adopt orphans").is_err() {
        return;
    }
    let (Ok(news), Ok(life)) = (ChildNews::new(), pipe_with(PipeFlags::CLOEXEC)) else { return };
    let here = rustix::process::getpid().as_raw_pid();
    let mut spawner = Spawner { engine, news, inits: BTreeSet::new(), here, life };
    while spawner.serve().is_some() {}
    spawner.wait_for_inits();
}

impl Spawner {
    /// Waits for news and handles it; None once the engine has ended.
    fn serve(&mut self) -> Option<()> {
        let mut watched = [self.engine.as_descriptor(), self.news.as_descriptor()]
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let [has_asked, has_news] = watched.map(|each| !each.revents().is_empty());
        if has_news {
            self.end_leftovers(KILL_MAX);
        }
        if has_asked {
            let received = self.engine.receive::<NewInit>().ok()??;
            let engine = Channel::from_descriptor(received.descriptors.into_iter().next()?);
            self.make_init(engine, received.message.containment);
        }
        Some(())
    }

    fn make_init(&mut self, engine: Channel, containment: Containment) {
        let user = User::of_this_process();
        let made = match containment {
            Containment::Subreaper => self.fork(&engine, containment, None),
            Containment::Namespaces if user.uid == 0 => match self.fork(&engine, containment, None) {
                // Root of a container without the right to make namespaces.
                Err(Errno::PERM) => self.fork(&engine, containment, Some(user)),
                other => other,
            },
            Containment::Namespaces => self.fork(&engine, containment, Some(user)),
        };
        match made {
            Ok(pid) => drop(self.inits.insert(pid)),
            Err(error) => {
                let refusal = Refusal { step: "make namespaces".to_string(), errno: error.raw_os_error() };
                // If the engine does not wait, there is nobody to tell.
                let _ = engine.send(&Answer::Refused(refusal), &[]);
            }
        }
    }

    fn fork(&self, engine: &Channel, containment: Containment, user: Option<User>) -> Result<i32, Errno> {
        let flags = match containment {
            Containment::Subreaper => 0,
            Containment::Namespaces => init::flags(user),
        };
        // SAFETY: without a new stack the call is a fork. This process has one thread; the child never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) };
        match pid {
            ..0 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            0 => run_to_end(|| self.become_init(engine, containment, user)),
            pid => i32::try_from(pid).map_err(|_| Errno::OVERFLOW),
        }
    }

    /// Runs in the new process, with copies of everything.
    fn become_init(&self, engine: &Channel, containment: Containment, user: Option<User>) {
        let (Ok(engine), Ok(spawner)) =
            (engine.as_descriptor().try_clone_to_owned(), self.life.0.try_clone())
        else {
            return;
        };
        let kept = [engine, spawner];
        let Ok([engine, spawner]) = crate::process::keep_only(kept) else { return };
        init::run(InitEnds { engine: Channel::from_descriptor(engine), spawner, containment, user });
    }

    /// Reaps inits, and ends what they left: their programs are children of this process now.
    fn end_leftovers(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            self.reap();
            let left = self.leftovers();
            let is_empty = left.is_empty();
            left.into_iter().for_each(Descendant::kill);
            if is_empty || Instant::now() >= until {
                return;
            }
            self.news.wait(LOOK_AGAIN_AFTER);
        }
    }

    fn reap(&mut self) {
        self.news.clear();
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.inits.remove(&pid.as_raw_pid());
        }
    }

    /// Returns the descendants of this process that belong to no living init.
    fn leftovers(&self) -> Vec<Descendant> {
        let mut left: Vec<Descendant> = descendants_of(self.here);
        let mut kept: BTreeSet<i32> = self.inits.clone();
        // Parents come before their children.
        left.retain(|each| {
            let is_kept = kept.contains(&each.pid) || kept.contains(&each.parent);
            if is_kept {
                kept.insert(each.pid);
            }
            !is_kept
        });
        left
    }

    fn wait_for_inits(&mut self) {
        let until = Instant::now() + INITS_END_MAX;
        loop {
            self.end_leftovers(Duration::ZERO);
            if (self.inits.is_empty() && self.leftovers().is_empty()) || Instant::now() >= until {
                return;
            }
            self.news.wait(LOOK_AGAIN_AFTER);
        }
    }
}
