//! A node dies with a part of the data between map and reduce: that part is made again, and no more, where maps give the same data
//! each time they run.

use blackbox::{Cluster, Running};
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
/// Chunks say their node in their upper bits.
const ON_DOOMED: &str = "chunk / 1099511627776 = (select node from nodes where name = 'node-0')";

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
        let script = |name, text: &str| {
            let program = cluster.sandbox.script(name, text);
            program.to_str().expect("a sandbox has a plain path").to_string()
        };
        let here = cluster.sandbox.path("");
        let mapper = script("mapper.sh", &MAPPER.replace("WORD", word));
        let reducer = script("reducer.sh", &REDUCER.replace("HERE", here.to_str().expect("a plain path")));
        let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &reducer, "out")));
        cluster.wait_for(&format!(
            "select count(*) = {PARTITIONS} from attempts where stage = 3 and state = 'running'"
        ));
        let all = numbers(&cluster, "select distinct ifile from sources");
        let lost_ifiles: BTreeSet<i64> =
            numbers(&cluster, &format!("select distinct ifile from sources where {ON_DOOMED}"))
                .into_iter()
                .collect();
        assert!(!lost_ifiles.is_empty() && lost_ifiles.len() < all.len(), "{lost_ifiles:?} of {all:?}");
        // A partition lies in one I-file: the list of its I-files is [N].
        let ifile_of =
            "select cast(trim(ifiles, '[]') as integer) from plan_tasks where version = 1 order by part";
        let (lost, safe) = numbers(&cluster, ifile_of)
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
        self.cluster.wait_for("select count(*) = 2 from tasks where stage = 3 and state = 'done'");
    }

    fn lose_the_node(&mut self) {
        self.cluster.kill_node();
        self.cluster.wait_for("select count(*) > 0 from events where kind = 'data lost'");
    }

    /// Lets all go on, until the job is over.
    fn finish(self) -> (Cluster, String) {
        self.cluster.sandbox.write("go", "");
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

/// The answer to a question with one column of numbers.
fn numbers(cluster: &Cluster, question: &str) -> Vec<i64> {
    let asked = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let json = asked.json();
    let rows = json.as_array().unwrap_or_else(|| panic!("{question} gives {json}"));
    let number = |row: &serde_json::Value| row.as_object()?.values().next()?.as_i64();
    rows.iter().map(|row| number(row).unwrap_or_else(|| panic!("{question} gives {json}"))).collect()
}

/// The numbers of the attempts of a reduce task in a state.
fn attempts(cluster: &Cluster, part: i64, state: &str) -> Vec<i64> {
    let of_part =
        format!("select attempt from attempts where stage = 3 and task = {part} and state = '{state}'");
    numbers(cluster, &of_part)
}

fn assert_right(cluster: &Cluster, mapper: &str) {
    let mut embedded = cluster.sandbox.sailfish();
    Running::start(embedded.args(streaming(mapper, "cat", "embedded"))).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}

/// Maps ran again for the I-files that lost data, and what they had put into the others counts.
fn assert_only_lost_ifiles_were_made(cluster: &Cluster, lost_ifiles: &BTreeSet<i64>) {
    let again: BTreeSet<i64> =
        numbers(cluster, "select distinct ifile from sources where attempt > 0").into_iter().collect();
    assert_eq!(&again, lost_ifiles);
    let first: BTreeSet<i64> =
        numbers(cluster, "select distinct ifile from sources where attempt = 0").into_iter().collect();
    assert!(first.is_disjoint(&again) && !first.is_empty(), "{first:?} {again:?}");
}

#[test]
fn only_what_was_lost_is_made_again_and_reducers_of_other_data_go_on() {
    let mut reducing = Reducing::start("same");
    reducing.end_one_of_each();
    let on_doomed =
        "select task from attempts where stage = 3 and node = (select node from nodes where name = 'node-0')";
    let died: BTreeSet<i64> = numbers(&reducing.cluster, on_doomed).into_iter().collect();
    reducing.lose_the_node();
    // Reducers of what is lost, which hang on other nodes, are told to stop: their slots go to what is made again.
    let hang = reducing.lost[1..].iter().any(|part| !died.contains(part));
    if hang {
        let again =
            "select count(*) > 0 from attempts where stage = 0 and attempt > 0 and state = 'succeeded'";
        reducing.cluster.wait_for(again);
    }
    let (lost, safe, lost_ifiles) =
        (reducing.lost.clone(), reducing.safe.clone(), reducing.lost_ifiles.clone());
    let (cluster, mapper) = reducing.finish();
    assert_only_lost_ifiles_were_made(&cluster, &lost_ifiles);
    for part in [lost[0], safe[0]].into_iter().chain(safe.iter().copied().filter(|part| !died.contains(part)))
    {
        assert_eq!(attempts(&cluster, part, "succeeded"), [0], "reduce task {part} ran again");
    }
    for part in lost[1..].iter().filter(|part| !died.contains(part)) {
        assert_eq!(attempts(&cluster, *part, "discarded"), [0], "reduce task {part} read what was no more");
    }
    let told = Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text();
    assert!(told.contains("run again") && told.contains("stand"), "{told}");
    assert_right(&cluster, &mapper);
}

/// The server dies as well, right then: the next one knows what stands.
#[test]
fn what_stands_outlives_the_server() {
    let mut reducing = Reducing::start("same");
    reducing.end_one_of_each();
    reducing.lose_the_node();
    reducing.cluster.restart_server();
    let done = [reducing.lost[0], reducing.safe[0]];
    let lost_ifiles = reducing.lost_ifiles.clone();
    let (cluster, mapper) = reducing.finish();
    assert_only_lost_ifiles_were_made(&cluster, &lost_ifiles);
    for part in done {
        assert_eq!(attempts(&cluster, part, "succeeded"), [0], "reduce task {part} ran again");
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
    assert!(cluster.number("select count(*) from events where kind = 'stand-in refused'") > 0);
    let reduces = "select count(*) from attempts where stage = 3 and state = 'succeeded'";
    assert!(cluster.number(reduces) > PARTITIONS, "what was reduced of other data stands");
    // Each line once, and all lines of one map of one run of it.
    let lines = cluster.sandbox.output_lines(&cluster.sandbox.path("out"));
    let word =
        |place| lines.iter().filter_map(|line| line.split_whitespace().nth(place)).collect::<BTreeSet<_>>();
    assert_eq!((lines.len(), word(0).len()), (NUMBERS, NUMBERS));
    let maps = cluster.number("select count(distinct map_task) from sources");
    assert_eq!(word(2).len() as i64, maps);
}

/// Reads all it is given, says so, and hands it on when everybody is let go.
const PATIENT_REDUCER: &str = "#!/bin/sh
lines=$(cat)
[ -e HERE/go ] || echo here > 'FIFO'
until [ -e HERE/go ]; do sleep 0.05; done
printf '%s\\n' \"$lines\"
";

/// Reducers that have read all they need are told to stop on a node that had nothing of the job before them. What the job has there
/// is not theirs: it goes on when they have stopped.
#[test]
fn a_node_whose_first_attempts_are_stopped_works_on() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let lines: String = (0..200).map(|number| format!("{}\t{number}\n", number % 60)).collect();
    cluster.sandbox.write("in/0.txt", lines);
    let mut here = cluster.sandbox.fifo("here");
    let script = |name, text: &str| {
        let directory = cluster.sandbox.path("");
        let text = text.replace("HERE", directory.to_str().expect("a sandbox has a plain path"));
        let program = cluster.sandbox.script(name, &text.replace("FIFO", here.text()));
        program.to_str().expect("a sandbox has a plain path").to_string()
    };
    let mapper = script("mapper.sh", &MAPPER.replace("WORD", "same"));
    let reducer = script("reducer.sh", PATIENT_REDUCER);
    let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &reducer, "out")));
    let slots = 2;
    (0..slots).for_each(|_| assert_eq!(here.read_line(), "here"));
    cluster.add_node();
    (0..slots).for_each(|_| assert_eq!(here.read_line(), "here"));
    cluster.kill_node();
    cluster.wait_for("select count(*) > 0 from events where kind = 'data lost'");
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    assert_eq!(
        cluster.number("select count(*) from attempts where stage = 3 and state = 'discarded'"),
        slots
    );
    assert_right(&cluster, &mapper);
}
