//! The figures of `sim::world`: where maps run, and how a shared input spreads:
//! `cargo run --release -p sim --example world_figures`. One row a line, in columns: name, value, unit, must, aim.

use scheduler::{Proximity, place};
use sim::world::{
    Assigning, FirstCopies, Machines, MapTimes, MapWorld, SharedInput, Spreading, TaskLoad, most_on_replicas,
    run_maps, seconds_of_one_copy, spread,
};
use std::fmt::Display;

const SEEDS: u64 = 15;
const GB: f64 = 1e9;

fn row(name: impl Display, value: impl Display, unit: &str, must: &str, aim: &str) {
    println!("{name}\t{value}\t{unit}\t{must}\t{aim}");
}

fn worst(of_seed: impl Fn(u64) -> f64) -> f64 {
    (0..SEEDS).map(of_seed).fold(f64::INFINITY, f64::min)
}

fn shares() {
    let machines = Machines::of_100();
    for load in [0.5, 0.7, 1.0, 8.0] {
        let maps = (f64::from(machines.slots()) * load) as u32;
        let counts = |seed| {
            let inputs = machines.random_replicas(&mut fastrand::Rng::with_seed(seed), maps, 3);
            let placed = place(&inputs, &machines.rooms());
            let local =
                placed.iter().flatten().filter(|place| place.proximity == Proximity::OnReplica).count();
            (local as f64, most_on_replicas(&inputs, &machines.rooms()) as f64)
        };
        let of_best = worst(|seed| counts(seed).0 / counts(seed).1);
        let name = format!("maps on a replica / best matching, {load} x slots");
        row(name, format_args!("{of_best:.4}"), "ratio", "0.99", "1.0");
        let share = worst(|seed| counts(seed).0 / f64::from(maps));
        let (must, aim) = if load == 0.7 { ("0.99", "1.0") } else { ("-", "-") };
        row("  share of all maps", format_args!("{share:.4}"), "ratio", must, aim);
    }
}

fn job(seed: u64, assigning: Assigning, load: TaskLoad) -> MapTimes {
    let machines = Machines::of_100();
    let maps = machines.slots() * 7 / 10;
    run_maps(MapWorld { seed, machines, maps, replicas: 3, load, heartbeat_s: 1.0, assigning })
}

fn times() {
    for (programs, work_s, must, aim) in
        [("as fast as the disk", 0.0, "1.3", "1.4"), ("half as fast as the disk", 10.24, "-", "-")]
    {
        let load = TaskLoad { read_bytes: 512e6, work_s, written_bytes: 0.0, output_replicas: 1 };
        let ratio =
            |before| move |seed| job(seed, before, load).job_s / job(seed, Assigning::Greedy, load).job_s;
        let name = format!("time, each heartbeat / greedy, 0.7 x slots, programs {programs}");
        row(name, format_args!("{:.2}", worst(ratio(Assigning::AtHeartbeats))), "ratio", must, aim);
        let near = worst(ratio(Assigning::NearReplicas));
        row("  scheduler with all replicas / greedy", format_args!("{near:.2}"), "ratio", "-", "-");
        for assigning in [Assigning::AtHeartbeats, Assigning::NearReplicas, Assigning::Greedy] {
            let seen = job(0, assigning, load);
            let name = format!("  {assigning:?}, seed 0: job");
            row(name, format_args!("{:.1}", seen.job_s), "s", "-", "-");
            row("    mean task", format_args!("{:.1}", seen.mean_task_s), "s", "-", "-");
            row("    maps on a replica", seen.on_replica, "maps", "-", "-");
        }
    }
    for output_replicas in [1, 2] {
        let load = TaskLoad { read_bytes: 512e6, work_s: 0.0, written_bytes: 512e6, output_replicas };
        let seen = job(0, Assigning::Greedy, load);
        let name = format!("time with outputs as large as inputs, {output_replicas} replicas of them");
        row(name, format_args!("{:.1}", seen.job_s), "s", "-", "-");
    }
}

fn shared() {
    let machines = Machines::of_100();
    let all = [
        ("1 first copy", FirstCopies::Random(1)),
        ("2 first copies", FirstCopies::Random(2)),
        ("4 first copies", FirstCopies::Random(4)),
        ("one per rack", FirstCopies::OnePerRack),
    ];
    for (copies_name, copies) in all {
        for readers in [4, 16, 64] {
            let ratio = |spreading| {
                move |seed| {
                    let input = SharedInput { seed, machines, bytes: GB, readers, copies, spreading };
                    spread(input) / seconds_of_one_copy(machines, GB)
                }
            };
            let most = |spreading| (0..SEEDS).map(ratio(spreading)).fold(0.0, f64::max);
            let name = format!("1 GB to {readers} nodes, {copies_name}: time / one copy, tree");
            row(name, format_args!("{:.3}", most(Spreading::Tree)), "ratio", "3", "2");
            row("  in two trees", format_args!("{:.3}", most(Spreading::TwoTrees)), "ratio", "-", "-");
            row(
                "  from the first copies only",
                format_args!("{:.2}", most(Spreading::FirstCopiesOnly)),
                "ratio",
                "-",
                "-",
            );
        }
    }
}

fn main() {
    shares();
    times();
    shared();
}
