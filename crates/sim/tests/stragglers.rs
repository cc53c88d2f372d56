//! Slow attempts and their copies: one winner whatever happens, the cause named, and little spent where nothing is slow.
//! A failing seed is repeated by `SIM_SEED=N cargo test -p sim --test stragglers NAME`.

mod seeds;

use scheduler::Label;
use seeds::{is_whole, seeds, told};
use sim::{Raced, Stragglers, Trouble, race};
use std::collections::BTreeMap;

const SECOND_NS: u64 = 1_000_000_000;
const ALL_TROUBLES: [Trouble; 10] = [
    Trouble::LargeData,
    Trouble::SlowRecords,
    Trouble::SlowProgram,
    Trouble::SlowProcessor,
    Trouble::SlowMachine,
    Trouble::SlowDisk,
    Trouble::SlowStore,
    Trouble::SlowChunks,
    Trouble::SlowSender,
    Trouble::Stuck,
];

/// Troubles that a copy helps against.
const COPIED: [Trouble; 6] = [
    Trouble::SlowProgram,
    Trouble::SlowProcessor,
    Trouble::SlowMachine,
    Trouble::SlowDisk,
    Trouble::SlowSender,
    Trouble::Stuck,
];

fn race_seed(world: Stragglers) -> Raced {
    told(world.seed, world, race)
}

/// A world with one trouble, as it is for that one.
fn troubled(seed: u64, trouble: Trouble) -> Stragglers {
    let slots_per_node = if trouble == Trouble::SlowProgram { 1 } else { 2 };
    Stragglers { seed, slots_per_node, trouble: Some(trouble), tasks: 30, ..Stragglers::default() }
}

/// The simulator itself looks that no task commits twice and no slot runs two, after each event.
#[test]
fn each_task_commits_once_in_a_race() {
    let (mut races, mut won, mut both, mut failed) = (0, 0, 0, 0);
    for seed in seeds(500) {
        let world = Stragglers {
            trouble: Some(COPIED[seed as usize % COPIED.len()]),
            passes: true,
            nodes: 6,
            tasks: 24,
            deaths_per_minute: if seed % 3 == 0 { 1.0 } else { 0.0 },
            failure_chance: if seed % 2 == 0 { 0.02 } else { 0.0 },
            ..troubled(seed, Trouble::Stuck)
        };
        let raced = race_seed(world);
        (races, won, both) = (races + raced.races, won + raced.copies_won, both + raced.both_ended);
        failed += u32::from(!raced.succeeded);
    }
    let seen = format!("{races} races, {won} won by the copy, {both} ran to both ends, {failed} jobs failed");
    println!("{seen}");
    assert!(!is_whole() || (races >= 500 && won > 100 && both > 10 && failed < 5), "{seen}");
}

/// The first thing that is said of an attempt with the trouble.
fn first_label(raced: &Raced) -> Option<Label> {
    raced.said.iter().find(|said| said.has_trouble).map(|said| said.label)
}

#[test]
fn the_cause_of_a_slow_task_is_named() {
    let (mut right, mut all, mut false_alarms) = (0, 0, 0);
    let mut matrix: BTreeMap<(String, String), u32> = BTreeMap::new();
    for seed in seeds(18) {
        for trouble in ALL_TROUBLES {
            let (times, noise) = ([4.0, 6.0, 10.0][seed as usize % 3], [0.1, 0.2][seed as usize % 2]);
            let raced = race_seed(Stragglers { times, noise, ..troubled(seed, trouble) });
            let label = first_label(&raced);
            let word = label.map_or("nothing", Label::word).to_string();
            *matrix.entry((format!("{trouble:?}"), word)).or_default() += 1;
            right += u32::from(label == Some(trouble.label()));
            all += 1;
            false_alarms += raced.said.iter().filter(|said| !said.has_trouble && said.copied).count();
        }
    }
    println!("{right} of {all} labels right, {false_alarms} copies of others: {matrix:#?}");
    assert!(right * 10 >= all * 9, "{right} of {all}: {matrix:#?}");
    assert!(false_alarms * 10 <= all as usize, "{false_alarms} copies of attempts without trouble");
}

#[test]
fn tasks_slow_by_their_data_are_not_copied() {
    for seed in seeds(18) {
        for trouble in [Trouble::LargeData, Trouble::SlowRecords] {
            let raced = race_seed(troubled(seed, trouble));
            let copied = raced.said.iter().filter(|said| said.has_trouble && said.copied).count();
            assert_eq!(copied, 0, "SIM_SEED={seed} {trouble:?}: {:?}", raced.said);
        }
    }
}

#[test]
fn copies_cost_almost_nothing_without_slow_tasks() {
    let (mut all_ns, mut copies_ns, mut races) = (0, 0, 0);
    for seed in seeds(60) {
        let noise = [0.05, 0.15, 0.25, 0.4][seed as usize % 4];
        let raced = race_seed(Stragglers { seed, noise, tasks: 60, ..Stragglers::default() });
        (all_ns, copies_ns) = (all_ns + raced.all_ns, copies_ns + raced.copies_ns);
        races += raced.races;
    }
    let share = copies_ns as f64 / all_ns as f64;
    println!("{races} copies cost {:.2} % of the task-seconds", share * 100.0);
    assert!(share <= 0.01, "{races} copies cost {share} of the task-seconds");
}

/// A job with copies no longer waits for one slow node.
#[test]
fn a_slow_node_costs_a_job_little() {
    let (mut healthy_ns, mut with_ns, mut without_ns) = (0, 0, 0);
    for seed in seeds(20) {
        let world = Stragglers { tasks: 40, ..troubled(seed, Trouble::SlowProcessor) };
        healthy_ns += race_seed(Stragglers { trouble: None, ..world }).ended_ns;
        with_ns += race_seed(world).ended_ns;
        without_ns += race_seed(Stragglers { copies: false, ..world }).ended_ns;
    }
    let ratio = |ns: u64| ns as f64 / healthy_ns as f64;
    println!("with copies {:.2} of the healthy time, without {:.2}", ratio(with_ns), ratio(without_ns));
    assert!(ratio(with_ns) <= 1.5 && ratio(without_ns) >= 1.8, "{} {}", ratio(with_ns), ratio(without_ns));
    assert!(healthy_ns > SECOND_NS);
}
