//! The figures of workflows in `sim::world`: `cargo run --release -p sim --example workflow_figures SEED [TASKS.tsv]`.
//! The file is written by `bench/workflows/recipes.py`; without it only the shape of BLAST is simulated.
//! One row a line, in columns: name, value, unit, must, aim. Ends with 1 if a figure is not as it must be.

use sim::world::{
    DagStep, DagWorld, FirstCopies, InputReading, Machines, SharedInput, Spreading, arrivals,
    critical_path_s, heft_s, run_dag, work_s,
};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;

/// Two-step DAGs, with the average times of Clustera (section 4.5).
const DAGS: u32 = 1_000;
const BLASTALL_S: f64 = 207.0;
const JAVAWRAP_S: f64 = 6.0;
const SHARED_BYTES: f64 = 2e9;
const GIGABIT: f64 = 125e6;
/// Speed of copies that come from memory: no disk limits them.
const MEMORY_BYTES_PER_SECOND: f64 = 10e9;
const NODES: u32 = 10;
const CORES: u32 = 4;
/// Standard deviation of the logarithm of a wrong time.
const ERROR_SIGMA: f64 = 0.3;

/// The highest permitted values of a figure, if it has limits.
type Limits = Option<[f64; 2]>;

/// Prints a figure. Returns whether it is as it must be.
fn row(name: impl Display, value: f64, unit: &str, limits: Limits) -> bool {
    let is_met = limits.is_none_or(|[must, _]| value <= must);
    let [must, aim] =
        limits.map_or(["-".to_string(), "-".to_string()], |both| both.map(|each| each.to_string()));
    let missed = if is_met { "" } else { "\tmissed" };
    println!("{name}\t{value:.3}\t{unit}\t{must}\t{aim}{missed}");
    is_met
}

/// Returns the cluster of Clustera (section 4.1): two switches, links of 1 Gb/s, also between the switches, two cores.
/// The shared input fits into the memory of a node. Of an odd number, one more reads and does not work.
fn machines_of_clustera(nodes: u32) -> Machines {
    Machines {
        racks: 2,
        nodes_per_rack: nodes.div_ceil(2),
        slots_per_node: 2,
        disk_bytes_per_second: MEMORY_BYTES_PER_SECOND,
        link_bytes_per_second: GIGABIT,
        uplink_bytes_per_second: GIGABIT,
    }
}

fn blast_steps() -> Vec<DagStep> {
    let blastall = DagStep { seconds: BLASTALL_S, is_reader: true, ..DagStep::default() };
    let dag = |index: u32| {
        let javawrap = DagStep { seconds: JAVAWRAP_S, after: vec![2 * index], ..DagStep::default() };
        [blastall.clone(), javawrap]
    };
    (0..DAGS).flat_map(dag).collect()
}

/// The way of the shared input to the nodes.
struct Sharing {
    condition: &'static str,
    /// None if each node has it at the beginning.
    spreading: Option<Spreading>,
    reading: InputReading,
    limits: Limits,
}

const SHARINGS: [Sharing; 3] = [
    Sharing {
        condition: "",
        spreading: Some(Spreading::TwoTrees),
        reading: InputReading::BeforeItWorks,
        limits: Some([1.04, 1.02]),
    },
    Sharing {
        condition: ", if the input is a plain file that all nodes see",
        spreading: Some(Spreading::FirstCopiesOnly),
        reading: InputReading::WhileItWorks,
        limits: None,
    },
    Sharing {
        condition: ", if each node has the input",
        spreading: None,
        reading: InputReading::WhileItWorks,
        limits: None,
    },
];

/// Returns the time of the workflow on these nodes.
fn blast_s(seed: u64, nodes: u32, sharing: &Sharing) -> f64 {
    let machines = machines_of_clustera(nodes);
    let input = |spreading| SharedInput {
        seed,
        machines,
        bytes: SHARED_BYTES,
        readers: machines.nodes() - machines.racks,
        copies: FirstCopies::OnePerRack,
        spreading,
    };
    let shared_s = sharing.spreading.map(|spreading| arrivals(input(spreading))).unwrap_or_default();
    let (steps, reading) = (blast_steps(), sharing.reading);
    run_dag(DagWorld { machines, nodes, steps: &steps, known_s: &[], shared_s: &shared_s, reading }).job_s
}

fn blast(seed: u64) -> bool {
    println!(
        "# BLAST, seed {seed}: 1,000 DAGs of 207 s and 6 s; the shared 2 GB are a stored file, of which each node makes \
         one copy before its first step works, from the nodes of its switch (1 Gb/s) as they get the parts"
    );
    let mut is_met = true;
    for nodes in [25, 50, 75, 100] {
        let waves = f64::from(DAGS.div_ceil(nodes * machines_of_clustera(nodes).slots_per_node));
        let best_s = waves * (BLASTALL_S + JAVAWRAP_S);
        for sharing in &SHARINGS {
            let job_s = blast_s(seed, nodes, sharing);
            let name = format!("BLAST, {nodes} nodes{}: makespan / whole waves", sharing.condition);
            is_met &= row(name, job_s / best_s, "ratio", sharing.limits);
            row("  makespan", job_s, "s", None);
            row("  whole waves", best_s, "s", None);
        }
    }
    is_met
}

/// Reads the workflows of a file, by recipe.
fn read_tasks(path: &str) -> BTreeMap<String, Vec<DagStep>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    let mut recipes: BTreeMap<String, Vec<DagStep>> = BTreeMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [recipe, _, seconds, read, written, parents] = columns[..] else { panic!("not a task: {line}") };
        let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("not a number: {line}"));
        let transfer_s = (number(read) + number(written)) / (GIGABIT / f64::from(CORES));
        let parents =
            parents.split(',').filter(|parent| !parent.is_empty()).map(|parent| number(parent) as u32);
        let after = parents.collect();
        let step = DagStep { seconds: number(seconds) + transfer_s, after, ..DagStep::default() };
        recipes.entry(recipe.to_string()).or_default().push(step);
    }
    recipes
}

/// The times of the steps that the server knows from an earlier run.
#[derive(Clone, Copy)]
enum Known {
    /// No step ran before.
    Nothing,
    Times,
    /// The inputs of the earlier run were others: each time has a log-normal error.
    TimesWithErrors,
}

/// The runs of each workflow. The second one must be near HEFT, which knows all times too.
const KNOWN: [(Known, &str, Limits); 3] = [
    (Known::Nothing, "first run", None),
    (Known::Times, "second run", Some([1.05, 1.02])),
    (Known::TimesWithErrors, "second run, times with errors", None),
];

fn known_s(known: Known, steps: &[DagStep], seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Normal by Box and Muller.
    let mut normal = || {
        let (radius, angle) = (-2.0 * (1.0 - random.f64()).ln(), std::f64::consts::TAU * random.f64());
        radius.sqrt() * angle.cos()
    };
    let times = steps.iter().map(|step| step.seconds);
    match known {
        Known::Nothing => Vec::new(),
        Known::Times => times.collect(),
        Known::TimesWithErrors => times.map(|seconds| seconds * (ERROR_SIGMA * normal()).exp()).collect(),
    }
}

/// Prints the figures of a recipe. Returns the ratios of its runs to HEFT's.
fn recipe(name: &str, steps: &[DagStep], seed: u64) -> [f64; KNOWN.len()] {
    let machines = Machines { racks: 1, nodes_per_rack: NODES, slots_per_node: CORES, ..Machines::of_100() };
    let (heft_s, path_s) = (heft_s(steps, NODES * CORES), critical_path_s(steps));
    let work_s = work_s(steps, NODES * CORES);
    let title = format!("{name}, {} tasks: makespan of HEFT / critical path", steps.len());
    row(title, heft_s / path_s, "ratio", None);
    for (measure, seconds) in [("HEFT's", heft_s), ("critical path", path_s), ("work / cores", work_s)] {
        row(format!("  {measure}"), seconds, "s", None);
    }
    KNOWN.map(|(known, run, _)| {
        let world = DagWorld {
            machines,
            nodes: NODES,
            steps,
            known_s: &known_s(known, steps, seed),
            shared_s: &[],
            reading: InputReading::default(),
        };
        let ours_s = run_dag(world).job_s;
        let title = format!("{name}, {} tasks, {run}: makespan / HEFT's", steps.len());
        row(title, ours_s / heft_s, "ratio", None);
        row("  makespan / critical path", ours_s / path_s, "ratio", None);
        row("  makespan / (work / cores)", ours_s / work_s, "ratio", None);
        row("  makespan", ours_s, "s", None);
        ours_s / heft_s
    })
}

fn recipes(path: &str, seed: u64) -> bool {
    println!(
        "# wfcommons, seed {seed}: all nodes see the files; a step reads and writes its own over an even share of the link of \
         its node (1 Gb/s / {CORES}), the same time for both"
    );
    println!(
        "# first run: no time of a step is known; second run: all are; times with errors: log-normal, sigma {ERROR_SIGMA}"
    );
    let all = read_tasks(path);
    let ratios: Vec<_> = all.iter().map(|(name, steps)| (name, recipe(name, steps, seed))).collect();
    let mut is_met = true;
    for (index, (_, run, limits)) in KNOWN.into_iter().enumerate() {
        let of_run = ratios.iter().map(|(name, ratios)| (ratios[index], name.as_str()));
        let (worst, name) = of_run.max_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or((0.0, "none"));
        let title =
            format!("all recipes of wfcommons, seed {seed}, {run}: makespan / HEFT's, the worst ({name})");
        is_met &= row(title, worst, "ratio", limits);
    }
    is_met
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let seed = given.first().map_or("1", String::as_str);
    let seed: u64 = seed.parse().unwrap_or_else(|_| panic!("not a seed: {seed}"));
    let mut is_met = blast(seed);
    if let Some(tasks) = given.get(1) {
        is_met &= recipes(tasks, seed);
    }
    ExitCode::from(u8::from(!is_met))
}
