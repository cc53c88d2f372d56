//! Chaos: jobs of all kinds while servers, nodes and programs are killed and stopped and files are damaged. Nothing is lost,
//! nothing is there twice, nothing is wrong and nothing is stuck. `make chaos` is the long run of half an hour;
//! `SAILFISH_CHAOS_SEED=N` chooses the same jobs and faults again, though not their timing.

use blackbox::{Chaos, ChaosSettings};

/// Some four minutes.
const JOBS: u64 = 20;
const FAULTS: u64 = 60;
const CORRUPTIONS: u64 = 20;

#[test]
fn jobs_survive_chaos() {
    Chaos::start(ChaosSettings::from_environment(JOBS, FAULTS, CORRUPTIONS)).run();
}
