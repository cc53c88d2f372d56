//! Flows: stages that are jobs of their own, each of which begins when those that it reads are done (ISS, section 4; design
//! section 3, "Intermediate files between stages"). What follows from how far each is, `mapreduce::flow` says; here it is done,
//! written down and told.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::EventLoop;
use crate::job::{Job, Loss, RunAgain};
use crate::messages::{Finished, JobRun, Service};
use api::control::{JobOutcome, NodeOrder};
use api::flow::{FLOW_STAGES_MAX, FlowSubmission};
use api::machine::ReplicatedPart;
use api::{Blame, LostInput, RecordFormat, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskIndex};
use mapreduce::flow::{self, AfterEnd, AtRest, Flows, Inputs, PartsAgain, Stage};
use mapreduce::{ExpandError, JobResults};
use metastore::{AttemptState, CANCEL_ASKED_NOTE, Change, DATA_LOST_NOTE, PartReplicaRow, RecoveredJob};
use scheduler::{Event, Placement, Standing};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

const NAME_BYTES_MAX: usize = 100;

/// A reason why stages that were handed in together are no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    #[error("a flow has {count} stages: give 1 to {FLOW_STAGES_MAX}")]
    Stages { count: usize },
    #[error("the stage {name:?} reads itself or one behind it")]
    ReadsLater { name: String },
    #[error("the stage {name:?} is read by none, and has no output")]
    FeedsNobody { name: String },
    #[error("the stage {name:?} has an output of its own, so that no other stage can read it")]
    Published { name: String },
    #[error("two stages have the name {name:?}, or one has none, or one of more than {NAME_BYTES_MAX} bytes")]
    Name { name: String },
    #[error("the outputs {} and {} of two stages lie one in the other", first.display(), second.display())]
    Outputs { first: PathBuf, second: PathBuf },
    #[error("the stage {name:?} {what}, which a stage that reads others cannot")]
    CannotRead { name: String, what: &'static str },
    #[error("the stage {name:?} {what}, which a stage that others read cannot")]
    CannotFeed { name: String, what: &'static str },
}

/// Refuses what is no flow.
pub(crate) fn check(flow: &FlowSubmission) -> Result<(), FlowError> {
    let count = flow.stages.len();
    if !(1..=FLOW_STAGES_MAX).contains(&count) {
        return Err(FlowError::Stages { count });
    }
    let is_read: BTreeSet<u32> = flow.stages.iter().flat_map(|stage| stage.reads.iter().copied()).collect();
    let mut names = BTreeSet::new();
    for (index, stage) in flow.stages.iter().enumerate() {
        let of_flow = stage.spec.stage.clone().unwrap_or_default();
        let name = of_flow.name;
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !is_name || !names.insert(name.clone()) {
            return Err(FlowError::Name { name });
        }
        if stage.reads.iter().any(|read| *read as usize >= index) {
            return Err(FlowError::ReadsLater { name });
        }
        let spec = &stage.spec;
        match (of_flow.feeds, is_read.contains(&(index as u32))) {
            (true, false) => return Err(FlowError::FeedsNobody { name }),
            (false, true) => return Err(FlowError::Published { name }),
            _ => {}
        }
        let only_kept = [
            (spec.generate.is_some(), "makes rows of its own"),
            (spec.reduce_again.is_some(), "reduces again what another job kept"),
            (spec.formats.input == RecordFormat::Stretches, "has stretches for its records"),
        ];
        if let Some((_, what)) = only_kept.into_iter().find(|(is_so, _)| *is_so && !stage.reads.is_empty()) {
            return Err(FlowError::CannotRead { name, what });
        }
        let hinders = [
            (spec.keep_ifiles, "keeps its I-files"),
            (spec.reduce_again.is_some(), "reduces again what another job kept"),
            (spec.formats.output_codec.is_some(), "compresses its output"),
            (spec.streaming.is_some(), "is one of Hadoop Streaming"),
        ];
        if let Some((_, what)) = hinders.into_iter().find(|(is_so, _)| of_flow.feeds && *is_so) {
            return Err(FlowError::CannotFeed { name, what });
        }
    }
    check_outputs(flow)
}

/// Each output is one stage's own.
fn check_outputs(flow: &FlowSubmission) -> Result<(), FlowError> {
    let ends = flow.stages.iter().map(|stage| &stage.spec).filter(|spec| !spec.feeds());
    let outputs: Vec<&PathBuf> = ends.map(|spec| &spec.output).collect();
    for (index, first) in outputs.iter().enumerate() {
        let shares = |second: &&&PathBuf| first.starts_with(second) || second.starts_with(first);
        if let Some(second) = outputs[index + 1..].iter().find(shares) {
            return Err(FlowError::Outputs { first: first.to_path_buf(), second: second.to_path_buf() });
        }
    }
    Ok(())
}

impl Flows for EventLoop {
    fn stage(&self, job: JobId) -> Option<Stage<'_>> {
        let job = self.jobs.get(&job)?;
        let (spec, results, state) = (job.spec(), &job.results, job.in_flow);
        Some(Stage { spec, results, state, is_over: job.outcome.is_some() })
    }

    fn of_flow(&self, flow: JobId) -> Vec<JobId> {
        self.flows.get(&flow).cloned().unwrap_or_default()
    }

    fn of_all_flows(&self) -> BTreeSet<JobId> {
        self.flows.values().flatten().copied().collect()
    }

    fn has_left(&self, node: NodeId) -> bool {
        self.service == Service::Cluster && !self.fleet.has(node)
    }
}

impl EventLoop {
    /// A job is there that may be a stage of a flow.
    pub fn joins_flow(&mut self, job: &Job) {
        if let Some(stage) = &job.run.spec.stage {
            self.flows.entry(stage.flow).or_default().push(job.id);
        }
    }

    /// A job is no more.
    pub fn leaves_flow(&mut self, job: &Job) {
        let Some(stage) = &job.run.spec.stage else { return };
        if let Some(jobs) = self.flows.get_mut(&stage.flow) {
            jobs.retain(|other| *other != job.id);
            if jobs.is_empty() {
                self.flows.remove(&stage.flow);
            }
        }
    }

    /// Whether the first stage of a job waits for others. Where those are done its inputs are put together; an error is for the job.
    pub fn waits_for_inputs(&mut self, id: JobId) -> Result<bool, TaskFailure> {
        let planned = match flow::inputs(self, id) {
            Ok(Inputs::Known) => return Ok(false),
            Ok(Inputs::NotYet) => return Ok(true),
            Ok(Inputs::Are(planned)) => planned,
            Err(error) => return Err(TaskFailure::new(Blame::UserData, error.to_string())),
        };
        let (spec, splits) = *planned;
        let spec = Arc::new(spec);
        let Some(mut job) = self.jobs.remove(&id) else { return Ok(true) };
        job.run = Arc::new(JobRun { spec: Arc::clone(&spec), ..job.run.as_ref().clone() });
        job.results.splits = splits;
        job.in_flow.has_inputs = true;
        self.changes.push(Change::JobInputs { job: id, spec });
        self.begins_to_replicate(&mut job);
        self.jobs.insert(id, job);
        self.tells_those_it_reads(id);
        Ok(false)
    }

    /// A job that has inputs has those whose parts they are not change them.
    pub fn tells_those_it_reads(&mut self, id: JobId) {
        let reads =
            self.jobs.get(&id).filter(|job| job.in_flow.has_inputs).map(|job| job.run.spec.reads().to_vec());
        for read in reads.into_iter().flatten() {
            if let Some(before) = self.jobs.get_mut(&read) {
                before.in_flow.is_read = true;
            }
        }
    }

    /// All parts of a stage that feeds others are there and the proof agrees: it rests, and those that wait for it may begin.
    pub fn rests(&mut self, id: JobId) -> Vec<Event> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.in_flow.rests = true;
            // What of it was lost since it was made is missed by those who read it now.
            self.flows_hurt = true;
        }
        let begin = match flow::at_rest(self, id, self.is_recovering) {
            AtRest::Ends => return self.let_end(id).into_iter().collect(),
            AtRest::Begin(begin) => begin,
        };
        let mut events = vec![Event::JobRests { job: id }];
        for reader in begin {
            events.extend(self.expand(reader, StageIndex(0)));
        }
        events
    }

    /// Nobody needs the parts of a resting stage any more.
    fn let_end(&mut self, id: JobId) -> Option<Event> {
        let job = self.jobs.get_mut(&id)?;
        let stage = StageIndex(job.tasks.len() as u16);
        job.in_flow.rests = false;
        match job.expand_stage(stage, &mut self.changes) {
            Ok(_) => Some(Event::StageExpanded { job: id, stage, tasks: Vec::new() }),
            Err(error) => {
                job.stage_failed(&error, &mut self.changes);
                Some(Event::StageRefused { job: id, stage })
            }
        }
    }

    /// A job of a flow is over. With one that did not succeed all others end; after one that did, those that it read may go.
    pub fn flow_goes_on(&mut self, id: JobId) -> Vec<Event> {
        let outcome = self.jobs.get(&id).and_then(|job| job.outcome.as_ref());
        let succeeded = matches!(outcome, Some(JobOutcome::Succeeded(_)));
        match flow::after_end(self, id, succeeded) {
            AfterEnd::LetEnd(rested) => rested.into_iter().filter_map(|read| self.let_end(read)).collect(),
            AfterEnd::Stop(others) => self.stop_with(id, others),
        }
    }

    pub fn may_end(&mut self, id: JobId) -> Option<Event> {
        if flow::may_end(self, id) { self.let_end(id) } else { None }
    }

    fn stop_with(&mut self, because_of: JobId, others: Vec<JobId>) -> Vec<Event> {
        let stage = self.jobs.get(&because_of).and_then(|job| job.run.spec.stage.as_ref());
        let name = stage.map(|stage| stage.name.clone()).unwrap_or_default();
        let mut events = Vec::new();
        for id in others {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.stop_attempts();
            let reason =
                format!("stopped with its flow: the stage {name:?} (job {because_of}) did not succeed");
            let (kind, detail) = (CANCEL_ASKED_NOTE, reason.clone());
            self.changes.push(Change::Note { job: Some(id), kind, detail, now_ns: now_ns() });
            job.cancel_reason.get_or_insert(reason);
            self.fleet.order_all(id, NodeOrder::Stop { job: id });
            events.push(Event::JobCancelled { job: id });
        }
        events
    }

    /// A task as it is given to a node, with what is known now of where its inputs lie.
    pub fn with_stage_files(&self, id: JobId, task: Task) -> Task {
        let Task::Map(mut map) = task else { return task };
        map.places = flow::places(self, id, &map);
        Task::Map(map)
    }

    /// Map tasks run best where what they read lies.
    pub fn near_stage_files(&self, id: JobId, placements: &mut [Placement]) {
        let maps = self.jobs.get(&id).and_then(|job| job.tasks.first());
        let near = maps.map(|maps| flow::near(self, id, maps)).unwrap_or_default();
        for (nodes, placement) in near.into_iter().zip(placements).filter(|(nodes, _)| !nodes.is_empty()) {
            *placement = Placement::Near(nodes);
        }
    }

    /// Parts of resting and running stages that lay on a node which is gone.
    pub fn parts_gone(&mut self, node: NodeId) {
        let jobs: Vec<JobId> = self.flows.values().flatten().copied().collect();
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id).filter(|job| job.outcome.is_none()) else { continue };
            job.results.parts_gone(node, None);
        }
    }

    /// A node tells that parts of it lie on others as well.
    pub fn parts_replicated(&mut self, from: NodeId, told: Vec<ReplicatedPart>) {
        for told in told {
            let (id, is_there) = (told.job, self.fleet.has(told.to));
            let Some(job) = self.jobs.get_mut(&id).filter(|job| job.outcome.is_none() && is_there) else {
                continue;
            };
            let counts = job.results.take_part_replica(from, told);
            self.changes.extend(counts.map(|told| part_replica(id, &told)));
        }
    }

    /// The task of a part is done, whose replica may have been told of before.
    pub fn part_is_there(&mut self, attempt: AttemptKey) {
        self.with_job(attempt.task.job, |job, changes| {
            let early = job.results.take_early_part_replica(attempt.task.task);
            changes.extend(early.map(|told| part_replica(job.id, &told)));
        });
    }

    /// Refuses a part that came out otherwise than those who read it were told, and maps that give other data each time where
    /// somebody has begun to read what came of them.
    pub fn check_same_part(&self, attempt: AttemptKey, result: &TaskResult) -> Result<(), TaskFailure> {
        match flow::differs_from_told(self, attempt, result) {
            false => Ok(()),
            true => Err(TaskFailure::new(
                Blame::UserData,
                "what was lost came out differently when it was made again, and later stages have read some of it: the programs of \
                 this stage give other data each time they run; ask for --replication rack",
            )),
        }
    }

    /// An attempt could not read an intermediate file. That is none of its faults.
    pub fn input_lost(&mut self, finished: Finished, failure: TaskFailure, lost: &LostInput) {
        let attempt = finished.attempt;
        if let Some(before) = self.jobs.get_mut(&lost.file.job).filter(|job| job.outcome.is_none()) {
            before.results.part_not_found(lost);
        }
        let with = failure.message.clone();
        self.with_job(attempt.task.job, |job, changes| {
            job.attempt_ended(&finished, AttemptState::Interrupted, Err(failure), changes);
        });
        self.feed(Event::AttemptLost { attempt });
        self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
        self.mend_flows(&with);
    }

    /// Intermediate files that lie nowhere any more, and that somebody has yet to read, are made again.
    pub fn mend_flows(&mut self, with: &str) {
        for id in flow::last_first(self) {
            for (before, again) in flow::lacks(self, id) {
                self.make_parts_again(before, &again, with);
            }
        }
    }

    fn make_parts_again(&mut self, id: JobId, tasks: &[TaskIndex], with: &str) {
        let (fleet, service, changes) = (&self.fleet, self.service, &mut self.changes);
        let has_left = |node| service == Service::Cluster && !fleet.has(node);
        // Of several that are asked for at once, the first may have ended the flow.
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.outcome.is_none()) else { return };
        let (rested, stage) = (job.in_flow.rests, StageIndex(job.tasks.len() as u16));
        let made = job.make_parts_again(tasks, with, has_left, changes);
        job.in_flow.rests = rested && made.is_none();
        match (made, rested) {
            (None, _) => {}
            (Some(Err(())), true) => self.feed(Event::StageRefused { job: id, stage }),
            (Some(Err(())), false) => {
                let stage = StageIndex(stage.0.saturating_sub(1));
                self.feed(Event::StageRefused { job: id, stage });
            }
            (Some(Ok(RunAgain { stage: to, tasks, stands })), true) => {
                self.feed(Event::StageSentBack { job: id, stage, to, tasks, stands });
            }
            (Some(Ok(again)), false) => self.run_again(id, again),
        }
    }
}

impl Job {
    /// Whether the stages that it reads are not done, so that nobody knows its inputs.
    pub fn waits(&self) -> bool {
        self.in_flow.waits(&self.run.spec)
    }

    /// Proves what a stage that feeds others has put out.
    pub fn prove_parts(&mut self) -> Result<(), ExpandError> {
        let run = Arc::clone(&self.run);
        mapreduce::expand("commit", &run.spec, &mut self.results).map(drop)
    }

    /// The tasks of these parts run again, and what that takes; an error where the job must fail instead.
    fn make_parts_again(
        &mut self,
        tasks: &[TaskIndex],
        with: &str,
        has_left: impl Fn(NodeId) -> bool,
        changes: &mut Vec<Change>,
    ) -> Option<Result<RunAgain, ()>> {
        let (spec, stages) = (&self.run.spec, self.tasks.len());
        let again = match self.results.parts_again(spec, stages, tasks, &has_left) {
            PartsAgain::Anyhow => return None,
            PartsAgain::TooOften => {
                let regenerations_max = spec.max_regenerations;
                let message = format!(
                    "parts of the stage were lost with {with}, and data of it was made again {regenerations_max} times before, which \
                     is the most that the job allows (--max-regenerations {regenerations_max})"
                );
                self.last_failure = Some(TaskFailure::new(Blame::Environment, message));
                return Some(Err(()));
            }
            again @ (PartsAgain::ByMaps | PartsAgain::ByReduces(_)) => again,
        };
        let detail =
            format!("with {with}: {} parts that later stages have yet to read are made again", tasks.len());
        changes.push(Change::Note { job: Some(self.id), kind: DATA_LOST_NOTE, detail, now_ns: now_ns() });
        let PartsAgain::ByReduces(gone) = again else {
            self.results.regenerations += 1;
            let stage = self.stage_index("map")?;
            self.reopen_maps(tasks, None, changes);
            return Some(Ok(RunAgain { stage, tasks: tasks.to_vec(), stands: None }));
        };
        let reduce = self.reopen_reduces(tasks, changes)?;
        Some(match self.lose(&gone, with, has_left, changes) {
            None | Some(Loss::FellBack) => {
                self.results.regenerations += 1;
                Ok(RunAgain { stage: reduce, tasks: tasks.to_vec(), stands: None })
            }
            Some(Loss::ForGood(_)) => Err(()),
            Some(Loss::Again(RunAgain { stage, tasks: maps, .. })) => {
                let stands = Some(Standing { stage: reduce, stops: Vec::new(), redo: tasks.to_vec() });
                Ok(RunAgain { stage, tasks: maps, stands })
            }
        })
    }
}

/// Restores the places of the parts of a recovered stage: parts on nodes that are gone are read at their replicas.
pub(crate) fn restore(recovered: &RecoveredJob, results: &mut JobResults, lives: impl Fn(NodeId) -> bool) {
    let replicas = recovered.part_replicas.iter().map(|row| (row.task, row.node));
    results.restore_parts(replicas, lives);
}

/// Makes the change by which the store remembers the replica of a part on another node.
fn part_replica(job: JobId, told: &ReplicatedPart) -> Change {
    let ReplicatedPart { task, to, bytes, single_ns, sending_ns, .. } = *told;
    let row = PartReplicaRow { task, node: to, bytes, single_ns, sending_ns };
    Change::PartReplicas { job, replicas: vec![row] }
}

impl From<FlowError> for ServerError {
    fn from(error: FlowError) -> Self {
        Self::Flow(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{FlowError, check};
    use api::flow::{FLOW_STAGES_MAX, FlowSubmission, StageSubmission};
    use api::{FlowStage, GeneratedRows, JobSpec, TeraLayout};

    fn stage(name: &str, reads: &[u32], feeds: bool) -> StageSubmission {
        let of_flow = FlowStage { name: name.into(), feeds, ..FlowStage::default() };
        let output = if feeds { "".into() } else { format!("/out/{name}").into() };
        let spec = JobSpec { stage: Some(of_flow), output, ..JobSpec::named(name) };
        StageSubmission { spec, splits: Vec::new(), reads: reads.to_vec() }
    }

    fn refusal(stages: Vec<StageSubmission>) -> Option<String> {
        let flow = FlowSubmission { stages, user: String::new(), priority: 0 };
        check(&flow).err().map(|error: FlowError| error.to_string())
    }

    #[track_caller]
    fn refused(stages: Vec<StageSubmission>, word: &str) {
        let told = refusal(stages).unwrap_or_default();
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        let (first, last) = (stage("a", &[], true), stage("b", &[0], false));
        assert_eq!(refusal(vec![first.clone(), last.clone()]), None);
        assert_eq!(refusal(vec![stage("only", &[], false)]), None);
        refused(Vec::new(), "0 stages");
        refused(vec![last.clone(); FLOW_STAGES_MAX + 1], "65 stages");
        refused(vec![first.clone(), stage("b", &[0, 1], false)], "reads itself");
        refused(vec![first.clone(), stage("b", &[0, 7], false)], "one behind it");
        refused(vec![first.clone(), stage("b", &[], false)], "is read by none");
        refused(vec![stage("a", &[], false), last.clone()], "has an output of its own");
        refused(vec![first.clone(), stage("a", &[0], false)], "two stages");
        refused(vec![first.clone(), stage("a\nb", &[0], false)], "two stages");
        refused(vec![first.clone(), stage(&"n".repeat(101), &[0], false)], "100 bytes");
        let mut within = stage("c", &[0], false);
        within.spec.output = "/out/b/c".into();
        refused(vec![first.clone(), last.clone(), within], "one in the other");
        let mut keeps = first.clone();
        keeps.spec.keep_ifiles = true;
        refused(vec![keeps, last.clone()], "keeps its I-files");
        let mut makes = last;
        let layout = TeraLayout::Modern;
        makes.spec.generate = Some(GeneratedRows { layout, skewed: false, start: 0, rows: 1 });
        refused(vec![first.clone(), makes], "makes rows");
        let mut by_itself = stage("b", &[0], false);
        by_itself.spec.formats.input = api::RecordFormat::Stretches;
        refused(
            vec![first, by_itself],
            "has stretches for its records, which a stage that reads others cannot",
        );
    }
}
