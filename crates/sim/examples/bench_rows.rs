//! The rows of the table of `bench/failures.sh` that come from the simulator: `window`, `interference`, `speculation`, or all.
//! One row a line, in columns: name, value, unit, must, aim, paper.

use sim::{Copies, Copying, Racks, Stragglers, copies, race};
use std::fmt::Display;

/// Duration of the map phase in the figures of ISS, if only the programs limit it.
const MAP_SECONDS: f64 = 400.0;
/// Duration of the map phase if the programs do next to nothing, so that the job waits for links and disks only.
const MAP_SECONDS_FAST: f64 = 20.0;
const LINKS: [(&str, f64); 2] = [("100 Mbit/s", 100e6), ("1 Gbit/s", 1e9)];
const WORLDS: u64 = 60;

fn row(name: impl Display, value: impl Display, unit: &str, must: &str, aim: &str, paper: &str) {
    println!("{name}\t{value}\t{unit}\t{must}\t{aim}\t{paper}");
}

fn seconds(name: impl Display, seconds: f64, paper: &str) {
    row(name, format_args!("{seconds:.1}"), "s", "-", "-", paper);
}

fn window() {
    for (link, bits_per_second) in LINKS {
        for (programs, map_seconds) in
            [("as in the paper", MAP_SECONDS), ("that do nothing", MAP_SECONDS_FAST)]
        {
            let name = format!("window (sim), 80 nodes, {link}, programs {programs}");
            // Asked for where programs are as in the paper.
            let must = if map_seconds == MAP_SECONDS { ">1" } else { "-" };
            window_of(&name, must, bits_per_second, map_seconds);
        }
    }
}

fn window_of(name: &str, must: &str, bits_per_second: f64, map_seconds: f64) {
    let seen = copies(Racks::of_the_paper(bits_per_second, map_seconds));
    let share = |by_s: f64| format!("{:.3}", seen.share_copied(by_s));
    row(
        format_args!("{name}: runs on two nodes before the reduce phase ends"),
        share(seen.job_s),
        "ratio",
        must,
        "-",
        "all",
    );
    row("  when the last record was appended", share(seen.maps_end_s), "ratio", "-", "-", "-");
    seconds("  on one node only, median", seen.single_s(0.5), "-");
    seconds("  on one node only, at most", seen.single_s(1.0), "-");
    let last = seen.copied_s.iter().copied().fold(0.0, f64::max);
    let paper = if bits_per_second < 1e9 { "950" } else { "850" };
    seconds("  the last one had its replica", last, paper);
    seconds("  the last record was appended", seen.maps_end_s, "-");
    seconds("  the job was over", seen.job_s, "-");
}

fn interference() {
    for (link, bits_per_second) in LINKS {
        for (programs, map_seconds) in
            [("as in the paper", MAP_SECONDS), ("that do nothing", MAP_SECONDS_FAST)]
        {
            let of = |copying| copies(Racks { copying, ..Racks::of_the_paper(bits_per_second, map_seconds) });
            let none: Copies = of(Copying::None);
            for (words, copying) in [
                ("read only", Copying::Read),
                ("read and sent", Copying::ReadAndSend),
                ("full", Copying::Full),
            ] {
                let name =
                    format!("interference (sim), 80 nodes, {link}, programs {programs}: {words} / none");
                row(name, format_args!("{:.3}", of(copying).job_s / none.job_s), "ratio", "-", "-", "-");
            }
        }
    }
}

fn speculation() {
    let (mut all_ns, mut copies_ns) = (0, 0);
    for seed in 0..WORLDS {
        let noise = [0.05, 0.15, 0.25, 0.4][seed as usize % 4];
        let raced = race(Stragglers { seed, noise, tasks: 60, ..Stragglers::default() });
        (all_ns, copies_ns) = (all_ns + raced.all_ns, copies_ns + raced.copies_ns);
    }
    let share = copies_ns as f64 / all_ns as f64;
    row(
        "no straggler (sim): task-seconds of copies / of all",
        format_args!("{share:.4}"),
        "ratio",
        "0.03",
        "0.01",
        "-",
    );
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let rows: [(&str, fn()); 3] =
        [("window", window), ("interference", interference), ("speculation", speculation)];
    for (name, print) in rows {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            print();
        }
    }
}
