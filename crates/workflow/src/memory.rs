//! Finished runs of steps: which of them still stand, so that their steps are skipped.
//!
//! A run stands for a step if all that the step declares is as it was: the command, the environment, the executable, and
//! the content of each input. Contents are compared where both are known. Bytes that streamed within a pipeline have no
//! known content: there the identity of the run that wrote them counts.

use crate::PlannedWorkflow;
use crate::spec::{MadeInput, PlannedStep};
use api::task::{
    CACHING_RULES, FileContent, FinishedRun, ProgramPlace, RecordedRun, RunDifference, RunLook, RunTask,
    TaskFile,
};
use api::{ContentHash, JobSpec};
use ids::StepNumber;
use jobkind::{Judgement, KnownRuns, RanIn, RememberedStep, RunMemory};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Version of the output of built-in functions and formats; raise it with each change of a byte that they write.
const JOB_RULES: u32 = 1;

impl RunMemory for PlannedWorkflow {
    fn remembered(&self) -> Vec<RememberedStep> {
        let path = |step: StepNumber| {
            let program = self.step_at(step).program();
            let first = program.outputs.first().filter(|_| program.is_recorded())?;
            Some(RememberedStep { step, path: first.path.clone() })
        };
        self.numbers().filter_map(path).collect()
    }

    fn looks(&self, known: &KnownRuns) -> Vec<(StepNumber, RunLook)> {
        let look = |(step, recorded): (&StepNumber, &std::sync::Arc<RecordedRun>)| {
            let (planned, program) = (self.step_at(*step), self.step_at(*step).program());
            if !program.is_remembered() || declared_difference(planned, &program, recorded).is_some() {
                return None;
            }
            let mut known_inputs: BTreeSet<u32> =
                planned.made_inputs.iter().map(|made| made.input as u32).collect();
            let inputs = program.inputs.iter().zip(0..);
            known_inputs.extend(inputs.filter(|(input, _)| input.is_stored()).map(|(_, index)| index));
            let known_inputs = known_inputs.into_iter().collect();
            let of_job = planned.job.as_ref().map(|job| job.program_places(&program.directory));
            let place = if of_job.is_some() { ProgramPlace::default() } else { program.place() };
            let look = RunLook { program: place, of_job, known_inputs, run: recorded.run.clone() };
            Some((*step, look))
        };
        known.recorded.iter().filter_map(look).collect()
    }

    fn only_judges(&self) -> bool {
        self.only_judges
    }

    fn judge(&self, known: &KnownRuns) -> Judgement {
        let order = self.in_order();
        let (unchanged, unsure, judgement) = (BTreeSet::new(), BTreeMap::new(), Judgement::default());
        let mut judge = Judge { spec: self, known, unchanged, unsure, judgement };
        order.iter().for_each(|step| judge.find_changes(*step));
        order.iter().rev().for_each(|step| judge.skip_or_run(*step));
        let Judge { mut judgement, .. } = judge;
        if judgement.skipped.len() == order.len() && self.has_no_temporary(known) {
            judgement.needless.extend(self.removal_numbers());
        }
        judgement
    }

    fn stands_for(&self, step: StepNumber, known: &KnownRuns) -> bool {
        let (Some(recorded), Some(looked)) = (known.recorded.get(&step), known.looked.get(&step)) else {
            return false;
        };
        let planned = self.step_at(step);
        let made = |made: &MadeInput| {
            let writer = known.newest(made.writer);
            writer.is_some_and(|writer| is_same(&recorded.run.inputs[made.input], writer, made.output))
        };
        // A step that ran before it may have changed more than its outputs.
        let was_skipped = |before: StepNumber| known.recorded.contains_key(&before);
        declared_difference(planned, &planned.program(), recorded).is_none()
            && looked.differences.is_empty()
            && planned.made_inputs.iter().all(made)
            && planned.only_before().all(was_skipped)
    }

    fn writer_of(&self, path: &Path) -> Option<StepNumber> {
        let writes = |step: &StepNumber| {
            self.step_at(*step).program().outputs.iter().any(|output| output.path == path)
        };
        self.numbers().find(writes)
    }

    fn recorded(&self, step: StepNumber, mut run: FinishedRun, ran: RanIn<'_>) -> Option<RecordedRun> {
        if step.0 as usize >= self.count() {
            return None;
        }
        let (planned, program) = (self.step_at(step), self.step_at(step).program());
        if !program.declares(&run) {
            return None;
        }
        for (input, read) in program.inputs.iter().zip(&mut run.inputs) {
            read.sha256 = input.content.or(read.sha256);
        }
        for made in &planned.made_inputs {
            let writer = ran.known.newest(made.writer);
            let read = &mut run.inputs[made.input];
            read.made_by = writer.map(|writer| output_identity(writer, made.output));
            if program.inputs[made.input].is_stored() {
                // Another version with the same bytes is the same content.
                let wrote = writer.and_then(|writer| writer.run.outputs.get(made.output));
                read.sha256 = wrote.and_then(|wrote| wrote.sha256);
            }
        }
        let is_unknown = |input: &FileContent| input.sha256.is_none() && input.made_by.is_none();
        let waits = run.inputs.iter().any(is_unknown).then_some(ran.job);
        // A stage of a flow ends before the stages that it reads.
        if waits.is_some() && planned.job.is_none() {
            return None;
        }
        let (words, env) = declared(planned, &program);
        let identity = identity(words, env, &run);
        let step = planned.name.to_string();
        Some(RecordedRun { rules: CACHING_RULES, step, words, env, identity, waits, run })
    }
}

impl PlannedWorkflow {
    /// Returns all steps, each after those that it waits for.
    pub(crate) fn in_order(&self) -> Vec<StepNumber> {
        let mut waits: Vec<usize> = self.numbers().map(|step| self.step_at(step).after.len()).collect();
        let mut order: Vec<StepNumber> = self.numbers().filter(|step| waits[step.0 as usize] == 0).collect();
        let mut place = 0;
        while let Some(step) = order.get(place).copied() {
            place += 1;
            for reader in &self.step_at(step).readers {
                waits[reader.0 as usize] -= 1;
                if waits[reader.0 as usize] == 0 {
                    order.push(*reader);
                }
            }
        }
        order
    }

    /// Returns whether the temporary outputs of all steps are gone.
    fn has_no_temporary(&self, known: &KnownRuns) -> bool {
        self.numbers().all(|step| {
            let planned = self.step_at(step);
            let gone = |output: usize| {
                let gone = RunDifference::Gone { output: output as u32 };
                known.looked.get(&step).is_some_and(|looked| looked.differences.contains(&gone))
            };
            (0..planned.outputs.len()).all(|output| !planned.is_removed(output) || gone(output))
        })
    }
}

/// The steps of a workflow while it is judged which of them are skipped.
struct Judge<'a> {
    spec: &'a PlannedWorkflow,
    known: &'a KnownRuns,
    /// Steps of which nothing that they declare has changed.
    unchanged: BTreeSet<StepNumber>,
    /// Those of them that run, or wait for one that runs, with the reasons: a program may write something else each time.
    unsure: BTreeMap<StepNumber, String>,
    judgement: Judgement,
}

impl Judge<'_> {
    /// Decides whether a step is unchanged. Those before it must be decided.
    fn find_changes(&mut self, step: StepNumber) {
        match self.change(step) {
            None => {
                self.unchanged.insert(step);
                if let Some(reason) = self.lost_kept_output(step).or_else(|| self.unsure_input(step)) {
                    self.unsure.insert(step, reason);
                }
            }
            Some(reason) => self.add_reason(step, &reason),
        }
    }

    fn add_reason(&mut self, step: StepNumber, reason: &str) {
        let name = &self.spec.step_at(step).name;
        self.judgement.reasons.insert(step, format!("{name:?}: {reason}"));
    }

    fn change(&self, step: StepNumber) -> Option<String> {
        let (planned, program) = (self.spec.step_at(step), self.spec.step_at(step).program());
        if !program.is_remembered() {
            return Some("its runs are not remembered".to_string());
        }
        let Some(recorded) = self.known.recorded.get(&step) else {
            return Some("no finished run of it is known".to_string());
        };
        if let Some(difference) = declared_difference(planned, &program, recorded) {
            return Some(other_input(&program, recorded).unwrap_or_else(|| difference.to_string()));
        }
        let Some(looked) = self.known.looked.get(&step) else {
            return Some("the files of its finished run were not compared".to_string());
        };
        let is_of_output = |difference: &&RunDifference| {
            matches!(difference, RunDifference::Written { .. } | RunDifference::Gone { .. })
        };
        if let Some(difference) = looked.differences.iter().find(|difference| !is_of_output(difference)) {
            return Some(difference.to_string());
        }
        let runs_before = planned.only_before().find(|before| !self.unchanged.contains(before));
        if let Some(before) = runs_before {
            return Some(format!("it waits for {:?}, which runs", self.spec.step_at(before).name));
        }
        planned.made_inputs.iter().find_map(|made| self.change_of_input(&program, recorded, *made))
    }

    /// Returns the reason for a step that reads an output of a step which runs, and perhaps writes something else.
    fn unsure_input(&self, step: StepNumber) -> Option<String> {
        let planned = self.spec.step_at(step);
        let made = planned.made_inputs.iter().find(|made| self.unsure.contains_key(&made.writer))?;
        let program = planned.program();
        let path = shown(&program, &program.inputs[made.input].path);
        Some(format!("{path} comes from {:?}, which runs", self.spec.step_at(made.writer).name))
    }

    /// Returns the reason for a step whose output was changed or removed, and is none that it removes itself.
    fn lost_kept_output(&self, step: StepNumber) -> Option<String> {
        let planned = self.spec.step_at(step);
        self.known.looked.get(&step)?.differences.iter().find_map(|difference| {
            let (output, what) = of_output(difference)?;
            let program = planned.program();
            let path = shown(&program, &program.outputs[output].path);
            (!planned.is_removed(output)).then(|| format!("{path} {what}"))
        })
    }

    fn change_of_input(&self, program: &RunTask, recorded: &RecordedRun, made: MadeInput) -> Option<String> {
        let path = shown(program, &program.inputs[made.input].path);
        let writer = &self.spec.step_at(made.writer).name;
        if !self.unchanged.contains(&made.writer) {
            return Some(format!("{path} comes from {writer:?}, which runs"));
        }
        let wrote = self.known.recorded.get(&made.writer)?;
        match is_same(&recorded.run.inputs[made.input], wrote, made.output) {
            true => None,
            false => Some(format!("{path} was written again by {writer:?} since")),
        }
    }

    /// Decides whether a step is skipped. Those after it must be decided.
    fn skip_or_run(&mut self, step: StepNumber) {
        if !self.unchanged.contains(&step) {
            return;
        }
        let reason = self.unsure.get(&step).cloned();
        match reason.or_else(|| self.needed_again(step)) {
            None => drop(self.judgement.skipped.insert(step)),
            Some(reason) => self.add_reason(step, &reason),
        }
    }

    /// Returns the reason for a step whose temporary output is gone, and is read by a step that is not skipped.
    fn needed_again(&self, step: StepNumber) -> Option<String> {
        let planned = self.spec.step_at(step);
        self.known.looked.get(&step)?.differences.iter().find_map(|difference| {
            let (output, _) = of_output(difference)?;
            let program = planned.program();
            let path = shown(&program, &program.outputs[output].path);
            let readers = &planned.outputs[output].readers;
            let reader = readers.iter().find(|reader| !self.judgement.skipped.contains(reader))?;
            let reader = &self.spec.step_at(*reader).name;
            Some(format!("{reader:?} needs {path}, which was temporary"))
        })
    }
}

/// Returns the output that a difference is about, and the fate of it.
fn of_output(difference: &RunDifference) -> Option<(usize, &'static str)> {
    match difference {
        RunDifference::Written { output } => Some((*output as usize, "was changed")),
        RunDifference::Gone { output } => Some((*output as usize, "is gone")),
        _ => None,
    }
}

/// Returns a path as its user wrote it.
fn shown(program: &RunTask, path: &Path) -> String {
    path.strip_prefix(&program.directory).unwrap_or(path).display().to_string()
}

/// Compares an input of a finished run with an output of another one.
fn is_same(input: &FileContent, writer: &RecordedRun, output: usize) -> bool {
    let wrote = writer.run.outputs.get(output).and_then(|wrote| wrote.sha256);
    match (input.sha256, wrote) {
        (Some(read), Some(wrote)) => read == wrote,
        _ => input.made_by == Some(output_identity(writer, output)),
    }
}

/// Returns the first difference between a finished run and the declaration of a step.
fn declared_difference(
    planned: &PlannedStep,
    program: &RunTask,
    recorded: &RecordedRun,
) -> Option<RunDifference> {
    let (words, env) = declared(planned, program);
    match () {
        () if recorded.rules != CACHING_RULES => Some(RunDifference::Rules),
        () if recorded.words != words || !program.declares(&recorded.run) => Some(RunDifference::Words),
        () if recorded.env != env => Some(RunDifference::Env),
        () => changed_stored(program, recorded),
    }
}

/// Returns the reason for a step that declares an input which its finished run did not read, or the other way round: a
/// star gathers other files than before.
fn other_input(program: &RunTask, recorded: &RecordedRun) -> Option<String> {
    let declared: BTreeSet<&Path> = program.inputs.iter().map(|input| input.path.as_path()).collect();
    let read: BTreeSet<&Path> = recorded.run.inputs.iter().map(|input| input.path.as_path()).collect();
    let gained = declared.difference(&read).next().map(|path| (path, "is a new input"));
    let (path, fate) =
        gained.or_else(|| read.difference(&declared).next().map(|path| (path, "is no input any more")))?;
    Some(format!("{} {fate}", shown(program, path)))
}

/// Returns the difference for a stored file whose name has other bytes now.
fn changed_stored(program: &RunTask, recorded: &RecordedRun) -> Option<RunDifference> {
    let mut inputs = program.inputs.iter().zip(&recorded.run.inputs);
    let (input, _) =
        inputs.find(|(input, read)| input.content.is_some_and(|now| read.sha256 != Some(now)))?;
    Some(RunDifference::Read { path: input.path.clone() })
}

/// Returns the hashes of the words after the program with the names of all files, and of the environment.
fn declared(planned: &PlannedStep, program: &RunTask) -> (ContentHash, ContentHash) {
    let name = |name: &Path| name.as_os_str().as_encoded_bytes().to_vec();
    let names = |files: &[TaskFile]| files.iter().map(|file| name(&file.name)).collect::<Vec<_>>();
    let (inputs, outputs) = (names(&program.inputs), names(&program.outputs));
    if let Some(job) = &planned.job {
        return (hash(&(declared_by_job(job), inputs, outputs)), hash(&job.env));
    }
    let streams = (program.stdin.as_deref().map(name), program.stdout.as_deref().map(name));
    let words = program.words.get(1..).unwrap_or_default();
    let named: Vec<_> = program.named_streams().map(|file| name(&file.name)).collect();
    let words = match named.is_empty() {
        true => hash(&(words, inputs, outputs, streams)),
        // The program may find another kind of file.
        false => hash(&(words, inputs, outputs, streams, named)),
    };
    (words, hash(&program.env))
}

/// Returns the hash of all that decides the output of a MapReduce job besides its files: no memory, slots, sizes, limits and
/// copies, which change no byte of it.
fn declared_by_job(job: &JobSpec) -> ContentHash {
    let path = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let shipped: BTreeSet<_> =
        job.shipped.iter().map(|file| (path(&file.path), file.sha256, file.executable)).collect();
    let files: Vec<_> = job.files.iter().map(|file| path(file)).collect();
    let functions = (&job.mapper, &job.combiner, &job.reducer, &job.env_file);
    let records = (&job.formats, &job.keys, job.partitioning, job.unread);
    hash(&(JOB_RULES, functions, records, files, shipped))
}

fn identity(words: ContentHash, env: ContentHash, run: &FinishedRun) -> ContentHash {
    let content = |file: &FileContent| file.sha256.or(file.made_by);
    let contents = |files: &[FileContent]| files.iter().map(content).collect::<Vec<_>>();
    let executable = |file: &FileContent| (file.path.as_os_str().as_encoded_bytes().to_vec(), file.sha256);
    let executables: Vec<_> = run.executables.iter().map(executable).collect();
    hash(&(words, env, executables, contents(&run.environment), contents(&run.inputs)))
}

fn output_identity(writer: &RecordedRun, output: usize) -> ContentHash {
    hash(&(writer.identity, output))
}

fn hash(value: &impl Serialize) -> ContentHash {
    let written = serde_json::to_vec(value).expect("texts, bytes and hashes can be written");
    ContentHash(Sha256::digest(written).into())
}
