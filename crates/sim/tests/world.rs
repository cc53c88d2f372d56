//! Maps run on replicas and shared inputs spread, in a cluster of 100 nodes: the figures that must hold.
//! `cargo run --release -p sim --example world_figures` prints them.

mod seeds;

use scheduler::{Proximity, place};
use seeds::{is_whole, seeds, told};
use sim::world::{
    Assigning, FirstCopies, Machines, MapTimes, MapWorld, SharedInput, Spreading, TaskLoad, most_on_replicas,
    run_maps, seconds_of_one_copy, spread,
};

const GB: f64 = 1e9;
/// A map that only its disk limits, for 10 s.
const LOAD: TaskLoad = TaskLoad { read_bytes: GB, work_s: 0.0, written_bytes: 0.0, output_replicas: 1 };

#[test]
fn maps_run_where_replicas_lie() {
    let machines = Machines::of_100();
    let mut short = 0;
    for (load, share_min) in [(0.5, 0.99), (0.7, 0.99), (1.0, 0.0), (8.0, 0.0)] {
        let maps = (f64::from(machines.slots()) * load) as u32;
        for seed in seeds(15) {
            let inputs = machines.random_replicas(&mut fastrand::Rng::with_seed(seed), maps, 3);
            let rooms = machines.rooms();
            let placed = place(&inputs, &rooms);
            assert!(placed.iter().all(Option::is_some), "SIM_SEED={seed}");
            let is_local = |place: &&scheduler::PlacedTask| place.proximity == Proximity::OnReplica;
            let local = placed.iter().flatten().filter(is_local).count();
            let most = most_on_replicas(&inputs, &rooms);
            assert!(local <= most, "SIM_SEED={seed}: the matching is not the best");
            short += u32::from(most < maps as usize);
            assert!(local as f64 >= 0.99 * most as f64, "SIM_SEED={seed}: {local} of {most} at {load}");
            assert!(
                local as f64 >= share_min * f64::from(maps),
                "SIM_SEED={seed}: {local} of {maps} at {load}"
            );
        }
    }
    // Else the worlds are too easy to show anything.
    assert!(!is_whole() || short > 0);
}

fn job(seed: u64, assigning: Assigning, load: TaskLoad) -> MapTimes {
    let machines = Machines::of_100();
    let maps = machines.slots() * 7 / 10;
    let world = MapWorld { seed, machines, maps, replicas: 3, load, heartbeat_s: 1.0, assigning };
    told(seed, world, run_maps)
}

#[test]
fn heartbeats_take_longer_than_greedy_placement() {
    for seed in seeds(15) {
        let (heartbeats, greedy) =
            (job(seed, Assigning::AtHeartbeats, LOAD), job(seed, Assigning::Greedy, LOAD));
        assert_eq!((greedy.on_replica, greedy.moved_bytes), (140, 0.0), "SIM_SEED={seed}");
        assert!(heartbeats.on_replica < 140, "SIM_SEED={seed}");
        let ratio = heartbeats.job_s / greedy.job_s;
        assert!(ratio >= 1.3, "SIM_SEED={seed}: {ratio}, {heartbeats:?}, {greedy:?}");
    }
}

#[test]
fn shared_input_spreads_in_little_time() {
    let machines = Machines::of_100();
    let copies = [1, 2, 4].map(FirstCopies::Random).into_iter().chain([FirstCopies::OnePerRack]);
    for copies in copies {
        for readers in [4, 16, 64] {
            for seed in seeds(15) {
                let ratio = |spreading| {
                    let input = SharedInput { seed, machines, bytes: GB, readers, copies, spreading };
                    told(seed, input, spread) / seconds_of_one_copy(machines, GB)
                };
                let (tree, two) = (ratio(Spreading::Tree), ratio(Spreading::TwoTrees));
                assert!((0.999..=3.0).contains(&tree), "SIM_SEED={seed}: {tree} to {readers}, {copies:?}");
                assert!((0.999..=2.0).contains(&two), "SIM_SEED={seed}: {two} to {readers}, {copies:?}");
            }
        }
    }
}

#[test]
fn one_server_of_all_takes_longest() {
    let (machines, copies, spreading) =
        (Machines::of_100(), FirstCopies::Random(1), Spreading::FirstCopiesOnly);
    for readers in [1, 4, 64] {
        let seconds = spread(SharedInput { seed: 1, machines, bytes: GB, readers, copies, spreading });
        let expected_s = f64::from(readers) * seconds_of_one_copy(machines, GB);
        assert!((seconds - expected_s).abs() < 0.01 * expected_s, "{seconds} s to {readers}");
    }
}

/// Two racks of one node with one slot each; disks of 100 MB/s, links of 50 MB/s, uplinks of 20 MB/s.
fn two_nodes() -> Machines {
    Machines {
        racks: 2,
        nodes_per_rack: 1,
        slots_per_node: 1,
        disk_bytes_per_second: 100e6,
        link_bytes_per_second: 50e6,
        uplink_bytes_per_second: 20e6,
    }
}

#[track_caller]
fn check_job(maps: u32, load: TaskLoad, expected_s: f64) {
    let (machines, assigning) = (two_nodes(), Assigning::Greedy);
    let seen =
        run_maps(MapWorld { seed: 3, machines, maps, replicas: 2, load, heartbeat_s: 0.01, assigning });
    assert!((seen.job_s - expected_s).abs() < 0.05 * expected_s, "{seen:?}, not {expected_s} s");
}

#[test]
fn slowest_part_of_a_task_sets_its_pace() {
    check_job(1, LOAD, 10.0);
    check_job(1, TaskLoad { work_s: 30.0, ..LOAD }, 30.0);
    // The disk writes as well.
    check_job(1, TaskLoad { written_bytes: GB, ..LOAD }, 20.0);
    // The output has a second replica in the other rack.
    check_job(1, TaskLoad { written_bytes: GB, output_replicas: 2, ..LOAD }, 50.0);
    // Waves.
    check_job(6, LOAD, 30.0);
}

#[test]
fn remote_reader_has_the_speed_of_uplinks() {
    let (machines, assigning) = (two_nodes(), Assigning::Greedy);
    let world =
        |seed| MapWorld { seed, machines, maps: 2, replicas: 1, load: LOAD, heartbeat_s: 0.01, assigning };
    let (mut apart, mut together) = (0, 0);
    for seed in 0..20 {
        let seen = run_maps(world(seed));
        let is_apart = seen.moved_bytes == 0.0;
        let expected_s = if is_apart { 10.0 } else { 50.0 };
        assert!((seen.job_s - expected_s).abs() < 0.5, "SIM_SEED={seed}: {seen:?}");
        (apart, together) = (apart + u32::from(is_apart), together + u32::from(!is_apart));
    }
    assert!(apart > 0 && together > 0);
}

#[test]
fn world_is_reproducible_by_its_seed() {
    for assigning in [Assigning::AtHeartbeats, Assigning::NearReplicas, Assigning::Greedy] {
        assert_eq!(job(7, assigning, LOAD), job(7, assigning, LOAD));
        assert_ne!(job(7, assigning, LOAD), job(8, assigning, LOAD));
    }
}
