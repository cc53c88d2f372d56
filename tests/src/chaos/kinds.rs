//! The kinds of jobs, each with its command line and expected result. A new kind is a row of [`KINDS`] and its function.
//!
//! Records carry their place in the input as value, so that one that is lost, there twice, or out of order is seen. References
//! are computed here from the same records; where the contract names the bytes of the output (total order, partitions counted
//! as Hadoop counts them, values in input order), they are compared byte for byte.

use crate::{Random, Sandbox, corpus, group_lines, part_lines, tera_rows};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tera::{ROW_BYTES, RowLayout};

const FILES: u64 = 12;
const LINES_PER_FILE: u64 = 900;
const KEYS: u64 = 700;
const WORDS_BYTES: usize = 4 << 20;
const TERA_FILES: usize = 8;
const TERA_ROWS_PER_FILE: usize = 30_000;
const BULKY_FILES: u64 = 12;
const BULKY_LINES_PER_FILE: u64 = 9000;
/// Padding of each line of a bulky job, so that the data of a job does not fit into the memory of its nodes.
const PADDING_BYTES: usize = 1000;
/// One chunk is large enough for most jobs, so that many of them run at once.
const MEMORY: &str = "64M";
/// More than faults in the life of a job: none may fail because its data was lost too often.
const REGENERATIONS_MAX: &str = "10000";
/// The tasks of a job of single tasks.
const SINGLES: u64 = 6;

/// A slow program, so that it can be killed in the middle of its work. ACTION stands for the `awk` code for a line.
const SLOW_LINES: &str =
    "#!/bin/sh\nexec awk -F '\\t' '{ ACTION } NR % PACE == 0 { fflush(); system(\"sleep 0.25\") }'\n";
/// Lines between two pauses.
const PACE: u64 = 150;
const BULKY_PACE: u64 = 3000;
/// Sums up the values of each key; keys come together.
const SUM: &str = "#!/bin/sh\nexec awk -F '\\t' 'NR > 1 && $1 \"\" != key { print key \"\\t\" sum; sum = 0 } \
                   { key = $1 \"\"; sum += $2 } NR % 300 == 0 { system(\"sleep 0.1\") } \
                   END { if (NR) print key \"\\t\" sum }'\n";
const SINGLE: &str =
    "#!/bin/sh\nfor line in 1 2 3 4; do echo \"$1 task $SAILFISH_INDEX line $line\"; sleep 0.2; done\n";

/// How often each key is there, in so many parts; marked; in total order.
const STAGES: &str = r#"
[[stage]]
name = "count"
input = "in"
mapper = "ONES"
reducer = "SUM"
partitions = PARTITIONS

[[stage]]
name = "mark"
from = "count"
map_only = true
mapper = "MARK"

[[stage]]
name = "sort"
from = "mark"
total_order = true
mapper = "COPY"
reducer = "COPY"
"#;
const STAGES_PARTITIONS: std::ops::Range<u64> = 3..8;

/// A kind of job.
pub(super) struct Kind {
    pub name: &'static str,
    /// Number of jobs that a run hands in; the single tasks of a run count as one job each.
    pub jobs: usize,
    plan: fn(&Inputs, &mut Random) -> PlannedRun,
}

pub(super) const KINDS: [Kind; 10] = [
    Kind { name: "words, built-in sum", jobs: 1, plan: words },
    Kind { name: "pairs in total order", jobs: 1, plan: sorted },
    Kind { name: "program, values listed in order", jobs: 1, plan: listed },
    Kind { name: "streaming, 2 programs", jobs: 1, plan: streaming },
    Kind { name: "3 programs, combined", jobs: 1, plan: combined },
    Kind { name: "map only", jobs: 1, plan: map_only },
    Kind { name: "TeraSort", jobs: 1, plan: tera },
    Kind { name: "larger than memory", jobs: 1, plan: bulky },
    Kind { name: "single tasks", jobs: SINGLES as usize, plan: singles },
    Kind { name: "3 stages", jobs: 3, plan: stages },
];

/// A command line without its output, and the result that its contract promises.
pub(super) struct PlannedRun {
    /// The subcommand and its options.
    pub args: Vec<String>,
    /// Behind all other options.
    pub words: Vec<String>,
    pub output_option: &'static str,
    pub expected: Expected,
}

/// Expected result of a job.
pub(super) enum Expected {
    /// The parts of the output, one after another.
    Parts(Arc<Vec<u8>>),
    /// Lines that tasks print; {} stands for the name of the job.
    Prints(Vec<String>),
}

impl Kind {
    /// The job that a number chooses among those of this kind.
    pub fn plan(&self, inputs: &Inputs, choice: u64) -> PlannedRun {
        (self.plan)(inputs, &mut Random::new(choice))
    }
}

/// Inputs in the sandbox, and the references that do not depend on options.
pub(super) struct Inputs {
    lines: Vec<u8>,
    words: Arc<Vec<u8>>,
    sorted: Arc<Vec<u8>>,
    mapped: Arc<Vec<u8>>,
    tera: Arc<Vec<u8>>,
    bulky: Arc<Vec<u8>>,
    scripts: BTreeMap<&'static str, String>,
}

impl Inputs {
    pub fn write(sandbox: &Sandbox, random: &mut Random) -> Inputs {
        let (mut lines, mut bulky) = (Vec::new(), Vec::new());
        for file in 0..FILES {
            let text = pairs(random, file, LINES_PER_FILE);
            sandbox.write(&format!("in/{file:02}.txt"), &text);
            lines.extend(text);
        }
        for file in 0..BULKY_FILES {
            let text = pairs(random, file, BULKY_LINES_PER_FILE);
            sandbox.write(&format!("bulky/{file:02}.txt"), &text);
            bulky.extend(text);
        }
        let text = corpus(WORDS_BYTES);
        for (number, piece) in text.chunks(text.len() / 10 + 1).enumerate() {
            sandbox.write(&format!("words/{number:02}.txt"), piece);
        }
        let mut rows = Vec::new();
        for file in 0..TERA_FILES {
            let start = (file * TERA_ROWS_PER_FILE) as u128;
            let piece = tera_rows(RowLayout::Modern, true, start, TERA_ROWS_PER_FILE);
            sandbox.write(&format!("rows/{file:02}.dat"), &piece);
            rows.extend(piece);
        }
        let padding = "p".repeat(PADDING_BYTES);
        let at_pace =
            |pace: u64, action: &str| SLOW_LINES.replace("ACTION", action).replace("PACE", &pace.to_string());
        let with = |action| at_pace(PACE, action);
        let scripts = [
            ("mark", with("print $0 \" m\"")),
            ("ones", with("print $1 \"\\t1\"")),
            ("copy", with("print $0")),
            ("sum", SUM.to_string()),
            ("single", SINGLE.to_string()),
            ("pad", at_pace(BULKY_PACE, &format!("print $0 \"{padding}\""))),
            ("copy-bulky", at_pace(BULKY_PACE, "print $0")),
        ];
        let written = |(name, text): (&'static str, String)| {
            let path = sandbox.script(&format!("{name}.sh"), &text);
            (name, path.to_str().expect("a sandbox has a plain path").to_string())
        };
        let scripts: BTreeMap<&'static str, String> = scripts.into_iter().map(written).collect();
        for partitions in STAGES_PARTITIONS {
            let text =
                STAGES.replace("PARTITIONS", &partitions.to_string()).replace("ONES", &scripts["ones"]);
            let text = text.replace("SUM", &scripts["sum"]).replace("MARK", &scripts["mark"]);
            sandbox.write(&format!("stages-{partitions}.toml"), text.replace("COPY", &scripts["copy"]));
        }
        Inputs {
            words: Arc::new(counted(&text_pieces(&text, text.len() / 10 + 1))),
            sorted: Arc::new(in_order_of_key(&lines, "")),
            mapped: Arc::new(each_line(&lines, " m")),
            tera: Arc::new(sorted_rows(&rows)),
            bulky: Arc::new(in_order_of_key(&bulky, &padding)),
            lines,
            scripts,
        }
    }

    fn script(&self, name: &str) -> &str {
        &self.scripts[name]
    }
}

/// Lines `key TAB file-line`; some keys are much more common than others.
fn pairs(random: &mut Random, file: u64, lines: u64) -> Vec<u8> {
    let mut text = String::new();
    for line in 0..lines {
        let among = if random.chance(30) { 5 } else { KEYS };
        let key = random.below(among) * 7919 % KEYS;
        writeln!(text, "key{key:03}\t{file:02}-{line:05}").expect("a string takes all");
    }
    text.into_bytes()
}

fn text_pieces(text: &[u8], bytes: usize) -> Vec<&[u8]> {
    text.chunks(bytes).collect()
}

/// Words with their counts, of files that each end a word.
fn counted(files: &[&[u8]]) -> Vec<u8> {
    let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
    let is_space = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let words = files.iter().flat_map(|file| file.split(is_space)).filter(|word| !word.is_empty());
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    let mut out = Vec::new();
    for (word, count) in counts {
        out.extend_from_slice(word);
        out.extend_from_slice(format!("\t{count}\n").as_bytes());
    }
    out
}

fn each_line(lines: &[u8], ending: &str) -> Vec<u8> {
    let ended = |line: &&[u8]| [line, ending.as_bytes(), b"\n"].concat();
    part_lines(lines).iter().flat_map(ended).collect()
}

fn line(key: &[u8], value: &[u8], ending: &str) -> Vec<u8> {
    [key, b"\t", value, ending.as_bytes(), b"\n"].concat()
}

fn in_order_of_key(lines: &[u8], ending: &str) -> Vec<u8> {
    let groups = group_lines(lines);
    let pairs = groups.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    pairs.flat_map(|(key, value)| line(key, value, ending)).collect()
}

/// Groups in order of partition and key.
fn partitioned(lines: &[u8], partitions: u64) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut groups: Vec<(Vec<u8>, Vec<Vec<u8>>)> = group_lines(lines).into_iter().collect();
    groups.sort_by_key(|(key, _)| partition(key, partitions));
    groups
}

/// Returns the partition of a whole key, as Hadoop counts it.
fn partition(key: &[u8], partitions: u64) -> u64 {
    let hash =
        key.iter().fold(1_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte as i8)));
    (hash & i32::MAX) as u64 % partitions
}

fn sorted_rows(rows: &[u8]) -> Vec<u8> {
    let (rows, _) = rows.as_chunks::<ROW_BYTES>();
    let mut rows = rows.to_vec();
    rows.sort_by(|left, right| left[..10].cmp(&right[..10]));
    rows.concat()
}

/// Returns `sailfish run` with these options. Most jobs keep their I-files for a moment, so that all of their runs lie on disks,
/// where they can be damaged. For many jobs, runs lie on a second node as well.
fn run(random: &mut Random, input: &str, options: &[&str], expected: Arc<Vec<u8>>) -> PlannedRun {
    let own = [
        "run",
        "--memory",
        MEMORY,
        "--slots",
        "8",
        "--max-regenerations",
        REGENERATIONS_MAX,
        "--input",
        input,
    ];
    let keeps: &[&str] = if random.chance(75) { &["--keep-for", "1s"] } else { &[] };
    let replication = replication(random);
    let args = own.iter().chain(options).chain(keeps).chain(replication).map(ToString::to_string).collect();
    PlannedRun { args, words: Vec::new(), output_option: "--output", expected: Expected::Parts(expected) }
}

fn replication(random: &mut Random) -> &'static [&'static str] {
    match random.below(10) {
        0..4 => &["--replication", "rack"],
        4 => &["--replication", "sync"],
        5..7 => &["--replication", "selective"],
        _ => &[],
    }
}

fn words(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let options = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];
    run(random, "words", &options, Arc::clone(&inputs.words))
}

fn sorted(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let slow = ["--total-order", "--reducer", inputs.script("copy")];
    let options = if random.chance(50) { &slow[..] } else { &slow[..1] };
    run(random, "in", options, Arc::clone(&inputs.sorted))
}

fn listed(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let partitions = 3 + random.below(5);
    let text = |(key, values): (Vec<u8>, Vec<Vec<u8>>)| {
        let marked: Vec<Vec<u8>> = values.iter().map(|value| [value, &b" m"[..]].concat()).collect();
        line(&key, &marked.join(&b","[..]), "")
    };
    let expected = partitioned(&inputs.lines, partitions).into_iter().flat_map(text).collect();
    let partitions = partitions.to_string();
    let mapper = ["--mapper", inputs.script("mark")];
    let options = ["--reducer", "builtin:list", "--partitions", &partitions];
    run(random, "in", &[&mapper[..], &options].concat(), Arc::new(expected))
}

fn streaming(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let partitions = 3 + random.below(5);
    let text = |(key, values): (Vec<u8>, Vec<Vec<u8>>)| -> Vec<u8> {
        values.iter().flat_map(|value| line(&key, value, " m")).collect()
    };
    let expected = partitioned(&inputs.lines, partitions).into_iter().flat_map(text).collect();
    let reduces = format!("mapreduce.job.reduces={partitions}");
    let own = ["streaming", "-D", &reduces, "--memory", MEMORY, "-input", "in"];
    let functions = ["-mapper", inputs.script("mark"), "-reducer", inputs.script("copy")];
    PlannedRun {
        args: own.iter().chain(&functions).chain(replication(random)).map(ToString::to_string).collect(),
        words: Vec::new(),
        output_option: "-output",
        expected: Expected::Parts(Arc::new(expected)),
    }
}

fn combined(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let partitions = 3 + random.below(5);
    let text = |(key, values): (Vec<u8>, Vec<Vec<u8>>)| line(&key, values.len().to_string().as_bytes(), "");
    let expected = partitioned(&inputs.lines, partitions).into_iter().flat_map(text).collect();
    let partitions = partitions.to_string();
    let functions = ["--mapper", inputs.script("ones"), "--combiner", inputs.script("sum")];
    let options = ["--reducer", inputs.script("sum"), "--partitions", &partitions];
    run(random, "in", &[functions, options].concat(), Arc::new(expected))
}

fn map_only(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let mut planned = run(random, "in", &[], Arc::clone(&inputs.mapped));
    // Without a shuffle there is nothing to keep.
    planned.args.retain(|word| !matches!(word.as_str(), "--keep-for" | "1s"));
    planned.args.extend(["--map-only", "--mapper", inputs.script("mark")].map(str::to_string));
    planned
}

fn tera(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let args = ["tera", "sort", "--memory", MEMORY, "--slots", "8", "--input", "rows"];
    PlannedRun {
        args: args.iter().chain(replication(random)).map(ToString::to_string).collect(),
        words: Vec::new(),
        output_option: "--output",
        expected: Expected::Parts(Arc::clone(&inputs.tera)),
    }
}

fn bulky(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let mapper = ["--total-order", "--mapper", inputs.script("pad")];
    let reducer = ["--reducer", inputs.script("copy-bulky")];
    run(random, "bulky", &[&mapper[..], &reducer].concat(), Arc::clone(&inputs.bulky))
}

fn stages(inputs: &Inputs, random: &mut Random) -> PlannedRun {
    let text =
        |(key, values): (&Vec<u8>, &Vec<Vec<u8>>)| line(key, values.len().to_string().as_bytes(), " m");
    let expected = group_lines(&inputs.lines).iter().flat_map(text).collect();
    let partitions = STAGES_PARTITIONS.start + random.below(STAGES_PARTITIONS.end - STAGES_PARTITIONS.start);
    let file = format!("stages-{partitions}.toml");
    let own = ["run", "--job", &file, "--memory", MEMORY, "--slots", "8"];
    let more = ["--max-regenerations", REGENERATIONS_MAX];
    PlannedRun {
        args: own.iter().chain(&more).chain(replication(random)).map(ToString::to_string).collect(),
        words: Vec::new(),
        output_option: "--output",
        expected: Expected::Parts(Arc::new(expected)),
    }
}

/// Its failures count from the first one on, so that it has as many runs more as it may be killed.
fn singles(inputs: &Inputs, _: &mut Random) -> PlannedRun {
    let (count, retries) = (SINGLES.to_string(), super::jobs::PROGRAM_KILLS_MAX.to_string());
    let own = ["submit", "--wait", "--count", &count, "--retries", &retries];
    let prints =
        (0..SINGLES).flat_map(|task| (1..=4).map(move |line| format!("{{}} task {task} line {line}")));
    PlannedRun {
        args: own.map(str::to_string).to_vec(),
        words: ["--", inputs.script("single"), "{}"].map(str::to_string).to_vec(),
        output_option: "--name",
        expected: Expected::Prints(prints.collect()),
    }
}
