//! The streams and files between the programs of a pipeline.

use crate::failure::file_failure;
use crate::tasks::declared_files::{DeclaredFiles, OutputContents, StoreVersions, TakenOutputs, Taking};
use crate::tasks::finished_runs::Reading;
use crate::tasks::growing_input::NodeStreams;
use api::TaskFailure;
use api::job::pipeline::PipelineEdge;
use api::task::{FileContent, FinishedRun, RunTask, TaskFile};
use faults::{IoCall, io_call};
use ids::AttemptKey;
use program::{
    CarriedStreams, Relay, RelayFile, Streams, named_to_relay, streams_to_file, streams_to_program,
    streams_to_relay,
};
use roots::JobPaths;
use std::collections::BTreeSet;
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
    /// Named outputs of the present phase that are files too, with the paths of these until the phase ends.
    beside: Vec<(usize, usize, PathBuf)>,
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
    /// Names of its streams that it opens.
    pub streams: Vec<PathBuf>,
}

impl<'a> Wiring<'a> {
    pub fn new(task: &'a RunTask, others: NodeStreams) -> Self {
        let (tasks, edges) = (task.programs().collect(), task.edges());
        let (declared, streamed, beside) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { tasks, edges, declared, streamed, beside, begun: 0, others }
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
        self.beside.clear();
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

    /// Makes the streams of the programs of a phase. `spills` is a directory for bytes that wait for readers.
    pub fn wire(&mut self, phase: &Range<usize>, spills: Option<&Path>) -> Result<Wired, TaskFailure> {
        let streams = phase.clone().map(|_| Streams::shown()).collect();
        let mut wired = Wired { streams, carried: CarriedStreams::default() };
        if phase.contains(&0)
            && let Some((stdin, feed)) = self.others.take_stdin()
        {
            wired.streams[0].stdin = Some(stdin);
            wired.carried.feeds.push(feed);
        }
        for writer in phase.clone() {
            let task = self.tasks[writer];
            for (index, output) in task.outputs.iter().enumerate() {
                if task.writes_stream(index) {
                    self.wire_output(phase, (writer, index), output, spills, &mut wired)?;
                }
            }
        }
        for (position, streams) in phase.clone().zip(&mut wired.streams) {
            if streams.stdin.is_none() {
                streams.stdin = self.stdin_from_file(position)?;
            }
        }
        Ok(wired)
    }

    /// Makes a stream of an output. A standard output goes through a plain pipe if one program reads it at once and no file of
    /// it is needed; otherwise, if any reads it, through a relay. An output that no program streams is a file.
    fn wire_output(
        &mut self,
        phase: &Range<usize>,
        (writer, index): (usize, usize),
        output: &TaskFile,
        spills: Option<&Path>,
        wired: &mut Wired,
    ) -> Result<(), TaskFailure> {
        let from_here = |edge: &&PipelineEdge| (edge.writer, edge.output) == (writer, index);
        let edges: Vec<PipelineEdge> = self.edges.iter().filter(from_here).copied().collect();
        let readers: Vec<PipelineEdge> = edges.iter().filter(|edge| edge.streams).copied().collect();
        let needs_file = !output.temporary || edges.len() > readers.len();
        let streams = &mut wired.streams;
        let of = |position: usize| position - phase.start;
        let is_standard = !output.stream;
        match readers.first() {
            None if is_standard => {
                streams[of(writer)].stdout = streams_to_file(self.create_output(writer, output)?.0);
                return Ok(());
            }
            None => return Ok(()),
            Some(first)
                if readers.len() == 1 && is_standard && !needs_file && self.takes_all(phase, first) =>
            {
                let (stdout, stdin) = streams_to_program(of(first.reader))?;
                (streams[of(writer)].stdout, streams[of(first.reader)].stdin) = (stdout, Some(stdin));
            }
            Some(_) => {
                let spill = || spills.unwrap_or(self.declared[writer].dir());
                let file = match (needs_file, is_standard) {
                    (false, _) => {
                        RelayFile::Spill(spill().join(format!("stream-{writer}-{index}-{}", self.begun)))
                    }
                    (true, true) => {
                        let (file, path) = self.create_output(writer, output)?;
                        RelayFile::Output(file, path)
                    }
                    (true, false) => {
                        let (file, path) = self.declared[writer].create_beside(index, output)?;
                        self.beside.push((writer, index, path.clone()));
                        RelayFile::Output(file, path)
                    }
                };
                let mut relay = match is_standard {
                    true => {
                        let (stdout, relay) = streams_to_relay(file)?;
                        streams[of(writer)].stdout = stdout;
                        relay
                    }
                    false => {
                        let place = self.declared[writer].dir().join(&output.name);
                        let (stream, relay) = named_to_relay(&place, &output.name, file)?;
                        streams[of(writer)].named.push(stream);
                        relay
                    }
                };
                self.add_readers(phase, &readers, &mut relay, streams)?;
                wired.carried.relays.push(relay);
            }
        }
        if !needs_file {
            self.streamed.insert((writer, index));
        }
        Ok(())
    }

    /// Adds the readers of a relay.
    fn add_readers(
        &self,
        phase: &Range<usize>,
        readers: &[PipelineEdge],
        relay: &mut Relay,
        streams: &mut [Streams],
    ) -> Result<(), TaskFailure> {
        for edge in readers {
            let streams = &mut streams[edge.reader - phase.start];
            let input = &self.tasks[edge.reader].inputs[edge.input];
            if !input.stream {
                streams.stdin = Some(relay.add_reader()?);
                continue;
            }
            let place = self.declared[edge.reader].dir().join(&input.name);
            streams.named.push(relay.add_named_reader(&place, &input.name)?);
        }
        Ok(())
    }

    /// Returns whether a program takes the bytes of a stream without waiting for anything else, so that its writer may wait
    /// for it. If each program that waits for something has a relay before it, no circle of programs can wait.
    fn takes_all(&self, phase: &Range<usize>, edge: &PipelineEdge) -> bool {
        let is_standard = !self.tasks[edge.reader].inputs[edge.input].stream;
        let streams = self.edges.iter().filter(|other| other.reader == edge.reader && other.streams).count();
        is_standard && streams == 1 && self.after(edge.reader).range(phase.clone()).next().is_none()
    }

    /// Gives the files of named streams their names in the directories of their programs, which have succeeded.
    pub fn end_phase(&mut self) -> Result<(), TaskFailure> {
        for (writer, index, path) in self.beside.drain(..) {
            let place = self.declared[writer].dir().join(&self.tasks[writer].outputs[index].name);
            let renamed = io_call(IoCall::Rename, &place).and_then(|()| std::fs::rename(&path, &place));
            renamed.map_err(|error| file_failure("rename", &place, error))?;
        }
        Ok(())
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
        let streams = self.named_streams(position);
        Edges { reads: reads.filter_map(in_phase).collect(), after, writers, streams }
    }

    /// Returns the names of the streams that a program opens, as far as they are pipes.
    fn named_streams(&self, position: usize) -> Vec<PathBuf> {
        let task = self.tasks[position];
        let file = |edge: &PipelineEdge| match (edge.reader == position, edge.writer == position) {
            (true, _) => Some(&task.inputs[edge.input]),
            (_, true) => Some(&task.outputs[edge.output]),
            _ => None,
        };
        let piped = self.edges.iter().filter(|edge| edge.streams).filter_map(file);
        piped.filter(|file| file.stream).map(|file| file.name.clone()).collect()
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
                None => FileContent::without_content(path),
            };
            read.insert(edge.input, file);
        }
        let wrote = task.outputs.iter().enumerate().map(|(index, output)| {
            let content = outputs.get(&(position, index)).cloned();
            content.unwrap_or_else(|| FileContent::without_content(output.path.clone()))
        });
        Some(FinishedRun { inputs: read.into_values().collect(), outputs: wrote.collect(), ..begun })
    }
}

/// Returns the standard input of a program, and its position, if an attempt on another node is still writing it.
fn growing_stdin(task: &RunTask) -> Option<(usize, &TaskFile)> {
    task.growing.and_then(|_| task.stdin_file())
}
