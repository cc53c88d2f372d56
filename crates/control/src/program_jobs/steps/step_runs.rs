//! Finished runs of the steps of a job: the questions to nodes, the judgement, and the runs of the job itself.

use api::history::EventKind;
use api::task::{FileContent, FinishedRun, RecordedRun, RunLook, RunLooked, RunTask, TaskFile};
use api::{Compression, InputFile, JobSpec, StoredContent};
use ids::{JobId, StepNumber};
use jobkind::{Judgement, KnownRuns, LOOKS_FROM, PriorRuns, RanIn, RunMemory, Step, StepPlan, StepWork};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Questions of one task.
const LOOKS_MAX: usize = 500;
/// Files of the questions of one task.
const LOOK_FILES_MAX: usize = 20_000;
/// Name of the steps that ask them.
const LOOKS: &str = "compare files with finished runs";
/// Lost files of one job that are made again.
const LOST_MAX: u32 = 1_000;
/// Reasons that are noted of one job.
const REASONS_MAX: usize = 10_000;

/// The record of a run with the job of its step.
#[derive(Clone, Debug)]
pub(crate) struct StepRecord {
    pub job: JobId,
    pub run: Arc<RecordedRun>,
}

/// A stored file that a step has written.
#[derive(Clone)]
struct MadeFile {
    stored: StoredContent,
    compression: Option<Compression>,
}

/// Finished runs of the steps of a job.
#[derive(Default)]
pub(super) struct StepRuns {
    known: KnownRuns,
    /// Runs of this job that wait for the records of the jobs whose parts they read.
    waiting: BTreeMap<StepNumber, Arc<RecordedRun>>,
    /// Runs from the store that waited when it was read.
    left_waiting: BTreeMap<StepNumber, Arc<RecordedRun>>,
    /// Bytes that the finished runs of earlier jobs wrote.
    wrote: BTreeMap<StepNumber, u64>,
    /// The steps about which each open task asks.
    asked: BTreeMap<StepNumber, Vec<StepNumber>>,
    is_judged: bool,
    /// Steps for which finished runs stand.
    skipped: u32,
    notes: Vec<(EventKind, String)>,
    /// Stored files that finished runs have written, by name.
    made: BTreeMap<PathBuf, MadeFile>,
    /// Times that one of them was found lost.
    lost: u32,
}

impl StepRuns {
    pub fn new(recorded: BTreeMap<StepNumber, Arc<RecordedRun>>) -> Self {
        let bytes = |(step, recorded): (&StepNumber, &Arc<RecordedRun>)| {
            let outputs = &recorded.run.outputs;
            // The sizes of streams are not known.
            let are_known = outputs.iter().all(|output| output.sha256.is_some());
            let bytes = outputs.iter().fold(0_u64, |sum, output| sum.saturating_add(output.bytes));
            are_known.then_some((*step, bytes))
        };
        let (left_waiting, recorded): (BTreeMap<_, _>, BTreeMap<_, _>) =
            recorded.into_iter().partition(|(_, recorded)| recorded.waits.is_some());
        let wrote = recorded.iter().filter_map(bytes).collect();
        let made = recorded.values().flat_map(|recorded| stored_outputs(&recorded.run)).collect();
        let known = KnownRuns { recorded, ..KnownRuns::default() };
        Self { known, left_waiting, wrote, made, ..Self::default() }
    }

    /// Takes up the run of a step that had finished when the server was restarted, if it still waits.
    pub fn waits_again(&mut self, step: StepNumber, job: JobId) {
        let left = self.left_waiting.remove(&step).filter(|left| left.waits == Some(job));
        self.waiting.extend(left.map(|left| (step, left)));
    }

    /// Returns the facts for pipelines, once it is judged which steps are skipped.
    pub fn prior(&mut self) -> PriorRuns {
        let may_stand = self.known.recorded.keys().copied().collect();
        PriorRuns { wrote: std::mem::take(&mut self.wrote), may_stand }
    }

    /// Returns whether a stored file is an output of a finished run of a step.
    pub fn has_made(&self, path: &Path) -> bool {
        self.made.contains_key(path)
    }

    /// Forgets the run of a step whose stored output is lost, for a step that needs it. Returns false if that has happened
    /// too often.
    pub fn forget_lost(&mut self, writer: StepNumber, reader: &str, path: &Path) -> bool {
        self.lost += 1;
        self.begin(std::iter::once(writer));
        self.known.ended.remove(&writer);
        let reason = format!("{reader:?} needs {}, of which no replica is left", path.display());
        self.notes.push((EventKind::StepRuns, reason));
        self.lost <= LOST_MAX
    }

    /// Gives a step the identities of the stored files that it reads and other steps have written. Returns these files.
    pub fn bring_made(&self, step: &mut Step) -> Vec<StoredContent> {
        match &mut step.work {
            StepWork::Program(task) => self.bring_to_programs(task),
            StepWork::MapReduce(spec) => self.bring_to_job(spec),
            StepWork::Flow(jobs) => {
                jobs.iter_mut().flat_map(|job| self.bring_to_job(&mut job.spec)).collect()
            }
        }
    }

    fn bring_to_job(&self, spec: &mut Arc<JobSpec>) -> Vec<StoredContent> {
        let is_made = |input: &InputFile| input.content.is_none() && self.made.contains_key(&input.path);
        if !spec.inputs.iter().any(is_made) {
            return Vec::new();
        }
        let inputs = Arc::make_mut(spec).inputs.iter_mut().filter(|input| is_made(input));
        let bring = |input: &mut InputFile| {
            let made = &self.made[&input.path];
            (input.content, input.compression) = (Some(made.stored.identity()), made.compression);
            made.stored.clone()
        };
        inputs.map(bring).collect()
    }

    fn bring_to_programs(&self, task: &mut Arc<RunTask>) -> Vec<StoredContent> {
        let written: BTreeSet<&Path> = task
            .programs()
            .flat_map(|program| &program.outputs)
            .map(|output| output.path.as_path())
            .collect();
        let is_made = |input: &TaskFile| {
            input.content.is_none()
                && !written.contains(input.path.as_path())
                && self.made.contains_key(&input.path)
        };
        if !task.programs().flat_map(|program| &program.inputs).any(is_made) {
            return Vec::new();
        }
        let mut brought = Vec::new();
        let mut with_contents = task.as_ref().clone();
        let programs = std::iter::once(&mut with_contents.inputs);
        let others = with_contents.pipeline.iter_mut().map(|program| &mut program.inputs);
        for input in programs.chain(others).flatten().filter(|input| is_made(input)) {
            let made = &self.made[&input.path].stored;
            input.content = Some(made.identity());
            brought.push(made.clone());
        }
        drop(written);
        *task = Arc::new(with_contents);
        brought
    }

    /// Returns the ranks of the steps, from the times of their finished runs.
    pub fn ranks(&self, plan: &dyn StepPlan) -> Vec<u64> {
        plan.ranks(&self.known)
    }

    pub fn skipped(&self) -> u32 {
        self.skipped
    }

    /// Returns the steps that ask nodes about the files of finished runs.
    pub fn look_steps(&mut self, memory: &dyn RunMemory) -> Vec<Step> {
        let mut step = |(index, looks): (usize, Vec<(StepNumber, RunLook)>)| {
            let number = StepNumber(LOOKS_FROM + index as u32);
            let (asked, looks) = looks.into_iter().unzip();
            self.asked.insert(number, asked);
            let work = StepWork::Program(Arc::new(RunTask { looks, ..RunTask::default() }));
            Step { number, name: LOOKS.into(), work, beside: Vec::new() }
        };
        chunks(memory.looks(&self.known)).into_iter().enumerate().map(&mut step).collect()
    }

    /// Takes the answers of a step that asked. Returns the finished runs whose stamps are more certain now.
    pub fn looked(&mut self, number: StepNumber, answers: Vec<RunLooked>) -> Vec<Arc<RecordedRun>> {
        let mut refreshed = Vec::new();
        let steps = self.asked.get(&number).cloned().unwrap_or_default();
        for (step, mut answer) in steps.into_iter().zip(answers) {
            let known = answer.refreshed.take().zip(self.known.recorded.get_mut(&step));
            if let Some((run, recorded)) = known
                && let Some(run) = with_stamps(&recorded.run, &run)
            {
                *recorded = Arc::new(RecordedRun { run, ..recorded.as_ref().clone() });
                refreshed.push(Arc::clone(recorded));
            }
            self.known.looked.insert(step, answer);
        }
        refreshed
    }

    /// Records that a step that asked is over. Returns whether all are.
    pub fn look_over(&mut self, number: StepNumber) -> bool {
        self.asked.remove(&number);
        self.asked.is_empty()
    }

    /// Returns whether questions are open.
    pub fn are_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Records that steps run: their earlier runs stand for nothing any more.
    pub fn begin(&mut self, steps: impl Iterator<Item = StepNumber>) {
        for step in steps {
            self.waiting.remove(&step);
            let ended = self.known.recorded.remove(&step);
            ended.iter().flat_map(|ended| &ended.run.outputs).for_each(|output| {
                self.made.remove(&output.path);
            });
        }
    }

    /// Judges once which steps are skipped.
    pub fn judge(&mut self, memory: &dyn RunMemory) -> Option<Judgement> {
        if std::mem::replace(&mut self.is_judged, true) {
            return None;
        }
        let judgement = memory.judge(&self.known);
        if !self.known.recorded.is_empty() || memory.only_judges() {
            let reasons = judgement.reasons.values().take(REASONS_MAX);
            self.notes.extend(reasons.map(|reason| (EventKind::StepRuns, reason.clone())));
        }
        let looked = &self.known.looked;
        self.known.recorded.retain(|step, recorded| {
            if judgement.skipped.contains(step) {
                *recorded = slim(recorded);
                return true;
            }
            looked.get(step).is_some_and(|looked| looked.differences.is_empty())
        });
        self.known.looked.retain(|step, _| self.known.recorded.contains_key(step));
        Some(judgement)
    }

    pub fn count_skipped(&mut self, count: usize) {
        self.skipped += count as u32;
    }

    /// Notes the number of skipped steps, at the end of the job.
    pub fn note_skipped(&mut self) {
        if self.skipped > 0 {
            self.notes.push((EventKind::StepsSkipped, self.skipped.to_string()));
        }
    }

    /// Returns whether a finished run may stand for a step, which depends on the steps before it.
    pub fn may_stand_for(&self, step: StepNumber) -> bool {
        !self.is_judged || self.known.recorded.contains_key(&step)
    }

    /// Returns whether a finished run stands for a step whose turn has come.
    pub fn stands_for(&self, memory: &dyn RunMemory, step: StepNumber) -> bool {
        memory.stands_for(step, &self.known)
    }

    /// Takes the runs of steps of this job, each after those of the steps whose outputs it reads. Returns their records, and
    /// those of the runs that waited for them.
    pub fn ended(
        &mut self,
        memory: &dyn RunMemory,
        job: JobId,
        runs: impl Iterator<Item = (StepNumber, Option<FinishedRun>)>,
    ) -> Vec<StepRecord> {
        let mut records = Vec::new();
        for (step, run) in runs {
            let ran = RanIn { known: &self.known, job };
            let record = run.and_then(|run| memory.recorded(step, run, ran));
            if let Some(record) = record {
                self.keep_record(step, job, record, &mut records);
            }
        }
        while let Some((step, record)) = self.waiting.iter().find_map(|(step, waiting)| {
            let ran = RanIn { known: &self.known, job: waiting.waits? };
            let record = memory.recorded(*step, waiting.run.clone(), ran)?;
            record.waits.is_none().then_some((*step, record))
        }) {
            let of = self.waiting.remove(&step).and_then(|waited| waited.waits);
            self.keep_record(step, of.unwrap_or(job), record, &mut records);
        }
        records
    }

    fn keep_record(
        &mut self,
        step: StepNumber,
        job: JobId,
        record: RecordedRun,
        records: &mut Vec<StepRecord>,
    ) {
        let run = Arc::new(record);
        match run.waits {
            Some(_) => drop(self.waiting.insert(step, Arc::clone(&run))),
            None => {
                self.made.extend(stored_outputs(&run.run));
                self.known.ended.insert(step, slim(&run));
            }
        }
        records.push(StepRecord { job, run });
    }

    /// Takes the notes for the history of the job.
    pub fn take_notes(&mut self) -> Vec<(EventKind, String)> {
        std::mem::take(&mut self.notes)
    }
}

/// Returns the stored files that a run has written.
fn stored_outputs(run: &FinishedRun) -> impl Iterator<Item = (PathBuf, MadeFile)> {
    run.outputs.iter().filter_map(|output| {
        let made = MadeFile { stored: output.stored.clone()?, compression: output.compression };
        Some((output.path.clone(), made))
    })
}

/// Divides questions into those of one task each: a message has a limited size.
fn chunks(looks: Vec<(StepNumber, RunLook)>) -> Vec<Vec<(StepNumber, RunLook)>> {
    let (mut chunks, mut files): (Vec<Vec<_>>, usize) = (Vec::new(), 0);
    for look in looks {
        let more = 1 + look.1.run.executables.len() + look.1.run.paths().count();
        files += more;
        match chunks.last_mut().filter(|chunk| chunk.len() < LOOKS_MAX && files <= LOOK_FILES_MAX) {
            Some(chunk) => chunk.push(look),
            None => {
                chunks.push(vec![look]);
                files = more;
            }
        }
    }
    chunks
}

/// Returns a recorded run with the stamps of an answer; None for an answer about other files. All else of the answer is
/// a node's word, and is not taken.
fn with_stamps(recorded: &FinishedRun, answer: &FinishedRun) -> Option<FinishedRun> {
    let merged = |recorded: &[FileContent], answer: &[FileContent]| {
        let same = recorded.iter().map(|file| &file.path).eq(answer.iter().map(|file| &file.path));
        let files = recorded.iter().zip(answer);
        let stamped = files.map(|(file, now)| FileContent { stamp: now.stamp, ..file.clone() });
        same.then(|| stamped.collect::<Vec<_>>())
    };
    Some(FinishedRun {
        executables: recorded.executables.clone(),
        executable_counts: recorded.executable_counts.clone(),
        environment: merged(&recorded.environment, &answer.environment)?,
        inputs: merged(&recorded.inputs, &answer.inputs)?,
        outputs: merged(&recorded.outputs, &answer.outputs)?,
        ran_ms: recorded.ran_ms,
    })
}

/// Returns the parts of a record that readers of its outputs need.
fn slim(record: &RecordedRun) -> Arc<RecordedRun> {
    let output =
        |file: &FileContent| FileContent { path: PathBuf::new(), stamp: None, stored: None, ..file.clone() };
    let outputs = record.run.outputs.iter().map(output).collect();
    let run = FinishedRun { outputs, ..FinishedRun::default() };
    Arc::new(RecordedRun { run, step: String::new(), ..*record })
}
