//! A node dies with a part of the data between map and reduce: that part is made again, and no more, where maps give the same data
//! each time they run.

use blackbox::{Cluster, Fifo, Running};
use std::fmt::Write;
use std::os::unix::fs::FileExt;

const PARTITIONS: usize = 6;
const REDUCE: u32 = 3;
/// So much input makes three I-files where memory allows them. Most of it is a hole.
const PADDING_BYTES: u64 = 300 << 20;
const LINE_BYTES: u64 = 1 << 20;
/// Leaves out the padding, and adds a word to each line that is given in place of WORD.
const MAPPER: &str = "#!/bin/sh\nword=WORD\ntr -d '\\000' | sed \"/^$/d; s/$/ $word/\"\n";

fn write_padding(cluster: &Cluster) {
    let path = cluster.sandbox.write("in/padding.txt", "");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("our own file opens");
    for line in 1..=PADDING_BYTES / LINE_BYTES {
        file.write_all_at(b"\n", line * LINE_BYTES - 1).expect("a line is written");
    }
}

fn write_numbers(cluster: &Cluster) {
    write_padding(cluster);
    for file in 0..4 {
        let mut text = String::new();
        for number in (file..40_000).step_by(4) {
            writeln!(text, "{}\t{number}", number * 7919 % 40_000).expect("a string takes all");
        }
        cluster.sandbox.write(&format!("in/{file}.txt"), text);
    }
}

/// A reducer that hands on what it reads; the first of its kind says that it runs, and hangs.
struct HangsOnce {
    here: Fifo,
    go: Fifo,
    program: String,
}

impl HangsOnce {
    fn new(cluster: &Cluster) -> HangsOnce {
        let (here, go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
        let first = cluster.sandbox.path("first");
        let hang = format!("echo here > '{}'; read line < '{}'", here.text(), go.text());
        let text =
            format!("#!/bin/sh\nif mkdir '{}' 2>/dev/null; then {hang}; fi\nexec cat\n", first.display());
        let program = cluster.sandbox.script("reducer.sh", &text).to_str().expect("a plain path").to_string();
        HangsOnce { here, go, program }
    }
}

fn mapper(cluster: &Cluster, word: &str) -> String {
    let program = cluster.sandbox.script("mapper.sh", &MAPPER.replace("WORD", word));
    program.to_str().expect("a plain path").to_string()
}

fn streaming<'a>(mapper: &'a str, reducer: &'a str, output: &'a str) -> Vec<&'a str> {
    let sizes = ["-D", "mapreduce.job.reduces=6", "--memory", "768M", "-input", "in"];
    let own = ["-output", output, "-mapper", mapper, "-reducer", reducer];
    ["streaming"].into_iter().chain(sizes).chain(own).collect()
}

fn numbers(cluster: &Cluster, question: &str) -> Vec<i64> {
    let asked = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let json = asked.json();
    let rows = json.as_array().unwrap_or_else(|| panic!("{question} gives {json}"));
    let number = |row: &serde_json::Value| row.as_object()?.values().next()?.as_i64();
    rows.iter().map(|row| number(row).unwrap_or_else(|| panic!("{question} gives {json}"))).collect()
}

fn number(cluster: &Cluster, question: &str) -> i64 {
    numbers(cluster, question)[0]
}

/// Five of six reduce tasks are done and one hangs.
fn until_one_reducer_is_left(cluster: &Cluster, hangs: &mut HangsOnce) {
    assert_eq!(hangs.here.read_line(), "here");
    let done = format!("select count(*) as n from tasks where stage = {REDUCE} and state = 'done'");
    cluster.ask_until(&["state", "--json", &done], |answer| answer.contains('5'));
}

fn assert_right(cluster: &Cluster, mapper: &str) {
    let mut embedded = cluster.sandbox.sailfish();
    Running::start(embedded.args(streaming(mapper, "cat", "embedded"))).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}

#[test]
fn reduce_tasks_that_are_done_stand_and_maps_make_only_what_was_lost() {
    let mut cluster = Cluster::start(3);
    write_numbers(&cluster);
    let mut hangs = HangsOnce::new(&cluster);
    let program = hangs.program.clone();
    let mapper = mapper(&cluster, "same");
    let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &program, "out")));
    until_one_reducer_is_left(&cluster, &mut hangs);
    // The winners' data on the node that will die, by I-file.
    let question = "select distinct ifile from sources where chunk / 1099511627776 = (select node from nodes where name = 'node-0')";
    let lost = numbers(&cluster, question);
    let all = numbers(&cluster, "select distinct ifile from sources");
    assert!(!lost.is_empty() && lost.len() < all.len(), "{lost:?} of {all:?}");
    cluster.kill_node();
    // The next server must know what stands.
    let again = "select count(*) as n from events where kind = 'data lost'";
    cluster.ask_until(&["state", "--json", again], |answer| answer.contains('1'));
    cluster.restart_server();
    hangs.go.write_line("go on");
    job.wait().expect_success();
    let reduces =
        format!("select count(*) as n from attempts where stage = {REDUCE} and state = 'succeeded'");
    assert_eq!(number(&cluster, &reduces) as usize, PARTITIONS, "a reduce task that was done ran again");
    // What the first attempts put into the other I-files counts.
    let by_attempt =
        |attempt| format!("select distinct ifile from sources where attempt = {attempt} order by 1");
    assert_eq!(numbers(&cluster, &by_attempt(1)), lost);
    let told = Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text();
    assert!(told.contains("run again") && told.contains("stand"), "{told}");
    assert_right(&cluster, &mapper);
}

/// A map that gives other data each time: nothing of it stands, nor what was reduced of it.
#[test]
fn maps_that_give_other_data_are_told_apart() {
    let mut cluster = Cluster::start(3);
    write_numbers(&cluster);
    let mut hangs = HangsOnce::new(&cluster);
    let mapper = mapper(&cluster, "$(cat /proc/sys/kernel/random/uuid)");
    let program = hangs.program.clone();
    let job = Running::start(&mut cluster.sailfish(&streaming(&mapper, &program, "out")));
    until_one_reducer_is_left(&cluster, &mut hangs);
    cluster.kill_node();
    hangs.go.write_line("go on");
    job.wait().expect_success();
    let refused = "select count(*) > 0 as n from events where kind = 'stand-in refused'";
    cluster.ask_until(&["state", "--json", refused], |answer| answer.contains('1'));
    let reduces =
        format!("select count(*) as n from attempts where stage = {REDUCE} and state = 'succeeded'");
    assert!(number(&cluster, &reduces) as usize > PARTITIONS, "what was reduced of other data stands");
    // Each line once, and all lines of one map of one run of it.
    let output = cluster.sandbox.path("out");
    let lines = cluster.sandbox.output_lines(&output);
    let mut keys: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((lines.len(), keys.len()), (40_000, 40_000));
    let mut runs: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().nth(2)).collect();
    runs.sort_unstable();
    runs.dedup();
    // The padding's maps put out nothing.
    let maps = number(&cluster, "select count(distinct map_task) as n from sources") as usize;
    assert_eq!(runs.len(), maps, "{runs:?}");
}
