//! Flows: stages are jobs of their own, and each begins when the stages that it reads are done (intermediate storage
//! system, ISS, section 4). `mapreduce::flow` decides what follows from their states; this module executes the
//! decisions, stores them and sends the orders.

use crate::interface::Outbox;
use crate::job::{Job, Jobs};
use crate::replication::begin_to_replicate;
use crate::work::Work;
use api::control::{JobOutcome, NodeOrder};
use api::history::EventKind;
use api::machine::ReplicatedPart;
use api::{Blame, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, StageKind};
use mapreduce::flow::{Flows, Inputs, Stage};
use mapreduce::{ExpandError, JobResults, flow};
use rows::{Change, PartReplicaRow, RecoveredJob};
use scheduler::Event;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Flows for Work {
    fn stage(&self, job: JobId) -> Option<Stage<'_>> {
        let job = self.jobs.get(&job)?;
        let (spec, results, state) = (job.spec().as_ref(), job.results(), job.in_flow());
        Some(Stage { spec, results, state: *state, is_over: job.outcome().is_some() })
    }

    fn of_flow(&self, flow: JobId) -> Vec<JobId> {
        self.jobs.of_flow(flow)
    }

    fn of_all_flows(&self) -> BTreeSet<JobId> {
        self.jobs.of_all_flows().collect()
    }

    fn has_left(&self, node: NodeId) -> bool {
        Work::has_left(self, node)
    }
}

impl Job {
    /// Returns whether a stage that it reads is not done, so that its inputs are not known yet.
    pub(crate) fn waits(&self) -> bool {
        self.in_flow().waits(self.spec())
    }

    /// Checks the proof of a stage that feeds others.
    pub(crate) fn prove_parts(&mut self) -> Result<(), ExpandError> {
        let spec = Arc::clone(self.spec());
        mapreduce::expand(StageKind::Commit, &spec, self.results_mut()).map(drop)
    }
}

/// Returns whether the first stage of a job still waits for its inputs. Once the stages that it reads are done, plans
/// its inputs. Fails if the inputs are not valid for the job.
pub(crate) fn waits_for_inputs(work: &mut Work, outbox: &mut Outbox, id: JobId) -> Result<bool, TaskFailure> {
    let planned = match flow::inputs(work, id) {
        Ok(Inputs::Known) => return Ok(false),
        Ok(Inputs::NotYet) => return Ok(true),
        Ok(Inputs::Are(planned)) => planned,
        Err(error) => return Err(TaskFailure::new(Blame::UserData, error.to_string())),
    };
    let (spec, splits) = *planned;
    let spec = Arc::new(spec);
    let Some(job) = work.jobs.get_mut(&id) else { return Ok(true) };
    job.has_inputs(Arc::clone(&spec), splits);
    outbox.write(Change::JobInputs { job: id, spec });
    begin_to_replicate(&mut work.fleet, work.service, job);
    tell_those_it_reads(&mut work.jobs, id);
    Ok(false)
}

/// Marks the jobs that a job reads as read, once its inputs are known: from then on their parts may not change.
pub(crate) fn tell_those_it_reads(jobs: &mut Jobs, id: JobId) {
    let reads = jobs.get(&id).filter(|job| job.in_flow().has_inputs).map(|job| job.spec().reads().to_vec());
    for read in reads.into_iter().flatten() {
        if let Some(before) = jobs.get_mut(&read) {
            before.in_flow_mut().is_read = true;
        }
    }
}

/// Ends a job whose parts no stage needs any more.
pub(crate) fn let_end(work: &mut Work, outbox: &mut Outbox, id: JobId) -> Option<Event> {
    let job = work.jobs.get_mut(&id)?;
    let stage = StageIndex(job.tasks().len() as u16);
    job.in_flow_mut().parts_ready = false;
    match job.expand_stage(stage, outbox) {
        Ok(tasks) => Some(Event::StageExpanded { job: id, stage, tasks }),
        Err(error) => {
            job.stage_failed(&error, outbox);
            Some(Event::StageRefused { job: id, stage })
        }
    }
}

/// Continues a flow after the end of a job. If the job did not succeed, all others are stopped; if it did, the jobs
/// that it read may end.
pub(crate) fn flow_goes_on(work: &mut Work, outbox: &mut Outbox, id: JobId) -> Vec<Event> {
    let outcome = work.jobs.get(&id).and_then(|job| job.outcome());
    if matches!(outcome, Some(JobOutcome::Succeeded(_))) {
        let rested = flow::released_by(work, id);
        return rested.into_iter().filter_map(|read| let_end(work, outbox, read)).collect();
    }
    let others = flow::stopped_by(work, id);
    stop_with(work, outbox, id, others)
}

pub(crate) fn may_end(work: &mut Work, outbox: &mut Outbox, id: JobId) -> Option<Event> {
    if flow::may_end(work, id) { let_end(work, outbox, id) } else { None }
}

pub(crate) fn stop_with(
    work: &mut Work,
    outbox: &mut Outbox,
    because_of: JobId,
    others: Vec<JobId>,
) -> Vec<Event> {
    let stage = work.jobs.get(&because_of).and_then(|job| job.spec().stage.as_ref());
    let name = stage.map(|stage| stage.name.clone()).unwrap_or_default();
    let mut events = Vec::new();
    for id in others {
        let Some(job) = work.jobs.get_mut(&id) else { continue };
        job.stop_attempts(outbox);
        let reason = format!("stopped with its flow: the stage {name:?} (job {because_of}) did not succeed");
        outbox.note(id, EventKind::JobCancelAsked, reason.clone());
        job.ends_because(reason);
        work.fleet.order_all(id, NodeOrder::Stop { job: id });
        events.push(Event::JobCancelled { job: id });
    }
    events
}

/// Returns a task as it is sent to a node, with the current locations of its inputs.
pub(crate) fn with_stage_files(work: &Work, id: JobId, task: Task) -> Task {
    let Task::Map(mut map) = task else { return task };
    map.places = flow::places(work, id, &map);
    Task::Map(map)
}

/// Prefers the nodes that hold the input of a map task for running it.
pub(crate) fn near_stage_files(work: &Work, id: JobId, placements: &mut [Placement]) {
    let maps = work.jobs.get(&id).and_then(|job| job.tasks().first());
    let near = maps.map(|maps| flow::near(work, id, maps)).unwrap_or_default();
    for (nodes, placement) in near.into_iter().zip(placements).filter(|(nodes, _)| !nodes.is_empty()) {
        *placement = Placement::Near(nodes);
    }
}

/// Records that the parts on a lost node are gone, for all unfinished stages.
pub(crate) fn parts_gone(jobs: &mut Jobs, node: NodeId) {
    for id in jobs.of_all_flows().collect::<Vec<JobId>>() {
        let Some(job) = jobs.get_mut(&id).filter(|job| job.outcome().is_none()) else { continue };
        job.results_mut().parts_gone(node, None);
    }
}

/// Handles a node's report that other nodes hold replicas of its parts.
pub(crate) fn parts_replicated(
    work: &mut Work,
    outbox: &mut Outbox,
    from: NodeId,
    told: Vec<ReplicatedPart>,
) {
    for told in told {
        let (id, is_there) = (told.job, work.fleet.has(told.to));
        let Some(job) = work.jobs.get_mut(&id).filter(|job| job.outcome().is_none() && is_there) else {
            continue;
        };
        let counts = job.results_mut().take_part_replica(from, told);
        outbox.write_all(counts.map(|told| part_replica(id, &told)));
    }
}

/// Stores a replica of a part that was reported before the part's task was done.
pub(crate) fn part_is_there(job: &mut Job, outbox: &mut Outbox, attempt: AttemptKey) {
    let early = job.results_mut().take_early_part_replica(attempt.task.task);
    outbox.write_all(early.map(|told| part_replica(job.id(), &told)));
}

/// Returns an error for a part that differs from the part announced to later stages, and for maps that are not
/// deterministic if a stage has begun to read their output.
pub(crate) fn check_same_part(
    work: &Work,
    attempt: AttemptKey,
    result: &TaskResult,
) -> Result<(), TaskFailure> {
    match flow::differs_from_told(work, attempt, result) {
        false => Ok(()),
        true => Err(TaskFailure::new(
            Blame::UserData,
            "lost data came out differently when it was recomputed, and later stages have already read some of it: the programs of this stage are not deterministic; run the flow with --replication rack",
        )),
    }
}

/// Restores the locations of the parts of a recovered stage: parts of lost nodes are read from their replicas.
pub(crate) fn restore(recovered: &RecoveredJob, results: &mut JobResults, lives: impl Fn(NodeId) -> bool) {
    let replicas = recovered.part_replicas.iter().map(|row| (row.task, row.node));
    results.restore_parts(replicas, lives);
}

/// Returns the change that stores the replica of a part on another node.
fn part_replica(job: JobId, told: &ReplicatedPart) -> Change {
    let ReplicatedPart { task, to, bytes, single_ns, sending_ns, .. } = *told;
    let row = PartReplicaRow { task, node: to, bytes, single_ns, sending_ns };
    Change::PartReplicas { job, replicas: vec![row] }
}
