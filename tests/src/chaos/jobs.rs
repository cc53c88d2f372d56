//! The jobs under way: handed in by a client, followed to their end, judged.

use super::kinds::{Expected, Inputs, PlannedRun};
use super::plan::PlannedJob;
use super::tally::{Ended, Tally};
use super::world::{ServerState, World};
use crate::{Finished, Running, questions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often programs of one job are killed, at most: the third failure of a task ends a job, by contract.
pub(super) const PROGRAM_KILLS_MAX: u64 = 2;
/// Error that the next server gives a job with a written row and nothing more; the client of the job had no answer.
const NEVER_TAKEN_IN: &str = "the server died before the job was submitted completely";
/// A job that the server did not take in is handed in again, so often at most.
const HANDED_IN_MAX: u32 = 20;
const SHOWN_CHARS_MAX: usize = 6000;

/// Whether a job with damaged files may fail and name the damage. If false, it must succeed with the right output, because
/// damaged data is made again.
pub(super) const DAMAGE_MAY_END_A_JOB: bool = false;

/// Words of which one stands in the message of a job that names the damage.
const DAMAGE_WORDS: [&str; 3] = ["damaged", "lost", "the proof"];

struct Job {
    planned: PlannedJob,
    run: PlannedRun,
    /// Name of the output, and of the job.
    name: String,
    /// None only while it is looked at.
    client: Option<Running>,
    begun: Instant,
    handed_in: u32,
    server_faults_before: u64,
    /// The client of today only waits for these jobs, the first of which is over when it ends.
    followed: Vec<i64>,
    printed: String,
}

pub(super) struct Jobs {
    inputs: Inputs,
    jobs: Vec<Job>,
    begun: u64,
    /// By the server's number.
    killed: BTreeMap<i64, u64>,
    damaged: BTreeSet<i64>,
    abandoned: BTreeSet<i64>,
    over: BTreeSet<i64>,
}

/// State of a job after one of its clients has ended.
enum Verdict {
    Over,
    GoesOn,
}

impl Jobs {
    pub fn new(inputs: Inputs) -> Jobs {
        Jobs {
            inputs,
            jobs: Vec::new(),
            begun: 0,
            killed: BTreeMap::new(),
            damaged: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            over: BTreeSet::new(),
        }
    }

    pub fn begun(&self) -> u64 {
        self.begun
    }

    pub fn running(&self) -> usize {
        self.jobs.len()
    }

    pub fn none_runs(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn clients(&self) -> Vec<&Running> {
        self.jobs.iter().filter_map(|job| job.client.as_ref()).collect()
    }

    pub fn oldest_age(&self) -> Duration {
        self.jobs.iter().map(|job| job.begun.elapsed()).max().unwrap_or_default()
    }

    pub fn may_kill_program_of(&self, job: i64) -> bool {
        self.killed.get(&job).is_none_or(|kills| *kills < PROGRAM_KILLS_MAX)
    }

    pub fn killed_program_of(&mut self, job: i64) {
        *self.killed.entry(job).or_default() += 1;
    }

    pub fn damaged(&mut self, job: i64) {
        self.damaged.insert(job);
    }

    /// Whether its client has said how it ended.
    pub fn is_over(&self, job: i64) -> bool {
        self.over.contains(&job) || self.abandoned.contains(&job)
    }

    pub fn begin(&mut self, world: &World, planned: PlannedJob) {
        let run = planned.kind.plan(&self.inputs, planned.choice);
        let name = format!("chaos-{}", planned.number);
        println!("{name}: {}: {}", planned.kind.name, run.args.join(" "));
        let client = Some(hand_in(world, &run, &name));
        self.begun += 1;
        self.jobs.push(Job {
            planned,
            run,
            name,
            client,
            begun: Instant::now(),
            handed_in: 1,
            server_faults_before: faults_before(world),
            followed: Vec::new(),
            printed: String::new(),
        });
    }

    /// Looks at each job whose client has ended, while there is a server that can be asked.
    pub fn follow(&mut self, world: &World, tally: &mut Tally) {
        let mut place = 0;
        while place < self.jobs.len() {
            if world.server != ServerState::Runs
                || !self.jobs[place].client.as_ref().is_some_and(Running::has_ended)
            {
                place += 1;
                continue;
            }
            let mut job = self.jobs.swap_remove(place);
            if matches!(self.client_ended(&mut job, world, tally), Verdict::GoesOn) {
                self.jobs.push(job);
                return;
            }
        }
    }

    fn client_ended(&mut self, job: &mut Job, world: &World, tally: &mut Tally) -> Verdict {
        let Some(rows) = rows_of(world, &job.name) else { return Verdict::GoesOn };
        let finished = job.client.take().expect("a client has ended").wait();
        if finished.stderr.contains("panicked at") {
            tally.problem(format!("a client panicked:\n{}", finished.story()));
        }
        let numbers: Vec<i64> = rows.iter().map(|(number, _)| *number).collect();
        let over = |state: &str| matches!(state, "succeeded" | "failed" | "cancelled" | "interrupted");
        let all_failed = |state: &str| over(state) && state != "succeeded";
        if !finished.status.success() && numbers.is_empty() {
            return self.hand_in_again(job, world, tally, &finished);
        }
        let has_failed = rows.iter().any(|(_, state)| all_failed(state));
        if !finished.status.success() && !has_failed && job.followed.is_empty() {
            // The client gave up, the job did not.
            tally.followed(job.planned.kind.name);
            job.followed = numbers;
            job.client = Some(wait_for(world, job.followed[0]));
            return Verdict::GoesOn;
        }
        if finished.status.success() && job.followed.len() > 1 {
            job.followed.remove(0);
            job.client = Some(wait_for(world, job.followed[0]));
            return Verdict::GoesOn;
        }
        let was_followed = !job.followed.is_empty();
        job.printed = match was_followed && matches!(job.run.expected, Expected::Prints(_)) {
            true => numbers.iter().map(|number| logs_of(world, *number)).collect(),
            false => finished.text(),
        };
        self.over.extend(&numbers);
        self.judge(job, world, tally, &finished, &rows);
        Verdict::Over
    }

    fn hand_in_again(&self, job: &mut Job, world: &World, tally: &mut Tally, finished: &Finished) -> Verdict {
        if world.server_faults == job.server_faults_before || job.handed_in >= HANDED_IN_MAX {
            tally.problem(format!(
                "{}: not handed in, though there was a server: {}",
                job.name,
                finished.story()
            ));
            return Verdict::Over;
        }
        tally.handed_in_again(job.planned.kind.name);
        job.handed_in += 1;
        job.server_faults_before = faults_before(world);
        job.client = Some(hand_in(world, &job.run, &job.name));
        Verdict::GoesOn
    }

    fn judge(
        &self,
        job: &Job,
        world: &World,
        tally: &mut Tally,
        finished: &Finished,
        rows: &[(i64, String)],
    ) {
        let took = job.begun.elapsed();
        let is_damaged = rows.iter().any(|(number, _)| self.damaged.contains(number));
        let ended = |damage_told| match (is_damaged, damage_told) {
            (_, true) => Ended::DamageTold,
            (true, false) => Ended::RightThoughDamaged,
            (false, false) => Ended::Right,
        };
        let outcome = match finished.status.success() {
            true => self.check_output(job, world, rows).map(|()| ended(false)),
            false if is_damaged && DAMAGE_MAY_END_A_JOB && told_damage(finished).is_some() => {
                println!("{}: {}", job.name, told_damage(finished).unwrap_or_default());
                Ok(ended(true))
            }
            false => Err(format!("failed:\n{}", finished.story())),
        };
        match outcome {
            Ok(ended) => {
                println!("{} ({rows:?}): {ended:?} after {:.1} s", job.name, took.as_secs_f64());
                tally.ended(job.planned.kind.name, ended, took);
            }
            Err(what) => {
                let damage = if is_damaged { ", with damaged files," } else { "" };
                let state: String = rows.iter().take(2).map(|(number, _)| state_of(world, *number)).collect();
                tally.problem(format!("{} ({}){damage} {what}\n{state}", job.name, job.planned.kind.name));
            }
        }
    }

    fn check_output(&self, job: &Job, world: &World, rows: &[(i64, String)]) -> Result<(), String> {
        if let Some((number, state)) = rows.iter().find(|(_, state)| state != "succeeded") {
            return Err(format!("job {number} is {state} though its client saw it succeed"));
        }
        let expected = match &job.run.expected {
            Expected::Prints(lines) => {
                let lines = || lines.iter().map(|line| line.replace("{}", &job.name));
                // Beside them stand the numbers of the jobs.
                let printed: Vec<&str> =
                    job.printed.lines().filter(|line| line.starts_with("chaos-")).collect();
                return match lines().eq(printed.iter().copied()) && rows.len() == lines().count() / 4 {
                    true => Ok(()),
                    false => Err(format!("{} jobs printed {printed:?}", rows.len())),
                };
            }
            Expected::Parts(bytes) => bytes,
        };
        if rows.len() != job.planned.kind.jobs {
            return Err(format!("there are {} jobs of this output", rows.len()));
        }
        let output = world.cluster.sandbox.path(&job.name);
        let found = parts(&output)?;
        if found != **expected {
            return Err(difference(&found, expected));
        }
        let verified = world.cluster.sandbox.sailfish_with(&["verify", &job.name]);
        if !verified.status.success() {
            return Err(format!("is not verified: {}", verified.story()));
        }
        fs::remove_dir_all(&output).map_err(|error| format!("has an output that cannot be removed: {error}"))
    }

    /// Says what became of the jobs that do not end, and cancels them.
    pub fn abandon(&mut self, world: &World, tally: &mut Tally) {
        for job in std::mem::take(&mut self.jobs) {
            let rows = rows_of(world, &job.name).unwrap_or_default();
            let state: String = rows.iter().take(2).map(|(number, _)| state_of(world, *number)).collect();
            let (age, kind) = (job.begun.elapsed().as_secs(), job.planned.kind.name);
            let client = job.client.as_ref().map(Running::stderr_so_far).unwrap_or_default();
            let words = world.last_words();
            tally.problem(format!(
                "{} ({kind}) is stuck after {age} s: {rows:?}\n{state}\nclient: {client}\n{words}",
                job.name
            ));
            for (number, _) in rows {
                self.abandoned.insert(number);
                let mut cancel = world.cluster.sailfish(&["cancel", &number.to_string()]);
                Running::start(&mut cancel).wait();
            }
        }
    }

    /// Checks the rows of the store when all jobs are over.
    pub fn check_history(&self, world: &World, tally: &mut Tally) {
        for (what, statement) in questions::broken_history(NEVER_TAKEN_IN) {
            match world.ask(&statement) {
                Some(rows) if rows.is_empty() => {}
                rows => tally.problem(format!("{what}: {rows:?}")),
            }
        }
        // The client of one that no server ever had was told so, or nothing, and handed it in again.
        let count = world.ask(&questions::jobs_without_error(NEVER_TAKEN_IN));
        let count = count.and_then(|rows| rows.first()?.first()?.as_u64());
        let expected = (self.over.len() + self.abandoned.len()) as u64;
        if count != Some(expected) {
            tally.problem(format!("{count:?} jobs are in the store, and {expected} were judged"));
        }
    }
}

fn hand_in(world: &World, run: &PlannedRun, name: &str) -> Running {
    let args: Vec<&str> = run.args.iter().map(String::as_str).collect();
    let mut command = world.cluster.sailfish(&args);
    command.args([run.output_option, name]);
    command.args(run.words.iter().map(|word| word.replace("{}", name)));
    Running::start(&mut command)
}

/// Counts the server faults that are over. A client may blame later ones, and one that still lasts.
fn faults_before(world: &World) -> u64 {
    world.server_faults - u64::from(world.server != ServerState::Runs)
}

fn wait_for(world: &World, number: i64) -> Running {
    Running::start(&mut world.cluster.sailfish(&["wait", &number.to_string()]))
}

fn logs_of(world: &World, number: i64) -> String {
    Running::start(&mut world.cluster.sailfish(&["logs", &number.to_string()])).wait().text()
}

/// The jobs of this name in the store with their states; None where it could not be asked.
fn rows_of(world: &World, name: &str) -> Option<Vec<(i64, String)>> {
    let statement = questions::jobs_by_name(name, NEVER_TAKEN_IN);
    let row = |row: Vec<serde_json::Value>| Some((row.first()?.as_i64()?, row.get(1)?.as_str()?.to_string()));
    Some(world.ask(&statement)?.into_iter().filter_map(row).collect())
}

/// The line of a message that names the damage.
fn told_damage(finished: &Finished) -> Option<&str> {
    finished.stderr.lines().find(|line| DAMAGE_WORDS.iter().any(|word| line.contains(word)))
}

/// Returns the answers of the server about a job, shortened.
fn state_of(world: &World, number: i64) -> String {
    let number = number.to_string();
    let told = ["show", "explain"].map(|verb| {
        let said = Running::start(&mut world.cluster.sailfish(&[verb, &number])).wait();
        let text: String = said.text().chars().take(SHOWN_CHARS_MAX).collect();
        format!("$ sailfish {verb} {number}\n{text}\n")
    });
    told.concat()
}

/// The parts of an output one after another.
fn parts(output: &Path) -> Result<Vec<u8>, String> {
    let unread = |error| format!("{} cannot be read: {error}", output.display());
    if !output.join("_SUCCESS").exists() {
        return Err("has no whole output".to_string());
    }
    let entries = fs::read_dir(output).map_err(unread)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(unread)?.path());
    }
    paths.sort();
    let mut whole = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            "_SUCCESS" | "_report.json" => {}
            part if part.starts_with("part-") => whole.extend(fs::read(&path).map_err(unread)?),
            other => return Err(format!("has a stray file {other} in its output")),
        }
    }
    Ok(whole)
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let around = |bytes: &[u8]| {
        let from = same.saturating_sub(80).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..(same + 160).min(bytes.len())]).into_owned()
    };
    format!(
        "has {} bytes of output, {} expected; they differ from byte {same} on:\nfound    {:?}\nexpected {:?}",
        found.len(),
        expected.len(),
        around(found),
        around(expected)
    )
}
