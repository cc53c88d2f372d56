//! Steps that did not change are skipped, and no output is ever stale: random workflows over random edits of their
//! inputs, commands, programs, environment and outputs.
//!
//! Each case follows from a seed. `SAILFISH_SEED=17` runs that case alone; `SAILFISH_EDITED_WORKFLOWS=500` runs more.

use blackbox::{Finished, Random, Running, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

const CASES: u64 = 6;
const EDITS: usize = 5;
const SOURCES: usize = 3;

/// A step of a random workflow. It writes the text of its program, its version, its variable, and its inputs.
#[derive(Clone)]
struct Step {
    /// Inputs from earlier steps.
    steps: BTreeSet<usize>,
    sources: BTreeSet<usize>,
    /// The one of `steps` that is its standard input.
    stdin: Option<usize>,
    keep: bool,
    cores: u32,
    version: u64,
    variable: u64,
    /// True: it runs the script `tool`, in place of a command.
    by_tool: bool,
}

struct Case {
    sandbox: Sandbox,
    steps: Vec<Step>,
    random: Random,
    tool: u64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = Random::new(seed);
        let count = 2 + random.below(6) as usize;
        let mut steps = Vec::new();
        for index in 0..count {
            let before: BTreeSet<usize> = (0..index).filter(|_| random.chance(45)).collect();
            let percent = if before.is_empty() { 60 } else { 20 };
            let sources = (0..SOURCES).filter(|_| random.chance(percent)).collect();
            let stdin = before.iter().copied().find(|_| random.chance(50));
            steps.push(Step {
                sources,
                stdin,
                steps: before,
                keep: random.chance(40),
                cores: 1 + random.below(2) as u32,
                version: 0,
                variable: 0,
                by_tool: random.chance(25),
            });
        }
        let case = Case { sandbox: Sandbox::new(), steps, random, tool: 0 };
        (0..SOURCES)
            .for_each(|source| drop(case.sandbox.write(&format!("in{source}"), format!("{source}\n"))));
        case.write();
        case
    }

    /// Writes the workflow file, and the script.
    fn write(&self) {
        let mut text = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            let mut inputs: Vec<String> =
                step.sources.iter().map(|source| format!("\"in{source}\"")).collect();
            let files = step.steps.iter().filter(|before| Some(**before) != step.stdin);
            inputs.extend(files.map(|before| format!("\"made/o{before}\"")));
            let read = inputs.iter().map(|input| input.trim_matches('"')).collect::<Vec<_>>().join(" ");
            let log = self.sandbox.path(&format!("ran/{index}"));
            let command = match step.by_tool {
                true => format!("words = [\"./tool\", \"{}\", {}]", log.display(), inputs.join(", ")),
                false => format!(
                    "command = \"echo v{} $V; sha256sum {read} - < /dev/stdin; echo >> {}\"",
                    step.version,
                    log.display()
                ),
            };
            let _ =
                writeln!(text, "[[step]]\nname = \"s{index}\"\n{command}\ninputs = [{}]", inputs.join(", "));
            let _ = writeln!(text, "stdout = \"made/o{index}\"\nenv = {{ V = \"{}\" }}", step.variable);
            let _ = writeln!(text, "keep = {}\ncores = {}", step.keep, step.cores);
            if let Some(before) = step.stdin {
                let _ = writeln!(text, "stdin = \"made/o{before}\"");
            }
        }
        self.sandbox.write("flow.toml", text);
        let tool = format!(
            "#!/bin/sh\nlog=$1\nshift\necho >> \"$log\"\necho t{} $V\nsha256sum \"$@\" - < /dev/stdin\n",
            self.tool
        );
        self.sandbox.script("tool", &tool);
        fs::create_dir_all(self.sandbox.path("ran")).expect("a directory");
    }

    fn run(&mut self, state: &str) -> Finished {
        let slots = (2 + self.random.below(3)).to_string();
        let state = self.sandbox.path(state);
        let mut command = self.sandbox.sailfish();
        command.current_dir(self.sandbox.path("")).args(["workflow", "run", "flow.toml", "--slots", &slots]);
        Running::start(command.arg("--state").arg(state)).wait().expect_success()
    }

    /// Returns the steps that ran since the last call.
    fn ran(&self) -> BTreeSet<usize> {
        let ran = (0..self.steps.len())
            .filter(|index| fs::remove_file(self.sandbox.path(&format!("ran/{index}"))).is_ok());
        ran.collect()
    }

    /// Returns all files that a run leaves.
    fn made(&self) -> BTreeMap<String, String> {
        let Ok(list) = fs::read_dir(self.sandbox.path("made")) else { return BTreeMap::new() };
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).expect("a text");
            (entry.file_name().into_string().expect("a name"), text)
        };
        list.map(|entry| read(entry.expect("an entry"))).collect()
    }

    /// Changes something. Returns the steps that it concerns directly.
    fn edit(&mut self) -> BTreeSet<usize> {
        let index = self.random.below(self.steps.len() as u64) as usize;
        let output = self.sandbox.path(&format!("made/o{index}"));
        match self.random.below(8) {
            0 | 1 => {
                let source = self.random.below(SOURCES as u64) as usize;
                self.sandbox.write(&format!("in{source}"), self.random.below(4).to_string());
                let reads = |index: &usize| self.steps[*index].sources.contains(&source);
                return (0..self.steps.len()).filter(reads).collect();
            }
            2 => self.steps[index].version += 1,
            3 => self.steps[index].variable += 1,
            4 => {
                self.tool += 1;
                return (0..self.steps.len()).filter(|index| self.steps[*index].by_tool).collect();
            }
            5 if output.exists() => fs::remove_file(output).expect("an output is removed"),
            6 if output.exists() => fs::write(output, "damaged").expect("an output is written"),
            _ => return BTreeSet::new(),
        }
        BTreeSet::from([index])
    }

    /// Returns the steps that may run after an edit: those it concerns, those that read them, and those whose temporary
    /// outputs these read.
    fn concerned(&self, edited: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut all = edited.clone();
        for index in 0..self.steps.len() {
            if self.steps[index].steps.iter().any(|before| all.contains(before)) {
                all.insert(index);
            }
        }
        for index in (0..self.steps.len()).rev().filter(|index| !self.steps[*index].keep) {
            if all.iter().any(|reader| self.steps[*reader].steps.contains(&index)) {
                all.insert(index);
            }
        }
        all
    }
}

fn check(seed: u64) {
    let mut case = Case::new(seed);
    case.run("state");
    assert_eq!(case.ran().len(), case.steps.len(), "seed {seed}: a first run runs all steps");
    for edit in 0..EDITS {
        case.run("state");
        assert!(case.ran().is_empty(), "seed {seed}, edit {edit}: nothing changed");
        let edited = case.edit();
        case.write();
        case.run("state");
        let (ran, made) = (case.ran(), case.made());
        let concerned = case.concerned(&edited);
        assert!(ran.is_subset(&concerned), "seed {seed}, edit {edit}: {ran:?} ran, not {concerned:?}");
        // A state of its own knows no finished runs.
        fs::remove_dir_all(case.sandbox.path("made")).expect("the outputs are removed");
        case.run(&format!("state-{edit}"));
        assert_eq!(made, case.made(), "seed {seed}, edit {edit}: stale outputs after {ran:?} ran");
        case.ran();
    }
}

#[test]
fn no_output_is_stale_after_edits() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SAILFISH_SEED") {
        Some(seed) => check(seed),
        None => (0..number("SAILFISH_EDITED_WORKFLOWS").unwrap_or(CASES)).for_each(check),
    }
}

/// Three steps, the last of which fails as long as a file exists. Each says that it runs.
fn chain(sandbox: &Sandbox) {
    let broken = sandbox.path("broken").display().to_string();
    let text = format!(
        "[[step]]\nname = \"first\"\ncommand = \"echo first ran; sort in > a\"\ninputs = [\"in\"]\noutputs = [\"a\"]\n\
         [[step]]\nname = \"second\"\ncommand = \"echo second ran; uniq a > b\"\ninputs = [\"a\"]\noutputs = [\"b\"]\n\
         [[step]]\nname = \"third\"\ncommand = \"test ! -e {broken}; echo third ran; wc -l < b > c\"\n\
         inputs = [\"b\"]\noutputs = [\"c\"]\n"
    );
    sandbox.write("flow.toml", text);
    sandbox.write("in", "b\na\nb\n");
}

#[test]
fn same_command_goes_on_after_failure() {
    let sandbox = Sandbox::new();
    chain(&sandbox);
    sandbox.write("broken", "");
    let failed =
        sandbox.workflow(&["run", "flow.toml"]).expect_failure(1, &["the step \"third\"", "exit code 1"]);
    assert_eq!(failed.text(), "first ran\nsecond ran\n");
    fs::remove_file(sandbox.path("broken")).expect("it is removed");
    let done = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(done.text(), "third ran\n");
    assert!(done.story().contains("3 steps succeeded, 2 of them skipped"), "{}", done.story());
    assert_eq!(fs::read_to_string(sandbox.path("c")).expect("a result"), "2\n");
    assert!(!sandbox.path("a").exists() && !sandbox.path("b").exists(), "they were temporary");
}

#[test]
fn report_has_contents_of_temporary_files() {
    let sandbox = Sandbox::new();
    chain(&sandbox);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    let report = sandbox.look(&["report", "1", "--json"]).expect_success().json();
    let files = |run: &serde_json::Value| run["outputs"].as_array().expect("a list").clone();
    let wrote: Vec<_> = report["runs"].as_array().expect("a list").iter().flat_map(files).collect();
    let told: Vec<_> = wrote.iter().map(|file| (file["bytes"].as_u64(), file["sha256"].as_str())).collect();
    // The lines `a b b`, `a b` and `2`, by sha256sum.
    let expected = [
        (6, "c74f9ee7d42d4d6d89e9ff9f7d1593011198a6099029569fed65c1ab6bded3df"),
        (4, "911169ddaaf146aff539f58c26c489af3b892dff0fe283c1c264c65ae5aa59a2"),
        (2, "53c234e5e8472b6ac51c1ae1cab3fe06fad053beb8ebfd8977b010655bfdd3c3"),
    ];
    assert_eq!(told, expected.map(|(bytes, sum)| (Some(bytes), Some(sum))));
    let text = sandbox.look(&["report", "1"]).expect_success().text();
    assert!(text.contains("3 steps ran in this job and in no later one"), "{text}");
    assert!(text.contains(&expected[1].1[..16]), "{text}");
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    let jobs = sandbox.look(&["jobs", "--json"]).expect_success().json();
    let second = jobs[0]["job"].as_i64().expect("a number").to_string();
    let skipped = sandbox.look(&["report", &second]).expect_success().text();
    assert!(skipped.contains("0 steps ran in this job"), "{skipped}");
    sandbox.look(&["report", "2"]).expect_failure(1, &["a job of one program has no report"]);
    for command in ["logs", "explain", "timeline"] {
        sandbox.look(&[command, "1"]).expect_failure(2, &["`sailfish jobs --steps-of 1` lists them"]);
    }
}

#[test]
fn why_names_the_change_of_each_step() {
    let sandbox = Sandbox::new();
    chain(&sandbox);
    let why = |words: &[&str]| sandbox.workflow(&[&["why", "flow.toml"], words].concat());
    let unknown = "\"first\": no finished run of it is known\n";
    assert!(why(&[]).expect_success().text().starts_with(unknown));
    why(&["secand"]).expect_failure(2, &["there is no step \"secand\": did you mean `second`?"]);
    why(&["zz"])
        .expect_failure(2, &["there is no step \"zz\": the steps are \"first\", \"second\", \"third\""]);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(why(&[]).expect_success().text(), "all steps are skipped, as nothing changed for them\n");
    fs::remove_file(sandbox.path("c")).expect("it was made");
    assert_eq!(why(&["third"]).expect_success().text(), "\"third\": c is gone\n");
    let second = "\"second\": \"third\" needs b, which was temporary\n";
    assert_eq!(why(&["second"]).expect_success().text(), second);
    sandbox.write("in", "b\na\n");
    let changed = sandbox.path("in").display().to_string();
    assert_eq!(why(&["first"]).expect_success().text(), format!("\"first\": {changed} changed\n"));
    assert_eq!(why(&["second"]).expect_success().text(), "\"second\": a comes from \"first\", which runs\n");
    assert!(!sandbox.path("c").exists(), "nothing ran");
    // The first step writes what it wrote before only if its input has the same lines.
    sandbox.write("in", "b\nb\na\n");
    assert_eq!(
        sandbox.workflow(&["run", "flow.toml"]).expect_success().text(),
        "first ran\nsecond ran\nthird ran\n"
    );
}

#[test]
fn why_names_gathered_files_that_came() {
    let sandbox = Sandbox::new();
    for name in ["a.part", "c.part"] {
        sandbox.write(name, name);
    }
    let step = "[[step]]\nname = \"all\"\ncommand = \"cat *.part > all\"\ninputs = [\"*.part\"]\noutputs = [\"all\"]\n";
    sandbox.write("flow.toml", step);
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    let why = || sandbox.workflow(&["why", "flow.toml"]).expect_success().text();
    sandbox.write("b.part", "b");
    assert_eq!(why(), "\"all\": b.part is a new input\n");
    for name in ["b.part", "c.part"] {
        fs::remove_file(sandbox.path(name)).expect("it was made");
    }
    assert_eq!(why(), "\"all\": c.part is no input any more\n");
}

/// A step that runs again and writes what it wrote before does not make its readers run.
#[test]
fn equal_outputs_let_readers_be_skipped() {
    let sandbox = Sandbox::new();
    chain(&sandbox);
    let text = fs::read_to_string(sandbox.path("flow.toml")).expect("a file");
    sandbox.write("flow.toml", text.replace("outputs", "keep = true\noutputs"));
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    sandbox.write("in", "b\nb\na\n");
    let again = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(again.text(), "first ran\n");
    let uncached = text.replace("outputs", "keep = true\ncache = false\noutputs");
    sandbox.write("flow.toml", uncached);
    let all = sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(all.text(), "first ran\nsecond ran\nthird ran\n");
}

/// A step without outputs may change files: steps that wait for it run, and read them as they are then.
#[test]
fn steps_after_a_running_one_run() {
    let sandbox = Sandbox::new();
    let data = sandbox.write("data", "");
    let text = format!(
        "[[step]]\nname = \"fetch\"\ncommand = \"echo line >> {}\"\n\
         [[step]]\nname = \"count\"\ncommand = \"wc -l < data > n\"\ninputs = [\"data\"]\noutputs = [\"n\"]\nafter = [\"fetch\"]\n",
        data.display()
    );
    sandbox.write("flow.toml", text);
    for count in 1..4 {
        sandbox.workflow(&["run", "flow.toml"]).expect_success();
        assert_eq!(fs::read_to_string(sandbox.path("n")).expect("a result"), format!("{count}\n"));
    }
}

/// A step whose output was removed may write something else: its readers follow.
#[test]
fn readers_follow_an_output_written_again() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "flow.toml",
        "[[step]]\nname = \"seed\"\ncommand = \"date +%N > seed\"\noutputs = [\"seed\"]\nkeep = true\n\
         [[step]]\nname = \"copy\"\ncommand = \"cat seed > copy\"\ninputs = [\"seed\"]\noutputs = [\"copy\"]\n",
    );
    let read = |name: &str| fs::read_to_string(sandbox.path(name)).expect("a result");
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    fs::remove_file(sandbox.path("seed")).expect("it was made");
    sandbox.workflow(&["run", "flow.toml"]).expect_success();
    assert_eq!(read("seed"), read("copy"));
}

#[test]
fn workflow_file_runs_once_at_a_time() {
    let sandbox = Sandbox::new();
    let (mut here, mut go) = (sandbox.fifo("here"), sandbox.fifo("go"));
    let root = sandbox.path("").display().to_string();
    let step = format!(
        "[[step]]\nname = \"a\"\ncommand = \"echo here > {root}/here; read line < {root}/go; echo a > out\"\noutputs = [\"out\"]\ncache = false\n"
    );
    sandbox.write("flow.toml", step);
    let mut first = sandbox.sailfish();
    first
        .current_dir(sandbox.path(""))
        .args(["workflow", "run", "flow.toml", "--state"])
        .arg(sandbox.state());
    let first = Running::start(&mut first);
    assert_eq!(here.read_line(), "here");
    sandbox.workflow(&["run", "flow.toml"]).expect_failure(2, &["another process runs flow.toml"]);
    sandbox.workflow(&["why", "flow.toml"]).expect_success();
    go.write_line("go on");
    first.wait().expect_success();
    assert_eq!(fs::read_to_string(sandbox.path("out")).expect("it was made"), "a\n");
}
