//! Verdicts on commands whose clients have ended or were killed.

use super::content::{Content, Files, Shape, number_in, number_in_counts, sorted_counts};
use super::names::{Place, State};
use super::operations::{JobStep, Operation, Verb, remove};
use super::run::Run;
use crate::{Finished, Running, file_tree, questions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Error that the next server gives a job of which it has no more than a row; the client of the job had no answer.
const NEVER_TAKEN_IN: &str = "the server died before the job was submitted completely";
/// Error of a change other than a put whose server dies.
const BROKE_OFF: &str = "/v1/stored-files/change): ";
const NO_SUCH_NAME: &str = "no file or directory";
/// The last request of a client that was killed is over after that.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(2);
/// Chance that a killed put or get is started again.
const AGAIN_PERCENT: u64 = 65;

impl Run {
    /// Looks at each command whose client has ended.
    pub fn follow(&mut self) {
        let mut place = 0;
        while place < self.operations.len() {
            let operation = &self.operations[place];
            let has_ended = match &operation.client {
                Some(client) => client.has_ended(),
                None => operation.waits_until <= Instant::now() && self.world.has_server(),
            };
            if !has_ended {
                place += 1;
                continue;
            }
            let mut operation = self.operations.swap_remove(place);
            let goes_on = match operation.client.take().map(Running::wait) {
                Some(finished) => self.ended(&mut operation, finished),
                None if operation.settles.is_some() => {
                    self.start_again(&mut operation);
                    true
                }
                None => self.ask_for_job(&mut operation),
            };
            match goes_on {
                true => self.operations.push(operation),
                false => self.tally.count("over", operation.verb.row()),
            }
        }
    }

    /// Judges a client that has ended. Returns whether the command goes on.
    fn ended(&mut self, operation: &mut Operation, finished: Finished) -> bool {
        if finished.stderr.contains("panicked at") {
            self.tally.problem(format!("a client panicked: {}", finished.story()));
        }
        // It may have been over when it was killed.
        let was_killed = operation.is_killed && finished.code().is_none();
        if operation.settles.is_some() {
            return self.settle(operation, &finished, was_killed);
        }
        let is_done = finished.status.success();
        match &operation.verb {
            Verb::Put { .. } | Verb::Remove { .. } | Verb::Move { .. } | Verb::Copy { .. } if is_done => {
                self.changed(operation);
                false
            }
            Verb::Put { .. } | Verb::Remove { .. } | Verb::Move { .. } | Verb::Copy { .. } => {
                self.not_done(operation, &finished, was_killed)
            }
            Verb::Get { place, target } => {
                let (place, target) = (*place, target.clone());
                self.got(operation, place, &target, &finished, was_killed)
            }
            Verb::Cat { place, below } => {
                if is_done {
                    self.check_cat(*place, below, &finished.stdout, operation.since);
                } else if !was_killed {
                    self.failed_to_read(*place, below, operation.since, &finished);
                }
                false
            }
            Verb::List => {
                match is_done {
                    true => drop(self.check_list(&finished, operation.since)),
                    false if was_killed => {}
                    false => self.tally.problem(format!("a list failed: {}", finished.story())),
                }
                false
            }
            Verb::Job { .. } => self.job_ended(operation, &finished, was_killed),
        }
    }

    fn changed(&mut self, operation: &Operation) {
        for (place, state) in operation.verb.changes() {
            self.names.end(place, state);
        }
        if let Verb::Put { source, .. } = &operation.verb {
            remove(&self.world.cluster.sandbox.path(source));
        }
    }

    /// A change whose client was killed or failed: it is started again, or the list shows whether it has happened.
    fn not_done(&mut self, operation: &mut Operation, finished: &Finished, was_killed: bool) -> bool {
        if let Verb::Put { place, source, .. } = &operation.verb {
            if was_killed && self.random.chance(AGAIN_PERCENT) {
                self.tally.count("started again", operation.verb.row());
                self.start_again(operation);
                return true;
            }
            self.tally.count("given up", operation.verb.row());
            self.given_up.insert((self.names.list[*place].text, source.clone()));
        }
        operation.settles = Some(if was_killed { String::new() } else { finished.story() });
        operation.waits_until = Instant::now() + IN_FLIGHT_MAX;
        true
    }

    /// Finds out whether a change has happened.
    fn settle(&mut self, operation: &mut Operation, finished: &Finished, was_killed: bool) -> bool {
        if was_killed {
            self.start_again(operation);
            return true;
        }
        let failure = operation.settles.clone().unwrap_or_default();
        let groups = match finished.status.success() {
            true => self.check_list(finished, operation.since),
            false => None,
        };
        let Some(groups) = groups else {
            self.tally.problem(format!("no list settles {:?}: {}", operation.verb, finished.story()));
            operation.verb.changes().into_iter().for_each(|(place, state)| self.names.end(place, state));
            return false;
        };
        let mut has_happened = true;
        for (place, new) in operation.verb.changes() {
            let possible = self.names.met_since(place, self.names.now());
            let found = possible.into_iter().find(|state| self.sizes(*state) == groups[place]);
            // `check_list` has told of a state that is not possible.
            let state = found.unwrap_or(new);
            has_happened &= state == new;
            self.names.end(place, state);
        }
        self.tally.count(if has_happened { "had happened" } else { "had not" }, operation.verb.row());
        match (failure.is_empty(), has_happened) {
            (true, _) => {}
            // The server died after it had committed, and the client asked the next one.
            (false, true) if failure.contains(NO_SUCH_NAME) => {
                self.tally.count("answer lost", operation.verb.row());
            }
            // The client cannot know whether the server that broke off has made the change.
            (false, _) if failure.contains(BROKE_OFF) && !matches!(operation.verb, Verb::Put { .. }) => {
                self.tally.count("broke off", operation.verb.row());
            }
            (false, _) => self.tally.problem(format!("happened: {has_happened}; a change failed: {failure}")),
        }
        false
    }

    /// Returns the sizes of the files of a state.
    pub fn sizes(&mut self, state: State) -> BTreeMap<String, u64> {
        let Some(content) = state else { return BTreeMap::new() };
        let seed = self.settings.seed;
        self.known_sizes.entry(content).or_insert_with(|| content.sizes(seed)).clone()
    }

    /// Checks a list of the whole tree: every name has all files of one content that it may have, by their sizes, and nobody else
    /// has any. Returns the files of each name.
    pub fn check_list(&mut self, finished: &Finished, since: u64) -> Option<Vec<BTreeMap<String, u64>>> {
        let text = finished.text();
        let file = |line: &str| {
            let value: Value = serde_json::from_str(line).ok()?;
            let is_file = value["kind"] == "file";
            is_file.then(|| Some((value["path"].as_str()?.to_string(), value["bytes"].as_u64()?))).flatten()
        };
        let groups = match self.names.divide(&text.lines().filter_map(file).collect()) {
            Ok(groups) => groups,
            Err(error) => {
                self.tally.problem(error);
                return None;
            }
        };
        for (place, group) in groups.iter().enumerate() {
            let name = &self.names.list[place];
            if name.shape == Shape::Counts && name.is_changing {
                // It is not known yet which content the job reads.
                continue;
            }
            let met = self.names.met_since(place, since);
            if !met.iter().any(|state| self.sizes(*state) == *group) {
                let name = self.names.list[place].text;
                self.tally.problem(format!("{name} is listed with {group:?}, and may be {met:?}"));
            }
        }
        Some(groups)
    }

    /// A get has ended or was killed: the target is whole, or is not there.
    fn got(
        &mut self,
        operation: &mut Operation,
        place: Place,
        target: &str,
        finished: &Finished,
        was_killed: bool,
    ) -> bool {
        let path = self.world.cluster.sandbox.path(target);
        let exists = path.exists();
        if exists {
            self.check_copy(place, &path, operation.since);
            remove(&path);
        }
        match (finished.status.success(), was_killed) {
            (true, _) if !exists => {
                self.tally.problem(format!("a get wrote nothing: {}", finished.story()));
            }
            (true, _) => {}
            (false, true) if self.random.chance(AGAIN_PERCENT) => {
                self.tally.count("started again", operation.verb.row());
                self.start_again(operation);
                return true;
            }
            (false, true) => self.tally.count("given up", operation.verb.row()),
            (false, false) => self.failed_to_read(place, "", operation.since, finished),
        }
        false
    }

    fn check_copy(&mut self, place: Place, path: &Path, since: u64) {
        let files: Files = match path.is_dir() {
            true => {
                let name = |path: &Path| path.to_string_lossy().into_owned();
                let files = file_tree(path).into_iter();
                files.filter_map(|(path, bytes)| Some((name(&path), bytes?))).collect()
            }
            false => Files::from([(String::new(), std::fs::read(path).expect("our own file is read"))]),
        };
        self.check_files(place, &files, since);
    }

    /// Checks that files are all those of one content that the name had since then. Returns the content.
    pub fn check_files(&mut self, place: Place, files: &Files, since: u64) -> Option<Content> {
        let (name, shape) = (self.names.list[place].text, self.names.list[place].shape);
        let first = files.values().next();
        let number = match shape {
            Shape::Counts => first.and_then(|bytes| number_in_counts(bytes)),
            Shape::Tree | Shape::Single => first.and_then(|bytes| number_in(bytes)),
        };
        let met = self.names.met_since(place, since);
        let Some(number) = number else {
            self.tally.problem(format!("{name}: the bytes name no content; it may be {met:?}"));
            return None;
        };
        let content = Content { shape, number };
        // While a job writes it, the content is not known yet.
        let may_be =
            met.contains(&Some(content)) || shape == Shape::Counts && self.names.list[place].is_changing;
        let expected = content.files(self.settings.seed);
        let is_whole = match shape {
            Shape::Counts => first.map(|bytes| sorted_counts(bytes)).as_ref() == expected.values().next(),
            Shape::Tree | Shape::Single => *files == expected,
        };
        self.tally.bytes += files.values().map(|bytes| bytes.len() as u64).sum::<u64>();
        if !may_be || !is_whole {
            let wrong = wrong_files(files, &expected);
            self.tally
                .problem(format!("{name} was read as {content:?}, and may be {met:?}; wrong: {wrong:?}"));
        }
        Some(content)
    }

    fn check_cat(&mut self, place: Place, below: &str, bytes: &[u8], since: u64) {
        if below.is_empty() {
            self.check_files(place, &Files::from([(String::new(), bytes.to_vec())]), since);
            return;
        }
        self.tally.bytes += bytes.len() as u64;
        let met = self.names.met_since(place, since);
        let of_state =
            |state: &State| Some(state.as_ref()?.files(self.settings.seed).remove(below)? == bytes);
        if !met.iter().any(|state| of_state(state) == Some(true)) {
            let name = self.names.list[place].text;
            let number = number_in(bytes);
            self.tally.problem(format!("{name}/{below} was printed as {number:?}, and may be {met:?}"));
        }
    }

    /// A reader may fail only if there may be nothing to read.
    fn failed_to_read(&mut self, place: Place, below: &str, since: u64, finished: &Finished) {
        let met = self.names.met_since(place, since);
        let is_missing = met.iter().any(|state| match state {
            None => true,
            Some(content) => !below.is_empty() && !content.files(self.settings.seed).contains_key(below),
        });
        let is_job_output =
            self.names.list[place].shape == Shape::Counts && self.names.list[place].is_changing;
        match finished.stderr.contains(NO_SUCH_NAME) && (is_missing || is_job_output) {
            true => self.tally.count("was not there", "read"),
            false => self.tally.problem(format!("a reader failed; it may be {met:?}: {}", finished.story())),
        }
    }
}

/// The client of a job has ended, and what follows.
impl Run {
    fn job_ended(&mut self, operation: &mut Operation, finished: &Finished, was_killed: bool) -> bool {
        let Verb::Job { input, output, step, .. } = &mut operation.verb else { return false };
        let (input, output, is_done) = (*input, *output, finished.status.success());
        match *step {
            JobStep::Submits if is_done => *step = JobStep::Reads,
            JobStep::Submits => {
                let old = self.names.met_since(output, self.names.now());
                let is_missing = self.names.met_since(input, operation.since).contains(&None);
                if !was_killed && is_missing && finished.stderr.contains(NO_SUCH_NAME) {
                    self.tally.count("was not there", "job");
                    self.names.end(output, old[0]);
                    return false;
                }
                operation.settles = None;
                *step = JobStep::Asks;
                operation.waits_until = Instant::now() + IN_FLIGHT_MAX;
                self.job_failures.insert(output, if was_killed { String::new() } else { finished.story() });
                return true;
            }
            JobStep::Asks => {}
            JobStep::Follows(_) if is_done => *step = JobStep::Reads,
            JobStep::Follows(job) if !was_killed => {
                self.tally.problem(format!("job {job} failed: {}", finished.story()));
                let old = self.names.met_since(output, self.names.now());
                self.names.end(output, old[0]);
                return false;
            }
            JobStep::Follows(_) => {}
            JobStep::Reads if is_done => {
                self.check_output(operation, input, output, &finished.stdout);
                return false;
            }
            JobStep::Reads if !was_killed => {
                self.tally.problem(format!("an output cannot be read: {}", finished.story()));
                self.names.end(output, None);
                return false;
            }
            JobStep::Reads => {}
        }
        self.start_again(operation);
        true
    }

    /// The output counts the words of a content that the input had after the job had begun.
    fn check_output(&mut self, operation: &Operation, input: Place, output: Place, bytes: &[u8]) {
        let files = Files::from([(String::new(), bytes.to_vec())]);
        let content = self.check_files(output, &files, operation.since);
        let tree = content.map(|content| Content { shape: Shape::Tree, ..content });
        let met = self.names.met_since(input, operation.since);
        if !met.contains(&tree) {
            self.tally.problem(format!("{:?} counted {tree:?}, and may have read {met:?}", operation.verb));
        }
        self.names.end(output, content);
    }

    /// Asks the store whether there is a job whose client has ended without an answer.
    fn ask_for_job(&mut self, operation: &mut Operation) -> bool {
        let Verb::Job { output, name, step, .. } = &mut operation.verb else { return false };
        let Some(rows) = self.world.ask(&questions::jobs_by_name(name, NEVER_TAKEN_IN)) else { return true };
        let jobs: Vec<i64> = rows.iter().filter_map(|row| row.first()?.as_i64()).collect();
        let (output, name) = (*output, name.clone());
        let failure = self.job_failures.remove(&output).unwrap_or_default();
        match jobs[..] {
            [job] => *step = JobStep::Follows(job),
            [] => {
                let had_outage = self.world.server_kills > operation.server_kills_before;
                if !failure.is_empty() && !had_outage {
                    self.tally
                        .problem(format!("a job was not handed in, though there was a server: {failure}"));
                }
                let again = !failure.is_empty() && had_outage || self.random.chance(AGAIN_PERCENT);
                if !again {
                    self.tally.count("given up", "job");
                    let old = self.names.met_since(output, self.names.now());
                    self.names.end(output, old[0]);
                    return false;
                }
                self.tally.count("started again", "job");
                *step = JobStep::Submits;
                operation.server_kills_before = self.world.server_kills_over();
            }
            _ => {
                self.tally.problem(format!("{name} is more than one job: {jobs:?}"));
                self.names.end(output, None);
                return false;
            }
        }
        self.start_again(operation);
        true
    }
}

/// Describes the files that differ.
fn wrong_files(files: &Files, expected: &Files) -> Vec<String> {
    let describe = |name: &String| match (files.get(name), expected.get(name)) {
        (Some(bytes), Some(expected)) => {
            let same = bytes.iter().zip(expected).take_while(|(byte, expected)| byte == expected).count();
            let (found, wished) = (bytes.len(), expected.len());
            format!("{name}: {found} bytes of {wished}, content {:?}, equal up to {same}", number_in(bytes))
        }
        (None, _) => format!("{name} is missing"),
        (_, None) => format!("{name} is too many"),
    };
    let names = files.keys().chain(expected.keys().filter(|name| !files.contains_key(*name)));
    names.filter(|name| files.get(*name) != expected.get(*name)).map(describe).collect()
}
