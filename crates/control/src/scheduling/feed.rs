//! Events for the scheduler, and the execution of its orders.

use crate::flows::{flow_goes_on, let_end, mend_flows, part_is_there, waits_for_inputs, with_stage_files};
use crate::interface::{Ended, Fact, Outbox, Service, SlotOrder};
use crate::job::Job;
use crate::replication::{replicate_again, settle_replication};
use crate::retention::let_go;
use crate::scheduling::near_inputs::near_inputs;
use crate::scheduling::orders::{ask_to_split, moved_before, stop_attempt};
use crate::scheduling::placements::placed;
use crate::scheduling::speculative_attempts::decided;
use crate::work::Work;
use api::control::NodeOrder;
use api::history::AttemptState;
use api::task::GrowingInput;
use api::{Task, TaskResult};
use ids::{AttemptKey, JobId, StageIndex, StageKind};
use mapreduce::flow::AtRest;
use mapreduce::{ExpandError, flow};
use rows::Change;
use scheduler::{Action, Event, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// An attempt whose end was reported, while the scheduler decides whether it wins.
pub(crate) struct HandedIn {
    pub ended: Ended,
    pub result: TaskResult,
}

/// Feeds an event to the scheduler, executes its orders, and feeds the events that follow.
pub(crate) fn feed(work: &mut Work, outbox: &mut Outbox, event: Event) {
    feed_with(work, outbox, event, &mut None);
}

/// Does the same as [`feed`] for the success of an attempt.
pub(crate) fn feed_with(work: &mut Work, outbox: &mut Outbox, event: Event, in_hand: &mut Option<HandedIn>) {
    let mut events = VecDeque::from([event]);
    while let Some(event) = events.pop_front() {
        let now = outbox.unix_nanos();
        job_of(&event).into_iter().for_each(|job| outbox.touch(job));
        if let Some(moved) = moved_before(work, &event) {
            work.scheduling.handle(now, moved);
        }
        work.scheduling.handle(now, event);
        while let Some(action) = work.scheduling.next_action() {
            events.extend(execute(work, outbox, action, in_hand));
        }
    }
    if work.jobs.take_flows_hurt() {
        mend_flows(work, outbox, "data that was lost earlier");
    }
}

fn execute(
    work: &mut Work,
    outbox: &mut Outbox,
    action: Action,
    in_hand: &mut Option<HandedIn>,
) -> Vec<Event> {
    match action {
        Action::ExpandStage { job, stage } => return open_stage(work, outbox, job, stage),
        Action::Placed { attempt, why } => outbox.write(placed(attempt, why)),
        Action::StartAttempt { attempt, slot } => start(work, outbox, attempt, slot),
        Action::TaskDone { attempt } => task_done(work, outbox, attempt, in_hand.take()),
        Action::AttemptDiscarded { attempt } => {
            if let Some(HandedIn { ended, result }) = in_hand.take() {
                let job = work.jobs.expect_mut(attempt.task.job);
                job.attempt_ended(&ended, AttemptState::Discarded, Ok(Some(&result)), outbox);
            }
        }
        Action::StopAttempt { attempt, slot } => stop_attempt(&mut work.fleet, attempt, slot),
        Action::SplitTask { attempt, slot, done } => ask_to_split(work, attempt, slot, done),
        decision @ (Action::Speculated { .. } | Action::SlowTask { .. }) => decided(work, outbox, decision),
        Action::TaskRetried { task } => {
            outbox.write(Change::TaskRetried { task, now_ns: outbox.now_ns() });
        }
        Action::JobFailed { job, because } => {
            work.jobs.expect_mut(job).failed(because, outbox);
            work.fleet.order_all(job, NodeOrder::Stop { job });
            return flow_goes_on(work, outbox, job);
        }
        Action::JobSucceeded { job } => {
            work.jobs.expect_mut(job).succeeded(outbox);
            return flow_goes_on(work, outbox, job);
        }
        Action::JobCancelled { job } => {
            work.jobs.expect_mut(job).cancelled(outbox);
            return flow_goes_on(work, outbox, job);
        }
        Action::JobDrained { job } if work.jobs.get(&job).is_some_and(Job::is_single) => {
            outbox.tell(Fact::JobCleaned { job });
        }
        Action::JobDrained { job } => let_go(work, outbox, job),
    }
    Vec::new()
}

/// Creates the tasks of a stage, if its inputs are known.
pub(crate) fn open_stage(work: &mut Work, outbox: &mut Outbox, id: JobId, stage: StageIndex) -> Vec<Event> {
    match waits_for_inputs(work, outbox, id) {
        Ok(false) => {}
        Ok(true) => {
            work.jobs.expect_mut(id).in_flow_mut().is_asked = true;
            return Vec::new();
        }
        Err(failure) => {
            work.jobs.expect_mut(id).fails_of(failure);
            return vec![Event::StageRefused { job: id, stage }];
        }
    }
    let Some(job) = work.jobs.get_mut(&id) else { return Vec::new() };
    match job.stage_kinds()[usize::from(stage.0)] {
        StageKind::Merge => job.results_mut().leaving = work.fleet.leaving(),
        StageKind::Seal => settle_replication(work, outbox, id),
        _ => {}
    }
    let Some(job) = work.jobs.get_mut(&id) else { return Vec::new() };
    let is_to_rest = job.spec().feeds() && job.stage_kinds()[usize::from(stage.0)] == StageKind::Commit;
    let expanded = match is_to_rest {
        true => job.prove_parts().map(|()| None),
        false => job.expand_stage(stage, outbox).map(Some),
    };
    let error = match expanded {
        Ok(None) => return parts_are_ready(work, outbox, id),
        Ok(Some(mut tasks)) => {
            if stage == StageIndex(0) {
                near_inputs(work, id, &mut tasks);
            }
            return vec![Event::StageExpanded { job: id, stage, tasks }];
        }
        Err(error) => error,
    };
    let (fleet, service) = (&work.fleet, work.service);
    let Some(job) = work.jobs.get_mut(&id) else { return Vec::new() };
    if let ExpandError::Proof(proof) = &error {
        let has_left = |node| service == Service::Cluster && !fleet.has(node);
        if let Some(repaired) = job.repair(proof, stage, has_left, outbox) {
            return vec![repaired];
        }
    }
    job.stage_failed(&error, outbox);
    vec![Event::StageRefused { job: id, stage }]
}

/// Marks a stage that feeds others as complete: all its parts are there and the proof agrees. Its readers may begin.
fn parts_are_ready(work: &mut Work, outbox: &mut Outbox, id: JobId) -> Vec<Event> {
    if let Some(job) = work.jobs.get_mut(&id) {
        job.in_flow_mut().parts_ready = true;
        // Parts may have been lost since they were written; the readers need them now.
        work.jobs.hurt_flows();
    }
    let begin = match flow::at_rest(work, id, work.jobs.recovery()) {
        AtRest::Ends => return let_end(work, outbox, id).into_iter().collect(),
        AtRest::Begin(begin) => begin,
    };
    let mut events = vec![Event::JobRests { job: id }];
    for reader in begin {
        events.extend(open_stage(work, outbox, reader, StageIndex(0)));
    }
    events
}

fn start(work: &mut Work, outbox: &mut Outbox, attempt: AttemptKey, slot: Slot) {
    let id = attempt.task.job;
    outbox.touch(id);
    let job = work.jobs.expect_mut(id);
    let task = job.task(attempt).expect("the scheduler starts tasks of expanded stages").clone();
    let task = job.results().placed_now(task);
    let (spec, user) = (Arc::clone(job.spec()), Arc::clone(&job.owner().name));
    let mut task = with_stage_files(work, id, task);
    if let Task::Run(run) = &mut task {
        run.growing = growing_input(work, id);
    }
    let now_ns = outbox.now_ns();
    outbox.write(Change::AttemptStarted { attempt, node: slot.node, slot: slot.slot, now_ns });
    if matches!(task, Task::Run(_) | Task::Map(_)) {
        outbox.tell(Fact::StepRuns { job: id, node: slot.node });
    }
    match work.service {
        Service::Cluster => {
            if let Task::Run(run) = &mut task {
                run.user = user.to_string();
            }
            work.fleet.start(attempt, task, slot, now_ns);
        }
        Service::Embedded => {
            let reply =
                work.fleet.take_pull(slot).expect("the scheduler starts attempts in slots that pulled");
            outbox.answer(reply, Ok(SlotOrder::Run { attempt, task: Box::new(task), spec }));
        }
    }
}

/// Returns the stream that an attempt of a job reads which starts now; None if it reads none.
fn growing_input(work: &mut Work, job: JobId) -> Option<GrowingInput> {
    let writer = work.scheduling.early().get(job)?.writer.job;
    let live = work.scheduling.live_attempt(writer);
    let input = live.map(|(attempt, node)| GrowingInput { attempt, node });
    work.scheduling.early_mut().begins(job, input)
}

fn task_done(work: &mut Work, outbox: &mut Outbox, attempt: AttemptKey, in_hand: Option<HandedIn>) {
    let Some(HandedIn { ended, result }) = in_hand else {
        unreachable!("{attempt} wins while it is handed in");
    };
    let remembers = work.service == Service::Cluster;
    let has_read = matches!(result, TaskResult::Reduce(_));
    let id = attempt.task.job;
    let job = work.jobs.expect_mut(id);
    job.attempt_ended(&ended, AttemptState::Succeeded, Ok(Some(&result)), outbox);
    // These rows are for a restarted server; nothing continues a job of an embedded engine.
    if remembers && !matches!(result, TaskResult::Commit(_) | TaskResult::Run(_)) {
        outbox.write(Change::Result { attempt, result: Arc::new(result.clone()) });
    }
    job.task_done(attempt, result, outbox);
    part_is_there(job, outbox, attempt);
    if has_read {
        replicate_again(work, id);
    }
}

/// Returns the job of an event; None if the event is not about a job.
fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::JobSubmitted { job, .. }
        | Event::JobRecovered { job, .. }
        | Event::StageExpanded { job, .. }
        | Event::JobRests { job }
        | Event::StageRefused { job, .. }
        | Event::StageSentBack { job, .. }
        | Event::ResultsLost { job, .. }
        | Event::TasksMoved { job, .. }
        | Event::TasksPlaced { job, .. }
        | Event::MayCopy { job, .. }
        | Event::MaySplit { job, .. }
        | Event::JobHeld { job }
        | Event::AttemptsStopped { job }
        | Event::JobReleased { job }
        | Event::JobCancelled { job } => Some(*job),
        Event::TaskAdded { of: attempt, .. }
        | Event::AttemptSucceeded { attempt }
        | Event::AttemptFailed { attempt, .. }
        | Event::AttemptLost { attempt } => Some(attempt.task.job),
        Event::NodeCame { .. }
        | Event::Progress { .. }
        | Event::SlotFree { .. }
        | Event::SlotGone { .. }
        | Event::SlotsGone { .. }
        | Event::PlacesFree { .. }
        | Event::NodeDraining { .. }
        | Event::NodeResumes { .. }
        | Event::NodeLost { .. }
        | Event::Tick => None,
    }
}
