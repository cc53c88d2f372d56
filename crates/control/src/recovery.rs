//! Recovery of the jobs and nodes of a cluster after a restart, from the rows of the store. Every lease begins anew.

use crate::flows::{may_end, mend_flows, tell_those_it_reads};
use crate::interface::{JobDirs, Outbox};
use crate::job::{Job, range_cuts, stop};
use crate::membership::{Fleet, NodeProcess, begin_drain, drained_before, needs_of, node_came};
use crate::program_jobs::FileHold;
use crate::replication::begin_to_replicate;
use crate::retention::begin_keeping;
use crate::scheduling::{bound, feed, speculative_attempts};
use crate::users::JobOwner;
use crate::work::Work;
use crate::{flows, replication};
use api::control::{JobOutcome, NodeInfo, NodeOrder, PROTOCOL_VERSION};
use api::history::{AttemptRow, AttemptState, JobState, StageState};
use api::task::MapTask;
use api::{Blame, Split, Task, TaskFailure};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, TaskIndex};
use mapreduce::{AttemptTime, JobResults, flow, placement};
use rows::{Change, Keep, NodeRow, NodeState, RecoveredJob, TaskRow, TaskState, WinningCommits};
use scheduler::{Claim, Event, RecoveredTask, Slot, StepRank};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A drained node that was not seen for this long has left.
const LEAVES_WITHIN: Duration = Duration::from_secs(300);

/// A job from the store, with the additions of the shell.
pub struct RecoveredWork {
    pub job: RecoveredJob,
    /// Commits of the job whose kept I-files it reduces again.
    pub commits: WinningCommits,
    /// A hold on the shipped files that this server has.
    pub file_hold: Option<FileHold>,
}

/// Nodes that were being drained, or were drained, under the previous server.
pub(crate) struct Drains {
    draining: Vec<NodeId>,
    drained: Vec<NodeId>,
}

/// A job that does not continue; its staging directory must be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub job: JobId,
    pub staging: PathBuf,
}

/// Restores the nodes of the previous server, each with a new lease.
pub(crate) fn recover_nodes(
    work: &mut Work,
    outbox: &mut Outbox,
    rows: Vec<NodeRow>,
    jobs: &[JobId],
) -> Drains {
    let (mut draining, mut drained) = (Vec::new(), Vec::new());
    let seen_since_ns = outbox.now_ns().saturating_sub(LEAVES_WITHIN.as_nanos() as u64);
    for row in rows {
        match row.state {
            NodeState::Up => {}
            NodeState::Draining => draining.push(row.node),
            // It may not know that it may leave, and would come back as a new node.
            NodeState::Drained if row.last_seen_ns >= seen_since_ns => drained.push(row.node),
            NodeState::Drained | NodeState::Dead | NodeState::Left => continue,
        }
        let info = node_info(&row);
        node_came(work, outbox, row.node, &info);
        let process = NodeProcess { incarnation: row.incarnation, join_token: row.join_token };
        work.fleet.restore(row.node, process, info, jobs, outbox.moment());
    }
    Drains { draining, drained }
}

/// The continuation of a job after a restart.
pub(crate) enum GoesOn {
    /// A stage of a flow that had not begun.
    Waits,
    Runs,
    /// Nodes have yet to confirm that they keep its data.
    Keeps,
    /// Only cleaning is left.
    Nothing,
}

/// Returns the flows that have a first stage without tasks: their submit was never answered.
pub(crate) fn unanswered_flows<'a>(jobs: impl Iterator<Item = &'a RecoveredJob>) -> BTreeSet<JobId> {
    let has_none = |job: &&RecoveredJob| !has_begun(job) && job.spec.reads().is_empty();
    let flow = |job: &RecoveredJob| Some(job.spec.stage.as_ref()?.flow);
    jobs.filter(has_none).filter_map(flow).collect()
}

/// Returns how a job continues.
pub(crate) fn goes_on(job: &RecoveredJob, unanswered: &BTreeSet<JobId>) -> GoesOn {
    // The submit of a job without tasks was never answered, so no client knows the job.
    let is_unanswered = job.spec.stage.as_ref().is_some_and(|stage| unanswered.contains(&stage.flow));
    let waits = !has_begun(job) && !job.spec.reads().is_empty() && !is_unanswered;
    match job.goes_on() && (waits || has_begun(job)) {
        true if waits => GoesOn::Waits,
        true => GoesOn::Runs,
        false if is_to_be_kept(job) => GoesOn::Keeps,
        false => GoesOn::Nothing,
    }
}

/// Ends a job that does not continue. Returns its staging directory; None if it has none.
pub(crate) fn clean_up(fleet: &mut Fleet, outbox: &mut Outbox, recovered: &RecoveredJob) -> Option<Leftover> {
    let (job, now_ns) = (recovered.row.job, outbox.now_ns());
    if !recovered.row.state.over() {
        outbox.write(Change::JobEnded {
            job,
            state: JobState::Interrupted,
            exit_code: None,
            error: Some("the server died before the job was submitted completely".to_string()),
            now_ns,
        });
    }
    if recovered.spec.kind.program().is_some() {
        outbox.write(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        return None;
    }
    // The order of the previous server may not have arrived.
    fleet.order_all(job, NodeOrder::Forget { job });
    Some(Leftover { job, staging: recovered.row.staging.clone() })
}

fn dirs_of(recovered: &RecoveredJob) -> JobDirs {
    JobDirs { staging: recovered.row.staging.clone(), disk_dirs: Vec::new() }
}

/// Restores a stage of a flow that had not begun.
pub(crate) fn wait_again(work: &mut Work, outbox: &mut Outbox, recovered: RecoveredWork, owner: JobOwner) {
    let RecoveredWork { job: recovered, file_hold, .. } = recovered;
    let id = recovered.row.job;
    let needs = needs_of(&mut work.scheduling, work.service, &recovered.spec);
    let claim = Claim { user: owner.number, priority: recovered.row.priority, needs, step: None };
    let (spec, results) = (Arc::new(recovered.spec.clone()), JobResults::new(id, Vec::new()));
    let mut job = Job::new(id, spec, dirs_of(&recovered), results);
    job.belongs_to(owner, file_hold);
    let (stages, failures_max) = (job.stage_kinds().to_vec(), job.failures_max());
    let submitted = Event::JobSubmitted { job: id, claim, stages, failures_max };
    take_in(work, outbox, job, submitted, recovered.cancel_asked);
}

/// Adds a job, and passes its event to the scheduler.
fn take_in(work: &mut Work, outbox: &mut Outbox, job: Job, event: Event, cancel_asked: Option<String>) {
    let id = job.id();
    let (may_copy, may_split) = (speculative_attempts::allowed(&job), range_cuts::allowed(&job));
    work.jobs.insert(job);
    feed(work, outbox, event);
    may_copy.into_iter().chain(may_split).for_each(|event| feed(work, outbox, event));
    if let Some(reason) = cancel_asked {
        stop(work, outbox, id, reason);
    }
}

/// Repairs flows after a restart. A flow cannot continue if one of its stages ended or was never stored while another
/// waits for it.
pub(crate) fn mend_recovered_flows(work: &mut Work, outbox: &mut Outbox) {
    let jobs = work.jobs.of_all_flows().collect::<Vec<JobId>>();
    let cut_off: Vec<JobId> = jobs.iter().filter(|id| flow::is_cut_off(work, **id)).copied().collect();
    for id in jobs {
        tell_those_it_reads(&mut work.jobs, id);
    }
    for id in cut_off {
        stop(work, outbox, id, "stopped: a stage that it reads has ended".to_string());
    }
    mend_flows(work, outbox, "data lost while there was no server");
    // The readers of these jobs ended before.
    for id in work.jobs.of_all_flows().collect::<Vec<JobId>>() {
        let event = may_end(work, outbox, id);
        event.into_iter().for_each(|event| feed(work, outbox, event));
    }
}

/// Continues the drains of nodes.
pub(crate) fn drain_again(work: &mut Work, outbox: &mut Outbox, drains: Drains) {
    drains.draining.into_iter().for_each(|node| begin_drain(work, outbox, node));
    drains.drained.into_iter().for_each(|node| drained_before(work, outbox, node));
}

/// Repeats the order to keep data for a job, since the previous server had not heard from all its nodes.
pub(crate) fn keep_again(work: &mut Work, outbox: &mut Outbox, recovered: RecoveredJob, owner: JobOwner) {
    let id = recovered.row.job;
    let surviving = recovered.runs.iter().filter(|run| run.replaced_by.is_none());
    let runs = surviving.map(|run| run.run).collect();
    let mut results = JobResults::new(id, Vec::new());
    replication::restore(&recovered, &mut results, |_| true);
    let mut job = Job::new(id, Arc::new(recovered.spec.clone()), dirs_of(&recovered), results);
    job.belongs_to(owner, None);
    job.has_ended(past_outcome(recovered));
    work.jobs.insert(job);
    begin_keeping(work, outbox, id, runs);
}

/// Continues a job that was running.
pub(crate) fn take_up(
    work: &mut Work,
    outbox: &mut Outbox,
    recovered: RecoveredWork,
    owner: JobOwner,
    step: Option<StepRank>,
) {
    let RecoveredWork { job: recovered, commits, file_hold } = recovered;
    let id = recovered.row.job;
    let needs = needs_of(&mut work.scheduling, work.service, &recovered.spec);
    let claim = Claim { user: owner.number, priority: recovered.row.priority, needs, step };
    let mut job = rebuilt(&recovered, commits);
    replication::restore(&recovered, job.results_mut(), |node| work.fleet.has(node));
    flows::restore(&recovered, job.results_mut(), |node| work.fleet.has(node));
    begin_to_replicate(&mut work.fleet, work.service, &mut job);
    job.belongs_to(owner, file_hold);
    let mut running = Vec::new();
    for row in recovered.attempts.iter().filter(|row| row.state == AttemptState::Running) {
        let slot = Slot { node: row.node, slot: row.slot };
        let in_hand = usize::from(row.attempt.task.stage.0) + 1 == job.tasks().len();
        match work.fleet.get_mut(row.node) {
            Some(node) if in_hand => {
                node.runs(row.attempt, row.slot, row.assigned_ns);
                running.push((row.attempt, slot));
            }
            _ => outbox.write(interrupted(row, outbox.now_ns())),
        }
    }
    let event = Event::JobRecovered {
        job: id,
        claim,
        stages: job.stage_kinds().to_vec(),
        failures_max: job.failures_max(),
        tasks: tasks(&work.fleet, &recovered, &job),
        running,
        attempts_used: attempts_used(&recovered),
        standing: standing(&recovered, job.tasks().len()),
    };
    take_in(work, outbox, job, event, recovered.cancel_asked);
}

/// Returns whether its first stage was created. The stage may have no tasks.
fn has_begun(job: &RecoveredJob) -> bool {
    job.stages.iter().any(|stage| stage.task_count.is_some())
}

/// Returns whether nodes must keep data of the job, as far as the rows tell.
fn is_to_be_kept(job: &RecoveredJob) -> bool {
    let ran_to_its_end = matches!(job.row.state, JobState::Succeeded | JobState::Failed);
    let is_sealed =
        job.stages.iter().any(|stage| stage.kind == StageKind::Seal && stage.state == StageState::Done);
    job.spec.keep_ifiles && ran_to_its_end && is_sealed
}

/// Returns the outcome of a job that is over.
fn past_outcome(job: RecoveredJob) -> JobOutcome {
    let failed = job.attempts.into_iter().filter(|row| row.state == AttemptState::Failed);
    match (job.row.state, job.report) {
        (JobState::Succeeded, Some(report)) => JobOutcome::Succeeded(Box::new(report)),
        _ => {
            let last = failed.max_by_key(|row| row.ended_ns);
            let attempt = last.as_ref().map(|row| row.attempt);
            let message = job.row.error.unwrap_or_default();
            let failure = last.and_then(|row| row.failure);
            let failure = failure.unwrap_or_else(|| TaskFailure::new(Blame::Environment, message));
            JobOutcome::Failed { failure, attempt, exit_code: job.row.exit_code.unwrap_or(1) }
        }
    }
}

/// Returns the description of a node as it registered.
pub fn node_info(row: &NodeRow) -> NodeInfo {
    NodeInfo {
        protocol: PROTOCOL_VERSION,
        version: row.version.clone(),
        name: row.name.clone(),
        rack: row.rack.clone(),
        slots: row.slots,
        memory_bytes: row.memory_bytes,
        architecture: row.arch.clone(),
        resources: row.resources.clone().into_iter().collect(),
        data_url: row.url.clone(),
        sees: row.sees.clone(),
        left: Vec::new(),
        predecessors: Vec::new(),
    }
}

fn interrupted(row: &AttemptRow, now_ns: u64) -> Change {
    Change::AttemptEnded {
        attempt: row.attempt,
        state: AttemptState::Interrupted,
        started_ns: row.started_ns.unwrap_or(row.assigned_ns),
        opened_ns: None,
        ended_ns: now_ns,
        failure: None,
    }
}

/// Returns the tasks that were not dropped with the data they worked on.
fn live_tasks(recovered: &RecoveredJob) -> impl Iterator<Item = &TaskRow> {
    recovered.tasks.iter().filter(|row| row.state != TaskState::Dropped)
}

/// Restores a job with its tasks and results.
fn rebuilt(recovered: &RecoveredJob, commits: WinningCommits) -> Job {
    let splits = live_tasks(recovered).filter_map(|row| match &row.payload {
        Task::Map(map) => Some(map.split.clone()),
        _ => None,
    });
    let splits: Vec<Split> = splits.collect();
    let id = recovered.row.job;
    let adopts = live_tasks(recovered).filter_map(|row| match &row.payload {
        Task::Adopt(adopt) => Some(adopt.clone()),
        _ => None,
    });
    let results = match recovered.spec.kind.source() {
        Some(_) => JobResults::reducing_again(id, adopts.collect(), commits),
        None => JobResults::new(id, splits),
    };
    let mut job = Job::new(id, Arc::new(recovered.spec.clone()), dirs_of(recovered), results);
    job.in_flow_mut().has_inputs = true;
    job.restore(recovered.boundaries.clone(), recovered.report.clone().map(Box::new));
    // A stage without tasks counts as expanded too.
    let expanded = recovered.stages.iter().filter(|stage| stage.task_count.is_some()).count();
    for stage in 0..expanded {
        let own = live_tasks(recovered).filter(|row| usize::from(row.task.stage.0) == stage);
        job.restore_stage(own.map(|row| row.payload.clone()).collect());
        if matches!(job.stage_kinds()[stage], StageKind::Seal | StageKind::Adopt) {
            job.results_mut().seal.get_or_insert_default();
        }
    }
    for row in live_tasks(recovered) {
        if let Task::Map(MapTask { again: Some(again), .. }) = &row.payload {
            job.results_mut().again.insert(row.task.task, again.clone());
            job.results_mut().regenerations = job.results().regenerations.max(again.round);
        }
    }
    for (attempt, result) in &recovered.results {
        job.results_mut().record(*attempt, result.clone());
    }
    let times = recovered.attempts.iter().filter_map(attempt_time);
    job.results_mut().attempts = times.collect();
    let versions = recovered.plan_versions.iter().copied();
    job.results_mut().plan_version = versions.max().unwrap_or_default();
    plan_again(recovered, &mut job);
    job
}

fn plan_again(recovered: &RecoveredJob, job: &mut Job) {
    let planned = live_tasks(recovered).filter_map(|row| match &row.payload {
        Task::Reduce(reduce) => Some(reduce.clone()),
        _ => None,
    });
    let planned = planned.collect();
    let reduces = job.stage_kinds().iter().position(|kind| *kind == StageKind::Reduce);
    if reduces.is_none_or(|reduces| reduces >= job.tasks().len()) {
        // Tasks of a stage that is not expanded: their results stay valid while earlier data is recomputed.
        job.results_mut().planned_before = planned;
        return;
    }
    // The target size is not stored, but equal results give the same one.
    let mut again = job.results().clone();
    if mapreduce::expand(StageKind::Reduce, job.spec(), &mut again).is_ok() {
        job.results_mut().target_bytes = again.target_bytes;
    }
    job.results_mut().plan = planned;
}

fn attempt_time(row: &AttemptRow) -> Option<AttemptTime> {
    Some(AttemptTime {
        stage: row.attempt.task.stage,
        task: row.attempt.task.task,
        started_ns: row.started_ns?,
        ended_ns: row.ended_ns?,
        won: row.state == AttemptState::Succeeded,
    })
}

/// Returns the tasks of the expanded stages for the scheduler.
fn tasks(fleet: &Fleet, recovered: &RecoveredJob, job: &Job) -> Vec<Vec<RecoveredTask>> {
    let mut tasks: Vec<Vec<RecoveredTask>> = job
        .tasks()
        .iter()
        .map(|stage| {
            let task = |task: &Task| RecoveredTask { placement: placement(task), ..RecoveredTask::default() };
            stage.iter().map(task).collect()
        })
        .collect();
    for (index, placement) in bound(fleet, job) {
        if let Some(task) = tasks.first_mut().and_then(|maps| maps.get_mut(index.0 as usize)) {
            task.placement = placement;
        }
    }
    let at = |key: AttemptKey| (usize::from(key.task.stage.0), key.task.task.0 as usize);
    for row in &recovered.attempts {
        let (stage, index) = at(row.attempt);
        if let Some(task) = tasks.get_mut(stage).and_then(|stage| stage.get_mut(index)) {
            task.attempts_started = task.attempts_started.max(row.attempt.attempt.0 + 1);
            task.failures += u32::from(row.state == AttemptState::Failed);
        }
    }
    for row in live_tasks(recovered) {
        let (stage, index) = (usize::from(row.task.stage.0), row.task.task.0 as usize);
        if let Some(task) = tasks.get_mut(stage).and_then(|stage| stage.get_mut(index)) {
            task.winner = row.winner;
        }
    }
    tasks
}

/// Returns the winners of finished tasks in stages that are not expanded.
fn standing(recovered: &RecoveredJob, expanded: usize) -> Vec<(StageIndex, TaskIndex, AttemptNumber)> {
    let later = live_tasks(recovered).filter(|row| usize::from(row.task.stage.0) >= expanded);
    later.filter_map(|row| Some((row.task.stage, row.task.task, row.winner?))).collect()
}

/// Returns the number of attempt numbers used in each stage, those of dropped tasks included.
fn attempts_used(recovered: &RecoveredJob) -> Vec<(StageIndex, u32)> {
    let used = |stage: StageIndex| {
        let own = recovered.attempts.iter().filter(|row| row.attempt.task.stage == stage);
        own.map(|row| row.attempt.attempt.0 + 1).max().unwrap_or(0)
    };
    recovered.stages.iter().map(|stage| (stage.stage, used(stage.stage))).collect()
}
