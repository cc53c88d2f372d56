//! The jobs and nodes of a cluster after a restart: what the store remembers becomes what the loop knows, and every
//! lease begins anew.

use crate::ServerError;
use crate::clock::now_ns;
use crate::directories::Directories;
use crate::event_loop::EventLoop;
use crate::fleet::NodeProcess;
use crate::job::{Job, placement};
use crate::messages::JobRun;
use crate::{arguments, elastic, flows, replication, shipping, speculation};
use api::control::{JobOutcome, NodeInfo, NodeOrder, PROTOCOL_VERSION};
use api::task::MapTask;
use api::{Blame, Split, Task, TaskFailure};
use control::program_jobs::FileHold;
use control::users::Has;
use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex};
use mapreduce::flow::{self, Flows};
use mapreduce::{AttemptTime, JobResults, expand};
use metastore::{
    AttemptRow, AttemptState, Change, JobState, Keep, NodeRow, NodeState, RecoveredJob, TaskRow,
    WinningCommits,
};
use scheduler::{Claim, Event, RecoveredTask, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A node that was drained and not seen for so long has left.
const LEAVES_WITHIN: Duration = Duration::from_secs(300);

impl EventLoop {
    /// Takes over what another process of this cluster's server had in hand.
    pub async fn recover(&mut self) -> Result<(), ServerError> {
        self.begin_to_sign().await?;
        let recovered = self.store.recover().await?;
        let jobs: Vec<JobId> = recovered.jobs.keys().copied().collect();
        let (mut draining, mut drained) = (Vec::new(), Vec::new());
        let seen_since_ns = now_ns().saturating_sub(LEAVES_WITHIN.as_nanos() as u64);
        for row in recovered.nodes {
            match row.state {
                NodeState::Up => {}
                NodeState::Draining => draining.push(row.node),
                // It may not have heard that it may leave, and would come back as a new one.
                NodeState::Drained if row.last_seen_ns >= seen_since_ns => drained.push(row.node),
                NodeState::Drained | NodeState::Dead | NodeState::Left => continue,
            }
            self.node_came(row.node, row.memory_bytes, &row.arch);
            let info = node_info(&row);
            let process = NodeProcess { incarnation: row.incarnation, join_token: row.join_token };
            self.fleet.restore(row.node, process, info, &jobs);
        }
        self.tell_keys();
        // What was ordered about kept files may not have arrived.
        self.fleet.all_mut().for_each(|node| node.order(NodeOrder::TellKept));
        // A first stage without tasks: nobody knows of the whole flow.
        let has_none = |job: &&RecoveredJob| !has_begun(job) && job.spec.reads().is_empty();
        let flow = |job: &RecoveredJob| Some(job.spec.stage.as_ref()?.flow);
        let unanswered: BTreeSet<JobId> = recovered.jobs.values().filter(has_none).filter_map(flow).collect();
        self.is_recovering = true;
        for job in recovered.jobs.into_values() {
            // One without tasks was never answered: nobody knows of it.
            let is_unanswered = job.spec.stage.as_ref().is_some_and(|stage| unanswered.contains(&stage.flow));
            let waits = !has_begun(&job) && !job.spec.reads().is_empty() && !is_unanswered;
            match job.goes_on() && (waits || has_begun(&job)) {
                true if waits => self.wait_again(job),
                true => {
                    let commits = match job.spec.reduce_again {
                        Some(source) => self.store.winning_commits(source).await?,
                        None => WinningCommits::new(),
                    };
                    self.take_up(job, commits);
                }
                false if is_to_be_kept(&job) => self.keep_again(job),
                false => self.clean_up(&job),
            }
        }
        self.recover_waiting().await?;
        self.is_recovering = false;
        self.mend_recovered_flows();
        self.recover_files().await?;
        draining.into_iter().for_each(|node| self.begin_drain(node));
        drained.into_iter().for_each(|node| self.drained_before(node));
        self.write_and_reply().await?;
        Ok(())
    }

    fn clean_up(&mut self, job: &RecoveredJob) {
        let (id, now_ns) = (job.row.job, now_ns());
        if !job.row.state.over() {
            self.changes.push(Change::JobEnded {
                job: id,
                state: JobState::Interrupted,
                exit_code: None,
                error: Some("the server died before it had the job".to_string()),
                now_ns,
            });
        }
        if job.spec.single.is_some() {
            self.changes.push(Change::JobCleaned { job: id, kept: Keep::Nothing, now_ns });
            return;
        }
        // The order of the server before this one may not have arrived.
        self.fleet.order_all(id, NodeOrder::Forget { job: id });
        let directories = Directories { staging: job.row.staging.clone(), disk_dirs: Vec::new() };
        match directories.remove(&self.paths, false) {
            Ok(()) => self.changes.push(Change::JobCleaned { job: id, kept: Keep::Nothing, now_ns }),
            Err(error) => tracing::warn!(job = %id, %error, "cannot remove the files of a job"),
        }
    }

    fn job_run(&self, recovered: &RecoveredJob) -> JobRun {
        JobRun {
            staging: recovered.row.staging.clone(),
            cancelled: self.shared.add_job(recovered.row.job),
            ..JobRun::new(Arc::new(recovered.spec.clone()))
        }
    }

    /// Counts the job with those of its user; gives the number of the user, and what was counted of it.
    fn user_of(&mut self, recovered: &RecoveredJob) -> (u64, u64) {
        let more = Has { jobs: 1, spec_bytes: arguments::spec_bytes(&recovered.spec) };
        (self.users.jobs_begin(recovered.row.user.clone().unwrap_or_default(), more), more.spec_bytes)
    }

    /// A stage of a flow that had not begun.
    fn wait_again(&mut self, recovered: RecoveredJob) {
        let id = recovered.row.job;
        let (user, spec_bytes) = self.user_of(&recovered);
        let claim = Claim { user, priority: recovered.row.priority, needs: self.needs_of(&recovered.spec) };
        let mut job = Job::new(id, Arc::new(self.job_run(&recovered)), JobResults::new(id, Vec::new()));
        (job.user, job.spec_bytes) = (claim.user, spec_bytes);
        let contents = shipping::contents(&recovered.spec);
        job.file_hold =
            self.depot.as_ref().map(|depot| Arc::new(depot.hold_what_is_here(&contents)) as FileHold);
        let (stages, failures_max) = (job.stage_names.clone(), job.failures_max());
        let (may_copy, may_split) = (speculation::allowed(&job), elastic::allowed(&job));
        self.joins_flow(&job);
        self.jobs.insert(id, job);
        self.any_job_yet = true;
        self.feed(Event::JobSubmitted { job: id, claim, stages, failures_max });
        may_copy.into_iter().chain(may_split).for_each(|event| self.feed(event));
        if let Some(reason) = recovered.cancel_asked {
            self.stop(id, reason);
        }
    }

    /// A flow of which a stage was over, or never came, while another waits for it, cannot go on.
    fn mend_recovered_flows(&mut self) {
        let jobs = self.of_all_flows();
        let cut_off: Vec<JobId> = jobs.iter().filter(|id| flow::is_cut_off(self, **id)).copied().collect();
        for id in jobs {
            self.tells_those_it_reads(id);
        }
        for id in cut_off {
            self.stop(id, "stopped: a stage that it reads is over".to_string());
        }
        self.mend_flows("what was lost while there was no server");
        // Their readers were over before.
        for id in self.of_all_flows() {
            let event = self.may_end(id);
            event.into_iter().for_each(|event| self.feed(event));
        }
    }

    /// The server before this one did not hear from all nodes that they keep what the job left.
    fn keep_again(&mut self, recovered: RecoveredJob) {
        let id = recovered.row.job;
        let run = Arc::new(self.job_run(&recovered));
        let surviving = recovered.runs.iter().filter(|run| run.replaced_by.is_none());
        let runs = surviving.map(|run| run.run).collect();
        let mut results = JobResults::new(id, Vec::new());
        replication::restore(&recovered, &mut results, |_| true);
        let mut job = Job::new(id, run, results);
        (job.user, job.spec_bytes) = self.user_of(&recovered);
        job.outcome = Some(past_outcome(recovered));
        self.jobs.insert(id, job);
        self.begin_keeping(id, runs);
    }

    fn take_up(&mut self, recovered: RecoveredJob, commits: WinningCommits) {
        let id = recovered.row.job;
        let run = self.job_run(&recovered);
        let (user, spec_bytes) = self.user_of(&recovered);
        let claim = Claim { user, priority: recovered.row.priority, needs: self.needs_of(&recovered.spec) };
        let mut job = rebuilt(&recovered, run, commits);
        replication::restore(&recovered, &mut job.results, |node| self.fleet.has(node));
        flows::restore(&recovered, &mut job.results, |node| self.fleet.has(node));
        self.begins_to_replicate(&mut job);
        (job.user, job.spec_bytes) = (claim.user, spec_bytes);
        let contents = shipping::contents(&recovered.spec);
        job.file_hold =
            self.depot.as_ref().map(|depot| Arc::new(depot.hold_what_is_here(&contents)) as FileHold);
        let mut running = Vec::new();
        for row in recovered.attempts.iter().filter(|row| row.state == AttemptState::Running) {
            let slot = Slot { node: row.node, slot: row.slot };
            let in_hand = usize::from(row.attempt.task.stage.0) + 1 == job.tasks.len();
            match self.fleet.get_mut(row.node) {
                Some(node) if in_hand => {
                    node.running.insert(row.attempt, (row.slot, row.assigned_ns));
                    running.push((row.attempt, slot));
                }
                _ => self.changes.push(interrupted(row)),
            }
        }
        let event = Event::JobRecovered {
            job: id,
            claim,
            stages: job.stage_names.clone(),
            failures_max: job.failures_max(),
            tasks: tasks(&recovered, &job),
            running,
            attempts_used: attempts_used(&recovered),
            standing: standing(&recovered, job.tasks.len()),
        };
        let (may_copy, may_split) = (speculation::allowed(&job), elastic::allowed(&job));
        self.joins_flow(&job);
        self.jobs.insert(id, job);
        self.any_job_yet = true;
        self.feed(event);
        may_copy.into_iter().chain(may_split).for_each(|event| self.feed(event));
        if let Some(reason) = recovered.cancel_asked {
            self.stop(id, reason);
        }
    }
}

/// Whether its first stage was made. It may have no tasks.
fn has_begun(job: &RecoveredJob) -> bool {
    job.stages.iter().any(|stage| stage.task_count.is_some())
}

/// Whether nodes have what the job was told to keep, as far as the rows tell.
fn is_to_be_kept(job: &RecoveredJob) -> bool {
    let ran_to_its_end = matches!(job.row.state, JobState::Succeeded | JobState::Failed);
    let is_sealed = job.stages.iter().any(|stage| stage.name == "seal" && stage.state == "done");
    job.spec.keep_ifiles && ran_to_its_end && is_sealed
}

/// How a job ended that is over.
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

pub(crate) fn node_info(row: &NodeRow) -> NodeInfo {
    NodeInfo {
        protocol: PROTOCOL_VERSION,
        version: row.version.clone(),
        name: row.name.clone(),
        rack: row.rack.clone(),
        slots: row.slots,
        memory_bytes: row.memory_bytes,
        architecture: row.arch.clone(),
        data_url: row.url.clone(),
        left: Vec::new(),
    }
}

fn interrupted(row: &AttemptRow) -> Change {
    Change::AttemptEnded {
        attempt: row.attempt,
        state: AttemptState::Interrupted,
        started_ns: row.started_ns.unwrap_or(row.assigned_ns),
        opened_ns: None,
        ended_ns: now_ns(),
        failure: None,
    }
}

/// Those that were not struck with the data they worked on.
fn live_tasks(recovered: &RecoveredJob) -> impl Iterator<Item = &TaskRow> {
    recovered.tasks.iter().filter(|row| row.state != "dropped")
}

/// The job with its tasks and results.
fn rebuilt(recovered: &RecoveredJob, run: JobRun, commits: WinningCommits) -> Job {
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
    let results = match recovered.spec.reduce_again {
        Some(_) => JobResults::reducing_again(id, adopts.collect(), commits),
        None => JobResults::new(id, splits),
    };
    let mut job = Job::new(id, Arc::new(run), results);
    job.in_flow.has_inputs = true;
    job.boundaries = recovered.boundaries.clone();
    job.report = recovered.report.clone().map(Box::new);
    // A stage without tasks was expanded all the same.
    let expanded = recovered.stages.iter().filter(|stage| stage.task_count.is_some()).count();
    for stage in 0..expanded {
        let own = live_tasks(recovered).filter(|row| usize::from(row.task.stage.0) == stage);
        job.tasks.push(own.map(|row| row.payload.clone()).collect());
        if matches!(job.stage_names[stage], "seal" | "adopt") {
            job.results.seal.get_or_insert_default();
        }
    }
    for row in live_tasks(recovered) {
        if let Task::Map(MapTask { again: Some(again), .. }) = &row.payload {
            job.results.again.insert(row.task.task, again.clone());
            job.results.regenerations = job.results.regenerations.max(again.round);
        }
    }
    for (attempt, result) in &recovered.results {
        job.results.record(*attempt, result.clone());
    }
    let times = recovered.attempts.iter().filter_map(attempt_time);
    job.results.attempts = times.collect();
    let versions = recovered.plan_versions.iter().copied();
    job.results.plan_version = versions.max().unwrap_or_default();
    plan_again(recovered, &mut job);
    job
}

fn plan_again(recovered: &RecoveredJob, job: &mut Job) {
    let planned = live_tasks(recovered).filter_map(|row| match &row.payload {
        Task::Reduce(reduce) => Some(reduce.clone()),
        _ => None,
    });
    let planned = planned.collect();
    let reduces = job.stage_names.iter().position(|name| *name == "reduce");
    if reduces.is_none_or(|reduces| reduces >= job.tasks.len()) {
        // Tasks of a stage that is not expanded: what they have done stands while data before them is made again.
        job.results.planned_before = planned;
        return;
    }
    // The target is not kept, but the same results give the same one.
    let mut again = job.results.clone();
    if expand("reduce", &job.run.spec, &mut again).is_ok() {
        job.results.target_bytes = again.target_bytes;
    }
    job.results.plan = planned;
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

/// The tasks of the expanded stages, as the scheduler knows them.
fn tasks(recovered: &RecoveredJob, job: &Job) -> Vec<Vec<RecoveredTask>> {
    let mut tasks: Vec<Vec<RecoveredTask>> = job
        .tasks
        .iter()
        .map(|stage| {
            let task = |task: &Task| RecoveredTask { placement: placement(task), ..RecoveredTask::default() };
            stage.iter().map(task).collect()
        })
        .collect();
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

/// Winners of tasks that are done in stages which are not expanded.
fn standing(recovered: &RecoveredJob, expanded: usize) -> Vec<(StageIndex, TaskIndex, AttemptNumber)> {
    let later = live_tasks(recovered).filter(|row| usize::from(row.task.stage.0) >= expanded);
    later.filter_map(|row| Some((row.task.stage, row.task.task, row.winner?))).collect()
}

/// Numbers that attempts of stages had, also those of tasks that were struck.
fn attempts_used(recovered: &RecoveredJob) -> Vec<(StageIndex, u32)> {
    let used = |stage: StageIndex| {
        let own = recovered.attempts.iter().filter(|row| row.attempt.task.stage == stage);
        own.map(|row| row.attempt.attempt.0 + 1).max().unwrap_or(0)
    };
    recovered.stages.iter().map(|stage| (stage.stage, used(stage.stage))).collect()
}
