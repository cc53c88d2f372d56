//! Many jobs at once on a cluster of real processes, while these are killed and stopped and their files damaged.
//!
//! ```text
//! settings   number of jobs and faults, and the seed
//! plan       jobs in their order and faults with their moments, by the seed
//! kinds      the kinds of jobs, each with the output that its contract promises
//! world      the server, the nodes, and the faults still to be undone
//! strike     one fault: finds a victim and strikes
//! jobs       the jobs under way: started, followed, judged
//! tally      counts of faults and jobs, as a table
//! ```
//! The same seed gives the same jobs and the same faults with the same moments, counted in ends of attempts that the server
//! tells. Which process or file is struck follows from the seed and from what there is at that moment, and timing differs.
//!
//! # What a job must do
//! It succeeds with exactly the output of its reference. Programs of one job are killed at most
//! [`jobs::PROGRAM_KILLS_MAX`] times: the third failure of a task ends a job by contract, a single task may run again as
//! often (`--retries`), and what is lost with a node counts for neither. So every job must succeed, whatever else happens.
//! Only of a job with damaged files is less expected, see [`jobs::DAMAGE_MAY_END_A_JOB`].

mod jobs;
mod kinds;
mod plan;
mod settings;
mod strike;
mod tally;
mod world;

pub use settings::Settings;

use crate::{Random, Running, could_not_run};
use jobs::Jobs;
use plan::{Fault, Plan};
use std::time::{Duration, Instant};
use tally::Tally;
use world::World;

const JOBS_AT_ONCE: usize = 5;
/// How long is waited for the end of a job before the world is looked at again.
const LOOK_AFTER: Duration = Duration::from_millis(60);
/// A fault that finds no victim for so long is passed over.
const NO_VICTIM_MAX: Duration = Duration::from_secs(12);
/// No attempt ends for so long: the next fault comes all the same, it may be that all wait for one another.
const NO_END_MAX: Duration = Duration::from_secs(15);
/// A job that is so old is given peace: no fault any more until it is over.
const JOB_AGE_MAX: Duration = Duration::from_secs(180);
/// A job that is not over after so much peace is stuck.
const PEACE_MAX: Duration = Duration::from_secs(150);
/// With so many problems there is no sense in going on.
const PROBLEMS_MAX: usize = 12;

/// A run of the harness.
pub struct Chaos {
    settings: Settings,
    plan: Plan,
    world: World,
    jobs: Jobs,
    tally: Tally,
    /// A kill or a stop, and a corruption: who waits for a victim holds nobody up.
    next: [Option<Due>; 2],
    peace_since: Option<Instant>,
    progress: Progress,
}

/// The fault that comes next.
#[derive(Clone, Copy)]
struct Due {
    fault: Fault,
    /// When so many attempts have ended.
    at_ends: u64,
    /// Since then it looks for a victim.
    looks_since: Option<Instant>,
}

/// Number of ended attempts that the server told last, and the time of the last change.
struct Progress {
    ended: u64,
    changed: Instant,
}

impl Chaos {
    /// Starts the cluster and writes the inputs.
    pub fn start(settings: Settings) -> Chaos {
        println!("{settings}");
        let world = World::start();
        let jobs = Jobs::new(kinds::Inputs::write(&world.cluster.sandbox, &mut Random::new(settings.seed)));
        let progress = Progress { ended: 0, changed: Instant::now() };
        let (plan, tally) = (Plan::new(&settings), Tally::default());
        Chaos { settings, plan, world, jobs, tally, next: [None; 2], peace_since: None, progress }
    }

    /// Runs until all jobs and faults have been, and checks what is left of them. Prints the table in any case.
    pub fn run(mut self) {
        let started = Instant::now();
        while !self.is_over() {
            self.world.tend(&mut self.tally);
            self.start_jobs();
            self.look_at_jobs();
            self.strike_if_it_is_time();
            self.wait_a_little();
        }
        // With too many problems some are not over.
        self.world.bring_all_back();
        self.jobs.abandon(&self.world, &mut self.tally);
        self.world.come_to_rest(&mut self.tally);
        self.jobs.check_history(&self.world, &mut self.tally);
        println!("{}", self.tally.table(&self.settings, started.elapsed()));
        if !self.tally.problems.is_empty() {
            let kept = self.world.keep_what_is_left(self.settings.seed);
            panic!(
                "{} problems; SAILFISH_CHAOS_SEED={} chooses the same jobs and faults again; state and messages: {}\n{}",
                self.tally.problems.len(),
                self.settings.seed,
                kept.display(),
                self.tally.problems.join("\n")
            );
        }
        self.say_what_could_not_run();
        self.tally.expect_enough(&self.settings);
    }

    fn is_over(&self) -> bool {
        let all_begun = self.jobs.begun() >= self.settings.jobs && self.plan.faults_left() == 0;
        (all_begun && self.next.iter().all(Option::is_none) && self.jobs.none_runs())
            || self.tally.problems.len() >= PROBLEMS_MAX
    }

    /// Starts the next job. While faults are left, it starts more jobs than the settings ask for.
    fn start_jobs(&mut self) {
        let wanted = self.jobs.begun() < self.settings.jobs || self.plan.faults_left() > 0;
        if wanted && self.peace_since.is_none() && self.jobs.running() < JOBS_AT_ONCE {
            let job = self.plan.next_job();
            self.jobs.begin(&self.world, job);
        }
    }

    fn look_at_jobs(&mut self) {
        self.jobs.follow(&self.world, &mut self.tally);
        let oldest = self.jobs.oldest_age();
        if oldest < JOB_AGE_MAX {
            self.peace_since = None;
            return;
        }
        let since = *self.peace_since.get_or_insert_with(|| {
            println!("peace: a job is {} s old", oldest.as_secs());
            Instant::now()
        });
        if since.elapsed() > PEACE_MAX {
            self.world.bring_all_back();
            self.jobs.abandon(&self.world, &mut self.tally);
            self.peace_since = None;
        }
    }

    fn strike_if_it_is_time(&mut self) {
        if self.peace_since.is_some() || self.jobs.none_runs() {
            return;
        }
        if let Some(ended) = self.world.ended_attempts()
            && ended != self.progress.ended
        {
            self.progress = Progress { ended, changed: Instant::now() };
        }
        let due =
            |fault: Fault| Due { fault, at_ends: self.progress.ended + fault.after_ends, looks_since: None };
        self.next[0] = self.next[0].or_else(|| self.plan.next_strike().map(due));
        self.next[1] = self.next[1].or_else(|| self.plan.next_corruption().map(due));
        (0..self.next.len()).for_each(|place| self.strike_next(place));
    }

    fn strike_next(&mut self, place: usize) {
        let Some(due) = &mut self.next[place] else { return };
        let (ended, waits) = (self.progress.ended, self.progress.changed.elapsed() < NO_END_MAX);
        if ended < due.at_ends && due.looks_since.is_none() && waits {
            return;
        }
        let (fault, since) = (due.fault, *due.looks_since.get_or_insert_with(Instant::now));
        if let Some(struck) = self.world.strike(&fault, &mut self.jobs) {
            println!("after {ended} ends: {struck}");
            self.tally.fired(&struck);
        } else if since.elapsed() > NO_VICTIM_MAX {
            self.tally.passed_over(fault.kind);
            self.plan.put_back(fault.kind);
        } else {
            return;
        }
        self.next[place] = None;
        self.progress.changed = Instant::now();
    }

    /// Waits for the end of a client, or a moment.
    fn wait_a_little(&self) {
        Running::wait_for_any(&self.jobs.clients(), LOOK_AFTER);
    }

    fn say_what_could_not_run(&self) {
        for (what, why) in self.tally.never_fired() {
            could_not_run(what, why);
        }
    }
}
