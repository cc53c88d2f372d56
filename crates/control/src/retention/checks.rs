//! Checks of kept I-files (`sailfish fsck --server`): the nodes that have the files read them and report findings; the
//! user polls for the result. A check changes nothing and is not stored. It is abandoned if its user stops polling, and
//! must be started again after a restart of the server.

use crate::interface::{ControlError, Moment};
use crate::membership::Fleet;
use crate::retention::KeptCheck;
use crate::retention::kept_check::TEXT_BYTES_MAX;
use api::control::NodeOrder;
use api::fsck::{CheckNews, FsckAnswer, FsckReport};
use ids::{JobId, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of checks at once: each keeps disks of many nodes busy, and holds the commits of its job in memory.
const CHECKS_MAX: usize = 8;
/// Time without a poll of its user after which a check is abandoned.
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
    /// Time of the last poll for this check.
    asked: Moment,
    standing: CheckState,
}

#[derive(Debug)]
enum CheckState {
    Reading(Box<KeptCheck>),
    Done(Box<FsckReport>),
    Failed(String),
}

impl Check {
    fn reads(&self) -> bool {
        matches!(self.standing, CheckState::Reading(_))
    }

    fn answer(&self, name: &str) -> Result<FsckAnswer, ControlError> {
        let report = match &self.standing {
            CheckState::Reading(_) => None,
            CheckState::Done(report) => Some((**report).clone()),
            CheckState::Failed(reason) => {
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

    /// Records that a node is lost, so that its files cannot be read.
    pub fn node_lost(&mut self, node: NodeId, name: &str) {
        for check in self.0.values_mut() {
            let CheckState::Reading(kept) = &check.standing else { continue };
            if kept.tasks.iter().any(|(reader, _)| *reader == node) {
                let reason = format!("the node {name}, which has some of them, is gone");
                check.standing = CheckState::Failed(reason);
            }
        }
    }

    /// Takes the findings of a node. Returns false if the check needs nothing more from that node.
    pub fn take(&mut self, node: NodeId, news: CheckNews, now: Moment) -> bool {
        self.give_up_unasked(now);
        let Some(check) = self.0.get_mut(&news.check) else { return false };
        let CheckState::Reading(kept) = &mut check.standing else { return false };
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
            check.standing = CheckState::Failed(problem);
            return false;
        }
        true
    }
}

/// The state of a check that is requested.
pub enum CheckBegin {
    /// The same check is under way; this is its answer so far.
    GoesOn(FsckAnswer),
    /// The shell must read the list of the job's kept files.
    ReadKept,
}

/// Returns whether a check of a job's kept I-files may begin, or is already under way.
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

/// Orders the nodes that have the files to read them. `name` must be unique among the checks.
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
        standing: CheckState::Reading(Box::new(kept)),
    };
    let answer = check.answer(&name);
    checks.0.insert(name, check);
    answer
}

/// Returns the progress of a check. `source`: the job that kept the files, according to the store now. Files that were
/// collected since the check began are missing and not damaged.
pub(crate) fn look_at(
    checks: &mut Checks,
    name: &str,
    source: JobId,
    now: Moment,
) -> Result<FsckAnswer, ControlError> {
    let check = checks.0.get_mut(name).filter(|check| check.source == source);
    let check = check.ok_or(ControlError::UnknownCheck)?;
    check.asked = now;
    if let CheckState::Reading(kept) = &mut check.standing
        && kept.is_complete()
    {
        check.standing = CheckState::Done(Box::new(kept.report()));
    }
    check.answer(name)
}

impl Checks {
    /// Returns whether a user still polls for a check.
    pub fn knows(&mut self, name: &str, now: Moment) -> bool {
        self.give_up_unasked(now);
        self.0.contains_key(name)
    }
}
