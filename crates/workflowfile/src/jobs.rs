//! Steps that are MapReduce jobs: a table `[step.job]` with the keys of a job file. Its parts are known when the file is
//! read, so other steps read them as any other files.

use crate::error::{Nearest, WorkflowFileError};
use crate::machines::{JobMachines, Sources};
use api::job::workflow_file::{WorkflowFile, WorkflowFileStep};
use api::task::TASK_FILES_MAX;
use api::{Formats, JobFile, JobSpec};
use jobspec::{FrontEnd, JobStepPlace, plan_job_step};
use std::path::{Path, PathBuf};
use toml::Table;

/// Keys of a job in a step. The others of a job file have no meaning there.
const KEYS: [&str; 24] = [
    "mapper",
    "combiner",
    "reducer",
    "output",
    "partitions",
    "memory",
    "slots",
    "file",
    "limit",
    "codec",
    "input_format",
    "output_format",
    "exchange",
    "separator",
    "key_fields",
    "order",
    "reverse",
    "sort_keys",
    "partition_fields",
    "key_tails",
    "max_regenerations",
    "unread",
    "speculation",
    "replication",
];

/// The place of the jobs of a file.
#[derive(Clone, Copy)]
pub(crate) struct PlannedFor<'a> {
    front_end: &'a dyn FrontEnd,
    place: JobStepPlace<'a>,
}

impl<'a> PlannedFor<'a> {
    /// Asks once for the sizes of jobs that name none.
    pub fn of(
        file: &WorkflowFile,
        dir: &'a Path,
        sources: Sources,
        machines: JobMachines<'a>,
    ) -> Result<Self, WorkflowFileError> {
        let JobMachines { front_end, state, slots } = machines;
        let mut steps = file.step.iter().filter(|step| step.job.is_some());
        let (mut memory_bytes, mut slots) = (0, slots);
        let in_cluster = sources == Sources::OnNodes;
        if let Some(first) = steps.next() {
            let known = jobspec::resources(None, slots, front_end);
            let (of_one, of_machine) = known.map_err(|error| bad_job(first, &error))?;
            // The engine on this machine counts no memory: jobs share that of one, as far as slots let them run.
            let at_once = if in_cluster { 1 } else { (1 + steps.count()).min(of_machine as usize) };
            (memory_bytes, slots) = (of_one / at_once.max(1) as u64, Some(of_machine));
        }
        let slots = slots.unwrap_or(1);
        Ok(Self { front_end, place: JobStepPlace { dir, state, memory_bytes, slots, in_cluster } })
    }
}

fn bad_job(step: &WorkflowFileStep, error: &anyhow::Error) -> WorkflowFileError {
    WorkflowFileError::BadJob { step: step.name.clone(), reason: format!("{error:#}") }
}

/// Refuses unknown keys of a job, with the nearest one.
pub(crate) fn check_keys(step: &str, job: &Table) -> Result<(), WorkflowFileError> {
    let Some(key) = job.keys().find(|key| !KEYS.contains(&key.as_str())) else { return Ok(()) };
    let place = format!("the job of {step}");
    let instead = match key.as_str() {
        "input" => "`inputs` of the step has its inputs",
        "env" | "network" | "cache" | "keep" | "reads" | "environment" => {
            "it belongs into the step, above [step.job]"
        }
        "name" => "its name is that of the step",
        "overwrite" => "a step replaces its own output",
        "map_only" => "a job that is a step has a reducer, or sorts",
        "total_order" => "one partition is in total order; more are not",
        _ => {
            let nearest = Nearest::of(key, KEYS);
            return Err(WorkflowFileError::UnknownKey { place, key: key.clone(), nearest });
        }
    };
    Err(WorkflowFileError::JobKey { place, key: key.clone(), instead })
}

/// Checks the steps that are jobs, and declares their parts as outputs.
pub(crate) fn declare_parts(file: &mut WorkflowFile) -> Result<(), WorkflowFileError> {
    for step in &mut file.step {
        let Some(job) = step.job.as_deref() else { continue };
        let name = step.name.clone();
        if let Some(key) = other_key(step) {
            return Err(WorkflowFileError::JobBeside { step: name, key });
        }
        let output = job.output.as_ref().filter(|output| output.as_os_str() != "-");
        let Some(output) = output else { return Err(WorkflowFileError::NoJobOutput { step: name }) };
        if step.inputs.is_empty() {
            return Err(WorkflowFileError::NoJobInputs { step: name });
        }
        let partitions = job.partitions.unwrap_or(1);
        if !(1..TASK_FILES_MAX as u32).contains(&partitions) {
            let (key, value) = ("partitions", partitions.to_string());
            let reason = format!("give 1 to {}", TASK_FILES_MAX - 1);
            return Err(WorkflowFileError::BadValue { step: name, key, value, reason });
        }
        let formats = Formats::default();
        step.outputs = (0..partitions).map(|part| output.join(formats.part_name(part))).collect();
    }
    Ok(())
}

/// Returns a key that has no meaning in a step that is a job.
fn other_key(step: &WorkflowFileStep) -> Option<&'static str> {
    let keys = [
        ("command", step.command.is_some()),
        ("words", step.words.is_some()),
        ("outputs", !step.outputs.is_empty()),
        ("per", step.per.is_some()),
        ("stdin", step.stdin.is_some()),
        ("stdout", step.stdout.is_some()),
        ("streams", !step.streams.is_empty()),
        ("cores", step.cores.is_some()),
        ("memory", step.memory.is_some()),
        ("arch", step.arch.is_some()),
        ("retries", step.retries > 0),
        ("timeout", step.timeout.is_some()),
        ("in_place", step.in_place),
        ("resources", !step.resources.is_none()),
    ];
    keys.into_iter().find(|(_, has)| *has).map(|(key, _)| key)
}

/// Returns the specification of a step that is a job, without its inputs. `output`: its directory.
pub(crate) fn job_spec(
    step: &WorkflowFileStep,
    job: &JobFile,
    output: PathBuf,
    PlannedFor { front_end, place }: PlannedFor<'_>,
) -> Result<JobSpec, WorkflowFileError> {
    let env = step.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let partitions = Some(job.partitions.unwrap_or(1));
    let job =
        JobFile { env: Some(env), network: Some(step.network), partitions, output: None, ..job.clone() };
    let planned = plan_job_step(step.name.clone(), job, output, place, front_end);
    planned.map_err(|error| bad_job(step, &error))
}

/// Returns a job with other texts.
pub(crate) fn with_texts<E>(
    job: &JobFile,
    plain: impl Fn(&String) -> Result<String, E>,
    function: impl Fn(&String) -> Result<String, E>,
) -> Result<JobFile, E> {
    let text = |text: &Option<String>| text.as_ref().map(&plain).transpose();
    let command = |text: &Option<String>| text.as_ref().map(&function).transpose();
    let list = |list: &Option<Vec<String>>| {
        list.as_ref().map(|list| list.iter().map(&plain).collect::<Result<Vec<_>, E>>()).transpose()
    };
    let output = match job.output.as_ref().and_then(|output| output.to_str()) {
        Some(output) => Some(PathBuf::from(plain(&output.to_string())?)),
        None => job.output.clone(),
    };
    Ok(JobFile {
        mapper: command(&job.mapper)?,
        combiner: command(&job.combiner)?,
        reducer: command(&job.reducer)?,
        output,
        memory: text(&job.memory)?,
        file: list(&job.file)?,
        limit: list(&job.limit)?,
        input_format: text(&job.input_format)?,
        output_format: text(&job.output_format)?,
        exchange: text(&job.exchange)?,
        separator: text(&job.separator)?,
        sort_keys: text(&job.sort_keys)?,
        partition_fields: text(&job.partition_fields)?,
        ..job.clone()
    })
}

/// Returns the texts of a job in which a placeholder may stand.
pub(crate) fn texts(job: &JobFile) -> impl Iterator<Item = &str> {
    let functions = [&job.mapper, &job.combiner, &job.reducer, &job.memory].into_iter().flatten();
    let formats = [&job.input_format, &job.output_format, &job.exchange, &job.separator];
    let keys = [&job.sort_keys, &job.partition_fields].into_iter().flatten();
    let lists = [&job.file, &job.limit].into_iter().flatten().flatten();
    let texts = functions.chain(formats.into_iter().flatten()).chain(keys).chain(lists);
    texts.map(String::as_str).chain(job.output.iter().filter_map(|output| output.to_str()))
}
