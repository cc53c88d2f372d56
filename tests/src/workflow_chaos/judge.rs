//! Steps that the store calls finished, and the attempts of all others.

use super::flow::Flow;
use super::watcher::{Identity, Seen};
use crate::files_chaos::tally::Tally;
use crate::files_chaos::world::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// Parts of the name of a hidden output that a node left when it died just before it would have had its name.
const HIDDEN: (&str, &str) = (".", ".sailfish-");
/// Texts between the names of the steps of a pipeline.
const BETWEEN_STEPS: [&str; 2] = [" | ", " > "];

/// Longest time from the rename of an output to the row of its success: the server may be away, and the machine be loaded.
const UNREPORTED_MAX: Duration = Duration::from_secs(8);

/// Job and number of an attempt.
type AttemptKey = (i64, i64);

/// State of a step when the store first called it finished.
struct Told {
    /// Length of the log then: the step has no line behind it.
    log_bytes: usize,
    /// Identities of its outputs that stay, by their places in the workflow.
    outputs: BTreeMap<usize, Option<Identity>>,
}

/// Row of an attempt in the store.
struct Attempt {
    state: String,
    node: i64,
}

/// The steps of a workflow that were seen to be finished.
#[derive(Default)]
pub(super) struct Judge {
    told: BTreeMap<String, Told>,
}

impl Judge {
    /// Asks the store which steps are finished. While there is no server it learns nothing.
    pub fn look(&mut self, flow: &Flow, job: i64, world: &World) {
        let question = format!("select name from jobs where step_of = {job} and state = 'succeeded'");
        let Some(rows) = world.ask(&question) else { return };
        let log_bytes = log(flow).len();
        let names = rows.iter().filter_map(|row| row.first()?.as_str());
        let [beside, then] = BETWEEN_STEPS;
        let steps: BTreeSet<&str> =
            names.flat_map(|name| name.split(beside)).flat_map(|name| name.split(then)).collect();
        for step in &flow.steps {
            if steps.contains(step.as_str()) && !self.told.contains_key(step) {
                let outputs = kept_outputs(flow, step);
                self.told.insert(step.clone(), Told { log_bytes, outputs });
            }
        }
    }

    /// Judges a workflow that has succeeded, after the watcher has ended.
    pub fn judge(&self, flow: &Flow, job: i64, world: &World, seen: &Seen, tally: &mut Tally) {
        let log = log(flow);
        let begun = begun(&log);
        let Some(attempts) = attempts(job, world) else {
            return tally.problem(format!("{}: the store does not tell of its attempts", flow.name));
        };
        let (gone, early) = (world.ended_nodes(), readers_elsewhere(flow, &begun));
        for step in &flow.steps {
            let runs = begun.get(step.as_str()).cloned().unwrap_or_default();
            if let Some(told) = self.told.get(step) {
                tally.count("steps", "seen to be finished early");
                told_problems(flow, step, told, &runs).into_iter().for_each(|problem| tally.problem(problem));
            }
            tally.count("steps", "all");
            runs.iter().skip(1).for_each(|_| tally.count("steps", "begun again"));
            let problems = match flow.jobs.contains(step) {
                true => Vec::new(),
                false => run_problems(&runs, &attempts, &gone, &early),
            };
            for problem in problems {
                tally.problem(format!("{}, step {step}: {problem}", flow.name));
            }
            let ends = ends_of(&runs, &attempts, &gone);
            for (index, _) in flow.outputs.iter().enumerate().filter(|(_, output)| output.step == *step) {
                judge_files(flow, index, &seen.files[index], &ends, tally);
            }
        }
        check_files(flow, tally);
    }
}

/// Returns the attempts that read a stream which another attempt writes, on any node. The end of that one, of the server, and
/// a step that wants the slot interrupt them.
fn readers_elsewhere(flow: &Flow, begun: &BTreeMap<&str, Vec<(usize, AttemptKey)>>) -> BTreeSet<AttemptKey> {
    let of = |step: &String| -> BTreeSet<AttemptKey> {
        begun.get(step.as_str()).into_iter().flatten().map(|(_, key)| *key).collect()
    };
    flow.streams.iter().flat_map(|(reader, writer)| &of(reader) - &of(writer)).collect()
}

/// Returns the ends of the nodes that had attempts of a step without a success.
fn ends_of(
    runs: &[(usize, AttemptKey)],
    attempts: &BTreeMap<AttemptKey, Attempt>,
    gone: &BTreeMap<i64, SystemTime>,
) -> Vec<SystemTime> {
    let failed = runs.iter().filter_map(|(_, key)| attempts.get(key)).filter(|run| run.state != "succeeded");
    failed.filter_map(|attempt| gone.get(&attempt.node).copied()).collect()
}

/// Judges the files that stood at the path of an output: each but the last came from an attempt whose node died soon after.
fn judge_files(
    flow: &Flow,
    index: usize,
    files: &[(Identity, SystemTime)],
    ends: &[SystemTime],
    tally: &mut Tally,
) {
    let path = flow.outputs[index].path.display();
    if files.len() > ends.len() + 1 {
        tally.problem(format!("{path} was replaced: {} files, {} lost attempts", files.len(), ends.len()));
    }
    for (_, seen) in files.iter().rev().skip(1) {
        tally.count("outputs", "replaced, node was killed");
        let until_end = |end: &SystemTime| end.duration_since(*seen).unwrap_or_default();
        let shortest = ends.iter().map(until_end).min().unwrap_or(Duration::MAX);
        println!("{path} was visible for {shortest:?} when its node was killed, and was replaced");
        if shortest > UNREPORTED_MAX {
            tally.problem(format!("{path} was replaced, and its node was killed only {shortest:?} later"));
        }
    }
}

/// Returns the text of the log of a workflow.
pub(super) fn log(flow: &Flow) -> String {
    std::fs::read_to_string(&flow.log).expect("the test made the log")
}

/// Returns the identities of the outputs of a step that stay, by their places.
fn kept_outputs(flow: &Flow, step: &str) -> BTreeMap<usize, Option<Identity>> {
    let outputs = flow.outputs.iter().enumerate();
    let own = outputs.filter(|(_, output)| output.step == step && !output.temporary);
    own.map(|(index, output)| (index, Identity::of(&output.path))).collect()
}

/// Returns the identities of all outputs that stay.
pub(super) fn all_kept(flow: &Flow) -> Vec<Option<Identity>> {
    let kept = flow.outputs.iter().filter(|output| !output.temporary);
    kept.map(|output| Identity::of(&output.path)).collect()
}

/// Returns the places in the log and the attempts of all lines, by step.
fn begun(log: &str) -> BTreeMap<&str, Vec<(usize, AttemptKey)>> {
    let mut begun: BTreeMap<&str, Vec<(usize, AttemptKey)>> = BTreeMap::new();
    let mut place = 0;
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
        let (Some(job), Some(attempt), Some(step)) = (number(0), number(1), words.get(2)) else {
            panic!("a line of the log is {line:?}");
        };
        begun.entry(step).or_default().push((place, (job, attempt)));
        place += line.len() + 1;
    }
    begun
}

/// Returns all attempts of the steps of a job.
fn attempts(job: i64, world: &World) -> Option<BTreeMap<AttemptKey, Attempt>> {
    let question = format!(
        "select a.job, a.attempt, a.state, a.node from attempts a join jobs j on j.job = a.job where j.step_of = {job}"
    );
    let row = |row: &Vec<Value>| {
        let number = |column: usize| row.get(column).and_then(Value::as_i64);
        let state = row.get(2)?.as_str()?.to_string();
        Some(((number(0)?, number(1)?), Attempt { state, node: number(3)? }))
    };
    world.ask(&question)?.iter().map(row).collect()
}

/// Says what happened to a step after the store called it finished.
fn told_problems(flow: &Flow, step: &str, told: &Told, runs: &[(usize, AttemptKey)]) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some((_, attempt)) = runs.iter().find(|(place, _)| *place >= told.log_bytes) {
        problems.push(format!("{}, step {step}: it was finished, and began again as {attempt:?}", flow.name));
    }
    for (index, identity) in &told.outputs {
        let path = &flow.outputs[*index].path;
        if identity.is_none() || *identity != Identity::of(path) {
            let text = "its step was finished, and the file was missing or is another one since";
            problems.push(format!("{}: {text}", path.display()));
        }
    }
    problems
}

/// Says why a step ran more often than it may: all attempts but one were on nodes that are gone, or `early` readers that were
/// interrupted.
fn run_problems(
    runs: &[(usize, AttemptKey)],
    attempts: &BTreeMap<AttemptKey, Attempt>,
    gone: &BTreeMap<i64, SystemTime>,
    early: &BTreeSet<AttemptKey>,
) -> Vec<String> {
    let keys: BTreeSet<AttemptKey> = runs.iter().map(|(_, key)| *key).collect();
    let mut problems = Vec::new();
    if keys.len() != runs.len() {
        problems.push(format!("an attempt began it twice: {runs:?}"));
    }
    let mut successes = 0;
    for key in &keys {
        match attempts.get(key) {
            None => problems.push(format!("the store has no attempt {key:?}")),
            Some(attempt) if attempt.state == "succeeded" => successes += 1,
            // Its next attempt may succeed before its node has told that it has stopped.
            Some(Attempt { state, .. })
                if early.contains(key) && ["interrupted", "cancelled"].contains(&state.as_str()) => {}
            Some(attempt) if !gone.contains_key(&attempt.node) => {
                let Attempt { state, node } = attempt;
                problems.push(format!("attempt {key:?} is {state}, though its node {node} was not killed"));
            }
            Some(attempt) if attempt.state == "discarded" => {
                problems.push(format!("attempt {key:?} succeeded after another one"));
            }
            Some(_) => {}
        }
    }
    if successes != 1 {
        problems.push(format!("{successes} of its runs {runs:?} succeeded"));
    }
    problems
}

/// Outputs that stay are there, and no others but hidden files of nodes that died.
fn check_files(flow: &Flow, tally: &mut Tally) {
    let listed = std::fs::read_dir(flow.dir.join("made")).expect("the steps made the directory");
    let names = listed.map(|entry| entry.expect("an entry").path());
    let (hidden, found): (BTreeSet<_>, BTreeSet<_>) = names.partition(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(HIDDEN.0) && name.contains(HIDDEN.1)
    });
    hidden.iter().for_each(|_| tally.count("outputs", "hidden file left"));
    let made = flow.outputs.iter().filter(|output| !output.temporary && !flow.jobs.contains(&output.step));
    let kept: BTreeSet<_> = made.map(|output| output.path.clone()).collect();
    if kept != found {
        let differences: Vec<_> = kept.symmetric_difference(&found).collect();
        tally.problem(format!("{}: missing or left over: {differences:?}", flow.name));
    }
    let different =
        |path: &std::path::Path, expected: &[u8]| std::fs::read(path).ok().as_deref() != Some(expected);
    for output in flow.outputs.iter().filter(|output| !output.temporary) {
        tally.count("outputs", "all that stay");
        if different(&output.path, &output.expected) {
            tally.problem(format!("{} has not the bytes that it must have", output.path.display()));
        }
    }
}
