//! Steps whose jobs began before the step that writes their standard input has ended. Such a job is held in the scheduler:
//! `control` starts it on a slot that nothing else wants, a few times at most for each attempt of the writer, and stops it
//! if another task waits for a slot, or if that attempt ends without success.

use crate::interface::Outbox;
use crate::membership::Node;
use crate::scheduling::feed;
use crate::work::Work;
use api::task::GrowingInput;
use ids::{JobId, StepNumber};
use scheduler::{Event, Needs};
use std::collections::BTreeMap;

/// Maximum number of attempts of a reader for one attempt of its writer: after that it waits for the file.
const TRIES_MAX: u32 = 3;

/// A step that reads the output of a running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyReader {
    /// The job of which both are steps.
    pub of: JobId,
    pub writer: EarlyWriter,
    /// Attempt of the writer that its last attempt reads, or has read, with its node.
    reads: Option<GrowingInput>,
    /// Number of its attempts that have read that one.
    tries: u32,
}

/// The step that writes: the first one of its pipeline, with its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyWriter {
    pub step: StepNumber,
    pub job: JobId,
}

/// All such steps, by their jobs.
#[derive(Default)]
pub(crate) struct EarlyReaders(BTreeMap<JobId, EarlyReader>);

/// The next thing to do about an early reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderTurn {
    Waits,
    /// It may start on an idle slot.
    MayStart,
    Stop,
}

impl EarlyReaders {
    pub fn insert(&mut self, reader: JobId, of: JobId, writer: EarlyWriter) {
        self.0.insert(reader, EarlyReader { of, writer, reads: None, tries: 0 });
    }

    pub fn remove(&mut self, reader: JobId) {
        self.0.remove(&reader);
    }

    pub fn get(&self, reader: JobId) -> Option<EarlyReader> {
        self.0.get(&reader).copied()
    }

    pub fn all(&self) -> Vec<JobId> {
        self.0.keys().copied().collect()
    }

    /// Returns the jobs that read the output of a job.
    pub fn readers_of(&self, writer: JobId) -> impl Iterator<Item = JobId> {
        self.0.iter().filter(move |(_, reader)| reader.writer.job == writer).map(|(job, _)| *job)
    }

    /// Returns the stream that an attempt of a job reads which starts now, and remembers it; None for any other job.
    pub fn begins(&mut self, reader: JobId, input: Option<GrowingInput>) -> Option<GrowingInput> {
        let known = self.0.get_mut(&reader)?;
        known.tries = if known.reads == input { known.tries + 1 } else { 1 };
        known.reads = input;
        input
    }
}

/// Returns the stream that an attempt of a job reads which starts now; None if it reads none.
pub(crate) fn growing_input(work: &mut Work, job: JobId) -> Option<GrowingInput> {
    let writer = work.scheduling.early().get(job)?.writer.job;
    let live = work.scheduling.live_attempt(writer);
    let input = live.map(|(attempt, node)| GrowingInput { attempt, node });
    work.scheduling.early_mut().begins(job, input)
}

/// Returns the next thing to do about an early reader whose writer has not succeeded.
pub(crate) fn turn_of(work: &mut Work, id: JobId, reader: EarlyReader) -> ReaderTurn {
    let writes = work.scheduling.live_attempt(reader.writer.job).map(|(attempt, _)| attempt);
    let reads_it = writes.is_some() && writes == reader.reads.map(|input| input.attempt);
    match work.scheduling.live_attempt(id) {
        Some(_) if reads_it && !others_wait(work) => ReaderTurn::Waits,
        Some(_) => ReaderTurn::Stop,
        None if writes.is_some() && !(reads_it && reader.tries >= TRIES_MAX) => ReaderTurn::MayStart,
        None => ReaderTurn::Waits,
    }
}

/// Returns whether an attempt waits in a place of its node: it may wait for a slot there.
fn waits_in_place(work: &Work) -> bool {
    work.fleet.all().any(Node::has_waiting_attempts)
}

fn others_wait(work: &mut Work) -> bool {
    waits_in_place(work) || work.scheduling.wants_slots()
}

/// Returns whether an attempt with these needs could start at once, on slots that nothing else wants.
pub(crate) fn has_idle_slots(work: &mut Work, needs: Needs) -> bool {
    !waits_in_place(work) && work.scheduling.has_idle_room(needs)
}

/// Makes an early reader an ordinary job, because its writer has succeeded. The writer's node learns at once that the
/// server knows, so the stream has its end.
pub(crate) fn writer_succeeded(work: &mut Work, outbox: &mut Outbox, job: JobId, reader: EarlyReader) {
    work.scheduling.early_mut().remove(job);
    let node = reader.reads.and_then(|input| work.fleet.get_mut(input.node));
    node.into_iter().for_each(Node::confirm_at_once);
    feed(work, outbox, Event::JobReleased { job });
}

/// Starts an early reader on an idle slot. A later attempt does not start by itself.
pub(crate) fn start_once(work: &mut Work, outbox: &mut Outbox, job: JobId) {
    feed(work, outbox, Event::JobReleased { job });
    feed(work, outbox, Event::JobHeld { job });
}
