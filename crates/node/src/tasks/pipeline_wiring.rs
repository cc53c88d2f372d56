//! The streams and files between the programs of a pipeline.

use crate::failure::file_failure;
use crate::tasks::declared_files::{DeclaredFiles, OutputContents, StoreVersions, TakenOutputs, Taking};
use crate::tasks::finished_runs::Reading;
use crate::tasks::growing_input::NodeStreams;
use api::TaskFailure;
use api::job::pipeline::PipelineEdge;
use api::task::{FileContent, FinishedRun, RunTask, TaskFile};
use ids::AttemptKey;
use program::{
    CarriedStreams, RelayFile, Stdout, Streams, streams_to_file, streams_to_program, streams_to_relay,
};
use roots::JobPaths;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs of a pipeline with their files.
pub(super) struct Wiring<'a> {
    tasks: Vec<&'a RunTask>,
    edges: Vec<PipelineEdge>,
    /// Files of the programs of all phases that have begun.
    declared: Vec<DeclaredFiles<'a>>,
    /// Outputs that are nowhere a file, by program.
    streamed: BTreeSet<(usize, usize)>,
    /// Number of phases that have begun, each time.
    begun: usize,
    /// Streams from and to other nodes.
    others: NodeStreams,
}

/// The streams of all programs, and those that the engine carries.
pub(super) struct Wired {
    pub streams: Vec<Streams>,
    pub carried: CarriedStreams,
}

/// The place of a program among those of its phase.
pub(super) struct Edges<'a> {
    /// Positions of the programs whose files or streams it reads.
    pub reads: BTreeSet<usize>,
    /// Those whose files it reads, so that it starts after them.
    pub after: BTreeSet<usize>,
    /// Directories with files that it reads, also of earlier phases.
    pub writers: Vec<&'a Path>,
}

impl<'a> Wiring<'a> {
    pub fn new(task: &'a RunTask, others: NodeStreams) -> Self {
        let (tasks, edges) = (task.programs().collect(), task.edges());
        Self { tasks, edges, declared: Vec::new(), streamed: BTreeSet::new(), begun: 0, others }
    }

    /// Brings the inputs of the programs of a phase into their directories, except those that other programs write, here
    /// or on another node. The earlier phases must have begun; if this one has too, it begins again.
    pub fn begin<'d>(
        &mut self,
        phase: &Range<usize>,
        paths: &'a JobPaths,
        directory: impl Fn(usize) -> &'d Path,
    ) -> Result<(), TaskFailure> {
        self.begun += 1;
        self.declared.truncate(phase.start);
        self.streamed.retain(|(writer, _)| *writer < phase.start);
        for position in phase.clone() {
            let passed = self.edges.iter().filter(|edge| edge.reader == position).map(|edge| edge.input);
            let growing = growing_stdin(self.tasks[position]).map(|(index, _)| index);
            let (task, passed) = (self.tasks[position], passed.chain(growing).collect());
            self.declared.push(DeclaredFiles::bring(task, paths, directory(position), &passed)?);
        }
        Ok(())
    }

    /// Returns the bytes of the inputs of a phase that no program of the pipeline writes.
    pub fn input_bytes(&self, phase: &Range<usize>) -> u64 {
        self.declared[phase.clone()].iter().map(DeclaredFiles::input_bytes).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the outputs that get their paths.
    pub fn output_bytes(&self) -> u64 {
        self.declared.iter().map(DeclaredFiles::output_bytes).fold(0, u64::saturating_add)
    }

    /// Returns the bytes that came from another node as they were written, and the time for which the programs waited for
    /// them.
    pub fn streamed_here(&self) -> (u64, Duration) {
        self.others.read().map_or((0, Duration::ZERO), |read| (read.bytes, read.waited))
    }

    /// Makes the standard streams of the programs of a phase. A standard output goes through a plain pipe if one program reads it
    /// at once and no file of it is needed; otherwise, if any reads it, through a relay, which may keep bytes in `spills`.
    pub fn wire(&mut self, phase: &Range<usize>, spills: Option<&Path>) -> Result<Wired, TaskFailure> {
        let mut stdins: BTreeMap<usize, OwnedFd> = BTreeMap::new();
        let (mut stdouts, mut carried) = (Vec::new(), CarriedStreams::default());
        if phase.contains(&0)
            && let Some((stdin, feed)) = self.others.take_stdin()
        {
            stdins.insert(0, stdin);
            carried.feeds.push(feed);
        }
        for writer in phase.clone() {
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
                [] => streams_to_file(self.create_output(writer, output)?.0),
                [reader] if !needs_file && self.after(*reader).range(phase.clone()).next().is_none() => {
                    let (stdout, stdin) = streams_to_program(*reader - phase.start)?;
                    stdins.insert(*reader, stdin);
                    stdout
                }
                _ => {
                    let file = match needs_file {
                        true => {
                            let (file, path) = self.create_output(writer, output)?;
                            RelayFile::Output(file, path)
                        }
                        false => {
                            let dir = spills.unwrap_or(declared.dir());
                            RelayFile::Spill(dir.join(format!("stream-{writer}-{}", self.begun)))
                        }
                    };
                    let (stdout, ends, relay) = streams_to_relay(readers.len(), file)?;
                    stdins.extend(readers.iter().copied().zip(ends));
                    carried.relays.push(relay);
                    stdout
                }
            };
            if !needs_file && !readers.is_empty() {
                self.streamed.insert((writer, index));
            }
            stdouts.push(stdout);
        }
        let mut streams = Vec::with_capacity(stdouts.len());
        for (position, stdout) in phase.clone().zip(stdouts) {
            let stdin = match stdins.remove(&position) {
                Some(stdin) => Some(stdin),
                None => self.stdin_from_file(position)?,
            };
            streams.push(Streams { stdin, stdout });
        }
        Ok(Wired { streams, carried })
    }

    /// Creates the file of a standard output, and offers it to readers on other nodes if it stays.
    fn create_output(&self, writer: usize, output: &TaskFile) -> Result<(File, PathBuf), TaskFailure> {
        let (file, path) = self.declared[writer].create_output(output)?;
        if let Some(offered) = self.others.offered.as_ref().filter(|_| !output.temporary) {
            let copy = file.try_clone().map_err(|error| file_failure("open", &path, error))?;
            offered.add(output.path.clone(), copy);
        }
        Ok((file, path))
    }

    /// Opens the standard input of a program if that is a file, and no other program writes it.
    fn stdin_from_file(&self, position: usize) -> Result<Option<OwnedFd>, TaskFailure> {
        let Some((index, input)) = self.tasks[position].stdin_file() else { return Ok(None) };
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

    /// Returns the place of a program in its phase, with the directories of others.
    pub fn edges<'d>(
        &self,
        phase: &Range<usize>,
        position: usize,
        directory: impl Fn(usize) -> &'d Path,
    ) -> Edges<'d> {
        let reads = self.edges.iter().filter(|edge| edge.reader == position).map(|edge| edge.writer);
        let in_phase = |writer: usize| phase.contains(&writer).then(|| writer - phase.start);
        let after = self.after(position);
        let writers = after.iter().map(|writer| directory(*writer)).collect();
        let after = after.into_iter().filter_map(in_phase).collect();
        Edges { reads: reads.filter_map(in_phase).collect(), after, writers }
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
        self.take(&self.declared, TakenOutputs::Lasting, attempt, begun, reading, store)
    }

    /// Publishes the outputs of the programs of finished phases, also temporary ones: a later phase has failed, and they
    /// need not run again. `begun` has their runs. Returns the runs of all programs.
    pub fn take_finished(
        &self,
        attempt: AttemptKey,
        begun: Vec<Option<FinishedRun>>,
        reading: Reading<'_>,
        store: &StoreVersions<'_>,
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        // A program of the failed phase may have written to its inputs.
        let (finished, failed) = self.declared.split_at(begun.len());
        failed.iter().try_for_each(DeclaredFiles::check_linked)?;
        let mut runs = self.take(finished, TakenOutputs::All, attempt, begun, reading, store)?;
        runs.resize(self.tasks.len(), None);
        Ok(runs)
    }

    fn take(
        &self,
        declared: &[DeclaredFiles<'_>],
        taken: TakenOutputs,
        attempt: AttemptKey,
        begun: Vec<Option<FinishedRun>>,
        reading: Reading<'_>,
        store: &StoreVersions<'_>,
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        let any = begun.iter().any(Option::is_some);
        let offered = self.others.offered.as_ref().filter(|offered| offered.are_read());
        let contents = (any || offered.is_some()).then_some(reading.contents);
        let taking = Taking { attempt, cancelled: reading.cancelled, contents, store, taken };
        let outputs = DeclaredFiles::take_all(declared, &self.streamed, &taking)?;
        if let Some(offered) = &self.others.offered {
            offered.published(outputs.values());
        }
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
        if let Some((index, input)) = growing_stdin(task) {
            let (file, _) = reading.stamped(&input.path).ok()?;
            let streamed = self.others.read()?;
            // Somebody has changed the file since.
            if (file.bytes, file.sha256) != (streamed.bytes, Some(streamed.sha256)) {
                return None;
            }
            read.insert(index, file);
        }
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
    FileContent {
        path,
        real_path: None,
        sha256: None,
        bytes: 0,
        stamp: None,
        made_by: None,
        stored: None,
        compression: None,
    }
}

/// Returns the output that holds the standard output of a program, and its position.
fn stdout_of(task: &RunTask) -> Option<(usize, &TaskFile)> {
    let name = task.stdout.as_ref()?;
    task.outputs.iter().enumerate().find(|(_, output)| output.name == *name)
}

/// Returns the standard input of a program, and its position, if an attempt on another node is still writing it.
fn growing_stdin(task: &RunTask) -> Option<(usize, &TaskFile)> {
    task.growing.and_then(|_| task.stdin_file())
}
