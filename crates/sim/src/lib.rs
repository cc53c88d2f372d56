//! # What it does
//! Runs the real scheduler over artificial nodes, users and jobs: a thousand nodes for an hour of their time in seconds
//! of ours. Nodes die and join, their results are lost, attempts fail and come back late. In [`Stragglers`] attempts
//! are slow for known causes, and are raced by copies. [`copies`] runs a job over the links and disks of [`Racks`].
//! [`world`] runs tasks where their inputs lie, spreads inputs that many tasks share, and runs workflows.
//! [`shuffle`] runs whole jobs at the level of records, while processes die, messages are lost, late or repeated, and
//! disks lose unsynced data: the output must hold each record once.
//!
//! # Where it sits
//! Beside the road: scheduler and control -> sim -> tests and measurements. Nothing of the engine depends on it.
//! Workflows of [`world`] are planned by the real `workflow` and run by the real `control`; messages take no time.
//! [`shuffle`] runs the real `control` (with scheduler, `mapreduce` and workbuilder under it), appender, chunk
//! accounts, order of frames, merge and winners. It has short versions of code that needs threads, sockets, files or a
//! database: the shell of the server (`src/shuffle/server.rs`) and its store (`store.rs`), frames in flight
//! (`lane.rs`), runs and parts without files (`run.rs`, `parts.rs`), the steps of attempts (`node.rs`).
//!
//! # Invariants
//! A world is determined by its [`World`], [`Stragglers`], [`Racks`], [`ShuffleWorld`] or of [`world`], including its seed: a failed
//! run is repeated by its seed.
//!
//! # Deliberately absent
//! No files, no threads, no wall clock. No record data, except in [`shuffle`]: elsewhere a task is only a duration.
//! [`shuffle`] never alters a byte, so the proof must always agree; its nodes do not drain, nothing is kept, outputs
//! are no objects.
//!
//! # How it is tested
//! It is a test itself; `tests/` states what must hold, and that the simulator detects violations: [`Planted`] errors
//! are found, and each [`Situation`] occurs.

mod cluster;
mod future;
mod jobs;
mod links;
mod racks;
mod run;
mod shuffle;
mod stragglers;
pub mod world;

pub use racks::{Copies, Copying, Racks, copies};
pub use run::{Outcome, run};
pub use shuffle::{
    FAILED_BY_CHANCE, FaultRates, Planted, ShuffleOutcome, ShuffleWorld, Situation, Sometimes, Violation,
    shuffle,
};
pub use stragglers::{Raced, Said, Stragglers, Trouble, race};

/// A cluster with its nodes, users and jobs, to be simulated. Times are nanoseconds of the simulated clock.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub seed: u64,
    pub nodes: u32,
    pub slots_per_node: u32,
    pub users: u32,
    /// Number of jobs that each user submits, at random times within the first `arrivals_ns`.
    pub jobs_per_user: u32,
    pub arrivals_ns: u64,
    /// Maximum number of tasks in the first stage of a job; at least one.
    pub tasks_max: u32,
    /// Duration of the longest task; the shortest takes a tenth of it.
    pub task_ns_max: u64,
    /// Users have priorities from 0 to this, in turn.
    pub priority_max: i32,
    /// Average number of nodes that die per simulated minute; each comes back as a new one.
    pub deaths_per_minute: f64,
    /// Probability that an attempt fails.
    pub failure_chance: f64,
    /// Memory of each node; 0 if jobs need none. Otherwise a third of the jobs need up to two thirds of it on all
    /// nodes, and a third need up to all of it where an attempt runs.
    pub memory_bytes: u64,
    /// True if the whole state is checked after each event: slow.
    pub check_always: bool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 20,
            slots_per_node: 2,
            users: 3,
            jobs_per_user: 10,
            arrivals_ns: 60_000_000_000,
            tasks_max: 50,
            task_ns_max: 5_000_000_000,
            priority_max: 0,
            deaths_per_minute: 0.0,
            failure_chance: 0.0,
            memory_bytes: 0,
            check_always: false,
        }
    }
}
