//! Random workflows. The bytes of each file follow from those of the inputs of its step, so the test knows them beforehand.

use crate::{Random, Sandbox, sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STEPS_MIN: u64 = 20;
const STEPS_MORE: u64 = 41;
const SOURCES: usize = 3;
/// Outputs of a step, at most.
const OUTPUTS_MAX: u64 = 3;
/// Share of steps that read a stream, of those that gather many files, and of those that keep files that others read.
const STREAM_PERCENT: u64 = 35;
const GATHER_PERCENT: u64 = 10;
const KEEP_PERCENT: u64 = 30;
/// Share of steps that are MapReduce jobs, and of those whose parts only jobs read, so that they are flows.
const JOB_PERCENT: u64 = 20;
const FLOW_PERCENT: u64 = 60;
/// Inputs of most steps, and of those that gather.
const INPUTS_MAX: u64 = 3;
const GATHERED_MAX: u64 = 10;
/// Files among which most steps choose: the latest, so that there are chains.
const LATEST: usize = 12;
/// Milliseconds between the halves of an output.
const HALF_MS: u64 = 10;
const HALF_MS_MORE: u64 = 110;

/// A step. Files have their names in the directory of the workflow.
struct Step {
    name: String,
    inputs: BTreeSet<String>,
    stdin: Option<String>,
    outputs: Vec<String>,
    /// The first output is the standard output.
    has_stdout: bool,
    keep: bool,
    half_ms: u64,
    /// It counts the words of its inputs, as a MapReduce job.
    is_job: bool,
}

/// Output of a step.
pub(super) struct Output {
    pub step: String,
    pub path: PathBuf,
    pub expected: Vec<u8>,
    /// It is removed at the end, or is never a file.
    pub temporary: bool,
}

/// A workflow whose files lie in a directory of the sandbox.
pub(super) struct Flow {
    pub name: String,
    pub dir: PathBuf,
    /// File to which each step appends a line when it begins.
    pub log: PathBuf,
    pub steps: Vec<String>,
    /// Those that are MapReduce jobs: they write no line.
    pub jobs: BTreeSet<String>,
    /// Steps that read a standard output as their standard input, with the steps that write it.
    pub streams: BTreeMap<String, String>,
    pub outputs: Vec<Output>,
}

impl Flow {
    /// Makes a workflow and writes its file and its sources.
    pub fn random(random: &mut Random, sandbox: &Sandbox, number: u64) -> Flow {
        let name = format!("flow-{number}");
        let mut contents = BTreeMap::new();
        for source in 0..SOURCES {
            let text = format!("{} of {name}\n", random.next_bits());
            sandbox.write(&format!("{name}/in{source}"), &text);
            contents.insert(format!("in{source}"), text.into_bytes());
        }
        let steps = steps(random);
        // Programs have a `/tmp` of their own, in which only the directory of the workflow is that of the machine.
        let (dir, log) = (sandbox.path(&name), sandbox.path(&format!("{name}/log")));
        let mut text = format!("name = \"{name}\"\n");
        steps.iter().for_each(|step| step.write(&mut text, &log));
        sandbox.write(&format!("{name}/flow.toml"), text);
        sandbox.write(&format!("{name}/log"), "");
        let read: BTreeSet<&String> =
            steps.iter().flat_map(|step| step.inputs.iter().chain(&step.stdin)).collect();
        let mut outputs = Vec::new();
        for step in &steps {
            let hash = step.hash(&contents);
            for file in &step.outputs {
                let expected = match step.is_job {
                    true => step.word_counts(&contents),
                    false => [half(file, "first", &hash), half(file, "second", &hash)].concat().into_bytes(),
                };
                contents.insert(file.clone(), expected.clone());
                let temporary = !step.keep && read.contains(file);
                outputs.push(Output { step: step.name.clone(), path: dir.join(file), expected, temporary });
            }
        }
        let writer =
            |file: &String| steps.iter().find(|step| step.has_stdout && step.outputs.first() == Some(file));
        let stream = |step: &Step| Some((step.name.clone(), writer(step.stdin.as_ref()?)?.name.clone()));
        let streams = steps.iter().filter_map(stream).collect();
        let jobs = steps.iter().filter(|step| step.is_job).map(|step| step.name.clone()).collect();
        let steps = steps.iter().map(|step| step.name.clone()).collect();
        Flow { name, dir, log, steps, jobs, streams, outputs }
    }
}

/// Returns half of an output; the shell function `half` prints the same.
fn half(file: &str, which: &str, hash: &str) -> String {
    format!("{file} {which} {hash}\n{:02000}\n", 0)
}

fn steps(random: &mut Random) -> Vec<Step> {
    let mut files: Vec<String> = (0..SOURCES).map(|source| format!("in{source}")).collect();
    // Standard outputs that no step reads yet.
    let mut streams: Vec<String> = Vec::new();
    // Parts that only jobs read.
    let mut parts: Vec<String> = Vec::new();
    let mut steps = Vec::new();
    for index in 0..STEPS_MIN + random.below(STEPS_MORE) {
        let name = format!("s{index:02}");
        if random.chance(JOB_PERCENT) {
            let step = job(name, &files, &mut parts, random);
            let readers = if random.chance(FLOW_PERCENT) { &mut parts } else { &mut files };
            readers.extend(step.outputs.iter().cloned());
            steps.push(step);
            continue;
        }
        let streamed = !streams.is_empty() && random.chance(STREAM_PERCENT);
        let stdin = streamed.then(|| streams.swap_remove(random.below(streams.len() as u64) as usize));
        let gathers = random.chance(GATHER_PERCENT);
        let most = if gathers { GATHERED_MAX } else { INPUTS_MAX };
        let wanted = random.below(most + 1).max(u64::from(stdin.is_none()));
        let from = if gathers { 0 } else { files.len().saturating_sub(LATEST) };
        let mut inputs: BTreeSet<String> =
            (0..wanted).map(|_| random.one_of(&files[from..]).clone()).collect();
        inputs.retain(|input| Some(input) != stdin.as_ref());
        let has_stdout = random.chance(60);
        let outputs: Vec<String> =
            (0..=random.below(OUTPUTS_MAX)).map(|output| format!("made/{name}-{output}")).collect();
        files.extend(outputs.iter().cloned());
        streams.extend(outputs.first().filter(|_| has_stdout).cloned());
        let (keep, half_ms) = (random.chance(KEEP_PERCENT), HALF_MS + random.below(HALF_MS_MORE));
        steps.push(Step { name, inputs, stdin, outputs, has_stdout, keep, half_ms, is_job: false });
    }
    steps
}

/// Returns a job. Its inputs are written in their order: parts of other jobs come last, as a flow needs them.
fn job(name: String, files: &[String], parts: &mut Vec<String>, random: &mut Random) -> Step {
    let latest = &files[files.len().saturating_sub(LATEST)..];
    let mut inputs: BTreeSet<String> =
        (0..random.below(INPUTS_MAX)).map(|_| random.one_of(latest).clone()).collect();
    // Mostly each of them has one reader.
    inputs.extend(parts.pop());
    if inputs.is_empty() {
        inputs.insert(random.one_of(latest).clone());
    }
    let outputs = vec![format!("parts/{name}/part-00000")];
    let (keep, has_stdout, stdin) = (random.chance(KEEP_PERCENT), false, None);
    Step { name, inputs, stdin, outputs, has_stdout, keep, half_ms: 0, is_job: true }
}

impl Step {
    /// Returns the hash of its inputs, the standard input first.
    fn hash(&self, contents: &BTreeMap<String, Vec<u8>>) -> String {
        let read: Vec<u8> =
            self.stdin.iter().chain(&self.inputs).flat_map(|file| contents[file].iter().copied()).collect();
        sha256(&read)
    }

    /// Returns the words of its inputs with their counts, in the order of the words.
    fn word_counts(&self, contents: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
        let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
        for file in &self.inputs {
            let words = contents[file].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.for_each(|word| *counts.entry(word).or_default() += 1);
        }
        let line = |(word, count): (&[u8], u64)| [word, format!("\t{count}\n").as_bytes()].concat();
        counts.into_iter().flat_map(line).collect()
    }

    fn write_job(&self, text: &mut String) {
        let Step { name, inputs, keep, .. } = self;
        let inputs: Vec<&String> = inputs.iter().collect();
        let _ = writeln!(text, "[[step]]\nname = \"{name}\"\nkeep = {keep}\ninputs = {inputs:?}\n[step.job]");
        let _ = writeln!(text, "mapper = \"builtin:words\"\nreducer = \"builtin:sum\"\nmemory = \"64M\"");
        let _ = writeln!(text, "output = \"parts/{name}\"");
    }

    fn write(&self, text: &mut String, log: &Path) {
        if self.is_job {
            return self.write_job(text);
        }
        let Step { name, inputs, stdin, outputs, has_stdout, keep, half_ms, .. } = self;
        let mut command = format!("echo \"$SAILFISH_JOB $SAILFISH_ATTEMPT {name}\" >> {}\n", log.display());
        let read: Vec<&str> = stdin.iter().map(|_| "-").chain(inputs.iter().map(String::as_str)).collect();
        let _ = writeln!(command, "h=$(cat {} | sha256sum | cut -c1-64)", read.join(" "));
        command.push_str("half() { printf '%s %s %s\\n%02000d\\n' \"$1\" \"$2\" \"$h\" 0; }\n");
        for (index, file) in outputs.iter().enumerate() {
            let to = if index == 0 && *has_stdout { String::new() } else { format!(" >> {file}") };
            let _ = writeln!(command, "half {file} first{to}");
            let _ = writeln!(command, "sleep 0.{half_ms:03}");
            let _ = writeln!(command, "half {file} second{to}");
        }
        let files = usize::from(*has_stdout);
        let _ = writeln!(text, "[[step]]\nname = \"{name}\"\nkeep = {keep}\ncommand = '''\n{command}'''");
        let inputs: Vec<&String> = inputs.iter().collect();
        let _ = writeln!(text, "inputs = {inputs:?}\noutputs = {:?}", &outputs[files..]);
        if let Some(stdin) = stdin {
            let _ = writeln!(text, "stdin = {stdin:?}");
        }
        if *has_stdout {
            let _ = writeln!(text, "stdout = {:?}", outputs[0]);
        }
    }
}
