//! Data that no program changes comes out byte for byte: our sort is `sort -s`, identity is `cat`, our grep is `grep -aE`, over
//! random bytes, formats, separators and files.
//!
//! Each case follows from a seed. A failure prints the line that runs that case alone:
//! `SAILFISH_SEED=17 cargo test -p blackbox --test one_machine lossless`. `SAILFISH_LOSSLESS_CASES=100000` runs more.

use blackbox::{Random, Running, Sandbox};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const CASES: u64 = 120;
/// Cases at once.
const WORKERS: u64 = 2;

/// Bug 2 of the field report.
/// Field report, 2.
#[test]
fn empty_value_keeps_its_separator() {
    let sandbox = Sandbox::new();
    let text = b"ann\t555\nbob\t\nbob\ncid\t\t\nbob\t\n";
    sandbox.write("in", text);
    let check = |options: &[&str], expected: &[u8]| {
        let args = [&["--input", "in", "--overwrite", "--no-sync"], options].concat();
        sandbox.run_job(&args).expect_success();
        let found = sandbox.concatenated(&sandbox.out());
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{options:?}");
    };
    let sorted = b"ann\t555\nbob\t\nbob\nbob\t\ncid\t\t\n";
    check(&["--total-order"], sorted);
    check(&["--total-order", "--mapper", "cat"], sorted);
    check(&["--total-order", "--mapper", "builtin:identity", "--codec", "none"], sorted);
    check(&["--mapper", "builtin:grep:o", "--map-only"], b"bob\t\nbob\nbob\t\n");
    check(&["--map-only"], text);
    check(&["--total-order", "--sort-keys", "-k1,1r"], b"cid\t\t\nbob\t\nbob\nbob\t\nann\t555\n");
    check(&["--total-order", "--key-fields", "2"], b"ann\t555\nbob\nbob\t\nbob\t\ncid\t\t\n");
    check(&["--partitions", "1"], sorted);
    // To built-ins, and in what a reducer reads, they are alike.
    check(&["--total-order", "--reducer", "builtin:count"], b"ann\t1\nbob\t3\ncid\t1\n");
    check(&["--total-order", "--reducer", "cat"], b"ann\t555\nbob\t\nbob\t\nbob\t\ncid\t\t\n");
    sandbox.write("in", b"k\t\t");
    check(&["--total-order", "--key-fields", "2"], b"k\t\t\n");
}

#[derive(Debug)]
enum Job {
    /// By so many fields.
    Sort {
        key_fields: u64,
        mapper: Option<&'static str>,
    },
    Copy {
        mapper: Option<&'static str>,
    },
    Grep {
        pattern: String,
        sorts: bool,
    },
}

#[derive(Debug)]
struct Case {
    job: Job,
    terminator: u8,
    separator: u8,
    options: Vec<String>,
    files: Vec<Vec<u8>>,
}

/// Bytes of which some are frequent: separators, ends, letters of patterns.
fn file(random: &mut Random, separator: u8) -> Vec<u8> {
    let longest = *random.one_of(&[0, 1, 10, 300, 20_000]);
    let length = random.below(longest + 1) as usize;
    let frequent = [separator, separator, b'\n', 0, b'a', b'b', b'1', b' ', 0xff];
    let bytes = random.bytes(length);
    bytes.into_iter().map(|byte| if random.chance(70) { *random.one_of(&frequent) } else { byte }).collect()
}

/// Literals, alternatives and classes, as both kinds of patterns write them.
fn pattern(random: &mut Random) -> String {
    let atoms = ["a", "b", "1", "ab", "[ab1]", "[a-z]", "[[:digit:]]", "(a|b1)", "a+", "[[:upper:]]"];
    let alternatives = 1 + random.below(3);
    let alternative = |random: &mut Random| {
        let atoms: Vec<&str> = (0..1 + random.below(3)).map(|_| *random.one_of(&atoms)).collect();
        atoms.concat()
    };
    (0..alternatives).map(|_| alternative(random)).collect::<Vec<_>>().join("|")
}

fn plan(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let terminator = *random.one_of(&[b'\n', b'\n', 0]);
    let separator = *random.one_of(b"\t\t,a 1\x01\xff");
    let mapper = *random.one_of(&[None, None, Some("builtin:identity"), Some("cat")]);
    let job = match random.below(4) {
        0 => Job::Copy { mapper },
        1 => Job::Grep { pattern: pattern(&mut random), sorts: random.chance(50) },
        _ => Job::Sort { key_fields: 1 + random.below(3), mapper },
    };
    let files = (0..1 + random.below(4)).map(|_| file(&mut random, separator)).collect();
    let mut options = vec![format!("--memory={}", random.one_of(&["64M", "256M"]))];
    options.push(format!("--slots={}", 1 + random.below(4)));
    options.push(format!("--codec={}", random.one_of(&["none", "lz4", "zstd"])));
    Case { job, terminator, separator, options, files }
}

impl Case {
    /// Returns the records of all files, each with its end.
    fn text(&self) -> Vec<u8> {
        let ended = |file: &Vec<u8>| {
            let needs_end = file.last().is_some_and(|last| *last != self.terminator);
            [file.as_slice(), if needs_end { std::slice::from_ref(&self.terminator) } else { &[] }].concat()
        };
        self.files.iter().flat_map(ended).collect()
    }

    /// Coreutils over the text.
    fn expected(&self, sandbox: &Sandbox) -> Vec<u8> {
        sandbox.write("text", self.text());
        let zeros = if self.terminator == 0 { "-z" } else { "" };
        let sort = |key_fields: u64| format!("sort -s {zeros} -t \"$SEPARATOR\" -k1,{key_fields}");
        let script = match &self.job {
            Job::Sort { key_fields, .. } => format!("{} text", sort(*key_fields)),
            Job::Copy { .. } => "cat text".to_string(),
            Job::Grep { pattern, sorts } => {
                let then = if *sorts { sort(1) } else { "cat".to_string() };
                format!("grep {zeros} -aE '{pattern}' text | {then}")
            }
        };
        let mut command = Command::new("sh");
        sandbox.clean(&mut command);
        command.env("LC_ALL", "C").env("SEPARATOR", OsString::from_vec(vec![self.separator]));
        Running::start(command.args(["-c", &script])).wait().expect_success().stdout
    }

    fn args(&self) -> Vec<String> {
        let mut args: Vec<String> = self.options.clone();
        args.extend(["--input=in", "--overwrite", "--no-sync"].map(str::to_string));
        args.push(format!("--separator=\\x{:02x}", self.separator));
        if self.terminator == 0 {
            args.extend(["--input-format=nul", "--output-format=nul"].map(str::to_string));
        }
        match &self.job {
            Job::Sort { key_fields, mapper } => {
                args.extend([format!("--key-fields={key_fields}"), "--total-order".to_string()]);
                args.extend(mapper.map(|mapper| format!("--mapper={mapper}")));
            }
            Job::Copy { mapper } => {
                args.push("--map-only".to_string());
                args.extend(mapper.map(|mapper| format!("--mapper={mapper}")));
            }
            Job::Grep { pattern, sorts } => {
                args.push(format!("--mapper=builtin:grep:{pattern}"));
                args.push(if *sorts { "--total-order" } else { "--map-only" }.to_string());
            }
        }
        args
    }
}

fn run(sandbox: &Sandbox, seed: u64) -> Result<(), String> {
    let case = plan(seed);
    let _ = std::fs::remove_dir_all(sandbox.path("in"));
    std::fs::create_dir(sandbox.path("in")).expect("a sandbox takes a directory");
    for (number, bytes) in case.files.iter().enumerate() {
        sandbox.write(&format!("in/{number}"), bytes);
    }
    let expected = case.expected(sandbox);
    let args = case.args();
    let finished = sandbox.run_job(&args.iter().map(String::as_str).collect::<Vec<_>>());
    if finished.code() != Some(0) {
        return Err(finished.story());
    }
    let found = sandbox.concatenated(&sandbox.out());
    let shown = |bytes: &[u8]| bytes[..bytes.len().min(2000)].escape_ascii().to_string();
    match found == expected {
        true => Ok(()),
        false => Err(format!("{args:?}\nfound    {}\nexpected {}", shown(&found), shown(&expected))),
    }
}

#[test]
fn sort_cat_and_grep_give_the_same_bytes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, cases) = match number("SAILFISH_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("SAILFISH_LOSSLESS_CASES").unwrap_or(CASES)),
    };
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let sandbox = Sandbox::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + cases {
                        return;
                    }
                    if let Err(problem) = run(&sandbox, seed) {
                        panic!("SAILFISH_SEED={seed} cargo test -p blackbox --test one_machine lossless\n{problem}");
                    }
                }
            });
        }
    });
}

/// F14 of the attacks.
/// Attacks, 14.
#[test]
fn mapper_that_ends_early_is_named() {
    let sandbox = Sandbox::new();
    let lines: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
    sandbox.write("in/whole", "one\n");
    sandbox.write("in/z-cut", &lines);
    let mapper = ["--input", "in", "--mapper", "sh -c 'head -n 1'", "--overwrite", "--slots", "1"];
    let told = sandbox.run_job(&mapper).expect_success();
    let report = sandbox.report(&sandbox.out());
    let unread = report["map"]["unread_bytes"].as_u64().expect("a number");
    assert!(unread > lines.len() as u64 / 2, "{report}");
    let tasks = report["map"]["unread"].as_array().expect("a list");
    assert_eq!(report["map"]["unread_tasks"], tasks.len());
    let listed: u64 = tasks.iter().map(|task| task["unread_bytes"].as_u64().expect("a number")).sum();
    assert_eq!(listed, unread);
    for text in ["ended before the end of the input", " of ", "--unread fail"] {
        assert!(told.stderr.contains(text), "{}", told.story());
    }
    let whole = sandbox.run_job(&["--input", "in", "--mapper", "cat", "--overwrite"]).expect_success();
    assert!(!whole.stderr.contains("unread"), "{}", whole.story());
    let failed = sandbox.run_job(&[&mapper[..], &["--unread", "fail"]].concat());
    failed.expect_failure(2, &["ended before its input did", "bytes unread"]);
    sandbox.write("job.toml", "input = \"in\"\nmapper = \"sh -c 'head -n 1'\"\nunread = \"fail\"\n");
    sandbox.run_job(&["--job", "job.toml", "--overwrite"]).expect_failure(2, &["bytes unread"]);
}
