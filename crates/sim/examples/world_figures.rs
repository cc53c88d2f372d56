//! The figures of `sim::world`: where maps run, and how a shared input spreads:
//! `cargo run --release -p sim --example world_figures`. One row a line, in
//! columns: name, value, unit, must, aim. Ends with 1 if a figure is not as it must be.

use scheduler::{Proximity, place};
use sim::world::{
    Assigning, FirstCopies, Machines, MapTimes, MapWorld, SharedInput, Spreading, TaskLoad, most_on_replicas,
    run_maps, seconds_of_one_copy, spread,
};
use std::fmt::Display;

const SEEDS: u64 = 15;
const GB: f64 = 1e9;
/// A map that reads a block of 512 MB, and whose program is faster than the disk.
const MAP: TaskLoad = TaskLoad { read_bytes: 512e6, work_s: 0.0, written_bytes: 0.0, output_replicas: 1 };

/// The limits of a figure: at least, or at most.
#[derive(Clone, Copy)]
enum Limits {
    AtLeast { must: f64, aim: f64 },
    AtMost { must: f64, aim: f64 },
    Reported,
}

/// Prints a figure. Returns whether it is as it must be.
fn row(name: impl Display, value: f64, unit: &str, limits: Limits) -> bool {
    let (is_met, must, aim) = match limits {
        Limits::AtLeast { must, aim } => (value >= must, must.to_string(), aim.to_string()),
        Limits::AtMost { must, aim } => (value <= must, must.to_string(), aim.to_string()),
        Limits::Reported => (true, "-".into(), "-".into()),
    };
    let missed = if is_met { "" } else { "\tmissed" };
    println!("{name}\t{value:.3}\t{unit}\t{must}\t{aim}{missed}");
    is_met
}

fn least(of_seed: impl Fn(u64) -> f64) -> f64 {
    (0..SEEDS).map(of_seed).fold(f64::INFINITY, f64::min)
}

fn most(of_seed: impl Fn(u64) -> f64) -> f64 {
    (0..SEEDS).map(of_seed).fold(0.0, f64::max)
}

fn shares() -> bool {
    let machines = Machines::of_100();
    let mut is_met = true;
    for load in [0.5, 0.7, 1.0, 8.0] {
        let maps = (f64::from(machines.slots()) * load) as u32;
        let counts = |seed| {
            let inputs = machines.random_replicas(&mut fastrand::Rng::with_seed(seed), maps, 3);
            let placed = place(&inputs, &machines.rooms());
            let is_local = |place: &&scheduler::PlacedTask| place.proximity == Proximity::OnReplica;
            let local = placed.iter().flatten().filter(is_local).count();
            (local as f64, most_on_replicas(&inputs, &machines.rooms()) as f64)
        };
        let limits = Limits::AtLeast { must: 0.99, aim: 1.0 };
        let of_best = least(|seed| counts(seed).0 / counts(seed).1);
        let name = format!("maps on a replica / the best matching's, {load} x slots");
        is_met &= row(name, of_best, "ratio", limits);
        let share = least(|seed| counts(seed).0 / f64::from(maps));
        is_met &= row("  of all maps", share, "share", if load == 0.7 { limits } else { Limits::Reported });
        for assigning in [Assigning::AtHeartbeats, Assigning::NearReplicas, Assigning::Greedy] {
            let share = job(0, assigning, load, MAP).on_replica as f64 / f64::from(maps);
            row(format!("  in a job, seed 0, {assigning:?}"), share, "share", Limits::Reported);
        }
    }
    is_met
}

fn job(seed: u64, assigning: Assigning, load: f64, task: TaskLoad) -> MapTimes {
    let machines = Machines::of_100();
    let maps = (f64::from(machines.slots()) * load) as u32;
    run_maps(MapWorld { seed, machines, maps, replicas: 3, load: task, heartbeat_s: 1.0, assigning })
}

fn times() -> bool {
    let mut is_met = true;
    for (load, work_s, limits) in [
        (0.7, 0.0, Limits::AtLeast { must: 1.3, aim: 1.4 }),
        (0.7, 10.24, Limits::Reported),
        (0.7, 20.48, Limits::Reported),
        (1.0, 0.0, Limits::Reported),
        (8.0, 0.0, Limits::Reported),
    ] {
        let task = TaskLoad { work_s, ..MAP };
        let ratio = |before| {
            move |seed| job(seed, before, load, task).job_s / job(seed, Assigning::Greedy, load, task).job_s
        };
        let name = format!("time, each heartbeat / greedy, {load} x slots, work of {work_s} s");
        is_met &= row(name, least(ratio(Assigning::AtHeartbeats)), "ratio", limits);
        let near = least(ratio(Assigning::NearReplicas));
        row("  all replicas and a locality delay / greedy", near, "ratio", Limits::Reported);
        row("  greedy, seed 0", job(0, Assigning::Greedy, load, task).job_s, "s", Limits::Reported);
    }
    for output_replicas in [1, 2] {
        let task = TaskLoad { written_bytes: MAP.read_bytes, output_replicas, ..MAP };
        let name = format!("time with outputs as large as inputs, {output_replicas} replicas of them");
        row(name, job(0, Assigning::Greedy, 0.7, task).job_s, "s", Limits::Reported);
    }
    is_met
}

fn shared() -> bool {
    let machines = Machines::of_100();
    let slow_uplinks = Machines { uplink_bytes_per_second: machines.link_bytes_per_second, ..machines };
    let mut is_met = true;
    for (first, copies, machines) in [
        ("1 first copy", FirstCopies::Random(1), machines),
        ("2 first copies", FirstCopies::Random(2), machines),
        ("4 first copies", FirstCopies::Random(4), machines),
        ("one per rack", FirstCopies::OnePerRack, machines),
        ("1 first copy, uplinks of 1 Gb/s", FirstCopies::Random(1), slow_uplinks),
    ] {
        for readers in [4, 16, 64] {
            let ratio = |spreading| {
                move |seed| {
                    let input = SharedInput { seed, machines, bytes: GB, readers, copies, spreading };
                    spread(input) / seconds_of_one_copy(machines, GB)
                }
            };
            let limits = Limits::AtMost { must: 3.0, aim: 2.0 };
            let name = format!("1 GB to {readers} nodes, {first}: time / one copy, a tree");
            is_met &= row(name, most(ratio(Spreading::Tree)), "ratio", limits);
            is_met &= row("  two trees", most(ratio(Spreading::TwoTrees)), "ratio", limits);
            let from_first = most(ratio(Spreading::FirstCopiesOnly));
            row("  from the first copies only", from_first, "ratio", Limits::Reported);
        }
    }
    is_met
}

/// Reports the time of the placement itself: linear in the number of tasks.
fn costs() {
    let machines = Machines { racks: 50, slots_per_node: 4, ..Machines::of_100() };
    for maps in [4_000, 40_000, 400_000] {
        let inputs = machines.random_replicas(&mut fastrand::Rng::with_seed(1), maps, 3);
        let started = std::time::Instant::now();
        let placed = place(&inputs, &machines.rooms());
        let nanos = started.elapsed().as_nanos() as f64 / placed.len() as f64;
        row(
            format!("placement of {maps} tasks on 1,000 nodes, each"),
            nanos / 1000.0,
            "us",
            Limits::Reported,
        );
    }
}

fn main() -> std::process::ExitCode {
    costs();
    let is_met = [shares(), times(), shared()];
    std::process::ExitCode::from(u8::from(is_met.contains(&false)))
}
