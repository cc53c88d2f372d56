//! The files that steps pass to each other. Paths are numbered, and the programs are looked at one after the other: those of
//! a large workflow take much more memory than its edges.

use crate::spec::{MadeInput, PlannedOutput};
use api::task::{RunTask, TaskFile};
use ids::StepNumber;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The files of all steps.
pub(crate) struct Graph<'a> {
    steps: Vec<Files<'a>>,
    /// Numbers of all paths.
    paths: HashMap<PathBuf, usize>,
}

/// The files of a step by the numbers of their paths.
struct Files<'a> {
    name: &'a str,
    /// Steps that it names.
    after: &'a [u32],
    inputs: Box<[usize]>,
    outputs: Box<[Output]>,
    /// For each input: how it may stream.
    reads: Box<[StreamEnd]>,
}

struct Output {
    path: usize,
    end: StreamEnd,
    is_temporary: bool,
}

/// The end of a stream at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// The step needs, or makes, a finished file.
    None,
    /// Standard input or output.
    Standard,
    /// The program opens it by name.
    Named,
}

impl StreamEnd {
    fn of(file: &TaskFile, standard: Option<&PathBuf>) -> Self {
        match () {
            () if standard == Some(&file.name) => Self::Standard,
            () if file.stream => Self::Named,
            () => Self::None,
        }
    }
}

/// The files that a step passes to others.
#[derive(Default)]
pub(crate) struct PassedFiles {
    pub outputs: Box<[PlannedOutput]>,
    /// Steps that need nothing of the step but streams, in order.
    pub stream_readers: Vec<StepNumber>,
    pub made_inputs: Vec<MadeInput>,
}

impl<'a> Graph<'a> {
    /// Makes one for this number of steps.
    pub fn of(count: usize) -> Self {
        Self { steps: Vec::with_capacity(count), paths: HashMap::with_capacity(count) }
    }

    /// Adds the next step.
    pub fn add(&mut self, name: &'a str, after: &'a [u32], program: &RunTask) {
        let inputs = program.inputs.iter().map(|input| self.number(&input.path)).collect();
        let output = |output: &TaskFile| Output {
            path: self.number(&output.path),
            end: StreamEnd::of(output, program.stdout.as_ref()),
            is_temporary: output.temporary,
        };
        let outputs = program.outputs.iter().map(output).collect();
        let reads = program.inputs.iter().map(|input| StreamEnd::of(input, program.stdin.as_ref())).collect();
        self.steps.push(Files { name, after, inputs, outputs, reads });
    }

    pub fn name(&self, step: usize) -> &str {
        self.steps[step].name
    }

    fn number(&mut self, path: &Path) -> usize {
        match self.paths.get(path) {
            Some(number) => *number,
            None => {
                let number = self.paths.len();
                self.paths.insert(path.to_path_buf(), number);
                number
            }
        }
    }

    /// Returns the step and the position of the output for each path that one writes. Error: two steps write a path.
    fn writers(&self) -> Result<Vec<Option<(usize, usize)>>, String> {
        let mut writers: Vec<Option<(usize, usize)>> = vec![None; self.paths.len()];
        for (writer, step) in self.steps.iter().enumerate() {
            for (position, output) in step.outputs.iter().enumerate() {
                if let Some((other, _)) = writers[output.path].replace((writer, position)) {
                    let (first, second) = (self.steps[other].name, step.name);
                    let path = self.paths.iter().find(|(_, number)| **number == output.path);
                    let path = path.map_or(Path::new(""), |(path, _)| path).display();
                    return Err(format!("the steps {first:?} and {second:?} both write {path}"));
                }
            }
        }
        Ok(writers)
    }

    /// Returns for each step the positions of the steps before it, in order, each once: those that it names, and those
    /// whose outputs it reads. Error: two steps write a path.
    pub fn before(&self) -> Result<Vec<Vec<u32>>, String> {
        let writers = self.writers()?;
        let before = |step: &Files<'_>| -> Vec<u32> {
            let read = step.inputs.iter().filter_map(|input| writers[*input]);
            let all: BTreeSet<u32> =
                step.after.iter().copied().chain(read.map(|(writer, _)| writer as u32)).collect();
            all.into_iter().collect()
        };
        Ok(self.steps.iter().map(before).collect())
    }

    /// Returns the files that each step passes to others. Error: two steps write a path.
    pub fn passed(&self) -> Result<Vec<PassedFiles>, String> {
        let writers = self.writers()?;
        let mut readers: Vec<Vec<StepNumber>> = vec![Vec::new(); self.paths.len()];
        let mut passed: Vec<PassedFiles> = self.steps.iter().map(|_| PassedFiles::default()).collect();
        for (reader, step) in self.steps.iter().enumerate() {
            let number = StepNumber(reader as u32);
            // Steps of which it needs more than streams.
            let mut others: BTreeSet<usize> = step.after.iter().map(|before| *before as usize).collect();
            let mut streams = BTreeSet::new();
            for (input, path) in step.inputs.iter().enumerate() {
                let Some((writer, output)) = writers[*path] else { continue };
                readers[*path].push(number);
                let ends = [self.steps[writer].outputs[output].end, step.reads[input]];
                passed[reader].made_inputs.push(MadeInput {
                    input,
                    writer: StepNumber(writer as u32),
                    output,
                    is_standard: ends == [StreamEnd::Standard; 2],
                });
                let of_writer = if ends.contains(&StreamEnd::None) { &mut others } else { &mut streams };
                of_writer.insert(writer);
            }
            streams.difference(&others).for_each(|writer| passed[*writer].stream_readers.push(number));
        }
        for (step, passed) in self.steps.iter().zip(&mut passed) {
            let output = |output: &Output| PlannedOutput {
                readers: std::mem::take(&mut readers[output.path]).into(),
                is_temporary: output.is_temporary,
            };
            passed.outputs = step.outputs.iter().map(output).collect();
        }
        Ok(passed)
    }
}
