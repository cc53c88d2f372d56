//! Random workflows whose steps open files by many programs, and try to open others.

use super::trace::STEP;
use blackbox::{Random, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Directory of the workflow, in the sandbox.
pub const DIRECTORY: &str = "wf";
/// Files of the directory that steps may take as inputs; the last three are links.
const SOURCES: [&str; 7] =
    ["in", "data/b c.txt", "data/dé.txt", "data/sub/far", "link", "linked/far", "data/link outside"];
/// Files that nothing declares as inputs, and the files of `reads` and `environment`.
const SECRET: &str = "data/secret";
const READ: [&str; 2] = ["notes", "notes dir/more"];
const ENVIRONMENT: &str = "lock file";
const TOOL: &str = "./tool";
/// Files elsewhere: an input by its absolute path, and the target of a link.
pub const ELSEWHERE: [&str; 2] = ["elsewhere/absolute", "elsewhere/linked"];
/// Most steps, or sweeps, of a workflow.
const BLOCKS_MAX: u64 = 7;

/// Prints its name, its standard input and its files.
const TOOL_SCRIPT: &str =
    "#!/bin/sh -eu\nout=$1 name=$2\nshift 2\n(echo tool; echo \"made by $name\"; cat - \"$@\") > \"$out\"\n";
const PYTHON: &str = "/usr/bin/python3";
const PYTHON_SCRIPT: &str = "import sys; out = open(sys.argv[1], 'w'); out.write('made by ' + sys.argv[2] + '\\n'); \
     out.write(sys.stdin.read()); [out.write(open(name).read()) for name in sys.argv[3:]]";

/// Features of a workflow.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Programs open all files that their steps declare.
    pub opens_all: bool,
    /// No step has `cache = false`, is without outputs, or names another one in `after`.
    pub all_remembered: bool,
    /// All outputs stay.
    pub keeps_all: bool,
}

/// A step as the workflow file declares it; paths are relative to the directory of the workflow.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    pub name: String,
    /// With `stdin`, `environment` and the program, if it is a script.
    pub inputs: BTreeSet<String>,
    pub reads: BTreeSet<String>,
    pub stdin: Option<String>,
    pub stdout: Option<String>,
    pub outputs: Vec<String>,
    pub after: Option<String>,
    pub is_cached: bool,
    /// Absolute paths that it tries to open undeclared.
    pub tries: Vec<PathBuf>,
}

pub struct RandomWorkflow {
    pub features: Features,
    pub steps: Vec<Declared>,
    pub text: String,
}

/// Writes all files that exist before a run.
pub fn write_sources(sandbox: &Sandbox) {
    for name in ["in", "data/b c.txt", "data/dé.txt", "data/sub/far", SECRET, READ[0], READ[1], ENVIRONMENT]
    {
        sandbox.write(&format!("{DIRECTORY}/{name}"), format!("source {name}\n"));
    }
    ELSEWHERE.iter().for_each(|name| drop(sandbox.write(name, format!("source {name}\n"))));
    sandbox.script(&format!("{DIRECTORY}/{TOOL}"), TOOL_SCRIPT);
    for (target, link) in
        [("in", "link"), ("data/sub", "linked"), ("../../elsewhere/linked", "data/link outside")]
    {
        let link = sandbox.path(&format!("{DIRECTORY}/{link}"));
        std::os::unix::fs::symlink(target, link).expect("our own directory takes a link");
    }
}

/// Returns the files that a user may edit, as a user may name them.
pub fn editable(root: &Path) -> Vec<PathBuf> {
    let inside = SOURCES.iter().chain(&READ).chain([&SECRET, &ENVIRONMENT, &"tool"]);
    let inside = inside.map(|name| root.join(DIRECTORY).join(name));
    inside.chain(ELSEWHERE.iter().map(|name| root.join(name))).collect()
}

/// Returns a text for TOML or for Python.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn list<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// Makes the steps of a workflow, one block of the file after the other.
pub struct Generator<'a> {
    pub random: &'a mut Random,
    /// The sandbox.
    pub root: &'a Path,
    workflow: RandomWorkflow,
    /// Outputs so far; true for those that are the standard output of their step.
    made: BTreeMap<String, bool>,
}

impl<'a> Generator<'a> {
    pub fn new(random: &'a mut Random, root: &'a Path) -> Self {
        let features = Features {
            opens_all: random.chance(75),
            all_remembered: random.chance(60),
            keeps_all: random.chance(30),
        };
        let workflow = RandomWorkflow { features, steps: Vec::new(), text: String::new() };
        Generator { random, root, workflow, made: BTreeMap::new() }
    }

    pub fn generate(mut self) -> RandomWorkflow {
        let blocks = 3 + self.random.below(BLOCKS_MAX - 2);
        for index in 0..blocks {
            match self.random.below(10) {
                0 => self.sweep(index),
                1 => self.each(index),
                2 | 3 => self.pipeline(index),
                _ => self.step(format!("{index}"), None),
            }
        }
        self.workflow
    }

    fn keep(&mut self) -> bool {
        self.workflow.features.keeps_all || self.random.chance(40)
    }

    /// Adds a step for each of three values, and one that gathers their outputs.
    fn sweep(&mut self, index: u64) {
        let source = self.random.one_of(&SOURCES).to_string();
        let (text, keep) = (&mut self.workflow.text, self.workflow.features.keeps_all);
        let _ = writeln!(text, "[[step]]\nname = \"part {{k}} of {index}\"\nsweep = {{ k = [1, 2, 3] }}");
        let command = format!("(echo \"made by ${STEP}\"; cat '{source}') > parts/{index}-{{k}}");
        let _ = writeln!(text, "command = {}\ninputs = {}", quoted(&command), list([&source]));
        let _ = writeln!(text, "outputs = [\"parts/{index}-{{k}}\"]\nkeep = {keep}");
        let _ = writeln!(text, "env = {{ {STEP} = \"part {{k}} of {index}\" }}");
        let parts: Vec<String> = (1..4).map(|k| format!("parts/{index}-{k}")).collect();
        for (k, part) in (1..4).zip(&parts) {
            self.declare(Declared {
                name: format!("part {k} of {index}"),
                inputs: BTreeSet::from([source.clone()]),
                outputs: vec![part.clone()],
                is_cached: true,
                ..Declared::default()
            });
        }
        let (name, output) = (format!("all of {index}"), format!("all {index}"));
        let text = &mut self.workflow.text;
        let command = format!("echo 'made by {name}'; cat parts/{index}-*");
        let _ = writeln!(text, "[[step]]\nname = \"{name}\"\ncommand = {}", quoted(&command));
        let _ = writeln!(text, "inputs = [\"parts/{index}-*\"]\nstdout = \"{output}\"\nkeep = {keep}");
        let _ = writeln!(text, "env = {{ {STEP} = \"{name}\" }}");
        self.declare(Declared {
            name,
            inputs: parts.into_iter().collect(),
            stdout: Some(output.clone()),
            outputs: vec![output],
            is_cached: true,
            ..Declared::default()
        });
    }

    /// Adds a step for each file of `data` with the ending `.txt`.
    fn each(&mut self, index: u64) {
        let text = &mut self.workflow.text;
        let keep = self.workflow.features.keeps_all;
        let _ = writeln!(text, "[[step]]\nname = \"size {{f}} {index}\"\neach = \"data/{{f}}.txt\"");
        let command = format!("echo \"made by ${STEP}\"; sed '' \"data/$F.txt\"");
        let _ = writeln!(text, "command = {}\ninputs = [\"data/{{f}}.txt\"]", quoted(&command));
        let _ = writeln!(text, "stdout = \"sizes {index}/{{f}}\"\nkeep = {keep}");
        let _ = writeln!(text, "env = {{ F = \"{{f}}\", {STEP} = \"size {{f}} {index}\" }}");
        for f in ["b c", "dé"] {
            let output = format!("sizes {index}/{f}");
            self.declare(Declared {
                name: format!("size {f} {index}"),
                inputs: BTreeSet::from([format!("data/{f}.txt")]),
                stdout: Some(output.clone()),
                outputs: vec![output],
                is_cached: true,
                ..Declared::default()
            });
        }
    }

    fn declare(&mut self, step: Declared) {
        for output in &step.outputs {
            self.made.insert(output.clone(), step.stdout.as_ref() == Some(output));
        }
        self.workflow.steps.push(step);
    }

    /// Adds steps of which each reads the standard output of the one before, and no output else.
    fn pipeline(&mut self, index: u64) {
        let mut stream = None;
        for number in 0..2 + self.random.below(2) {
            self.step(format!("{index}.{number}"), Some(stream));
            stream = self.workflow.steps.last().and_then(|step| step.stdout.clone());
        }
    }

    /// Adds a step. `pipeline`: it is one of a pipeline, and reads this stream.
    fn step(&mut self, number: String, pipeline: Option<Option<String>>) {
        let features = self.workflow.features;
        let name = format!("step {number}");
        let mut step = Declared { name, is_cached: true, ..Declared::default() };
        let made: Vec<String> = self.made.keys().cloned().collect();
        let streams: Vec<String> =
            self.made.iter().filter(|(_, streams)| **streams).map(|(name, _)| name.clone()).collect();
        if let Some(stream) = &pipeline {
            step.stdin = stream.clone();
        } else if !streams.is_empty() && self.random.chance(60) {
            step.stdin = Some(self.random.one_of(&streams).clone());
        } else if self.random.chance(15) {
            step.stdin = Some(self.random.one_of(&SOURCES).to_string());
        }
        // A step that waits for files reads no stream: its standard input is a file as well.
        let is_alone = pipeline.is_some() || step.stdin.is_some() && self.random.chance(60);
        let percent = if is_alone { 0 } else { 20 };
        let mut inputs: BTreeSet<String> = made.into_iter().filter(|_| self.random.chance(percent)).collect();
        let sources = SOURCES.iter().filter(|_| self.random.chance(20));
        inputs.extend(sources.map(|source| source.to_string()));
        let absolute = self.root.join(ELSEWHERE[0]).display().to_string();
        let mut files: Vec<String> = inputs.iter().cloned().collect();
        if self.random.chance(20) {
            files.push("absolute".to_string());
            inputs.insert(absolute);
        }
        if files.is_empty() && step.stdin.is_none() {
            files.push(SOURCES[0].to_string());
            inputs.insert(SOURCES[0].to_string());
        }
        inputs.retain(|input| Some(input) != step.stdin.as_ref());
        files.retain(|file| Some(file) != step.stdin.as_ref());
        if self.random.chance(85) || features.all_remembered || pipeline.is_some() {
            step.outputs.push(format!("{}{number}", self.random.one_of(&["out", "made/out ", "made/sub/"])));
        }
        if !features.all_remembered {
            step.is_cached = self.random.chance(70);
            let names: Vec<String> = self.workflow.steps.iter().map(|step| step.name.clone()).collect();
            step.after = names.into_iter().find(|_| self.random.chance(4));
        }
        if pipeline.is_some() {
            step.stdout = step.outputs.first().cloned();
        }
        self.write_step(step, &inputs, files);
    }

    /// Chooses the program of a step and writes its block.
    fn write_step(&mut self, mut step: Declared, inputs: &BTreeSet<String>, files: Vec<String>) {
        let opens_all = self.workflow.features.opens_all;
        let opened: Vec<String> = files.into_iter().filter(|_| opens_all || self.random.chance(60)).collect();
        let mut text = format!("[[step]]\nname = {}\n", quoted(&step.name));
        let _ = writeln!(text, "inputs = {}\nenv = {{ {STEP} = {} }}", list(inputs), quoted(&step.name));
        step.inputs = inputs.iter().chain(&step.stdin).cloned().collect();
        if let Some(after) = &step.after {
            let _ = writeln!(text, "after = [{}]", quoted(after));
        }
        let keep = self.keep();
        let _ = writeln!(text, "cache = {}\nkeep = {keep}", step.is_cached);
        let by_words = !step.outputs.is_empty() && step.stdout.is_none() && self.random.chance(30);
        let is_python = self.random.chance(50) && Path::new(PYTHON).exists();
        match by_words {
            true => self.words(&mut text, &mut step, opened, is_python),
            false => self.command(&mut text, &mut step, opened),
        }
        if let Some(stdin) = &step.stdin {
            let _ = writeln!(text, "stdin = {}", quoted(stdin));
        }
        match &step.stdout {
            Some(stdout) => drop(writeln!(text, "stdout = {}", quoted(stdout))),
            None => drop(writeln!(text, "outputs = {}", list(&step.outputs))),
        }
        self.workflow.text.push_str(&text);
        self.declare(step);
    }

    /// A program without a shell.
    fn words(&mut self, text: &mut String, step: &mut Declared, files: Vec<String>, is_python: bool) {
        let python = [PYTHON, "-I", "-S", "-c", PYTHON_SCRIPT];
        let program: &[&str] = if is_python { &python } else { &[TOOL] };
        let mut words: Vec<String> = program.iter().map(|word| word.to_string()).collect();
        words.extend([step.outputs[0].clone(), step.name.clone()]);
        words.extend(files);
        let _ = writeln!(text, "words = {}", list(&words));
        if !is_python {
            step.inputs.insert("tool".to_string());
        }
    }

    /// A command of programs that each open some of the files.
    fn command(&mut self, text: &mut String, step: &mut Declared, mut files: Vec<String>) {
        let directory = self.root.join(DIRECTORY);
        if self.random.chance(20) {
            let _ = writeln!(text, "environment = [{}]", quoted(ENVIRONMENT));
            step.inputs.insert(ENVIRONMENT.to_string());
            files.push(directory.join(ENVIRONMENT).display().to_string());
        }
        if self.random.chance(20) {
            // The second one by its directory.
            let _ = writeln!(text, "reads = [{}, \"../{DIRECTORY}/notes dir\"]", quoted(READ[0]));
            step.reads = READ.iter().map(|name| name.to_string()).collect();
            files.extend(READ.iter().map(|name| directory.join(name).display().to_string()));
        }
        let mut body = format!("echo 'made by {}'", step.name);
        if step.stdin.is_some() {
            body.push_str("; cat");
        }
        while !files.is_empty() {
            let some = match self.random.chance(30) {
                true => std::mem::take(&mut files),
                false => vec![files.remove(0)],
            };
            let program = self.random.one_of(&[
                "cat",
                "head -q -n 1000000",
                "sed ''",
                "sort",
                "awk 1",
                "tac",
                "grep -h ''",
                "sh -c 'for file; do cat < \"$file\"; done' sh",
                "sh -c 'cat \"$@\" | sort' sh",
            ]);
            let some: Vec<String> = some.iter().map(|file| format!("'{file}'")).collect();
            let _ = write!(body, "; {program} {}", some.join(" "));
        }
        self.tries(step);
        for tried in &step.tries {
            let _ = write!(body, "; cat '{}' || true", tried.display());
        }
        match step.outputs.first().cloned() {
            None => body = format!("({body}) > /dev/null"),
            Some(output) if step.stdout.is_some() || self.random.chance(70) => step.stdout = Some(output),
            Some(output) => {
                body = match self.random.chance(30) {
                    true => format!("({body}) > scratch; mv scratch '{output}'"),
                    false => format!("({body}) > '{output}'"),
                };
                if self.random.chance(20) {
                    let second = format!("{output} again");
                    let _ = write!(body, "; cp '{output}' '{second}'");
                    step.outputs.push(second);
                }
            }
        }
        let _ = writeln!(text, "command = {}", quoted(&body));
    }

    /// Chooses files that the step does not declare.
    fn tries(&mut self, step: &mut Declared) {
        if !self.random.chance(50) {
            return;
        }
        let real = |name: &str| {
            let path = self.root.join(DIRECTORY).join(name);
            std::fs::canonicalize(&path).unwrap_or(path)
        };
        let declared: BTreeSet<PathBuf> =
            step.inputs.iter().chain(&step.reads).map(|name| real(name)).collect();
        let others = SOURCES.iter().chain(&READ).chain([&SECRET, &ENVIRONMENT]);
        let mut others: Vec<PathBuf> = others.map(|name| real(name)).collect();
        others.retain(|path| path.starts_with(self.root.join(DIRECTORY)) && !declared.contains(path));
        for _ in 0..=self.random.below(2) {
            step.tries.push(self.random.one_of(&others).clone());
        }
    }
}
