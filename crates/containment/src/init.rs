//! The process that starts the programs of one slot, and adopts and ends everything that they leave behind.
//!
//! It is made by the spawner, has one thread, and obeys the engine through a socket whose end is its own end. Each
//! program has a pipe on which its start and its end are reported.

mod children;
mod group;
mod job_space;
mod namespaces;
mod usage;

use crate::channel::{Channel, Received};
use crate::launch::{Ends, launch};
use crate::message::{Answer, Containment, HoldersThen, Report, Request, VisibleBelow};
use crate::process;
use crate::processes::{group_of, holder, memory_of};
use children::Children;
use group::Groups;
use job_space::JobSpaces;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use usage::{OwnDirectories, measure, processor_us};

/// Ends of an init, given by the spawner.
pub(crate) struct InitEnds {
    pub engine: Channel,
    /// Closed when the spawner ends.
    pub spawner: OwnedFd,
    pub containment: Containment,
    /// User of the engine, for a new user namespace.
    pub user: Option<namespaces::User>,
}

pub(crate) use job_space::OWN;
pub(crate) use namespaces::{User, flags};

/// Serves one slot until the engine, or the spawner, has ended. Then nothing that it started is left.
pub(crate) fn run(ends: InitEnds) {
    let InitEnds { engine, spawner, containment, user } = ends;
    process::name(c"sailfish-init");
    let prepared = match containment {
        Containment::Subreaper => process::adopt_orphans("adopt orphans").map(|()| None),
        Containment::Namespaces => namespaces::enter(user).map(|()| Some(JobSpaces::new())),
    };
    let prepared = prepared.and_then(|spaces| spaces.transpose());
    let (answer, spaces) = match prepared {
        Ok(spaces) => (Answer::Ready, spaces),
        Err(refusal) => (Answer::Refused(refusal), None),
    };
    if engine.send(&answer, &[]).is_err() || answer != Answer::Ready {
        return;
    }
    let Ok(children) = Children::new(containment) else { return };
    let mut init = Init { engine, children, spaces, groups: Groups::default() };
    while init.serve(&spawner).is_some() {}
    // The programs did not end by themselves: without a report the engine knows that they were ended.
    init.children.forget_programs();
    init.children.end_others(None);
}

struct Init {
    engine: Channel,
    children: Children,
    /// None: all programs share the machine's namespaces.
    spaces: Option<JobSpaces>,
    groups: Groups,
}

impl Init {
    /// Waits for news and handles it; None once the engine or the spawner has ended.
    fn serve(&mut self, spawner: &OwnedFd) -> Option<()> {
        let engine = self.engine.as_descriptor();
        let mut watched = [engine, self.children.news(), spawner.as_fd()]
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let [has_asked, has_news, has_ended] = watched.map(|each| !each.revents().is_empty());
        if has_news {
            self.children.reap();
        }
        if has_ended {
            return None;
        }
        if has_asked {
            let received = self.engine.receive().ok()??;
            self.handle(received)?;
        }
        Some(())
    }

    fn handle(&mut self, received: Received<Request>) -> Option<()> {
        let answer = match received.message {
            Request::Start(program) => {
                self.start(*program, &received.descriptors);
                return Some(());
            }
            Request::Kill { pid } => {
                self.children.kill(pid);
                return Some(());
            }
            Request::KillAll => {
                self.children.kill_all();
                return Some(());
            }
            Request::EndOthers { kept } => {
                let all = self.children.end_others(kept);
                Answer::Ended { all, cpu_us: processor_us(kept) }
            }
            Request::NewJob(files) => {
                let all_ended = self.children.end_others(None);
                match &mut self.spaces {
                    // What still lives would see the namespaces of the next job.
                    Some(spaces) if all_ended => match spaces.begin(files) {
                        Ok(space) => Answer::Space(space),
                        Err(refusal) => Answer::Refused(refusal),
                    },
                    _ => Answer::Ended { all: all_ended, cpu_us: processor_us(None) },
                }
            }
            Request::Holders { file, then } => {
                let all = self.children.descendants();
                let holding: Vec<_> =
                    all.into_iter().filter_map(|each| Some((each, holder(each.pid, file)?))).collect();
                if then == HoldersThen::End {
                    holding.iter().for_each(|(each, _)| each.kill());
                }
                Answer::Holders(holding.into_iter().map(|(_, holder)| holder).collect())
            }
            Request::IsAlone { pid } => {
                let others = self.children.descendants().into_iter().filter(|each| each.pid != pid);
                let is_its = |other: i32| group_of(other) == Some(pid);
                let has_children = !crate::processes::descendants_of(pid).is_empty();
                Answer::IsAlone(!has_children && !others.into_iter().any(|other| is_its(other.pid)))
            }
            Request::Memory { pid } => Answer::Memory(memory_of(pid)),
            Request::Usage { unlinked } => {
                let own =
                    if self.spaces.is_some() { OwnDirectories::Present } else { OwnDirectories::Absent };
                Answer::Usage(measure(&self.groups, &self.children.descendants(), own, unlinked))
            }
        };
        self.engine.send(&answer, &[]).ok()
    }

    fn start(&mut self, mut program: crate::message::Launch, descriptors: &[OwnedFd]) {
        // The engine sends them all, or nobody waits for a report.
        let [stdin, stdout, stderr, report, rules @ ..] = descriptors else { return };
        let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let ends = Ends { streams, rules: rules.first().map(AsFd::as_fd) };
        if let (Some(restrictions), Some(spaces)) = (&mut program.restrictions, &self.spaces) {
            // A rule covers everything below a directory, also what lies there only to be seen.
            restrictions
                .own_paths
                .retain(|own| own.visible == VisibleBelow::Covered || !spaces.has_visible_below(&own.path));
        }
        let groups = self.groups.prepare(&program.limits);
        let started = launch(program, ends, &groups);
        let news = match &started {
            Ok(pid) => Report::Started { pid: pid.as_raw_pid() },
            Err(error) => Report::NotStarted { errno: error.raw_os_error().unwrap_or(libc::EINVAL) },
        };
        let report = report.as_fd().try_clone_to_owned();
        let Ok(report) = report else { return };
        children::tell(&report, news);
        if let Ok(pid) = started {
            self.children.add(pid.as_raw_pid(), report);
        }
    }
}
