//! Checks of what nodes keep (`sailfish fsck --server`): the nodes that have the files are told to read them, and tell what they
//! found; whoever asked looks in from time to time. A check changes nothing and no row tells of it: one that nobody looks at any
//! more is given up, and one of a server that ends is asked for again.

use crate::ServerError;
use crate::event_loop::{EventLoop, Reply};
use crate::fsck::{KeptCheck, check_on_nodes};
use crate::kept_runs::kept_source;
use api::control::NodeOrder;
use api::fsck::{CheckAnswer, CheckNews, FsckAnswer, FsckReport};
use ids::{JobId, NodeId};
use metastore::StoreError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

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
    asked: Instant,
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

    fn answer(&self, name: &str) -> Result<FsckAnswer, ServerError> {
        let report = match &self.standing {
            Standing::Reading(_) => None,
            Standing::Done(report) => Some((**report).clone()),
            Standing::Failed(reason) => {
                return Err(ServerError::CheckFailed { job: self.source, reason: reason.clone() });
            }
        };
        let read_bytes = self.read_bytes.values().sum();
        Ok(FsckAnswer { check: name.to_string(), read_bytes, total_bytes: self.total_bytes, report })
    }
}

impl Checks {
    fn give_up_unasked(&mut self) {
        self.0.retain(|_, check| check.asked.elapsed() < UNASKED_MAX);
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
    fn take(&mut self, node: NodeId, news: CheckNews) -> bool {
        self.give_up_unasked();
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
            problem.truncate(problem.floor_char_boundary(crate::fsck::TEXT_BYTES_MAX));
            check.standing = Standing::Failed(problem);
            return false;
        }
        true
    }
}

impl EventLoop {
    /// Begins to check what a job kept, or, with the name of a check, says how far that is.
    pub async fn fsck(
        &mut self,
        job: JobId,
        check: Option<String>,
        reply: Reply<FsckAnswer>,
    ) -> Result<(), StoreError> {
        // The store is asked: what was decided before must stand in it.
        self.write_and_reply().await?;
        let answer = match check {
            None => self.begin_check(job).await,
            Some(name) => self.look_at_check(job, &name).await,
        };
        match answer {
            Err(ServerError::Store(error)) if !error.retryable() => Err(error),
            answer => {
                drop(reply.send(answer));
                Ok(())
            }
        }
    }

    async fn begin_check(&mut self, job: JobId) -> Result<FsckAnswer, ServerError> {
        self.checks.give_up_unasked();
        let source = kept_source(&self.store, job).await?.row.job;
        let mut checks = self.checks.0.iter_mut();
        if let Some((name, check)) = checks.find(|(_, check)| check.source == source && check.reads()) {
            check.asked = Instant::now();
            return check.answer(name);
        }
        if self.checks.0.values().filter(|check| check.reads()).count() >= CHECKS_MAX {
            return Err(ServerError::TooManyChecks { checks_max: CHECKS_MAX });
        }
        let kept = check_on_nodes(&self.store, job, &self.fleet).await?;
        let name = Uuid::new_v4().to_string();
        for (node, task) in &kept.tasks {
            if let Some(node) = self.fleet.get_mut(*node) {
                node.order(NodeOrder::CheckKept { check: name.clone(), task: Box::new(task.clone()) });
            }
        }
        let check = Check {
            source,
            total_bytes: kept.total_bytes(),
            read_bytes: BTreeMap::new(),
            asked: Instant::now(),
            standing: Standing::Reading(Box::new(kept)),
        };
        let answer = check.answer(&name);
        self.checks.0.insert(name, check);
        answer
    }

    async fn look_at_check(&mut self, job: JobId, name: &str) -> Result<FsckAnswer, ServerError> {
        self.checks.give_up_unasked();
        if !self.checks.0.contains_key(name) {
            return Err(ServerError::UnknownCheck);
        }
        // What was collected in between is missing and not damaged.
        let source = kept_source(&self.store, job).await?.row.job;
        let check = self.checks.0.get_mut(name).filter(|check| check.source == source);
        let check = check.ok_or(ServerError::UnknownCheck)?;
        check.asked = Instant::now();
        if let Standing::Reading(kept) = &mut check.standing
            && kept.is_complete()
        {
            check.standing = Standing::Done(Box::new(kept.report()));
        }
        check.answer(name)
    }

    /// A node tells what it has read for a check.
    pub fn check_news(&mut self, node: NodeId, news: CheckNews, reply: Reply<CheckAnswer>) {
        let answer = match self.fleet.heard(node, &news.incarnation) {
            Err(error) => Err(error),
            Ok(_) => Ok(CheckAnswer { goes_on: self.checks.take(node, news) }),
        };
        drop(reply.send(answer));
    }
}
