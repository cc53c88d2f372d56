//! Many small jobs of random shape against a reference made with coreutils: `MAPPER < text | sort | REDUCER`.
//!
//! Each job follows from a seed. A failure prints the line that runs that job alone:
//! `SAILFISH_SEED=17 cargo test -p blackbox --test random_jobs`. `SAILFISH_RANDOM_JOBS=5000` runs more.

use blackbox::{Random, Running, Sandbox, gzip, part_lines, zstd};
use std::fmt::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const JOBS: u64 = 200;
/// Jobs at once.
const WORKERS: u64 = 2;
/// File that the reference reads: the inputs one after another, each line with its end.
const TEXT: &str = "text";

/// A function for us and the same for a shell.
struct Function {
    /// For `--mapper` or `--reducer`; None where the option is left out.
    ours: Option<&'static str>,
    shell: &'static str,
}

const fn both(command: &'static str) -> Function {
    Function { ours: Some(command), shell: command }
}

const fn pair(ours: &'static str, shell: &'static str) -> Function {
    Function { ours: Some(ours), shell }
}

const MAPPERS: &[Function] = &[
    Function { ours: None, shell: "cat" },
    pair("builtin:identity", "cat"),
    pair("builtin:words", "tr -s '[:space:]' '\\n' | grep -a . | sed 's/$/\\t1/'"),
    pair("builtin:grep:[a-m]", "grep -a '[a-m]'"),
    both("cat"),
    both("sed 's/[aeiou]/&&/g'"),
    both("tr a-m n-z"),
];

/// The sorted lines as they are.
const NO_REDUCER: Function = Function { ours: None, shell: "cat" };

/// Gives every line its TAB, as lines to a reducer have it.
const WITH_TAB: &str = "sed '/\\t/!s/$/\\t/'";

const TEXT_REDUCERS: &[Function] = &[
    NO_REDUCER,
    both("cat"),
    both("sed 's/a$/, a long one at the end/'"),
    pair("builtin:unique", "cut -f 1 | uniq"),
    pair("builtin:count", "cut -f 1 | uniq -c | sed 's/^ *\\([0-9]*\\) \\(.*\\)$/\\2\\t\\1/'"),
    pair("sh -c 'cut -f 1 | uniq'", "cut -f 1 | uniq"),
    pair(
        "builtin:list",
        // Printed as it goes: one list may be most of the text.
        "awk '{ at = index($0, \"\\t\"); k = substr($0, 1, at - 1); v = substr($0, at + 1) } \
         NR > 1 && k == key { printf \"%s%s\", (begun ? \",\" : \"\\t,\"), v; begun = 1; next } \
         { if (NR > 1) print \"\"; key = k; begun = (v != \"\"); printf \"%s%s\", k, (begun ? \"\\t\" v : \"\") } \
         END { if (NR) print \"\" }'",
    ),
];

/// The reducers that want numbers.
const NUMBER_REDUCERS: &[Function] = &[
    pair(
        "builtin:sum",
        "awk -F '\\t' 'NR > 1 && $1 \"\" != key { printf \"%s\\t%.0f\\n\", key, sum; sum = 0 } \
         { key = $1 \"\"; sum += $2 } END { if (NR) printf \"%s\\t%.0f\\n\", key, sum }'",
    ),
    pair(
        "builtin:min",
        "awk -F '\\t' 'NR > 1 && $1 \"\" == key { if ($2 + 0 < low + 0) low = $2; next } \
         NR > 1 { print key \"\\t\" low } { key = $1 \"\"; low = $2 } END { if (NR) print key \"\\t\" low }'",
    ),
    pair(
        "builtin:max",
        "awk -F '\\t' 'NR > 1 && $1 \"\" == key { if ($2 + 0 > top + 0) top = $2; next } \
         NR > 1 { print key \"\\t\" top } { key = $1 \"\"; top = $2 } END { if (NR) print key \"\\t\" top }'",
    ),
];

/// Attempts of a function that fail after some output.
struct Flaky {
    attempts: u32,
    code: i32,
}

impl Flaky {
    fn choose(random: &mut Random) -> Flaky {
        let attempts = if random.chance(45) { 0 } else { 1 + random.below(3) as u32 };
        Flaky { attempts, code: 3 + random.below(100) as i32 }
    }

    /// The same function, failing at first; a built-in cannot.
    fn wrap(&self, command: Option<&str>) -> Option<String> {
        let command = command?;
        if self.attempts == 0 || command.starts_with("builtin:") {
            return Some(command.to_string());
        }
        let Flaky { attempts, code } = self;
        let script =
            format!("if [ $SAILFISH_ATTEMPT -lt {attempts} ]; then head -n 7; exit {code}; fi; {command}");
        Some(format!("sh -c '{}'", script.replace('\'', "'\\''")))
    }

    fn fails_for_good(&self, command: Option<&str>) -> bool {
        self.attempts >= 3 && command.is_some_and(|command| !command.starts_with("builtin:"))
    }
}

struct Job {
    mapper: &'static Function,
    reducer: &'static Function,
    flaky_mapper: Flaky,
    flaky_reducer: Flaky,
    total_order: bool,
    options: Vec<String>,
    /// Name and bytes as stored.
    files: Vec<(String, Vec<u8>)>,
    /// Text of the files, in input order, each line with its end.
    text: Vec<u8>,
}

/// The keys of a job: how many, how long, of which bytes.
struct Keys {
    count: u64,
    length_max: u64,
    binary: bool,
}

impl Keys {
    fn key(&self, random: &mut Random) -> Vec<u8> {
        // The same number gives the same key.
        let mut of_key = Random::new(random.below(self.count));
        let length = of_key.below(self.length_max + 1) as usize;
        let mut key = of_key.bytes(length);
        for byte in &mut key {
            *byte = match self.binary {
                // awk and its like take neither of these for part of a key.
                true if matches!(*byte, 0 | b'\n' | b'\t') => b'#',
                true => *byte,
                false => b'a' + *byte % 20,
            };
        }
        key
    }
}

/// Shape of the lines of a job.
struct Lines {
    keys: Keys,
    /// Every value is a whole number.
    numbers: bool,
    value_bytes_max: u64,
}

impl Lines {
    fn line(&self, random: &mut Random) -> Vec<u8> {
        let mut line = self.keys.key(random);
        if self.numbers {
            let digits = random.below(40);
            let magnitude = random.below(1 << digits) as i64;
            let number = if random.chance(40) { -magnitude } else { magnitude };
            line.extend(format!("\t{number}").into_bytes());
            return line;
        }
        if random.chance(15) {
            return line;
        }
        line.push(b'\t');
        let longest = if random.chance(1) { 3000 } else { self.value_bytes_max };
        let length = random.below(longest) as usize;
        let value = random.bytes(length);
        line.extend(value.iter().map(|byte| if *byte < 12 { b' ' } else { b'a' + byte % 26 }));
        if random.chance(5) {
            line.extend_from_slice(b"\tmore\t");
        }
        line
    }

    /// A file of at least so many bytes as stored, and its text with the last line ended.
    fn file(&self, random: &mut Random, bytes: u64) -> (Vec<u8>, Vec<u8>) {
        let mut text = Vec::new();
        while (text.len() as u64) < bytes {
            text.extend(self.line(random));
            text.push(b'\n');
        }
        let mut stored = text.clone();
        // A last line that is empty is none without its end.
        if random.chance(20) && !stored.ends_with(b"\n\n") && stored.len() > 1 {
            stored.pop();
        }
        let stored = match random.below(5) {
            0 => gzip(&stored),
            1 => zstd(&stored),
            _ => stored,
        };
        (stored, text)
    }
}

fn file_bytes(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1..7 => random.below(20_000),
        7..9 => random.below(400_000),
        _ => random.below(4_000_000),
    }
}

fn plan(seed: u64) -> Job {
    let mut random = Random::new(seed);
    let numbers = random.chance(30);
    let mapper = if numbers { &MAPPERS[random.below(2) as usize] } else { random.one_of(MAPPERS) };
    let reducer = random.one_of(if numbers { NUMBER_REDUCERS } else { TEXT_REDUCERS });
    let keys = Keys {
        count: *random.one_of(&[1, 3, 50, 1000, 1 << 40]),
        length_max: *random.one_of(&[0, 2, 8, 8, 30, 1000]),
        binary: random.chance(30),
    };
    // Some jobs are large enough for several chunks, I-files and reduce tasks.
    let large = !numbers && random.chance(10);
    let lines = Lines { keys, numbers, value_bytes_max: if large { 500 } else { 40 } };
    let mut sizes: Vec<u64> = (0..random.below(6)).map(|_| file_bytes(&mut random)).collect();
    sizes.extend(large.then(|| (18 << 20) + random.below(24 << 20)));
    let mut files = Vec::new();
    let mut text = Vec::new();
    for (number, bytes) in sizes.into_iter().enumerate() {
        let (stored, whole) = lines.file(&mut random, bytes);
        // Names in an order that is not that of the endings.
        files.push((format!("in/{number}.{}", random.one_of(&["txt", "gz", "csv"])), stored));
        text.extend(whole);
    }
    let total_order = random.chance(50);
    let memory = random.one_of(&["64M", "64M", "100M", "600M", "1G"]);
    let mut options = vec![format!("--memory={memory}"), format!("--slots={}", 1 + random.below(8))];
    options.push(format!("--codec={}", random.one_of(&["none", "lz4", "zstd"])));
    options.extend(total_order.then(|| "--total-order".to_string()));
    options.extend(random.chance(90).then(|| "--no-sync".to_string()));
    if numbers && random.chance(50) {
        options.extend(reducer.ours.map(|fold| format!("--combiner={fold}")));
    }
    let (flaky_mapper, flaky_reducer) = (Flaky::choose(&mut random), Flaky::choose(&mut random));
    Job { mapper, reducer, flaky_mapper, flaky_reducer, total_order, options, files, text }
}

/// The output that coreutils give: (pairs that reach the shuffle, final lines).
fn reference(sandbox: &Sandbox, job: &Job) -> (Vec<u8>, Vec<u8>) {
    sandbox.write(TEXT, &job.text);
    let mut script = String::new();
    let _ = write!(
        script,
        "{} < {TEXT} | {} | sort -s -t '\t' -k 1,1 > pairs; ",
        shell(job.mapper.shell),
        job.reducer.ours.map_or("cat", |_| WITH_TAB)
    );
    let _ = write!(script, "{} < pairs", shell(job.reducer.shell));
    let mut command = Command::new("sh");
    sandbox.clean(&mut command);
    let finished = Running::start(command.env("LC_ALL", "C").args(["-c", &script])).wait().expect_success();
    assert!(finished.stderr.is_empty(), "the reference complains:\n{}", finished.story());
    (std::fs::read(sandbox.path("pairs")).expect("the script wrote it"), finished.stdout)
}

/// A pipeline as one command that a redirection is for as a whole.
fn shell(pipeline: &str) -> String {
    format!("{{ {pipeline}; }}")
}

/// Lines in order of their key, those of one key as they come.
fn by_key(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = part_lines(bytes);
    lines.sort_by_key(|line| line.split(|byte| *byte == b'\t').next().unwrap_or_default());
    lines
}

/// How many jobs were of a kind: a plan that made them all alike would test little.
#[derive(Debug, Default)]
struct Tally {
    succeeded: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    several_maps: AtomicU64,
    several_parts: AtomicU64,
    several_chunks: AtomicU64,
    several_ifiles: AtomicU64,
}

impl Tally {
    fn add(&self, report: &serde_json::Value) {
        let above = |count: &serde_json::Value, limit: u64| u64::from(count.as_u64() > Some(limit));
        let [map, reduce, shuffle] = ["map", "reduce", "shuffle"].map(|section| &report[section]);
        let attempts = |section: &serde_json::Value| section["attempts"].as_u64() > section["tasks"].as_u64();
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        self.retried.fetch_add(u64::from(attempts(map) || attempts(reduce)), Ordering::Relaxed);
        self.several_maps.fetch_add(above(&map["tasks"], 1), Ordering::Relaxed);
        self.several_parts.fetch_add(above(&reduce["tasks"], 1), Ordering::Relaxed);
        self.several_chunks.fetch_add(above(&shuffle["chunks"], 1), Ordering::Relaxed);
        self.several_ifiles.fetch_add(above(&shuffle["ifiles"], 1), Ordering::Relaxed);
    }
}

fn run(sandbox: &Sandbox, seed: u64, tally: &Tally) -> Result<(), String> {
    let job = plan(seed);
    let _ = std::fs::remove_dir_all(sandbox.path("in"));
    std::fs::create_dir(sandbox.path("in")).expect("a sandbox takes a directory");
    for (name, stored) in &job.files {
        sandbox.write(name, stored);
    }
    let (pairs, expected) = reference(sandbox, &job);
    let mut args = vec!["--input=in", "--overwrite", "--env=LC_ALL=C"];
    args.extend(job.options.iter().map(String::as_str));
    let mapper = job.flaky_mapper.wrap(job.mapper.ours).map(|command| format!("--mapper={command}"));
    let reducer = job.flaky_reducer.wrap(job.reducer.ours).map(|command| format!("--reducer={command}"));
    args.extend(mapper.as_deref());
    args.extend(reducer.as_deref());
    let finished = sandbox.run_job(&args);
    let mapper_fails = !job.text.is_empty() && job.flaky_mapper.fails_for_good(job.mapper.ours);
    let reducer_fails = !pairs.is_empty() && job.flaky_reducer.fails_for_good(job.reducer.ours);
    let code = match (mapper_fails, reducer_fails) {
        (true, _) => job.flaky_mapper.code,
        (_, true) => job.flaky_reducer.code,
        (false, false) => 0,
    };
    let check = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(format!("{what}:\n{}", finished.story())),
    };
    check(finished.code() == Some(code), &format!("should have ended with {code}"))?;
    check(sandbox.leftovers().is_empty(), &format!("left behind: {:?}", sandbox.leftovers()))?;
    if code != 0 {
        tally.failed.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let found = sandbox.concatenated(&sandbox.out());
    let same = match job.total_order {
        true => found == expected,
        false => by_key(&found) == by_key(&expected),
    };
    check(same, &format!("{} bytes, the reference has {}", found.len(), expected.len()))?;
    let report = sandbox.report(&sandbox.out());
    check(report["proof"]["agrees"] == true, "the proof disagrees")?;
    let records = report["map"]["output_records"].as_u64();
    check(records == Some(part_lines(&pairs).len() as u64), "the mappers' records are miscounted")?;
    tally.add(&report);
    Ok(())
}

/// Says how to run a job alone, whatever made it fail.
struct ReplayHint {
    seed: u64,
}

impl Drop for ReplayHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("SAILFISH_SEED={} cargo test -p blackbox --test random_jobs", self.seed);
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

#[test]
fn random_jobs_equal_coreutils() {
    let seeds = match number_from("SAILFISH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from("SAILFISH_RANDOM_JOBS").unwrap_or(JOBS),
    };
    let next = AtomicU64::new(seeds.start);
    let tally = Tally::default();
    let work = || {
        // One state for many jobs, as a user has it.
        let sandbox = Sandbox::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let _hint = ReplayHint { seed };
            if let Err(what) = run(&sandbox, seed, &tally) {
                panic!("{what}");
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    println!("{tally:?}");
    if seeds.end - seeds.start >= JOBS {
        let Tally { succeeded, failed, retried, several_maps, several_parts, several_chunks, several_ifiles } =
            tally;
        for kind in [failed, retried, several_maps, several_parts, several_chunks] {
            assert!(kind.into_inner() >= JOBS / 40, "too few jobs of a kind");
        }
        assert!(succeeded.into_inner() >= JOBS / 2, "too few jobs succeed");
        assert!(several_ifiles.into_inner() > 0, "no job has several I-files");
    }
}
