//! The streams and files between the programs of a pipeline.

use crate::tasks::declared_files::{DeclaredFiles, OutputContents, StoreVersions, Taking};
use crate::tasks::finished_runs::Reading;
use api::TaskFailure;
use api::job::pipeline::PipelineEdge;
use api::task::{FileContent, FinishedRun, RunTask, TaskFile};
use ids::AttemptKey;
use program::{Relay, RelayFile, Stdout, Streams, streams_to_file, streams_to_program, streams_to_relay};
use roots::JobPaths;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The programs of a pipeline with their files.
pub(super) struct Wiring<'a> {
    tasks: Vec<&'a RunTask>,
    edges: Vec<PipelineEdge>,
    declared: Vec<DeclaredFiles<'a>>,
    /// Outputs that are nowhere a file, by program.
    streamed: BTreeSet<(usize, usize)>,
}

/// The streams of all programs, and the relays that carry some of them.
pub(super) struct Wired {
    pub streams: Vec<Streams>,
    pub relays: Vec<Relay>,
}

/// The place of a program in its pipeline.
pub(super) struct Edges<'a> {
    /// Positions of the programs whose files or streams it reads.
    pub reads: BTreeSet<usize>,
    /// Those whose files it reads, so that it starts after them.
    pub after: BTreeSet<usize>,
    /// Directories with these files.
    pub writers: Vec<&'a Path>,
}

impl<'a> Wiring<'a> {
    /// Brings the inputs of all programs into their directories, except those that other programs write.
    pub fn new<'d>(
        task: &'a RunTask,
        paths: &'a JobPaths,
        directory: impl Fn(usize) -> &'d Path,
    ) -> Result<Self, TaskFailure> {
        let (tasks, edges): (Vec<&RunTask>, _) = (task.programs().collect(), task.edges());
        let bring = |(position, task): (usize, &&'a RunTask)| {
            let passed = edges.iter().filter(|edge| edge.reader == position).map(|edge| edge.input);
            DeclaredFiles::bring(task, paths, directory(position), &passed.collect())
        };
        let declared = tasks.iter().enumerate().map(bring).collect::<Result<_, _>>()?;
        Ok(Self { tasks, edges, declared, streamed: BTreeSet::new() })
    }

    /// Returns the bytes of the inputs that no program of the pipeline writes.
    pub fn input_bytes(&self) -> u64 {
        self.declared.iter().map(DeclaredFiles::input_bytes).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the outputs that get their paths.
    pub fn output_bytes(&self) -> u64 {
        self.declared.iter().map(DeclaredFiles::output_bytes).fold(0, u64::saturating_add)
    }

    /// Makes the standard streams of all programs. A standard output goes through a plain pipe if one program reads it
    /// at once and no file of it is needed; otherwise, if any reads it, through a relay, which may keep bytes in `spills`.
    pub fn wire(&mut self, spills: Option<&Path>) -> Result<Wired, TaskFailure> {
        let mut stdins: BTreeMap<usize, OwnedFd> = BTreeMap::new();
        let (mut stdouts, mut relays) = (Vec::new(), Vec::new());
        for writer in 0..self.tasks.len() {
            let Some((index, output)) = stdout_of(self.tasks[writer]) else {
                stdouts.push(Stdout::Shown);
                continue;
            };
            let from_here = |edge: &&PipelineEdge| (edge.writer, edge.output) == (writer, index);
            let edges: Vec<PipelineEdge> = self.edges.iter().filter(from_here).copied().collect();
            let readers: Vec<usize> =
                edges.iter().filter(|edge| edge.streams).map(|edge| edge.reader).collect();
            let needs_file = !output.temporary || edges.len() > readers.len();
            let declared = &self.declared[writer];
            let stdout = match &readers[..] {
                [] => streams_to_file(declared.create_output(output)?.0),
                [reader] if !needs_file && self.after(*reader).is_empty() => {
                    let (stdout, stdin) = streams_to_program(*reader)?;
                    stdins.insert(*reader, stdin);
                    stdout
                }
                _ => {
                    let file = match needs_file {
                        true => {
                            let (file, path) = declared.create_output(output)?;
                            RelayFile::Output(file, path)
                        }
                        false => {
                            let dir = spills.unwrap_or(declared.dir());
                            RelayFile::Spill(dir.join(format!("stream-{writer}")))
                        }
                    };
                    let (stdout, ends, relay) = streams_to_relay(readers.len(), file)?;
                    stdins.extend(readers.iter().copied().zip(ends));
                    relays.push(relay);
                    stdout
                }
            };
            if !needs_file && !readers.is_empty() {
                self.streamed.insert((writer, index));
            }
            stdouts.push(stdout);
        }
        let mut streams = Vec::with_capacity(stdouts.len());
        for (position, stdout) in stdouts.into_iter().enumerate() {
            let stdin = match stdins.remove(&position) {
                Some(stdin) => Some(stdin),
                None => self.stdin_from_file(position)?,
            };
            streams.push(Streams { stdin, stdout });
        }
        Ok(Wired { streams, relays })
    }

    /// Opens the standard input of a program if that is a file, and no other program writes it.
    fn stdin_from_file(&self, position: usize) -> Result<Option<OwnedFd>, TaskFailure> {
        let Some((index, input)) = stdin_of(self.tasks[position]) else { return Ok(None) };
        let is_passed = self.edges.iter().any(|edge| (edge.reader, edge.input) == (position, index));
        match is_passed {
            true => Ok(None),
            false => self.declared[position].open_input(input).map(|file| Some(file.into())),
        }
    }

    fn after(&self, position: usize) -> BTreeSet<usize> {
        let files = self.edges.iter().filter(|edge| edge.reader == position && !edge.streams);
        files.map(|edge| edge.writer).collect()
    }

    /// Returns the place of a program, with the directories of others.
    pub fn edges<'d>(&self, position: usize, directory: impl Fn(usize) -> &'d Path) -> Edges<'d> {
        let reads =
            self.edges.iter().filter(|edge| edge.reader == position).map(|edge| edge.writer).collect();
        let after = self.after(position);
        let writers = after.iter().map(|writer| directory(*writer)).collect();
        Edges { reads, after, writers }
    }

    /// Links the files that programs before this one have written. Returns its standard input if that is one of them.
    pub fn before_start(&mut self, position: usize) -> Result<Option<OwnedFd>, TaskFailure> {
        let mut stdin = None;
        let files = self.edges.iter().filter(|edge| edge.reader == position && !edge.streams);
        for edge in files.copied().collect::<Vec<_>>() {
            let input = &self.tasks[position].inputs[edge.input];
            let output = &self.tasks[edge.writer].outputs[edge.output];
            let [reader, writer] = self
                .declared
                .get_disjoint_mut([position, edge.writer])
                .expect("no program of a checked pipeline reads its own output");
            let file = reader.link_passed(input, writer, output)?;
            if self.tasks[position].stdin.as_ref() == Some(&input.name) {
                stdin = Some(file.into());
            }
        }
        Ok(stdin)
    }

    /// Publishes the outputs of all programs, which have succeeded. Returns their runs, if any is to be remembered.
    pub fn take_outputs(
        &self,
        attempt: AttemptKey,
        begun: Vec<Option<FinishedRun>>,
        reading: Reading<'_>,
        store: &StoreVersions<'_>,
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        let any = begun.iter().any(Option::is_some);
        let taking = Taking {
            attempt,
            cancelled: reading.cancelled,
            contents: any.then_some(reading.contents),
            store,
        };
        let outputs = DeclaredFiles::take_all(&self.declared, &self.streamed, &taking)?;
        if !any {
            return Ok(Vec::new());
        }
        let run = |(position, begun): (usize, Option<FinishedRun>)| {
            begun.and_then(|begun| self.finished_run(position, begun, &outputs, reading))
        };
        Ok(begun.into_iter().enumerate().map(run).collect())
    }

    /// Completes the record of a run; None if an input changed.
    fn finished_run(
        &self,
        position: usize,
        begun: FinishedRun,
        outputs: &OutputContents,
        reading: Reading<'_>,
    ) -> Option<FinishedRun> {
        let task = self.tasks[position];
        let mut read = self.declared[position].read_inputs(reading)?;
        for edge in self.edges.iter().filter(|edge| edge.reader == position) {
            let path = task.inputs[edge.input].path.clone();
            let file = match outputs.get(&(edge.writer, edge.output)) {
                Some(wrote) => FileContent { path, ..wrote.clone() },
                None => streamed(path),
            };
            read.insert(edge.input, file);
        }
        let wrote = task.outputs.iter().enumerate().map(|(index, output)| {
            let content = outputs.get(&(position, index)).cloned();
            content.unwrap_or_else(|| streamed(output.path.clone()))
        });
        Some(FinishedRun { inputs: read.into_values().collect(), outputs: wrote.collect(), ..begun })
    }
}

/// Returns a file that is none: its bytes went from one program to another.
fn streamed(path: PathBuf) -> FileContent {
    FileContent { path, real_path: None, sha256: None, bytes: 0, stamp: None, made_by: None, stored: None }
}

/// Returns the output that holds the standard output of a program, and its position.
fn stdout_of(task: &RunTask) -> Option<(usize, &TaskFile)> {
    let name = task.stdout.as_ref()?;
    task.outputs.iter().enumerate().find(|(_, output)| output.name == *name)
}

fn stdin_of(task: &RunTask) -> Option<(usize, &TaskFile)> {
    let name = task.stdin.as_ref()?;
    task.inputs.iter().enumerate().find(|(_, input)| input.name == *name)
}
