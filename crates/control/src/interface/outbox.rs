//! The consequences of an event: changes of the store, answers, and work for the shell.

use crate::interface::{ControlError, Moment, Now, Reply};
use api::history::EventKind;
use api::task::RunResult;
use ids::{JobId, NodeId};
use rows::Change;
use scheduler::UnixNanos;
use std::collections::{BTreeSet, VecDeque};

/// An outbox. The shell sets the time before each event, writes the changes in one transaction, and sends the answers
/// afterwards.
#[derive(Default)]
pub struct Outbox {
    now: Now,
    changes: Vec<Change>,
    answers: Vec<Box<dyn FnOnce() + Send>>,
    log: Vec<LogLine>,
    /// Jobs whose running attempts must stop.
    stopped: Vec<JobId>,
    /// Finished jobs whose directories must be removed.
    to_clean: Vec<JobId>,
    /// Jobs whose progress may have changed.
    touched: BTreeSet<JobId>,
    /// Jobs whose end is no longer remembered.
    forgotten: Vec<JobId>,
    facts: VecDeque<Fact>,
}

/// A line for the log of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub is_warning: bool,
    pub text: String,
}

/// An event that one part of control passes to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A node was lost, with all its data.
    NodeLost { node: NodeId, name: String },
    /// A job is over, and nothing of it is left to clean.
    JobCleaned { job: JobId },
    /// An attempt of a job that may be a step begins on a node.
    StepRuns { job: JobId, node: NodeId },
    /// The programs of a job that may be a step have succeeded.
    StepRan { job: JobId, result: Box<RunResult> },
}

impl Outbox {
    /// Sets the time of the next event.
    pub fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> Now {
        self.now
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now.unix_ns
    }

    pub(crate) fn moment(&self) -> Moment {
        self.now.moment
    }

    pub(crate) fn unix_nanos(&self) -> UnixNanos {
        UnixNanos(self.now.unix_ns)
    }

    /// Adds a change to the next transaction.
    pub fn write(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(crate) fn write_all(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.changes.extend(changes);
    }

    /// Adds an event to the history of a job.
    pub(crate) fn note(&mut self, job: JobId, kind: EventKind, detail: String) {
        self.write(Change::Note { job: Some(job), kind, detail, now_ns: self.now.unix_ns });
    }

    /// Adds an event that belongs to no job.
    pub(crate) fn note_of_cluster(&mut self, kind: EventKind, detail: String) {
        self.write(Change::Note { job: None, kind, detail, now_ns: self.now.unix_ns });
    }

    /// Queues an answer that is sent after the next transaction.
    pub fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, ControlError>) {
        self.answers.push(Box::new(move || reply.answer(answer)));
    }

    /// Queues an action that the shell performs after the next transaction, in order with the answers.
    pub fn after_write(&mut self, act: impl FnOnce() + Send + 'static) {
        self.answers.push(Box::new(act));
    }

    pub(crate) fn info(&mut self, text: String) {
        self.log.push(LogLine { is_warning: false, text });
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.log.push(LogLine { is_warning: true, text });
    }

    pub(crate) fn stop_attempts(&mut self, job: JobId) {
        self.stopped.push(job);
    }

    pub(crate) fn clean(&mut self, job: JobId) {
        self.to_clean.push(job);
    }

    pub(crate) fn touch(&mut self, job: JobId) {
        self.touched.insert(job);
    }

    pub(crate) fn forget(&mut self, job: JobId) {
        self.forgotten.push(job);
    }

    pub(crate) fn tell(&mut self, fact: Fact) {
        self.facts.push_back(fact);
    }

    pub(crate) fn next_fact(&mut self) -> Option<Fact> {
        self.facts.pop_front()
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Takes the changes of the next transaction.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Records that the changes are stored, so that the events they contain may be published.
    pub fn written(&mut self) {
        self.changes.clear();
    }

    /// Sends the answers in order. The changes must be stored already.
    pub fn send_answers(&mut self) {
        self.answers.drain(..).for_each(|answer| answer());
    }

    pub fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.log)
    }

    pub fn take_stopped(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.stopped)
    }

    pub fn take_to_clean(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.to_clean)
    }

    pub fn take_touched(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.touched)
    }

    pub fn take_forgotten(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.forgotten)
    }
}
