//! A workflow file to the specification of a job.

mod inputs;
mod streams;
mod wrong_type;

use crate::error::{FewSteps, Nearest, WorkflowFileError};
use crate::expand::{check_per, check_values, expand};
use crate::jobs::{self, PlannedFor, declare_parts};
use crate::machines::{AnyMachine, JobMachines, Sources};
use api::job::resources::GenericResources;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::job::workflow_file::{WorkflowFile, WorkflowFileStep};
use api::job::workflow_input::WorkflowInput;
use api::task::{RunTask, StepCaching, TaskFile, is_stored_name, is_stored_path};
use api::{STORED_PREFIX, name_beside};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use toml::{Table, Value};

/// Largest workflow file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Files of a directory that are compared with a missing one.
const FILES_BESIDE_MAX: usize = 10_000;
/// The shell of commands. It ends at the first failure, and at a variable that is not set.
const SHELL: [&str; 3] = ["sh", "-eu", "-c"];

/// A workflow and the name of its job.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWorkflow {
    pub name: String,
    pub spec: WorkflowSpec,
}

/// Reads and checks a workflow file. Its MapReduce jobs have the sizes of no machine: [`read_for`] plans a run. `machines`
/// have the stored files that match a pattern.
pub fn read(
    path: &Path,
    sources: Sources,
    machines: JobMachines<'_>,
) -> Result<NamedWorkflow, WorkflowFileError> {
    let front_end = &AnyMachine { stored: Some(machines.front_end) };
    read_for(path, sources, JobMachines { front_end, ..machines })
}

/// Does the same for a run on these machines.
pub fn read_for(
    path: &Path,
    sources: Sources,
    machines: JobMachines<'_>,
) -> Result<NamedWorkflow, WorkflowFileError> {
    let unreadable = |source| WorkflowFileError::Unreadable { path: path.to_path_buf(), source };
    let text = read_text(path)?;
    let absolute = std::path::absolute(path).map_err(unreadable)?;
    let dir = absolute.parent().unwrap_or(Path::new("/")).canonicalize().map_err(unreadable)?;
    let file = expand(parse(path, &text)?, &dir, sources, machines).map_err(WorkflowFileError::Expansion)?;
    let name = file.name.clone();
    let name = name.or_else(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    let spec = spec(&file, &dir, PlannedFor::of(&file, &dir, sources, machines)?)?;
    inputs::check_views(&spec)?;
    streams::check(&spec)?;
    workflow::check(&spec).map_err(|reason| WorkflowFileError::CannotRun { reason })?;
    check_parts(&spec)?;
    if sources == Sources::Here {
        check_sources(&spec)?;
    }
    Ok(NamedWorkflow { name: name.unwrap_or_default(), spec })
}

/// Returns an error if a workflow has no step of this name.
pub fn check_step(spec: &WorkflowSpec, name: &str) -> Result<(), WorkflowFileError> {
    let names = || spec.steps.iter().map(|step| step.name.as_str());
    match names().any(|step| step == name) {
        true => Ok(()),
        false => {
            let (nearest, steps) = (Nearest::of(name, names()), FewSteps::of(names()));
            Err(WorkflowFileError::NoStep { step: name.to_string(), likely: nearest.or(steps) })
        }
    }
}

fn read_text(path: &Path) -> Result<String, WorkflowFileError> {
    let unreadable = |source| WorkflowFileError::Unreadable { path: path.to_path_buf(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(WorkflowFileError::TooLarge { path: path.to_path_buf(), bytes_max: FILE_BYTES_MAX }),
        false => Ok(text),
    }
}

fn parse(path: &Path, text: &str) -> Result<WorkflowFile, WorkflowFileError> {
    let no_toml = |error: toml::de::Error| WorkflowFileError::NoToml {
        path: path.to_path_buf(),
        message: error.to_string().trim_end().to_string(),
    };
    check_keys(path, &text.parse::<Table>().map_err(no_toml)?)?;
    let mut file: WorkflowFile =
        toml::from_str(text).map_err(|error| wrong_type::wrong_type(path, text, &error))?;
    file.step.iter().try_for_each(check_per)?;
    declare_parts(&mut file)?;
    Ok(file)
}

/// Refuses unknown keys, with the nearest one.
fn check_keys(path: &Path, file: &Table) -> Result<(), WorkflowFileError> {
    let check = |table: &Table, known: &[&'static str], place: String| match table
        .keys()
        .find(|key| !known.contains(&key.as_str()))
    {
        Some(key) => {
            let nearest = Nearest::of(key, known.iter().copied());
            Err(WorkflowFileError::UnknownKey { place, key: key.clone(), nearest })
        }
        None => Ok(()),
    };
    check(file, &WorkflowFile::KEYS, path.display().to_string())?;
    let steps = file.get("step").and_then(Value::as_array).into_iter().flatten();
    for (index, step) in steps.filter_map(Value::as_table).enumerate() {
        let place = match step.get("name").and_then(Value::as_str) {
            Some(name) => format!("the step {name:?}"),
            None => format!("step {index}"),
        };
        if let Some(job) = step.get("job").and_then(Value::as_table) {
            jobs::check_keys(&place, job)?;
        }
        inputs::check_keys(&place, step)?;
        check(step, &WorkflowFile::STEP_KEYS, place)?;
    }
    check_values(file).map_err(WorkflowFileError::Expansion)
}

fn spec(
    file: &WorkflowFile,
    dir: &Path,
    planned_for: PlannedFor<'_>,
) -> Result<WorkflowSpec, WorkflowFileError> {
    let numbers: BTreeMap<&str, u32> =
        file.step.iter().zip(0..).map(|(step, number)| (step.name.as_str(), number)).collect();
    let step = |step: &WorkflowFileStep| {
        let after = |name: &String| {
            numbers.get(name.as_str()).copied().ok_or_else(|| WorkflowFileError::UnknownStep {
                step: step.name.clone(),
                after: name.clone(),
                likely: Nearest::of(name, numbers.keys().copied())
                    .or(FewSteps::of(file.step.iter().map(|step| step.name.as_str()))),
            })
        };
        let after = step.after.iter().map(after).collect::<Result<_, _>>()?;
        let name = step.name.clone();
        let Some(job) = step.job.as_deref() else {
            return Ok(WorkflowStep { name, program: program(step, dir)?, after, job: None });
        };
        let program = files_of_job(step, dir)?;
        let output = program.outputs.first().and_then(|part| part.path.parent()).unwrap_or(dir);
        let job = jobs::job_spec(step, job, output.to_path_buf(), planned_for)?;
        Ok(WorkflowStep { name, program, after, job: Some(Box::new(job)) })
    };
    let steps = file.step.iter().map(step).collect::<Result<_, _>>()?;
    Ok(WorkflowSpec { steps, only_judges: false })
}

/// Refuses stored files beside the inputs.
fn check_reads(step: &WorkflowFileStep) -> Result<(), WorkflowFileError> {
    for (key, paths) in [("reads", &step.reads), ("environment", &step.environment)] {
        if let Some(path) = paths.iter().find(|path| is_stored_path(path)) {
            let (step, value) = (step.name.clone(), path.display().to_string());
            let reason = "stored files belong into `inputs`".to_string();
            return Err(WorkflowFileError::BadValue { step, key, value, reason });
        }
    }
    Ok(())
}

fn program(step: &WorkflowFileStep, dir: &Path) -> Result<RunTask, WorkflowFileError> {
    check_reads(step)?;
    let words = match (&step.command, &step.words) {
        (Some(command), None) => SHELL.iter().map(|word| word.to_string()).chain([command.clone()]).collect(),
        (None, Some(words)) if !words.is_empty() => words.clone(),
        _ => return Err(WorkflowFileError::NoCommand { step: step.name.clone() }),
    };
    let more = step.stdout.iter().filter(|stdout| !step.outputs.contains(stdout));
    let outputs = step.outputs.iter().chain(more).map(|path| task_file(step, path, dir, !step.keep));
    let name = |stream: &Option<PathBuf>| {
        stream.as_ref().map(|path| task_file(step, path, dir, false).map(|file| file.name)).transpose()
    };
    let bad = |key, value: &String, reason: String| WorkflowFileError::BadValue {
        step: step.name.clone(),
        key,
        value: value.clone(),
        reason,
    };
    let memory = step.memory.as_ref().map(|text| {
        jobspec::memory_size::parse(text).map_err(|error| bad("memory", text, error.to_string()))
    });
    let timeout = step
        .timeout
        .as_ref()
        .map(|text| jobspec::duration::parse(text).map_err(|error| bad("timeout", text, error.to_string())));
    let mut task = RunTask {
        words,
        directory: dir.to_path_buf(),
        env: step.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        network: step.network,
        in_place: step.in_place,
        retries: step.retries,
        inputs: inputs::task_files(step, dir)?,
        outputs: outputs.collect::<Result<_, _>>()?,
        stdin: name(&step.stdin)?,
        stdout: name(&step.stdout)?,
        cores: step.cores.unwrap_or(0),
        memory_bytes: memory.transpose()?.unwrap_or(0),
        architecture: step.arch.clone(),
        resources: resources(step)?,
        caching: caching(step, dir),
        ..RunTask::default()
    };
    task.limits.seconds = timeout.transpose()?.map(|timeout| timeout.as_secs());
    streams::mark(&mut task, step, dir)?;
    Ok(task)
}

fn resources(step: &WorkflowFileStep) -> Result<GenericResources, WorkflowFileError> {
    match step.resources.check() {
        Ok(()) => Ok(step.resources.clone()),
        Err(error) => {
            let (step, value, reason) = (step.name.clone(), step.resources.to_string(), error.to_string());
            Err(WorkflowFileError::BadValue { step, key: "resources", value, reason })
        }
    }
}

/// Returns the files of a step that is a job. They stand in no directory, so each is named by its path.
fn files_of_job(step: &WorkflowFileStep, dir: &Path) -> Result<RunTask, WorkflowFileError> {
    let file = |path: &PathBuf, temporary: bool| {
        let mut file = task_file(step, path, dir, temporary)?;
        if file.is_stored() {
            file.name = file.path.clone();
        }
        if path.is_absolute() {
            file.name = file.path.strip_prefix("/").unwrap_or(&file.path).to_path_buf();
        }
        Ok(file)
    };
    let outputs: Vec<TaskFile> =
        step.outputs.iter().map(|path| file(path, !step.keep)).collect::<Result<_, _>>()?;
    if let Some(output) = outputs.iter().find(|output| output.is_stored()) {
        let (step, path) = (step.name.clone(), output.path.clone());
        return Err(WorkflowFileError::JobWritesStored { step, path });
    }
    let input = |input: &WorkflowInput| Ok(TaskFile { view: input.view, ..file(&input.path, false)? });
    let inputs = step.inputs.iter().map(input).collect::<Result<_, _>>()?;
    check_reads(step)?;
    let caching = caching(step, dir);
    Ok(RunTask { directory: dir.to_path_buf(), inputs, outputs, caching, ..RunTask::default() })
}

/// Returns the rules by which a step is skipped; None if it always runs. Without outputs there is nothing to keep.
fn caching(step: &WorkflowFileStep, dir: &Path) -> Option<Box<StepCaching>> {
    let has_outputs = !step.outputs.is_empty() || step.stdout.is_some();
    let at = |paths: &[PathBuf]| paths.iter().map(|path| dir.join(path)).collect();
    (has_outputs && step.cache.unwrap_or(true) && !step.in_place)
        .then(|| Box::new(StepCaching { reads: at(&step.reads), environment: at(&step.environment) }))
}

/// Returns a declared file: a relative path is its name too, an absolute one stands under its file name.
fn task_file(
    step: &WorkflowFileStep,
    path: &Path,
    dir: &Path,
    temporary: bool,
) -> Result<TaskFile, WorkflowFileError> {
    let bad = || WorkflowFileError::BadPath { step: step.name.clone(), path: path.to_path_buf() };
    if is_stored_path(path) && step.in_place {
        let (step, value) = (step.name.clone(), path.display().to_string());
        let reason = "a stored file does not stand in the directory of the workflow: leave one of them out";
        return Err(WorkflowFileError::BadValue { step, key: "in_place", value, reason: reason.to_string() });
    }
    if is_stored_path(path) {
        return stored_file(step, path, temporary);
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(bad());
    }
    let is_normal = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let plain: PathBuf = path.components().filter(is_normal).collect();
    let (name, path) = match path.is_absolute() {
        true => (PathBuf::from(path.file_name().ok_or_else(bad)?), Path::new("/").join(plain)),
        false => (plain.clone(), dir.join(plain)),
    };
    let file = TaskFile { name, path, temporary, ..TaskFile::default() };
    if file.is_valid() { Ok(file) } else { Err(bad()) }
}

/// Returns a stored file, in one spelling of its name. It stands under the last part of its name.
fn stored_file(step: &WorkflowFileStep, path: &Path, temporary: bool) -> Result<TaskFile, WorkflowFileError> {
    let step_name = step.name.clone();
    if !is_stored_name(path) && step.outputs.iter().chain(&step.stdout).any(|output| output == path) {
        return Err(WorkflowFileError::StoredOutput { step: step_name, path: path.to_path_buf() });
    }
    let text = path.to_str().and_then(|text| text.strip_prefix(STORED_PREFIX)).unwrap_or_default();
    let text = text.strip_prefix('/').unwrap_or(text);
    let path = PathBuf::from(format!("{STORED_PREFIX}{}", text.strip_suffix('/').unwrap_or(text)));
    let name = name_beside(&path).map(PathBuf::from).unwrap_or_default();
    let file = TaskFile { name, path, temporary, ..TaskFile::default() };
    match file.is_valid_input() {
        true => Ok(file),
        false => Err(WorkflowFileError::BadPath { step: step_name, path: file.path }),
    }
}

/// Checks that no step reads a file that a job will replace with its output, and that is no part of it.
fn check_parts(spec: &WorkflowSpec) -> Result<(), WorkflowFileError> {
    let mut dirs: BTreeMap<&Path, &WorkflowStep> = BTreeMap::new();
    for step in &spec.steps {
        dirs.extend(step.job.iter().map(|job| (job.output.as_path(), step)));
    }
    if dirs.is_empty() {
        return Ok(());
    }
    for step in &spec.steps {
        for input in &step.program.inputs {
            let above = input.path.ancestors().skip(1).find_map(|above| dirs.get(above));
            let Some(writer) = above else { continue };
            if !writer.program.outputs.iter().any(|part| part.path == input.path) {
                let (name, path, writer) = (step.name.clone(), input.path.clone(), writer.name.clone());
                return Err(WorkflowFileError::NoPart { step: name, path, writer });
            }
        }
    }
    Ok(())
}

/// Checks that the inputs that no step writes are plain files.
fn check_sources(spec: &WorkflowSpec) -> Result<(), WorkflowFileError> {
    let outputs = spec.steps.iter().flat_map(|step| &step.program.outputs);
    let written: BTreeSet<&Path> = outputs.map(|output| output.path.as_path()).collect();
    for step in &spec.steps {
        let is_source = |input: &&TaskFile| !input.is_stored() && !written.contains(input.path.as_path());
        for input in step.program.inputs.iter().filter(is_source) {
            let (name, path) = (step.name.clone(), input.path.clone());
            match input.path.metadata() {
                Ok(facts) if facts.is_file() => {}
                Ok(_) => return Err(WorkflowFileError::NoFile { step: name, path }),
                Err(_) => {
                    let nearest = nearest_file(step, &path, &written);
                    return Err(WorkflowFileError::MissingInput { step: name, path, nearest });
                }
            }
        }
    }
    Ok(())
}

/// Returns the file that a missing input may mean: one beside its place, or an output of another step.
fn nearest_file(step: &WorkflowStep, missing: &Path, written: &BTreeSet<&Path>) -> Nearest {
    let above = missing.parent().unwrap_or(Path::new("/"));
    let beside = std::fs::read_dir(above).into_iter().flatten().flatten().take(FILES_BESIDE_MAX);
    let beside: Vec<PathBuf> = beside.map(|entry| entry.path()).collect();
    let is_own = |path: &&&Path| step.program.outputs.iter().any(|output| output.path == **path);
    let of_steps = written.iter().filter(|path| !is_own(path)).copied();
    Nearest::of_files(missing, beside.iter().map(PathBuf::as_path).chain(of_steps))
}
