//! Races: an attempt that was slow and its copy come to their end in the same moment. One of the two counts, whichever it is: the
//! output is what it would have been, each record once, and the proof is the same. The simulator runs 500 (`crates/sim`).

use blackbox::{CLUSTER_MEMORY, Cluster, Questions, Running, Stage, State, wait_until};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// Least number of races, of maps and of reduces together.
const RACES_MIN: i64 = 20;
/// Clusters at the same time, and jobs of each; a job has four races.
const CLUSTERS: usize = 2;
const JOBS: i64 = 3;
const FILES: usize = 12;
/// Enough for a map task of each file.
const LINES: usize = 1 << 14;
const PARTITIONS: &str = "12";

/// Hands on what it reads: on the slow node in pieces, one in a second, until the gate of its stage is open. A second attempt
/// waits there too, by turns before it hands on everything and after that: so both come to their ends within some milliseconds.
const RUNNER: &str = "#!/bin/sh
gate=HERE/gate-$SAILFISH_JOB-$1
if [ $SAILFISH_ATTEMPT -gt 0 ]; then
  [ $((SAILFISH_TASK % 2)) = 0 ] && cat
  flock -s $gate true
  exec cat
fi
case $PWD in
*/node-disk-2/*) while ! flock -w 1 -s $gate true; do head -c 65536 > piece; cat piece; done ;;
*/node-disk-*) sleep 0.5 ;;
esac
exec cat
";

/// Gate that lets both attempts of each task of a stage go on at once.
struct Gate(File);

impl Gate {
    fn closed(cluster: &Cluster, job: i64, stage: &str) -> Gate {
        let path = cluster.sandbox.write(&format!("gate-{job}-{stage}"), "");
        let file = File::open(path).expect("our own file opens");
        flock(&file, FlockOperation::LockExclusive).expect("nobody else has it yet");
        Gate(file)
    }

    fn open(self) {
        flock(&self.0, FlockOperation::Unlock).expect("our own lock is given back");
    }
}

/// How races went.
#[derive(Clone, Copy, Debug, Default)]
struct Raced {
    races: i64,
    won_by_copies: i64,
    /// Attempts that came to their end although the other one had won.
    ran_to_both_ends: i64,
}

struct Track {
    cluster: Cluster,
    mapper: String,
    reducer: String,
}

impl Track {
    fn new() -> Track {
        let cluster = Cluster::builder().nodes(3).start();
        cluster.sandbox.write_numbers(FILES, LINES, 54);
        let runner = cluster.sandbox.program("runner.sh", RUNNER);
        Track { cluster, mapper: format!("{runner} map"), reducer: format!("{runner} reduce") }
    }

    fn args(&self) -> [&str; 8] {
        ["--input", "in", "--mapper", &self.mapper, "--reducer", &self.reducer, "--partitions", PARTITIONS]
    }

    /// Lets a stage go when all tasks that are left of it run twice.
    fn race(&self, gate: Gate, job: i64, stage: Stage) {
        wait_until("all open tasks run twice", || self.cluster.all_open_tasks_run_twice(job, stage));
        gate.open();
    }

    fn run(&self, job: i64) -> Raced {
        let gates = [("map", Stage::Map), ("reduce", Stage::Reduce)]
            .map(|(name, stage)| (Gate::closed(&self.cluster, job, name), stage));
        let output = format!("out-{job}");
        let args = [&self.args()[..], &["--output", &output]].concat();
        let running = Running::start(&mut self.cluster.job(&args));
        gates.into_iter().for_each(|(gate, stage)| self.race(gate, job, stage));
        running.wait().expect_success();
        self.check_winners(job);
        self.check_output(job, &output);
        self.raced(job)
    }

    /// Checks that one attempt of each task counts, and that only its data is left.
    fn check_winners(&self, job: i64) {
        self.cluster.assert_one_winner_each(job);
        assert_eq!(self.cluster.sources().of_job(job).map_tasks().len(), FILES);
    }

    /// It is that of one machine, and so is the proof.
    fn check_output(&self, job: i64, output: &str) {
        let sandbox = &self.cluster.sandbox;
        let reference = sandbox.path("embedded");
        if !reference.exists() {
            let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
            sandbox.run_job(&[&self.args()[..], &own].concat()).expect_success();
        }
        let output = sandbox.path(output);
        assert_eq!(sandbox.part_names(&output), sandbox.part_names(&reference));
        assert!(sandbox.concatenated(&output) == sandbox.concatenated(&reference), "the outputs differ");
        let expected = sandbox.proof_rows(1);
        assert_eq!(self.cluster.proof_rows(job), expected);
        assert!(!expected.is_empty() && expected.iter().all(|row| row["committed"] == row["merged"]));
    }

    fn raced(&self, job: i64) -> Raced {
        Raced {
            races: self.cluster.attempts().of_job(job).again().count(),
            won_by_copies: self.cluster.tasks().of_job(job).won_by_copies().count(),
            ran_to_both_ends: self.cluster.attempts().of_job(job).is(State::Discarded).count(),
        }
    }
}

#[test]
fn each_task_commits_once_in_a_race() {
    let tracks: Vec<Vec<Raced>> = std::thread::scope(|scope| {
        let run = || {
            let track = Track::new();
            (1..=JOBS).map(|job| track.run(job)).collect()
        };
        let tracks: Vec<_> = (0..CLUSTERS).map(|_| scope.spawn(run)).collect();
        tracks
            .into_iter()
            .map(|track| track.join().expect("what a thread says of a race is told already"))
            .collect()
    });
    let all = tracks.iter().flatten();
    let sum = |of: fn(&Raced) -> i64| all.clone().map(of).sum::<i64>();
    let (races, won) = (sum(|raced| raced.races), sum(|raced| raced.won_by_copies));
    let both = sum(|raced| raced.ran_to_both_ends);
    println!("{races} races, {won} won by the copy, {both} ran to both ends");
    assert!(races >= RACES_MIN, "{races} races");
}
