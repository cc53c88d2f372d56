//! Steps that begin before the step that writes their standard input has ended.

use super::Control;
use crate::interface::{Outbox, Service};
use crate::membership::{Node, needs_of};
use crate::program_jobs::steps::NewSteps;
use crate::program_jobs::{QueueKey, window};
use crate::scheduling::{EarlyReader, EarlyWriter, TRIES_MAX, feed};
use crate::work::Work;
use api::JobSpec;
use ids::{JobId, NodeId};
use jobkind::Step;
use scheduler::{Claim, Event, Needs};

impl Control {
    /// Lets early readers start, stop, or become ordinary jobs. To be called after each batch of events, before the next
    /// steps are taken.
    pub fn watch_early_readers(&mut self, outbox: &mut Outbox) {
        let readers = self.work.scheduling.early().all();
        if readers.is_empty() {
            return;
        }
        readers.into_iter().for_each(|reader| self.watch_early_reader(outbox, reader));
        self.settle(outbox);
    }

    fn watch_early_reader(&mut self, outbox: &mut Outbox, id: JobId) {
        let Some(reader) = self.work.scheduling.early().get(id) else { return };
        let stepped = self.stepped.get(reader.of).filter(|_| self.work.jobs.contains_key(&id));
        let Some(stepped) = stepped else { return self.work.scheduling.early_mut().remove(id) };
        if stepped.has_finished(reader.writer.step) {
            return writer_succeeded(&mut self.work, outbox, id, reader);
        }
        match turn_of(&mut self.work, id, reader) {
            ReaderTurn::Waits => {}
            ReaderTurn::Stop => feed(&mut self.work, outbox, Event::AttemptsStopped { job: id }),
            ReaderTurn::MayStart => {
                let spec = self.work.jobs.get(&id).map(|job| job.spec().as_ref().clone());
                if spec.is_some_and(|spec| self.has_idle_room(&spec)) {
                    start_once(&mut self.work, outbox, id);
                }
            }
        }
    }

    /// Takes a step that may begin before the step that writes for it has ended, on a slot that nothing else wants. As for
    /// [`Control::next_steps`], the caller must begin or refuse it.
    pub fn next_early_step(&mut self) -> Option<NewSteps> {
        let is_quiet = self.backlog.is_empty() && self.stepped.may_begin_early();
        let may = self.work.service == Service::Cluster && is_quiet;
        if !may || !has_idle_slots(&mut self.work, Needs::default()) {
            return None;
        }
        let (scheduling, size) = (&self.work.scheduling, self.work.fleet.largest_node());
        let writes = |job: JobId| scheduling.live_attempt(job).is_some();
        let new = self.stepped.next_early(&self.users, size, writes)?;
        let spec = new.steps.first().and_then(spec_of);
        if spec.is_some_and(|spec| self.has_idle_room(&spec)) {
            return Some(new);
        }
        self.stepped.drop_early(&new);
        None
    }

    /// Returns whether a job of one task could start at once, and nothing else wants its slots.
    fn has_idle_room(&mut self, spec: &JobSpec) -> bool {
        let needs = needs_of(&mut self.work.scheduling, self.work.service, spec);
        has_idle_slots(&mut self.work, needs)
    }

    /// Returns whether a step that was taken may still begin early.
    pub(super) fn may_begin_early(&mut self, new: &NewSteps, writer: EarlyWriter) -> bool {
        let spec = new.steps.first().and_then(spec_of);
        let Some((job, spec)) = self.stepped.get(new.job).zip(spec) else { return false };
        let (user, priority) = (job.owner.number, job.priority);
        let needs = needs_of(&mut self.work.scheduling, self.work.service, &spec);
        let key = QueueKey::of(&Claim { user, priority, needs, step: None });
        let window = window(&self.work.fleet);
        self.work.scheduling.live_attempt(writer.job).is_some()
            && self.backlog.is_empty()
            && !self.backlog.must_wait(&key, crate::job::spec_bytes(&spec), window)
            && has_idle_slots(&mut self.work, needs)
    }

    /// Holds the early readers of a job again, after a restart. Their attempts stop: this server does not know which attempt
    /// of the writer they read.
    pub(super) fn hold_early_readers(&mut self, outbox: &mut Outbox, of: JobId) {
        let size = self.work.fleet.largest_node();
        for (job, writer) in self.stepped.restored_early(of, size) {
            self.work.scheduling.early_mut().insert(job, of, writer);
            feed(&mut self.work, outbox, Event::JobHeld { job });
            feed(&mut self.work, outbox, Event::AttemptsStopped { job });
        }
    }

    /// Returns whether a node runs an attempt that reads the output of a job which is still running.
    pub(super) fn reads_output_of(&self, node: NodeId, job: JobId) -> bool {
        self.work.scheduling.early().readers_of(job).any(|reader| self.work.fleet.runs(node, reader))
    }
}

/// The next thing to do about an early reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderTurn {
    Waits,
    /// It may start on an idle slot.
    MayStart,
    Stop,
}

/// Returns the next thing to do about an early reader whose writer has not succeeded.
fn turn_of(work: &mut Work, id: JobId, reader: EarlyReader) -> ReaderTurn {
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
fn has_idle_slots(work: &mut Work, needs: Needs) -> bool {
    !waits_in_place(work) && work.scheduling.has_idle_room(needs)
}

/// Makes an early reader an ordinary job, because its writer has succeeded. The writer's node learns at once that the
/// server knows, so the stream has its end.
fn writer_succeeded(work: &mut Work, outbox: &mut Outbox, job: JobId, reader: EarlyReader) {
    work.scheduling.early_mut().remove(job);
    let node = reader.reads.and_then(|input| work.fleet.get_mut(input.node));
    node.into_iter().for_each(Node::confirm_at_once);
    feed(work, outbox, Event::JobReleased { job });
}

/// Starts an early reader on an idle slot. A later attempt does not start by itself.
fn start_once(work: &mut Work, outbox: &mut Outbox, job: JobId) {
    feed(work, outbox, Event::JobReleased { job });
    feed(work, outbox, Event::JobHeld { job });
}

/// Returns the job of a step that runs a program.
fn spec_of(step: &Step) -> Option<JobSpec> {
    let task = step.work.program()?;
    Some(JobSpec::of_one_task(step.name.to_string(), task.as_ref().clone()))
}
