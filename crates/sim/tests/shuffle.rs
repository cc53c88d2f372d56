//! Whole shuffle jobs while processes, disks and messages fail. A failing seed is repeated by `SIM_SEED=N cargo test -p sim NAME`.

mod seeds;
mod shuffles;

use seeds::{is_whole, seeds};
use shuffles::{SECOND_NS, SEEDS, check_found, check_seen, run_all, run_seed};
use sim::{FaultRates, Planted, ShuffleWorld, Situation, shuffle};

/// Faults without end.
fn unsafe_world(seed: u64) -> ShuffleWorld {
    ShuffleWorld { seed, nodes: 2 + (seed % 5) as u32, ..ShuffleWorld::default() }
}

/// Faults for a while; after that every job must end.
fn calming_world(seed: u64) -> ShuffleWorld {
    let (faults_end_ns, end_ns) = (Some(15 * SECOND_NS), 75 * SECOND_NS);
    ShuffleWorld { faults_end_ns, end_ns, ..unsafe_world(seed) }
}

/// Nodes die all the time, and nothing else fails: many wait near their data for a node that others took.
fn deadly_world(seed: u64) -> ShuffleWorld {
    let faults = FaultRates { node_deaths_per_minute: 40.0, ..FaultRates::NONE };
    ShuffleWorld { nodes: 3, jobs: 4, maps_max: 2, faults, end_ns: 20 * SECOND_NS, ..unsafe_world(seed) }
}

/// Nothing fails by chance; while slow reducers run two nodes die, the second when all lies on two nodes again.
fn world_of_two_deaths(seed: u64) -> ShuffleWorld {
    let (faults, end_ns) = (FaultRates { attempt_slow: 1.0, ..FaultRates::NONE }, 120 * SECOND_NS);
    ShuffleWorld { nodes: 5, jobs: 1, faults, deaths_in_turn: 2, end_ns, ..unsafe_world(seed) }
}

#[test]
fn each_record_is_output_once_despite_failures() {
    check_seen(&run_all(unsafe_world), &Situation::ALL);
}

#[test]
fn every_job_ends_once_nothing_fails_any_more() {
    run_all(calming_world);
}

#[test]
fn a_reply_before_its_transaction_is_noticed() {
    check_found(Planted::ReplyBeforeDurable, unsafe_world);
}

#[test]
fn mixed_up_attempts_are_noticed() {
    check_found(Planted::AttemptMixUp, unsafe_world);
}

#[test]
fn a_stale_chunk_read_as_empty_is_noticed() {
    check_found(Planted::StaleChunkReadAsEmpty, unsafe_world);
}

#[test]
fn a_double_commit_is_noticed() {
    check_found(Planted::DoubleCommit, unsafe_world);
}

#[test]
fn a_frame_in_two_chunks_is_noticed() {
    check_found(Planted::FrameInTwoChunks, unsafe_world);
}

/// Many tasks wait near their data for a node that is gone: none may be given to it.
#[test]
fn no_attempt_goes_to_a_dead_node() {
    run_all(deadly_world);
}

/// The data that is lost with the first node is copied again before the second node dies.
#[test]
fn two_nodes_lost_in_turn_rerun_no_map() {
    let mut twice = 0;
    for seed in seeds(SEEDS) {
        let outcome = run_seed(world_of_two_deaths(seed));
        twice += u32::from(outcome.died_in_turn == 2);
        for lost in [Situation::LostBeforeSeal, Situation::LostAfterSeal] {
            assert_eq!(outcome.sometimes.count(lost), 0, "SIM_SEED={seed}: {lost:?}");
        }
        assert_eq!((outcome.succeeded, outcome.failed), (1, 0), "SIM_SEED={seed}: {:?}", outcome.failures);
    }
    println!("two nodes died in {twice} worlds");
    assert!(!is_whole() || twice > 0);
}

#[test]
fn a_shuffle_follows_from_its_seed() {
    assert_eq!(shuffle(unsafe_world(7)), shuffle(unsafe_world(7)));
    assert_ne!(shuffle(unsafe_world(7)), shuffle(unsafe_world(8)));
}
