//! A node dies with a part of the data between map and reduce: that part is made again, and no more, where maps give the same data
//! each time they run.

use blackbox::{Cluster, Event, Questions, Running, Stage, State};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::fs::FileExt;

const PARTITIONS: i64 = 6;
/// So much input makes three I-files where memory allows them. Most of it is a hole.
const PADDING_BYTES: u64 = 300 << 20;
const LINE_BYTES: u64 = 1 << 20;
const NUMBERS: usize = 40_000;
/// Leaves out the padding, and adds a word to each line that is given in place of WORD.
const MAPPER: &str = "#!/bin/sh\nword=WORD\ntr -d '\\000' | sed \"/^$/d; s/$/ $word/\"\n";
/// Hands on what it reads, when its partition or everybody is let go.
const REDUCER: &str = "#!/bin/sh\nuntil [ -e HERE/go-$mapreduce_task_partition ] || [ -e HERE/go ]; do sleep 0.05; done\nexec cat\n";
/// A job whose reducers all run and wait, and what of it is on the node that will die.
struct Reducing {
    cluster: Cluster,
    job: Running,
    mapper: String,
    lost_ifiles: BTreeSet<i64>,
    /// Partitions of those I-files, and the others.
    lost: Vec<i64>,
    safe: Vec<i64>,
}

impl Reducing {
    fn start(word: &str) -> Reducing {
        let cluster = Cluster::builder().nodes(3).start();
        write_padding(&cluster);
        write_numbers(&cluster);
        let mapper = cluster.sandbox.program("mapper.sh", &MAPPER.replace("WORD", word));
        let reducer = cluster.sandbox.program("reducer.sh", REDUCER);
        let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &reducer, "out")));
        cluster.attempts().in_stage(Stage::Reduce).is(State::Running).wait_for(PARTITIONS);
        let all = cluster.sources().ifiles();
        let lost_ifiles = cluster.sources().on_node(0).ifiles();
        assert!(!lost_ifiles.is_empty() && lost_ifiles.len() < all.len(), "{lost_ifiles:?} of {all:?}");
        let (lost, safe) = cluster
            .ifiles_of_partitions()
            .into_iter()
            .zip(0..)
            .partition::<Vec<_>, _>(|(ifile, _)| lost_ifiles.contains(ifile));
        let parts = |rows: Vec<(i64, i64)>| rows.into_iter().map(|(_, part)| part).collect::<Vec<_>>();
        let (lost, safe) = (parts(lost), parts(safe));
        assert!(lost.len() > 1 && safe.len() > 1, "{lost:?} {safe:?}");
        Reducing { cluster, job, mapper, lost_ifiles, lost, safe }
    }

    /// Lets a reducer of either kind end.
    fn end_one_of_each(&self) {
        for part in [self.lost[0], self.safe[0]] {
            self.cluster.sandbox.write(&format!("go-{part}"), "");
        }
        self.cluster.tasks().in_stage(Stage::Reduce).is(State::Done).wait_for(2);
    }

    fn lose_the_node(&mut self) {
        self.cluster.kill_node();
        self.cluster.events(Event::DataLost).wait_for_some();
    }

    /// Lets all go on, until the job is over.
    fn finish(self) -> (Cluster, String) {
        self.cluster.sandbox.open_gate();
        self.job.wait().expect_success();
        (self.cluster, self.mapper)
    }
}

fn write_padding(cluster: &Cluster) {
    let path = cluster.sandbox.write("in/padding.txt", "");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("our own file opens");
    for line in 1..=PADDING_BYTES / LINE_BYTES {
        file.write_all_at(b"\n", line * LINE_BYTES - 1).expect("a line is written");
    }
}

fn write_numbers(cluster: &Cluster) {
    for file in 0..4 {
        let mut text = String::new();
        for number in (file..NUMBERS).step_by(4) {
            writeln!(text, "{}\t{number}", number * 7919 % NUMBERS).expect("a string takes all");
        }
        cluster.sandbox.write(&format!("in/{file}.txt"), text);
    }
}

fn streaming<'a>(mapper: &'a str, reducer: &'a str, output: &'a str) -> Vec<&'a str> {
    let sizes = ["-D", "mapreduce.job.reduces=6", "--memory", "768M", "-input", "in"];
    let own = ["-output", output, "-mapper", mapper, "-reducer", reducer];
    ["streaming"].into_iter().chain(sizes).chain(own).collect()
}

/// The numbers of the attempts of a reduce task in a state.
fn attempts(cluster: &Cluster, part: i64, state: State) -> Vec<i64> {
    cluster.attempts().in_stage(Stage::Reduce).of_task(part).is(state).attempts()
}

fn assert_right(cluster: &Cluster, mapper: &str) {
    let mut embedded = cluster.sandbox.sailfish();
    Running::start(embedded.args(streaming(mapper, "cat", "embedded"))).wait().expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
}

/// Maps ran again for the I-files that lost data, and what they had put into the others counts.
fn assert_only_lost_ifiles_were_made(cluster: &Cluster, lost_ifiles: &BTreeSet<i64>) {
    let again = cluster.sources().again().ifiles();
    assert_eq!(&again, lost_ifiles);
    let first = cluster.sources().first().ifiles();
    assert!(first.is_disjoint(&again) && !first.is_empty(), "{first:?} {again:?}");
}

#[test]
fn lost_node_reruns_only_its_partitions() {
    let mut reducing = Reducing::start("same");
    reducing.end_one_of_each();
    let died = reducing.cluster.attempts().in_stage(Stage::Reduce).on_node(0).tasks();
    reducing.lose_the_node();
    // Reducers of what is lost, which hang on other nodes, are told to stop: their slots go to what is made again.
    let hang = reducing.lost[1..].iter().any(|part| !died.contains(part));
    if hang {
        let again = reducing.cluster.attempts().in_stage(Stage::Map).again();
        again.is(State::Succeeded).wait_for_some();
    }
    let (lost, safe, lost_ifiles) =
        (reducing.lost.clone(), reducing.safe.clone(), reducing.lost_ifiles.clone());
    let (cluster, mapper) = reducing.finish();
    assert_only_lost_ifiles_were_made(&cluster, &lost_ifiles);
    for part in [lost[0], safe[0]].into_iter().chain(safe.iter().copied().filter(|part| !died.contains(part)))
    {
        assert_eq!(attempts(&cluster, part, State::Succeeded), [0], "reduce task {part} ran again");
    }
    for part in lost[1..].iter().filter(|part| !died.contains(part)) {
        assert_eq!(
            attempts(&cluster, *part, State::Discarded),
            [0],
            "reduce task {part} read what was no more"
        );
    }
    let told = cluster.explain(1);
    assert!(told.contains("run again") && told.contains("stay valid"), "{told}");
    assert_right(&cluster, &mapper);
}

/// The server dies as well, right then: the next one knows what stands.
#[test]
fn intact_results_outlive_the_server() {
    let mut reducing = Reducing::start("same");
    reducing.end_one_of_each();
    reducing.lose_the_node();
    reducing.cluster.restart_server();
    let done = [reducing.lost[0], reducing.safe[0]];
    let lost_ifiles = reducing.lost_ifiles.clone();
    let (cluster, mapper) = reducing.finish();
    assert_only_lost_ifiles_were_made(&cluster, &lost_ifiles);
    for part in done {
        assert_eq!(attempts(&cluster, part, State::Succeeded), [0], "reduce task {part} ran again");
    }
    assert_right(&cluster, &mapper);
}

/// A map that gives other data each time: nothing of it stands, nor what was reduced of it.
#[test]
fn maps_that_give_other_data_are_told_apart() {
    let mut reducing = Reducing::start("$(cat /proc/sys/kernel/random/uuid)");
    reducing.end_one_of_each();
    reducing.lose_the_node();
    let (cluster, _) = reducing.finish();
    assert!(cluster.events(Event::StandInRefused).any());
    let reduces = cluster.attempts().in_stage(Stage::Reduce).is(State::Succeeded);
    assert!(reduces.count() > PARTITIONS, "what was reduced of other data stands");
    // Each line once, and all lines of one map of one run of it.
    let lines = cluster.sandbox.output_lines(&cluster.sandbox.path("out"));
    let word =
        |place| lines.iter().filter_map(|line| line.split_whitespace().nth(place)).collect::<BTreeSet<_>>();
    assert_eq!((lines.len(), word(0).len()), (NUMBERS, NUMBERS));
    assert_eq!(word(2).len(), cluster.sources().map_tasks().len());
}

/// Reads all it is given, says so, and hands it on when everybody is let go.
const PATIENT_REDUCER: &str = "#!/bin/sh
lines=$(cat)
[ -e HERE/go ] || echo here > 'FIFO'
GATE
printf '%s\\n' \"$lines\"
";

/// Reducers that have read all they need are told to stop on a node that had nothing of the job before them. What the job has there
/// is not theirs: it goes on when they have stopped.
#[test]
fn node_works_on_after_stopped_first_attempts() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let lines: String = (0..200).map(|number| format!("{}\t{number}\n", number % 60)).collect();
    cluster.sandbox.write("in/0.txt", lines);
    let mut here = cluster.sandbox.fifo("here");
    let mapper = cluster.sandbox.program("mapper.sh", &MAPPER.replace("WORD", "same"));
    let reducer = cluster.sandbox.program("reducer.sh", &PATIENT_REDUCER.replace("FIFO", here.text()));
    let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &reducer, "out")));
    let slots = 2;
    (0..slots).for_each(|_| assert_eq!(here.read_line(), "here"));
    cluster.add_node();
    (0..slots).for_each(|_| assert_eq!(here.read_line(), "here"));
    cluster.kill_node();
    cluster.events(Event::DataLost).wait_for_some();
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    assert_eq!(cluster.attempts().in_stage(Stage::Reduce).is(State::Discarded).count(), slots);
    assert_right(&cluster, &mapper);
}
