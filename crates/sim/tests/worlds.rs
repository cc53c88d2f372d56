//! Invariants of every world. A failing seed is repeated by `SIM_SEED=N cargo test -p sim NAME`.

mod seeds;

use seeds::{is_whole, seeds, told};
use sim::{Outcome, World, run};

const SECOND_NS: u64 = 1_000_000_000;

fn run_seed(world: World) -> Outcome {
    told(world.seed, world, run)
}

#[test]
fn every_job_ends_once_whatever_dies() {
    let (mut deaths, mut lost, mut back, mut failed) = (0, 0, 0, 0);
    for seed in seeds(40) {
        let world = World {
            seed,
            nodes: 8,
            priority_max: 3,
            deaths_per_minute: 10.0,
            failure_chance: 0.02,
            check_always: true,
            tasks_max: 20,
            ..World::default()
        };
        let outcome = run_seed(world);
        assert_eq!(outcome.succeeded + outcome.failed, world.users * world.jobs_per_user, "SIM_SEED={seed}");
        (deaths, lost) = (deaths + outcome.deaths, lost + outcome.results_lost);
        (back, failed) = (back + outcome.came_back, failed + outcome.failed);
    }
    // Else the worlds are too quiet to show anything.
    let seen =
        format!("{deaths} deaths, {lost} results lost, {back} attempts came back, {failed} jobs failed");
    assert!(!is_whole() || (deaths > 100 && lost > 100 && back > 10), "{seen}");
}

#[test]
fn a_thousand_nodes_share_fairly_and_nobody_starves() {
    for seed in seeds(1) {
        let world = World {
            seed,
            nodes: 1000,
            slots_per_node: 4,
            users: 5,
            jobs_per_user: 40,
            arrivals_ns: 30 * SECOND_NS,
            tasks_max: 2000,
            task_ns_max: 20 * SECOND_NS,
            deaths_per_minute: 1.0,
            failure_chance: 0.001,
            ..World::default()
        };
        let outcome = run_seed(world);
        assert_eq!(outcome.succeeded + outcome.failed, 200, "SIM_SEED={seed}: {outcome:?}");
        let (least, most) =
            (outcome.contended_ns.iter().min().unwrap(), outcome.contended_ns.iter().max().unwrap());
        assert!(*least > 0, "SIM_SEED={seed}: the users never met: {outcome:?}");
        assert!(*most as f64 <= *least as f64 * 1.05, "SIM_SEED={seed}: {outcome:?}");
        assert!(outcome.longest_wait_ns < 60 * SECOND_NS, "SIM_SEED={seed}: {outcome:?}");
        assert!(outcome.near_starts > outcome.far_starts, "SIM_SEED={seed}: {outcome:?}");
    }
}

#[test]
fn urgent_jobs_do_not_starve_the_others() {
    for seed in seeds(10) {
        let world = World {
            seed,
            nodes: 4,
            jobs_per_user: 100,
            arrivals_ns: 1800 * SECOND_NS,
            tasks_max: 40,
            priority_max: 2,
            ..World::default()
        };
        let outcome = run_seed(world);
        assert_eq!(outcome.succeeded, 300, "SIM_SEED={seed}");
        // Two levels of a minute each, and the attempts that run before it.
        assert!(outcome.longest_wait_ns < 150 * SECOND_NS, "SIM_SEED={seed}: {outcome:?}");
    }
}

/// The simulator itself looks after each start that no node has more than its memory in use.
#[test]
fn memory_is_promised_once_and_nobody_starves() {
    for seed in seeds(20) {
        let world = World {
            seed,
            nodes: 6,
            users: 3,
            jobs_per_user: 60,
            arrivals_ns: 1200 * SECOND_NS,
            tasks_max: 12,
            memory_bytes: 1000,
            deaths_per_minute: if seed % 2 == 0 { 0.0 } else { 2.0 },
            failure_chance: 0.005,
            check_always: true,
            ..World::default()
        };
        let outcome = run_seed(world);
        assert_eq!(outcome.succeeded + outcome.failed, 180, "SIM_SEED={seed}: {outcome:?}");
        // Else the worlds are too quiet to show anything.
        assert!(outcome.memory_peak_bytes > 900, "SIM_SEED={seed}: {outcome:?}");
        assert!(outcome.longest_first_wait_ns < 600 * SECOND_NS, "SIM_SEED={seed}: {outcome:?}");
    }
}

#[test]
fn a_world_follows_from_its_seed() {
    let world = World { seed: 7, deaths_per_minute: 5.0, failure_chance: 0.01, ..World::default() };
    assert_eq!(format!("{:?}", run(world)), format!("{:?}", run(world)));
    assert_ne!(format!("{:?}", run(world)), format!("{:?}", run(World { seed: 8, ..world })));
}
