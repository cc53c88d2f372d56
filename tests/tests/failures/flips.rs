//! Fifty flips end to end: bits of what lies on the disks of nodes change while a job waits, in runs and their replicas (blocks, key
//! index, source table, header and footer) and in intermediate files between stages. The output is what it would have been: what has
//! another copy is read there, what has none is made again. Decoders have theirs in `crates/ifile` and `crates/stagefile`.
//!
//! `SAILFISH_FLIP_SEED=N cargo test --workspace --locked --test flips` chooses the same bits again.

use blackbox::flow::{GATED, assert_as_embedded, stage_files, write_flow, write_input};
use blackbox::{Cluster, Event, Questions, Random, Running, State, WAITS_AT_ITS_END, run_files, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const FLIPS_MIN: usize = 50;
const FLOWS: usize = 4;
const JOBS: usize = 5;
const WAVES: usize = 2;
const PARTS: i64 = 6;
const FOOTER_BYTES: u64 = 128;
const HEADER_BYTES: u64 = 64;

/// One byte of a file changes.
fn flip(path: &Path, at: u64, random: &mut Random) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file of a node opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte is read");
    byte[0] ^= 1 << random.below(8);
    file.write_all_at(&byte, at).expect("a byte is written");
}

fn size(path: &Path) -> u64 {
    path.metadata().expect("a file of a node has a size").len()
}

/// A byte of a run, in a region that the random numbers choose.
fn place_in_run(path: &Path, random: &mut Random) -> (&'static str, u64) {
    let bytes = std::fs::read(path).expect("a run is read");
    let size = bytes.len() as u64;
    let field = |offset: u64| {
        let at = (size - FOOTER_BYTES + offset) as usize;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let (index, sources, footer) = (field(16), field(40), size - FOOTER_BYTES);
    let regions = [
        ("header", 0..HEADER_BYTES),
        ("block", HEADER_BYTES..index),
        ("block", HEADER_BYTES..index),
        ("index", index..sources),
        ("sources", sources..footer),
        ("footer", footer..size),
    ];
    let (region, range) = random.one_of(&regions).clone();
    (region, range.start + random.below(range.end - range.start))
}

/// Counts of flips by kind of file, and of their effects.
#[derive(Default)]
struct Tally {
    flips: BTreeMap<String, usize>,
    /// Files with one damaged copy, and with no other.
    one_copy: usize,
    all_copies: usize,
    made_again: i64,
}

impl Tally {
    fn count(&mut self, kind: String) {
        *self.flips.entry(kind).or_default() += 1;
    }

    fn all(&self) -> usize {
        self.flips.values().sum()
    }
}

fn seed() -> u64 {
    let named = std::env::var("SAILFISH_FLIP_SEED").ok().and_then(|text| text.parse().ok());
    let seed = named.unwrap_or(7);
    println!("SAILFISH_FLIP_SEED={seed}");
    seed
}

/// So many times the nodes told it.
fn told(cluster: &Cluster, text: &str) -> usize {
    (0..3).map(|node| cluster.node(node).stderr_so_far().matches(text).count()).sum()
}

/// The number of the job that a client told of.
fn first_job(flow: &Running) -> i64 {
    flow.wait_for_stderr("stage words is done");
    let told = flow.stderr_so_far();
    let (_, rest) = told.split_once("stage words (job ").expect("it has begun");
    rest.split(')').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Flows whose first stage rests and whose second is held by a gate: bits of parts change.
fn flip_parts(cluster: &Cluster, random: &mut Random, tally: &mut Tally) {
    let mut flows = Vec::new();
    for number in 0..FLOWS {
        let (file, output) = (format!("flow-{number}.toml"), format!("flow-out-{number}"));
        write_flow(&cluster.sandbox, &file, &GATED.replace("MODE", "rack"), &output);
        flows.push(Running::start(&mut cluster.sailfish(&["run", "--job", &file])));
    }
    let jobs: Vec<i64> = flows.iter().map(first_job).collect();
    cluster.part_replicas().wait_for(PARTS * FLOWS as i64);
    let mut lost = BTreeMap::new();
    for job in &jobs {
        for (name, copies) in stage_files(&cluster.sandbox, *job) {
            assert_eq!(copies.len(), 2, "{name} of job {job}: {copies:?}");
            let struck: Vec<&PathBuf> = match random.below(3) {
                0 => copies.iter().collect(),
                _ => vec![random.one_of::<PathBuf>(&copies)],
            };
            for path in &struck {
                let at = random.below(size(path));
                println!("byte {at} of {}", path.display());
                flip(path, at, random);
                tally.count("part".to_string());
            }
            match struck.len() {
                1 => tally.one_copy += 1,
                _ => *lost.entry(*job).or_insert(0) += 1,
            }
        }
    }
    cluster.sandbox.open_gate();
    flows.into_iter().for_each(|flow| drop(flow.wait().expect_success()));
    for number in 0..FLOWS {
        assert_as_embedded(&cluster.sandbox, &format!("flow-{number}.toml"), &format!("flow-out-{number}"));
    }
    // What had another copy was read there; what had none was made again, and nothing else.
    for job in jobs {
        let again = cluster.attempts().of_job(job).again().tasks().len() as i64;
        let lost = lost.get(&job).copied().unwrap_or(0);
        assert_eq!(again, lost, "of job {job} {lost} parts had both copies damaged");
        tally.made_again += again;
        tally.all_copies += lost as usize;
    }
}

fn write_runs_input(cluster: &Cluster) -> String {
    cluster.sandbox.write_numbers(3, 1 << 14, 54);
    cluster.sandbox.write("in/3.txt", "99999999\tLAST\n");
    cluster.sandbox.program("mapper.sh", WAITS_AT_ITS_END)
}

/// Runs of a job, each with its replica: by the name, which is the same.
fn runs_of(cluster: &Cluster, job: i64) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let of_job = format!("-job{job}/");
    for path in run_files(&cluster.sandbox.path("")) {
        if path.to_string_lossy().contains(&of_job) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.entry(name).or_default().push(path);
        }
    }
    found
}

/// Jobs whose maps are not over, and whose runs so far lie on two nodes.
fn flip_runs(cluster: &Cluster, mapper: &str, random: &mut Random, tally: &mut Tally) {
    let before = cluster.last_job();
    cluster.sandbox.close_gate();
    let mut jobs = Vec::new();
    for number in 1..=JOBS as i64 {
        let output = format!("out-{}", before + number);
        let args = ["run", "--memory", "64M", "--slots", "2", "--total-order", "--replication", "rack"];
        let more = ["--input", "in", "--mapper", mapper, "--output", &output];
        jobs.push(Running::start(&mut cluster.sailfish(&[&args[..], &more].concat())));
    }
    let with_replicas = cluster.replicas().of_jobs_after(before).is(State::Complete);
    wait_until("each job has a replica", || with_replicas.jobs().len() == JOBS);
    let mut broken = BTreeSet::new();
    for job in before + 1..=before + JOBS as i64 {
        for (name, copies) in runs_of(cluster, job) {
            println!("job {job}: {name}: {copies:?}");
            let strikes_all = random.below(3) == 0;
            let struck: Vec<&PathBuf> =
                if strikes_all { copies.iter().collect() } else { vec![random.one_of::<PathBuf>(&copies)] };
            for path in &struck {
                for _ in 0..2 {
                    let (region, at) = place_in_run(path, random);
                    println!("byte {at} ({region}) of {}", path.display());
                    flip(path, at, random);
                    tally.count(format!("run: {region}"));
                }
            }
            match struck.len() == copies.len() {
                false => tally.one_copy += 1,
                true => {
                    tally.all_copies += 1;
                    broken.insert(job);
                }
            }
        }
    }
    cluster.sandbox.open_gate();
    jobs.into_iter().for_each(|job| drop(job.wait().expect_success()));
    let expected = cluster.sandbox.path("undisturbed");
    if !expected.exists() {
        let args = ["--memory", "64M", "--slots", "2", "--total-order", "--input", "in", "--mapper", mapper];
        cluster.sandbox.run_job(&[&args[..], &["--output", "undisturbed"]].concat()).expect_success();
    }
    for job in before + 1..=before + JOBS as i64 {
        let output = cluster.sandbox.path(&format!("out-{job}"));
        let same = cluster.sandbox.concatenated(&output) == cluster.sandbox.concatenated(&expected);
        assert!(same, "the output of job {job} differs");
    }
    for job in (before + 1..=before + JOBS as i64).filter(|job| !broken.contains(job)) {
        let lost = cluster.events(Event::DataLost).of_job(job).count();
        assert_eq!(lost, 0, "of job {job} one copy of each run was as it was");
    }
}

#[test]
fn fifty_flips_lose_nothing() {
    let mut random = Random::new(seed());
    let log = vec![("SAILFISH_LOG".to_string(), "info".to_string())];
    let cluster = Cluster::builder().nodes(3).environment(log).start();
    let mut tally = Tally::default();
    let mapper = write_runs_input(&cluster);
    (0..WAVES).for_each(|_| flip_runs(&cluster, &mapper, &mut random, &mut tally));
    cluster.sandbox.close_gate();
    std::fs::remove_dir_all(cluster.sandbox.path("in")).expect("our own input");
    write_input(&cluster.sandbox);
    flip_parts(&cluster, &mut random, &mut tally);
    let (parts, runs) = (told(&cluster, "was read elsewhere"), told(&cluster, "read at their replicas"));
    let standing = cluster.events(Event::ReplicasStandIn).count();
    let lost = cluster.events(Event::DataLost).count();
    println!("{:?}: {} flips", tally.flips, tally.all());
    println!("files with one damaged copy of two: {}, with none left: {}", tally.one_copy, tally.all_copies);
    println!("parts read at their other copy: {parts}; attempts that read runs on at replicas: {runs}");
    println!("replicas that stand in: {standing}; losses: {lost}");
    println!("parts made again: {}", tally.made_again);
    assert!(tally.all() >= FLIPS_MIN, "{} flips", tally.all());
}
