//! Workflows on machines: times that are known by hand, and the properties of every run.
//! `cargo run --release -p sim --example workflow_figures` prints the figures.

mod seeds;

use seeds::{is_whole, seeds, told};
use sim::world::{
    DagStep, DagTimes, DagWorld, FirstCopies, InputReading, Machines, SharedInput, Spreading, StepRun,
    arrivals, critical_path_s, heft_s, run_dag, spread, work_s,
};

/// A difference that the rounding of times to nanoseconds explains.
const ROUNDING_S: f64 = 1e-5;

fn machines(nodes: u32, slots_per_node: u32) -> Machines {
    Machines { racks: 1, nodes_per_rack: nodes, slots_per_node, ..Machines::of_100() }
}

fn run(steps: &[DagStep], machines: Machines) -> DagTimes {
    run_again(steps, &[], machines)
}

/// Runs a workflow whose steps took these times before.
fn run_again(steps: &[DagStep], known_s: &[f64], machines: Machines) -> DagTimes {
    let (nodes, reading) = (machines.nodes(), InputReading::default());
    run_dag(DagWorld { machines, nodes, steps, known_s, shared_s: &[], reading })
}

fn step(seconds: f64, after: &[u32]) -> DagStep {
    DagStep { seconds, after: after.to_vec(), ..DagStep::default() }
}

fn streamed(seconds: f64, stream: Option<u32>) -> DagStep {
    DagStep { seconds, stream, ..DagStep::default() }
}

#[track_caller]
fn check(steps: &[DagStep], machines: Machines, expected: &[(u32, f64, f64)]) {
    let times = run(steps, machines);
    let seen: Vec<(u32, f64, f64)> =
        times.runs.iter().map(|run| (run.step, run.begin_s, run.end_s)).collect();
    assert_eq!(seen, expected);
    assert_eq!(times.job_s, expected.iter().map(|run| run.2).fold(0.0, f64::max));
}

/// Without known times the longest chain of steps goes first, and of equal ones the step that began first.
#[test]
fn ready_steps_run_in_their_order() {
    let steps = [step(3.0, &[]), step(2.0, &[]), step(4.0, &[0, 1]), step(1.0, &[0]), step(5.0, &[])];
    let expected = [(1, 0.0, 2.0), (0, 0.0, 3.0), (2, 3.0, 7.0), (4, 2.0, 7.0), (3, 7.0, 8.0)];
    check(&steps, machines(2, 1), &expected);
    assert_eq!((critical_path_s(&steps), work_s(&steps, 2), heft_s(&steps, 2)), (7.0, 7.5, 8.0));
}

#[test]
fn known_times_let_the_longest_step_begin() {
    let steps = [step(2.0, &[]), step(2.0, &[]), step(2.0, &[]), step(6.0, &[])];
    let machines = machines(2, 1);
    let known: Vec<f64> = steps.iter().map(|step| step.seconds).collect();
    assert_eq!(run(&steps, machines).job_s, 8.0);
    assert_eq!((run_again(&steps, &known, machines).job_s, heft_s(&steps, 2)), (6.0, 6.0));
}

#[test]
fn streams_run_together_where_they_fit() {
    let steps = [streamed(2.0, None), streamed(5.0, Some(0)), streamed(3.0, Some(1)), step(1.0, &[])];
    check(&steps, machines(1, 4), &[(3, 0.0, 1.0), (0, 0.0, 5.0), (1, 0.0, 5.0), (2, 0.0, 5.0)]);
    // The last step of the chain reads a file.
    check(&steps, machines(1, 2), &[(0, 0.0, 5.0), (1, 0.0, 5.0), (3, 5.0, 6.0), (2, 5.0, 8.0)]);
}

#[test]
fn shared_input_delays_its_readers_only() {
    let reader = DagStep { is_reader: true, ..step(3.0, &[]) };
    let steps = [reader.clone(), reader, step(3.0, &[])];
    let world = DagWorld {
        machines: machines(3, 1),
        nodes: 1,
        steps: &steps,
        known_s: &[],
        shared_s: &[4.0],
        reading: InputReading::WhileItWorks,
    };
    assert_eq!(run_dag(world).job_s, 10.0);
    assert_eq!(run_dag(DagWorld { reading: InputReading::BeforeItWorks, ..world }).job_s, 13.0);
}

#[test]
fn last_arrival_is_the_time_of_a_spread() {
    let (machines, copies, readers) = (Machines::of_100(), FirstCopies::OnePerRack, 95);
    for spreading in [Spreading::FirstCopiesOnly, Spreading::Tree, Spreading::TwoTrees] {
        let input = SharedInput { seed: 1, machines, bytes: 1e9, readers, copies, spreading };
        let arrivals = arrivals(input);
        assert_eq!(arrivals.iter().filter(|arrival| **arrival > 0.0).count(), 95);
        assert_eq!(arrivals.into_iter().fold(0.0, f64::max), spread(input));
    }
}

/// Returns steps with at most three before each, in any order in the file.
fn random_steps(seed: u64) -> Vec<DagStep> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.u32(1..60);
    let mut numbers: Vec<u32> = (0..count).collect();
    random.shuffle(&mut numbers);
    let mut steps = vec![DagStep::default(); count as usize];
    for (index, number) in numbers.iter().enumerate() {
        let mut before = |_| numbers.get(random.usize(..count as usize)).copied();
        let before: Vec<u32> = (0..3).filter_map(&mut before).collect();
        let after = before.into_iter().filter(|before| numbers[..index].contains(before)).collect();
        // Some take no time at all.
        let seconds = f64::from(random.u32(..40)) / 8.0;
        steps[*number as usize] = DagStep { seconds, after, ..DagStep::default() };
    }
    steps
}

#[test]
fn steps_run_once_after_those_before() {
    let (mut slower, mut all_s) = (0, [0.0; 2]);
    for seed in seeds(60) {
        let steps = random_steps(seed);
        let machines = machines(1 + seed as u32 % 4, 1 + seed as u32 % 3);
        let (nodes, reading) = (machines.nodes(), InputReading::default());
        let known: Vec<f64> = steps.iter().map(|step| step.seconds).collect();
        let known_s = if seed % 2 == 0 { &known[..] } else { &[] };
        let world = DagWorld { machines, nodes, steps: &steps, known_s, shared_s: &[], reading };
        let times = told(seed, world, run_dag);
        all_s[0] += run(&steps, machines).job_s;
        all_s[1] += run_again(&steps, &known, machines).job_s;
        assert_eq!(times, run_dag(world), "SIM_SEED={seed}");
        let mut runs = times.runs.clone();
        runs.sort_by_key(|run| run.step);
        let numbers: Vec<u32> = runs.iter().map(|run| run.step).collect();
        assert_eq!(numbers, (0..steps.len() as u32).collect::<Vec<_>>(), "SIM_SEED={seed}");
        for (run, step) in runs.iter().zip(&steps) {
            let before_s = step.after.iter().map(|before| runs[*before as usize].end_s).fold(0.0, f64::max);
            assert!(run.begin_s >= before_s, "SIM_SEED={seed}: {run:?} begins before {before_s} s");
            assert!((run.end_s - run.begin_s - step.seconds).abs() < ROUNDING_S, "SIM_SEED={seed}: {run:?}");
        }
        runs.sort_by(|left, right| {
            let slot_and_time = |run: &StepRun| (run.node, run.slot, run.begin_s + run.end_s);
            slot_and_time(left).partial_cmp(&slot_and_time(right)).expect("times are numbers")
        });
        for pair in
            runs.windows(2).filter(|pair| (pair[0].node, pair[0].slot) == (pair[1].node, pair[1].slot))
        {
            assert!(pair[1].begin_s >= pair[0].end_s, "SIM_SEED={seed}: {pair:?} run in one slot");
        }
        let (longest_s, work_s) = (critical_path_s(&steps), work_s(&steps, machines.slots()));
        let least_s = longest_s.max(work_s) - ROUNDING_S;
        let heft_s = heft_s(&steps, machines.slots());
        assert!(times.job_s >= least_s && heft_s >= least_s, "SIM_SEED={seed}: {times:?}, {least_s} s");
        // No slot waits while a step is ready (Graham, 1969).
        assert!(times.job_s <= longest_s + work_s + ROUNDING_S, "SIM_SEED={seed}: {times:?}");
        slower += u32::from(times.job_s > heft_s + ROUNDING_S);
    }
    // Else the worlds are too easy to show anything.
    assert!(!is_whole() || slower > 0);
    assert!(!is_whole() || all_s[1] < all_s[0], "known times make workflows slower: {all_s:?}");
}
