//! One of the steps for which a step of the file stands.

use super::error::ExpansionError;
use super::pattern::TRIALS;
use super::placeholder::{Piece, pieces};
use super::stored::STORED_ROOT;
use super::values::{BoundBy, Place, Values};
use crate::jobs::{texts as job_texts, with_texts};
use api::STORED_PREFIX;
use api::job::workflow_file::WorkflowFileStep;
use api::job::workflow_input::WorkflowInput;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns a step with values in place of all placeholders. Error: the wildcards of the step have no values, as its
/// pattern took too many trials.
pub fn instance(step: &WorkflowFileStep, values: &Values<'_>) -> Result<WorkflowFileStep, ExpansionError> {
    let has_values = values.own.values().any(|value| value.source == BoundBy::FileName);
    if let Some(pattern) = step.each.as_ref().filter(|_| !has_values) {
        let (step, pattern) = (step.name.clone(), pattern.clone());
        return Err(ExpansionError::BadPattern { step, pattern, reason: TRIALS });
    }
    let plain = |text: &String| values.fill(text, Place::Plain);
    let path = |path: &PathBuf| match path.to_str() {
        Some(text) => values.fill(text, Place::Plain).map(PathBuf::from),
        None => Ok(path.clone()),
    };
    let paths = |all: &Vec<PathBuf>| all.iter().map(path).collect::<Result<Vec<PathBuf>, _>>();
    let input = |input: &WorkflowInput| Ok(WorkflowInput { path: path(&input.path)?, view: input.view });
    let variable = |(name, value): (&String, &String)| Ok((name.clone(), plain(value)?));
    let shell = |command: &String| values.fill(command, Place::Shell);
    Ok(WorkflowFileStep {
        name: instance_name(&step.name, values)?,
        sweep: BTreeMap::new(),
        each: None,
        per: None,
        command: step.command.as_ref().map(shell).transpose()?,
        words: step.words.as_ref().map(|words| filled_words(words, values)).transpose()?,
        job: step.job.as_ref().map(|job| with_texts(job, plain, shell).map(Box::new)).transpose()?,
        inputs: step.inputs.iter().map(input).collect::<Result<_, ExpansionError>>()?,
        outputs: paths(&step.outputs)?,
        stdin: step.stdin.as_ref().map(path).transpose()?,
        stdout: step.stdout.as_ref().map(path).transpose()?,
        streams: paths(&step.streams)?,
        keep: step.keep,
        after: step.after.clone(),
        env: step.env.iter().map(variable).collect::<Result<_, ExpansionError>>()?,
        cores: step.cores,
        memory: step.memory.as_ref().map(plain).transpose()?,
        arch: step.arch.as_ref().map(plain).transpose()?,
        resources: step.resources.clone(),
        retries: step.retries,
        timeout: step.timeout.as_ref().map(plain).transpose()?,
        network: step.network,
        in_place: step.in_place,
        cache: step.cache,
        reads: paths(&step.reads)?,
        environment: paths(&step.environment)?,
    })
}

/// Returns words with values in place of placeholders. A word after an option such as `-c` may be a script.
fn filled_words(words: &[String], values: &Values<'_>) -> Result<Vec<String>, ExpansionError> {
    let mut filled: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        let is_script = filled.last().is_some_and(|before| takes_script(before));
        let place = if is_script { Place::Shell } else { Place::Plain };
        filled.push(values.fill(word, place)?);
    }
    Ok(filled)
}

/// Returns whether a word is an option such as `-c`, `-euc` or `-e`, after which shells and interpreters take a script.
fn takes_script(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    letters.ends_with(['c', 'e']) && letters.chars().all(|each| each.is_ascii_alphabetic())
}

/// Returns the name of an instance. Values that the name does not have stand at its end.
fn instance_name(name: &str, values: &Values<'_>) -> Result<String, ExpansionError> {
    let mut filled = values.fill(name, Place::Plain)?;
    let has = pieces(name);
    for (key, value) in &values.own {
        if !has.contains(&Piece::Placeholder(key)) {
            filled.push_str(&format!(" {key}={}", value.text));
        }
    }
    Ok(filled)
}

/// Returns the absolute path that a declared one stands for, without `.` and doubled slashes; None with `..`. A stored
/// file has `files:/NAME`.
pub fn absolute_path(dir: &str, path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let (base, text) = split_base(dir, text);
    let mut absolute = base.to_string();
    for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return None;
        }
        absolute.push('/');
        absolute.push_str(part);
    }
    Some(absolute)
}

/// Returns the directory below which a text looks for files, without a slash at its end, and the rest of the text.
pub fn split_base<'d, 't>(dir: &'d str, text: &'t str) -> (&'d str, &'t str) {
    match text.strip_prefix(STORED_PREFIX) {
        Some(rest) => (STORED_ROOT, rest),
        None if text.starts_with('/') => ("", text),
        None => (dir.trim_end_matches('/'), text),
    }
}

/// Returns the absolute paths of the outputs of a step.
pub fn output_paths(dir: &str, step: &WorkflowFileStep) -> impl Iterator<Item = String> {
    step.outputs.iter().chain(&step.stdout).filter_map(move |output| absolute_path(dir, output))
}

/// Returns the texts of a step in which a placeholder may stand.
pub fn texts(step: &WorkflowFileStep) -> impl Iterator<Item = &str> {
    let paths = [&step.outputs, &step.streams, &step.reads, &step.environment].into_iter().flatten();
    let paths = step
        .inputs
        .iter()
        .map(|input| &input.path)
        .chain(paths)
        .chain(&step.stdin)
        .chain(&step.stdout)
        .filter_map(|path| path.to_str());
    let words = step.command.iter().chain(step.words.iter().flatten()).chain(step.env.values());
    let job = step.job.iter().flat_map(|job| job_texts(job));
    [step.name.as_str()].into_iter().chain(paths).chain(words.map(String::as_str)).chain(job)
}

/// Returns the number of bytes of the texts of a step, about.
pub fn text_bytes(step: &WorkflowFileStep) -> usize {
    let paths = [&step.outputs, &step.streams, &step.reads, &step.environment].into_iter().flatten();
    let paths = step.inputs.iter().map(|input| &input.path).chain(paths);
    let paths: usize = paths.map(|path| path.as_os_str().len()).sum();
    let words: usize =
        step.words.iter().flatten().chain(&step.after).chain(step.env.values()).map(String::len).sum();
    let job = step.job.iter().flat_map(|job| job_texts(job)).map(str::len).sum::<usize>();
    size_of::<WorkflowFileStep>() + job + step.command.as_ref().map_or(0, String::len) + paths + words
}
