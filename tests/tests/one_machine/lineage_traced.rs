//! Lineage equals the opens of a trace: random workflows run under `strace`, and `sailfish lineage --json` is compared with it.
//!
//! The truth of a step that may be skipped is the trace of all its processes:
//!
//! - It read the files below the directory of the workflow (and below `elsewhere`) that they opened for reading, or had as
//!   standard input, or were started from, links resolved. Files of `reads` do not count. A standard input that is no such
//!   file is the stream that the step declares.
//! - It wrote the files that came into place from its own directory, and the stream that it declares, if that came nowhere.
//!
//! Steps with `cache = false` or without outputs are not in the lineage, nor are steps that read a stream of one: to the
//! lineage, their outputs are sources. For each file and both directions, the runs that lineage names, their distances, inputs
//! and outputs are exactly those that follow from these edges; the same holds for the runs of a second time, after an edit.
//! Programs may leave declared inputs closed. Lineage names these inputs too, and no other file: its edges lie between the
//! opened and the declared files.
//!
//! Undeclared opens of steps that may be skipped fail with EACCES; the others succeed. The lines in the files that stay name
//! each step behind them, whether it wrote a file or a stream.
//!
//! After an edit of a file, the steps whose programs start in the next run are those of `lineage --down`, and those whose
//! temporary outputs these read. That is exact if programs open all that they declare and all steps are remembered; else
//! the run lies between the direct readers, and all that wait for these or for steps that always run.
//!
//! Each case follows from a seed: `SAILFISH_SEED=17 cargo test -p blackbox --test one_machine lineage_traced` runs that
//! case alone; `SAILFISH_TRACED_WORKFLOWS=500` runs more.

mod trace;
mod workflows;

use crate::declared_reads::landlock_version;
use blackbox::{Random, Running, Sandbox, could_not_run, sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use trace::TracedStep;
use workflows::{DIRECTORY, Declared, Generator, RandomWorkflow};

/// Few: each runs under `strace`, twice. From this seed on, these have all that is counted below.
const CASES: u64 = 4;
const FIRST_SEED: u64 = 64;

/// Counts of what the cases have; a run of all seeds has some of each.
type Tally = BTreeMap<&'static str, usize>;
type Names = BTreeSet<String>;
type Paths = BTreeSet<PathBuf>;

/// Files of a step by its last run.
#[derive(Debug, Default)]
struct Edges {
    read: Paths,
    /// Declared inputs that it did not open, where programs may leave them closed.
    closed: Paths,
    wrote: Paths,
    /// Those that never were files.
    streamed: Paths,
    /// True if lineage knows the run.
    is_known: bool,
}

struct Case {
    sandbox: Sandbox,
    random: Random,
    workflow: RandomWorkflow,
    edges: BTreeMap<String, Edges>,
    tally: Tally,
}

/// Answer of `sailfish lineage`: the distance of each step, its files read and its files written.
type Answer = BTreeMap<String, (u64, Paths, Paths)>;

impl Case {
    fn new(seed: u64) -> Case {
        let sandbox = Sandbox::new();
        let root = root(&sandbox);
        let mut random = Random::new(seed);
        workflows::write_sources(&sandbox);
        // Outputs come into place by a link, as on one file system.
        fs::create_dir(root.join("tmp")).expect("our own directory takes another");
        let workflow = Generator::new(&mut random, &root).generate();
        sandbox.write(&format!("{DIRECTORY}/flow.toml"), &workflow.text);
        Case { sandbox, random, workflow, edges: BTreeMap::new(), tally: Tally::new() }
    }

    fn directory(&self) -> PathBuf {
        root(&self.sandbox).join(DIRECTORY)
    }

    /// Runs the workflow under `strace`. Returns the steps whose programs were started.
    fn run(&mut self, number: u32) -> Names {
        let root = root(&self.sandbox);
        let traces = root.join(format!("traces {number}"));
        fs::create_dir(&traces).expect("our own directory takes another");
        let mut command = self.sandbox.sailfish();
        let slots = self.random.one_of(&["1", "2", "4", "8"]).to_string();
        command.current_dir(self.directory()).env("TMPDIR", root.join("tmp"));
        command
            .args(["workflow", "run", "flow.toml", "--slots", &slots, "--state"])
            .arg(self.sandbox.state());
        Running::start(&mut trace::under_strace(&command, &traces)).wait().expect_success();
        let traced = trace::traced_steps(&traces);
        let ran: Names = traced.keys().cloned().collect();
        self.add_edges(traced);
        ran
    }

    /// Takes the edges of a run in place of those of earlier runs. Steps are declared after those whose outputs they read.
    fn add_edges(&mut self, mut traced: BTreeMap<String, TracedStep>) {
        let (root, directory) = (root(&self.sandbox), self.directory());
        let is_in_scope =
            |path: &Path| path.starts_with(&directory) || path.starts_with(root.join("elsewhere"));
        for declared in &self.workflow.steps {
            let Some(step) = traced.remove(&declared.name) else { continue };
            check_tries(declared, &step);
            let stdin = PathBuf::from(&step.stdin);
            let (mut read, mut wrote) = (step.opened, step.placed);
            let stream = declared.stdin.as_ref().filter(|_| !is_in_scope(&stdin));
            let stream = stream.map(|name| directory.join(name));
            read.insert(stream.clone().unwrap_or(stdin));
            let not_counted: Paths = declared.reads.iter().map(|name| real(&directory.join(name))).collect();
            read.retain(|path| is_in_scope(path) && !not_counted.contains(path));
            // A step that reads everything has opened these.
            read.retain(|path| !declared.tries.contains(path));
            let comes_from_unknown = stream.as_ref().is_some_and(|stream| {
                let mut writers = self.edges.values().filter(|edges| edges.streamed.contains(stream));
                writers.any(|edges| !edges.is_known)
            });
            let stdout = declared.stdout.iter().map(|name| directory.join(name));
            let streamed: Paths = stdout.filter(|path| !wrote.contains(path)).collect();
            wrote.extend(streamed.iter().cloned());
            let links = declared.inputs.iter().map(|name| directory.join(name));
            let links = links.filter(|path| *path != real(path)).count();
            let closed = declared.inputs.iter().map(|name| real(&directory.join(name)));
            let closed: Paths = closed.filter(|path| !read.contains(path)).collect();
            assert!(closed.is_empty() || !self.workflow.features.opens_all, "{closed:?} stayed closed");
            let counts = [
                ("streams", streamed.len()),
                ("reads that do not count", declared.reads.len()),
                ("inputs that stay closed", closed.len()),
                ("undeclared opens that are refused", step.refused.len()),
                ("steps that read everything", usize::from(!declared.is_remembered())),
                ("steps that read a stream of such a step", usize::from(comes_from_unknown)),
                ("links", links),
            ];
            counts.into_iter().for_each(|(kind, count)| *self.tally.entry(kind).or_default() += count);
            let is_known = declared.is_remembered() && !comes_from_unknown;
            self.edges.insert(declared.name.clone(), Edges { read, closed, wrote, streamed, is_known });
        }
        assert!(traced.is_empty(), "steps without declaration: {:?}", traced.keys());
    }

    /// Returns the steps that a list of files leads to, with the number of steps between.
    fn follow(&self, file: &Path, is_down: bool) -> BTreeMap<&str, u64> {
        let mut found: BTreeMap<&str, u64> = BTreeMap::new();
        let mut next = VecDeque::from([(file.to_path_buf(), 0)]);
        while let Some((file, distance)) = next.pop_front() {
            for (name, edges) in self.edges.iter().filter(|(_, edges)| edges.is_known) {
                let leads_here = match is_down {
                    true => edges.read.contains(&file) || edges.closed.contains(&file),
                    false => edges.wrote.contains(&file),
                };
                if !leads_here || found.contains_key(name.as_str()) {
                    continue;
                }
                found.insert(name, distance);
                let further: Vec<&PathBuf> = match is_down {
                    true => edges.wrote.iter().collect(),
                    false => edges.read.iter().chain(&edges.closed).collect(),
                };
                next.extend(further.into_iter().map(|file| (file.clone(), distance + 1)));
            }
        }
        found
    }

    /// Asks for the lineage of a file.
    fn ask(&self, file: &Path, is_down: bool) -> Vec<serde_json::Value> {
        let mut command = self.sandbox.sailfish();
        let direction = if is_down { "--down" } else { "--up" };
        command.arg("lineage").arg(file).args([direction, "--json", "--state"]).arg(self.sandbox.state());
        let mut lineage = Running::start(&mut command).wait().expect_success().json();
        assert!(lineage.get("was_at").is_none(), "{} was not moved: {lineage}", file.display());
        match lineage["runs"].take() {
            serde_json::Value::Array(runs) => runs,
            other => panic!("no list of runs: {other}"),
        }
    }

    /// Reads a run of an answer. Files that exist must have the content that it tells.
    fn answer(&self, run: &serde_json::Value) -> (String, (u64, Paths, Paths)) {
        let files = |kinds: &[&str]| {
            let files = kinds.iter().flat_map(|kind| run[kind].as_array().expect("a list of files"));
            let path = |file: &serde_json::Value| {
                let path = path_of(&file["path"]);
                let real = real(path);
                let told = file.get("real_path").map_or(path, path_of);
                assert!(told == real || !path.exists(), "{} is {}", told.display(), real.display());
                if let (Ok(content), Some(told)) = (fs::read(path), file["sha256"].as_str()) {
                    assert_eq!(told, sha256(&content), "content of {}", path.display());
                }
                real
            };
            files.map(path).collect::<Paths>()
        };
        let mut read = files(&["inputs", "executables"]);
        read.retain(|path| path.starts_with(root(&self.sandbox)));
        (name_of(run), (distance_of(run), read, files(&["outputs"])))
    }

    /// Compares the lineage of a file with the edges.
    fn check_file(&self, file: &Path, is_down: bool) {
        let expected = self.follow(&real(file), is_down).into_iter();
        let expected: Answer = expected
            .map(|(name, distance)| {
                let edges = &self.edges[name];
                let read = edges.read.union(&edges.closed).cloned().collect();
                (name.to_string(), (distance, read, edges.wrote.clone()))
            })
            .collect();
        let runs = self.ask(file, is_down);
        let told: Answer = runs.iter().map(|run| self.answer(run)).collect();
        assert_eq!(told.len(), runs.len(), "a step has several runs: {runs:?}");
        let direction = if is_down { "down" } else { "up" };
        assert_eq!(told, expected, "lineage {direction} of {} (told, traced)", file.display());
    }

    fn check_all_files(&self) {
        for file in workflows::editable(&root(&self.sandbox)) {
            self.check_file(&file, true);
            self.check_file(&file, false);
        }
        for file in self.edges.values().flat_map(|edges| &edges.wrote) {
            self.check_file(file, true);
            self.check_file(file, false);
        }
    }

    /// Compares the steps that the lines of each file name with those that the edges lead to, known or not.
    fn check_lines(&self) {
        if !self.workflow.features.opens_all {
            return;
        }
        for (name, edges) in &self.edges {
            let mut behind = BTreeSet::from([name.clone()]);
            let mut next = vec![edges];
            while let Some(edges) = next.pop() {
                for (writer, other) in &self.edges {
                    if !other.wrote.is_disjoint(&edges.read) && behind.insert(writer.clone()) {
                        next.push(other);
                    }
                }
            }
            for file in edges.wrote.iter().filter(|file| file.exists()) {
                let text = fs::read_to_string(file).expect("a text");
                let lines = text.lines().filter_map(|line| line.strip_prefix("made by "));
                let named: Names = lines.map(str::to_string).collect();
                assert_eq!(named, behind, "the lines of {} name (named, traced)", file.display());
            }
        }
    }

    /// Edits a file and runs the workflow again.
    fn check_edit(&mut self) {
        let mut files = workflows::editable(&root(&self.sandbox));
        if self.random.chance(85) {
            files.retain(|file| self.edges.values().any(|edges| edges.read.contains(&real(file))));
        }
        let file = self.random.one_of(&files).clone();
        let line = if file.ends_with("tool") { "echo edited >> \"$out\"\n" } else { "edited\n" };
        let text = fs::read_to_string(&file).expect("a text");
        fs::write(&file, text + line).expect("our own file is written");
        let runs = self.ask(&file, true);
        let down: Names = runs.iter().map(name_of).collect();
        let direct: Names = runs.iter().filter(|run| distance_of(run) == 0).map(name_of).collect();
        let features = self.workflow.features;
        let (with_temporary, may_run) = (self.with_temporary(down.clone()), self.may_run(down.clone()));
        let ran = self.run(2);
        let edited = file.display();
        if features.opens_all && features.all_remembered {
            assert_eq!(ran, with_temporary, "the edit of {edited} made these run (ran, lineage)");
            *self.tally.entry("steps that run after an edit").or_default() += down.len();
            *self.tally.entry("steps that run for temporary outputs").or_default() += ran.len() - down.len();
        } else {
            assert!(direct.is_subset(&ran), "{direct:?} read {edited}, {ran:?} ran");
            assert!(ran.is_subset(&may_run), "{ran:?} ran after the edit of {edited}, not only {may_run:?}");
        }
    }

    /// Adds the steps whose outputs are gone and needed.
    fn with_temporary(&self, mut names: Names) -> Names {
        loop {
            let needed = |file: &&PathBuf| {
                !file.exists()
                    && names.iter().any(|name| {
                        self.edges[name].read.contains(*file) || self.edges[name].closed.contains(*file)
                    })
            };
            let more = self
                .edges
                .iter()
                .find(|(name, edges)| !names.contains(*name) && edges.wrote.iter().any(|file| needed(&file)));
            let Some((more, _)) = more else { return names };
            names.insert(more.clone());
        }
    }

    /// Returns all steps that may run: these, those that always run, those that wait for one, and temporary outputs of them.
    fn may_run(&self, mut names: Names) -> Names {
        let unknown = self.edges.iter().filter(|(_, edges)| !edges.is_known).map(|(name, _)| name);
        names.extend(unknown.cloned());
        for step in &self.workflow.steps {
            let edges = &self.edges[&step.name];
            let reads = |before: &String| {
                let wrote = &self.edges[before].wrote;
                !wrote.is_disjoint(&edges.read) || !wrote.is_disjoint(&edges.closed)
            };
            if names.iter().any(|before| reads(before) || step.after.as_ref() == Some(before)) {
                names.insert(step.name.clone());
            }
        }
        self.with_temporary(names)
    }
}

impl Declared {
    fn is_remembered(&self) -> bool {
        self.is_cached && !self.outputs.is_empty()
    }
}

fn path_of(value: &serde_json::Value) -> &Path {
    Path::new(value.as_str().expect("a path"))
}

fn name_of(run: &serde_json::Value) -> String {
    run["step"].as_str().expect("a name").to_string()
}

/// Returns the number of runs between the file and a run.
fn distance_of(run: &serde_json::Value) -> u64 {
    run["distance"].as_u64().expect("a number")
}

/// Undeclared opens of a step that is remembered were refused, and those of another one were not.
fn check_tries(declared: &Declared, step: &TracedStep) {
    for tried in &declared.tries {
        let (opened, refused) = (step.opened.contains(tried), step.refused.contains(tried));
        let expected = if declared.is_remembered() { (false, true) } else { (true, false) };
        let (name, path) = (&declared.name, tried.display());
        assert_eq!((opened, refused), expected, "{name:?} tried {path} (opened, refused)");
    }
}

/// Returns the directory of a sandbox, links resolved.
fn root(sandbox: &Sandbox) -> PathBuf {
    real(&sandbox.path(""))
}

/// Returns a path, links resolved; of a file that is gone, those above it.
fn real(path: &Path) -> PathBuf {
    let above = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(above).unwrap_or_else(|| path.to_path_buf())
}

fn check(seed: u64) -> Tally {
    let mut case = Case::new(seed);
    println!("# seed {seed}, {:?}\n{}", case.workflow.features, case.workflow.text);
    let ran = case.run(1);
    let all: Names = case.workflow.steps.iter().map(|step| step.name.clone()).collect();
    assert_eq!(ran, all, "a first run runs all steps");
    case.check_lines();
    case.check_all_files();
    case.check_edit();
    case.check_lines();
    case.check_all_files();
    case.tally
}

/// Says how to run a case alone, whatever made it fail.
struct ReplayHint {
    seed: u64,
}

impl Drop for ReplayHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("SAILFISH_SEED={} cargo test -p blackbox --test one_machine lineage_traced", self.seed);
        }
    }
}

#[test]
fn lineage_equals_the_traced_opens() {
    if let Some(why) = trace::obstacle() {
        return could_not_run("lineage beside traced opens", &why);
    }
    if landlock_version() < 2 {
        let why = "this kernel has no Landlock of version 2 (Linux 5.19)";
        return could_not_run("lineage beside traced opens", why);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match number("SAILFISH_SEED") {
        Some(seed) => seed..seed + 1,
        None => FIRST_SEED..FIRST_SEED + number("SAILFISH_TRACED_WORKFLOWS").unwrap_or(CASES),
    };
    let has_all = seeds.end - seeds.start >= CASES;
    let mut tally = Tally::new();
    for seed in seeds {
        let _hint = ReplayHint { seed };
        check(seed).into_iter().for_each(|(kind, count)| *tally.entry(kind).or_default() += count);
    }
    println!("{tally:?}");
    assert!(!has_all || tally.values().all(|count| *count > 0), "no case has some of these: {tally:?}");
}
