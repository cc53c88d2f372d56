//! The worlds of shuffles, all seeds of a test one after the other, and the checks of their outcomes.

use crate::seeds::{is_whole, seeds, told};
use sim::{Planted, ShuffleOutcome, ShuffleWorld, Situation, shuffle};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const SECOND_NS: u64 = 1_000_000_000;
/// Seeds of a test, where nobody says otherwise.
pub const SEEDS: u64 = 200;

/// A world of each seed.
pub type WorldOf = fn(u64) -> ShuffleWorld;

/// Runs one world.
pub fn run_seed(world: ShuffleWorld) -> ShuffleOutcome {
    told(world.seed, world, |world| shuffle(world).unwrap_or_else(|violation| panic!("{violation:?}")))
}

/// Runs the worlds of all seeds and adds up their outcomes. A job may fail by chance only, not for want of data or a node; if faults
/// come to an end, every job ends.
pub fn run_all(world_of: WorldOf) -> ShuffleOutcome {
    let mut all = ShuffleOutcome::default();
    for seed in seeds(SEEDS) {
        let world = world_of(seed);
        let outcome = run_seed(world);
        assert!(outcome.unfinished == 0 || world.faults_end_ns.is_none(), "SIM_SEED={seed}");
        let by_chance = |failure: &String| failure.ends_with(sim::FAILED_BY_CHANCE);
        assert!(outcome.failures.iter().all(by_chance), "SIM_SEED={seed}: {:?}", outcome.failures);
        all.succeeded += outcome.succeeded;
        all.failed += outcome.failed;
        all.unfinished += outcome.unfinished;
        all.records += outcome.records;
        all.attempts += outcome.attempts;
        all.sometimes.add(&outcome.sometimes);
    }
    println!(
        "{} succeeded, {} failed, {} had not ended; {} records, {} attempts",
        all.succeeded, all.failed, all.unfinished, all.records, all.attempts
    );
    all
}

/// Each of these has come up: else the worlds are too quiet to show anything.
pub fn check_seen(all: &ShuffleOutcome, situations: &[Situation]) {
    for situation in situations {
        println!("{situation:?}: {}", all.sometimes.count(*situation));
    }
    let never: Vec<&Situation> =
        situations.iter().filter(|situation| all.sometimes.count(**situation) == 0).collect();
    assert!(!is_whole() || never.is_empty(), "never seen: {never:?}");
}

/// Checks that a planted error shows in some seed.
pub fn check_found(planted: Planted, world_of: WorldOf) {
    check_found_in(planted, world_of, SEEDS);
}

/// Checks the same with another number of seeds.
pub fn check_found_in(planted: Planted, world_of: WorldOf, usual: u64) {
    let found = seeds(usual).find_map(|seed| {
        let world = ShuffleWorld { planted: Some(planted), ..world_of(seed) };
        // A check of the engine's own may be first to notice.
        let ended = catch_unwind(AssertUnwindSafe(|| shuffle(world)));
        let how = match ended {
            Ok(Ok(_)) => return None,
            Ok(Err(violation)) => violation.what,
            Err(_) => "a check of the engine panicked".to_string(),
        };
        Some((seed, how))
    });
    println!("{planted:?}: {found:?}");
    assert!(found.is_some() || !is_whole(), "{planted:?} was not noticed");
}
