//! Splitting of running reduce tasks for idle slots. The attempt is asked to give up the end of its range. The rest
//! becomes a task when the attempt confirms it, at the latest with its result (`docs/internals/elastic.md`).

use crate::interface::Outbox;
use crate::job::Job;
use crate::scheduling::feed;
use crate::work::Work;
use api::history::EventKind;
use api::machine::ShortenedAttempt;
use api::{KeyBytes, Task, TaskResult};
use ids::{AttemptKey, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use mapreduce::placement;
use rows::Change;
use scheduler::Event;
use std::collections::BTreeMap;

/// The part of a task that the result of an attempt covers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Covers {
    Task,
    /// The part of the task before this key: the attempt was cut there, and the server has not heard of it yet.
    Before(KeyBytes),
    /// Other data: the task has changed since the attempt began.
    Other,
}

/// Returns the event that allows the scheduler to split the reduce tasks of a job; None if the job does not allow it.
pub(crate) fn allowed(job: &Job) -> Option<Event> {
    let stage = job.stage_index(StageKind::Reduce)?;
    mapreduce::may_split(&job.spec).then_some(Event::MaySplit { job: job.id, stage })
}

/// Handles a node's report of attempts that end earlier than planned.
pub(crate) fn shortened(work: &mut Work, outbox: &mut Outbox, node: NodeId, told: Vec<ShortenedAttempt>) {
    for ShortenedAttempt { attempt, upper_key } in told {
        let runs_there = work.fleet.get_mut(node).is_some_and(|node| node.running().contains_key(&attempt));
        let is_outrun = work.jobs.get(&attempt.task.job).is_none_or(|job| job.outrun.contains(&attempt));
        if runs_there && !is_outrun {
            split(work, outbox, attempt, &upper_key);
        }
    }
}

/// Creates a task from the range that an attempt gave up. Returns false if that is not possible.
fn split(work: &mut Work, outbox: &mut Outbox, attempt: AttemptKey, key: &KeyBytes) -> bool {
    let Some(job) = work.jobs.get_mut(&attempt.task.job) else { return false };
    let Some(placement) = job.split(attempt, key, outbox) else { return false };
    // Later cuts of other attempts of this task would lie in a range that the task no longer has.
    let running = work.fleet.all().flat_map(|node| node.running().keys());
    job.outrun.extend(running.filter(|other| other.task == attempt.task && **other != attempt));
    feed(work, outbox, Event::TaskAdded { of: attempt, placement });
    true
}

/// Returns whether the result of an attempt covers its task. It does if the attempt gave up the rest, which is a
/// separate task by then.
pub(crate) fn covers_task(
    work: &mut Work,
    outbox: &mut Outbox,
    attempt: AttemptKey,
    result: &TaskResult,
) -> bool {
    let Some(job) = work.jobs.get(&attempt.task.job) else { return false };
    match job.covered_by(attempt, result) {
        Covers::Task => true,
        Covers::Before(key) => split(work, outbox, attempt, &key),
        Covers::Other => false,
    }
}

impl Job {
    /// Returns the reduce stage if it runs; None while data for it is recomputed.
    pub(crate) fn runs_reduces(&self) -> Option<StageIndex> {
        let stage = self.stage_index(StageKind::Reduce)?;
        let is_last = self.tasks.len() == usize::from(stage.0) + 1;
        // The readers of the parts know the list of parts.
        let may_grow = is_last && !self.in_flow.is_read;
        (may_grow && self.standing.is_none() && !self.is_stopping() && mapreduce::may_split(&self.spec))
            .then_some(stage)
    }

    fn covered_by(&self, attempt: AttemptKey, result: &TaskResult) -> Covers {
        if let TaskResult::Map(map) = result {
            // The attempt began as a partial rerun after a loss, and since then the task must run in full.
            let withheld_too_much =
                !map.withheld.is_empty() && !self.results.again.contains_key(&attempt.task.task);
            return if withheld_too_much { Covers::Other } else { Covers::Task };
        }
        let (Some(Task::Reduce(task)), TaskResult::Reduce(reduce)) = (self.task(attempt), result) else {
            return Covers::Task;
        };
        match (&reduce.upper_key, &task.upper_key) {
            (of_result, of_task) if of_result == of_task => Covers::Task,
            (Some(key), of_task) if of_task.as_ref().is_none_or(|upper| key < upper) => {
                Covers::Before(key.clone())
            }
            _ => Covers::Other,
        }
    }

    fn split(&mut self, attempt: AttemptKey, key: &KeyBytes, outbox: &mut Outbox) -> Option<Placement> {
        let stage = self.runs_reduces().filter(|stage| *stage == attempt.task.stage)?;
        let mapreduce::RangeCut { head, tail } = self.results.split(attempt.task.task, key)?;
        let tasks = &mut self.tasks[usize::from(stage.0)];
        let Some(Task::Reduce(task)) = tasks.get_mut(attempt.task.task.0 as usize) else {
            unreachable!("the plan has a task that the stage has not");
        };
        // The locations of its runs stay as they were sent.
        task.upper_key.clone_from(&head.upper_key);
        (task.expected_bytes, task.plan_version) = (head.expected_bytes, head.plan_version);
        let task = Box::new(Task::Reduce(task.clone()));
        let added = self.results.placed_now(Task::Reduce(tail.clone()));
        let added_key = TaskKey { task: TaskIndex(tasks.len() as u32), ..attempt.task };
        tasks.push(added.clone());
        let detail = format!(
            "{attempt} gave up the end of its range for idle slots, about {} of its {} remaining bytes: task {}",
            tail.expected_bytes,
            head.expected_bytes + tail.expected_bytes,
            added_key.task.0,
        );
        let (job, now_ns, target_bytes) = (self.id, outbox.now_ns(), self.results.target_bytes);
        let version = self.results.plan_version;
        let where_to = placement(&added);
        outbox.note(job, EventKind::RangeSplit, detail);
        outbox.write(Change::PlanCut { job, version, target_bytes, tasks: vec![head, tail], now_ns });
        outbox.write(Change::TaskSplit { key: attempt.task, task, added_key, added: Box::new(added) });
        Some(where_to)
    }

    /// Returns the change for parts whose final names differ from the names in their results.
    pub(crate) fn renamed_parts(&self, parts: &[api::task::Part]) -> Option<Change> {
        let stage = self.stage_index(StageKind::Reduce)?;
        let named: BTreeMap<&str, &str> =
            parts.iter().map(|part| (part.attempt_name.as_str(), part.name.as_str())).collect();
        let renamed = self.results.reduces.iter().filter_map(|(task, result)| {
            let name = *named.get(result.part.attempt_name.as_str())?;
            (name != result.part.name).then(|| (*task, name.to_string()))
        });
        let names: Vec<(TaskIndex, String)> = renamed.collect();
        (!names.is_empty()).then_some(Change::PartsRenamed { job: self.id, stage, names })
    }
}
