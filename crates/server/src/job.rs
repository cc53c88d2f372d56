//! State of one job in the loop, and the changes of the store that its events make.

use crate::JobRun;
use crate::clock::now_ns;
use crate::directories::Directories;
use crate::keeping::Keeping;
use crate::messages::{Finished, Service};
use crate::plausible::SAID_BYTES_MAX;
use crate::replication::Replicating;
use api::control::JobOutcome;
use api::left::LeftBehind;
use api::task::{MapResult, RunResult, RunSummary};
use api::{Blame, Boundaries, JobSpec, Task, TaskFailure, TaskResult};
use control::log_room::LogRoom;
use control::program_jobs::{FileHold, Seat};
use ids::{AttemptKey, ChunkId, IfileIndex, JobId, NodeId, RunId, StageIndex, TaskIndex, TaskKey};
use mapreduce::flow::StageState;
use mapreduce::{AttemptTime, ExpandError, Gone, JobResults, Place, Proof, Verdict, expand, prove};
use metastore::{
    AttemptState, Change, DATA_LOST_NOTE, JobState, Keep, NOT_RESENT_NOTE, ProofRow, STAND_IN_REFUSED_NOTE,
    STDERR_NOTE,
};
use scheduler::{FAILURES_MAX, FailureCause, Placement, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Exit codes of a job that failed without one of the user's program: the same that `sailfish run` ends with.
const EXIT_BAD_INPUT: i32 = 2;
const EXIT_JOB_FAILED: i32 = 1;
/// Exit code that a shell reports for a program that Ctrl-C ended.
pub(crate) const EXIT_CANCELLED: i32 = 130;
const EXIT_SIGNAL_BASE: i32 = 128;
/// Under this name, and [`STDERR_NOTE`], the history remembers what the program of a one-task job wrote.
pub const STDOUT_NOTE: &str = "standard output";
/// How much it wrote, where that is more than is remembered.
pub(crate) const STDOUT_BYTES_NOTE: &str = "standard output bytes";
pub(crate) const STDERR_BYTES_NOTE: &str = "standard error bytes";
/// Most of a node's reason that is remembered.
const WHY_BYTES_MAX: usize = 1024;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// One job of this process.
pub(crate) struct Job {
    pub id: JobId,
    pub run: Arc<JobRun>,
    pub stage_names: Vec<&'static str>,
    /// The tasks of each expanded stage.
    pub tasks: Vec<Vec<Task>>,
    pub results: JobResults,
    /// The reduce tasks as they were, while data that they read is made again: attempts of some run on.
    pub standing: Option<(StageIndex, Vec<Task>)>,
    pub boundaries: Option<Boundaries>,
    pub cancel_reason: Option<String>,
    /// The last failure of an attempt, or of making a stage.
    pub last_failure: Option<TaskFailure>,
    pub outcome: Option<JobOutcome>,
    pub report: Option<Box<api::JobReport>>,
    /// Hold on the shipped files, so that its nodes can fetch them.
    pub file_hold: Option<FileHold>,
    /// The number of whose job it is.
    pub user: u64,
    /// Counted against the quota of the user, until it is over.
    pub spec_bytes: u64,
    /// Room for what its programs write to standard error, where it has many tasks.
    log_room: LogRoom,
    /// A job of one task was admitted to the scheduler, and gives its seat back.
    pub seat: Option<Seat>,
    /// Set while nodes make its intermediate data theirs to keep, and when they have.
    pub keeping: Option<Keeping>,
    pub replicating: Replicating,
    /// How far it is as a stage of a flow.
    pub in_flow: StageState,
    /// Attempts beside which another one of their task gave up the end of the range: they are told to stop.
    pub outrun: BTreeSet<AttemptKey>,
    /// Since when runs are read from their replicas.
    pub fell_back_ns: BTreeMap<RunId, u64>,
    /// Nodes that are away, whose data it makes again.
    pub given_up: BTreeSet<NodeId>,
    /// Runs that were lost, so far; and those of them that attempts which run had read before.
    pub lost_runs: BTreeSet<RunId>,
    pub have_read: BTreeMap<AttemptKey, BTreeSet<RunId>>,
}

impl Job {
    pub fn new(id: JobId, run: Arc<JobRun>, mut results: JobResults) -> Self {
        results.keeps_runs = run.spec.keep_ifiles;
        Self {
            id,
            stage_names: mapreduce::stages(&run.spec),
            run,
            tasks: Vec::new(),
            results,
            standing: None,
            boundaries: None,
            cancel_reason: None,
            last_failure: None,
            outcome: None,
            report: None,
            file_hold: None,
            user: 0,
            spec_bytes: 0,
            log_room: LogRoom::default(),
            seat: None,
            keeping: None,
            replicating: Replicating::default(),
            in_flow: StageState::default(),
            outrun: BTreeSet::new(),
            fell_back_ns: BTreeMap::new(),
            given_up: BTreeSet::new(),
            lost_runs: BTreeSet::new(),
            have_read: BTreeMap::new(),
        }
    }

    pub fn spec(&self) -> &JobSpec {
        &self.run.spec
    }

    /// Whether it is one task and no MapReduce: then it has no directories, and nodes remember nothing of it.
    pub fn is_single(&self) -> bool {
        self.run.spec.single.is_some()
    }

    /// Failures of one task with which the job fails. A program that is not the engine's may have done half of its
    /// work for good: it runs once unless its user says otherwise.
    pub fn failures_max(&self) -> u32 {
        match &self.run.spec.single {
            Some(task) => task.retries.saturating_add(1),
            None => FAILURES_MAX,
        }
    }

    pub fn directories(&self) -> Directories {
        Directories { staging: self.run.staging.clone(), disk_dirs: self.run.disk_dirs.clone() }
    }

    /// Whether its intermediate data stays now that it is over. That of a job which failed may tell why; of one that
    /// was stopped nothing is left, as its user is told.
    pub fn keeps_ifiles(&self) -> bool {
        let ran_to_its_end =
            matches!(self.outcome, Some(JobOutcome::Succeeded(_) | JobOutcome::Failed { .. }));
        self.run.spec.keep_ifiles && ran_to_its_end
    }

    /// For how long, from now.
    pub fn keep(&self) -> Keep {
        if self.keeps_ifiles() { keep_from_now(self.spec()) } else { Keep::Nothing }
    }

    /// Returns how long kept data stays now that the directories of the job are gone, and the rows of the data that
    /// nodes keep.
    pub fn keep_here_or_on_nodes(&self, service: Service) -> (Keep, Option<Change>) {
        match (&self.keeping, service) {
            (_, Service::Embedded) => (self.keep(), None),
            (Some(keeping), Service::Cluster) if keeping.lost.is_none() => {
                let places = keeping.places.clone();
                (keep_from_now(self.spec()), Some(Change::KeptDirs { job: self.id, places }))
            }
            (_, Service::Cluster) => (Keep::Nothing, None),
        }
    }

    /// Returns the runs that nodes are to keep; None if the job keeps nothing, or its maps did not all end.
    pub fn runs_to_keep(&self) -> Option<BTreeSet<RunId>> {
        let keeps = self.keeps_ifiles() && !self.spec().map_only && self.is_sealed();
        keeps.then(|| self.results.surviving_runs().iter().map(|run| run.run).collect())
    }

    /// Whether its attempts are told to stop, all of them.
    pub fn is_stopping(&self) -> bool {
        self.outcome.is_some() || self.run.cancelled.load(Ordering::Relaxed)
    }

    /// Tells running attempts to stop.
    pub fn stop_attempts(&self) {
        self.run.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn task(&self, attempt: AttemptKey) -> Option<&Task> {
        self.stage_tasks(attempt.task.stage)?.get(attempt.task.task.0 as usize)
    }

    fn stage_tasks(&self, stage: StageIndex) -> Option<&Vec<Task>> {
        let standing = self.standing.as_ref().filter(|(standing, _)| *standing == stage);
        self.tasks.get(usize::from(stage.0)).or(standing.map(|(_, tasks)| tasks))
    }

    /// Whether an attempt may have failed because what it read is being made again.
    pub fn may_lack_data(&self, attempt: AttemptKey) -> bool {
        self.standing.as_ref().is_some_and(|(stage, _)| *stage == attempt.task.stage)
    }

    /// Makes the tasks of a stage; the answer is where each may run. On an error the job must fail.
    pub fn expand_stage(
        &mut self,
        stage: StageIndex,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Placement>, ExpandError> {
        let job = self.id;
        if let Some(before) = stage.0.checked_sub(1) {
            changes.push(Change::StageEnded { job, stage: StageIndex(before), now_ns: now_ns() });
        }
        let name = self.stage_names[usize::from(stage.0)];
        let run = Arc::clone(&self.run);
        let expanded = expand(name, &run.spec, &mut self.results);
        let tasks = expanded?;
        if name == "commit" {
            changes.push(self.proofs(&prove(&self.results, self.ifile_count())));
        }
        if name == "reduce" {
            changes.push(Change::Plan {
                job,
                version: self.results.plan_version,
                target_bytes: self.results.target_bytes,
                tasks: self.results.plan.clone(),
                now_ns: now_ns(),
            });
        }
        if let [Task::Commit(commit)] = &tasks[..] {
            self.report = Some(commit.report.clone());
            changes.extend(self.renamed_parts(&commit.parts));
            changes.extend(self.replication_told());
            let (report, counters) = (commit.report.clone(), self.results.counters());
            changes.push(Change::Counters { job, counters });
            changes.push(Change::JobCommitting { job, report, now_ns: now_ns() });
        }
        // What a stage puts out for others has no other name to get.
        let publishes = name != "commit" || !run.spec.feeds();
        let tasks = if publishes { tasks } else { Vec::new() };
        changes.push(Change::StageExpanded { job, stage, tasks: tasks.clone(), now_ns: now_ns() });
        let placements = tasks.iter().map(placement).collect();
        self.standing.take_if(|(standing, _)| *standing == stage);
        self.tasks.push(tasks);
        Ok(placements)
    }

    /// Data is gone, `with` what. Where that takes away what a stage before needs, the answer is what follows; all that came
    /// after a stage that runs again is forgotten.
    pub fn lose(
        &mut self,
        gone: &Gone,
        with: &str,
        has_left: impl Fn(NodeId) -> bool,
        changes: &mut Vec<Change>,
    ) -> Option<Loss> {
        let current = self.tasks.len().checked_sub(1)?;
        // Parts lie in the staging directory, which is not the node's.
        if self.outcome.is_some() || self.spec().map_only || *self.stage_names.get(current)? == "commit" {
            return None;
        }
        if let Some(source) = self.spec().reduce_again {
            return self.lose_kept(gone, with, source, changes);
        }
        let (gone, fallen) = self.results.fall_back(gone, self.is_sealed());
        self.fell_back_ns.extend(fallen.standing.iter().map(|run| (*run, now_ns())));
        self.fallen_back(&fallen, with, changes);
        // Tasks that are bound to a node whose runs are read elsewhere now would wait for it.
        let is_bound = matches!(*self.stage_names.get(current)?, "seal" | "merge");
        let seals_again = is_bound && !fallen.standing.is_empty();
        let reduces_done = self.results.reduces.len();
        self.lost_runs.extend(&gone.runs);
        let mut stops = self.readers_of(&gone);
        stops.retain(|task| !self.has_read_all(*task, &gone));
        let held: Vec<(RunId, NodeId)> = self.results.replicas.held().collect();
        let Some(victims) = self.results.lose(&gone, self.is_sealed(), has_left, seals_again) else {
            return (!fallen.standing.is_empty()).then_some(Loss::FellBack);
        };
        let dropped: Vec<_> =
            held.into_iter().filter(|(run, _)| self.results.replicas.get(*run).is_none()).collect();
        self.replicas_dropped(&dropped, changes);
        let regenerations_max = self.spec().max_regenerations;
        if self.results.regenerations > regenerations_max {
            let message = format!(
                "intermediate data was lost with {with}, and was made again {regenerations_max} times before, which is the most that \
                 the job allows (--max-regenerations {regenerations_max})"
            );
            self.last_failure = Some(TaskFailure::new(Blame::Environment, message));
            return Some(Loss::ForGood(StageIndex(current as u16)));
        }
        if !victims.is_empty() {
            let detail = self.told_of(with, &victims, reduces_done);
            changes.push(Change::Note { job: Some(self.id), kind: DATA_LOST_NOTE, detail, now_ns: now_ns() });
        }
        let stands = self.stage_index("reduce").map(|stage| Standing { stage, stops, redo: Vec::new() });
        self.reopen_maps(&victims, stands.as_ref(), changes);
        Some(Loss::Again(RunAgain { stage: self.stage_index("map")?, tasks: victims, stands }))
    }

    /// Another process has found runs on the disks of a node that is about to be given up: those that count.
    pub fn readmit_runs(&mut self, before: NodeId, node: NodeId, left: &LeftBehind) -> Vec<RunId> {
        let is_sealed = self.is_sealed();
        let found = left.runs.iter();
        found
            .filter(|run| self.results.readmit_run(before, node, run, is_sealed))
            .map(|left| left.run)
            .collect()
    }

    /// The reduce tasks that read what is gone.
    pub fn readers_of(&self, gone: &Gone) -> Vec<TaskIndex> {
        let reads = |task: &Task| match task {
            Task::Reduce(reduce) => reduce.runs.iter().any(|run| gone.takes(*run, &self.results.replicas)),
            _ => false,
        };
        let reduces = self.stage_index("reduce").and_then(|stage| self.stage_tasks(stage));
        let readers = reduces.into_iter().flatten().enumerate().filter(|(_, task)| reads(task));
        readers.map(|(index, _)| TaskIndex(index as u32)).collect()
    }

    fn told_of(&self, with: &str, victims: &[TaskIndex], reduces_done: usize) -> String {
        let agains = || victims.iter().filter_map(|task| self.results.again.get(task));
        let ifiles: BTreeSet<IfileIndex> = agains().flat_map(|again| again.ifiles.iter().copied()).collect();
        let resent = match agains().filter(|again| again.resend.is_some()).count() {
            0 => String::new(),
            some => format!(", {some} of them from their spools, without the user's program"),
        };
        let (maps, of_maps) = (victims.len(), self.results.splits.len());
        let (ifiles, of_ifiles) = (ifiles.len(), self.ifile_count());
        format!(
            "with {with}: {maps} of {of_maps} map tasks run again for what they had put into {ifiles} of {of_ifiles} \
             I-files{resent}; {reduces_done} reduce tasks that are done stand"
        )
    }

    pub fn stage_index(&self, name: &str) -> Option<StageIndex> {
        self.stage_names.iter().position(|each| *each == name).map(|index| StageIndex(index as u16))
    }

    /// These map tasks run again, each for what `results` says; the stages after them are made anew.
    pub fn reopen_maps(&mut self, tasks: &[TaskIndex], stands: Option<&Standing>, changes: &mut Vec<Change>) {
        let Some(stage) = self.stage_index("map") else { return };
        let maps = usize::from(stage.0);
        let stands = stands.map(|standing| standing.stage);
        self.standing = stands.and_then(|stage| match self.tasks.get_mut(usize::from(stage.0)) {
            Some(tasks) => Some((stage, std::mem::take(tasks))),
            None => self.standing.take(),
        });
        self.tasks.truncate(maps + 1);
        let mut payloads = Vec::new();
        for index in tasks {
            if let Some(task @ Task::Map(_)) = self.tasks[maps].get_mut(index.0 as usize) {
                if let Task::Map(map) = task {
                    map.again = self.results.again.get(index).cloned();
                }
                payloads.push((*index, task.clone()));
            }
        }
        let job = self.id;
        changes.push(Change::StageReopened { job, stage, tasks: payloads, stands, now_ns: now_ns() });
    }

    /// Chunks that an attempt found lost on its node.
    pub fn lost_chunks(&self, result: &TaskResult) -> Option<(Gone, String)> {
        let TaskResult::Seal(seal) = result else { return None };
        // One that is read elsewhere by now is not lost.
        let is_here = |chunk: &&ChunkId| self.results.replicas.chunk_home(**chunk) == chunk.node();
        let lost: Vec<ChunkId> = seal.lost.iter().filter(is_here).copied().collect();
        let because = seal.lost_because.as_deref().unwrap_or("nobody says why");
        let with = format!("{} chunks ({because})", lost.len());
        (!lost.is_empty()).then(|| (Gone::chunks(&lost), with))
    }

    /// Whether a map attempt that succeeded may count. One that ran to replace what was lost may not where it replaces too little,
    /// or is not the same data: its task goes again then, as the answer says.
    pub fn refuse_stand_in(
        &mut self,
        attempt: AttemptKey,
        result: &TaskResult,
        changes: &mut Vec<Change>,
    ) -> Option<RunAgain> {
        let (TaskResult::Map(map), task) = (result, attempt.task.task) else { return None };
        let detail = match self.results.verdict(task, map) {
            Verdict::Good => return None,
            Verdict::Stale => {
                format!(
                    "{attempt} made what was lost before it began; more is lost now, so it runs once more"
                )
            }
            Verdict::Differs => {
                self.results.run_in_full(task);
                self.reopen_maps(&[task], None, changes);
                format!(
                    "{attempt} put out other data than the attempt before it: it runs in full, and all reduce tasks run again"
                )
            }
        };
        changes.push(Change::Note {
            job: Some(self.id),
            kind: STAND_IN_REFUSED_NOTE,
            detail,
            now_ns: now_ns(),
        });
        Some(RunAgain { stage: attempt.task.stage, tasks: Vec::new(), stands: self.standing_stage() })
    }

    /// The stage whose tasks stand, as far as they are done, while data before it is made again.
    fn standing_stage(&self) -> Option<Standing> {
        let stands = !self.results.planned_before.is_empty();
        let stage = stands.then(|| self.stage_index("reduce")).flatten()?;
        Some(Standing { stage, stops: Vec::new(), redo: Vec::new() })
    }

    /// Whether the chunks of the maps are runs, all of them.
    pub fn is_sealed(&self) -> bool {
        self.stage_index("merge").is_some_and(|merge| usize::from(merge.0) < self.tasks.len())
    }

    /// Whether the job may still read what lies on a node. While maps run and chunks are sealed nobody can tell where
    /// the last of them lie.
    pub fn may_need(&self, node: NodeId) -> bool {
        let current = self.tasks.len().checked_sub(1).map(|stage| self.stage_names[stage]);
        if self.outcome.is_some() || self.spec().map_only || self.is_single() {
            return false;
        }
        match current {
            Some("commit") => false,
            // Its parts are there: runs are read again only where one of them is lost.
            _ if self.in_flow.rests => false,
            // Nothing of it lies anywhere.
            None => false,
            _ if self.is_sealed() => self.results.needs(node, true),
            _ => true,
        }
    }

    /// A stage could not be made: the job fails of it.
    pub fn stage_failed(&mut self, error: &ExpandError, changes: &mut Vec<Change>) {
        if let ExpandError::Proof(proof) = error {
            changes.push(self.proofs(proof));
        }
        let blame = match error {
            ExpandError::KeptRunMissing(_) => Blame::Environment,
            _ => Blame::Engine,
        };
        self.last_failure = Some(TaskFailure::new(blame, error.to_string()));
    }

    pub fn ifile_count(&self) -> u32 {
        if self.spec().map_only { 0 } else { self.spec().layout.ifile_count }
    }

    pub fn proofs(&self, proof: &Proof) -> Change {
        let row = |row: &mapreduce::IfileProof| ProofRow {
            ifile: row.ifile,
            committed: row.committed,
            merged: row.merged,
        };
        Change::Proofs { job: self.id, rows: proof.ifiles.iter().map(row).collect() }
    }

    /// The end of an attempt that won, lost or failed.
    pub fn attempt_ended(
        &mut self,
        finished: &Finished,
        state: AttemptState,
        result: Result<Option<&TaskResult>, TaskFailure>,
        changes: &mut Vec<Change>,
    ) {
        let attempt = finished.attempt;
        self.have_read.remove(&attempt);
        self.results.attempts.push(AttemptTime {
            stage: attempt.task.stage,
            task: attempt.task.task,
            started_ns: finished.started_ns,
            ended_ns: finished.ended_ns,
            won: state == AttemptState::Succeeded,
        });
        let opened_ns = match &result {
            Ok(Some(TaskResult::Reduce(reduce))) => reduce.opened_ns,
            _ => None,
        };
        let said = match &result {
            Ok(Some(TaskResult::Map(map))) => &map.said[..],
            Ok(Some(TaskResult::Reduce(reduce))) => &reduce.said[..],
            Ok(_) => &[],
            Err(failure) => &failure.stderr_tail[..],
        };
        let text = self.log_room.text_of(said).filter(|_| !self.is_single());
        changes.extend(text.map(|text| Change::AttemptSaid { attempt, text, now_ns: now_ns() }));
        let mut failure = result.err();
        if let Some(failure) = &mut failure {
            if let Some(said) = failure.said.take() {
                changes.extend(self.said_notes(attempt, &said));
            }
            self.last_failure = Some(failure.clone());
        }
        changes.push(Change::AttemptEnded {
            attempt,
            state,
            started_ns: finished.started_ns,
            opened_ns,
            ended_ns: finished.ended_ns,
            failure,
        });
    }

    /// The history remembers what a program wrote. What a later attempt wrote takes the place of what one before it
    /// did, even where it wrote nothing.
    fn said_notes(&self, attempt: AttemptKey, said: &RunResult) -> Vec<Change> {
        let said = [
            (STDOUT_NOTE, &said.standard_output, STDOUT_BYTES_NOTE, said.standard_output_bytes),
            (STDERR_NOTE, &said.standard_error, STDERR_BYTES_NOTE, said.standard_error_bytes),
        ];
        let mut notes = Vec::new();
        let mut note = |kind, detail| {
            notes.push(Change::Note { job: Some(self.id), kind, detail, now_ns: now_ns() });
        };
        for (kind, text, bytes_kind, bytes) in said {
            if !text.is_empty() || attempt.attempt.0 > 0 {
                // A node of another kind may send more. Neither database keeps a text with a zero in it.
                let cut = text.ceil_char_boundary(text.len().saturating_sub(SAID_BYTES_MAX));
                note(kind, text[cut..].replace('\0', "\u{fffd}"));
            }
            if bytes > text.len() as u64 {
                note(bytes_kind, bytes.to_string());
            }
        }
        notes
    }

    /// The last status of a task's programs is remembered in the history of the job.
    fn status_note(&self, attempt: AttemptKey, result: &TaskResult) -> Option<Change> {
        let status = match result {
            TaskResult::Map(map) => map.status.as_ref(),
            TaskResult::Reduce(reduce) => reduce.status.as_ref(),
            TaskResult::Seal(_)
            | TaskResult::Merge(_)
            | TaskResult::Adopt(_)
            | TaskResult::Commit(_)
            | TaskResult::Run(_) => None,
        }?;
        let stage = self.stage_names[usize::from(attempt.task.stage.0)];
        let detail = format!("{stage} task {}: {status}", attempt.task.task.0);
        Some(Change::Note { job: Some(self.id), kind: "status", detail, now_ns: now_ns() })
    }

    /// The result of a winner goes into the store and into what the next stage follows from.
    pub fn task_done(&mut self, attempt: AttemptKey, result: TaskResult, changes: &mut Vec<Change>) {
        let job = self.id;
        changes.push(Change::TaskDone { attempt, now_ns: now_ns() });
        changes.extend(self.status_note(attempt, &result));
        match &result {
            TaskResult::Map(map) => {
                changes.push(Change::Sources { attempt, commits: map.commits.clone() });
                changes.extend(not_resent_note(attempt, map));
                changes.extend(map.part.clone().map(|part| Change::Part { attempt, part }));
            }
            TaskResult::Seal(seal) => {
                let mut seal = seal.clone();
                self.results.retain_committed(&mut seal);
                changes.push(Change::Chunks { job, chunks: seal.chunks.clone() });
                let runs = seal.runs.iter().map(without_weights).collect();
                changes.push(Change::Runs { job, runs, replaced: Vec::new() });
            }
            TaskResult::Adopt(adopt) => return self.adopted(attempt, adopt.clone(), changes),
            TaskResult::Merge(merge) => {
                let dropped = self.results.forget_merged(&merge.replaced);
                self.replicas_dropped(&dropped, changes);
                let (runs, replaced) = (vec![without_weights(&merge.run)], merge.replaced.clone());
                changes.push(Change::Runs { job, runs, replaced });
            }
            TaskResult::Reduce(reduce) => {
                changes.push(Change::Part { attempt, part: reduce.part.clone() });
            }
            TaskResult::Commit(_) => {}
            TaskResult::Run(run) => changes.extend(self.said_notes(attempt, run)),
        }
        self.results.record(attempt, result);
    }

    pub fn failed(&mut self, because: FailureCause, changes: &mut Vec<Change>) {
        self.stop_attempts();
        let failure = self.last_failure.clone().unwrap_or_else(|| {
            TaskFailure::new(Blame::Engine, "the job failed without a failure of an attempt")
        });
        let exit_code = exit_code(&failure);
        let attempt = match because {
            FailureCause::Attempt(attempt) => Some(attempt),
            FailureCause::Stage(_) => None,
        };
        changes.push(self.ended(JobState::Failed, exit_code, Some(failure.message.clone())));
        self.outcome = Some(JobOutcome::Failed { failure, attempt, exit_code });
    }

    pub fn succeeded(&mut self, changes: &mut Vec<Change>) {
        let last = StageIndex((self.stage_names.len() - 1) as u16);
        changes.push(Change::StageEnded { job: self.id, stage: last, now_ns: now_ns() });
        changes.push(self.ended(JobState::Succeeded, 0, None));
        self.outcome = Some(match self.is_single() {
            true => JobOutcome::Done,
            false => {
                let report = self.report.take();
                JobOutcome::Succeeded(report.expect("a job succeeds by its commit, which carries the report"))
            }
        });
    }

    pub fn cancelled(&mut self, changes: &mut Vec<Change>) {
        let reason = self.cancel_reason.clone().unwrap_or_default();
        changes.push(self.ended(JobState::Cancelled, EXIT_CANCELLED, Some(reason.clone())));
        self.outcome = Some(JobOutcome::Cancelled { reason });
    }

    fn ended(&self, state: JobState, exit_code: i32, error: Option<String>) -> Change {
        Change::JobEnded { job: self.id, state, exit_code: Some(exit_code), error, now_ns: now_ns() }
    }

    /// Whether the job has such a task, so that nothing is stored about one that never was.
    pub fn knows(&self, stage: StageIndex, task: TaskIndex) -> bool {
        self.stage_tasks(stage).is_some_and(|tasks| (task.0 as usize) < tasks.len())
    }
}

/// Consequence for a job when a node is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// These tasks of a stage run again.
    Again(RunAgain),
    /// Replicas stand for all lost data that the job needs.
    FellBack,
    /// The job cannot go on from this stage; its last failure says why.
    ForGood(StageIndex),
}

/// Tasks of a stage that run again, with all stages after it, but for what stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAgain {
    pub stage: StageIndex,
    pub tasks: Vec<TaskIndex>,
    pub stands: Option<Standing>,
}

impl RunAgain {
    /// Whether attempts of a task of that job work on what is no more.
    pub fn ends(&self, task: TaskKey) -> bool {
        let runs_on = |stands: &Standing| stands.stage == task.stage && !stands.stops.contains(&task.task);
        task.stage > self.stage && !self.stands.as_ref().is_some_and(runs_on)
    }
}

pub(crate) fn placement(task: &Task) -> Placement {
    match mapreduce::place(task) {
        Place::Anywhere => Placement::Anywhere,
        Place::On(node) => Placement::On(node),
        Place::Near(nodes) => Placement::Near(nodes),
    }
}

/// Why the user's program ran once more although there was a spool.
fn not_resent_note(attempt: AttemptKey, map: &MapResult) -> Option<Change> {
    let why = map.not_resent.as_ref()?;
    let cut = &why[..why.floor_char_boundary(WHY_BYTES_MAX)];
    let detail = format!("{attempt} ran the user's program: its spool cannot be sent again ({cut})");
    let job = Some(attempt.task.job);
    Some(Change::Note {
        job,
        kind: NOT_RESENT_NOTE,
        detail: detail.replace('\0', "\u{fffd}"),
        now_ns: now_ns(),
    })
}

/// How long what a job keeps stays, counted from now.
pub(crate) fn keep_from_now(spec: &JobSpec) -> Keep {
    match spec.keep_seconds {
        None => Keep::ForGood,
        Some(seconds) => Keep::Until(now_ns().saturating_add(seconds.saturating_mul(NANOS_PER_SECOND))),
    }
}

/// The store keeps no key indexes; copying them would cost more than all other columns.
pub(crate) fn without_weights(run: &RunSummary) -> RunSummary {
    RunSummary { weights: Vec::new(), chunks: run.chunks.clone(), ..*run }
}

/// The exit code of a front end for a failure: that of the user's program, or one that tells whose fault it is.
pub(crate) fn exit_code(failure: &TaskFailure) -> i32 {
    match failure.blame {
        Blame::UserProgram => match (failure.exit_code, failure.signal) {
            (Some(code), _) if code != 0 => code,
            (_, Some(signal)) => EXIT_SIGNAL_BASE + signal,
            _ => 1,
        },
        Blame::UserData => EXIT_BAD_INPUT,
        Blame::Environment | Blame::Engine => EXIT_JOB_FAILED,
        Blame::Cancelled => EXIT_CANCELLED,
    }
}
