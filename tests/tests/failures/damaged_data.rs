//! Intermediate data that lies on a disk is flipped, cut short, overwritten or taken away before it is read: the map tasks behind it
//! run again, and the output is what it would have been.

use blackbox::{
    Cluster, Event, Questions, Random, Running, Sandbox, WAITS_AT_ITS_END, run_files, wait_until,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// So many jobs here, half as many in a cluster; each has three run files damaged, or more.
const SEEDS: u64 = 12;
/// Enough for some chunks of 16 MiB, which is their size in this little memory.
const LINES: u32 = 1_150_000;
const RUNS_MIN: usize = 3;
/// Damage to a run file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    CutShort,
    Overwrite,
    TakeAway,
}

impl Damage {
    fn choose(random: &mut Random) -> Damage {
        [Self::Flip, Self::Flip, Self::Flip, Self::CutShort, Self::Overwrite, Self::TakeAway]
            [random.below(6) as usize]
    }

    fn strike(self, path: &Path, random: &mut Random) {
        println!("{self:?} {}", path.display());
        if let Self::TakeAway = self {
            return std::fs::remove_file(path).expect("a file is taken away");
        }
        let file = OpenOptions::new().read(true).write(true).open(path).expect("a run file opens");
        let bytes = file.metadata().expect("it has a size").len();
        let at = random.below(bytes - 64);
        match self {
            Self::CutShort => file.set_len(at).expect("a file is cut"),
            Self::Overwrite => file.write_all_at(&[0x5a; 64], at).expect("a file is written to"),
            Self::Flip | Self::TakeAway => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("a byte is read");
                byte[0] ^= 1 << random.below(8);
                file.write_all_at(&byte, at).expect("a byte is written");
            }
        }
    }
}

const ARGS: [&str; 7] = ["--input", "in.txt", "--keep-ifiles", "--memory", "64M", "--slots", "2"];

fn write_input(sandbox: &Sandbox) {
    let mut text = String::new();
    for number in 0..LINES {
        let key = number.wrapping_mul(2_654_435_761) % LINES;
        writeln!(text, "{key:07}\tthe value of the line with the number {number:07}")
            .expect("a string takes all");
    }
    sandbox.write("in.txt", text);
}

/// The output of a job to which nothing happens.
fn undisturbed(sandbox: &Sandbox) -> Vec<u8> {
    let plain = ["run", "--input", "in.txt", "--memory", "64M", "--slots", "2", "--output", "plain"];
    Running::start(sandbox.sailfish().args(plain)).wait().expect_success();
    sandbox.concatenated(&sandbox.path("plain"))
}

/// A job that runs, and the files of its runs that were whole while its maps waited.
struct Waiting<'a> {
    sandbox: &'a Sandbox,
    job: Running,
    runs: Vec<PathBuf>,
}

impl<'a> Waiting<'a> {
    fn start(sandbox: &'a Sandbox, mut command: Command) -> Waiting<'a> {
        let before: BTreeSet<PathBuf> = run_files(&sandbox.path("")).into_iter().collect();
        let last = format!("{:07}", LINES - 1);
        let mapper = sandbox.program("mapper.sh", &WAITS_AT_ITS_END.replace("LAST", &last));
        let job = Running::start(command.args(ARGS).arg("--mapper").arg(mapper));
        let mut runs = Vec::new();
        wait_until("enough runs are whole", || {
            runs = run_files(&sandbox.path(""));
            runs.retain(|run| !before.contains(run) && is_whole(sandbox, run));
            runs.len() >= RUNS_MIN
        });
        Waiting { sandbox, job, runs }
    }

    fn damage_all(self, random: &mut Random) -> Running {
        self.runs.iter().for_each(|run| Damage::choose(random).strike(run, random));
        self.let_go()
    }

    fn let_go(self) -> Running {
        self.sandbox.open_gate();
        self.job
    }
}

fn is_whole(sandbox: &Sandbox, run: &Path) -> bool {
    let path = run.to_str().expect("a sandbox has a plain path");
    sandbox.sailfish_with(&["ifile", "verify", path]).code() == Some(0)
}

fn check_output(sandbox: &Sandbox, job: Running, output: &str, expected: &[u8]) {
    job.wait().expect_success();
    assert!(sandbox.concatenated(&sandbox.path(output)) == expected, "{output} differs");
    sandbox.close_gate();
}

#[test]
fn damaged_runs_are_made_again() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    let expected = undisturbed(&sandbox);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let output = format!("out-{seed}");
        let waiting = Waiting::start(&sandbox, sandbox.job(&["--output", &output]));
        let job = waiting.damage_all(&mut Random::new(seed));
        check_output(&sandbox, job, &output, &expected);
    }
}

/// Read over the network, where the reader finds it, or the node that has it.
#[test]
fn damaged_runs_of_other_nodes_are_made_again() {
    let cluster = Cluster::builder().nodes(3).start();
    let sandbox = &cluster.sandbox;
    write_input(sandbox);
    let expected = undisturbed(sandbox);
    for seed in 100..100 + SEEDS / 2 {
        println!("seed {seed}");
        let output = format!("out-{seed}");
        let waiting = Waiting::start(sandbox, cluster.sailfish(&["run", "--output", &output]));
        let job = waiting.damage_all(&mut Random::new(seed));
        check_output(sandbox, job, &output, &expected);
    }
    let refused = cluster.events(Event::StandInRefused).saying("other data");
    assert_eq!(refused.count(), 0, "maps that give the same data were taken for others");
}

#[test]
fn lost_disk_takes_all_its_runs_at_once() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    let expected = undisturbed(&sandbox);
    for disk in ["disk-a", "disk-b"] {
        std::fs::create_dir_all(sandbox.path(disk)).expect("our own directory takes another");
    }
    let disks = ["run", "--state", "state", "--output", "out", "--disk", "disk-a", "--disk", "disk-b"];
    let mut command = sandbox.sailfish();
    command.args(disks);
    let waiting = Waiting::start(&sandbox, command);
    let gone: Vec<&PathBuf> =
        waiting.runs.iter().filter(|run| run.starts_with(sandbox.path("disk-a"))).collect();
    assert!(!gone.is_empty() && gone.len() < waiting.runs.len(), "{:?}", waiting.runs);
    gone.iter().for_each(|run| std::fs::remove_file(run).expect("a file is taken away"));
    let told = format!("with {} runs", gone.len());
    check_output(&sandbox, waiting.let_go(), "out", &expected);
    let losses = sandbox.events(Event::DataLost).details();
    assert!(losses.len() == 1 && losses[0].starts_with(&told), "{losses:?}");
}

#[test]
fn job_without_regenerations_names_the_lost_data() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    let waiting = Waiting::start(&sandbox, sandbox.job(&["--max-regenerations", "0"]));
    waiting.runs.iter().for_each(|run| std::fs::remove_file(run).expect("a file is taken away"));
    let failed = waiting.let_go().wait();
    failed.expect_failure(1, &["lost", "--max-regenerations 0", ".ifile"]);
    assert!(!sandbox.out().exists());
}
