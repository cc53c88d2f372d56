//! Errors of workflows: names used twice, steps that are not there, cycles.

use crate::graph::Graph;
use api::control::NAME_BYTES_MAX;
use api::job::workflow::WorkflowStep;
use api::task::{RunTask, TaskFile};
use api::{InputFile, JobSpec};
use ids::StepNumber;
use jobkind::{STEPS_MAX, check_job_step};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of steps of a cycle in a message.
const CYCLE_SHOWN_MAX: usize = 8;
/// Word that stands for the program of a job.
const JOB: &str = "job";

/// Returns for each step the positions of the steps before it, in order, each once: those that it names, and those
/// whose outputs it reads. Returns a sentence for a workflow that cannot run.
pub fn steps_before(steps: &[WorkflowStep]) -> Result<Vec<Vec<u32>>, String> {
    steps_before_in(&checked(steps, Ok)?)
}

/// Does the same for steps that are checked one by one.
pub(crate) fn steps_before_in(graph: &Graph<'_>) -> Result<Vec<Vec<u32>>, String> {
    let before = graph.before()?;
    match cycle(&before) {
        None => Ok(before),
        Some(cycle) => Err(format!("steps wait for each other: {}", cycle_text(graph, &cycle))),
    }
}

/// Checks each step by itself, whose program `read` returns. Returns their files.
pub(crate) fn checked<'a, P, T: Borrow<RunTask>>(
    steps: &'a [WorkflowStep<P>],
    read: impl Fn(&'a P) -> Result<T, String>,
) -> Result<Graph<'a>, String> {
    if steps.is_empty() {
        return Err("it has no steps".to_string());
    }
    if steps.len() > STEPS_MAX {
        return Err(format!("it has {} steps: give at most {STEPS_MAX}", steps.len()));
    }
    let (mut names, mut graph) = (BTreeSet::new(), Graph::of(steps.len()));
    for (index, step) in steps.iter().enumerate() {
        let WorkflowStep { name, after, program, job } = step;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!(
                "step {index} has the name {name:?}: give 1 to {NAME_BYTES_MAX} printable bytes"
            ));
        }
        if !names.insert(name) {
            return Err(format!("two steps have the name {name:?}"));
        }
        let program = read(program).map_err(|error| format!("the step {name:?}: {error}"))?;
        check_program(name, program.borrow(), job.as_deref())?;
        if let Some(missing) = after.iter().find(|before| **before as usize >= steps.len()) {
            let last = steps.len() - 1;
            return Err(format!("the step {name:?} waits for step {missing}, and the last one is {last}"));
        }
        graph.add(name, after, program.borrow());
    }
    Ok(graph)
}

fn check_program(name: &str, program: &RunTask, job: Option<&JobSpec>) -> Result<(), String> {
    if !program.pipeline.is_empty() || !program.removes.is_empty() || !program.looks.is_empty() {
        return Err(format!("the step {name:?} is more than a program: give each program a step of its own"));
    }
    if let Some(path) = changed_in_place(program) {
        let path = path.display();
        return Err(format!(
            "the step {name:?} reads and writes {path}: a step cannot change its input in place; write another file"
        ));
    }
    if let Some(input) = program.inputs.iter().find(|input| input.view && !input.is_stored()) {
        let path = input.path.display();
        return Err(format!(
            "the step {name:?} reads {path} as a view, and it is no stored file: leave `view` out"
        ));
    }
    let checked = match job {
        Some(job) => check_job(job, program),
        None => program.check_files().map_err(|error| error.to_string()),
    };
    checked.map_err(|error| format!("the step {name:?}: {error}"))
}

/// Checks a step that is a MapReduce job: its program declares the inputs of the job and its parts, and nothing else.
fn check_job(job: &JobSpec, program: &RunTask) -> Result<(), String> {
    let RunTask { inputs, outputs, directory, caching, .. } = program.clone();
    let declares = RunTask { inputs, outputs, directory, caching, ..RunTask::default() };
    if declares != *program {
        return Err("it has a program and a job: give one of them".to_string());
    }
    // The rules for files are those of a program.
    let with_program = RunTask { words: vec![JOB.to_string()], ..declares };
    with_program.check_files().map_err(|error| error.to_string())?;
    let is_part = |output: &TaskFile| output.path.parent() == Some(&job.output);
    if program.named_streams().next().is_some() {
        return Err("its files cannot be streams: give them to a step with a program".to_string());
    }
    if !program.outputs.iter().all(is_part) {
        return Err(format!("its outputs are not the parts of {}", job.output.display()));
    }
    check_job_step(&with_inputs(job, program)).map_err(|error| error.to_string())
}

/// Returns a MapReduce job with the inputs that its step declares.
pub(crate) fn with_inputs(job: &JobSpec, program: &RunTask) -> JobSpec {
    let inputs = program.inputs.iter().zip(0..);
    let input = |(file, named): (&TaskFile, u32)| InputFile {
        path: file.path.clone(),
        named,
        content: file.content,
        compression: file.compression,
        ..InputFile::default()
    };
    JobSpec { inputs: inputs.map(input).collect(), ..job.clone() }
}

/// Returns an input that is an output too.
fn changed_in_place(program: &RunTask) -> Option<&Path> {
    let outputs: BTreeSet<&Path> = program.outputs.iter().map(|output| output.path.as_path()).collect();
    program.inputs.iter().map(|input| input.path.as_path()).find(|path| outputs.contains(path))
}

/// Returns for each step the steps that wait for it, in order.
pub(crate) fn readers(before: &[Vec<u32>]) -> Vec<Vec<StepNumber>> {
    let mut readers = vec![Vec::new(); before.len()];
    for (index, steps) in before.iter().enumerate() {
        steps.iter().for_each(|step| readers[*step as usize].push(StepNumber(index as u32)));
    }
    readers
}

/// Returns the positions of steps each of which waits for the next, and the last for the first; None if there is no
/// cycle. Removes steps that wait for nothing until none is left (Kahn), so depth costs no stack.
fn cycle(before: &[Vec<u32>]) -> Option<Vec<usize>> {
    let readers = readers(before);
    let mut waits: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut free: Vec<usize> = (0..before.len()).filter(|step| waits[*step] == 0).collect();
    while let Some(step) = free.pop() {
        for reader in &readers[step] {
            let reader = reader.0 as usize;
            waits[reader] -= 1;
            if waits[reader] == 0 {
                free.push(reader);
            }
        }
    }
    // Each step that is left waits for one that is left too: following them must come back.
    let mut path = vec![(0..before.len()).find(|step| waits[*step] > 0)?];
    let mut place = vec![None; before.len()];
    loop {
        let step = path[path.len() - 1];
        if let Some(first) = place[step] {
            path.pop();
            return Some(path.split_off(first));
        }
        place[step] = Some(path.len() - 1);
        let left = before[step].iter().find(|before| waits[**before as usize] > 0)?;
        path.push(*left as usize);
    }
}

fn cycle_text(graph: &Graph<'_>, cycle: &[usize]) -> String {
    let shown = cycle.iter().take(CYCLE_SHOWN_MAX).map(|step| format!("{:?}", graph.name(*step)));
    let mut text = shown.collect::<Vec<_>>().join(" after ");
    match cycle.len() > CYCLE_SHOWN_MAX {
        true => text.push_str(&format!(" after {} more", cycle.len() - CYCLE_SHOWN_MAX)),
        false => text.push_str(&format!(" after {:?}", graph.name(cycle[0]))),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{cycle, steps_before};
    use api::JobSpec;
    use api::job::workflow::WorkflowStep;
    use api::task::{RunTask, TaskFile};

    fn steps(after: &[&[u32]]) -> Vec<WorkflowStep> {
        let step = |(index, after): (usize, &&[u32])| WorkflowStep {
            name: format!("s{index}"),
            after: after.to_vec(),
            ..WorkflowStep::default()
        };
        after.iter().enumerate().map(step).collect()
    }

    fn error(steps: &[WorkflowStep]) -> String {
        steps_before(steps).err().unwrap_or_default()
    }

    #[test]
    fn bad_workflows_get_a_sentence() {
        assert_eq!(steps_before(&steps(&[&[], &[0], &[1, 0, 1]])), Ok(vec![vec![], vec![0], vec![0, 1]]));
        assert_eq!(error(&[]), "it has no steps");
        assert_eq!(error(&steps(&[&[], &[7]])), "the step \"s1\" waits for step 7, and the last one is 1");
        assert_eq!(error(&steps(&[&[0]])), "steps wait for each other: \"s0\" after \"s0\"");
        let cyclic = steps(&[&[], &[0, 3], &[1], &[2]]);
        assert_eq!(
            error(&cyclic),
            "steps wait for each other: \"s1\" after \"s3\" after \"s2\" after \"s1\""
        );
        let mut twice = steps(&[&[], &[]]);
        twice[1].name = "s0".to_string();
        assert_eq!(error(&twice), "two steps have the name \"s0\"");
        twice[1].name = "a\nb".to_string();
        assert!(error(&twice).starts_with("step 1 has the name \"a\\nb\""));
    }

    #[test]
    fn long_chains_and_cycles_need_no_stack() {
        let count = 100_000_u32;
        let chain = |first: &[u32]| -> Vec<Vec<u32>> {
            let before = |step: u32| step.checked_sub(1).map_or(first.to_vec(), |before| vec![before]);
            (0..count).map(before).collect()
        };
        assert_eq!(cycle(&chain(&[])), None);
        assert_eq!(cycle(&chain(&[count - 1])).map(|cycle| cycle.len()), Some(count as usize));
    }

    /// Returns a step with files at these paths.
    fn step(name: &str, inputs: &[&str], outputs: &[&str]) -> WorkflowStep {
        let file =
            |path: &&str| TaskFile { name: path[1..].into(), path: path.into(), ..TaskFile::default() };
        let files = |paths: &[&str]| -> Vec<TaskFile> { paths.iter().map(file).collect() };
        let words = vec!["true".to_string()];
        let program = RunTask { words, inputs: files(inputs), outputs: files(outputs), ..RunTask::default() };
        WorkflowStep { name: name.to_string(), program, after: Vec::new(), job: None }
    }

    #[test]
    fn edges_follow_from_files() {
        let count = step("count", &["/words", "/other"], &["/count"]);
        let words = step("words", &["/text"], &["/words", "/more"]);
        let all = step("all", &["/count", "/words", "/more"], &[]);
        let before = steps_before(&[count.clone(), words.clone(), all]);
        assert_eq!(before, Ok(vec![vec![1], vec![], vec![0, 1]]));
        let again = step("again", &[], &["/more"]);
        assert_eq!(error(&[words, again]), "the steps \"words\" and \"again\" both write /more");
        assert!(
            error(&[step("a", &[], &["/x", "/x"])])
                .starts_with("the step \"a\": the name \"x\" is declared twice")
        );
        let mut view = step("a", &["/x"], &[]);
        view.program.inputs[0].view = true;
        assert!(error(&[view]).ends_with("leave `view` out"));
        let mut own = step("a", &["/x"], &["/x"]);
        own.program.outputs[0].name = "y".into();
        assert!(
            error(&[own]).starts_with("the step \"a\" reads and writes /x: a step cannot change its input")
        );
    }

    #[test]
    fn jobs_have_files_and_no_program() {
        let job = |change: &dyn Fn(&mut WorkflowStep, &mut JobSpec)| {
            let mut count = step("count", &["/text"], &["/counts/part-00000"]);
            let mut job = JobSpec { output: "/counts".into(), ..JobSpec::named("count") };
            count.program.words.clear();
            change(&mut count, &mut job);
            count.job = Some(Box::new(job));
            steps_before(&[step("read", &["/counts/part-00000"], &[]), count])
        };
        assert_eq!(job(&|_, _| ()), Ok(vec![vec![1], vec![]]));
        let check = |change: &dyn Fn(&mut WorkflowStep, &mut JobSpec), said: &str| {
            let error = job(change).err().unwrap_or_default();
            assert!(error.starts_with("the step \"count\": ") && error.contains(said), "{error}");
        };
        check(&|step, _| step.program.words.push("true".to_string()), "a program and a job");
        check(&|step, _| step.program.retries = 1, "a program and a job");
        check(&|_, job| job.output = "/other".into(), "not the parts of /other");
        check(&|_, job| job.keep_ifiles = true, "keep_ifiles");
        check(&|step, _| step.program.inputs.clear(), "maps and reduces files");
    }
}
