//! Checks of what nodes keep (`sailfish fsck --server`): the nodes that have the files are told to read them, and tell what they
//! found; whoever asked looks in from time to time. A check changes nothing and no row tells of it: one that nobody looks at any
//! more is given up, and one of a server that ends is asked for again.

use crate::interface::{ControlError, Moment};
use crate::membership::Fleet;
use crate::retention::KeptCheck;
use crate::retention::kept_check::TEXT_BYTES_MAX;
use api::control::NodeOrder;
use api::fsck::{CheckNews, FsckAnswer, FsckReport};
use ids::{JobId, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Checks at once: each keeps disks of many nodes busy, and holds what the maps of its job committed.
const CHECKS_MAX: usize = 8;
/// Time without a question of its user after which a check is given up.
const UNASKED_MAX: Duration = Duration::from_secs(60);

/// All checks, by name.
#[derive(Debug, Default)]
pub(crate) struct Checks(BTreeMap<String, Check>);

#[derive(Debug)]
struct Check {
    source: JobId,
    total_bytes: u64,
    /// Bytes read so far, by the node that reads and the process that made the directories.
    read_bytes: BTreeMap<(NodeId, NodeId), u64>,
    /// Time of the last question about this check.
    asked: Moment,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    Reading(Box<KeptCheck>),
    Done(Box<FsckReport>),
    Failed(String),
}

impl Check {
    fn reads(&self) -> bool {
        matches!(self.standing, Standing::Reading(_))
    }

    fn answer(&self, name: &str) -> Result<FsckAnswer, ControlError> {
        let report = match &self.standing {
            Standing::Reading(_) => None,
            Standing::Done(report) => Some((**report).clone()),
            Standing::Failed(reason) => {
                return Err(ControlError::CheckFailed { job: self.source, reason: reason.clone() });
            }
        };
        let read_bytes = self.read_bytes.values().sum();
        Ok(FsckAnswer { check: name.to_string(), read_bytes, total_bytes: self.total_bytes, report })
    }
}

impl Checks {
    fn give_up_unasked(&mut self, now: Moment) {
        self.0.retain(|_, check| now.since(check.asked) < UNASKED_MAX);
    }

    /// A node is gone: what it has can be read by nobody.
    pub fn node_lost(&mut self, node: NodeId, name: &str) {
        for check in self.0.values_mut() {
            let Standing::Reading(kept) = &check.standing else { continue };
            if kept.tasks.iter().any(|(reader, _)| *reader == node) {
                let reason = format!("the node {name}, which has some of them, is gone");
                check.standing = Standing::Failed(reason);
            }
        }
    }

    /// Takes the findings of a node. Returns false if the check needs nothing more from that node.
    pub fn take(&mut self, node: NodeId, news: CheckNews, now: Moment) -> bool {
        self.give_up_unasked(now);
        let Some(check) = self.0.get_mut(&news.check) else { return false };
        let Standing::Reading(kept) = &mut check.standing else { return false };
        let told = (node, news.made_by);
        let Some((_, task)) = kept.tasks.iter().find(|(reader, task)| (*reader, task.made_by) == told) else {
            return false;
        };
        let most = task.files.iter().map(|file| file.run.stored_bytes).sum();
        check.read_bytes.insert(told, news.read_bytes.min(most));
        for file in news.files {
            kept.found(news.made_by, file);
        }
        if let Some(mut problem) = news.problem {
            problem.truncate(problem.floor_char_boundary(TEXT_BYTES_MAX));
            check.standing = Standing::Failed(problem);
            return false;
        }
        true
    }
}

/// A check that is to begin, or one that goes on already.
pub enum CheckBegin {
    /// Another user asked for the same: the answer so far.
    GoesOn(FsckAnswer),
    /// The shell must read what the job kept.
    ReadKept,
}

/// Says whether a check of what a job kept may begin.
pub(crate) fn begin(checks: &mut Checks, source: JobId, now: Moment) -> Result<CheckBegin, ControlError> {
    checks.give_up_unasked(now);
    let mut others = checks.0.iter_mut();
    if let Some((name, check)) = others.find(|(_, check)| check.source == source && check.reads()) {
        check.asked = now;
        return check.answer(name).map(CheckBegin::GoesOn);
    }
    if checks.0.values().filter(|check| check.reads()).count() >= CHECKS_MAX {
        return Err(ControlError::TooManyChecks { checks_max: CHECKS_MAX });
    }
    Ok(CheckBegin::ReadKept)
}

/// Tells the nodes that have the files to read them. `name`: one that no other check has.
pub(crate) fn start(
    checks: &mut Checks,
    fleet: &mut Fleet,
    name: String,
    kept: KeptCheck,
    now: Moment,
) -> Result<FsckAnswer, ControlError> {
    for (node, task) in &kept.tasks {
        if let Some(node) = fleet.get_mut(*node) {
            node.order(NodeOrder::CheckKept { check: name.clone(), task: Box::new(task.clone()) });
        }
    }
    let check = Check {
        source: kept.source,
        total_bytes: kept.total_bytes(),
        read_bytes: BTreeMap::new(),
        asked: now,
        standing: Standing::Reading(Box::new(kept)),
    };
    let answer = check.answer(&name);
    checks.0.insert(name, check);
    answer
}

/// Says how far a check is. `source`: the job that kept the files, by what the store says now: files that were collected since the
/// check began are missing and not damaged.
pub(crate) fn look_at(
    checks: &mut Checks,
    name: &str,
    source: JobId,
    now: Moment,
) -> Result<FsckAnswer, ControlError> {
    let check = checks.0.get_mut(name).filter(|check| check.source == source);
    let check = check.ok_or(ControlError::UnknownCheck)?;
    check.asked = now;
    if let Standing::Reading(kept) = &mut check.standing
        && kept.is_complete()
    {
        check.standing = Standing::Done(Box::new(kept.report()));
    }
    check.answer(name)
}

impl Checks {
    /// Whether anybody still asks about a check.
    pub fn knows(&mut self, name: &str, now: Moment) -> bool {
        self.give_up_unasked(now);
        self.0.contains_key(name)
    }
}
