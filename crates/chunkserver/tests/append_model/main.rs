//! The promise of I-files against a model: any interleaving of appenders, retries, lost answers, rebinding, spills,
//! evictions and killed attempts gives exactly the records of the winning attempts, each key's values in input order.
//!
//! A failing schedule is written to `regressions/` beside this file and runs again first the next time. The tests
//! with real concurrency print their seed; `SAILFISH_SEED=N` runs that one alone.

mod checking;
mod faulty_service;
mod plan;
mod running;

use checking::check;
use plan::{Case, case_from_seed, cases};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use running::{run_concurrently, run_in_lockstep};

/// Seeds of the tests with real concurrency; more in nightly runs through `SAILFISH_SEEDS`.
const CONCURRENT_SEEDS: u64 = 24;

/// Schedules of a normal run; `PROPTEST_CASES` asks for more.
const CASES: u32 = 96;

fn configuration() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { CASES };
    ProptestConfig { cases, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

/// Schedules after which one that spills must have come.
const SCHEDULES_MAX: u64 = 400;

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn any_interleaving_gives_the_records_of_the_winners(case in cases()) {
        check(&case, run_in_lockstep);
    }
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SAILFISH_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SAILFISH_SEEDS").unwrap_or(CONCURRENT_SEEDS)).collect(),
    }
}

#[test]
fn concurrent_appenders_give_the_records_of_the_winners() {
    for seed in seeds() {
        println!("SAILFISH_SEED={seed}");
        check(&case_from_seed(seed), run_concurrently);
    }
}

/// The schedules above must reach what they are meant to test.
#[test]
fn schedules_reach_spills_evictions_and_lost_answers() {
    let mut reached = checking::Reached::default();
    for seed in 0..SCHEDULES_MAX {
        if seed >= 12 && reached.raw_spills > 0 {
            break;
        }
        let mut case = Case { answers_lost_per_mille: 450, ..case_from_seed(seed) };
        if seed % 2 == 1 {
            // Less than the open chunks may need, so that raw ones must go whatever the speed of the sorters.
            case.arena_chunks = 3 + u64::from(case.ifile_count) / 3;
        }
        reached.add(&check(&case, run_in_lockstep));
    }
    println!("{reached:?}");
    assert!(reached.raw_spills > 0, "{reached:?}");
    assert!(reached.runs_on_disk > 0 && reached.runs_in_memory > 0, "{reached:?}");
    assert!(reached.answers_lost > 0 && reached.attempts_given_up > 0, "{reached:?}");
    assert!(reached.dropped_records > 0 && reached.oversize_chunks > 0, "{reached:?}");
}
